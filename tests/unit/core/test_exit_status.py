"""Error line and exit status of a command that an exception ends, expected or not."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from pyspark.errors import PySparkException, PythonException
from rich.console import Console

from bench.outages import outage_run
from bench.run import lab_run
from pyhooks import cli
from pyhooks.core import exit_status
from pyhooks.core.errors import RackgateError
from pyhooks.lab import bootstrap, init_process

SPARK = "An exception was thrown from the Python worker:\nTraceback\n  File ...\nValueError: no such column\nmore"


@pytest.fixture(autouse=True)
def _no_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(exit_status.DEBUG_VARIABLE, raising=False)


def fails(error: BaseException) -> Any:
    def work(*_: Any, **__: Any) -> None:
        raise error

    return work


def in_a_run(_: pytest.MonkeyPatch, error: BaseException) -> None:
    lab_run.main(["--out", "out"], run=fails(error))


def in_outages(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(outage_run, "current_lab", fails(error))
    outage_run.main(["--plan", "quick", "--lab", "az3-outside", "--run-id", "r"])


def in_the_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(cli, "app", fails(error))
    cli.main(["bench", "run"])


def in_a_lab(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(bootstrap, "create_lab", fails(error))
    arguments = ["--topology", "t.toml", "--run-dir", "out", "--classpath", "c", "--agent", "a", "--archive", "a"]
    sys.exit(init_process.main(["--name", "t", *arguments, "--", "true"]))


EVERYWHERE = pytest.mark.parametrize("command", [in_a_run, in_outages, in_the_command, in_a_lab])


@EVERYWHERE
@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (TimeoutError(), 2, "error: TimeoutError ("),
        (TimeoutError("no answer"), 2, "error: TimeoutError: no answer ("),
        (PySparkException("the job\n\nwas aborted"), 2, "error: PySparkException: the job ("),
        (
            PythonException(SPARK),
            2,
            "error: PythonException: An exception was thrown from the Python worker: ValueError",
        ),
        (KeyError("p99"), 2, "error: KeyError: 'p99' ("),
        (RackgateError("no lab"), 2, "error: no lab"),
        (RackgateError("lost", exit_status=1), 1, "error: lost"),
    ],
)
def test_each_exception_gives_one_line_and_status_2_unless_it_sets_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Any,
    error: Exception,
    status: int,
    message: str,
) -> None:
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, error)
    assert ended.value.code == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message)
    assert line.endswith("; rackgate --debug shows the traceback)") is not isinstance(error, RackgateError)


@EVERYWHERE
def test_debug_shows_the_traceback_and_keeps_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: Any
) -> None:
    monkeypatch.setenv(exit_status.DEBUG_VARIABLE, "1")
    with pytest.raises(SystemExit) as ended:
        command(monkeypatch, TimeoutError("no answer"))
    assert ended.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("Traceback (most recent call last):")
    assert stderr.splitlines()[-1].startswith("error: TimeoutError: no answer (")


def test_debug_applies_also_to_commands_inside_a_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, list[str]]] = []
    monkeypatch.setattr(cli, "app", lambda arguments, **_: seen.append((exit_status.debugging(), arguments)))
    monkeypatch.setenv(exit_status.DEBUG_VARIABLE, "")
    for arguments in (["bench", "run"], ["lab", "run", "--", "own", "--debug"], ["--debug", "bench", "run"]):
        cli.main(arguments)
    assert seen == [
        (False, ["bench", "run"]),
        (False, ["lab", "run", "--", "own", "--debug"]),
        (True, ["bench", "run"]),
    ]


def test_an_interrupt_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as ended:
        in_the_command(monkeypatch, KeyboardInterrupt())
    assert ended.value.code == 130


def test_details_of_an_error_follow_its_line() -> None:
    text = io.StringIO()
    assert exit_status.report_error(RackgateError("no build", detail="a log"), Console(file=text)) == 2
    assert text.getvalue() == "a log\n"


def test_the_line_names_the_place() -> None:
    with pytest.raises(ValueError, match="x") as raised:
        fails(ValueError("x"))()
    # none is of a room of ours, so it is where it was raised
    assert exit_status.describe(raised.value).startswith("ValueError: x (test_exit_status.py:")
    with pytest.raises(AttributeError) as ours:
        exit_status.report_error(RackgateError("no build", detail="a log"), None)  # type: ignore[arg-type]
    assert "(exit_status.py:" in exit_status.describe(ours.value)
    assert exit_status.describe(ValueError("never raised")) == (
        "ValueError: never raised (rackgate --debug shows the traceback)"
    )
