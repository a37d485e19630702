"""Rules of ``rackgate patch check``: a small series violates each."""

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


def write_series(folder: Path, listing: str, **patches: str) -> None:
    """Write a series; patches are named by part and number, such as ``gate_0001``."""
    (folder / "series").write_text(listing)
    for name, text in patches.items():
        path = folder / f"{name.replace('_', '/')}-a.patch"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def valid_patch(subject: str = "One") -> str:
    return PATCH.format(subject=subject, reason="R.")


def test_valid_files_have_no_fault(tmp_path: Path) -> None:
    listing = "# why\nfixes/0002-a.patch\nfixes/0001-a.patch # order is free\nobserve/0001-a.patch\n"
    write_series(
        tmp_path, listing, fixes_0001=valid_patch("A"), fixes_0002=valid_patch("B"), observe_0001=valid_patch("C")
    )
    assert series_lint.lint(tmp_path) == ()


@pytest.mark.parametrize(
    ("listing", "patches", "fault"),
    [
        ("gate/0001-a.patch\ngate/0002-a.patch\n", {"gate_0001": valid_patch()}, "gate/0002-a.patch: listed in"),
        ("", {"gate_0001": valid_patch()}, "gate/0001-a.patch: not listed"),
        ("gate/0001-a.patch\ngate/0001-a.patch\n", {"gate_0001": valid_patch()}, "gate/0001-a.patch: listed twice"),
        ("gate/0001-a.patch\n", {"gate_0001": "hello\n"}, "not a patch"),
        ("gates/0001-a.patch\n", {"gates_0001": valid_patch()}, "PART/NNNN-Subject.patch"),
        ("gate/001-a.patch\n", {"gate_001": valid_patch()}, "PART/NNNN-Subject.patch"),
        (
            "elr/0001-a.patch\ngate/0001-a.patch\n",
            {"elr_0001": valid_patch("A"), "gate_0001": valid_patch("B")},
            "gate/0001-a.patch: listed after elr/0001-a.patch",
        ),
        (
            "fixes/0001-a.patch\ngate/0001-a.patch\n",
            {"fixes_0001": valid_patch(), "gate_0001": valid_patch()},
            "same subject as fixes/0001-a.patch",
        ),
        (
            "gate/0001-a.patch\ngate/0001-b-a.patch\n",
            {"gate_0001": valid_patch("A"), "gate_0001-b": valid_patch("B")},
            "same number as gate/0001-a.patch",
        ),
    ],
)
def test_each_fault_of_the_files_is_reported(tmp_path: Path, listing: str, patches: dict[str, str], fault: str) -> None:
    write_series(tmp_path, listing, **patches)
    (reported,) = series_lint.lint(tmp_path)
    assert fault in reported


def test_a_patch_file_outside_of_parts_is_reported(tmp_path: Path) -> None:
    (tmp_path / "0001-a.patch").write_text(valid_patch())
    assert series_lint.lint(tmp_path) == ("0001-a.patch: not listed in series; list it or delete it",)


def patch(name: str = "gate/0001-a.patch", **changed: str) -> series.Patch:
    """Return a patch that violates no rule, with these fields changed."""
    fields = {"subject": name, "reason": "Reason.", "trailers": BOTH, "text": "", **changed}
    _, trailers = series.split_trailers(fields["trailers"])
    return series.Patch(Path(name), name, fields["text"], fields["subject"], fields["reason"], trailers, ("f",))


def added_lines(file: str, count: int) -> str:
    """Return a diff that adds this number of lines to a file."""
    lines = "".join("+a\n" for _ in range(count))
    return f"diff --git a/{file} b/{file}\n--- /dev/null\n+++ b/{file}\n@@ -0,0 +1,{count} @@\n{lines}"


MAIN, TEST = "core/src/main/scala/A.scala", "core/src/test/scala/ATest.scala"


@pytest.mark.parametrize(
    "checked",
    [
        patch(subject="S" * 70),
        patch(reason=f"{'w ' * 36}\n\n    {'code ' * 30}\n\t{'code ' * 30}"),
        patch(trailers=f"Upstream: none found (searched {'for long ' * 20})\nDrop-when: {'it is ' * 30}"),
        patch(trailers="Upstream: KAFKA-20521\nDrop-when: 4.5.0"),
        patch(trailers="Upstream: KAFKA-20521, KAFKA-1 (open)\nDrop-when: 4.5.0"),
        patch(
            text=added_lines(MAIN, 400) + added_lines(TEST, 5000) + added_lines("test-common/src/main/java/T.java", 900)
        ),
    ],
)
def test_a_patch_within_the_limits_has_no_fault(checked: series.Patch) -> None:
    assert series_lint.lint_patches([checked]) == ()


