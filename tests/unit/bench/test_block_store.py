"""Run store: complete blocks, resumption of interrupted runs, protection of blocks measured under other conditions."""

from __future__ import annotations

import dataclasses
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from bench import run_conditions
from bench.analysis import record_check
from bench.analysis.latency_analysis import SCHEMA_VERSION
from bench.plan import scenarios
from bench.plan.scenario import Scenario
from bench.progress import RunSteps
from bench.run import cell_measurement, lab_run, run_result, run_store, sustained_rate
from bench.run.run_store import RunStore
from bench.run.sustained_rate import RampStep
from pyhooks.core.errors import RackgateError
from pyhooks.core.run_folder import MARKER

VERSIONS = ("python", "spark", "confluent-kafka", "librdkafka", "numpy")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = scenarios.load("full")


def begin_run(
    folder: Path,
    plan: Scenario = FULL,
    build: str = "b",
    *,
    given: dict[str, str] | None = None,
    fresh: bool = False,
) -> tuple[RunStore, bool]:
    return run_store.begin_run(folder, plan, started=NOW, build=build, given=given or {"master": "m"}, fresh=fresh)


def keep_block(store: RunStore, cell: str, number: int, session: int = 1) -> None:
    path = store.unfinished(f"{cell}-{number}")
    path.mkdir()
    (path / "part").write_text("x", encoding="utf-8")
    store.keep(path, cell, f"{number:03d}.{session}")


def test_an_interrupted_run_resumes_with_its_complete_blocks(tmp_path: Path) -> None:
    store, resumed = begin_run(tmp_path)
    assert not resumed
    assert store.run_id == "20260102-030405"
    healthy = FULL.cells[0]
    for number in (0, 1, 5):
        keep_block(store, "healthy-20", number)
    store.unfinished("healthy-2").mkdir()
    second, resumed = begin_run(tmp_path)
    assert resumed
    assert not (tmp_path / "unfinished").exists()
    assert second.missing(healthy) == [n for n in range(20) if n not in (0, 1, 5)]
    assert sorted(second.kept("healthy-20")) == [0, 1, 5]
    keep_block(second, "healthy-20", 2, session=2)
    assert sorted(second.kept("healthy-20", 2)) == [2]


def test_a_run_folder_is_locked(tmp_path: Path) -> None:
    with (
        run_store.locked_run_folder(tmp_path),
        pytest.raises(RackgateError, match="another run"),
        run_store.locked_run_folder(tmp_path),
    ):
        pass
    with run_store.locked_run_folder(tmp_path):
        pass


def test_the_warm_up_does_not_count_as_a_block(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    path = store.unfinished("w")
    path.mkdir()
    store.keep(path, "healthy-20", f"{run_store.WARM_UP}.1")
    assert store.kept("healthy-20") == {}
    assert store.warm_up("healthy-20") is not None
    assert store.warm_up("far") is None


def test_other_conditions_discard_blocks_only_with_fresh(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    assert begin_run(tmp_path, build="c") == (store, False)  # nothing was measured yet
    keep_block(store, "healthy-20", 0)
    with pytest.raises(RackgateError, match=r"\(build: c, now d\): .*--fresh"):
        begin_run(tmp_path, build="d")
    with pytest.raises(RackgateError, match=r"\(given\.master: m, now spark://other\)"):
        begin_run(tmp_path, build="c", given={"master": "spark://other"})
    other_plan = dataclasses.replace(FULL, seed=7)
    with pytest.raises(RackgateError, match=r"\(plan\.seed: 1290, now 7\)"):
        begin_run(tmp_path, other_plan, build="c")
    fresh_store, resumed = begin_run(tmp_path, other_plan, fresh=True)
    assert not resumed
    assert fresh_store.kept("healthy-20") == {}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("code_hash", lambda: "0" * 64, r"\(code: [0-9a-f]{39}…, now 0{39}…\)"),
        ("machine.describe_machine", lambda: {"cpus": 999}, r"machine\.cpus: \d+, now 999"),
        ("machine.versions", lambda *_: dict.fromkeys(VERSIONS, "0"),
         r"versions\.confluent-kafka: .*, now 0; .* and 1 more\)"),
    ],
)  # fmt: skip
def test_a_run_does_not_resume_with_other_code_or_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object, error: str
) -> None:
    store, _ = begin_run(tmp_path)
    keep_block(store, "healthy-20", 0)
    assert begin_run(tmp_path) == (store, True)
    monkeypatch.setattr(f"bench.run_conditions.{name}", value)
    with pytest.raises(RackgateError, match=error):
        begin_run(tmp_path)
    assert store.kept("healthy-20"), "the blocks are kept"
    assert begin_run(tmp_path, fresh=True) == (store, False)


