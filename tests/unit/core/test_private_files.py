"""Private files: files and folders that another user owns, can replace or can write are rejected in one line."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pyhooks.core import private_files
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_text
from pyhooks.core.private_files import OTHERS_ANY, find_folder, make_folder, open_file, read_file

ADVICE = "choose another folder"
OTHER_UID = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


def assert_rejected(action: Callable[[], object], reason: str, path: Path) -> None:
    with pytest.raises(RackgateError, match=reason) as caught:
        action()
    assert str(path) in str(caught.value)
    assert ADVICE in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_folder_is_created_private_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert find_folder(folder, ADVICE) is None
    # With this umask, a plain mkdir would make the folder writable by everyone.
    original_umask = os.umask(0)
    try:
        assert make_folder(folder, ADVICE) == folder
    finally:
        os.umask(original_umask)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o700]
    assert make_folder(folder, ADVICE) == find_folder(folder, ADVICE) == folder


def test_a_linked_parent_is_followed_but_a_linked_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    assert make_folder(tmp_path / "link" / "state", ADVICE) == tmp_path / "real" / "state"
    assert_rejected(
        lambda: find_folder(tmp_path / "link", ADVICE), "is a symbolic link, not a directory", tmp_path / "link"
    )
    (tmp_path / "dangling").symlink_to("nowhere")
    assert_rejected(lambda: make_folder(tmp_path / "dangling", ADVICE), "is a symbolic link", tmp_path / "dangling")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "loop").symlink_to("loop")
    assert_rejected(lambda: make_folder(tmp_path / "loop" / "state", ADVICE), "loop|Too many levels", tmp_path / "loop")


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o777, 0o702, 0o1777])
def test_a_folder_that_others_can_write_is_rejected(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    assert_rejected(lambda: make_folder(folder, ADVICE), f"its mode is {mode:04o}", folder)


def test_a_folder_that_others_can_read_is_rejected_where_required(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o755)
    assert find_folder(folder, ADVICE) == folder
    assert_rejected(lambda: find_folder(folder, ADVICE, forbidden=OTHERS_ANY), "its mode is 0755", folder)


@as_root
def test_a_folder_of_another_user_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    os.chown(folder, OTHER_UID, -1)
    assert_rejected(lambda: make_folder(folder, ADVICE), f"belongs to user {OTHER_UID}, not to user 0", folder)


@pytest.mark.parametrize(("mode", "safe"), [(0o777, False), (0o770, False), (0o1777, True), (0o755, True)])
def test_a_parent_where_others_could_replace_the_folder_is_rejected(tmp_path: Path, mode: int, safe: bool) -> None:
    parent = tmp_path / "above"
    folder = parent / "one" / "state"
    folder.mkdir(parents=True, mode=0o700)
    (parent / "one").chmod(0o700)
    parent.chmod(mode)
    if safe:
        assert find_folder(folder, ADVICE) == folder
    else:
        assert_rejected(lambda: find_folder(folder, ADVICE), f"other users can write {parent} .mode {mode:04o}", folder)


@as_root
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_only_root_and_this_user_may_own_a_parent_folder(tmp_path: Path, kind: str) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    parent = tmp_path / ("real" if kind == "folder" else "link")
    make_folder(tmp_path / "link" / "state", ADVICE)
    os.chown(parent, OTHER_UID, -1, follow_symlinks=False)
    folder = tmp_path / "link" / "state"
    assert_rejected(lambda: find_folder(folder, ADVICE), f"user {OTHER_UID} owns {parent}", folder)


@as_root
def test_root_unmapped_in_a_user_namespace_may_own_a_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "above" / "state"
    make_folder(folder, ADVICE)
    os.chown(tmp_path / "above", OTHER_UID, -1)
    # A user namespace that maps one user: files of root appear as owned by the overflow UID.
    (tmp_path / "uid_map").write_text("         0       1000          1\n", encoding="ascii")
    (tmp_path / "overflow").write_text(f"{OTHER_UID}\n", encoding="ascii")
    monkeypatch.setattr(private_files, "UID_MAP", tmp_path / "uid_map")
    monkeypatch.setattr(private_files, "OVERFLOW_UID", tmp_path / "overflow")
    assert find_folder(folder, ADVICE) == folder


def test_a_path_that_is_not_a_folder_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    assert_rejected(lambda: make_folder(file, ADVICE), "is not a directory", file)
    assert_rejected(lambda: find_folder(file / "state", ADVICE), "Not a directory", file)
    assert_rejected(lambda: make_folder(file / "state", ADVICE), "Not a directory", file)
    assert_rejected(lambda: find_folder(Path("state"), ADVICE), "must be an absolute path", Path("state"))


def test_a_file_is_written_atomically_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_text(file, "one", mode=0o600)
    assert (read_file(file, ADVICE), stat.S_IMODE(file.stat().st_mode)) == ("one", 0o600)
    write_text(file, "two", mode=0o640)
    assert (read_file(file, ADVICE), stat.S_IMODE(file.stat().st_mode)) == ("two", 0o640)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    link, pipe, folder = tmp_path / "link", tmp_path / "pipe", tmp_path / "folder"
    link.symlink_to("target")
    assert_rejected(lambda: open_file(link, os.O_RDWR | os.O_CREAT, ADVICE), "is a symbolic link", link)
    assert not (tmp_path / "target").exists()
    os.mkfifo(pipe, 0o600)
    assert_rejected(lambda: read_file(pipe, ADVICE), "is not a regular file", pipe)
    folder.mkdir()
    assert_rejected(lambda: read_file(folder, ADVICE), "is not a regular file", folder)
    assert_rejected(lambda: open_file(folder, os.O_RDWR, ADVICE), "Is a directory", folder)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing", ADVICE)


@pytest.mark.parametrize(("mode", "forbidden", "safe"), [
    (0o600, OTHERS_ANY, True),
    (0o640, OTHERS_ANY, False),
    (0o644, private_files.OTHERS_WRITE, True),
    (0o620, private_files.OTHERS_WRITE, False),
    (0o602, private_files.OTHERS_WRITE, False),
])  # fmt: skip
def test_a_file_s_mode_is_checked(tmp_path: Path, mode: int, forbidden: int, safe: bool) -> None:
    file = tmp_path / "file"
    write_text(file, "text", mode=mode)
    if safe:
        assert read_file(file, ADVICE, forbidden=forbidden) == "text"
    else:
        assert_rejected(lambda: read_file(file, ADVICE, forbidden=forbidden), f"its mode is {mode:04o}", file)


@as_root
def test_a_file_of_another_user_is_rejected_unless_root_may_own_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    write_text(file, "text", mode=0o600)
    os.chown(file, OTHER_UID, -1)
    assert_rejected(lambda: read_file(file, ADVICE, root_may_own=True), f"belongs to user {OTHER_UID}", file)
    os.chown(file, 0, -1)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_UID)
    assert_rejected(lambda: read_file(file, ADVICE), "belongs to user 0", file)
    assert read_file(file, ADVICE, root_may_own=True) == "text"


def test_a_file_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xff")
    file.chmod(0o600)
    assert_rejected(lambda: read_file(file, ADVICE), "not UTF-8", file)
