"""Run folders: only a folder with the project's marker for the same kind of run is emptied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyhooks.core import run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.run_folder import LOCK, MARKER, Kind

KIND = Kind("bench", 1, "--out")


def entry_names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_claimed_folder_is_emptied_and_keeps_marker_and_lock(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    run_folder.claim(folder, KIND)
    assert json.loads((folder / MARKER).read_text()) == {"project": "kafka-rackgate", "kind": "bench", "format": 1}
    (folder / "old").mkdir()
    (folder / "old" / "part").touch()
    (folder / "file").touch()
    (folder / ".lock").touch()
    run_folder.empty(folder, KIND, keep=(".lock",))
    assert entry_names(folder) == [".lock", MARKER]


def test_an_empty_folder_or_one_with_only_a_lock_is_claimed(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / f"{MARKER}.new").write_text("cut sh")
    run_folder.claim(tmp_path, KIND, keep=(".lock",))
    assert entry_names(tmp_path) == [".lock", MARKER]


@pytest.mark.parametrize(
    "marker",
    [
        None,
        "",
        "[]",
        "{}",
        "\xff",
        Kind("system", 1, "--run-dir").marker,
        Kind("bench", 2, "--out").marker,
        json.dumps({"project": "other", "kind": "bench", "format": 1}),
    ],
)
def test_a_foreign_folder_is_unchanged(tmp_path: Path, marker: str | None) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / ".lock").touch()
    if marker is not None:
        (tmp_path / MARKER).write_bytes(marker.encode("latin-1"))
    before = entry_names(tmp_path)
    with pytest.raises(RackgateError) as error:
        run_folder.empty(tmp_path, KIND, keep=(".lock",))
    assert str(tmp_path) in str(error.value)
    assert "--out" in str(error.value)
    assert entry_names(tmp_path) == before
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_symbolic_link_is_not_a_valid_marker(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(KIND.marker)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / MARKER).symlink_to(tmp_path / "elsewhere")
    (folder / "thesis.txt").touch()
    with pytest.raises(RackgateError):
        run_folder.empty(folder, KIND)
    assert entry_names(folder) == [MARKER, "thesis.txt"]


def test_links_in_a_folder_are_removed_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "thesis.txt").touch()
    folder = tmp_path / "folder"
    run_folder.claim(folder, KIND)
    (folder / "link").symlink_to(target, target_is_directory=True)
    (folder / "sub").mkdir()
    (folder / "sub" / "link").symlink_to(target / "thesis.txt")
    run_folder.empty(folder, KIND)
    assert entry_names(folder) == [MARKER]
    assert entry_names(target) == ["thesis.txt"]


def test_a_file_instead_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(RackgateError) as error:
        run_folder.empty(tmp_path / "run", KIND)
    assert str(tmp_path / "run") in str(error.value)


def test_a_link_to_a_folder_is_rejected_even_if_the_folder_has_the_marker(tmp_path: Path) -> None:
    run_folder.claim(tmp_path / "other", KIND)
    (tmp_path / "other" / "part").touch()
    (tmp_path / "run").symlink_to(tmp_path / "other", target_is_directory=True)
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent", target_is_directory=True)
    for link in ("run", "nowhere"):
        with pytest.raises(RackgateError, match="symbolic link"):
            run_folder.empty(tmp_path / link, KIND)
    assert entry_names(tmp_path / "other") == [MARKER, "part"]
    assert not (tmp_path / "absent").exists()


def test_check_writes_nothing(tmp_path: Path) -> None:
    run_folder.check(tmp_path / "absent", KIND)
    run_folder.check(tmp_path, KIND)
    assert entry_names(tmp_path) == []
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(RackgateError):
        run_folder.check(tmp_path, KIND)
    assert entry_names(tmp_path) == ["thesis.txt"]


def test_a_held_folder_is_locked_and_marked(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with run_folder.held(folder, KIND) as held_folder:
        assert (held_folder, entry_names(held_folder)) == (folder, [LOCK, MARKER])
        with pytest.raises(RackgateError) as error, run_folder.held(folder, KIND):
            pytest.fail("both hold the folder")
        assert str(folder) in str(error.value)
        assert error.value.exit_status == 2
    with run_folder.held(folder, KIND):
        assert entry_names(folder) == [LOCK, MARKER]


def test_a_foreign_folder_gets_no_lock_file(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(RackgateError), run_folder.held(tmp_path, KIND):
        pytest.fail("the folder is held")
    assert entry_names(tmp_path) == ["thesis.txt"]


def test_a_linked_output_folder_is_locked_at_its_target(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk", target_is_directory=True)
    with run_folder.held(tmp_path / "out", KIND) as held_folder:
        assert held_folder == tmp_path / "disk"
    assert entry_names(tmp_path / "disk") == [LOCK, MARKER]


def test_a_lock_file_that_is_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RackgateError) as error, run_folder.held(tmp_path / "out", KIND):
        pytest.fail("the folder is held")
    assert str(tmp_path / "out" / LOCK) in str(error.value)
    assert not (tmp_path / "elsewhere").exists()


def test_each_kind_of_run_has_its_own_marker() -> None:
    kinds = [value for value in vars(run_folder).values() if isinstance(value, Kind)]
    assert len(kinds) > 5
    assert len({kind.name for kind in kinds}) == len(kinds)
