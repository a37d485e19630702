"""The series as text and as commits: parsing, lint, application, round trip."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhooks import paths
from pyhooks.build import git, layout, series
from pyhooks.errors import RackgateError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "clients/src/main/java").mkdir(parents=True)
    (folder / "clients/src/main/java/A.java").write_text("class A {\n    int a = 1;\n}\n")
    git.git(folder, "init", "--quiet", "--initial-branch=rackgate", what="init")
    git.commit_all(folder, "baseline")
    git.git(folder, "tag", layout.BASELINE, what="tag")
    return folder


def commit(tree: Path, name: str, text: str, message: str) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    git.git(tree, "add", "--all", what="add")
    git.git(tree, "commit", "--quiet", "--message", message, what="commit")


def copy_of(tree: Path, folder: Path) -> Path:
    layout.clone(tree, folder)
    git.git(folder, "reset", "--hard", "--quiet", layout.BASELINE, what="reset")
    return folder


A = "clients/src/main/java/A.java"
LONG = "KIP-1290: A subject so long that git wraps it in the mail header, with a dash - and an ü in it"


def test_baseline_commit_is_the_same_everywhere(tmp_path: Path) -> None:
    hashes = set()
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "file").write_text("content\n")
        git.git(folder, "init", "--quiet", "--initial-branch=rackgate", what="init")
        hashes.add(git.commit_all(folder, "baseline"))
    assert len(hashes) == 1


def test_export_and_import_give_no_difference(tree: Path, tmp_path: Path) -> None:
    commit(tree, A, "class A {\n    int a = 2;\n}\n", "KIP-1290: Two\n\nBecause one is not enough.")
    commit(tree, "clients/src/main/java/B.java", "class B { }\n", f"{LONG}\n\nFor a reason, and ä.\n\nLink: KIP-1290")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    names = series.export(tree, first)
    again = copy_of(tree, tmp_path / "again")
    head = series.apply(again, series.load(first))
    second.mkdir()
    assert series.export(again, second) == names
    assert {p.name: p.read_bytes() for p in first.iterdir()} == {p.name: p.read_bytes() for p in second.iterdir()}
    assert head == series.apply(copy_of(tree, tmp_path / "third"), series.load(first)), "am is not reproducible"
    assert series.load(first)[1].subject == LONG
    assert series.load(first)[1].reason == "For a reason, and ä."


def test_export_keeps_the_file_name_of_a_subject_and_drops_what_is_gone(tree: Path, tmp_path: Path) -> None:
    commit(tree, A, "class A { }\n", "KIP-1290: Empty it\n\nReason.")
    series.export(tree, tmp_path)
    (tmp_path / "KIP-1290-Empty-it.patch").rename(tmp_path / "chosen.patch")
    (tmp_path / "series").write_text("chosen.patch\n")
    commit(tree, A, "class A { int b; }\n", "KIP-1290: Fill it\n\nReason.")
    assert series.export(tree, tmp_path) == ("chosen.patch", "KIP-1290-Fill-it.patch")
    git.git(tree, "reset", "--hard", "--quiet", "HEAD~1", what="reset")
    assert series.export(tree, tmp_path) == ("chosen.patch",)
    assert sorted(p.name for p in tmp_path.glob("*.patch")) == ["chosen.patch"]


def test_export_refuses_uncommitted_changes(tree: Path, tmp_path: Path) -> None:
    (tree / A).write_text("changed\n")
    with pytest.raises(RackgateError, match="uncommitted changes"):
        series.export(tree, tmp_path)


def test_a_patch_that_does_not_apply_is_named_with_its_file(tree: Path, tmp_path: Path) -> None:
    commit(tree, A, "class A {\n    int a = 2;\n}\n", "KIP-1290: Two\n\nReason.")
    commit(tree, A, "class A {\n    int a = 3;\n}\n", "KIP-1290: Three\n\nReason.")
    series.export(tree, tmp_path)
    fresh = copy_of(tree, tmp_path / "fresh")
    with pytest.raises(RackgateError, match=rf"patch KIP-1290-Three.patch does not apply: {A}:1") as caught:
        series.apply(fresh, [series.load(tmp_path)[1]])
    assert "\n" not in str(caught.value)
    assert not git.git(fresh, "status", "--porcelain", what="status"), "the failed patch left something behind"


GOOD = """From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A <a@b>
Date: Fri, 20 Nov 2026 23:08:45 +0000
Subject: [PATCH] {subject}