@pytest.mark.parametrize(
    ("checked", "fault"),
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
        (patch(text=added_lines(MAIN, 401)), "adds 401 lines"),
        (patch(trailers=f"{BOTH}\nDepends: none"), "Depends: is only for patches in fixes/"),
        (patch(trailers=f"{BOTH}\nOpt-in: raft"), "Opt-in: is only for patches in fixes/"),
        (patch("fixes/0001-a.patch", trailers=f"{BOTH}\nOpt-in: Raft"), "must be one name"),
        (patch("fixes/0001-a.patch", trailers=f"{BOTH}\nOpt-in: raft\nOpt-in: clients"), "must be one name"),
        (patch("fixes/0001-a.patch", trailers=f"{BOTH}\nDepends:"), "an empty Depends: trailer"),
        (patch("fixes/0001-a.patch", trailers=f"{BOTH}\nDepends: 0002"), "not the subject or number of a fix"),
    ],
)
def test_each_violated_rule_of_a_patch_is_reported(checked: series.Patch, fault: str) -> None:
    (reported,) = series_lint.lint_patches([checked])
    assert reported.startswith(f"{checked.name}: ")
    assert fault in reported


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
def test_dependencies_must_come_first_and_be_built_with_the_fix(first: str, second: str, fault: str) -> None:
    fixes = [
        patch(f"fixes/000{number}-a.patch", trailers=f"{BOTH}\n{trailer}".strip())
        for number, trailer in ((1, first), (2, second))
    ]
    faults = series_lint.lint_patches(fixes)
    assert len(faults) == bool(fault)
    assert fault in "".join(faults)


LINES = "".join(f"line {number}\n" for number in range(30))
A = "clients/src/main/java/A.java"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Create a source tree of one file at the place below ``tmp_path`` where ``lint_application`` expects it."""
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
        # Each change is in the context of the previous one.
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
def test_every_combination_of_patches_must_apply(
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
    messages = series_lint.lint_application(recipe.load(), folder, tmp_path)
    assert messages is not None
    assert len(messages) == len(faults)
    for reported, fault in zip(messages, faults, strict=True):
        assert fault in reported
        assert A in reported
        assert "\n" not in reported


@pytest.mark.usefixtures("sources")
def test_a_changed_file_outside_of_all_modules_is_reported(tmp_path: Path) -> None:
    write_series(
        tmp_path, "gate/0001-a.patch\n", gate_0001=PATCH.format(subject="One", reason="R.").partition("diff --git")[0]
    )
    with (tmp_path / "gate/0001-a.patch").open("a") as file:
        file.write(added_lines("streams/src/main/java/A.java", 1).replace("\n---", "\nnew file mode 100644\n---", 1))
    messages = series_lint.lint_application(recipe.load(), tmp_path, tmp_path)
    assert messages is not None
    assert "gate/0001-a.patch changes streams/src/main/java/A.java" in messages[0]


def test_without_sources_no_patch_is_applied(tmp_path: Path) -> None:
    write_series(tmp_path, "gate/0001-a.patch\n", gate_0001=valid_patch())
    assert series_lint.lint_application(recipe.load(), tmp_path, tmp_path) is None


@pytest.mark.parametrize(
    ("subject", "listing", "expected_lines"),
    [
        ("S" * 71, "gate/0001-a.patch\n", ["error: gate/0001-a.patch: the subject has 71 columns; shorten it to 70"]),
        # Patches are checked only once all can be read.
        (
            "S" * 71,
            "gate/0002-a.patch\n",
            ["error: gate/0001-a.patch: not listed", "error: gate/0002-a.patch: listed in"],
        ),
        ("One", "gate/0001-a.patch\n", ["1 patches are in order, NOT CHECKED"]),
    ],
)
def test_the_command_prints_a_line_for_each_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: str, listing: str, expected_lines: list[str]
) -> None:
    (tmp_path / "kafka.toml").write_bytes((paths.patch_folder() / "kafka.toml").read_bytes())
    write_series(tmp_path, listing, gate_0001=PATCH.format(subject=subject, reason=f"R.\n\n{BOTH}"))
    monkeypatch.setattr(paths, "patch_folder", lambda: tmp_path)
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    done = CliRunner().invoke(cli.patch_app, ["check"])
    assert done.exit_code == (expected_lines[0].startswith("error"))
    reported = done.output.splitlines()
    assert len(reported) == len(expected_lines)
    assert all(
        output_line.startswith(expected) for output_line, expected in zip(reported, expected_lines, strict=True)
    ), reported


def test_patches_for_a_checkout_follow_the_rules() -> None:
    assert series_lint.lint_checkout(series.load_checkout()) == ()


def test_a_patch_for_a_checkout_that_changes_published_sources_is_reported() -> None:
    faults = series_lint.lint_checkout([patch("checkout/0001-a.patch", reason="")])
    assert faults == (
        "checkout/0001-a.patch: the message has no text below the subject; give the reason",
        "checkout/0001-a.patch: changes f, which is not below tests/; move it to a part of the series",
    )
