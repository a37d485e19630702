"""Benchmark of repeated outages: plan, rejection meters, statistics over outages, losses of a destroyed rack."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.analysis import exit_reasons
from bench.analysis.availability import NS, REJECTED, UNKNOWN, UNPROTECTED
from bench.cli import bench_app
from bench.outages import destruction, outage_page, outage_results, rejection_metrics
from bench.plan import outage_plan
from outage_benchmark_results import ARM, LAB, OUTAGES, PLAN, outage, result
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.core import files, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event

FAULT = RecordedFault("kill-rack", "b", None, inject_ns=10 * NS, heal_ns=30 * NS, healed_ns=34 * NS)


@pytest.mark.parametrize("name", ["full", "quick"])
def test_all_plans_compare_the_same_arms_on_each_placement(name: str) -> None:
    plan = outage_plan.load(name)
    assert {(arm.min_insync_replicas, arm.min_insync_racks) for arm in plan.arms} == {(3, 1), (2, 2), (2, 1)}
    for lab in plan.labs:
        arms = plan.arms_of(lab)
        assert len({arm.topic for arm in arms}) == len(arms) == 3 * len(lab.placements)
        assert set(lab.outages) == {"kill", "cut"}
        order = lab.order(plan.seed)
        assert {fault: order.count(fault) for fault in lab.outages} == lab.outages


def test_stock_kafka_has_no_arm_that_requires_racks() -> None:
    plan = outage_plan.load("returned")
    assert {lab.name: (lab.stock, lab.arms) for lab in plan.labs} == {
        "stock": (True, ("A", "C")),
        "overlay-R1": (False, ("A", "C")),
        "overlay-R2": (False, ("B", "C")),
    }
    assert plan.background_rate_per_s > 0
    assert plan.destruction is None
    states = [state for lab in plan.labs for state in outage_results.state_figures(plan, lab, [])]
    assert [(state["lab"], [arm["arm"] for arm in state["arms"]]) for state in states] == [
        (lab.name, list(lab.arms)) for lab in plan.labs
    ]
    assert len({state["text"] for state in states}) == 3


def test_a_plan_has_no_two_labs_of_one_name(tmp_path: Path) -> None:
    file = tmp_path / "outages.toml"
    text = outage_plan.SHIPPED.read_text(encoding="utf-8")
    file.write_text(text.replace('name = "overlay-R1"', 'name = "stock"'), encoding="utf-8")
    with pytest.raises(RackgateError, match="same name"):
        outage_plan.load("returned", file)
    file.write_text(text.replace('arms = ["A", "C"]', 'arms = ["A", "B"]', 1), encoding="utf-8")
    with pytest.raises(RackgateError, match="must be one of A, C"):
        outage_plan.load("returned", file)


def test_the_page_shows_the_longest_attempt_while_the_rack_catches_up() -> None:
    column = next(at for at, name in enumerate(outage_page.HEAD) if "catches up" in name)
    state = outage_results.state_figures(PLAN, LAB, [outage("cut", number) for number in (1, 2)])[1]
    assert [row[column] for row in outage_page.rows(state)] == [
        "4 ms in 2 of 2; 80 ms in 2 of 2",
        "4 ms in 2 of 2; 80 ms in 2 of 2",
        "4 ms in 2 of 2; 12 ms in 2 of 2",
    ]


def test_the_full_plan_repeats_each_outage_in_both_topologies() -> None:
    assert all(times >= 2 for lab in PLAN.labs for times in lab.outages.values())
    assert {lab.topology for lab in PLAN.labs} == {"az3-outside", "stretch2-outside"}
    assert PLAN.destruction is not None


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("times = 3", "times = 0", "times"),
        ('rack = "west"', 'rack = "north"', "no rack 'north'"),
        ("replicas = [1, 3, 5]", "replicas = [1, 3, 9]", "no broker 9"),
        ("seed = 1290", "seeds = 1290", "seed"),
        ('fault = "cut"', 'fault = "pause"', "kill, cut"),
        ('destroyed = "a"', 'destroyed = "b"', "differ from unavailable_rack"),
        ("before_s = 4", "before_s = 1", "discard_s"),
    ],
)
def test_an_invalid_plan_is_an_error_that_names_the_key(tmp_path: Path, old: str, new: str, error: str) -> None:
    text = outage_plan.SHIPPED.read_text(encoding="utf-8")
    assert old in text
    file = tmp_path / "outages.toml"
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(RackgateError, match=error):
        outage_plan.load("full", file)


def poll(at_s: float, broker: int, count: int | None, *, answered: bool = True) -> Event:
    topics = {} if count is None else {"t": {rejection_metrics.REJECTED: count}}
    data: dict[str, Any] = {
        "broker": broker,
        "latency_ms": 1.0,
        "values": {},
        "topics": topics,
        "columns": [],
        "partitions": {},
    }
    return Event(round(at_s * NS), 0, "metrics", "metric", "ok" if answered else "unknown", None, data)


def test_the_first_rejection_is_bounded_by_the_previous_poll_of_the_meter() -> None:
    events = [poll(9.5, 1, 7), poll(9.9, 3, 0), poll(12, 3, 50), poll(18, 1, 7), poll(18.5, 1, 9), poll(25, 1, 20)]
    first = rejection_metrics.first_rejection(events, "t", FAULT, unavailable={3, 4}, until_ns=34 * NS)
    assert first == {"after_s": 8.5, "at_most_early_s": 0.5, "counted": 13, "answers": 3}


def test_a_meter_that_first_appears_under_the_fault_started_at_zero() -> None:
    polls = [poll(9, 1, None), poll(20, 1, 1)]
    first = rejection_metrics.first_rejection(polls, "t", FAULT, unavailable=(), until_ns=34 * NS)
    assert first == {"after_s": 10.0, "at_most_early_s": 10.0, "counted": 1, "answers": 1}


@pytest.mark.parametrize(
    "events",
    [[], [poll(9, 1, 0), poll(20, 1, 5, answered=False)], [poll(20, 1, 5)]],
    ids=["not queried", "no response under the fault", "no response before the fault"],
)
def test_without_polls_the_time_of_the_first_rejection_is_unknown(events: list[Event]) -> None:
    first = rejection_metrics.first_rejection(events, "t", FAULT, unavailable=(), until_ns=34 * NS)
    assert (first["after_s"], first["answers"]) == (None, 0)


def test_an_interval_needs_five_outages() -> None:
    single = outage_results.mean_over_outages([9.0], confidence=0.95)
    assert single == {"mean": 9.0, "low": None, "high": None, "outages": 1, "values": [9.0]}
    assert outage_results.seconds_text(single) == "9.0 s"
    four = outage_results.mean_over_outages([8.0, 9.0, 10.0, 9.0], confidence=0.95)
    assert four is not None
    assert (four["mean"], four["low"], four["high"]) == (9.0, None, None)
    assert outage_results.seconds_text(four) == "8.0 to 10.0 s in 4 of 4"
    # Results of earlier versions have an interval.
    assert outage_results.seconds_text(four | {"low": 7.0, "high": 11.0}) == "8.0 to 10.0 s in 4 of 4"
    five = outage_results.mean_over_outages([8.0, 9.0, 10.0, 8.0, 10.0], confidence=0.95)
    assert five is not None
    # Student's t with four degrees of freedom: 2.776 standard errors of 1/sqrt(5)
    assert (five["low"], five["high"]) == pytest.approx((9 - 1.2415, 9 + 1.2415), abs=1e-3)
    assert outage_results.seconds_text(five) == "9.0 s (7.8 to 10.2)"
    shares = outage_results.mean_over_outages([0.9, 1.0, 1.0, 1.0, 1.0], confidence=0.95, most=1.0)
    # 2.776 standard errors of 0.02, limited to 1.
    assert shares is not None
    assert (shares["low"], shares["high"]) == pytest.approx((0.9245, 1.0), abs=1e-3)
    assert outage_results.mean_over_outages([], confidence=0.95) is None


@pytest.mark.parametrize(("value", "share", "time"), [(0.0, "0.0 %", "0.0 s"), (1.0, "100.0 %", "1.0 s")])
def test_equal_outages_have_no_interval(value: float, share: str, time: str) -> None:
    constant = outage_results.mean_over_outages([value] * 3, confidence=0.95, most=1.0)
    assert constant == {"mean": value, "low": None, "high": None, "outages": 3, "values": [value] * 3}
    assert outage_results.percent_text(constant) == f"{share} in 3 of 3"
    assert outage_results.seconds_text(constant) == f"{time} in 3 of 3"
    # Results of earlier versions have an interval.
    assert outage_results.percent_text(constant | {"low": value, "high": value}) == f"{share} in 3 of 3"
    single = outage_results.mean_over_outages([value], confidence=0.95)
    assert single is not None
    assert outage_results.percent_text(single) == share


def test_an_unverified_outage_is_unknown_and_in_no_mean() -> None:
    states = {state["text"]: state for state in outage_results.state_figures(PLAN, LAB, OUTAGES)}
    assert set(states) == {
        f"{placement}, rack b {fault}" for placement in ("a,a,b", "a,b,c") for fault in ("killed", "cut off")
    }
    killed, cut = (states[f"a,a,b, rack b {fault}"]["arms"][1] for fault in ("killed", "cut off"))
    assert killed["did"] == {"was rejected": 2, "unknown": 1}
    assert (killed["outages"], killed["proved"], killed["fault_share"]["outages"]) == (3, 2, 2)
    assert outage_results.common_behaviour(killed) == "unknown"
    assert outage_results.common_behaviour(cut) == "was rejected"
    assert cut["first_rejection_probe_s"]["low"] is None


def test_only_topics_that_rejected_records_have_a_time_to_first_ack() -> None:
    arms = outage_results.state_figures(PLAN, LAB, [outage("cut", 1)])[3]["arms"]
    assert [arm["first_ack_after_heal_s"] is None for arm in arms] == [False, True, True]


def test_outages_without_an_ack_after_the_heal_are_counted_separately() -> None:
    outages = [outage("cut", number) for number in (1, 2, 3)]
    outages = copy.deepcopy(outages)
    for without_ack in outages[:2]:
        without_ack["numbers"]["topics"][1]["first_ack_after_heal_s"] = None
    state = outage_results.state_figures(PLAN, LAB, outages)[1]
    arm = state["arms"][1]
    assert (arm["first_ack_after_heal_s"]["values"], arm["no_ack_after_heal"]) == ([5.0], 2)
    assert [row["no_ack_after_heal"] for row in state["arms"]] == [0, 2, 0]
    column = outage_page.HEAD.index("heal to first ack")
    assert [row[column] for row in outage_page.rows(state)][1:] == ["5.0 s, none in 2", "\N{EN DASH}"]
    (verdict,) = outage_results._of_state(state)
    assert "acknowledged again 5.0 s after the heal began, no acknowledgement after the heal in 2;" in verdict["text"]
    outages[2]["numbers"]["topics"][1]["first_ack_after_heal_s"] = None
    state = outage_results.state_figures(PLAN, LAB, outages)[1]
    assert outage_page.rows(state)[1][column] == "none in 3"


READ_BACK = {"acked": 400, "read": 400, "lost": 3}


@pytest.mark.parametrize(
    ("changes", "lost", "reason"),
    [
        ({}, 3, ""),
        ({"proved": False}, None, "a fault was not proved"),
        ({"isr_racks": ("a", "b")}, None, "the ISR was in a, b when rack a was destroyed"),
        ({"isr_racks": None}, None, "the ISR was not observed when rack a was destroyed"),
        ({"elected": None}, None, "it has no leader afterwards, so nothing can be read"),
        ({"counted": None}, None, "nothing was acknowledged"),
        ({"counted": {"acked": 0, "read": 0, "lost": 0}}, None, "nothing was acknowledged"),
    ],
)
def test_losses_of_a_destroyed_rack_are_counted_or_unknown(
    changes: dict[str, Any], lost: int | None, reason: str
) -> None:
    facts: dict[str, Any] = {"counted": READ_BACK, "elected": (3, False), "isr_racks": ("a",), "proved": True} | changes
    verified = facts.pop("proved")
    row = destruction.arm_row(ARM, facts["counted"], facts["elected"], facts["isr_racks"], "a", proved=verified)
    assert (row["lost"], row["unknown"]) == (lost, reason)


def test_the_verdicts_cover_behaviour_and_losses_of_each_arm() -> None:
    verdict_texts = {(row["subject"], row["verdict"]): row["text"] for row in result()["verdicts"]}
    assert verdict_texts["M=2, R=2, a,b,c, rack b cut off", "continued"] == (
        "In 1 of 1 outages; M=3, R=1 was rejected in 1 of 1; M=2, R=1 continued in 1 of 1."
    )
    assert ("M=2, R=2, a,a,b, rack b killed", "unknown") in verdict_texts
    state = "rack a destroyed while rack b was cut off"
    destroyed = {verdict for subject, verdict in verdict_texts if state in subject}
    assert destroyed == {"whole", "lost"}
    assert "900 of 900 acknowledged records are lost." in verdict_texts.values()


def test_the_page_has_a_picture_of_each_state_and_tables(tmp_path: Path) -> None:
    files.write_json(tmp_path / "results.json", result())
    page = outage_page.render(outage_results.load(tmp_path), tmp_path).read_text(encoding="utf-8")
    for number in range(1, 5):
        assert f'id="picture-timeline-{number}"' in page
        for suffix in ("png", "svg"):
            assert (tmp_path / f"timeline-{number}.{suffix}").stat().st_size > 10_000
    assert ">None<" not in page
    assert "http" not in page.replace("http://www.w3.org", "")
    table = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    # Twelve rows of four states and three arms; two of the destroyed rack.
    assert sorted(line.count("|") for line in table if line.startswith("| a,")) == [6] * 2 + [14] * 12


def test_a_result_of_another_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="rackgate bench outages"):
        outage_results.load(tmp_path)
    (tmp_path / "results.json").write_text('{"schema": 3, "cells": []}', encoding="utf-8")
    with pytest.raises(RackgateError, match="not a result"):
        outage_results.load(tmp_path)


def objections(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return verdict and subject of each objection to a result, in the order of its report."""
    reasons = exit_reasons.outage_reasons(data)
    concluded = exit_reasons.conclude(reasons, [])
    assert concluded["exit_status"] == min((exit_reasons.STATUSES[reason.verdict] for reason in reasons), default=0)
    return [(row["verdict"], row["subject"]) for row in concluded["verdicts"]]