def test_the_code_hash_covers_names_and_contents_of_code_files(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    file = tmp_path / "bench" / "a.py"
    file.write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "bench" / "README.md").write_text("text", encoding="utf-8")
    first = run_conditions.code_hash(tmp_path)
    (tmp_path / "bench" / "README.md").write_text("other text", encoding="utf-8")
    assert run_conditions.code_hash(tmp_path) == first
    file.rename(tmp_path / "bench" / "b.py")
    assert run_conditions.code_hash(tmp_path) != first


def test_differences_of_conditions_are_named_by_their_path() -> None:
    before = {"plan": {"cells": [{"id": "near", "blocks": 20}, {"id": "far", "blocks": 20}], "seed": 1}, "gone": 1}
    after = {"plan": {"cells": [{"id": "near", "blocks": 20}, {"id": "far", "blocks": 3}], "seed": 1}, "new": [1, 2]}
    assert run_conditions.differences(before, after) == [
        "gone: 1, now nothing",
        "new: nothing, now [1, 2]",
        "plan.cells.far.blocks: 20, now 3",
    ]
    assert run_conditions.differences(before, before) == []
    assert run_conditions.differences_text([f"n{number}" for number in range(6)]) == "n0; n1; n2; n3 and 2 more"


def test_a_time_target_is_not_a_condition_for_keeping_blocks(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    keep_block(store, "healthy-20", 0)
    assert FULL.target_min is not None
    assert "target_min" not in json.dumps(FULL.as_json())
    second, resumed = begin_run(tmp_path, dataclasses.replace(FULL, target_min=1.0))
    assert resumed
    assert sorted(second.kept("healthy-20")) == [0]


def test_a_run_records_its_start_and_that_it_was_resumed(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    assert not store.continued
    # The duration is from the monotonic clock, not from the start time NOW.
    assert store.duration_s == pytest.approx(0, abs=30)
    for _ in range(2):
        fresh_store, resumed = begin_run(tmp_path)
        assert (resumed, fresh_store.continued) == (True, True)
    assert not begin_run(tmp_path, fresh=True)[0].continued


@pytest.mark.parametrize(
    ("interrupted", "minutes", "target_text"),
    [
        (False, 6.0, "target of 6 minutes: met, it took 5.5"),
        (False, 5.4, "target of 5.4 minutes: missed, it took 5.5"),
        (True, 6.0, "target of 6 minutes: unknown, since the run was interrupted and went on"),
        (False, None, None),
    ],
)
def test_the_time_target_includes_the_report_and_does_not_change_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool, minutes: float | None, target_text: str | None
) -> None:
    plan = dataclasses.replace(FULL, target_min=minutes)
    store, _ = begin_run(tmp_path / "run", plan)
    if interrupted:
        begin_run(tmp_path / "run", plan)
    duration_s = iter([310.0, 330.0, 330.0])
    monkeypatch.setattr(RunStore, "duration_s", property(lambda _: next(duration_s)))
    kinds = {kind: {"count": 0, "examples": []} for kind in record_check.KINDS}
    numbers: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "cells": [],
        "outage": None,
        "end_to_end": {"kinds": kinds, "acked": 1},
        "notes": [],
    }
    monkeypatch.setattr(run_result, "analyse_run", lambda *_: (dict(numbers), []))
    monkeypatch.setattr(run_result, "manifest", lambda *_, **__: {"duration_s": {"whole": store.duration_s}})
    monkeypatch.setattr("bench.report.run_page.render", lambda *_: None)
    steps = RunSteps(lab_run.finish_planned(plan), Console(file=io.StringIO()))
    with steps.shown():
        result = lab_run.finish(
            None, plan, store, steps, lab_run.LabRunArguments(master="m", command="c", out=tmp_path)
        )
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == result
    assert result["manifest"]["duration_s"]["whole"] == 330
    assert result["exit_status"] == 0
    assert store.run["done"] is True
    lines: list[str] = []
    lab_run.print_summary(result, tmp_path, lines.append)
    assert (lines[-1] if target_text else None) == target_text
    assert "(took 5:30)" in lines[-2 if target_text else -1]


