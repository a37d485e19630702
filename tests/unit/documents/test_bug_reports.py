"""Bugs found in Kafka: each entry of kip/found.md is complete, listed, and names tests that the patches contain."""

from __future__ import annotations

import re

import pytest

from pyhooks.core import paths

SERIES = paths.patch_folder(paths.DEFAULT_KAFKA)
FIELDS = ("Symptom", "Cause", "Reproduction", "Patch")
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


def patched_tests() -> set[str]:
    """Return ``Class.method`` of each test method in the patches."""
    found: set[str] = set()
    for path in SERIES.glob("*/*.patch"):
        test_class = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("+++ b/"):
                test_class = line.rpartition("/")[2].partition(".")[0]
            elif method := re.match(r"\+\s.*\b(?:void|def) ((?:test|should)\w+)", line):
                found.add(f"{test_class}.{method[1]}")
    return found


def test_the_contents_list_every_bug_in_order() -> None:
    contents = PAGE.partition("\n## Contents\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| \[(.+?)\]\(#", contents, re.MULTILINE)
    assert listed == [*bugs(), "Surprises that are not bugs"]


@pytest.mark.parametrize("bug", bugs())
def test_every_bug_has_all_fields(bug: str) -> None:
    labels = re.findall(r"^- \*\*(\w+):\*\*", bugs()[bug], re.MULTILINE)
    assert [label for label in labels if label != "Version"] == list(FIELDS)


def test_the_named_tests_are_in_the_patches() -> None:
    named = set(re.findall(r"`([A-Z]\w+Test\.(?:test|should)\w+)`", PAGE))
    assert len(named) >= 15
    assert named - patched_tests() == set()


def test_every_fix_is_the_patch_of_a_bug() -> None:
    linked = set(re.findall(r"fixes\.md#([\w-]+)", PAGE))
    headings = re.findall(r"^### (.+)$", (paths.REPO / "kip" / "fixes.md").read_text(encoding="utf-8"), re.MULTILINE)
    expected = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert expected - linked == set()
