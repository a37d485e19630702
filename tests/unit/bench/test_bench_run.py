from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PythonException
from rich.console import Console

from bench import spark_session
from bench.load import clock_offsets, load_jobs, schedule, spark_load
from bench.load.clock_offsets import DriverAddress
from bench.load.load_jobs import RunningLoad
from bench.progress import RunSteps, clock_text
from bench.run import run_result
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.history.events import LoadDetails
from pyhooks.workload.pacing import NS

TASK_FAILED = PythonException("Traceback\n  File ...\nRuntimeError: load task 0 came to nothing\nmore")
LOAD = spark_load.SparkLoad(
    run_id="r", name="x", cell=None, state=None, bootstrap="127.0.0.1:1", client="confluent", config={},
    record_bytes=1, seed=1, flush_s=0.1, tasks=2, slots=(schedule.steady_slot("A", "t", rate_per_s=10, seconds=0.1),),
)  # fmt: skip


def test_executors_need_no_package_that_only_the_driver_has() -> None:
    # None makes the import of a module fail
    program = "import sys; sys.modules.update(dict.fromkeys(('pydantic', 'typer', 'rich', 'psutil', 'scipy')));"
    program += "import bench.load.spark_load, bench.load.java_client, pyhooks.jvm.producer"
    subprocess.run([sys.executable, "-c", program], check=True)


def ended(error: BaseException | None) -> Future[None]:
    future: Future[None] = Future()
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
    return future


def test_a_failed_task_ends_the_wait_at_once_with_a_one_line_error() -> None:
    begun = time.monotonic()
    with pytest.raises(RackgateError, match="RuntimeError: load task 0 came to nothing"):
        RunningLoad(ended(TASK_FAILED), time.monotonic_ns()).wait_until(60, "later")
    assert time.monotonic() - begun < 5


def test_a_pause_lasts_until_its_time_in_the_schedule() -> None:
    start_ns = time.monotonic_ns() - NS
    RunningLoad(Future(), start_ns).wait_until(1.15, "the moment")
    at_ns = start_ns + round(1.15 * NS)
    assert at_ns <= time.monotonic_ns() < at_ns + 2 * NS


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TASK_FAILED, "RuntimeError: load task 0 came to nothing"),
        (
            PythonException(
                "Job aborted due to stage failure\nExecutorLostFailure (executor 0 exited) Reason: lost\nmore"
            ),
            r"ExecutorLostFailure \(executor 0 exited\) Reason: lost$",
        ),
        (PythonException("something else"), "see below"),
    ],
    ids=["task", "executor", "other"],
)
def test_the_error_of_a_load_is_one_line_with_its_cause(error: PythonException, text: str) -> None:
    with pytest.raises(RackgateError, match=f"^the load failed: {text}") as caught:
        RunningLoad(ended(error), 0).raise_failure()
    assert "\n" not in str(caught.value)
    assert caught.value.detail == str(error)
    RunningLoad(ended(None), 0).raise_failure()
    RunningLoad(Future(), 0).raise_failure()


class FakeBarrier:
    """Barrier whose other tasks were ready at given times of the driver's clock."""

    def __init__(self, others: list[int]) -> None:
        self.messages = [str(ready_ns) for ready_ns in others]
        self.own_ns = 0

    def get(self) -> FakeBarrier:
        return self

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        self.own_ns = int(message)
        return [*self.messages, message]


def agree(monkeypatch: pytest.MonkeyPatch, barrier: FakeBarrier, reading: dict[str, int | None], load: Any) -> int:
    """Agree on a start, on a host that reads the driver's clock as given, with a driver that can't be reached."""
    read = clock_offsets.ClockReading("here", 0, **{"ahead_ns": None, "error_ns": None} | reading)
    monkeypatch.setattr(spark_load, "BarrierTaskContext", barrier)
    monkeypatch.setattr(clock_offsets, "read_clocks", lambda _: read)
    return spark_load._agree_on_start(load, DriverAddress(("127.0.0.1", 1), "driver"))


@pytest.mark.parametrize("ahead_ns", [5 * NS, -7 * NS])
def test_the_last_task_to_be_ready_determines_the_start_on_the_clock_of_each_host(
    monkeypatch: pytest.MonkeyPatch, ahead_ns: int
) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1000 * NS)
    fresh: dict[str, int | None] = {"ahead_ns": ahead_ns, "error_ns": 1}
    own_ns = 1000 * NS - ahead_ns
    # another task is the last one, then this one
    for other_ns, last_ns in ((own_ns + 3, own_ns + 3), (own_ns - 3, own_ns)):
        barrier = FakeBarrier([other_ns, 1])
        start_ns = agree(monkeypatch, barrier, fresh, LOAD)
        assert barrier.own_ns == own_ns
        assert start_ns - ahead_ns == last_ns + spark_load.START_DELAY_NS


