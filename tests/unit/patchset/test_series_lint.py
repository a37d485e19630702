"""The rules of ``rackgate patch check``, each on a small series that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from patch_files import PATCH
from pyhooks.core import paths
from pyhooks.patchset import git, recipe, series, series_lint, source_tree
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import cli

BOTH = "Upstream: none found\nDrop-when: a release has it"


def write(folder: Path, listing: str, **patches: str) -> None:
    """A series in ``folder``; patches are named by part and number, as ``gate_0001``."""
    (folder / "series").write_text(listing)
    for name, text in patches.items():
        path = folder / f"{name.replace('_', '/')}-a.patch"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def good(subject: str = "One") -> str:
    return PATCH.format(subject=subject, reason="R.")


def test_files_in_order_have_no_fault(tmp_path: Path) -> None:
    listing = "# why\nfixes/0002-a.patch\nfixes/0001-a.patch # order is free\nobserve/0001-a.patch\n"
    write(tmp_path, listing, fixes_0001=good("A"), fixes_0002=good("B"), observe_0001=good("C"))
    assert series_lint.lint(tmp_path) == ()


@pytest.mark.parametrize(
    ("listing", "patches", "fault"),
    [
        ("gate/0001-a.patch\ngate/0002-a.patch\n", {"gate_0001": good()}, "gate/0002-a.patch: listed in"),
        ("", {"gate_0001": good()}, "gate/0001-a.patch: not listed"),
        ("gate/0001-a.patch\ngate/0001-a.patch\n", {"gate_0001": good()}, "gate/0001-a.patch: listed twice"),
        ("gate/0001-a.patch\n", {"gate_0001": "hello\n"}, "not a patch"),
        ("gates/0001-a.patch\n", {"gates_0001": good()}, "PART/NNNN-Subject.patch"),
        ("gate/001-a.patch\n", {"gate_001": good()}, "PART/NNNN-Subject.patch"),
        (
            "elr/0001-a.patch\ngate/0001-a.patch\n",
            {"elr_0001": good("A"), "gate_0001": good("B")},
            "gate/0001-a.patch: listed after elr/0001-a.patch",
        ),
        (
            "fixes/0001-a.patch\ngate/0001-a.patch\n",
            {"fixes_0001": good(), "gate_0001": good()},
            "same subject as fixes/0001-a.patch",
        ),
        (
            "gate/0001-a.patch\ngate/0001-b-a.patch\n",
            {"gate_0001": good("A"), "gate_0001-b": good("B")},
            "same number as gate/0001-a.patch",
        ),
    ],
)
def test_each_fault_of_the_files_is_named(tmp_path: Path, listing: str, patches: dict[str, str], fault: str) -> None:
    write(tmp_path, listing, **patches)
    (found,) = series_lint.lint(tmp_path)
    assert fault in found


def test_a_flat_file_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "0001-a.patch").write_text(good())
    assert series_lint.lint(tmp_path) == ("0001-a.patch: not listed in series; list it or delete it",)


def patch(name: str = "gate/0001-a.patch", **changed: str) -> series.Patch:
    """A patch that breaks no rule, but for what is changed."""
    fields = {"subject": name, "reason": "Reason.", "trailers": BOTH, "text": "", **changed}
    _, trailers = series.split_trailers(fields["trailers"])
    return series.Patch(Path(name), name, fields["text"], fields["subject"], fields["reason"], trailers, ("f",))


def added(file: str, count: int) -> str:
    lines = "".join("+a\n" for _ in range(count))
    return f"diff --git a/{file} b/{file}\n--- /dev/null\n+++ b/{file}\n@@ -0,0 +1,{count} @@\n{lines}"


MAIN, TEST = "core/src/main/scala/A.scala", "core/src/test/scala/ATest.scala"


@pytest.mark.parametrize(
    "one",
    [
        patch(subject="S" * 70),
        patch(reason=f"{'w ' * 36}\n\n    {'code ' * 30}\n\t{'code ' * 30}"),
        patch(trailers=f"Upstream: none found (searched {'for long ' * 20})\nDrop-when: {'it is ' * 30}"),
        patch(trailers="Upstream: KAFKA-20521\nDrop-when: 4.5.0"),
        patch(trailers="Upstream: KAFKA-20521, KAFKA-1 (open)\nDrop-when: 4.5.0"),
        patch(text=added(MAIN, 400) + added(TEST, 5000) + added("test-common/src/main/java/T.java", 900)),
    ],
)
def test_a_patch_within_the_limits_has_no_fault(one: series.Patch) -> None:
    assert series_lint.lint_patches([one]) == ()


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (patch(subject="S" * 71), "the subject has 71 columns; shorten it to 70"),
        (patch(reason=""), "no text below the subject"),
        (patch(reason=f"Short.\n{'w' * 73}"), "over 72 columns"),
        (patch(reason=f"Short.\n  {'w' * 71}"), "over 72 columns"),
        (patch(trailers="Drop-when: 4.5.0"), "no Upstream: trailer"),
        (patch(trailers="Upstream:\nDrop-when: 4.5.0"), "an empty Upstream: trailer"),
        (patch(trailers="Upstream: unknown\nDrop-when: 4.5.0"), "Upstream: 'unknown' must be"),
        (patch(trailers="Upstream: none found"), "no Drop-when: trailer"),
        (patch(trailers="Upstream: none found\nDrop-when:"), "an empty Drop-when: trailer"),
        (patch(text=added(MAIN, 401)), "adds 401 lines"),
        (patch(trailers=f"{BOTH}\nDepends: none"), "Depends: is only for patches in fixes/"),
        (patch(trailers=f"{BOTH}\nOpt-in: raft"), "Opt-in: is only for patches in fixes/"),
        (patch("fixes/0001-a.patch", trailers=f"{BOTH}\nOpt-in: Raft"), "must be one name"),
        (patch("fixes/0001-a.patch", trailers=f"{BOTH}\nOpt-in: raft\nOpt-in: clients"), "must be one name"),
        (patch("fixes/0001-a.patch", trailers=f"{BOTH}\nDepends:"), "an empty Depends: trailer"),
        (patch("fixes/0001-a.patch", trailers=f"{BOTH}\nDepends: 0002"), "not the subject or number of a fix"),
    ],
)
def test_each_rule_of_a_patch_is_kept(one: series.Patch, fault: str) -> None:
    (found,) = series_lint.lint_patches([one])
    assert found.startswith(f"{one.name}: ")
    assert fault in found


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        ("", "Depends: 1", ""),
        ("", "Depends: fixes/0001-a.patch", ""),  # its subject
        ("Depends: 2", "", "fixes/0001-a.patch: depends on fixes/0002-a.patch, which does not come before it"),
        ("Opt-in: raft", "Opt-in: raft\nDepends: 1", ""),
        ("", "Opt-in: raft\nDepends: 1", ""),
        ("Opt-in: raft", "Depends: 1", "fixes/0002-a.patch: depends on fixes/0001-a.patch, which is opt-in as raft"),
        ("Opt-in: raft", "Opt-in: clients\nDepends: 1", "fixes/0001-a.patch, which is opt-in as raft"),
    ],
)
def test_dependencies_come_first_and_are_built_in(first: str, second: str, fault: str) -> None:
    fixes = [
        patch(f"fixes/000{number}-a.patch", trailers=f"{BOTH}\n{more}".strip())
        for number, more in ((1, first), (2, second))
    ]
    found = series_lint.lint_patches(fixes)
    assert len(found) == bool(fault)
    assert fault in "".join(found)


LINES = "".join(f"line {number}\n" for number in range(30))
A = "clients/src/main/java/A.java"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Laid-out sources of one file, where ``lint_application`` finds them below ``tmp_path``."""
    tree = Workspace.of(recipe.load(), tmp_path).root / "sources" / "key"
    (tree / A).parent.mkdir(parents=True)
    (tree / A).write_text(LINES)
    git.git(tree, "init", "--quiet", "--initial-branch=rackgate", task="init")
    git.commit_all(tree, "baseline")
    git.git(tree, "tag", source_tree.BASELINE, task="tag")
    return tree


