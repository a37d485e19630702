"""The series applies cleanly to the published sources, and import and export right after each other change nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pyhooks import paths
from pyhooks.build import builder, layout, series
from pyhooks.build.git import git
from pyhooks.build.recipe import load
from pyhooks.build.workspace import Workspace

pytestmark = [pytest.mark.build, pytest.mark.timeout(420)]


def test_import_and_export_of_the_series_change_nothing(tmp_path: Path) -> None:
    fetched = Workspace.of(load()).root / "artifacts"
    if fetched.exists():  # what is missing is fetched
        shutil.copytree(fetched, Workspace.of(load(), tmp_path).root / "artifacts", copy_function=os.symlink)
    tree = builder.import_tree(base=tmp_path, quiet=True)
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
