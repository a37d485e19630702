"""Patch series: parsing, selection, export to files and import to branches, one per part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patch_files import PATCH
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import git, series, series_lint, source_tree
from pyhooks.patchset.series import PARTS, Selection


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Create a repository with the baseline commit and an empty branch for each part."""
    folder = tmp_path / "tree"
    (folder / "clients/src/main/java").mkdir(parents=True)
    (folder / "clients/src/main/java/A.java").write_text("class A {\n    int a = 1;\n}\n")
    git.git(folder, "init", "--quiet", "--initial-branch=rackgate", task="init")
    git.commit_all(folder, "baseline")
    git.git(folder, "tag", source_tree.BASELINE, task="tag")
    series.apply_parts(folder, ())
    return folder


def commit(tree: Path, name: str, text: str, message: str) -> None:
    """Write a file and commit it to the current branch."""
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    git.git(tree, "add", "--all", task="add")
    git.git(tree, "commit", "--quiet", "--message", message, task="commit")


def commit_to(tree: Path, part: str, name: str, text: str, message: str) -> None:
    """Commit to the branch of a part and move the branches of later parts to the commit."""
    git.git(tree, "checkout", "--quiet", part, task="check out")
    commit(tree, name, text, message)
    for later in PARTS[PARTS.index(part) + 1 :]:
        git.git(tree, "branch", "--force", later, task="move the branch")
    git.git(tree, "checkout", "--quiet", PARTS[-1], task="check out")


def copy_of(tree: Path, folder: Path) -> Path:
    """Clone a repository, reset to the baseline."""
    source_tree.clone(tree, folder)
    git.git(folder, "reset", "--hard", "--quiet", source_tree.BASELINE, task="reset")
    return folder


def series_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a series by name, without those of the repository in ``tree``."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith("tree/")}


A = "clients/src/main/java/A.java"
LONG = "KIP-1290: A subject so long that git wraps it in the mail header, with a dash - and an ü in it"


def test_baseline_commit_is_the_same_everywhere(tmp_path: Path) -> None:
    hashes = set()
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "file").write_text("content\n")
        git.git(folder, "init", "--quiet", "--initial-branch=rackgate", task="init")
        hashes.add(git.commit_all(folder, "baseline"))
    assert len(hashes) == 1


B = "clients/src/main/java/B.java"
C = "clients/src/main/java/C.java"


def test_export_and_import_round_trip(tree: Path, tmp_path: Path) -> None:
    commit_to(tree, "fixes", A, "class A {\n    int a = 2;\n}\n", "KIP-1290: Two\n\nBecause one is not enough.")
    message = f"{LONG}\n\nFor a reason, and ä.\n\nLink: KIP-1290\nDrop-when: it is\n  long ago"
    commit_to(tree, "gate", B, "class B { }\n", message)
    commit_to(tree, "gate", C, "class C { }\n", "KIP-1290: Three\n\nIt: too.")
    commit_to(tree, "observe", A, "class A { }\n", "KIP-1290: Four\n\nIt too.")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    names = series.export(tree, first)
    assert [name[:11] for name in names] == ["fixes/0001-", "gate/0001-K", "gate/0002-K", "observe/000"]
    assert [name[:12] for name in names][3] == "observe/0001"
    again = copy_of(tree, tmp_path / "again")
    series.apply_parts(again, series.load(first))
    second.mkdir()
    assert series.export(again, second) == names
    assert series_files(first) == series_files(second)
    third = copy_of(tree, tmp_path / "third")
    head = git.git(again, "rev-parse", "HEAD", task="read the head")
    assert head == series.apply(third, series.load(first)), "`git am` is not reproducible"
    patch = series.load(first)[1]
    assert (patch.subject, patch.reason) == (LONG, "For a reason, and ä.")
    assert patch.trailers == (("Link", "KIP-1290"), ("Drop-when", "it is long ago"))
    assert (patch.part, patch.number) == ("gate", 1)


