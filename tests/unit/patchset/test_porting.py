"""Port of a series to other sources: merges, conflicts, dropped patches and the comparison of the two series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import git, porting, recipe, series, source_tree
from pyhooks.patchset.porting import CHANGED, DROPPED, Difference
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.series import PARTS
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import cli

OLD, NEW = "1.2.0", "1.1.0"
A, B = "clients/src/main/java/A.java", "clients/src/main/java/B.java"
LINES = [f"    int field{number} = 0;" for number in range(40)]
TRAILERS = "\n\nUpstream: none found\nDrop-when: never"


def java(*changes: tuple[int, str]) -> str:
    lines = list(LINES)
    for number, text in changes:
        lines[number] = f"    {text}"
    return "\n".join(["class A {", *lines, "}", ""])


# Sources of each version. The new one has the first fix, and other text near the patch of the gate.
SOURCES = {OLD: java(), NEW: java((1, "int fixed = 1;"), (20, "long field20 = 0;"))}
FIX = "MINOR: Fix it"
PATCHES = (
    ("fixes", A, java((1, "int fixed = 1;")), FIX),
    ("gate", B, "class B { }\n", "KIP-1290: Add B"),
    ("gate", A, java((1, "int fixed = 1;"), (20, "int racks = 0;")), "KIP-1290: Add racks"),
    ("observe", A, java((1, "int fixed = 1;"), (20, "int racks = 0;"), (38, "int seen = 0;")), "KIP-1290: Observe"),
)


def baseline(folder: Path, version: str) -> Path:
    (folder / A).parent.mkdir(parents=True)
    (folder / A).write_text(SOURCES[version])
    git.git(folder, "init", "--quiet", "--initial-branch=rackgate", task="init")
    git.commit_all(folder, version)
    git.git(folder, "tag", source_tree.BASELINE, task="tag")
    return folder


def write_old_series(work: Path, folder: Path) -> None:
    tree = baseline(work, OLD)
    for part in PARTS:
        for of, file, text, subject in PATCHES:
            if of == part:
                (tree / file).write_text(text)
                git.git(tree, "add", "--all", task="add")
                git.git(tree, "commit", "--quiet", "--message", f"{subject}\n\nReason.{TRAILERS}", task="commit")
        git.git(tree, "branch", part, task="branch")
    git.git(tree, "checkout", "--quiet", "observe", task="check out")
    series.export(tree, folder)


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Recipe, Recipe]:
    """Recipes of two versions; the old one has a series."""

    def sources(plan: Recipe, _space: Workspace, work: Path) -> Path:
        return baseline(work / "tree", plan.version)

    monkeypatch.setattr(porting, "_sources", sources)
    both = []
    for version in (OLD, NEW):
        folder = tmp_path / "patch" / version
        folder.mkdir(parents=True)
        both.append(replace(recipe.load(), path=folder / "kafka.toml", version=version))
    write_old_series(tmp_path / "work", both[0].path.parent)
    return both[0], both[1]


@pytest.fixture
def port(plans: tuple[Recipe, Recipe], tmp_path: Path) -> Callable[..., porting.Ported]:
    return lambda **options: porting.port(*plans, base=tmp_path / "build", quiet=True, **options)


def tree_of(plans: tuple[Recipe, Recipe], tmp_path: Path) -> Path:
    return Workspace.of(plans[1], tmp_path / "build").tree


def resolve(tree: Path) -> None:
    (tree / A).write_text(java((1, "int fixed = 1;"), (20, "long racks = 0;")))
    git.git(tree, "add", A, task="add")


def test_a_port_stops_at_a_conflict_and_continues(
    plans: tuple[Recipe, Recipe], port: Callable[..., porting.Ported], tmp_path: Path
) -> None:
    for _ in range(2):
        with pytest.raises(RackgateError, match=rf"Add racks' conflicts in {A}.*run the same command again") as stopped:
            port()
        assert stopped.value.exit_status == 1
    tree, folder = tree_of(plans, tmp_path), plans[1].path.parent
    assert "|||||||" in (tree / A).read_text(), "a conflict shows the text of both versions and of the patch"
    assert not (folder / "series").exists()
    git.git(tree, "add", A, task="add")
    with pytest.raises(RackgateError, match="conflict markers"):
        port()
    resolve(tree)
    result = port()

    # The names of the files do not change, although the new version has the only fix.
    names = (
        "gate/0001-KIP-1290-Add-B.patch",
        "gate/0002-KIP-1290-Add-racks.patch",
        "observe/0001-KIP-1290-Observe.patch",
    )
    assert result.names == series.names(folder) == names
    fix = "fixes/0001-MINOR-Fix-it.patch"
    assert result.differences == (Difference(fix, DROPPED, ""), Difference(names[1], CHANGED, ""))
    assert result.unexplained == (fix, names[1])
    assert porting.counts(result.names, result.differences) == {"identical": 2, "changed": 1, "dropped": 1}
    listed = (folder / porting.RANGE_DIFF).read_text().splitlines()
    assert listed[1:] == [f"< {fix}", f"= {names[0]}", f"! {names[1]}", f"= {names[2]}"]
    assert series.unexported(tree) == ""
    assert "long racks" in (tree / A).read_text()
    assert [patch.trailers for patch in series.load_all(folder)][1] == (
        ("Upstream", "none found"),
        ("Drop-when", "never"),
    )


def test_reasons_are_kept_when_the_comparison_is_renewed(
    plans: tuple[Recipe, Recipe], port: Callable[..., porting.Ported], tmp_path: Path
) -> None:
    with pytest.raises(RackgateError, match="conflicts"):
        port()
    resolve(tree_of(plans, tmp_path))
    found = port().differences
    folder = plans[1].path.parent
    reasons = tuple(replace(one, reason=f'"{number}" \\ reason') for number, one in enumerate(found))
    porting.write_differences(folder, OLD, reasons)
    assert porting.read_differences(folder) == reasons
    assert porting.ported_from(folder) == OLD
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = porting.compare(*plans, base=tmp_path / "build", quiet=True)
    assert result.differences == reasons
    assert result.unexplained == ()
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_conflicting_patch_can_be_left_out(
    plans: tuple[Recipe, Recipe], port: Callable[..., porting.Ported], tmp_path: Path
) -> None:
    with pytest.raises(RackgateError, match="conflicts"):
        port()
    git.git(tree_of(plans, tmp_path), "cherry-pick", "--skip", task="skip")
    result = port()
    assert [one.patch for one in result.differences if one.state == DROPPED] == [
        "fixes/0001-MINOR-Fix-it.patch", "gate/0002-KIP-1290-Add-racks.patch",
    ]  # fmt: skip


def test_an_existing_series_is_not_replaced(
    plans: tuple[Recipe, Recipe], port: Callable[..., porting.Ported], tmp_path: Path
) -> None:
    with pytest.raises(RackgateError, match="conflicts"):
        port()
    resolve(tree_of(plans, tmp_path))
    port()
    with pytest.raises(RackgateError, match=r"has a series; --force"):
        port()
    with pytest.raises(RackgateError, match="conflicts"):
        port(force=True)


def test_changes_of_context_alone_are_no_change(plans: tuple[Recipe, Recipe]) -> None:
    patches = series.load_all(plans[0].path.parent)
    moved = [replace(patch, text=patch.text.replace("@@ -19,7 +19,7 @@", "@@ -9,7 +9,7 @@")) for patch in patches]
    assert set(porting.states(patches, moved).values()) == {""}
    reworded = [replace(patch, reason="Other reason.") for patch in patches]
    assert set(porting.states(patches, reworded).values()) == {CHANGED}


def test_a_line_of_another_form_is_an_error() -> None:
    with pytest.raises(RackgateError, match="printed 'x'"):
        porting.short_range_diff("x", (), ())


def test_the_command_names_a_version_without_a_recipe() -> None:
    done = CliRunner().invoke(cli.patch_app, ["port", "0.1", "0.2"])
    assert isinstance(done.exception, RackgateError)
    assert "patch/0.1/kafka.toml is missing" in str(done.exception)
