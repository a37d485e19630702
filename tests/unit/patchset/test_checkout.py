"""Trial of a series on a checkout: outcome of each patch, and a checkout that stays as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from patch_files import PATCH
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import git, recipe, series
from pyhooks.patchset.checkout import PatchOutcome, try_series
from pyhooks.verify import cli

A = "clients/src/main/java/A.java"
TAG = recipe.load().version
NAMES = ("gate/0001-one.patch", "gate/0002-two.patch", "gate/0003-three.patch", "gate/0004-four.patch")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Clone with the tag of the version, another branch checked out, uncommitted changes and a hook."""
    folder = tmp_path / "kafka"
    (folder / A).parent.mkdir(parents=True)
    (folder / A).write_text("a\n")
    git.git(folder, "init", "--quiet", "--initial-branch=trunk", task="init")
    git.commit_all(folder, "as published")
    git.git(folder, "tag", "--annotate", "--message", "release", TAG, task="tag")
    (folder / A).write_text("later\n")
    git.git(folder, "commit", "--quiet", "--all", "--message", "later", task="commit")
    (folder / A).write_text("not committed\n")
    hook = folder / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook\n")
    hook.chmod(0o755)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Series: the second patch fails and the third, which needs it, too; the others apply."""
    texts = [
        PATCH.format(subject=name, reason="Reason.") if old is None else
        PATCH.format(subject=name, reason="Reason.").replace("-a\n+b", f"-{old}\n+{new}").replace("/A.java", f"/{file}")
        for name, old, new, file in (
            ("One", "a", "b", "A.java"), ("Two", "x", "y", "A.java"), ("Three", "y", "z", "A.java"),
            ("Four", "b", "c", "A.java"),
        )
    ]  # fmt: skip
    root = tmp_path / "patch"
    (root / "gate").mkdir(parents=True)
    for name, text in zip(NAMES, texts, strict=True):
        (root / name).write_text(text)
    (root / "series").write_text("".join(f"{name}\n" for name in NAMES))
    (root / "kafka.toml").write_bytes((paths.patch_folder() / "kafka.toml").read_bytes())
    return root


def state(checkout: Path) -> tuple[str, ...]:
    commands = (("status", "--porcelain"), ("for-each-ref",), ("worktree", "list"), ("symbolic-ref", "HEAD"))
    return tuple(git.git(checkout, *command, task="read the state") for command in commands)


def test_each_patch_that_does_not_apply_is_reported(checkout: Path, folder: Path, tmp_path: Path) -> None:
    before = state(checkout)
    assert try_series(checkout, TAG, series.load_all(folder)) == (
        PatchOutcome(NAMES[0], ""),
        PatchOutcome(NAMES[1], f"{A}:1"),
        PatchOutcome(NAMES[2], f"{A}:1", (NAMES[1],)),
        PatchOutcome(NAMES[3], ""),
    )
    assert state(checkout) == before
    assert (checkout / A).read_text() == "not committed\n"
    assert not (tmp_path / "hook").exists()


def test_the_worktree_can_be_kept(checkout: Path, folder: Path, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    try_series(checkout, TAG, series.load_all(folder), keep)
    assert (keep / A).read_text() == "c\n"
    assert git.git(keep, "log", "--format=%s", "-2", task="list").splitlines() == ["Four", "One"]
    with pytest.raises(RackgateError, match="name a new folder"):
        try_series(checkout, TAG, series.load_all(folder), keep)


def test_a_checkout_without_the_tag_is_named(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match=r"has no tag 0\.1: `git fetch origin tag 0\.1`"):
        try_series(checkout, "0.1", ())
    (tmp_path / "empty").mkdir()
    with pytest.raises(RackgateError, match="not a git repository"):
        try_series(tmp_path / "empty", TAG, ())


def test_the_command(checkout: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "patch_folder", lambda: folder)
    done = CliRunner().invoke(cli.patch_app, ["am", "--checkout", os.fspath(checkout)])
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        f"does not apply: {NAMES[1]}: {A}:1",
        f"does not apply: {NAMES[2]}: {A}:1 (after {NAMES[1]}, with files in common)",
        f"tag {TAG}: 3 of 5 patches apply",
    ]
    done = CliRunner().invoke(cli.patch_app, ["am", "--checkout", os.fspath(checkout), "--json"])
    report = json.loads(done.stdout)
    assert report["tag"] == TAG
    assert [row["patch"] for row in report["patches"] if not row["reason"]] == [
        NAMES[0],
        NAMES[3],
        *(patch.name for patch in series.load_checkout()),
    ]
