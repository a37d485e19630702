from __future__ import annotations

import io
import time
from concurrent.futures import Future

import pytest
from pyspark.errors import PythonException
from rich.console import Console

from bench import cli, run, scenarios
from bench.progress import Steps, clock
from pyhooks.errors import RackgateError


def ended(error: BaseException | None) -> Future[None]:
    future: Future[None] = Future()
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
    return future


def test_a_task_that_failed_ends_the_wait_at_once_and_is_told_in_one_line() -> None:
    error = PythonException("Traceback\n  File ...\nRuntimeError: load task 0 began 1.2 s after the start\nmore")
    begun = time.monotonic()
    with pytest.raises(RackgateError, match=r"the load failed: RuntimeError: load task 0 began 1\.2 s after"):
        run.pause_until(time.monotonic_ns() + 60 * 10**9, ended(error), "later")
    assert time.monotonic() - begun < 5


def test_a_pause_lasts_until_its_moment() -> None:
    at_ns = time.monotonic_ns() + 150_000_000
    run.pause_until(at_ns, Future(), "the moment")
    assert at_ns <= time.monotonic_ns() < at_ns + 2_000_000_000


def test_the_quick_run_is_planned_below_four_and_a_half_minutes() -> None:
    assert sum(run.planned(scenarios.load("quick")).values()) < 270


def test_without_a_terminal_each_step_is_one_line_with_an_estimate() -> None:
    text = io.StringIO()
    steps = Steps({"first": 60.0, "second": 30.0}, Console(file=text))
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
    assert clock(125.9) == "2:05"


def test_the_folder_of_a_run_starts_empty(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("out") / "run"
    (folder / "raw").mkdir(parents=True)
    (folder / "history.jsonl").write_text("old", encoding="utf-8")
    cli.fresh(folder)
    assert not folder.exists()
