from __future__ import annotations

import io
import time
from concurrent.futures import Future

import pytest
from pyspark.errors import PythonException
from rich.console import Console

from bench.load import load_jobs
from bench.load.spark_load import LATE
from bench.progress import RunSteps, clock_text
from pyhooks.core.errors import RackgateError


def ended(error: BaseException | None) -> Future[None]:
    future: Future[None] = Future()
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
    return future


def test_a_failed_task_ends_the_wait_at_once_with_a_one_line_error() -> None:
    error = PythonException("Traceback\n  File ...\nRuntimeError: load task 0 came to nothing\nmore")
    begun = time.monotonic()
    with pytest.raises(RackgateError, match="RuntimeError: load task 0 came to nothing"):
        load_jobs.wait_until_due(time.monotonic_ns() + 60 * 10**9, ended(error), "later")
    assert time.monotonic() - begun < 5


def test_a_pause_lasts_until_its_end_time() -> None:
    at_ns = time.monotonic_ns() + 150_000_000
    load_jobs.wait_until_due(at_ns, Future(), "the moment")
    assert at_ns <= time.monotonic_ns() < at_ns + 2_000_000_000


def test_a_late_load_is_distinguished_from_a_failed_one() -> None:
    error = PythonException(f"Traceback\nRuntimeError: load task 0 was ready 1.2 s {LATE}\nmore")
    with pytest.raises(load_jobs.LateError):
        load_jobs.raise_failure(ended(error))
    load_jobs.raise_failure(ended(None))


def test_a_load_with_a_late_fault_is_repeated_with_more_time() -> None:
    tried: list[float] = []

    def drive(lead_s: float) -> None:
        tried.append(lead_s)
        if lead_s < 20:
            raise load_jobs.LateError("late")

    load_jobs.repeat_while_late(6.0, drive)
    assert tried == [6.0, 12.0, 24.0]

    def never(lead_s: float) -> None:
        tried.append(lead_s)
        raise load_jobs.LateError("late")

    tried.clear()
    with pytest.raises(load_jobs.LateError):
        load_jobs.repeat_while_late(40.0, never)
    assert tried == [40.0, load_jobs.MOST_LEAD_S]

    def broken(_: float) -> None:
        raise RackgateError("another fault")

    with pytest.raises(RackgateError, match="another fault"):
        load_jobs.repeat_while_late(6.0, broken)


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
    assert set(steps.took_s) == {"first", "second"}
    assert clock_text(125.9) == "2:05"
