"""Bugs found in Kafka: each entry of kip/found.md is complete, listed, and names patches and tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from pyhooks.core import paths
from pyhooks.patchset import series

PATCHES = series.load_all(paths.patch_folder(paths.DEFAULT_KAFKA))
FIXES = {patch.name.partition("-")[0]: patch for patch in PATCHES if patch.part == series.FIXES}
FIELDS = ["Symptom", "Cause", "Reproduction", "Patch"]
# Labels of what a fix changes beyond the bug, after the fields.
EFFECTS = {
    "Records",
    "Records and responses",
    "Responses",
    "Liveness",
    "Logs",
    "Cost",
    "Stock nodes",
    "Not detected",
}
PAGE = (paths.REPO / "kip" / "found.md").read_text(encoding="utf-8")


def bugs() -> dict[str, str]:
    """Return the text of each bug by its heading."""
    text, _, _ = PAGE.partition("\n## Surprises that are not bugs\n")
    _, _, text = text.partition("\n## Acknowledged records can be lost\n")
    found: dict[str, str] = {}
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        found[heading] = body
    return found


def entries(bug: str) -> dict[str, str]:
    """Return the text of each bullet of a bug by its label, in order."""
    parts = re.split(r"^- \*\*(.+?):\*\*", bugs()[bug].partition("\n## ")[0], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def contents() -> dict[str, tuple[str, str]]:
    """Return the patch of each bug in the contents, and what it is needed for."""
    text = PAGE.partition("\n## Contents\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \[(.+?)\]\(#[^)]+\) \|(.*)\|(.*)\|$", text, re.MULTILINE)
    return {bug: (patch.strip(), needed.strip()) for bug, patch, needed in rows}


def named_fixes(text: str) -> list[str]:
    """Return ``fixes/NNNN`` of each fix that a text names."""
    return re.findall(r"`(fixes/\d{4})`", text)


def fixes_of(bug: str) -> list[str]:
    """Return ``fixes/NNNN`` of each fix that is the patch of a bug."""
    return named_fixes(entries(bug)["Patch"])


FIXED = [bug for bug in bugs() if fixes_of(bug)]


def named_tests(text: str) -> set[str]:
    """Return ``Class.method`` of each test method that a text names."""
    return set(re.findall(r"`([A-Z]\w+Test\.(?:test|should)\w+)`", text))


def patched_tests(patches: Iterable[series.Patch]) -> set[str]:
    """Return ``Class.method`` of each test method in the patches."""
    found: set[str] = set()
    for patch in patches:
        test_class = ""
        for line in patch.text.splitlines():
            if line.startswith("+++ b/"):
                test_class = line.rpartition("/")[2].partition(".")[0]
            elif method := re.match(r"\+\s.*\b(?:void|def) ((?:test|should)\w+)", line):
                found.add(f"{test_class}.{method[1]}")
    return found


def test_the_contents_list_every_bug_in_order() -> None:
    assert list(contents()) == [*bugs(), "Surprises that are not bugs"]


@pytest.mark.parametrize("bug", bugs())
def test_every_bug_has_all_fields(bug: str) -> None:
    labels = re.findall(r"^- \*\*(.+?):\*\*", bugs()[bug], re.MULTILINE)
    assert labels[:4] == FIELDS
    assert len(set(labels)) == len(labels)
    assert set(labels[4:]) <= (EFFECTS if fixes_of(bug) else set())


def test_the_named_tests_are_in_the_patches() -> None:
    named = named_tests(PAGE)
    assert len(named) >= 15
    assert named - patched_tests(PATCHES) == set()


@pytest.mark.parametrize("bug", FIXED)
def test_the_tests_of_a_fixed_bug_are_in_its_fixes(bug: str) -> None:
    named = named_tests(entries(bug)["Reproduction"])
    assert named
    assert named - patched_tests(FIXES[fix] for fix in fixes_of(bug)) == set()


def test_every_fix_is_the_patch_of_a_bug() -> None:
    assert sorted(fix for bug in FIXED for fix in fixes_of(bug)) == sorted(FIXES)


@pytest.mark.parametrize("bug", bugs())
def test_the_contents_name_the_patch_and_what_it_is_needed_for(bug: str) -> None:
    patch, needed = contents()[bug]
    fixes = fixes_of(bug)
    assert named_fixes(patch) == fixes
    assert (patch == "no") == entries(bug)["Patch"].strip().startswith("none.")
    assert bool(needed) == bool(fixes)
    for name in {FIXES[fix].opt_in for fix in fixes}:
        if name:
            assert needed == f"opt-in `{name}`"
            assert f"`--with {name}`" in entries(bug)["Patch"]
        else:
            assert needed.startswith(("promise", "transactions", "availability", "logs"))
    for dependent in named_fixes(needed):
        assert {FIXES[fix].subject for fix in fixes} <= set(FIXES[dependent].depends)


def test_the_plan_of_pull_requests_links_each_fix_to_its_bug() -> None:
    plan = (paths.REPO / "kip" / "upstream.md").read_text(encoding="utf-8")
    linked = re.findall(r"\[`(fixes/\d{4})`\]\(found\.md#([\w-]+)\)", plan)
    anchors = {bug: re.sub(r"[^\w\- ]", "", bug.lower()).replace(" ", "-") for bug in bugs()}
    assert sorted(linked) == sorted((fix, anchors[bug]) for bug in FIXED for fix in fixes_of(bug))
