"""All checkers that need nothing but a history, by name, and what each of them is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyhooks.checker import rides, settling, slowdown, truth
from pyhooks.checker.delivery import check_delivery
from pyhooks.checker.faults import check_faults
from pyhooks.checker.gauges import check_meter, check_metrics
from pyhooks.checker.offsets import check_offsets
from pyhooks.checker.phases import check_phases
from pyhooks.checker.progress import check_progress
from pyhooks.checker.promise import check_promise
from pyhooks.checker.recovery import check_recovery
from pyhooks.checker.refusals import check_refusals
from pyhooks.checker.rides import check_rides
from pyhooks.checker.settling import SETTLE_S, Settling
from pyhooks.checker.transactions import check_transactions
from pyhooks.checker.verdict import Verdict
from pyhooks.errors import RackgateError
from pyhooks.history import Event
from pyhooks.workload.certainty import TOO_FEW

Check = Callable[..., Verdict]
# what a checker raises that meets an event without what it should have
BROKEN = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Checker:
    """A checker by its name.

    Attributes:
        check: the function; it takes events.
        subject: what it is about, for people.
        applies: whether a history is about that at all; if not, its verdict could only be unknown.
        settles: it takes ``settle_s``, see ``pyhooks.checker.settling``.
    """

    check: Check
    subject: str
    applies: Callable[[Event], bool]
    settles: bool = False


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
    "promise": Checker(
        check_promise, "acknowledged records lie in enough racks", _op("disk", "disk-end"), settles=True
    ),
    "progress": Checker(check_progress, "acknowledged exactly while enough are in sync", _op("settings"), settles=True),
    "refusals": Checker(
        check_refusals,
        "each refusal names what is missing",
        lambda one: one.data.get("exception") in TOO_FEW,
        settles=True,
    ),
    "rides": Checker(check_rides, "clients ride an outage out by their own retries", _op(rides.OP)),
    "metrics": Checker(check_metrics, "gauges of the gate are true, at most 2 s late", _op(truth.END)),
    "meter": Checker(check_meter, "the meter counts what clients were refused", _op(truth.END)),
    "slowdown": Checker(
        slowdown.check_slowdown, "an outage slows others no more with the gate than without it", _op(slowdown.BLOCK)
    ),
    "recovery": Checker(check_recovery, "in sync and acknowledging within a bound after a heal", _fault),
}


def judge(
    events: Sequence[Event], names: Sequence[str] = (), *, settle_s: float = SETTLE_S
) -> tuple[list[Verdict], list[str]]:
    """Runs checkers over a history.

    Args:
        events: a whole history.
        names: of the checkers; by default all that the history is about.
        settle_s: what is granted to a change to take effect, in seconds.

    Returns:
        Their verdicts, and the names of those that were left out.

    Raises:
        RackgateError: no such checker, or an event that is not as its op demands.
    """
    if unknown := sorted(set(names) - set(CHECKERS)):
        raise RackgateError(f"--checker {unknown[0]}: one of {', '.join(CHECKERS)}")
    chosen = [name for name, one in CHECKERS.items() if name in names or (not names and any(map(one.applies, events)))]
    return [_run(name, events, settle_s) for name in chosen], [name for name in CHECKERS if name not in chosen]


def measured(events: Sequence[Event], names: Iterable[str], *, settle_s: float = SETTLE_S) -> Settling | None:
    """What changes of a history took, if one of the checkers that ran goes by it.

    Raises:
        RackgateError: an event that is not as its op demands.
    """
    if not any(CHECKERS[name].settles for name in names):
        return None
    try:
        return settling.measure(events, settle_s)
    except BROKEN as error:
        raise _broken("how long changes took", error) from error


def _run(name: str, events: Sequence[Event], settle_s: float) -> Verdict:
    checker = CHECKERS[name]
    check = partial(checker.check, settle_s=settle_s) if checker.settles else checker.check
    try:
        return check(events)
    except BROKEN as error:
        raise _broken(f"checker {name}", error) from error


def _broken(what: str, error: Exception) -> RackgateError:
    return RackgateError(f"{what}: an event of the history is not as its op demands ({type(error).__name__}: {error})")
