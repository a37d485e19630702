"""Audit file of this host: one record a line, appended and flushed to disk, never rewritten."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyhooks.audit.audit_record import AuditRecord, format_record
from pyhooks.audit.journal import ReadRecords, parse_records
from pyhooks.core import private_files
from pyhooks.core.files import writing
from pyhooks.core.locks import hold_lock

STATE_VARIABLE = "XDG_STATE_HOME"
ADVICE = "choose another with --audit-file"
LOCK_PATIENCE_S = 30.0


def default_file() -> Path:
    """Return ``rackgate/audit.jsonl`` in ``$XDG_STATE_HOME``, by default ``~/.local/state``."""
    state = os.environ.get(STATE_VARIABLE, "")
    # the XDG specification ignores relative paths
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return folder / "rackgate" / "audit.jsonl"


class AuditFile:
    """Audit file; another process that writes to it waits for this one's lock.

    Args:
        path: the file; it and its folder are created when the first record is written, for this user only.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def read(self) -> ReadRecords:
        """Return the records; none if there is no file.

        Raises:
            RackgateError: the file can't be read, or another user can write it.
        """
        folder = private_files.find_folder(self.path.parent, ADVICE)
        if folder is None:
            return ReadRecords()
        try:
            descriptor = private_files.open_file(folder / self.path.name, os.O_RDONLY, ADVICE)
        except FileNotFoundError:
            return ReadRecords()
        with os.fdopen(descriptor, "rb") as stream:
            return parse_records([line for line in stream.read().split(b"\n") if line])

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Append records and flush file and folder to disk.

        Raises:
            RackgateError: the file can't be written, for example because the disk is full.
        """
        folder = private_files.make_folder(self.path.parent, ADVICE)
        path = folder / self.path.name
        with writing(self.path):
            descriptor = private_files.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, ADVICE)
            with os.fdopen(descriptor, "r+b", buffering=0) as stream:
                size = os.fstat(descriptor).st_size
                # a writer that was killed may have left an incomplete line, which must not swallow the next one
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                content = (b"\n" if torn else b"") + b"".join(format_record(record) + b"\n" for record in records)
                while content:
                    content = content[stream.write(content) or 0 :]
                os.fsync(descriptor)
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude other processes that use this file within the block; the kernel releases the lock of a killed one.

        Raises:
            RackgateError: another process holds the lock for longer than ``LOCK_PATIENCE_S``, or the folder can't be
                created.
        """
        folder = private_files.make_folder(self.path.parent, ADVICE)
        taken = f"{self.path}: another rackgate changes topics with this audit file; try again when it is done"
        with hold_lock(folder / f"{self.path.name}.lock", taken=taken, patience_s=LOCK_PATIENCE_S):
            yield