def test_import_creates_stacked_branches_that_a_rebase_moves(tree: Path, tmp_path: Path) -> None:
    commit_to(tree, "fixes", A, "class A { }\n", "Fix\n\nReason.")
    commit_to(tree, "gate", B, "class B { }\n", "Gate\n\nReason.")
    commit_to(tree, "observe", C, "class C { }\n", "Observe\n\nReason.")
    folder = tmp_path / "series"
    folder.mkdir()
    series.export(tree, folder)
    before = series_files(folder)
    fresh = copy_of(tree, tmp_path / "fresh")
    series.apply_parts(fresh, series.load(folder))
    assert series.unexported(fresh) == ""
    branches = git.git(fresh, "for-each-ref", "--format=%(refname:short) %(subject)", "refs/heads", task="list")
    assert branches.splitlines() == ["elr Gate", "fixes Fix", "gate Gate", "observe Observe"]
    assert git.git(fresh, "symbolic-ref", "--short", "HEAD", task="look") == "observe"
    # A fixup of an earlier patch, as a developer would commit it.
    (fresh / B).write_text("class B { int b; }\n")
    git.git(fresh, "commit", "--quiet", "--all", "--fixup", "gate", task="commit")
    assert series.unexported(fresh) == "has commits that were not exported"
    git.git(fresh, "rebase", "--quiet", "--interactive", "--autosquash", source_tree.BASELINE, task="rebase")
    series.export(fresh, folder)
    after = series_files(folder)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == {"gate/0001-Gate.patch"}


def test_export_keeps_file_names_and_deletes_removed_patches(tree: Path, tmp_path: Path) -> None:
    commit_to(tree, "gate", A, "class A { }\n", "KIP-1290: Empty it\n\nReason.")
    series.export(tree, tmp_path)
    (tmp_path / "gate/0001-KIP-1290-Empty-it.patch").rename(tmp_path / "gate/0004-chosen.patch")
    (tmp_path / "series").write_text("gate/0004-chosen.patch\n")
    commit_to(tree, "gate", A, "class A { int b; }\n", "KIP-1290: Fill it\n\nReason.")
    commit_to(tree, "elr", B, "class B { }\n", "KIP-1290: Add it\n\nReason.")
    filled, added = "gate/0005-KIP-1290-Fill-it.patch", "elr/0001-KIP-1290-Add-it.patch"
    assert series.export(tree, tmp_path) == ("gate/0004-chosen.patch", filled, added)
    for part in ("elr", "observe", "gate"):
        git.git(tree, "update-ref", f"refs/heads/{part}", "gate~1", task="reset")
    git.git(tree, "reset", "--hard", "--quiet", task="reset")
    assert series.export(tree, tmp_path) == ("gate/0004-chosen.patch",)
    assert sorted(series_files(tmp_path)) == ["gate/0004-chosen.patch", "series"]
    assert not (tmp_path / "elr").exists()
    assert series.export(tree, tmp_path, renumber=True) == ("gate/0001-KIP-1290-Empty-it.patch",)


def test_an_inserted_patch_does_not_rename_others(tree: Path, tmp_path: Path) -> None:
    for number, letter in enumerate("XYZ"):
        commit_to(
            tree, "gate", f"clients/src/main/java/{letter}.java", f"class {letter} {{ }}\n", f"{letter}\n\nReason."
        )
        if number < 2:
            series.export(tree, tmp_path)
    assert series.export(tree, tmp_path) == ("gate/0001-X.patch", "gate/0002-Y.patch", "gate/0003-Z.patch")
    order = [git.git(tree, "rev-parse", revision, task="look") for revision in ("gate~1", "gate~2", "gate")]
    git.git(tree, "reset", "--hard", "--quiet", source_tree.BASELINE, task="reset")
    git.git(tree, "cherry-pick", order[1], task="pick")
    commit(tree, A, "class A { }\n", "New\n\nReason.")
    git.git(tree, "cherry-pick", order[0], order[2], task="pick")
    git.git(tree, "commit", "--quiet", "--amend", "--message", "Zed\n\nReason.", task="rename")
    for part in ("gate", "elr"):
        git.git(tree, "branch", "--force", part, task="move")
    assert series.export(tree, tmp_path) == (
        "gate/0001-X.patch", "gate/0003-New.patch", "gate/0002-Y.patch", "gate/0004-Zed.patch",
    )  # fmt: skip
    assert series.export(tree, tmp_path, renumber=True)[1:] == (
        "gate/0002-New.patch", "gate/0003-Y.patch", "gate/0004-Zed.patch",
    )  # fmt: skip