{reason}

diff --git a/clients/src/main/java/A.java b/clients/src/main/java/A.java
--- a/clients/src/main/java/A.java
+++ b/clients/src/main/java/A.java
@@ -1 +1 @@
-a
+b
"""


def write(folder: Path, listing: str, **patches: str) -> None:
    (folder / "series").write_text(listing)
    for name, text in patches.items():
        (folder / f"{name}.patch").write_text(text)


def test_lint_accepts_a_good_series(tmp_path: Path) -> None:
    write(tmp_path, "# why\na.patch\n", a=GOOD.format(subject="KIP-1290: Do", reason="Because."))
    assert series.lint(tmp_path) == ()


@pytest.mark.parametrize(
    ("listing", "patches", "fault"),
    [
        ("a.patch\nb.patch\n", {"a": GOOD.format(subject="One", reason="R.")}, "b.patch: listed in"),
        ("", {"a": GOOD.format(subject="One", reason="R.")}, "a.patch: not listed"),
        ("a.patch\na.patch\n", {"a": GOOD.format(subject="One", reason="R.")}, "a.patch: listed twice"),
        ("a.patch\n", {"a": GOOD.format(subject="O" * 76, reason="R.")}, "76 columns"),
        ("a.patch\n", {"a": GOOD.format(subject="One", reason="Signed-off-by: A <a@b>")}, "no reason"),
        ("a.patch\n", {"a": "hello\n"}, "not a patch"),
        (
            "a.patch\nb.patch\n",
            {"a": GOOD.format(subject="One", reason="R."), "b": GOOD.format(subject="One", reason="R.")},
            "same subject as a.patch",
        ),
    ],
)
def test_lint_names_each_fault(tmp_path: Path, listing: str, patches: dict[str, str], fault: str) -> None:
    write(tmp_path, listing, **patches)
    faults = series.lint(tmp_path)
    assert len(faults) == 1
    assert fault in faults[0]


def test_more_patches_than_there_are(tmp_path: Path) -> None:
    write(tmp_path, "a.patch\n", a=GOOD.format(subject="One", reason="R."))
    assert len(series.load(tmp_path, 1)) == 1
    assert series.load(tmp_path, 0) == ()
    with pytest.raises(RackgateError, match="the series has 1 patches"):
        series.load(tmp_path, 2)


def test_the_project_s_own_series_is_in_order() -> None:
    assert series.lint(paths.PATCH) == ()
    assert series.names(paths.PATCH)


def test_what_is_built_has_a_hash_that_tests_and_words_do_not_change(tree: Path, tmp_path: Path) -> None:
    def hashes(name: str, value: int, tested: int, why: str) -> tuple[str, str]:
        git.git(tree, "reset", "--hard", "--quiet", layout.BASELINE, what="reset")
        commit(tree, A, f"class A {{\n    int a = {value};\n}}\n", f"KIP-1290: Change\n\n{why}")
        commit(
            tree, "clients/src/test/java/ATest.java", f"class ATest {{ int a = {tested}; }}\n", "KIP-1290: Test\n\nIt."
        )
        (tmp_path / name).mkdir()
        series.export(tree, tmp_path / name)
        patches = series.load(tmp_path / name)
        return series.series_hash(patches), series.built_hash(patches)

    first, tests, words, code = (
        hashes("first", 2, 2, "So."),
        hashes("tests", 2, 3, "So."),
        hashes("words", 2, 2, "Else."),
        hashes("code", 3, 2, "So."),
    )
    assert len({whole for whole, _ in (first, tests, words, code)}) == 4
    assert first[1] == tests[1] == words[1] != code[1]