def valid_result() -> dict[str, Any]:
    """Return a result without objections."""
    data = copy.deepcopy(result())
    data["labs"][0]["outages"] = [outage for outage in data["labs"][0]["outages"] if outage["numbers"]["proved"]]
    return data


def test_arms_that_behaved_as_their_isr_requires_have_no_objection() -> None:
    assert objections(valid_result()) == []


def test_an_outage_with_an_unverified_fault_is_unknown() -> None:
    assert objections(result()) == [("unknown", "az3-outside, outage 3, rack b killed")]


# During the settled outage, placement a,a,b has ISR 1, 2 in rack a; placement a,b,c has ISR 1, 5 in racks a, c.
FULL_ISR = {"at_s": 20.0, "leader": 1, "isr": [1, 2, 3], "racks": ["a", "b"]}


@pytest.mark.parametrize(
    ("topic_index", "changes", "verdict", "text"),
    [
        (1, {"behaviour": UNPROTECTED, "settled_done": 220}, "failed", "Acknowledged 220 records while"),
        # Records sent before the rack left the ISR must not be acknowledged either.
        (1, {"settled_done": 3}, "failed", "Acknowledged 3 records while its ISR was in 1 of 2 racks."),
        (1, {"behaviour": UNKNOWN}, "unknown", "0 of 220 records were acknowledged, and the probe got 0 acks"),
        (1, {"acked": 0}, "unknown", "Nothing was acknowledged, not even before and after the outage."),
        (1, {"window_s": None, "behaviour": UNKNOWN}, "unknown", "was not observed to leave its ISR"),
        (0, {"behaviour": UNPROTECTED}, "failed",
         "Accepted records, but should reject them: its ISR was 2 brokers in rack a; M=3, R=1."),
        (4, {"behaviour": REJECTED, "settled_done": 0}, "failed",
         "Rejected records, but should accept them: its ISR was 2 "),
        (5, {"behaviour": REJECTED}, "failed", "Rejected records, but should accept them"),
    ],
)  # fmt: skip
def test_a_topic_that_contradicts_its_isr_is_an_objection(
    topic_index: int, changes: dict[str, Any], verdict: str, text: str
) -> None:
    data = valid_result()
    topic = data["labs"][0]["outages"][0]["numbers"]["topics"][topic_index]
    topic |= changes
    subject = f"az3-outside, outage 1, rack b killed: {topic['label']} ({topic['topic']})"
    assert objections(data) == [(verdict, subject)]
    (reason,) = exit_reasons.outage_reasons(data)
    assert text in reason.text


