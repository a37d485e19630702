"""Judges results by the rules of ``claims.toml``: what is not there decides nothing, two verdicts at once are none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyhooks.evidence.claims import NOT_TESTABLE, Atom, Claim

UNDECIDED, NOT_RUN, STALE = "undecided", "not run yet", "stale"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class AbsentError(LookupError):
    """The result has nothing at a place."""


@dataclass(frozen=True)
class Judged:
    """What is known of a claim.

    Attributes:
        state: a verdict of a rule, ``not testable``, ``undecided``, ``not run yet`` or ``stale``. Only the first two
            say anything of the sentence as it is now.
        because: why, one line each.
        was: of ``stale``, what the old artifacts say.
    """

    state: str
    because: tuple[str, ...] = ()
    was: str = ""


def judge(claim: Claim, results: Mapping[str, Any], stale: Mapping[str, str]) -> Judged:
    """What is known of a claim by the artifacts that there are.

    Args:
        claim: to judge.
        results: run to result, of those that have an artifact.
        stale: run to what has changed since, of those whose artifact is of something older.
    """
    if claim.verdict == NOT_TESTABLE:
        return Judged(NOT_TESTABLE, (claim.why,))
    if absent := [run for run in claim.runs if run not in results]:
        return Judged(NOT_RUN, tuple(f"{run} has not been run" for run in absent))
    if unasked := _unasked(claim, results):
        return Judged(NOT_RUN, tuple(f"{case} has not been run" for case in unasked))
    found = by_rules(claim.rules, results)
    if old := [f"{run}: {stale[run]}" for run in claim.runs if run in stale]:
        return Judged(STALE, tuple(old), found.state)
    return found


def _unasked(claim: Claim, results: Mapping[str, Any]) -> list[str]:
    """Tests that no rule asked for when the run was made, of which the artifact says nothing for that reason."""
    atoms = [atom for rule in claim.rules.values() for atom in rule]
    return sorted({case for atom in atoms for case in atom.cases if case not in results[atom.run]["cases"]})


def by_rules(rules: Mapping[str, Sequence[Atom]], results: Mapping[str, Any]) -> Judged:
    """The one verdict whose conditions all hold, or undecided with what is in the way."""
    reasons: list[str] = []
    given: dict[str, list[str]] = {}
    for verdict, atoms in rules.items():
        told = [_holds(atom, results[atom.run]) for atom in atoms]
        if all(holds for holds, _ in told):
            given[verdict] = [words for _, words in told]
        else:
            reasons += [f"not {verdict}: {words}" for holds, words in told if not holds]
    if len(given) == 1:
        ((verdict, words),) = given.items()
        return Judged(verdict, tuple(words))
    if given:
        return Judged(UNDECIDED, (f"the rules say {' and '.join(given)} at once",))
    return Judged(UNDECIDED, tuple(dict.fromkeys(reasons)))


def _holds(atom: Atom, result: Any) -> tuple[bool, str]:
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
    of_them = [cases.get(case, "not run") == wanted for case in atom.cases]
    holds = all(of_them) if wanted == PASSED else any(of_them)
    odd = [case for case in atom.cases if cases.get(case) != PASSED] if wanted == PASSED else list(atom.cases)
    shown = (odd or atom.cases)[:4]
    more = "" if len(odd or atom.cases) <= 4 else f" and {len(odd or atom.cases) - 4} others"
    return holds, ", ".join(f"{case.rpartition('.')[2]} {cases.get(case, 'not run')}" for case in shown) + more


def compare(atom: Atom, value: Any) -> bool:
    """Whether a value is as the condition says; what is of another kind is not."""
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
    """What is at a place of a result.

    Args:
        result: of JSON.
        pointer: keys and positions with ``/`` before each; ``key=value``, or several with ``&`` between, takes the one
            object of a list that has it. ``~1`` stands for ``/`` in a key and ``~0`` for ``~``, as in RFC 6901; ``#``
            is how many there are. A result may have been kept as the values of whole pointers.

    Raises:
        AbsentError: there is nothing.
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
            wanted = dict(one.partition("=")[::2] for one in key.split("&"))
            fitting = [
                one
                for one in at
                if isinstance(one, dict) and all(str(one.get(name)) == value for name, value in wanted.items())
            ]
            if len(fitting) != 1:
                raise AbsentError(f"{len(fitting)} have {key}")
            (at,) = fitting
        else:
            raise AbsentError(f"there is no {key}")
    return at
