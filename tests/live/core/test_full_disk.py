"""A full or read-only disk: one line with file and reason, status 2, and unchanged earlier results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from full_disk_writers import CASES
from pyhooks.core import paths
from pyhooks.history.event_log import MARK, Event, History
from untyped_events import event_now, note

PATIENCE_S = 120
SIZE = "4m"
OWN_MOUNTS = (
    ("unshare", "--mount"),
    ("unshare", "--user", "--map-root-user", "--mount"),
)
SUPPORT = paths.REPO / "tests/support"
MODULES = (paths.REPO, SUPPORT)


@pytest.fixture(scope="module")
def private() -> tuple[str, ...]:
    """Return the command prefix that runs a command in its own mount namespace."""
    for arguments in OWN_MOUNTS:
        tried = [*arguments, "mount", "-t", "tmpfs", "none", "/mnt"]
        if subprocess.run(tried, capture_output=True, check=False, timeout=PATIENCE_S).returncode == 0:
            return arguments
    pytest.skip("this machine has no mount namespaces")


def on_full_disk(private: tuple[str, ...], case: str, kind: str, folder: Path) -> dict[str, Any]:
    mount = f'mount -t tmpfs -o size={SIZE} none "$1" && exec "$2" "$3" "$4" "$5" "$1"'
    program = str(SUPPORT / "full_disk_writers.py")
    done = subprocess.run(
        [*private, "sh", "-c", mount, "sh", str(folder), sys.executable, program, case, kind],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=paths.REPO,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, MODULES))},
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def refusal(private: tuple[str, ...], case: str, kind: str, folder: Path, reason: str) -> dict[str, Any]:
    """Return the report of a write that exits with status 2 and one line with the reason and a file in the folder."""
    report = on_full_disk(private, case, kind, folder)
    assert report["status"] == 2
    (line,) = report["error"].splitlines()
    assert line.startswith(f"error: {folder}/")
    assert line.endswith(reason)
    return report


@pytest.mark.parametrize("case", CASES)
def test_a_full_disk_is_an_error_and_nothing_is_lost(private: tuple[str, ...], tmp_path: Path, case: str) -> None:
    report = refusal(private, case, "full", tmp_path, "No space left on device")
    assert report["new"] == []
    # a history is appended to, not replaced
    assert report["changed"] == (["history.jsonl"] if case == "history" else [])
    if case == "history":
        assert report["ops"][-1] == "torn"
        # also after later writes, once there is space again
        assert report["later"] == [*report["ops"], "later"]


@pytest.mark.parametrize("case", CASES)
def test_a_read_only_folder_is_an_error_and_unchanged(private: tuple[str, ...], tmp_path: Path, case: str) -> None:
    report = refusal(private, case, "read-only", tmp_path, "Read-only file system")
    assert (report["new"], report["changed"]) == ([], [])


@pytest.mark.parametrize("written", range(4))
def test_a_history_that_lost_events_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """The disk accepts some complete lines of a write, and no further byte."""
    history = History(tmp_path / "h.jsonl")
    first = [event_now("p", "first", "ok", number=number) for number in range(2)]
    more = [event_now("p", "more", "ok", number=number) for number in range(4)]
    history.extend(first)
    write = os.write
    fits = [len("".join(map(Event.line, more[:written])))]

    def limited(descriptor: int, data: bytes) -> int:
        if not fits[0]:
            raise OSError(28, "No space left on device")
        size = write(descriptor, data[: fits[0]])
        fits[0] = 0
        return size

    monkeypatch.setattr(os, "write", limited)
    with pytest.raises(Exception, match=r"h\.jsonl: can't be written: No space left on device"):
        history.extend(more)
    monkeypatch.setattr(os, "write", write)
    assert history.path.read_text(encoding="utf-8").endswith(f"}}{MARK}")
    found = list(history.events())
    # no earlier event is lost
    assert found[:-1] == [*first, *more[:written]]
    assert (found[-1].op, found[-1].outcome) == ("torn", "unknown")
    # an incomplete line is excused if its writer was killed
    assert found[-1].data["text"] == MARK
    last = note(history, "p", "later", "ok")
    assert list(history.events()) == [*found, last]