def test_renumbering_that_breaks_a_dependency_is_rejected(tree: Path, tmp_path: Path) -> None:
    commit_to(tree, "fixes", A, "class A { }\n", "First\n\nReason.")
    commit_to(tree, "fixes", B, "class B { }\n", "Second\n\nReason.\n\nDepends: 0001")
    series.export(tree, tmp_path)
    before = series_files(tmp_path)
    git.git(tree, "reset", "--hard", "--quiet", source_tree.BASELINE, task="reset")
    commit(tree, C, "class C { }\n", "Zeroth\n\nReason.")
    git.git(tree, "cherry-pick", "fixes~1", "fixes", task="pick")
    for part in PARTS[:3]:
        git.git(tree, "branch", "--force", part, task="move")
    with pytest.raises(RackgateError, match=r"'Second' .*0001, 'First'"):
        series.export(tree, tmp_path, renumber=True)
    assert series_files(tmp_path) == before
    assert len(series.export(tree, tmp_path)) == 3


def test_export_rejects_uncommitted_changes(tree: Path, tmp_path: Path) -> None:
    (tree / A).write_text("changed\n")
    assert series.unexported(tree) == "has uncommitted changes"
    with pytest.raises(RackgateError, match="uncommitted changes"):
        series.export(tree, tmp_path)


def commit_above_the_last_part(tree: Path) -> None:
    git.git(tree, "checkout", "--quiet", "--detach", task="detach")
    commit(tree, A, "class A { }\n", "More\n\nReason.")


def commit_beside_the_last_part(tree: Path) -> None:
    git.git(tree, "checkout", "--quiet", "--detach", "elr", task="detach")
    commit(tree, A, "class A { }\n", "More\n\nReason.")


def leave_later_branches_behind(tree: Path) -> None:
    git.git(tree, "checkout", "--quiet", "gate", task="check out")
    commit(tree, A, "class A { }\n", "More\n\nReason.")
    git.git(tree, "branch", "--force", "elr", "fixes", task="move")


def fork_a_branch(tree: Path) -> None:
    git.git(tree, "checkout", "--quiet", "gate", task="check out")
    commit(tree, A, "class A { }\n", "More\n\nReason.")
    git.git(tree, "checkout", "--quiet", "observe", task="check out")


def delete_a_branch(tree: Path) -> None:
    git.git(tree, "branch", "--delete", "--force", "elr", task="delete")


@pytest.mark.parametrize(
    ("spoil", "fault", "remedy"),
    [
        (commit_above_the_last_part, "HEAD has commits above branch observe", "git branch -f observe HEAD"),
        (commit_beside_the_last_part, "HEAD has commits above branch observe", "git rebase observe"),
        (leave_later_branches_behind, "branch elr must contain branch gate", "git branch -f elr gate"),
        (fork_a_branch, "branch observe must contain branch elr", "git rebase elr observe"),
        (delete_a_branch, "branch elr is missing", "git branch elr COMMIT"),
    ],
)
def test_branches_that_are_not_stacked_are_rejected_with_a_remedy(
    tree: Path, tmp_path: Path, spoil: Callable[[Path], None], fault: str, remedy: str
) -> None:
    commit_to(tree, "fixes", B, "class B { }\n", "Fix\n\nReason.")
    if spoil is fork_a_branch:
        commit_to(tree, "elr", "clients/src/main/java/D.java", "class D { }\n", "Elr\n\nReason.")
        git.git(tree, "branch", "--force", "gate", "elr", task="move")
        git.git(tree, "update-ref", "refs/heads/observe", "fixes", task="move")
        git.git(tree, "reset", "--hard", "--quiet", task="reset")
    commit_to(tree, "observe", C, "class C { }\n", "Observe\n\nReason.")
    if spoil is fork_a_branch:
        with pytest.raises(RackgateError) as caught:
            series.export(tree, tmp_path)
    else:
        series.export(tree, tmp_path)
        series.mark_saved(tree)
        spoil(tree)
        with pytest.raises(RackgateError) as caught:
            series.export(tree, tmp_path)
        assert series.unexported(tree) == "has commits that were not exported"
    assert fault in str(caught.value)
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_merge_commit_is_rejected(tree: Path, tmp_path: Path) -> None:
    commit(tree, B, "class B { }\n", "One\n\nReason.")
    git.git(tree, "checkout", "--quiet", "--detach", source_tree.BASELINE, task="detach")
    commit(tree, C, "class C { }\n", "Other\n\nReason.")
    git.git(tree, "merge", "--quiet", "observe", task="merge")
    git.git(tree, "checkout", "--quiet", "-B", "observe", task="move")
    with pytest.raises(RackgateError, match="a merge on top of published"):
        series.export(tree, tmp_path)