# Placement a,a,b: rack b is back in the ISR at 30 s; the load ends at 36 s.
RESTORED_ISR = {"at_s": 30.0, "leader": 1, "isr": [1, 2, 3], "racks": ["a", "b"]}


@pytest.mark.parametrize(
    ("topic_index", "changes", "isr", "outage_changes", "verdict", "text"),
    [
        (1, {}, [RESTORED_ISR], {}, "failed", "although rack b was back in its ISR after 4.0 s."),
        # This arm accepted records during the outage.
        (2, {}, [RESTORED_ISR], {}, "failed", "although rack b was back in its ISR after 4.0 s."),
        (1, {"back_after_s": None}, [], {}, "unknown", "and rack b was not observed in its ISR again."),
        (1, {}, [RESTORED_ISR], {"healed_s": None}, "unknown", "which was not proved."),
        (1, {"back_after_s": 8.5}, [RESTORED_ISR | {"at_s": 34.5}], {}, "unknown", "was not sufficient long enough"),
        # The rack left the ISR again.
        (
            1,
            {},
            [RESTORED_ISR, RESTORED_ISR | {"at_s": 31.0, "isr": [1, 2], "racks": ["a"]}],
            {},
            "unknown",
            "was not sufficient long enough",
        ),
        (1, {"probe": {"acked_after_heal": 3}}, [RESTORED_ISR], {}, "unknown", "except records of the probe."),
    ],
)
def test_a_topic_that_never_acknowledges_after_the_heal_is_an_objection(
    topic_index: int,
    changes: dict[str, Any],
    isr: list[dict[str, Any]],
    outage_changes: dict[str, Any],
    verdict: str,
    text: str,
) -> None:
    data = valid_result()
    numbers = data["labs"][0]["outages"][0]["numbers"]
    numbers |= {"settle_s": 2.0, **outage_changes}
    topic = numbers["topics"][topic_index]
    changes = changes | {"probe": topic["probe"] | {"acked_after_heal": 0} | changes.get("probe", {})}
    topic |= {"first_ack_after_heal_s": None, "back_after_s": 4.0, "isr": [*topic["isr"], *isr], **changes}
    (reason,) = exit_reasons.outage_reasons(data)
    assert (reason.verdict, reason.text.startswith("Nothing was acknowledged after the heal")) == (verdict, True)
    assert text in reason.text


