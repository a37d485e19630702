"""Folders and files of this user that no other user can write or replace.

Root reads such files and acts on their content. So each is checked before use: its type, owner and mode, and whether a
folder above it lets another user replace it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from pyhooks.core.errors import RackgateError

UID_MAP = Path("/proc/self/uid_map")
OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
# uid_map of the initial user namespace
ALL_USERS = ["0", "0", "4294967295"]
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_ANY = stat.S_IRWXG | stat.S_IRWXO


def find_folder(path: Path, advice: str, *, forbidden: int = OTHERS_WRITE) -> Path | None:
    """Return the real path of a folder, or None if it does not exist.

    Args:
        path: the folder.
        advice: what the user can do if it is unsafe, for the error.
        forbidden: bits that its mode must not have.

    Raises:
        RackgateError: it is a symbolic link or no directory, another user owns it, its mode has a forbidden bit, or a
            folder above it lets another user replace it.
    """
    if not path.is_absolute():
        raise RackgateError(f"{path}: must be an absolute path; {advice}")
    try:
        real = path.parent.resolve(strict=True) / path.name
        _check_owner_and_mode(path, real.lstat(), advice, folder=True, forbidden=forbidden)
        _check_parents(path, real, advice)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise RackgateError(f"{path}: {getattr(error, 'strerror', error)}; {advice}") from error
    return real


def make_folder(path: Path, advice: str) -> Path:
    """Create a folder and its missing parents with mode 0700, unless it exists, and return its real path.

    Raises:
        RackgateError: it can't be created, or is unsafe; see ``find_folder``.
    """
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists() and not folder.is_symlink()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RackgateError(f"{error.filename}: can't be created: {error.strerror}; {advice}") from error
    existing = find_folder(path, advice)
    if existing is None:
        raise RackgateError(f"{path}: was removed while it was being used; {advice}")
    return existing


def open_file(path: Path, flags: int, advice: str, *, forbidden: int = OTHERS_WRITE, root_may_own: bool = False) -> int:
    """Open a regular file of this user with ``os.open``, never following a symbolic link, and return the descriptor.

    Args:
        path: the file, in a folder returned by ``find_folder`` or ``make_folder``.
        flags: as for ``os.open``; a new file gets mode 0600.
        advice: what the user can do if it is unsafe, for the error.
        forbidden: bits that its mode must not have.
        root_may_own: whether a file owned by root is accepted, too.

    Raises:
        RackgateError: it is a symbolic link or no regular file, another user owns it, its mode has a forbidden bit, or
            it can't be opened.
        FileNotFoundError: it does not exist.
    """
    try:
        # without O_NONBLOCK, opening a named pipe would wait for a writer
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "is a symbolic link" if error.errno == errno.ELOOP else f"can't be opened: {error.strerror}"
        raise RackgateError(f"{path}: {why}; {advice}") from error
    try:
        info = os.fstat(descriptor)
        owned = root_may_own and info.st_uid == 0
        _check_owner_and_mode(path, info, advice, folder=False, forbidden=forbidden, owned=owned)
    except RackgateError:
        os.close(descriptor)
        raise
    return descriptor


def read_file(path: Path, advice: str, *, forbidden: int = OTHERS_WRITE, root_may_own: bool = False) -> str:
    """Return the text of a file; see ``open_file``.

    Raises:
        RackgateError: the file is unsafe, can't be read or is not UTF-8.
        FileNotFoundError: it does not exist.
    """
    descriptor = open_file(path, os.O_RDONLY, advice, forbidden=forbidden, root_may_own=root_may_own)
    with os.fdopen(descriptor, "rb") as stream:
        try:
            return stream.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise RackgateError(f"{path}: not UTF-8; {advice}") from error


def _check_owner_and_mode(
    path: Path, info: os.stat_result, advice: str, *, folder: bool, forbidden: int, owned: bool = False
) -> None:
    kind = "directory" if folder else "regular file"
    if stat.S_ISLNK(info.st_mode):
        raise RackgateError(f"{path}: is a symbolic link, not a {kind}; {advice}")
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(info.st_mode):
        raise RackgateError(f"{path}: is not a {kind}; {advice}")
    if info.st_uid != os.geteuid() and not owned:
        raise RackgateError(f"{path}: belongs to user {info.st_uid}, not to user {os.geteuid()}; {advice}")
    if info.st_mode & forbidden:
        allowed = 0o700 if folder else 0o600
        raise RackgateError(
            f"{path}: its mode is {stat.S_IMODE(info.st_mode):04o}, so other users can get at it: make it"
            f" {allowed:04o} if you trust what is in it; or {advice}"
        )


def _check_parents(path: Path, real: Path, advice: str) -> None:
    """Reject a path in which another user can replace a folder.

    Raises:
        RackgateError: a folder above it, or a link in its path, belongs to a user other than this one and root; or such
            a folder is writable by others and lacks the sticky bit.
    """
    trusted = _trusted_users()
    links = [folder for folder in path.parents if folder.is_symlink()]
    for step in (*links, *real.parents):
        info = step.lstat()
        if info.st_uid not in trusted:
            raise RackgateError(f"{path}: user {info.st_uid} owns {step}, so could replace it; {advice}")
        if not stat.S_ISLNK(info.st_mode) and info.st_mode & OTHERS_WRITE and not info.st_mode & stat.S_ISVTX:
            raise RackgateError(
                f"{path}: other users can write {step} (mode {stat.S_IMODE(info.st_mode):04o}), so could replace it:"
                f" 'chmod go-w {step}'; or {advice}"
            )


def _trusted_users() -> frozenset[int]:
    """Return the users that may own a folder above a private one: this user and root.

    In a user namespace the machine's root is often not mapped; its files then show the overflow UID.
    """
    trusted = {os.geteuid(), 0}
    if UID_MAP.read_text(encoding="ascii").split() != ALL_USERS:
        trusted.add(int(OVERFLOW_UID.read_text(encoding="ascii")))
    return frozenset(trusted)