@pytest.mark.parametrize(
    ("patches", "faults"),
    [
        ([("fixes", "line 3", ""), ("fixes", "line 20", ""), ("gate", "line 10", "")], []),
        # each change is in the context of the one before
        ([("fixes", "line 3", ""), ("fixes", "line 4", "Depends: 1"), ("gate", "line 5", "")], []),
        (
            [("fixes", "line 3", ""), ("fixes", "line 4", "")],
            ["fixes/0002-change.patch does not apply on published sources with the fixes that fixes/0002-change.patch"],
        ),
        ([("fixes", "line 3", "Opt-in: raft"), ("gate", "line 20", "")], []),
        ([("fixes", "line 3", "Opt-in: raft"), ("gate", "line 4", "")], ["gate/0001-change.patch does not apply: "]),
        (
            [("fixes", "line 3", "Opt-in: raft"), ("fixes", "line 20", "Opt-in: clients"), ("gate", "line 4", "")],
            [
                "gate/0001-change.patch does not apply: ",
                "gate/0001-change.patch does not apply with the opt-in fixes clients: ",
            ],
        ),
    ],
)
def test_every_combination_must_apply(
    sources: Path, tmp_path: Path, patches: list[tuple[str, str, str]], faults: list[str]
) -> None:
    folder = tmp_path / "series"
    folder.mkdir()
    tree = tmp_path / "tree"
    source_tree.clone(sources, tree)
    series.apply_parts(tree, ())
    for number, (part, line, trailers) in enumerate(patches, 1):
        text = (tree / A).read_text().replace(f"{line}\n", f"{line} changed by {number}\n")
        (tree / A).write_text(text)
        message = f"change\n\n{number}.\n\n{trailers}".strip()
        git.git(tree, "commit", "--quiet", "--all", "--message", message, task="commit")
        text = git.git(tree, "format-patch", "-1", "--stdout", "--no-signature", task="export")
        count = sum(other == part for other, _, _ in patches[:number])
        name = f"{part}/{count:04}-change.patch"
        (folder / part).mkdir(exist_ok=True)
        (folder / name).write_text(text + "\n")
        with (folder / "series").open("a") as listing:
            listing.write(f"{name}\n")
    found = series_lint.lint_application(recipe.load(), folder, tmp_path)
    assert found is not None
    assert len(found) == len(faults)
    for reported, fault in zip(found, faults, strict=True):
        assert fault in reported
        assert A in reported
        assert "\n" not in reported