def test_acks_of_the_probe_count_and_a_changing_isr_is_unknown() -> None:
    data = valid_result()
    topic = data["labs"][0]["outages"][0]["numbers"]["topics"][1]
    topic["probe"] |= {"settled_acked": 1}
    assert [verdict for verdict, _ in objections(data)] == ["failed"]
    topic["isr"].append(FULL_ISR)
    assert [verdict for verdict, _ in objections(data)] == ["unknown"]
    topic["isr"][-1] = FULL_ISR | {"at_s": 27.0}  # after the heal
    assert [verdict for verdict, _ in objections(data)] == ["failed"]


@pytest.mark.parametrize(
    ("method", "lost", "lost_without_r", "unknown", "verdict"),
    [
        ("cut", 0, 900, "", None),
        ("cut", 1, 900, "", "failed"),
        ("cut", None, 900, "a fault was not proved", "unknown"),
        # No arm lost a record, so the destruction itself is doubtful.
        ("cut", 0, 0, "", "unknown"),
        ("kill", 0, 900, "", None),
        ("kill", 400, 900, "", "failed"),
        ("kill", None, 900, "a fault was not proved", "unknown"),
    ],
)
def test_losses_of_a_destroyed_rack_are_judged(
    method: str, lost: int | None, lost_without_r: int, unknown: str, verdict: str | None
) -> None:
    data = valid_result()
    (destruction_result,) = data["destructions"]
    destruction_result["fault"] = method
    destruction_result["topics"][0] |= {"lost": lost, "unknown": unknown}
    destruction_result["topics"][1] |= {"lost": lost_without_r}
    assert [verdict for verdict, _ in objections(data)] == ([verdict] if verdict else [])


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("lost", "status"), [(0, 0), (7, 1)])
def test_bench_outages_exits_with_the_status_and_prints_the_reason_first(
    tmp_path: Path, lost: int, status: int, as_json: bool
) -> None:
    data = valid_result()
    data["destructions"][0]["topics"][0]["lost"] = lost
    # Drawing a state takes about a second.
    data["states"] = data["states"][:1]
    # Earlier versions stored no exit status.
    del data["exit_status"]
    run_folder.claim(tmp_path, run_folder.OUTAGES)
    files.write_json(tmp_path / "results.json", data)
    command = ["outages", "--page-only", "--out", str(tmp_path), *(["--json"] if as_json else [])]
    invocation = CliRunner().invoke(bench_app, command)
    assert invocation.exit_code == status
    reason = "a,a,b: M=2, R=2: FAILED. 7 of 400 acknowledged records are lost, contrary to R."
    if as_json:
        output = json.loads(invocation.stdout)
        assert (output["exit_status"], output["verdicts"][0]["verdict"] == "failed") == (status, bool(status))
    else:
        assert (reason in invocation.stdout.splitlines()[0]) is bool(status)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert ('<li class="failed">' in page) is bool(status)
    help_text = " ".join(CliRunner().invoke(bench_app, ["outages", "--help"]).output.split())
    assert "Exit status: 0 no failure was found; 1 records are lost" in help_text


def test_a_page_does_not_overwrite_files_of_a_foreign_folder(tmp_path: Path) -> None:
    files.write_json(tmp_path / "results.json", valid_result())
    (tmp_path / "index.html").write_text("thesis", encoding="utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    invocation = CliRunner().invoke(bench_app, ["outages", "--page-only", "--out", str(tmp_path)])
    assert isinstance(invocation.exception, RackgateError)
    assert invocation.exception.exit_status == 2
    assert str(tmp_path) in str(invocation.exception)
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == "thesis"
    assert sorted(path.name for path in tmp_path.iterdir()) == before
