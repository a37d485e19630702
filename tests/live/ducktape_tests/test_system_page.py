from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ducktape_tests import results
from ducktape_tests.report import page, timeline, timeline_picture
from ducktape_tests.report.timeline import FaultSpan, IsrState
from ducktape_tests.results import PlannedTest, Result
from pyhooks.core import files
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from written_histories import REJECTED, TIMEOUT, Simulated, event

S = 1_000_000_000


def outage() -> list[Event]:
    """Return the history of an outage of rack b; the topic needs both racks."""
    cluster = Simulated()
    cluster.rest(2)
    cluster.send(20)
    cluster.lose("b")
    cluster.send(10)
    cluster.heal("b")
    cluster.send(20)
    cluster.end()
    return cluster.events


def look(at_s: float, **partitions: tuple[int, list[int]]) -> Event:
    states = {
        f"{name.replace('_', '-')}": {"leader": leader, "isr": isr, "replicas": [1, 2, 3]}
        for name, (leader, isr) in partitions.items()
    }
    return event(round(at_s * S), "isr-watch", "look", racks={"1": "a", "2": "b", "3": "c"}, partitions=states)


def attempt(at_s: float, topic: str, exception: str = "") -> Event:
    more = {"exception": exception} if exception else {}
    return event(round(at_s * S), "producer", "produce", "fail" if exception else "ok", topic=topic, key="k", **more)


def test_timeline_of_an_outage() -> None:
    found = timeline.read(outage())
    (fault,) = found.faults
    assert fault.name == "kill rack b"
    assert 2 < fault.from_s < fault.to_s < found.length_s
    (topic,) = found.topics
    assert (topic.name, topic.requirement) == ("t", "M=2, R=2")
    assert topic.acked.total() == 40
    assert {kind: seconds.total() for kind, seconds in topic.rejected.items()} == {"NotEnoughRacks": 10}
    assert [(one.racks, one.leader) for one in topic.partitions[0]] == [
        (("a", "b"), "a"),
        (("a",), "a"),
        (("a", "b"), "a"),
    ]


def test_unknown_and_incomplete_events_are_skipped() -> None:
    good = outage()
    odd = [
        event(1, "history", "torn", "unknown"),
        Event(0, 0, "history", "torn", "unknown", None, {"line": 1, "text": "{"}),
        event(900 * S, "somebody", "something", topic="t", level=3),
        event(5 * S, "isr-watch", "look", racks={"1": "a"}, partitions={"t-0": {"leader": None}}),
        event(5 * S, "isr-watch", "look", racks={"x": "a"}, partitions=[]),
        event(5 * S, "isr-watch", "look", "unknown", error="nobody"),
        event(5 * S, "fault", "kill-rack", None, "b"),
        event(5 * S, "somebody", "produce"),
    ]
    with_odd = timeline.read([*good, *odd])
    without = timeline.read(good)
    assert with_odd.faults == without.faults
    assert with_odd.length_s == without.length_s
    assert [one.acked for one in with_odd.topics] == [one.acked for one in without.topics]
    nothing = timeline.read([])
    assert (nothing.topics, nothing.faults, nothing.length_s) == ((), (), 0.0)
    assert "no records were sent" in timeline_picture.svg(nothing, "nothing")


def test_unhealed_fault_lasts_to_the_end() -> None:
    events = [
        event(1 * S, "producer", "produce", topic="t", key="k"),
        event(2 * S, "fault", "cut-broker", None, "b", step="inject", broker=3),
        event(9 * S, "producer", "produce", topic="t", key="k"),
    ]
    assert timeline.read(events).faults == (FaultSpan("cut broker 3", 1.0, 8.0),)


def test_busiest_topics_are_shown_and_others_summed() -> None:
    events = [attempt(1, f"t{number:02}") for number in range(12) for _ in range(number + 1)]
    events += [attempt(3, "t00", TIMEOUT), look(1, t00_0=(1, [1, 2, 3]), t01_0=(2, [1, 2]), t11_0=(1, [1, 2, 3]))]
    events.append(look(4, t00_0=(-1, []), t01_0=(2, [1, 2])))
    found = timeline.read(events, topics=8)
    assert [one.name for one in found.topics] == [
        *(f"t{number:02}" for number in range(4, 12)),
        "4 other topics together",
    ]
    rest = found.topics[-1]
    assert rest.acked.total() == 1 + 2 + 3 + 4
    assert rest.rejected["Timeout"].total() == 1
    # the joint row has the fewest racks of any topic, and no leader as soon as one topic has none
    assert rest.partitions[0] == [IsrState(0.0, ("a", "b"), "b"), IsrState(3.0, (), "")]
    assert "4 other topics together" in timeline_picture.svg(found, "many")


def settings(at_s: float, step: str, racks: int, replicas: int = 2) -> Event:
    fields: dict[str, Any] = {"min.insync.replicas": replicas, "min.insync.racks": racks, "topic": "t", "step": step}
    return event(round(at_s * S), "test", "settings", **fields)


