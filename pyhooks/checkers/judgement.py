"""Run checkers on a history: all that apply to it, or those selected by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from pyhooks.checkers import settling_times
from pyhooks.checkers.registry import CHECKERS, GENERAL
from pyhooks.checkers.settling_times import SETTLE_S, Settling
from pyhooks.checkers.verdict import Verdict
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event

# Raised by a checker when an event lacks a field or has a field of the wrong type.
BROKEN = (KeyError, TypeError, ValueError, AttributeError)


def judge(
    events: Sequence[Event], names: Sequence[str] = (), *, settle_s: float = SETTLE_S
) -> tuple[list[Verdict], list[str]]:
    """Run checkers on a history.

    Args:
        events: events of a whole history.
        names: names of the checkers to run; by default all that apply to the history.
        settle_s: seconds granted to a change to take effect.

    Returns:
        The verdicts, and the names of the general checkers that did not run. Checkers for specific tests are not
        listed.

    Raises:
        RackgateError: an unknown checker, or an event that lacks the data its op requires.
    """
    if unknown := sorted(set(names) - set(CHECKERS)):
        raise RackgateError(f"--checker {unknown[0]}: one of {', '.join(CHECKERS)}")
    chosen = [
        name for name, checker in CHECKERS.items() if name in names or (not names and any(map(checker.applies, events)))
    ]
    return [_run(name, events, settle_s) for name in chosen], [name for name in GENERAL if name not in chosen]


def measure_settling(events: Sequence[Event], names: Iterable[str], *, settle_s: float = SETTLE_S) -> Settling | None:
    """Return how long changes in a history took, or None if no checker that ran uses this.

    Raises:
        RackgateError: an event that lacks the data its op requires.
    """
    if not any(CHECKERS[name].settles for name in names):
        return None
    try:
        return settling_times.measure(events, settle_s)
    except BROKEN as error:
        raise _broken("measurement of settling times", error) from error


def _run(name: str, events: Sequence[Event], settle_s: float) -> Verdict:
    checker = CHECKERS[name]
    check = partial(checker.check, settle_s=settle_s) if checker.settles else checker.check
    try:
        return check(events)
    except BROKEN as error:
        raise _broken(f"checker {name}", error) from error


class BrokenEventError(RackgateError):
    """An event that lacks the data its op requires."""


def _broken(subject: str, error: Exception) -> BrokenEventError:
    return BrokenEventError(f"{subject}: an event lacks the data its op requires ({type(error).__name__}: {error})")
