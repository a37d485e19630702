"""Signals, time limits and logs of supervised programs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT, exits_on_sigterm, run, start, supervised
from pyhooks.core.wait import wait_for

# Writes more than fits into a pipe before it ends.
ENDS_LOUDLY = """
import signal, sys
def end(*_):
    sys.stdout.write("x" * 1_000_000)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
signal.pause()
"""


def test_a_sigterm_ends_the_body_like_an_interruption() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, exits_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_supervised_program_may_write_while_it_ends() -> None:
    command = [sys.executable, "-c", ENDS_LOUDLY]
    with supervised(command, grace_s=60, first=signal.SIGTERM, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    assert child.returncode == 7
    assert child.stdout.closed


@pytest.mark.parametrize("first", [None, signal.SIGTERM])
def test_a_supervised_program_that_does_not_end_is_killed(first: signal.Signals | None) -> None:
    command = ["sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait"]
    with supervised(command, grace_s=0.2, first=first, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        sleeper = psutil.Process(int(child.stdout.readline()))
    assert child.returncode == -signal.SIGKILL
    wait_for(
        lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE,
        goal="the end of the program's own child",
        timeout_s=30,
    )


def test_a_supervised_program_ends_when_its_input_closes() -> None:
    with supervised(["cat"], grace_s=60, stdin=subprocess.PIPE) as child:
        assert child.poll() is None
    assert child.returncode == 0


def test_a_log_is_replaced_or_kept(tmp_path: Path) -> None:
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


def test_a_program_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(RackgateError, match="sleep did not end within 0 s"):
        run(["sleep", "60"], task="wait", timeout_s=0.2)
