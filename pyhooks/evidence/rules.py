"""Judgement of results by the rules of ``claims.toml``.

A condition on a missing value is false. If no rule or several rules are met, the claim is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyhooks.evidence.claims import NOT_TESTABLE, Claim, Condition

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
    judgement = apply_rules(claim.rules, results)
    if changed := [f"{run}: {stale[run]}" for run in claim.runs if run in stale]:
        return ClaimJudgement(STALE, tuple(changed), judgement.state)
    return judgement


def _missing_tests(claim: Claim, results: Mapping[str, Any]) -> list[str]:
    """Return tests missing in the artifacts because no rule required them when the run was made."""
    conditions = [condition for rule in claim.rules.values() for condition in rule]
    return sorted(
        {case for condition in conditions for case in condition.cases if case not in results[condition.run]["cases"]}
    )


def apply_rules(rules: Mapping[str, Sequence[Condition]], results: Mapping[str, Any]) -> ClaimJudgement:
    """Return the only verdict whose conditions are all true, or ``undecided`` with the reasons."""
    reasons: list[str] = []
    met_rules: dict[str, list[str]] = {}
    for verdict, conditions in rules.items():
        evaluated = [_evaluate(condition, results[condition.run]) for condition in conditions]
        if all(met for met, _ in evaluated):
            met_rules[verdict] = [reason for _, reason in evaluated]
        else:
            reasons += [f"not {verdict}: {reason}" for met, reason in evaluated if not met]
    if len(met_rules) == 1:
        ((verdict, reason),) = met_rules.items()
        return ClaimJudgement(verdict, tuple(reason))
    if met_rules:
        return ClaimJudgement(UNDECIDED, (f"the rules for {' and '.join(met_rules)} are all met",))
    return ClaimJudgement(UNDECIDED, tuple(dict.fromkeys(reasons)))


def _evaluate(condition: Condition, result: Any) -> tuple[bool, str]:
    if condition.cases:
        return _cases(condition, result)
    try:
        value = value_at(result, condition.at)
    except AbsentError as error:
        return False, f"{condition.run}{condition.at}: {error}"
    shown = repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}…"
    return compare(condition, value), f"{condition.run}{condition.at} is {shown}"


def _cases(condition: Condition, result: Any) -> tuple[bool, str]:
    cases: Mapping[str, str] = result["cases"]
    required = PASSED if condition.compare == "passed" else FAILED
    outcomes = [cases.get(case, "not run") == required for case in condition.cases]
    met = all(outcomes) if required == PASSED else any(outcomes)
    failing = (
        [case for case in condition.cases if cases.get(case) != PASSED] if required == PASSED else list(condition.cases)
    )
    listed = (failing or condition.cases)[:4]
    more = "" if len(failing or condition.cases) <= 4 else f" and {len(failing or condition.cases) - 4} others"
    return met, ", ".join(f"{case.rpartition('.')[2]} {cases.get(case, 'not run')}" for case in listed) + more


def compare(condition: Condition, value: Any) -> bool:
    """Return whether a value meets a condition; a value of another type does not."""
    expected = condition.value
    if condition.compare == "is":
        return bool(value == expected) and (type(value) is type(expected) or _numbers(value, expected))
    if condition.compare in ("has", "lacks"):
        if not isinstance(value, str | list | dict) or (isinstance(value, str) and not isinstance(expected, str)):
            return False
        return (expected in value) is (condition.compare == "has")
    if not _numbers(value, expected):
        return False
    if condition.compare == "least":
        return bool(value >= expected)
    if condition.compare == "most":
        return bool(value <= expected)
    return math.isclose(value, expected, rel_tol=condition.within)


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def value_at(result: Any, pointer: str) -> Any:
    """Return the value at a pointer in a result.

    The result is parsed JSON; its keys may be whole pointers, if only these values were kept. The pointer has keys and
    positions with ``/`` before each. ``key=value``, or several of them joined by ``&``, selects the only matching
    object of a list. As in RFC 6901, ``~1`` stands for ``/`` in a key and ``~0`` for ``~``. ``#`` is the number of
    elements.

    Raises:
        AbsentError: there is no such value.
    """
    value: Any = result
    for prefix in result if isinstance(result, dict) else ():
        if prefix.startswith("/") and f"{pointer}/".startswith(f"{prefix}/"):
            value, pointer = result[prefix], pointer[len(prefix) :]
            break
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if key == "#" and isinstance(value, list | dict):
            value = len(value)
        elif isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, list) and "=" in key:
            conditions = dict(pair.partition("=")[::2] for pair in key.split("&"))
            matching = [
                item
                for item in value
                if isinstance(item, dict) and all(str(item.get(name)) == value for name, value in conditions.items())
            ]
            if len(matching) != 1:
                raise AbsentError(f"{len(matching)} have {key}")
            (value,) = matching
        else:
            raise AbsentError(f"there is no {key}")
    return value
