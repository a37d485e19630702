"""Judgement of results by the rules of ``claims.toml``.

A condition on a missing value is false. If no rule or several rules are met, the claim is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyhooks.evidence.claims import NOT_TESTABLE, Atom, Claim

UNDECIDED, NOT_RUN, STALE = "undecided", "not run yet", "stale"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class AbsentError(LookupError):
    """The result has no value at a pointer."""


@dataclass(frozen=True)
class ClaimJudgement:
    """Judgement of a claim."""

    # a verdict of a rule, ``not testable``, ``undecided``, ``not run yet`` or ``stale``. Only the first two are
    # conclusions about the current version of the claim
    state: str
    because: tuple[str, ...] = ()
    was: str = ""  # if ``stale``, the state according to the old artifacts


def judge(claim: Claim, results: Mapping[str, Any], stale: Mapping[str, str]) -> ClaimJudgement:
    """Judge a claim by the results of the runs with an artifact; ``stale`` describes changes since then, by run."""
    if claim.verdict == NOT_TESTABLE:
        return ClaimJudgement(NOT_TESTABLE, (claim.why,))
    if absent := [run for run in claim.runs if run not in results]:
        return ClaimJudgement(NOT_RUN, tuple(f"{run} has not been run" for run in absent))
    if missing := _missing_tests(claim, results):
        return ClaimJudgement(NOT_RUN, tuple(f"{case} has not been run" for case in missing))
    found = by_rules(claim.rules, results)
    if old := [f"{run}: {stale[run]}" for run in claim.runs if run in stale]:
        return ClaimJudgement(STALE, tuple(old), found.state)
    return found


def _missing_tests(claim: Claim, results: Mapping[str, Any]) -> list[str]:
    """Return tests missing in the artifacts because no rule required them when the run was made."""
    atoms = [atom for rule in claim.rules.values() for atom in rule]
    return sorted({case for atom in atoms for case in atom.cases if case not in results[atom.run]["cases"]})


def by_rules(rules: Mapping[str, Sequence[Atom]], results: Mapping[str, Any]) -> ClaimJudgement:
    """Return the only verdict whose conditions are all true, or ``undecided`` with the reasons."""
    reasons: list[str] = []
    given: dict[str, list[str]] = {}
    for verdict, atoms in rules.items():
        evaluated = [_evaluate(atom, results[atom.run]) for atom in atoms]
        if all(met for met, _ in evaluated):
            given[verdict] = [reason for _, reason in evaluated]
        else:
            reasons += [f"not {verdict}: {reason}" for met, reason in evaluated if not met]
    if len(given) == 1:
        ((verdict, reason),) = given.items()
        return ClaimJudgement(verdict, tuple(reason))
    if given:
        return ClaimJudgement(UNDECIDED, (f"the rules for {' and '.join(given)} are all met",))
    return ClaimJudgement(UNDECIDED, tuple(dict.fromkeys(reasons)))


def _evaluate(atom: Atom, result: Any) -> tuple[bool, str]:
    if atom.cases:
        return _cases(atom, result)
    try:
        value = find(result, atom.at)
    except AbsentError as error:
        return False, f"{atom.run}{atom.at}: {error}"
    shown = repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}…"
    return compare(atom, value), f"{atom.run}{atom.at} is {shown}"


def _cases(atom: Atom, result: Any) -> tuple[bool, str]:
    cases: Mapping[str, str] = result["cases"]
    wanted = PASSED if atom.compare == "passed" else FAILED
    outcomes = [cases.get(case, "not run") == wanted for case in atom.cases]
    met = all(outcomes) if wanted == PASSED else any(outcomes)
    failing = [case for case in atom.cases if cases.get(case) != PASSED] if wanted == PASSED else list(atom.cases)
    shown = (failing or atom.cases)[:4]
    more = "" if len(failing or atom.cases) <= 4 else f" and {len(failing or atom.cases) - 4} others"
    return met, ", ".join(f"{case.rpartition('.')[2]} {cases.get(case, 'not run')}" for case in shown) + more


def compare(atom: Atom, value: Any) -> bool:
    """Return whether a value meets a condition; a value of another type does not."""
    wanted = atom.value
    if atom.compare == "is":
        return bool(value == wanted) and (type(value) is type(wanted) or _numbers(value, wanted))
    if atom.compare in ("has", "lacks"):
        if not isinstance(value, str | list | dict) or (isinstance(value, str) and not isinstance(wanted, str)):
            return False
        return (wanted in value) is (atom.compare == "has")
    if not _numbers(value, wanted):
        return False
    if atom.compare == "least":
        return bool(value >= wanted)
    if atom.compare == "most":
        return bool(value <= wanted)
    return math.isclose(value, wanted, rel_tol=atom.within)


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def find(result: Any, pointer: str) -> Any:
    """Return the value at a pointer in a result.

    Args:
        result: parsed JSON. Its keys may be whole pointers, if only these values were kept.
        pointer: keys and positions with ``/`` before each. ``key=value``, or several of them joined by ``&``, selects
            the only matching object of a list. As in RFC 6901, ``~1`` stands for ``/`` in a key and ``~0`` for ``~``.
            ``#`` is the number of elements.

    Raises:
        AbsentError: there is no such value.
    """
    at: Any = result
    for kept in result if isinstance(result, dict) else ():
        if kept.startswith("/") and f"{pointer}/".startswith(f"{kept}/"):
            at, pointer = result[kept], pointer[len(kept) :]
            break
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if key == "#" and isinstance(at, list | dict):
            at = len(at)
        elif isinstance(at, dict) and key in at:
            at = at[key]
        elif isinstance(at, list) and key.isdigit() and int(key) < len(at):
            at = at[int(key)]
        elif isinstance(at, list) and "=" in key:
            wanted = dict(pair.partition("=")[::2] for pair in key.split("&"))
            fitting = [
                item
                for item in at
                if isinstance(item, dict) and all(str(item.get(name)) == value for name, value in wanted.items())
            ]
            if len(fitting) != 1:
                raise AbsentError(f"{len(fitting)} have {key}")
            (at,) = fitting
        else:
            raise AbsentError(f"there is no {key}")
    return at
