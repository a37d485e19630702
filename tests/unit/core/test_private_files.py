"""Folders and files that another user could have planted, replaced or can write are refused in one line."""

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
SOMEBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


def refused(action: Callable[[], object], why: str, path: Path) -> None:
    with pytest.raises(RackgateError, match=why) as caught:
        action()
    assert str(path) in str(caught.value)
    assert ADVICE in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_folder_is_created_private_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert find_folder(folder, ADVICE) is None
    # with which a plain mkdir would let the group write
    before = os.umask(0)
    try:
        assert make_folder(folder, ADVICE) == folder
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700, 0o700]
    assert make_folder(folder, ADVICE) == find_folder(folder, ADVICE) == folder


def test_a_link_above_the_folder_is_followed_and_one_in_its_place_is_not(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    assert make_folder(tmp_path / "link" / "state", ADVICE) == tmp_path / "real" / "state"
    refused(lambda: find_folder(tmp_path / "link", ADVICE), "is a symbolic link, not a directory", tmp_path / "link")
    (tmp_path / "dangling").symlink_to("nowhere")
    refused(lambda: make_folder(tmp_path / "dangling", ADVICE), "is a symbolic link", tmp_path / "dangling")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "loop").symlink_to("loop")
    refused(lambda: make_folder(tmp_path / "loop" / "state", ADVICE), "loop|Too many levels", tmp_path / "loop")


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o777, 0o702, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    refused(lambda: make_folder(folder, ADVICE), f"its mode is {mode:04o}", folder)


def test_a_folder_that_others_can_read_is_refused_where_required(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o755)
    assert find_folder(folder, ADVICE) == folder
    refused(lambda: find_folder(folder, ADVICE, forbidden=OTHERS_ANY), "its mode is 0755", folder)


@as_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    os.chown(folder, SOMEBODY, -1)
    refused(lambda: make_folder(folder, ADVICE), f"belongs to user {SOMEBODY}, not to user 0", folder)


@pytest.mark.parametrize(("mode", "safe"), [(0o777, False), (0o770, False), (0o1777, True), (0o755, True)])
def test_the_folder_above_must_not_let_others_replace_it(tmp_path: Path, mode: int, safe: bool) -> None:
    above = tmp_path / "above"
    folder = above / "one" / "state"
    folder.mkdir(parents=True, mode=0o700)
    (above / "one").chmod(0o700)
    above.chmod(mode)
    if safe:
        assert find_folder(folder, ADVICE) == folder
    else:
        refused(lambda: find_folder(folder, ADVICE), f"other users can write {above} .mode {mode:04o}", folder)


@as_root
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_only_root_and_this_user_may_own_a_parent_folder(tmp_path: Path, kind: str) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    step = tmp_path / ("real" if kind == "folder" else "link")
    make_folder(tmp_path / "link" / "state", ADVICE)
    os.chown(step, SOMEBODY, -1, follow_symlinks=False)
    folder = tmp_path / "link" / "state"
    refused(lambda: find_folder(folder, ADVICE), f"user {SOMEBODY} owns {step}", folder)


@as_root
def test_an_unmapped_root_may_own_a_parent_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "above" / "state"
    make_folder(folder, ADVICE)
    os.chown(tmp_path / "above", SOMEBODY, -1)
    # of a user namespace with one user, where what root owns shows the overflow user
    (tmp_path / "uid_map").write_text("         0       1000          1\n", encoding="ascii")
    (tmp_path / "overflow").write_text(f"{SOMEBODY}\n", encoding="ascii")
    monkeypatch.setattr(private_files, "UID_MAP", tmp_path / "uid_map")
    monkeypatch.setattr(private_files, "OVERFLOW_UID", tmp_path / "overflow")
    assert find_folder(folder, ADVICE) == folder


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    refused(lambda: make_folder(file, ADVICE), "is not a directory", file)
    refused(lambda: find_folder(file / "state", ADVICE), "Not a directory", file)
    refused(lambda: make_folder(file / "state", ADVICE), "Not a directory", file)
    refused(lambda: find_folder(Path("state"), ADVICE), "must be an absolute path", Path("state"))


def test_a_file_is_written_in_one_step_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_text(file, "one", mode=0o600)
    assert (read_file(file, ADVICE), stat.S_IMODE(file.stat().st_mode)) == ("one", 0o600)
    write_text(file, "two", mode=0o640)
    assert (read_file(file, ADVICE), stat.S_IMODE(file.stat().st_mode)) == ("two", 0o640)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_planted_file_is_not_opened(tmp_path: Path) -> None:
    link, pipe, folder = tmp_path / "link", tmp_path / "pipe", tmp_path / "folder"
    link.symlink_to("target")
    refused(lambda: open_file(link, os.O_RDWR | os.O_CREAT, ADVICE), "is a symbolic link", link)
    assert not (tmp_path / "target").exists()
    os.mkfifo(pipe, 0o600)
    refused(lambda: read_file(pipe, ADVICE), "is not a regular file", pipe)
    folder.mkdir()
    refused(lambda: read_file(folder, ADVICE), "is not a regular file", folder)
    refused(lambda: open_file(folder, os.O_RDWR, ADVICE), "Is a directory", folder)
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
        refused(lambda: read_file(file, ADVICE, forbidden=forbidden), f"its mode is {mode:04o}", file)


@as_root
def test_a_file_of_another_user_is_refused_and_one_of_root_accepted_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    write_text(file, "text", mode=0o600)
    os.chown(file, SOMEBODY, -1)
    refused(lambda: read_file(file, ADVICE, root_may_own=True), f"belongs to user {SOMEBODY}", file)
    os.chown(file, 0, -1)
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    refused(lambda: read_file(file, ADVICE), "belongs to user 0", file)
    assert read_file(file, ADVICE, root_may_own=True) == "text"


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xff")
    file.chmod(0o600)
    refused(lambda: read_file(file, ADVICE), "not UTF-8", file)
