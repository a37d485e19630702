"""Signals, timeouts and logs of child processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from process_state import is_running
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT, exits_on_sigterm, run, start, supervised
from pyhooks.core.wait import wait_for

# On SIGTERM, writes more than a pipe buffer holds before it exits.
WRITES_ON_SIGTERM = """
import os, signal, sys
def end(*_):
    sys.stdout.write("x" * 1_000_000)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
os.write(1, b"ready\\n")
signal.pause()
"""


def test_sigterm_raises_system_exit_in_the_body() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as exit_info, exits_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert exit_info.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_output_is_drained_while_a_supervised_program_exits() -> None:
    command = [sys.executable, "-c", WRITES_ON_SIGTERM]
    with supervised(command, grace_s=60, first=signal.SIGTERM, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    assert child.returncode == 7
    assert child.stdout.closed


@pytest.mark.parametrize("first", [None, signal.SIGTERM])
def test_a_supervised_program_that_ignores_sigterm_is_killed(first: signal.Signals | None) -> None:
    command = ["sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait"]
    with supervised(command, grace_s=0.2, first=first, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        sleeper = int(child.stdout.readline())
    assert child.returncode == -signal.SIGKILL
    wait_for(lambda: not is_running(sleeper), goal="exit of the program's child", timeout_s=30)


def test_closing_stdin_ends_a_supervised_program() -> None:
    with supervised(["cat"], grace_s=60, stdin=subprocess.PIPE) as child:
        assert child.poll() is None
    assert child.returncode == 0


def test_a_log_is_overwritten_or_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for append, text in ((False, "a"), (True, "b"), (False, "c")):
        assert start(["echo", text], log=log, append=append).wait() == 0
        assert log.read_text(encoding="utf-8").split() == (["a", "b"] if append else [text])


def test_a_missing_program_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RackgateError, match=rf"^draw: .*'{DIES_WITH_PARENT[0]}'"):
        run(["true"], task="draw")
    with pytest.raises(RackgateError, match=r"^start true: .*'true'"):
        start(["true"], outlives=True)


def test_a_timeout_is_an_error() -> None:
    with pytest.raises(RackgateError, match="sleep did not end within 0 s"):
        run(["sleep", "60"], task="wait", timeout_s=0.2)