def test_changes_of_settings_are_shown() -> None:
    # an observer may still see the previous value
    events = [settings(1, "seen", 2), settings(5, "begin", 1), settings(5.5, "seen", 2), settings(6, "settled", 1)]
    found = timeline.read(events)
    assert (found.topics[0].requirement, found.topics[0].changes) == ("M=2, R=2", [(4.0, "R=1")])
    assert "R=1" in timeline_picture.svg(found, "x")
    # a cluster-wide default: the beginning of its change is not recorded
    found = timeline.read([*events, settings(9, "seen", 1), settings(10, "seen", 3, 1)])
    assert found.topics[0].changes == [(4.0, "R=1"), (9.0, "M=1, R=3")]


def test_rejected_changes_and_order_of_time() -> None:
    rejected = [settings(3, "begin", 2), settings(3.1, "rejected", 2)]
    events = [settings(1, "seen", 1), *rejected, settings(8, "begin", 2), settings(8.2, "settled", 2)]
    expected = [(2.0, "R=2 rejected"), (7.0, "R=2")]
    assert timeline.read(events).topics[0].changes == expected
    # another process's observations are appended only when it ends
    late = [settings(2, "seen", 1), settings(4, "seen", 1), settings(8.1, "seen", 1), settings(9, "seen", 2)]
    found = timeline.read([*events, *late])
    assert found.topics[0].changes == expected
    assert found.topics[0].requirement == "M=2, R=1"


def test_labels_of_settings_do_not_overlap() -> None:
    many = [(at_s, f"R={number % 2 + 1}") for number, at_s in enumerate(50 + 0.5 * place for place in range(20))]
    placed = timeline_picture._labels([*many, (150.0, "R=3"), (199.0, "R=2 rejected")], 200)
    assert placed[-2:] == [(150.0, 0, "R=3", "left"), (199.0, 0, "R=2 rejected", "right")]
    assert len({line for _, line, _, _ in placed}) == timeline_picture.LINES
    # no label is left out
    assert sum(text.count("R=") for _, _, text, _ in placed) == len(many) + 2
    per_s = (timeline_picture.WIDTH - timeline_picture.LEFT - timeline_picture.RIGHT) / 200
    for line in range(timeline_picture.LINES):
        own = [(at_s * per_s, len(text) * timeline_picture.SMALL) for at_s, number, text, _ in placed if number == line]
        assert all(at + wide < after for (at, wide), (after, _) in itertools.pairwise(own))


@pytest.mark.parametrize(
    ("exception", "kind"),
    [(REJECTED, "NotEnoughRacks"), ("NOT_ENOUGH_REPLICAS", "NotEnoughReplicas"), ("_MSG_TIMED_OUT", "MsgTimedOut"),
     (None, "no response"), ("not-reported", "not-reported")],
)  # fmt: skip
def test_short_names_of_errors(exception: str | None, kind: str) -> None:
    assert timeline.kind_of(exception) == kind


def test_picture_shows_faults_rejections_and_racks() -> None:
    events = outage()
    events += [
        look(30 + number, **{f"t_{place}": (-1 if number == place else 2, [2]) for place in range(1, 9)})
        for number in range(4)
    ]
    drawn = timeline_picture.svg(timeline.read(events), "x_test.py::A.test_one")
    for text in (
        "kill rack b",
        "NotEnoughRacks (10)",
        "no leader",
        "fewest of 3",
        "racks of",
        "t (M=2, R=2): 40 acknowledged, 10 not",
    ):
        assert text in drawn
    assert drawn == timeline_picture.svg(timeline.read(events), "x_test.py::A.test_one")


def test_names_of_faults_do_not_overlap() -> None:
    flapping = [FaultSpan("pause rack b", 3.0 * number, 3.0 * number + 1) for number in range(60)]
    often, lanes = timeline_picture._names([*flapping[:15], FaultSpan("cut broker 3", 50, 60)], 180)
    assert (often, lanes) == ([(0.0, 0, "pause rack b \N{MULTIPLICATION SIGN}15"), (50, 0, "cut broker 3")], 1)
    many = [FaultSpan(f"pause rack {number % 30}", 3.0 * number, 3.0 * number + 1) for number in range(60)]
    placed, lanes = timeline_picture._names(many, 180)
    assert lanes == timeline_picture.LINES
    for line in range(lanes):
        own = [at for at, lane, _ in placed if lane == line]
        assert all(later - earlier > 10 for earlier, later in itertools.pairwise(own))
    one, lanes = timeline_picture._names([FaultSpan("kill rack b", 3, 5)], 60)
    assert (one, lanes) == ([(3, 0, "kill rack b")], 1)