def test_two_commits_with_the_same_subject_are_rejected(tree: Path, tmp_path: Path) -> None:
    commit_to(tree, "fixes", B, "class B { }\n", "One\n\nReason.")
    commit_to(tree, "elr", C, "class C { }\n", "One\n\nReason.")
    with pytest.raises(RackgateError, match="subject 'One'"):
        series.export(tree, tmp_path)


def test_an_export_replaces_patches_outside_of_parts(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "0001-Old.patch").write_text(PATCH.format(subject="Old", reason="R."))
    (tmp_path / "series").write_text("0001-Old.patch\n")
    commit_to(tree, "gate", B, "class B { }\n", "Old\n\nReason.")
    assert series.export(tree, tmp_path) == ("gate/0001-Old.patch",)
    assert sorted(series_files(tmp_path)) == ["gate/0001-Old.patch", "series"]


def test_a_patch_that_does_not_apply_is_reported_with_its_file(tree: Path, tmp_path: Path) -> None:
    commit_to(tree, "gate", A, "class A {\n    int a = 2;\n}\n", "KIP-1290: Two\n\nReason.")
    commit_to(tree, "gate", A, "class A {\n    int a = 3;\n}\n", "KIP-1290: Three\n\nReason.")
    series.export(tree, tmp_path)
    fresh = copy_of(tree, tmp_path / "fresh")
    fault = rf"patch gate/0002-KIP-1290-Three.patch does not apply: {A}:1"
    with pytest.raises(RackgateError, match=fault) as caught:
        series.apply(fresh, [series.load(tmp_path)[1]])
    assert "\n" not in str(caught.value)
    assert not git.git(fresh, "status", "--porcelain", task="status"), "the failed patch left changes"


def write_series(folder: Path, *patches: tuple[str, str]) -> None:
    """Write a series of patches, given as name and trailers; the subject is the last part of the name."""
    for name, trailers in patches:
        (folder / name).parent.mkdir(exist_ok=True)
        subject = name.removesuffix(".patch").rpartition("-")[2]
        (folder / name).write_text(PATCH.format(subject=subject, reason=f"Reason.\n\n{trailers}"))
    (folder / "series").write_text("# why\n" + "".join(f"{name}\n" for name, _ in patches))


@pytest.fixture
def patches(tmp_path: Path) -> tuple[series.Patch, ...]:
    write_series(
        tmp_path,
        ("fixes/0001-one.patch", ""),
        ("fixes/0002-two.patch", "Opt-in: raft"),
        ("fixes/0003-three.patch", "Depends: 0001"),
        ("fixes/0004-four.patch", "Depends: two\nDepends: 0001, 3\nOpt-in: raft"),
        ("fixes/0005-five.patch", "Depends: none\nOpt-in: clients"),
        ("gate/0001-six.patch", ""),
        ("elr/0001-seven.patch", ""),
    )
    return series.load_all(tmp_path)


