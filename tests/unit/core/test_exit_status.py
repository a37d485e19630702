"""Error message and exit status for an exception that ends a command."""

from __future__ import annotations

import io
import os
import sys
import threading
from typing import Any

import pytest
import typer
from pyspark.errors import PySparkException, PythonException
from rich.console import Console

from bench.outages import outage_run
from bench.run import lab_run
from pyhooks import cli
from pyhooks.core import exit_status
from pyhooks.core.errors import RackgateError
from pyhooks.lab import bootstrap, init_process

PYTHON_WORKER_ERROR = (
    "An exception was thrown from the Python worker:\nTraceback\n  File ...\nValueError: no such column\nmore"
)


@pytest.fixture(autouse=True)
def _no_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(exit_status.DEBUG_VARIABLE, raising=False)


def raiser(error: BaseException) -> Any:
    def raise_error(*_: Any, **__: Any) -> None:
        raise error

    return raise_error


def bench_run_process(_: pytest.MonkeyPatch, error: BaseException) -> None:
    lab_run.main(["--out", "out"], run=raiser(error))


def outage_run_process(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(outage_run, "current_lab", raiser(error))
    outage_run.main(["--plan", "quick", "--lab", "az3-outside", "--run-id", "r"])


def rackgate_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(cli, "app", raiser(error))
    cli.main(["bench", "run"])


def lab_init_process(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(bootstrap, "create_lab", raiser(error))
    arguments = ["--topology", "t.toml", "--run-dir", "out", "--classpath", "c", "--agent", "a", "--archive", "a"]
    sys.exit(init_process.main(["--name", "t", *arguments, "--", "true"]))


EVERY_ENTRY_POINT = pytest.mark.parametrize(
    "command", [bench_run_process, outage_run_process, rackgate_command, lab_init_process]
)


@EVERY_ENTRY_POINT
@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (TimeoutError(), 2, "error: TimeoutError ("),
        (TimeoutError("no answer"), 2, "error: TimeoutError: no answer ("),
        (PySparkException("the job\n\nwas aborted"), 2, "error: PySparkException: the job ("),
        (
            PythonException(PYTHON_WORKER_ERROR),
            2,
            "error: PythonException: An exception was thrown from the Python worker: ValueError",
        ),
        (KeyError("p99"), 2, "error: KeyError: 'p99' ("),
        (RackgateError("no lab"), 2, "error: no lab"),
        (RackgateError("lost", exit_status=1), 1, "error: lost"),
    ],
)
def test_an_exception_is_one_line_and_its_status_defaults_to_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Any,
    error: Exception,
    status: int,
    message: str,
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        command(monkeypatch, error)
    assert exit_info.value.code == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message)
    assert line.endswith("; rackgate --debug shows the traceback)") is not isinstance(error, RackgateError)


@EVERY_ENTRY_POINT
def test_debug_shows_the_traceback_and_keeps_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: Any
) -> None:
    monkeypatch.setenv(exit_status.DEBUG_VARIABLE, "1")
    with pytest.raises(SystemExit) as exit_info:
        command(monkeypatch, TimeoutError("no answer"))
    assert exit_info.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("Traceback (most recent call last):")
    assert stderr.splitlines()[-1].startswith("error: TimeoutError: no answer (")


def test_debug_option_before_the_command_sets_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[bool, list[str]]] = []
    monkeypatch.setattr(cli, "app", lambda arguments, **_: calls.append((exit_status.debugging(), arguments)))
    monkeypatch.setenv(exit_status.DEBUG_VARIABLE, "")
    for arguments in (["bench", "run"], ["lab", "run", "--", "own", "--debug"], ["--debug", "bench", "run"]):
        cli.main(arguments)
    assert calls == [
        (False, ["bench", "run"]),
        (False, ["lab", "run", "--", "own", "--debug"]),
        (True, ["bench", "run"]),
    ]


def test_an_interrupt_exits_with_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as exit_info:
        rackgate_command(monkeypatch, KeyboardInterrupt())
    assert exit_info.value.code == 130


def test_the_detail_of_an_error_is_printed() -> None:
    text = io.StringIO()
    assert exit_status.report_error(RackgateError("no build", detail="a log"), Console(file=text)) == 2
    assert text.getvalue() == "a log\n"


def test_an_unexpected_error_names_file_and_line() -> None:
    with pytest.raises(ValueError, match="x") as raised:
        raiser(ValueError("x"))()
    # No frame is in our packages, so the innermost frame is named.
    assert exit_status.describe(raised.value).startswith("ValueError: x (test_exit_status.py:")
    with pytest.raises(AttributeError) as own_error:
        exit_status.report_error(RackgateError("no build", detail="a log"), None)  # type: ignore[arg-type]
    assert "(exit_status.py:" in exit_status.describe(own_error.value)
    assert exit_status.describe(ValueError("never raised")) == (
        "ValueError: never raised (rackgate --debug shows the traceback)"
    )


def test_a_command_ends_at_once_while_a_thread_is_in_java(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with pytest.raises(typer.Exit) as usual:
        exit_status.end_command(1)
    assert (usual.value.exit_code, ended) == (1, [])
    release = threading.Event()
    thread = threading.Thread(target=release.wait, daemon=True, name=exit_status.JAVA_THREAD)
    thread.start()
    try:
        with pytest.raises(typer.Exit):
            exit_status.end_command(2)
    finally:
        release.set()
        thread.join()
    assert ended == [2]