def test_a_host_that_cannot_read_the_driver_s_clock_uses_the_offset_of_the_survey(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1000 * NS)
    surveyed = SimpleNamespace(name="x", known_offsets_ns={"here": 400})
    barrier = FakeBarrier([])
    assert agree(monkeypatch, barrier, {}, surveyed) == 1000 * NS + spark_load.START_DELAY_NS
    assert barrier.own_ns == 1000 * NS - 400
    # a fresh reading is preferred
    agree(monkeypatch, barrier, {"ahead_ns": 30, "error_ns": 1}, surveyed)
    assert barrier.own_ns == 1000 * NS - 30
    with pytest.raises(RuntimeError, match=r"the executor on .* can't reach the driver, and its clock"):
        agree(monkeypatch, barrier, {}, LOAD)


class FakeSpark:
    """Session of which a load uses only the addresses; ``cancelled`` counts the cancellations."""

    def __init__(self) -> None:
        settings = {"spark.driver.host": "127.0.0.1"}
        self.cancelled = 0
        self.sparkContext = SimpleNamespace(getConf=lambda: settings, cancelAllJobs=self.cancel)

    def cancel(self) -> None:
        self.cancelled += 1


def drive(monkeypatch: pytest.MonkeyPatch, folder: Path, job: Callable[[DriverAddress], None]) -> tuple[FakeSpark, Any]:
    """Return a session, and a running load whose Spark job is replaced by ``job``."""
    spark: Any = FakeSpark()
    monkeypatch.setattr(load_jobs, "observations", lambda _spark, _load, driver: driver)
    monkeypatch.setattr(load_jobs, "_write", lambda driver, _path: job(driver))
    return spark, load_jobs.running_load(spark, History(folder / "history.jsonl"), LOAD, folder / "x")


def test_the_driver_gets_the_start_that_the_tasks_agreed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    start_ns = time.monotonic_ns() + NS // 5

    def job(driver: DriverAddress) -> None:
        assert driver.boot_id == clock_offsets.boot_id()
        # as each of two tasks does; the first report counts
        clock_offsets.report_start(driver.address, start_ns)
        clock_offsets.report_start(driver.address, start_ns + 1)

    spark, running_load = drive(monkeypatch, tmp_path, job)
    with running_load as running:
        assert running.start_ns == start_ns
    history = list(History(tmp_path / "history.jsonl").events())
    details = [LoadDetails.of(event) for event in history]
    assert details == [LoadDetails(step="start", start_ns=start_ns, slots=1), LoadDetails(step="end")]
    assert spark.cancelled == 0


def test_a_load_whose_start_no_host_can_report_is_a_one_line_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark, running_load = drive(monkeypatch, tmp_path, lambda _: None)
    with pytest.raises(RackgateError, match=r"no load host .* 127\.0\.0\.1:\d+: set spark\.driver\.host") as caught:
        running_load.__enter__()
    assert "\n" not in str(caught.value)
    assert spark.cancelled == 1
    assert not list(History(tmp_path / "history.jsonl").events())


def test_a_load_that_fails_before_its_start_ends_with_its_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def job(_: DriverAddress) -> None:
        raise TASK_FAILED

    spark, running_load = drive(monkeypatch, tmp_path, job)
    with pytest.raises(RackgateError, match="load task 0 came to nothing"):
        running_load.__enter__()
    assert spark.cancelled == 1


def test_the_wait_for_ready_tasks_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load_jobs, "READY_S", 0.1)
    ready: Future[None] = Future()
    spark, running_load = drive(monkeypatch, tmp_path, lambda _: ready.result(timeout=30))
    try:
        with pytest.raises(RackgateError, match="the clients of load x to be ready"):
            running_load.__enter__()
    finally:
        ready.set_result(None)
    assert spark.cancelled == 1


def test_spark_stops_checking_for_executors_before_the_time_limit_of_a_load() -> None:
    interval, checks = spark_session.BARRIER_CHECKS.values()
    assert int(interval.removesuffix("s")) * int(checks) < load_jobs.READY_S


def test_without_a_terminal_each_step_is_one_line_with_an_estimate() -> None:
    text = io.StringIO()
    steps = RunSteps({"first": 60.0, "second": 30.0}, Console(file=text))
    with steps.shown():
        with steps.step("first"):
            pass
        with steps.step("second"):
            pass
    assert text.getvalue().splitlines() == [
        "first (about 60 s; about 1:30 to the end)",
        "second (about 30 s; about 0:30 to the end)",
    ]
    assert set(steps.duration_s) == {"first", "second"}
    assert clock_text(125.9) == "2:05"


def test_frames_that_a_link_lost_unintentionally_are_a_note() -> None:
    intact = {"overflowed": 0, "failed": 0}
    sessions: list[dict[str, Any]] = [
        {"place": "none", "target": {}},
        {"place": "az", "target": {"link_states": {"a-b": {"directions": [intact, intact]}}}},
        {"place": "far", "target": {"link_states": {"a-b": {"directions": [intact, intact | {"overflowed": 7}]}}}},
    ]
    (note,) = run_result.link_notes(sessions)
    assert note.startswith(
        "lab far: link a-b lost frames unintentionally: 7 that the emulator did not read in time, 0 "
    )
