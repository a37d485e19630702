"""Exit status of the benchmark: each objection alone turns a sound result into one that is not."""

from __future__ import annotations

import copy
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from bench import cli
from bench.analysis import exit_reasons, record_check, verdicts
from bench.cli import bench_app
from bench.plan import scenarios
from bench.run import lab_run, run_store
from bench_results import made_up, unacknowledged
from pyhooks.core import files, paths, run_folder, targets
from pyhooks.lab import cli as cluster_cli


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    return made_up()


@pytest.fixture
def result(sound: dict[str, Any]) -> dict[str, Any]:
    """A result against which nothing speaks, to be changed; A and A' refuse in its second cell, as they are to."""
    return copy.deepcopy(sound)


def judged(result: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit status and the verdicts that explain it."""
    found = exit_reasons.conclude(exit_reasons.run_reasons(result), [])
    return found["exit_status"], found["verdicts"]


def objections(result: dict[str, Any]) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit status, and word and subject of each verdict that explains it."""
    status, rows = judged(result)
    return status, [(row["word"], row["subject"]) for row in rows]


def test_a_sound_result_and_the_stored_one_have_no_objection(result: dict[str, Any]) -> None:
    assert judged(result) == (0, [])
    assert {row["word"] for row in result["verdicts"]} & {"slower", "undecided"}
    stored = json.loads((paths.REPO / "kip" / "evidence" / "bench" / "results.json").read_text(encoding="utf-8"))
    assert judged(stored) == (0, [])
    # judged by earlier rules, and not again
    latency = [verdict for verdict in stored["verdicts"] if verdict["about"] == "latency"]
    assert [verdict for verdict in verdicts.sentences(stored) if verdict["about"] == "latency"] == latency != []


@pytest.mark.parametrize("kind", record_check.KINDS)
def test_a_lost_or_misplaced_record_is_a_failure(result: dict[str, Any], kind: str) -> None:
    result["end_to_end"]["kinds"][kind] = {"count": 2, "examples": ["t: r/l/A/7", "t: r/l/A/8"]}
    status, (row,) = judged(result)
    assert (status, row["word"], row["subject"]) == (1, "failed", "records read back")
    assert row["text"].startswith(f"2 {record_check.KIND_LABELS[kind]} of 9,000 ")
    assert "t: r/l/A/7" in row["text"]
    assert ("librdkafka 4953" in row["text"]) is (kind == "duplicated")


def test_unread_records_are_unknown_and_do_not_hide_a_failure(result: dict[str, Any]) -> None:
    numbers = result["end_to_end"]
    numbers["unread"] = 1200
    status, (row,) = judged(result)
    assert (status, row["word"], row["subject"]) == (2, "unknown", "records read back")
    assert row["text"].startswith("1,200 acknowledged records")
    numbers |= {"unread": 0, "acked": 0}
    status, (row,) = judged(result)
    assert (status, row["word"], row["subject"]) == (2, "unknown", "records read back")
    assert "Nothing was acknowledged" in row["text"]
    numbers["kinds"]["invented"]["count"] = 1
    assert objections(result) == (1, [("failed", "records read back"), ("unknown", "records read back")])
    assert verdicts.record_verdicts(numbers)[0]["word"] == "broken"


GATE = {"A": "NotEnoughReplicasException", "A'": "NotEnoughReplicasException"}


@pytest.mark.parametrize(
    ("cell", "lab", "changes", "failed"),
    [
        (1, 1, {"refused": {}, "refused_after": {}}, ["A", "A'"]),
        # in the first of two labs, and at its end alone
        (1, 0, {"refused_after": {}}, ["A", "A'"]),
        (0, 0, {"refused": {"B": "NotEnoughRacksException"}}, ["B"]),
        (0, 1, {"refused_after": {"C": "NotEnoughRacksException"}}, ["C"]),
        (1, 1, {"refused": {**GATE, "B": "NotEnoughRacksException"}, "refused_after": GATE}, ["B"]),
    ],
)
def test_an_arm_that_refuses_or_acknowledges_unexpectedly_is_a_failure(
    result: dict[str, Any], cell: int, lab: int, changes: dict[str, Any], failed: list[str]
) -> None:
    one = result["cells"][cell]
    one["refusals"][lab] |= changes
    labels = {arm["arm"]: arm["label"] for arm in one["arms"]}
    went_on = "refused" not in changes or not changes["refused"]
    went_on &= cell == 1
    assert objections(result) == (1, [("failed", f"cell {one['cell']}: {labels[arm]}") for arm in sorted(failed)])
    for row in judged(result)[1]:
        assert row["text"].startswith("Accepted" if went_on else "Refused")
        assert "2 brokers in racks a, b" in row["text"]


def test_a_cell_without_attempts_or_acknowledgements_is_unknown(result: dict[str, Any]) -> None:
    healthy = result["cells"][0]
    healthy["arms"][2] = unacknowledged("healthy", "B", "_MSG_TIMED_OUT")
    status, (row,) = judged(result)
    assert (status, row["word"], row["subject"]) == (2, "unknown", "cell healthy: M=2, R=2")
    assert "_MSG_TIMED_OUT" in row["text"]
    # as in results of earlier versions, which did not distinguish them
    healthy["arms"][2] |= {"refused": True, "refused_with": "_MSG_TIMED_OUT"}
    del healthy["arms"][2]["error"]
    assert judged(result) == (2, [row])
    healthy["refusals"] = []
    assert objections(result) == (2, [("unknown", "cell healthy")])
    # as in results of earlier versions, without a row for each lab
    healthy["seen"] |= {"refused": {"B": "x"}, "expected_to_refuse": []}
    assert judged(result)[0] == 1


@pytest.mark.parametrize("error", ["NOT_ENOUGH_REPLICAS", "NotEnoughRacksException"])
def test_an_arm_whose_whole_load_was_refused_is_judged_regardless_of_probes(result: dict[str, Any], error: str) -> None:
    result["cells"][0]["arms"][2] = unacknowledged("healthy", "B", error)
    status, (row,) = judged(result)
    assert (status, row["word"], row["subject"]) == (1, "failed", "cell healthy: M=2, R=2")
    assert row["text"].startswith("Refused records")


@pytest.mark.parametrize(
    ("arm", "changes", "status", "term"),
    [
        ("D", {"behaviour": "went on unprotected", "settled_done": 740}, 1,
         "Acknowledged 740 records while its ISR was in 1 of 2 racks"),
        ("D", {"settled_done": 1}, 1, "Acknowledged 1 record while its ISR was in 1 of 2 racks"),
        ("B", {"behaviour": "was refused"}, 1, "3 brokers in racks a, c; M=2, R=2"),
        ("E", {"behaviour": "unknown"}, 2, "740 of 740"),
    ],
)  # fmt: skip
def test_behaviour_in_an_outage_is_judged_by_the_isr(
    result: dict[str, Any], arm: str, changes: dict[str, Any], status: int, term: str
) -> None:
    topic = next(one for one in result["outage"]["topics"] if one["arm"] == arm)
    topic |= changes
    found, (row,) = judged(result)
    assert (found, row["subject"]) == (status, f"rack b unavailable: {topic['label']} ({topic['topic']})")
    assert row["word"] == ("failed" if status == 1 else "unknown")
    assert term in row["text"]


@pytest.mark.parametrize("where", ["stored", "load", "probe"])
def test_an_ack_when_the_isr_shrinks_is_a_failure_even_if_the_settled_outage_has_none(
    result: dict[str, Any], where: str
) -> None:
    stored = paths.REPO / "kip" / "evidence" / "bench" / "results.json"
    whole = json.loads(stored.read_text(encoding="utf-8")) if where == "stored" else result
    topics = {one["arm"]: one for one in whole["outage"]["topics"]}
    for arm in "DE":
        # E asks for one rack, and has it
        changed = topics[arm]["probe"] if where == "probe" else topics[arm]
        changed["acked_without_rack"] = 60
    status, (row,) = judged(whole)
    subject = f"rack b unavailable: {topics['D']['label']} (rf3-m2r2)"
    assert (status, row["word"], row["subject"]) == (1, "failed", subject)
    assert row["text"].startswith("Acknowledged 60 records without rack b")
    assert "1 of 2 racks" in row["text"]
    # an ISR that had enough may have taken them
    enough = {"at_s": 30.0, "leader": 1, "isr": [1, 2, 3], "racks": ["a", "b"]}
    topics["D"]["isr"].insert(2, enough)
    assert judged(whole)[0] == 2


def test_a_topic_that_was_refused_must_acknowledge_again_when_the_rack_is_back(result: dict[str, Any]) -> None:
    stored = paths.REPO / "kip" / "evidence" / "bench" / "results.json"
    for whole in (result, json.loads(stored.read_text(encoding="utf-8"))):
        topic = next(one for one in whole["outage"]["topics"] if one["arm"] == "D")
        topic |= {"first_ack_after_heal_s": None, "acked_only_after_heal": 0}
        topic["probe"]["acked_after_heal"] = 0
        status, (row,) = judged(whole)
        assert (status, row["word"]) == (1, "failed")
        assert row["subject"].endswith("(rf3-m2r2)")
        assert row["text"].startswith("Nothing was acknowledged after the heal")
        assert "; no ack after the heal began" in verdicts.outage_verdicts(whole["outage"])[2]["text"]
        topic["back_after_s"] = None
        assert judged(whole)[0] == 2


def test_an_outage_that_was_not_proved_is_unknown(result: dict[str, Any]) -> None:
    result["outage"]["proved"] = False
    status, (row,) = judged(result)
    assert (status, row["word"], row["subject"]) == (2, "unknown", "rack b unavailable")
    assert "not proved" in row["text"]


def broken(result: dict[str, Any]) -> dict[str, Any]:
    result["end_to_end"]["kinds"]["lost"] = {"count": 1, "examples": ["t: k"]}
    return result


@pytest.mark.parametrize("status", [0, 1])
def test_a_repeated_report_has_the_status_of_its_run_and_the_reason_first(
    result: dict[str, Any], tmp_path: Path, status: int
) -> None:
    if status:
        broken(result)
    # as of a run from before there was a status
    del result["exit_status"]
    result["bar"] = targets.of_run(6.0, 384.0)
    run_folder.claim(tmp_path, run_folder.BENCH)
    files.write_json(tmp_path / "results.json", result)
    done = CliRunner().invoke(bench_app, ["report", str(tmp_path)])
    assert done.exit_code == status
    assert done.stdout.splitlines()[-1] == "target of 6 minutes: missed, it took 6.4"
    assert done.stdout.startswith("records read back: FAILED. 1 lost of 9,000") is bool(status)
    first = (tmp_path / "index.html").read_text(encoding="utf-8").partition('<ul class="verdicts">\n')[2]
    assert first.startswith('<li class="failed"><b class="word">failed</b> <span>records read back') is bool(status)


def test_a_report_as_json_is_the_result_with_its_status(result: dict[str, Any], tmp_path: Path) -> None:
    run_folder.claim(tmp_path, run_folder.BENCH)
    files.write_json(tmp_path / "results.json", broken(result))
    done = CliRunner().invoke(bench_app, ["report", str(tmp_path), "--json"])
    assert done.exit_code == 1
    output = json.loads(done.stdout)
    assert (output["exit_status"], output["verdicts"][0]["word"]) == (1, "failed")
    assert output["cells"] == result["cells"]


def test_a_run_as_json_has_nothing_else_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    def execute(_: object, console: Console) -> dict[str, Any]:
        console.print("progress")
        return {"exit_status": 2}

    with pytest.raises(SystemExit) as ended:
        lab_run.main(["--out", "out", "--json"], run=execute)
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert json.loads(captured.out) == {"exit_status": 2}
    assert captured.err == "progress\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_labs_leave_standard_output_to_the_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_json: bool
) -> None:
    built = SimpleNamespace(manifest={"patch_hash": "b", "kafka_version": "4.3.1"})
    quiet: list[bool] = []
    commands: list[list[str]] = []

    def build(**given: Any) -> object:
        quiet.append(given["quiet"])
        return SimpleNamespace(distribution=built, seconds=0.1)

    monkeypatch.delenv("RACKGATE_LAB", raising=False)
    monkeypatch.setattr("pyhooks.patchset.builder.build", build)
    monkeypatch.setattr(cli, "Distribution", SimpleNamespace(load=lambda: built))
    monkeypatch.setattr(cli, "_in_labs", lambda _store, _plan, words: commands.append(words))
    done = CliRunner().invoke(bench_app, ["run", "--out", str(tmp_path), *(["--json"] if as_json else [])])
    assert done.exit_code == 0
    ((arguments,), (hushed,)) = commands, quiet
    assert (hushed, "--json" in arguments) == (as_json, as_json)
    assert "12 blocks; about" in (done.stderr if as_json else done.stdout)
    assert bool(done.stdout) is not as_json
    assert "--tasks" not in arguments
    done = CliRunner().invoke(bench_app, ["run", "--out", str(tmp_path), "--fresh", "--tasks", "2"])
    assert done.exit_code == 0
    assert commands[-1][commands[-1].index("--tasks") + 1] == "2"
    assert "--tasks 2" in commands[-1][commands[-1].index("--command") + 1]


