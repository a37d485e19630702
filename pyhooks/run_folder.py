"""Folders that the project may empty: each has a marker naming the project, the kind of run and a format version."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pyhooks.errors import RackgateError

MARKER = ".rackgate-run.json"
PROJECT = "kafka-rackgate"
_NEW = f"{MARKER}.new"


@dataclass(frozen=True)
class Kind:
    """A kind of run that owns folders.

    Attributes:
        name: such as ``bench``.
        format: version of the folder's layout; a folder of another version is not touched.
        option: the command-line option that chooses another folder.
    """

    name: str
    format: int
    option: str

    @property
    def marker(self) -> str:
        """Content of the marker file: one line of JSON, on this machine and on hosts."""
        return json.dumps({"project": PROJECT, "kind": self.name, "format": self.format}) + "\n"


def claim(folder: Path, kind: Kind, *, keep: Collection[str] = ()) -> None:
    """Create a folder with a marker, or check that the existing one has the marker of ``kind``.

    Args:
        folder: the folder; an existing one without a marker is accepted only if it is empty.
        kind: what the folder is for.
        keep: names of files that do not count as content, such as a lock.

    Raises:
        RackgateError: the folder has content and no such marker, or can't be read or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = {entry.name for entry in folder.iterdir()} - {_NEW, *keep}
        if MARKER in content:
            _check_marker(folder, kind)
        elif content:
            raise _foreign(folder, kind, f"has no marker {MARKER}")
        else:
            new = folder / _NEW
            new.unlink(missing_ok=True)
            new.write_text(kind.marker, encoding="utf-8")
            new.replace(folder / MARKER)
    except OSError as error:
        raise RackgateError(f"{folder}: {error.strerror}; choose another {kind.option}") from error


def empty(folder: Path, kind: Kind, *, keep: Collection[str] = ()) -> None:
    """Claim a folder and delete everything in it but the marker; links are removed, never followed.

    Args:
        folder: the folder, see ``claim``.
        kind: what the folder is for.
        keep: names of files to keep, such as a lock.

    Raises:
        RackgateError: see ``claim``; or something in the folder can't be deleted.
    """
    claim(folder, kind, keep=keep)
    for entry in sorted(folder.iterdir()):
        if entry.name in (MARKER, *keep):
            continue
        try:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        except OSError as error:
            raise RackgateError(f"{entry}: can't be deleted: {error.strerror}") from error


def _check_marker(folder: Path, kind: Kind) -> None:
    marker = folder / MARKER
    if not stat.S_ISREG(marker.lstat().st_mode):
        raise _foreign(folder, kind, f"its {MARKER} is not a regular file")
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if found == json.loads(kind.marker):
        return
    if isinstance(found, dict) and found.get("project") == PROJECT:
        made = f"kind {found.get('kind')!r}, format {found.get('format')!r}"
        raise _foreign(folder, kind, f"belongs to a run of {made}, not of kind {kind.name!r}, format {kind.format}")
    raise _foreign(folder, kind, f"its {MARKER} is not one of {PROJECT}")


def _foreign(folder: Path, kind: Kind, why: str) -> RackgateError:
    return RackgateError(
        f"{folder}: {why}, so nothing in it is deleted; choose another folder with {kind.option}, or delete it yourself"
    )
