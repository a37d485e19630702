"""All checkers that need nothing but a history, by name, and what each of them is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyhooks.checker.delivery import check_delivery
from pyhooks.checker.faults import check_faults
from pyhooks.checker.offsets import check_offsets
from pyhooks.checker.phases import check_phases
from pyhooks.checker.progress import check_progress
from pyhooks.checker.promise import check_promise
from pyhooks.checker.recovery import check_recovery
from pyhooks.checker.transactions import check_transactions
from pyhooks.checker.verdict import Verdict
from pyhooks.errors import RackgateError
from pyhooks.history import Event

Check = Callable[[Sequence[Event]], Verdict]


@dataclass(frozen=True)
class Checker:
    """A checker by its name.

    Attributes:
        check: the function.
        subject: what it is about, for people.
        applies: whether a history is about that at all; if not, its verdict could only be unknown.
    """

    check: Check
    subject: str
    applies: Callable[[Event], bool]


def _op(*names: str) -> Callable[[Event], bool]:
    return lambda event: event.op in names


def _fault(event: Event) -> bool:
    return event.process == "fault"


CHECKERS: Mapping[str, Checker] = {
    "faults": Checker(check_faults, "every fault took hold, lasted and was healed", _fault),
    "phases": Checker(partial(check_phases, attempts_min=1), "phases of a test went as expected", _op("phase")),
    "delivery": Checker(check_delivery, "what was acknowledged is read, what was refused is not", _op("produce")),
    "offsets": Checker(check_offsets, "one record an offset, in order", _op("produce")),
    "transactions": Checker(check_transactions, "all or nothing", lambda event: "txn" in event.data),
    "promise": Checker(check_promise, "acknowledged records lie in enough racks", _op("disk", "disk-end")),
    "progress": Checker(check_progress, "acknowledged exactly while enough are in sync", _op("settings")),
    "recovery": Checker(check_recovery, "in sync and acknowledging within a bound after a heal", _fault),
}


def judge(events: Sequence[Event], names: Sequence[str] = ()) -> tuple[list[Verdict], list[str]]:
    """Runs checkers over a history.

    Args:
        events: a whole history.
        names: of the checkers; by default all that the history is about.

    Returns:
        Their verdicts, and the names of those that were left out.

    Raises:
        RackgateError: no such checker, or an event that is not as its op demands.
    """
    if unknown := sorted(set(names) - set(CHECKERS)):
        raise RackgateError(f"--checker {unknown[0]}: one of {', '.join(CHECKERS)}")
    chosen = [name for name, one in CHECKERS.items() if name in names or (not names and any(map(one.applies, events)))]
    return [_run(name, events) for name in chosen], [name for name in CHECKERS if name not in chosen]


def _run(name: str, events: Sequence[Event]) -> Verdict:
    try:
        return CHECKERS[name].check(events)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise RackgateError(f"checker {name}: an event of the history is not as its op demands ({what})") from error
