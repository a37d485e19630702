"""``rackgate patch check``: lint the files of the series, its commit messages, and whether the patches apply."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.series import (
    CHECKOUT_FILES,
    DEFAULT,
    FIXES,
    PARTS,
    Patch,
    Selection,
    Trial,
    find_fix,
    load_all,
    names,
    opt_ins,
    parse,
    with_dependencies,
)
from pyhooks.patchset.workspace import Workspace, touched_modules

SUBJECT_COLUMNS = 70
BODY_COLUMNS = 72
MAIN_LINES = 400
_UPSTREAM = re.compile(r"(KAFKA-\d+(, KAFKA-\d+)*|none found)( \(.+\))?")
_OPT_IN = re.compile(r"[a-z][a-z0-9]*")
# Indented text is code, a log or a table: the column limit does not apply.
_INDENTED = ("    ", "\t")


def lint(folder: Path) -> tuple[str, ...]:
    """Return faults in the files of the series: listing, names, order and unreadable patches."""
    faults: list[str] = []
    listed = names(folder)
    present = {str(path.relative_to(folder)) for path in folder.rglob("*.patch")}
    faults += [f"{name}: listed twice in series" for name in sorted({n for n in listed if listed.count(n) > 1})]
    faults += [f"{name}: not listed in series; list it or delete it" for name in sorted(present - set(listed))]
    subjects: dict[str, str] = {}
    numbers: dict[tuple[str, int], str] = {}
    last: Patch | None = None
    for name in dict.fromkeys(listed):
        try:
            patch = parse(folder, name)
        except RackgateError as error:
            faults.append(str(error))
            continue
        if last and PARTS.index(patch.part) < PARTS.index(last.part):
            faults.append(f"{name}: listed after {last.name}; the parts come in the order {', '.join(PARTS)}")
        last = patch
        other = subjects.setdefault(patch.subject, name)
        if other != name:
            faults.append(f"{name}: same subject as {other}; rename one")
        other = numbers.setdefault((patch.part, patch.number), name)
        if other != name:
            faults.append(f"{name}: same number as {other}; `rackgate patch export --renumber` renumbers them")
    return tuple(faults)


def lint_patches(patches: Sequence[Patch]) -> tuple[str, ...]:
    """Return faults of the patches of a whole series: subject, text, trailers and size."""
    return tuple(
        f"{patch.name}: {fault}" for patch in patches for fault in (*_message(patch), *_trailers(patch, patches))
    )


def lint_checkout(patches: Sequence[Patch]) -> tuple[str, ...]:
    """Return faults of the patches that apply only to a checkout: as for the series, and files that it can change."""
    published = tuple(
        f"{patch.name}: changes {file}, which is not below {CHECKOUT_FILES}; move it to a part of the series"
        for patch in patches
        for file in patch.files
        if not file.startswith(CHECKOUT_FILES)
    )
    return (*lint_patches(patches), *published)


def _message(patch: Patch) -> Iterator[str]:
    if len(patch.subject) > SUBJECT_COLUMNS:
        yield f"the subject has {len(patch.subject)} columns; shorten it to {SUBJECT_COLUMNS}"
    if not patch.reason:
        yield "the message has no text below the subject; give the reason"
    lines = [line for line in patch.reason.split("\n") if len(line) > BODY_COLUMNS and not line.startswith(_INDENTED)]
    if lines:
        more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
        yield f"the line {lines[0][:30] + '…'!r}{more} has over {BODY_COLUMNS} columns; wrap the text"
    main, _ = patch.added_lines()
    if main > MAIN_LINES:
        yield f"adds {main} lines to Kafka's main code; split it into patches of at most {MAIN_LINES}"


def _trailers(patch: Patch, patches: Sequence[Patch]) -> Iterator[str]:
    for key, example in (("Upstream", "KAFKA-12345` or `Upstream: none found"), ("Drop-when", "CONDITION")):
        values = patch.values(key)
        if len(values) != 1 or not values[0]:
            count = "an empty" if len(values) == 1 else len(values) or "no"
            yield f"has {count} {key}: trailer, must have one with a value: `{key}: {example}`"
        elif key == "Upstream" and not _UPSTREAM.fullmatch(values[0]):
            yield f"Upstream: {values[0]!r} must be `KAFKA-12345` or `none found`, with remarks in parentheses"
    if patch.part != FIXES:
        for key in ("Depends", "Opt-in"):
            if patch.values(key):
                yield f"{key}: is only for patches in {FIXES}/; remove the trailer"
        return
    opt_in_names = patch.values("Opt-in")
    if len(opt_in_names) > 1 or any(not _OPT_IN.fullmatch(mark) for mark in opt_in_names):
        yield f"Opt-in: {', '.join(opt_in_names)!r} must be one name of lower-case letters and digits"
    if "" in patch.values("Depends"):
        yield "has an empty Depends: trailer; name a fix, or remove it"
    for text in filter(None, patch.depends):
        other = find_fix(patches, text)
        if other is None:
            yield f"depends on {text!r}, which is not the subject or number of a fix; correct it"
        elif patches.index(other) >= patches.index(patch):
            yield f"depends on {other.name}, which does not come before it; move it up"
        elif other.opt_in not in {"", patch.opt_in}:
            yield f"depends on {other.name}, which is opt-in as {other.opt_in}; give it the same Opt-in: trailer"


def lint_application(plan: Recipe, folder: Path, base: Path | None = None) -> tuple[str, ...] | None:
    """Return faults found when applying the patches, in each combination that can be built.

    The combinations are: the default series, the series with each opt-in name, the series with all of them, and each
    fix alone on the published sources with the fixes that it depends on. The builds are below ``base``.

    Returns:
        The faults, or None if there is no git repository of the published sources yet.
    """
    space = Workspace.of(plan, base)
    laid_out = sorted((space.root / "sources").glob("*/.git"), key=lambda path: path.stat().st_mtime_ns)
    if not laid_out:
        return None
    patches = load_all(folder)
    faults: dict[str, None] = {}
    with tempfile.TemporaryDirectory(prefix="rackgate-check-") as work:
        trial = Trial(laid_out[-1].parent, Path(work) / "check")
        for chosen, where in _combinations(patches):
            try:
                touched_modules(plan, trial.apply(chosen, where), chosen)
            except RackgateError as error:
                faults[str(error)] = None
    return tuple(faults)


def _combinations(patches: Sequence[Patch]) -> Iterator[tuple[tuple[Patch, ...], str]]:
    """Yield patches that must apply together, with a description for error messages."""
    yield DEFAULT.choose(patches), ""
    opt_in_names = opt_ins(patches)
    for chosen in dict.fromkeys([*(frozenset({mark}) for mark in opt_in_names), frozenset(opt_in_names)]):
        if chosen:
            listed_names = ", ".join(sorted(chosen))
            yield Selection(opt_ins=chosen).choose(patches), f" with the opt-in fixes {listed_names}"
    for fix in (patch for patch in patches if patch.part == FIXES):
        try:
            needed = with_dependencies(patches, fix)
        except RackgateError:
            continue  # lint_patches reports it
        yield needed, f" on published sources with the fixes that {fix.name} depends on; complete its Depends: trailers"