@pytest.mark.parametrize(
    ("selection", "label", "subjects"),
    [
        (Selection(), "", "one three six seven"),
        (Selection(frozenset({"raft"})), "with-raft", "one two three four six seven"),
        (Selection(frozenset({"raft", "clients"})), "with-clients-raft", "one two three four five six seven"),
        (Selection(last_part="fixes"), "fixes", "one three"),
        (Selection(frozenset({"clients"}), last_part="fixes"), "fixes-with-clients", "one three five"),
        (Selection(last_part="gate"), "gate", "one three six"),
        (Selection(last_part="observe"), "observe", "one three six seven"),
        (Selection(first=2), "2", "one three"),
        (Selection(first=0), "0", ""),
        (Selection(fix=4), "fix-0004", "one two three four"),
        (Selection(fix=5), "fix-0005", "five"),
    ],
)
def test_a_selection_chooses_patches_and_its_label(
    patches: tuple[series.Patch, ...], selection: Selection, label: str, subjects: str
) -> None:
    assert [patch.subject for patch in selection.choose(patches)] == subjects.split()
    assert selection.label == label


@pytest.mark.parametrize(
    ("selection", "fault"),
    [
        (Selection(frozenset({"rift"})), "no fix is opt-in as rift; the series has: clients, raft"),
        (Selection(last_part="gates"), "gates is not a part of the series"),
        (Selection(first=5), "--patches 5: the series has 4 patches"),
        (Selection(fix=6), "the series has no fix 0006"),
    ],
)
def test_invalid_selections_are_rejected(patches: tuple[series.Patch, ...], selection: Selection, fault: str) -> None:
    with pytest.raises(RackgateError, match=fault):
        selection.choose(patches)


def test_a_dependency_that_is_not_a_fix_is_an_error(tmp_path: Path) -> None:
    write_series(tmp_path, ("fixes/0001-one.patch", "Depends: another"), ("gate/0001-another.patch", ""))
    with pytest.raises(RackgateError, match=r"fixes/0001-one\.patch: .*'another'"):
        Selection(fix=1).choose(series.load_all(tmp_path))


def test_trailers_are_parsed_only_from_the_last_paragraph() -> None:
    assert series.split_trailers("Why: so\nand on.\n\nUpstream: none found\nDrop-when:") == (
        "Why: so\nand on.", (("Upstream", "none found"), ("Drop-when", "")),
    )  # fmt: skip
    assert series.split_trailers("Upstream: K\n\nLast.") == ("Upstream: K\n\nLast.", ())
    assert series.split_trailers("Signed-off-by: A <a@b>") == ("", (("Signed-off-by", "A <a@b>"),))


def test_added_lines_are_counted_by_hunk() -> None:
    text = """diff --git a/x/src/main/java/A.java b/x/src/main/java/A.java
--- a/x/src/main/java/A.java
+++ b/x/src/main/java/A.java
@@ -1,3 +1,4 @@
 a
--- b
+++ c
+diff --git a/x/src/test/java/A.java b/x/src/test/java/A.java

@@ -10 +11,2 @@ class A {
+d
 e
diff --git a/x/src/test/java/A.java b/x/src/test/java/A.java
new file mode 100644
--- /dev/null
+++ b/x/src/test/java/A.java
@@ -0,0 +1,2 @@
+a
+b
\\ No newline at end of file
diff --git a/test-common/src/main/java/T.java b/test-common/src/main/java/T.java
--- a/test-common/src/main/java/T.java
+++ b/test-common/src/main/java/T.java
@@ -1 +1 @@
-a
+b
"""
    patch = series.Patch(Path("p"), "gate/0001-a.patch", text, "s", "r", (), ())
    assert patch.added_lines() == (3, 3)


def test_the_series_of_the_repository_is_valid() -> None:
    assert series_lint.lint(paths.patch_folder()) == ()
    assert series.names(paths.patch_folder())


def test_the_patches_of_the_repository_are_valid() -> None:
    assert series_lint.lint_patches(series.load_all(paths.patch_folder())) == ()


@pytest.mark.parametrize(("text", "name"), [("1\n", "rackgate-1"), ("12", "rackgate-12")])
def test_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str) -> None:
    monkeypatch.setattr(series, "REVISION", tmp_path / "revision")
    (tmp_path / "revision").write_text(text)
    assert series.revision() == name


@pytest.mark.parametrize("text", ["", "0", "1.2", "rackgate-1", None])
def test_revision_must_be_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.setattr(series, "REVISION", tmp_path / "revision")
    if text is not None:
        (tmp_path / "revision").write_text(text)
    with pytest.raises(RackgateError, match="must be a number of at least 1"):
        series.revision()