def test_a_run_inside_a_lab_has_its_folder_locked_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = SimpleNamespace(manifest={"patch_hash": "b"})
    monkeypatch.setenv("RACKGATE_LAB", "a lab's description")
    monkeypatch.setattr(cli, "Distribution", SimpleNamespace(load=lambda: built))
    # stands for the Python that measures
    script = tmp_path / "python"
    lock = tmp_path / "out" / run_folder.LOCK
    script.write_text(f"#!/bin/sh\nflock --nonblock '{lock}' true && exit 7\nexit 3\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    done = CliRunner().invoke(bench_app, ["run", "--out", str(tmp_path / "out")])
    assert done.exit_code == 3, "the lock is free"


@pytest.mark.parametrize("status", [0, 1, 2])
def test_writing_the_result_returns_its_status(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    summaries: list[Any] = []
    monkeypatch.setattr(lab_run, "print_summary", lambda *given: summaries.append(given))
    with pytest.raises(SystemExit) as ended:
        lab_run.main(["--out", "out"], run=lambda *_: {"exit_status": status})
    assert ended.value.code == status
    assert summaries, "the reasons are printed first"
    # a lab that is not the last of its run judges nothing
    lab_run.main(["--out", "out"], run=lambda *_: None)


@pytest.mark.parametrize("status", [1, 2])
def test_the_status_of_the_last_lab_is_that_of_the_command_and_its_blocks_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    plan = scenarios.load("question")
    kept, _ = run_store.begin_run(
        tmp_path, plan, started=datetime(2026, 1, 2, tzinfo=UTC), build="b", given={}, fresh=False
    )

    def within(*_: Any, **__: Any) -> int:
        for cell in plan.cells:
            for number in range(cell.scenario.latency.blocks):
                path = kept.unfinished(f"{cell.id}-{number}")
                path.mkdir()
                kept.keep(path, cell.id, f"{number:03d}.1")
            kept.add_cell(cell.id, 1, {"session": 1})
        kept.add_outage({"numbers": {}})
        kept.done()
        return status

    monkeypatch.setattr(cluster_cli, "run_in_lab", within)
    with pytest.raises(typer.Exit) as ended:
        cli._in_labs(kept, plan, ["bench"])
    assert ended.value.exit_code == status
    assert len(kept.kept(plan.cells[0].id)) == plan.cells[0].scenario.latency.blocks

    # interrupted when all was measured: what makes the report has the status
    files.write_json(tmp_path / "run.json", kept.run | {"done": False})
    with pytest.raises(typer.Exit) as ended:
        cli._in_labs(kept, plan, ["sh", "-c", f"exit {status}", "--"])
    assert ended.value.exit_code == status


def test_help_lists_the_exit_statuses() -> None:
    shown = " ".join(CliRunner().invoke(bench_app, ["run", "--help"]).output.split())
    assert "Exit status: 0 no failure was found; 1 records are lost, duplicated or invented" in shown


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0046, "1.005"), (0.98722, "0.987"), (1.0, "1.000"), (2.5, "2.5"), (0.0312, "0.0312"), (12.34, "12.3")],
)
def test_a_ratio_near_1_is_not_rounded_to_1(value: float, text: str) -> None:
    assert verdicts.ratio_text(value) == text
    assert verdicts.interval_text({"point": value, "low": value, "high": value}) == f"{text} ({text} to {text})"