def test_a_finished_run_is_not_resumed(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    keep_block(store, "healthy-20", 0)
    store.done()
    fresh_store, resumed = begin_run(tmp_path)
    assert not resumed
    assert fresh_store.kept("healthy-20") == {}


def test_a_damaged_rates_file_is_an_error(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    (tmp_path / "rates.json").write_text("{", encoding="utf-8")
    with pytest.raises(RackgateError, match=r"rates\.json: not JSON: .*--fresh"):
        _ = store.rates


DAMAGED_RUN_FILES = [
    "",
    "[]",
    "{}",
    "null",
    '"run"',
    '{"run_id": "r", "sta',
    "\xff",
    '{"started": "2026-01-02T03:04:05+00:00", "conditions": {}}',
    '{"run_id": "r", "conditions": {}}',
    '{"run_id": "r", "started": "2026-01-02T03:04:05+00:00"}',
    '{"run_id": 7, "started": "2026-01-02T03:04:05+00:00", "conditions": {}}',
    '{"run_id": "r", "started": "yesterday", "conditions": {}}',
    '{"run_id": "r", "started": 7, "conditions": {}}',
    '{"run_id": "r", "started": "2026-01-02T03:04:05+00:00", "conditions": []}',
    '{"run_id": "r", "started": "2026-01-02T03:04:05+00:00", "conditions": {}, "done": "no"}',
    '{"run_id": "r", "started": "2026-01-02T03:04:05+00:00", "conditions": {}, "continued": 1}',
    None,
]


@pytest.mark.parametrize("text", DAMAGED_RUN_FILES)
def test_a_damaged_run_file_is_an_error_and_blocks_are_kept(tmp_path: Path, text: str | None) -> None:
    store, _ = begin_run(tmp_path)
    keep_block(store, "healthy-20", 0)
    run_file = tmp_path / "run.json"
    run_file.unlink()
    if text is not None:
        run_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(RackgateError) as error:
        begin_run(tmp_path)
    assert error.value.exit_status == 2
    assert str(run_file) in str(error.value)
    assert "--fresh" in str(error.value)
    assert list(store.kept("healthy-20")) == [0]
    if text is not None:
        assert run_file.read_bytes() == text.encode("latin-1")
    fresh, resumed = begin_run(tmp_path, fresh=True)
    assert (resumed, fresh.kept("healthy-20")) == (False, {})
    assert begin_run(tmp_path) == (fresh, True)


@pytest.mark.parametrize("name", ["rates.json", "outage.json"])
@pytest.mark.parametrize("text", ["[]", "7", '{"a": ', "\xff"])
def test_other_damaged_files_of_a_run_are_errors_that_name_the_file(tmp_path: Path, name: str, text: str) -> None:
    store, _ = begin_run(tmp_path)
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(RackgateError) as error:
        _ = (store.rates, store.outage)
    assert str(tmp_path / name) in str(error.value)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_run_folder_without_the_marker_is_not_emptied(tmp_path: Path, fresh: bool) -> None:
    # Earlier versions wrote no marker.
    store, _ = begin_run(tmp_path)
    keep_block(store, "healthy-20", 0)
    store.done()
    (tmp_path / MARKER).unlink()
    with pytest.raises(RackgateError) as error:
        begin_run(tmp_path, fresh=fresh)
    assert str(tmp_path) in str(error.value)
    assert list(store.kept("healthy-20")) == [0]


def test_targets_of_symbolic_links_are_not_deleted(tmp_path: Path) -> None:
    target, folder = tmp_path / "target", tmp_path / "run"
    target.mkdir()
    (target / "thesis.txt").touch()
    store, _ = begin_run(folder)
    for name in ("unfinished", "raw"):
        (folder / name).symlink_to(target, target_is_directory=True)
    assert begin_run(folder) == (store, True)
    assert not (folder / "unfinished").exists()
    begin_run(folder, fresh=True)
    assert not (folder / "raw").exists()
    assert [path.name for path in target.iterdir()] == ["thesis.txt"]


def test_a_lab_is_due_until_its_blocks_and_cells_are_kept(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    remaining = list(FULL.places)
    assert store.places(FULL) == remaining
    assert remaining[0] == ("az3-outside", "az")
    for cell in FULL.cells:
        for number in range(cell.scenario.latency.blocks):
            keep_block(store, cell.id, number)
        if cell.place == remaining[0]:
            assert cell in store.pending(FULL, remaining[0])  # Its blocks are kept, but not the state of its brokers.
            store.add_cell(cell.id, 1, {"session": 1})
    assert store.places(FULL) == remaining[1:]


def test_the_outage_is_due_in_the_first_lab_until_it_is_kept(tmp_path: Path) -> None:
    plan = scenarios.load("question")
    store, _ = begin_run(tmp_path, plan)
    place = plan.places[0]
    assert store.outage_is_due(plan, place)
    steps = lab_run.planned(store, plan, place)
    store.add_outage({"numbers": {}})
    assert not store.outage_is_due(plan, place)
    assert set(steps) - set(lab_run.planned(store, plan, place)) == {lab_run.OUTAGE_STEP}


def test_kept_blocks_are_not_planned_again(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    full_s = lab_run.estimate_s(store, FULL)
    for number in range(10):
        keep_block(store, "healthy-20", number)
    healthy = FULL.cells[0]
    saved_s = full_s - lab_run.estimate_s(store, FULL)
    assert saved_s == pytest.approx(10 * (healthy.scenario.latency.block_s(6) + cell_measurement.BLOCK_S))
    store.add_rate(sustained_rate.rate_key(healthy), {"sustained_per_s": 1000.0})
    assert lab_run.estimate_s(store, FULL) < full_s - saved_s


def test_sessions_are_listed_in_order(tmp_path: Path) -> None:
    store, _ = begin_run(tmp_path)
    assert store.next_session() == 1
    for number in (1, 2, 10):
        store.add_session(number, {"place": str(number)})
        store.add_cell("healthy-20", number, {"session": number})
    store.lab(11).mkdir()  # this lab failed to start
    assert store.next_session() == 12
    assert [session["place"] for session in store.sessions] == ["1", "2", "10"]
    assert [cell["session"] for cell in store.cell("healthy-20")] == [1, 2, 10]


def observations(latency_ms: list[float], outcome: str = "acked") -> pd.DataFrame:
    intended = pd.Series(range(len(latency_ms))) * 1_000_000
    done = intended + (pd.Series(latency_ms) * 1e6).astype("int64")
    return pd.DataFrame({"intended_ns": intended, "sent_ns": intended + 50_000, "done_ns": done, "outcome": outcome})


def test_a_ramp_step_is_measured_in_its_second_half() -> None:
    step = sustained_rate.ramp_step(1000, observations([1.0] * 50 + [9.0] * 50))
    assert (step.p50_ms, step.acked, step.late_p50_ms) == (9.0, 1.0, 0.05)
    assert sustained_rate.ramp_step(10, observations([1.0] * 4, "unknown")) == RampStep(10, 0.0, None, 0.05)


def test_the_sustained_rate_is_the_last_without_a_growing_queue() -> None:
    ramp = FULL.ramp
    assert ramp is not None
    steps = [RampStep(250, 1, 2.0, 0), RampStep(500, 1, 2.5, 0), RampStep(1000, 1, 6.0, 0), RampStep(2000, 1, 6.1, 0)]
    rate = sustained_rate.sustained_rate(steps, ramp)
    assert (rate["sustained_per_s"], rate["kept_up"], rate["ended"]) == (1000, True, True)
    assert not sustained_rate.sustained_rate(steps[:3], ramp)["ended"]
    lossy = [steps[0], dataclasses.replace(steps[1], acked=0.99)]
    assert sustained_rate.sustained_rate(lossy, ramp)["sustained_per_s"] == 250
    too_slow = sustained_rate.sustained_rate([RampStep(250, 0.5, None, 0)], ramp)
    assert (too_slow["sustained_per_s"], too_slow["kept_up"]) == (250, False)
    assert json.dumps(rate)


def test_a_ramp_tries_no_rate_above_the_disk_limit() -> None:
    ramp = FULL.ramp
    assert ramp is not None
    assert ramp.rates(1000) == (250, 500, 1000, 2000, 4000, 8000)
    assert ramp.rates(10_000) == (250, 500, 1000)
    assert ramp.rates(1_000_000) == (250,)


def test_record_checks_of_several_labs_are_added() -> None:
    def check_result(lost: int) -> dict[str, object]:
        kinds = {kind: {"count": 0, "examples": []} for kind in record_check.KINDS}
        kinds["lost"] = {"count": lost, "examples": ["t: k"] * min(lost, 5)}
        topics = [{"topic": "t", "acked": 10, "read": 10 - lost, "lost": lost}]
        return {"kinds": kinds, "topics": topics, "acked": 10, "read": 10 - lost}

    merged = record_check.merge_checks([check_result(2), check_result(4)], "r")
    assert merged["kinds"]["lost"] == {"count": 6, "examples": ["t: k"] * 5}
    assert merged["topics"] == [{"topic": "t", "acked": 20, "read": 14, "lost": 6}]
    assert (merged["acked"], merged["read"]) == (20, 14)
