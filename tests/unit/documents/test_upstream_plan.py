"""Plan of the pull requests: kip/upstream.md names each patch once, after those that it needs, with a title."""

from __future__ import annotations

import re
from collections import Counter

from pyhooks.core import paths
from pyhooks.patchset import series

PATCHES = (*series.load_all(paths.patch_folder(paths.DEFAULT_KAFKA)), *series.load_checkout())
PAGE = (paths.REPO / "kip" / "upstream.md").read_text(encoding="utf-8")
PATCH = re.compile(r"`((?:fixes|gate|elr|observe|checkout)/\d{4})`")


def pull_requests() -> dict[str, tuple[str, str]]:
    """Return the title and the rest of the table row of each pull request, in order."""
    rows = re.findall(r"^\| ([BK]\d+) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    return {number: (title, rest) for number, title, rest in rows}


def short(name: str) -> str:
    """Return ``part/NNNN`` of a patch's file name."""
    return name.partition("-")[0]


def test_each_patch_is_in_exactly_one_pull_request() -> None:
    named = Counter(patch for _, rest in pull_requests().values() for patch in PATCH.findall(rest))
    assert named == Counter(short(patch.name) for patch in PATCHES)


def test_each_pull_request_has_a_ticket_and_a_title() -> None:
    for number, (title, _) in pull_requests().items():
        assert re.fullmatch(r"KAFKA-(XXXXX|20734|21129): [A-Z].{10,}", title), number


def test_fixes_follow_those_that_they_depend_on() -> None:
    place: dict[str, int] = {}
    for index, (_, rest) in enumerate(pull_requests().values()):
        place |= dict.fromkeys(PATCH.findall(rest), index)
    by_subject = {patch.subject: short(patch.name) for patch in PATCHES}
    dependencies = [(short(patch.name), by_subject[needed]) for patch in PATCHES for needed in patch.depends]
    assert dependencies
    for patch, needed in dependencies:
        assert place[needed] <= place[patch], patch


def test_the_feature_follows_the_series_with_the_production_level_last() -> None:
    planned = [patch for _, rest in pull_requests().values() for patch in PATCH.findall(rest)]
    for part in ("gate", "elr"):
        own = [patch for patch in planned if patch.startswith(part)]
        assert own == sorted(own)
    production = [short(patch.name) for patch in PATCHES if patch.subject.endswith("production")]
    assert planned[-1:] == production
