"""The series applies cleanly to the published sources, and import and export right after each other change nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from toolchain import share_repository

from pyhooks import paths
from pyhooks.build import builder, layout, mutate, series
from pyhooks.build.git import git
from pyhooks.build.recipe import load
from pyhooks.build.workspace import Workspace

pytestmark = [pytest.mark.build, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka's sources with the series as commits."""
    base = tmp_path_factory.mktemp("imported")
    fetched = Workspace.of(load()).root / "artifacts"
    if fetched.exists():  # what is missing is fetched
        shutil.copytree(fetched, Workspace.of(load(), base).root / "artifacts", copy_function=os.symlink)
    share_repository(Workspace.of(load(), base))
    return builder.import_tree(base=base, quiet=True)


def test_what_the_list_of_mutants_takes_out_is_there_once(tree: Path) -> None:
    for one in mutate.listed():
        one.apply((tree / one.file).read_text(encoding="utf-8"))


def test_import_and_export_of_the_series_change_nothing(tree: Path, tmp_path: Path) -> None:
    commits = git(tree, "rev-list", f"{layout.BASELINE}..HEAD", what="list the commits").split()
    assert len(commits) == len(series.load(paths.PATCH)) > 0
    assert git(tree, "status", "--porcelain", what="look at the tree") == ""

    folder = tmp_path / "series"
    shutil.copytree(paths.PATCH, folder)
    series.export(tree, folder)
    stored = {path.name: path.read_bytes() for path in paths.PATCH.iterdir()}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == stored

    # it could have come out otherwise: a commit on top of it is a patch more
    (tree / "NOTICE.more").write_text("more\n")
    git(tree, "add", "NOTICE.more", what="add a file")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "One more", what="commit")
    series.export(tree, folder)
    assert {path.name for path in folder.iterdir()} == {*stored, "One-more.patch"}
