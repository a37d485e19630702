"""Run folders, which the project may empty: a marker file names the project, the kind of run and a format version."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import hold_lock

MARKER = ".rackgate-run.json"
LOCK = ".lock"
PROJECT = "kafka-rackgate"
_NEW = f"{MARKER}.new"


@dataclass(frozen=True)
class Kind:
    """Kind of run that owns folders.

    Attributes:
        name: name of the kind, such as ``bench``.
        format: version of the folder's layout; a folder of another version is not touched.
        option: the command-line option that chooses another folder.
    """

    name: str
    format: int
    option: str

    @property
    def marker(self) -> str:
        """Content of the marker file: one line of JSON, the same on this machine and on remote hosts."""
        return json.dumps({"project": PROJECT, "kind": self.name, "format": self.format}) + "\n"


LAB = Kind("lab", 1, "--run-dir")
SYSTEM = Kind("system", 1, "--run-dir")
KAFKATEST = Kind("kafkatest", 1, "--run-dir")
SSH_HOSTS = Kind("ssh-hosts", 1, "--run-dir")
# Pairs: a folder of results, whose files are overwritten, and the folder below it that a new run empties.
BENCH, BENCH_RUN = Kind("bench", 1, "--out"), Kind("bench-run", 1, "--out")
OUTAGES, OUTAGES_RUN = Kind("bench-outages", 1, "--out"), Kind("bench-outages-run", 1, "--out")
OVERLAY_COST, OVERLAY_COST_RUN = Kind("bench-overlay", 1, "--out"), Kind("bench-overlay-run", 1, "--out")
SPEED, SPEED_WORK = Kind("bench-speed", 1, "--out"), Kind("bench-speed-work", 1, "--out")
README_PICTURES = Kind("readme-pictures", 1, "--out")
FORMAL, FORMAL_PICTURES = Kind("formal", 1, "--run-dir"), Kind("formal-pictures", 1, "--pictures")


def check(folder: Path, kind: Kind, *, keep: Collection[str] = ()) -> None:
    """Check, without writing anything, that ``claim`` would accept a folder, which may be missing.

    Raises:
        RackgateError: see ``claim``.
    """
    try:
        _is_marked(folder, kind, keep)
    except OSError as error:
        raise _unusable(folder, kind, error) from error


def claim(folder: Path, kind: Kind, *, keep: Collection[str] = ()) -> None:
    """Create a folder with a marker, or check that the existing one has the marker of ``kind``.

    Without a marker a folder is accepted only if it is empty, apart from files named in ``keep``, such as a lock. A
    symbolic link is never accepted: callers resolve a path from the user first, as ``held`` does.

    Raises:
        RackgateError: the folder has content but no such marker, is a symbolic link, or can't be read or written.
    """
    try:
        if not _is_marked(folder, kind, keep):
            folder.mkdir(parents=True, exist_ok=True)
            new = folder / _NEW
            new.unlink(missing_ok=True)
            new.write_text(kind.marker, encoding="utf-8")
            new.replace(folder / MARKER)
    except OSError as error:
        raise _unusable(folder, kind, error) from error


def empty(folder: Path, kind: Kind, *, keep: Collection[str] = ()) -> None:
    """Claim a folder and delete everything in it except the marker and files named in ``keep``, such as a lock.

    Symbolic links are removed, never followed.

    Raises:
        RackgateError: see ``claim``; or an entry of the folder can't be deleted.
    """
    claim(folder, kind, keep=keep)
    for entry in sorted(folder.iterdir()):
        if entry.name not in (MARKER, *keep):
            remove(entry)


def remove(entry: Path) -> None:
    """Delete a file or folder inside a claimed folder, if it exists; a symbolic link is removed, never followed.

    Raises:
        RackgateError: it can't be deleted.
    """
    try:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    except OSError as error:
        raise RackgateError(f"{entry}: can't be deleted: {error.strerror}") from error


@contextmanager
def held(folder: Path, kind: Kind) -> Iterator[Path]:
    """Claim a folder that the user chose, lock it against other runs within the block, and yield its resolved path.

    The file ``LOCK`` in it must be kept.

    Raises:
        RackgateError: see ``claim``, or another process has locked it.
    """
    folder = Path(os.path.realpath(folder))
    # check before creating the lock file, so that nothing is added to a folder that the project does not own
    check(folder, kind, keep=(LOCK,))
    taken = f"{folder}: another run is at work there; wait for it, or choose another {kind.option}"
    with hold_lock(folder / LOCK, taken=taken):
        claim(folder, kind, keep=(LOCK,))
        yield folder


def _is_marked(folder: Path, kind: Kind, keep: Collection[str]) -> bool:
    """Return whether a folder has the marker of ``kind``; raise an error if it has content but no such marker."""
    if folder.is_symlink():
        raise _foreign(folder, kind, "is a symbolic link")
    try:
        content = {entry.name for entry in folder.iterdir()} - {_NEW, *keep}
    except FileNotFoundError:
        return False
    if MARKER in content:
        _check_marker(folder, kind)
        return True
    if content:
        raise _foreign(folder, kind, f"has no marker {MARKER} (folders of earlier versions have none)")
    return False


def _check_marker(folder: Path, kind: Kind) -> None:
    marker = folder / MARKER
    if not stat.S_ISREG(marker.lstat().st_mode):
        raise _foreign(folder, kind, f"its {MARKER} is not a regular file")
    try:
        content = json.loads(marker.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if content == json.loads(kind.marker):
        return
    if isinstance(content, dict) and content.get("project") == PROJECT:
        made = f"kind {content.get('kind')!r}, format {content.get('format')!r}"
        raise _foreign(folder, kind, f"belongs to a run of {made}, not of kind {kind.name!r}, format {kind.format}")
    raise _foreign(folder, kind, f"its {MARKER} is not one of {PROJECT}")


def _foreign(folder: Path, kind: Kind, why: str) -> RackgateError:
    return RackgateError(
        f"{folder}: {why}, so it is left as it is; choose another folder with {kind.option}, or delete it yourself"
    )


def _unusable(folder: Path, kind: Kind, error: OSError) -> RackgateError:
    return RackgateError(f"{folder}: {error.strerror}; choose another {kind.option}")
