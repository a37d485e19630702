"""Exit status of the benchmark: each single objection to a valid result changes it."""

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
from blank_figures import save_blank_figures
from pyhooks.core import files, paths, run_folder, targets
from pyhooks.lab import cli as cluster_cli


@pytest.fixture(scope="module")
def valid_result() -> dict[str, Any]:
    return made_up()


@pytest.fixture
def result(valid_result: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a result without objections. A and A' reject records in its second cell, as planned."""
    return copy.deepcopy(valid_result)


def conclude(result: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit status and the verdicts that explain it."""
    conclusion = exit_reasons.conclude(exit_reasons.run_reasons(result), [])
    return conclusion["exit_status"], conclusion["verdicts"]


def objections(result: dict[str, Any]) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit status, and verdict and subject of each row that explains it."""
    status, rows = conclude(result)
    return status, [(row["verdict"], row["subject"]) for row in rows]


def test_a_valid_result_and_the_committed_one_have_no_objection(result: dict[str, Any]) -> None:
    assert conclude(result) == (0, [])
    assert {row["verdict"] for row in result["verdicts"]} & {"slower", "undecided"}
    committed = json.loads((paths.REPO / "kip" / "evidence" / "bench" / "results.json").read_text(encoding="utf-8"))
    assert conclude(committed) == (0, [])


def test_latency_verdicts_by_earlier_rules_are_kept(result: dict[str, Any]) -> None:
    kept = {"about": "latency", "verdict": "equivalent", "subject": "B against A, p50", "text": "By earlier rules."}
    sentences = verdicts.sentences({**result, "schema": verdicts.FIRST_SCHEMA - 1, "verdicts": [kept]})
    assert [sentence for sentence in sentences if sentence["about"] == "latency"] == [kept]


@pytest.mark.parametrize("kind", record_check.KINDS)
def test_a_lost_or_misplaced_record_is_a_failure(result: dict[str, Any], kind: str) -> None:
    result["end_to_end"]["kinds"][kind] = {"count": 2, "examples": ["t: r/l/A/7", "t: r/l/A/8"]}
    status, (row,) = conclude(result)
    assert (status, row["verdict"], row["subject"]) == (1, "failed", "records read back")
    assert row["text"].startswith(f"2 {record_check.KIND_LABELS[kind]} of 9,000 ")
    assert "t: r/l/A/7" in row["text"]
    assert ("librdkafka 4953" in row["text"]) is (kind == "duplicated")


def test_unread_records_are_unknown_and_do_not_hide_a_failure(result: dict[str, Any]) -> None:
    numbers = result["end_to_end"]
    numbers["unread"] = 1200
    status, (row,) = conclude(result)
    assert (status, row["verdict"], row["subject"]) == (2, "unknown", "records read back")
    assert row["text"].startswith("1,200 acknowledged records")
    numbers |= {"unread": 0, "acked": 0}
    status, (row,) = conclude(result)
    assert (status, row["verdict"], row["subject"]) == (2, "unknown", "records read back")
    assert "Nothing was acknowledged" in row["text"]
    numbers["kinds"]["invented"]["count"] = 1
    assert objections(result) == (1, [("failed", "records read back"), ("unknown", "records read back")])
    assert verdicts.record_verdicts(numbers)[0]["verdict"] == "broken"


GATE_ERRORS = {"A": "NotEnoughReplicasException", "A'": "NotEnoughReplicasException"}


@pytest.mark.parametrize(
    ("cell", "lab", "changes", "failed"),
    [
        (1, 1, {"rejected": {}, "rejected_after": {}}, ["A", "A'"]),
        # Only in the first of two labs, and only at its end.
        (1, 0, {"rejected_after": {}}, ["A", "A'"]),
        (0, 0, {"rejected": {"B": "NotEnoughRacksException"}}, ["B"]),
        (0, 1, {"rejected_after": {"C": "NotEnoughRacksException"}}, ["C"]),
        (1, 1, {"rejected": {**GATE_ERRORS, "B": "NotEnoughRacksException"}, "rejected_after": GATE_ERRORS}, ["B"]),
    ],
)
def test_an_arm_that_rejects_or_accepts_unexpectedly_is_a_failure(
    result: dict[str, Any], cell: int, lab: int, changes: dict[str, Any], failed: list[str]
) -> None:
    measured_cell = result["cells"][cell]
    measured_cell["rejections"][lab] |= changes
    labels = {arm["arm"]: arm["label"] for arm in measured_cell["arms"]}
    accepted = "rejected" not in changes or not changes["rejected"]
    accepted &= cell == 1
    assert objections(result) == (
        1,
        [("failed", f"cell {measured_cell['cell']}: {labels[arm]}") for arm in sorted(failed)],
    )
    for row in conclude(result)[1]:
        assert row["text"].startswith("Accepted" if accepted else "Rejected")
        assert "2 brokers in racks a, b" in row["text"]


def test_a_cell_without_attempts_or_acknowledgements_is_unknown(result: dict[str, Any]) -> None:
    healthy = result["cells"][0]
    healthy["arms"][2] = unacknowledged("healthy", "B", "_MSG_TIMED_OUT")
    status, (row,) = conclude(result)
    assert (status, row["verdict"], row["subject"]) == (2, "unknown", "cell healthy: M=2, R=2")
    assert "_MSG_TIMED_OUT" in row["text"]
    # Results of earlier versions do not distinguish rejections from other errors.
    healthy["arms"][2] |= {"rejected": True, "rejected_with": "_MSG_TIMED_OUT"}
    del healthy["arms"][2]["error"]
    assert conclude(result) == (2, [row])
    healthy["rejections"] = []
    assert objections(result) == (2, [("unknown", "cell healthy")])
    # Results of earlier versions have no row for each lab.
    healthy["findings"] |= {"rejected": {"B": "x"}, "expected_to_reject": []}
    assert conclude(result)[0] == 1


@pytest.mark.parametrize("error", ["NOT_ENOUGH_REPLICAS", "NotEnoughRacksException"])
def test_an_arm_whose_load_was_all_rejected_is_a_failure_without_probes(result: dict[str, Any], error: str) -> None:
    result["cells"][0]["arms"][2] = unacknowledged("healthy", "B", error)
    status, (row,) = conclude(result)
    assert (status, row["verdict"], row["subject"]) == (1, "failed", "cell healthy: M=2, R=2")
    assert row["text"].startswith("Rejected records")


@pytest.mark.parametrize(
    ("arm", "changes", "status", "term"),
    [
        ("D", {"behaviour": "continued unprotected", "settled_done": 740}, 1,
         "Acknowledged 740 records while its ISR was in 1 of 2 racks"),
        ("D", {"settled_done": 1}, 1, "Acknowledged 1 record while its ISR was in 1 of 2 racks"),
        ("B", {"behaviour": "was rejected"}, 1, "3 brokers in racks a, c; M=2, R=2"),
        ("E", {"behaviour": "unknown"}, 2, "740 of 740"),
    ],
)  # fmt: skip
def test_behaviour_in_an_outage_is_judged_by_the_isr(
    result: dict[str, Any], arm: str, changes: dict[str, Any], status: int, term: str
) -> None:
    topic = next(topic for topic in result["outage"]["topics"] if topic["arm"] == arm)
    topic |= changes
    exit_status, (row,) = conclude(result)
    assert (exit_status, row["subject"]) == (status, f"rack b unavailable: {topic['label']} ({topic['topic']})")
    assert row["verdict"] == ("failed" if status == 1 else "unknown")
    assert term in row["text"]


@pytest.mark.parametrize("where", ["committed", "load", "probe"])
def test_an_ack_without_the_rack_before_the_settled_outage_is_a_failure(result: dict[str, Any], where: str) -> None:
    committed = paths.REPO / "kip" / "evidence" / "bench" / "results.json"
    data = json.loads(committed.read_text(encoding="utf-8")) if where == "committed" else result
    topics = {topic["arm"]: topic for topic in data["outage"]["topics"]}
    for arm in "DE":
        # E requires one rack, and its ISR spans one.
        changed = topics[arm]["probe"] if where == "probe" else topics[arm]
        changed["acked_without_rack"] = 60
    status, (row,) = conclude(data)
    subject = f"rack b unavailable: {topics['D']['label']} (rf3-m2r2)"
    assert (status, row["verdict"], row["subject"]) == (1, "failed", subject)
    assert row["text"].startswith("Acknowledged 60 records without rack b")
    assert "1 of 2 racks" in row["text"]
    # With an ISR that spanned enough racks, the acknowledgements may have been valid.
    enough = {"at_s": 30.0, "leader": 1, "isr": [1, 2, 3], "racks": ["a", "b"]}
    topics["D"]["isr"].insert(2, enough)
    assert conclude(data)[0] == 2


def test_a_topic_must_acknowledge_again_when_the_rack_is_back(result: dict[str, Any]) -> None:
    topic = next(topic for topic in result["outage"]["topics"] if topic["arm"] == "D")
    topic |= {"first_ack_after_heal_s": None, "acked_only_after_heal": 0}
    topic["probe"]["acked_after_heal"] = 0
    status, (row,) = conclude(result)
    assert (status, row["verdict"]) == (1, "failed")
    assert row["subject"].endswith("(rf3-m2r2)")
    assert row["text"].startswith("Nothing was acknowledged after the heal")
    assert "; no ack after the heal began" in verdicts.outage_verdicts(result["outage"])[2]["text"]
    topic["back_after_s"] = None
    assert conclude(result)[0] == 2


def test_an_unverified_outage_is_unknown(result: dict[str, Any]) -> None:
    result["outage"]["proved"] = False
    status, (row,) = conclude(result)
    assert (status, row["verdict"], row["subject"]) == (2, "unknown", "rack b unavailable")
    assert "not proved" in row["text"]


def add_lost_record(result: dict[str, Any]) -> dict[str, Any]:
    result["end_to_end"]["kinds"]["lost"] = {"count": 1, "examples": ["t: k"]}
    return result


@pytest.mark.parametrize("status", [0, 1])
def test_bench_report_exits_with_the_status_and_prints_the_reason_first(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    save_blank_figures(monkeypatch)
    if status:
        add_lost_record(result)
    # Earlier versions stored no exit status.
    del result["exit_status"]
    result["target"] = targets.of_run(6.0, 384.0)
    run_folder.claim(tmp_path, run_folder.BENCH)
    files.write_json(tmp_path / "results.json", result)
    invocation = CliRunner().invoke(bench_app, ["report", str(tmp_path)])
    assert invocation.exit_code == status
    assert invocation.stdout.splitlines()[-1] == "target of 6 minutes: missed, it took 6.4"
    assert invocation.stdout.startswith("records read back: FAILED. 1 lost of 9,000") is bool(status)
    first = (tmp_path / "index.html").read_text(encoding="utf-8").partition('<ul class="verdicts">\n')[2]
    assert first.startswith('<li class="failed"><b class="verdict">failed</b> <span>records read back') is bool(status)


def test_bench_report_json_is_the_result_with_its_status(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_blank_figures(monkeypatch)
    run_folder.claim(tmp_path, run_folder.BENCH)
    files.write_json(tmp_path / "results.json", add_lost_record(result))
    invocation = CliRunner().invoke(bench_app, ["report", str(tmp_path), "--json"])
    assert invocation.exit_code == 1
    output = json.loads(invocation.stdout)
    assert (output["exit_status"], output["verdicts"][0]["verdict"]) == (1, "failed")
    assert output["cells"] == result["cells"]


def test_bench_run_json_prints_only_json_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    def execute(_: object, console: Console) -> dict[str, Any]:
        console.print("progress")
        return {"exit_status": 2}

    with pytest.raises(SystemExit) as exit_info:
        lab_run.main(["--out", "out", "--json"], run=execute)
    captured = capsys.readouterr()
    assert exit_info.value.code == 2
    assert json.loads(captured.out) == {"exit_status": 2}
    assert captured.err == "progress\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_bench_run_json_keeps_progress_off_standard_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_json: bool
) -> None:
    built = SimpleNamespace(manifest={"patch_hash": "b", "kafka_version": "4.0.0"})
    quiet: list[bool] = []
    commands: list[list[str]] = []

    def build(**options: Any) -> object:
        quiet.append(options["quiet"])
        return SimpleNamespace(distribution=built, seconds=0.1)

    monkeypatch.delenv("RACKGATE_LAB", raising=False)
    monkeypatch.setattr("pyhooks.patchset.builder.build", build)
    monkeypatch.setattr(cli, "Distribution", SimpleNamespace(load=lambda: built))
    monkeypatch.setattr(cli, "_in_labs", lambda _store, _plan, command: commands.append(command))
    invocation = CliRunner().invoke(bench_app, ["run", "--out", str(tmp_path), *(["--json"] if as_json else [])])
    assert invocation.exit_code == 0
    ((arguments,), (is_quiet,)) = commands, quiet
    assert (is_quiet, "--json" in arguments) == (as_json, as_json)
    assert "10 blocks; about" in (invocation.stderr if as_json else invocation.stdout)
    assert bool(invocation.stdout) is not as_json
    assert "--tasks" not in arguments
    invocation = CliRunner().invoke(bench_app, ["run", "--out", str(tmp_path), "--fresh", "--tasks", "2"])
    assert invocation.exit_code == 0
    assert commands[-1][commands[-1].index("--tasks") + 1] == "2"
    assert "--tasks 2" in commands[-1][commands[-1].index("--command") + 1]


def test_the_folder_of_a_run_inside_a_lab_is_locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built = SimpleNamespace(manifest={"patch_hash": "b"})
    monkeypatch.setenv("RACKGATE_LAB", "a lab's description")
    monkeypatch.setattr(cli, "Distribution", SimpleNamespace(load=lambda: built))
    # Replaces the Python process that measures.
    script = tmp_path / "python"
    lock = tmp_path / "out" / run_folder.LOCK
    script.write_text(f"#!/bin/sh\nflock --nonblock '{lock}' true && exit 7\nexit 3\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    invocation = CliRunner().invoke(bench_app, ["run", "--out", str(tmp_path / "out")])
    assert invocation.exit_code == 3, "the lock is not held"


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_process_that_writes_the_result_exits_with_its_status(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    summaries: list[Any] = []
    monkeypatch.setattr(lab_run, "print_summary", lambda *arguments: summaries.append(arguments))
    with pytest.raises(SystemExit) as exit_info:
        lab_run.main(["--out", "out"], run=lambda *_: {"exit_status": status})
    assert exit_info.value.code == status
    assert summaries, "the reasons are printed first"
    # Only the last lab of a run has a result.
    lab_run.main(["--out", "out"], run=lambda *_: None)


@pytest.mark.parametrize("status", [1, 2])
def test_bench_run_exits_with_the_status_of_the_last_lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    plan = scenarios.load("question")
    store, _ = run_store.begin_run(
        tmp_path, plan, started=datetime(2026, 1, 2, tzinfo=UTC), build="b", given={}, fresh=False
    )

    def run_in_lab(*_: Any, **__: Any) -> int:
        for cell in plan.cells:
            for number in range(cell.scenario.latency.blocks):
                path = store.unfinished(f"{cell.id}-{number}")
                path.mkdir()
                store.keep(path, cell.id, f"{number:03d}.1")
            store.add_cell(cell.id, 1, {"session": 1})
        store.add_outage({"numbers": {}})
        store.done()
        return status

    monkeypatch.setattr(cluster_cli, "run_in_lab", run_in_lab)
    with pytest.raises(typer.Exit) as exit_info:
        cli._in_labs(store, plan, ["bench"])
    assert exit_info.value.exit_code == status
    assert len(store.kept(plan.cells[0].id)) == plan.cells[0].scenario.latency.blocks

    # Interrupted after the last measurement: the report's process determines the status.
    files.write_json(tmp_path / "run.json", store.run | {"done": False})
    with pytest.raises(typer.Exit) as exit_info:
        cli._in_labs(store, plan, ["sh", "-c", f"exit {status}", "--"])
    assert exit_info.value.exit_code == status


def test_help_lists_the_exit_statuses() -> None:
    help_text = " ".join(CliRunner().invoke(bench_app, ["run", "--help"]).output.split())
    assert "Exit status: 0 no failure was found; 1 records are lost, duplicated or invented" in help_text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0046, "1.005"), (0.98722, "0.987"), (1.0, "1.000"), (2.5, "2.5"), (0.0312, "0.0312"), (12.34, "12.3")],
)
def test_a_ratio_near_1_is_not_rounded_to_1(value: float, text: str) -> None:
    assert verdicts.ratio_text(value) == text
    assert verdicts.interval_text({"point": value, "low": value, "high": value}) == f"{text} ({text} to {text})"
