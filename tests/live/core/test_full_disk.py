"""A full or read-only disk: one line with file and reason, status 2, and unchanged earlier results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from full_disk_writers import CASES, FULL, KINDS, READ_ONLY
from pyhooks.core import paths
from pyhooks.history.event_log import MARK, Event, History
from untyped_events import event_now, note

PATIENCE_S = 200
SIZE = "4m"
OWN_MOUNTS = (
    ("unshare", "--mount"),
    ("unshare", "--user", "--map-root-user", "--mount"),
)
SUPPORT = paths.REPO / "tests/support"
PROGRAM = str(SUPPORT / "full_disk_writers.py")
MODULES = (paths.REPO, SUPPORT)


@dataclass(frozen=True)
class Written:
    """Reports of all writers, by kind of disk and case; the files are in folders of these names."""

    folder: Path
    reports: dict[str, dict[str, Any]]

    def rejection(self, kind: str, case: str, reason: str) -> dict[str, Any]:
        """Return the report of a write that exited with status 2 and one line with a file in its folder and reason."""
        report: dict[str, Any] = self.reports[kind][case]
        assert "failure" not in report, report["failure"]
        assert report["status"] == 2
        (line,) = report["error"].splitlines()
        assert line.startswith(f"error: {self.folder / kind / case}/")
        assert line.endswith(reason)
        return report


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Run all writers in a mount namespace, each on a disk of its own."""
    folder = tmp_path_factory.mktemp("disks")
    disks = [folder / kind / case for kind in KINDS for case in CASES]
    for disk in disks:
        disk.mkdir(parents=True)
    mount = f'for disk; do mount -t tmpfs -o size={SIZE} none "$disk" || exit; done; exec "$0" "$PROGRAM" "$FOLDER"'
    done = subprocess.run(
        [*private(), "sh", "-c", mount, sys.executable, *map(str, disks)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=paths.REPO,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, MODULES)), "PROGRAM": PROGRAM, "FOLDER": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return Written(folder, json.loads(done.stdout))


def private() -> tuple[str, ...]:
    """Return the command prefix that runs a command in its own mount namespace."""
    for arguments in OWN_MOUNTS:
        tried = [*arguments, "mount", "-t", "tmpfs", "none", "/mnt"]
        if subprocess.run(tried, capture_output=True, check=False, timeout=PATIENCE_S).returncode == 0:
            return arguments
    pytest.skip("this machine has no mount namespaces")


@pytest.mark.parametrize("case", CASES)
def test_a_full_disk_is_an_error_and_nothing_is_lost(written: Written, case: str) -> None:
    report = written.rejection(FULL, case, "No space left on device")
    assert report["new"] == []
    # a history is appended to, not replaced
    assert report["changed"] == (["history.jsonl"] if case == "history" else [])
    if case == "history":
        assert report["ops"][-1] == "torn"
        # also after later writes, once there is space again
        assert report["later"] == [*report["ops"], "later"]


@pytest.mark.parametrize("case", CASES)
def test_a_read_only_folder_is_an_error_and_unchanged(written: Written, case: str) -> None:
    report = written.rejection(READ_ONLY, case, "Read-only file system")
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