def run_of(run_dir: Path) -> dict[str, Any]:
    tests = [
        PlannedTest("x_test.py::A.test_a_rack_goes", "az3", 2, "x.A.test_a_rack_goes"),
        PlannedTest("x_test.py::B.test_a_rack_goes", "stretch2", 2, "x.B.test_a_rack_goes"),
        PlannedTest("y_test.py::C.test_other", "az3", 2, "y.C.test_other"),
    ]
    session = run_dir / "tests" / tests[0].folder / "results" / "1"
    own = session / "A" / "1"
    own.mkdir(parents=True)
    History(own / "history.jsonl").extend(outage())
    verdicts = [{"checker": "progress", "valid": "unknown", "because": ["<nobody> looked"], "notes": []}]
    files.write_json(own / "verdicts.json", verdicts)
    files.write_json(own / results.LEFT_OUT, ["slow rack b"])
    files.write_json(own / "figures.json", {"p99_ms": 7.25, "by": {"racks": [1, 2]}})
    files.write_json(session / "expected.json", [{"test_id": "n", "injected_args": None}])
    row = {
        "test_id": "n",
        "test_status": "FAIL",
        "summary": "",
        "run_time_seconds": 90.0,
        "relative_results_dir": "A/1",
    }
    files.write_json(session / "report.json", {"results": [row]})
    files.write_json(session.parent.parent / "ended.json", {"status": 1, "seconds": 91.0, "why": ""})
    run = {
        "schema": results.SCHEMA, "started": "2026-01-01T00:00:00+0000", "selections": ["system"],
        "seed": 1290, "jobs": 2,
        "settings": {}, "command": "rackgate system run system --seed 1290 --jobs 2", "options": "--seed 1290",
        "cluster_file": "", "versions": {"kafka": "4.0.0"}, "machine": {"kernel": "6.1", "cpus": 2}, "duration_s": 95.0,
        "target_min": 40,
        "tests": [asdict(one) for one in tests],
    }  # fmt: skip
    files.write_json(run_dir / "run.json", run)
    return run


def test_page_of_a_run(tmp_path: Path) -> None:
    run_of(tmp_path)
    document = page.render(tmp_path)
    assert document["counts"] == {"pass": 0, "fail": 0, "unknown": 1, "not run": 2}
    assert document["exit_status"] == 1
    assert json.loads(json.dumps(document)) == json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    first = document["results"][0]
    for needed in (
        "The target of 40 minutes: met, it took 1.6.", "Skipped, because they need a lab: slow rack b.",
        "steps skipped", "1290", "kafka 4.0.0", "7.25", "by.racks", "progress is unknown: &lt;nobody&gt; looked",
        f'href="{first["picture"]}"', f'href="{first["folder"]}/history.jsonl"', "a rack goes",
        "rackgate system run x_test.py::A.test_a_rack_goes --seed 1290",
    ):  # fmt: skip
        assert needed in text
    assert "http" not in text
    picture = tmp_path / first["picture"]
    assert picture.read_text(encoding="utf-8").count("kill rack b") == 1
    drawn = picture.stat().st_mtime_ns
    page.render(tmp_path)
    assert picture.stat().st_mtime_ns == drawn


def test_invalid_history_is_reported(tmp_path: Path) -> None:
    run_of(tmp_path)
    (history,) = tmp_path.rglob("history.jsonl")
    history.write_text('{"mono_ns":1}\n', encoding="utf-8")
    first = page.render(tmp_path)["results"][0]
    assert first["picture"] == ""
    assert "invalid history" in first["picture_problem"]


def test_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="no run of system tests"):
        page.render(tmp_path)


def test_tests_with_the_same_name_share_a_row() -> None:
    found = [
        asdict(Result(f'm_test.py::{cls}.test_goes@{{"fault": "{fault}"}}', place, "pass"))
        for cls, place in (("Az3", "az3"), ("Stretch", "stretch2"))
        for fault in ("kill", "cut")
    ]
    rows, topologies = page.grid(found)
    assert topologies == ["az3", "stretch2"]
    assert [(row["file"], row["name"], row["cells"]) for row in rows] == [
        ("m", "goes fault=kill", {"az3": [0], "stretch2": [2]}),
        ("", "goes fault=cut", {"az3": [1], "stretch2": [3]}),
    ]


def test_figures_are_flat_and_truncated() -> None:
    figures = {"a": 1234.5678, "b": {"c": True, "d": [{"e": None}, 2]}, "n": 12345, "w": "x"}
    assert page.figure_rows(figures) == [
        ("a", "1,235"), ("b.c", "yes"), ("b.d[0].e", "\N{EN DASH}"), ("b.d[1]", "2"), ("n", "12,345"), ("w", "x"),
    ]  # fmt: skip
    many = page.figure_rows({str(number): number for number in range(100)})
    assert len(many) == page.MAX_FIGURES + 1
    assert many[-1] == ("…", "60 more in results.json")


def test_labels_of_bursts_do_not_overlap() -> None:
    values = [20] * 1000
    values[100:102] = [300, 200]
    values[500:510] = range(101, 111)
    # its label would overlap the previous one, so it is merged into that
    values[520] = 400
    values[900] = 1500
    assert timeline_picture.bursts(values, 80, 1000) == [
        (102, "300, 200"),
        (521, "101 to 400 in 11 s"),
        (901, "1,500"),
    ]
    assert timeline_picture.bursts([20] * 1000, 80, 1000) == []