@pytest.mark.usefixtures("sources")
def test_a_file_of_no_module_is_refused(tmp_path: Path) -> None:
    write(
        tmp_path, "gate/0001-a.patch\n", gate_0001=PATCH.format(subject="One", reason="R.").partition("diff --git")[0]
    )
    with (tmp_path / "gate/0001-a.patch").open("a") as file:
        file.write(added("streams/src/main/java/A.java", 1).replace("\n---", "\nnew file mode 100644\n---", 1))
    found = series_lint.lint_application(recipe.load(), tmp_path, tmp_path)
    assert found is not None
    assert "gate/0001-a.patch changes streams/src/main/java/A.java" in found[0]


def test_without_sources_no_patch_is_applied(tmp_path: Path) -> None:
    write(tmp_path, "gate/0001-a.patch\n", gate_0001=good())
    assert series_lint.lint_application(recipe.load(), tmp_path, tmp_path) is None


@pytest.mark.parametrize(
    ("subject", "listing", "lines"),
    [
        ("S" * 71, "gate/0001-a.patch\n", ["error: gate/0001-a.patch: the subject has 71 columns; shorten it to 70"]),
        # patches are not judged before all can be read
        (
            "S" * 71,
            "gate/0002-a.patch\n",
            ["error: gate/0001-a.patch: not listed", "error: gate/0002-a.patch: listed in"],
        ),
        ("One", "gate/0001-a.patch\n", ["1 patches are in order, NOT CHECKED"]),
    ],
)
def test_the_command_prints_a_line_for_each_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: str, listing: str, lines: list[str]
) -> None:
    (tmp_path / "kafka.toml").write_bytes((paths.PATCH / "kafka.toml").read_bytes())
    write(tmp_path, listing, gate_0001=PATCH.format(subject=subject, reason=f"R.\n\n{BOTH}"))
    monkeypatch.setattr(paths, "PATCH", tmp_path)
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    done = CliRunner().invoke(cli.patch_app, ["check"])
    assert done.exit_code == (lines[0].startswith("error"))
    reported = done.output.splitlines()
    assert len(reported) == len(lines)
    assert all(one.startswith(line) for one, line in zip(reported, lines, strict=True)), reported
