"""Runs checkers over a history, all that it is about or those that are named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from pyhooks.checkers import settling_times
from pyhooks.checkers.registry import CHECKERS, GENERAL
from pyhooks.checkers.settling_times import SETTLE_S, Settling
from pyhooks.checkers.verdict import Verdict
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event

# what a checker raises that meets an event without what it should have
BROKEN = (KeyError, TypeError, ValueError, AttributeError)


def judge(
    events: Sequence[Event], names: Sequence[str] = (), *, settle_s: float = SETTLE_S
) -> tuple[list[Verdict], list[str]]:
    """Runs checkers over a history.

    Args:
        events: a whole history.
        names: of the checkers; by default all that the history is about.
        settle_s: what is granted to a change to take effect, in seconds.

    Returns:
        Their verdicts, and the names of those that were left out; of checkers of what only some tests do none is told.

    Raises:
        RackgateError: no such checker, or an event that is not as its op demands.
    """
    if unknown := sorted(set(names) - set(CHECKERS)):
        raise RackgateError(f"--checker {unknown[0]}: one of {', '.join(CHECKERS)}")
    chosen = [name for name, one in CHECKERS.items() if name in names or (not names and any(map(one.applies, events)))]
    return [_run(name, events, settle_s) for name in chosen], [name for name in GENERAL if name not in chosen]


def measured(events: Sequence[Event], names: Iterable[str], *, settle_s: float = SETTLE_S) -> Settling | None:
    """What changes of a history took, if one of the checkers that ran goes by it.

    Raises:
        RackgateError: an event that is not as its op demands.
    """
    if not any(CHECKERS[name].settles for name in names):
        return None
    try:
        return settling_times.measure(events, settle_s)
    except BROKEN as error:
        raise _broken("how long changes took", error) from error


def _run(name: str, events: Sequence[Event], settle_s: float) -> Verdict:
    checker = CHECKERS[name]
    check = partial(checker.check, settle_s=settle_s) if checker.settles else checker.check
    try:
        return check(events)
    except BROKEN as error:
        raise _broken(f"checker {name}", error) from error


class BrokenEventError(RackgateError):
    """An event that is not as its op demands."""


def _broken(what: str, error: Exception) -> BrokenEventError:
    return BrokenEventError(
        f"{what}: an event of the history is not as its op demands ({type(error).__name__}: {error})"
    )
