"""The series applies cleanly to the published sources, and an import followed by an export changes nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from maven_toolchain import share_repository
from pyhooks.core import paths
from pyhooks.patchset import builder, series, source_tree
from pyhooks.patchset.git import git
from pyhooks.patchset.recipe import load
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import mutation

pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka's sources with the series as commits."""
    base = tmp_path_factory.mktemp("imported")
    fetched = Workspace.of(load()).root / "artifacts"
    if fetched.exists():  # fetch missing artifacts
        shutil.copytree(fetched, Workspace.of(load(), base).root / "artifacts", copy_function=os.symlink)
    share_repository(Workspace.of(load(), base))
    return builder.import_tree(base=base, quiet=True)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_old_text_of_each_mutant_occurs_once(tree: Path) -> None:
    for one in mutation.listed():
        one.apply((tree / one.file).read_text(encoding="utf-8"))


def test_import_and_export_of_the_series_change_nothing(tree: Path, tmp_path: Path) -> None:
    commits = git(tree, "rev-list", f"{source_tree.BASELINE}..HEAD", task="list the commits").split()
    patches = series.load_all(paths.patch_folder())
    assert len(commits) == len(patches) > 0
    for part, of_part in series.part_commits(tree).items():
        assert len(of_part) == sum(patch.part == part for patch in patches)
    assert git(tree, "status", "--porcelain", task="read the state of the tree") == ""

    folder = tmp_path / "series"
    shutil.copytree(paths.patch_folder(), folder)
    series.export(tree, folder)
    stored = files(paths.patch_folder())
    assert files(folder) == stored

    # control: one more commit yields one more patch
    (tree / "NOTICE.more").write_text("more\n")
    git(tree, "add", "NOTICE.more", task="add a file")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "One more", task="commit")
    series.export(tree, folder)
    (added,) = files(folder).keys() - stored.keys()
    assert added.startswith(f"{series.TOP}/")
    assert added.endswith("-One-more.patch")
