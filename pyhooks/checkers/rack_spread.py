"""Can what was acknowledged in an outage be in enough racks at all?

Reads ``produce`` events, looks, settings and faults; see ``pyhooks.checkers.cluster_view``. Nothing is granted here to
what takes its time: from the proof that brokers are away until the proof that they still are, no record that is sent
gets to them, whatever ISRs and gates do meanwhile.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import Fault, Look, Settings
from pyhooks.checkers.record_view import Attempt, Place, Records
from pyhooks.checkers.settling_times import BLIND_S, LAG_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.kafka import gate

# kinds of faults under which a broker gets nothing from the others
TAKES = ("kill", "pause", "wipe", "cut")
# By how much the clock of clients on another host may be wrong, see ducktape_tests.services.clock.
CLOCK_NS = 200_000_000


def takes(op: str, peers: object) -> bool:
    """Whether a fault of this op takes brokers away from all others; one that parts them from some does not."""
    return op.partition("-")[0] in TAKES and not peers


@dataclass(frozen=True)
class Outage:
    """The time of a fault in which those under it surely got nothing from the others.

    Attributes:
        fault: it.
        from_ns: it was proved.
        to_ns: it was proved to have lasted, or its heal began if nothing tells that.
        sure: it was proved to have lasted.
    """

    fault: Fault
    from_ns: float
    to_ns: float
    sure: bool

    def has(self, attempt: Attempt) -> bool:
        """Whether an attempt began and ended in it; of one that does not tell its begin nobody knows."""
        return self.from_ns < attempt.sent_ns < attempt.done_ns < self.to_ns


def outages(faults: Sequence[Fault]) -> list[Outage]:
    """The faults that take brokers away, as far as they are proved."""
    found = []
    for fault in faults:
        if fault.proved_ns is None or not takes(fault.op, fault.peers):
            continue
        sure = fault.held_ns is not None
        if fault.held_ns is not None:
            end_ns: float = fault.held_ns
        elif fault.heal_ns is not None:
            end_ns = fault.heal_ns
        elif fault.healed_ns is not None:
            # it was healed, and nobody tells when that began
            continue
        else:
            end_ns = math.inf
        found.append(Outage(fault, fault.proved_ns + CLOCK_NS, end_ns - CLOCK_NS, sure))
    return found


def check_spread(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Each record that is sent and acknowledged in an outage can be in the logs of min(R, RF) racks.

    An outage is a kill, a pause, a wipe or a cut from all others, from its proof to the proof that it lasted. Who is
    under it has nothing of what is sent and acknowledged meanwhile. Who is cut off may lead, and have clients, on its
    own side: so the racks on the side count that has most of them. Fewer than min(R, RF) are wrong: whether the leader
    asked for them too late, or not at all when an ISR shrank with records waiting. R and RF are the lowest that may
    have been in force between the sending and the acknowledgement, as all brokers that may have been replicas then
    count. Records with acks=1 are left out.

    Unknown: an outage in the history and no attempt that began and ended in one; a topic of which nothing tells what it
    required; too few racks, but no looks around the attempt that tell the placement, or an outage of which nothing
    tells that it lasted.

    Args:
        events: a whole history.
        settle_s: how long a changed setting may take to reach all brokers once one tells it, in seconds.
    """
    records = Records(events)
    away = outages(cluster_view.faults(events))
    missing = records.unnoted()
    if not away:
        return Verdict.of("spread", missing=[*missing, "no fault was proved that takes brokers away"])
    judge = _Judge(cluster_view.looks(events), Settings(events), round(settle_s * NS))
    wrong: list[str] = []
    ended: defaultdict[bool, int] = defaultdict(int)
    short = 0
    for attempt in records.attempts:
        own = [one for one in away if one.has(attempt)]
        if not own or not records.shared(attempt):
            continue
        ended[attempt.outcome == "ok"] += 1
        problem, sure, few = judge.problem(attempt, own)
        short += few
        if problem:
            (wrong if sure else missing).append(problem)
    if not ended:
        missing.append(f"no attempt began and ended in {len(away)} outages")
    notes = [
        f"{ended[True]} acknowledgements and {ended[False]} other ends of attempts in {len(away)} outages are judged,"
        f" {short} of them where too few racks were left"
    ]
    return Verdict.of("spread", wrong=wrong, missing=tuple(dict.fromkeys(missing)), notes=notes)


@dataclass(frozen=True)
class _Judge:
    looks: Mapping[Place, Sequence[Look]]
    settings: Settings
    settle_ns: int

    def problem(self, attempt: Attempt, away: Sequence[Outage]) -> tuple[str, bool, bool]:
        """What is to be said against an attempt, or nothing; whether that is sure; and whether too few racks were left.

        Args:
            attempt: one that began and ended in outages.
            away: all of these.
        """
        acked = attempt.outcome == "ok"
        if attempt.partition is None:
            return _unless(not acked, f"{attempt.topic}: nothing tells to which partition {attempt.key} went")
        name = f"{attempt.topic}-{attempt.partition}"
        near, seen = self._near((attempt.topic, attempt.partition), attempt)
        placed = [look for look in near if look.replicas]
        if not placed:
            return _unless(not acked, f"{name}: nobody looked at its placement")
        wanted = self.settings.possible(attempt.topic, attempt.sent_ns - self.settle_ns, attempt.done_ns)
        if not wanted:
            return _unless(not acked, f"{attempt.topic}: nothing tells what it required")
        need = min(one.effective(look).racks for one in wanted for look in placed)
        left = most_racks({broker for look in placed for broker in look.replicas}, near, [one.fault for one in away])
        if left >= need:
            return "", True, False
        if not acked:
            return "", True, True
        what = ", ".join(f"{one.fault.op} {one.fault.rack or one.fault.broker}" for one in away)
        said = (
            f"{name}: record {attempt.key} was sent and acknowledged under {what}, when no more than {left} rack(s)"
            f" could have it; {need} are required"
        )
        if not seen:
            return f"{said}; nobody looked before and after that", False, True
        if not all(one.sure for one in away):
            return f"{said}; nothing tells that the fault lasted", False, True
        return said, True, True

    def _near(self, place: Place, attempt: Attempt) -> tuple[Sequence[Look], bool]:
        """The looks around an attempt, and whether these leave no gap in which something else could have been."""
        seen = self.looks.get(place, ())
        first = bisect_right(seen, attempt.sent_ns, key=lambda look: look.at_ns) - 1
        after = bisect_left(seen, attempt.done_ns + LAG_NS, key=lambda look: look.since_ns)
        near = seen[max(0, first) : after + 1]
        whole = first >= 0 and after < len(seen)
        return near, whole and all(two.at_ns - one.at_ns <= BLIND_S * NS for one, two in pairwise(near))


def _unless(harmless: bool, problem: str) -> tuple[str, bool, bool]:
    return ("" if harmless else problem), False, False


def most_racks(replicas: set[int], near: Sequence[Look], faults: Sequence[Fault]) -> int:
    """The most racks that can have a record which one of these replicas took, and others may have got from it.

    Args:
        replicas: all that there may be.
        near: looks that tell in which racks brokers are.
        faults: those that are in force.
    """
    cuts = [one for one in faults if one.op.startswith("cut")]
    gone = [one for one in faults if one not in cuts]
    sides: defaultdict[tuple[bool, ...], list[frozenset[str]]] = defaultdict(list)
    for broker in replicas:
        racks = frozenset[str]().union(*(gate.racks_of([broker], look.racks) for look in near))
        if not racks and any(broker in look.racks for look in near):
            continue  # it has no rack, so it counts for none
        if not any(_hit(one, broker, racks) for one in gone):
            sides[tuple(_hit(one, broker, racks) for one in cuts)].append(racks)
    return max(map(_distinct, sides.values()), default=0)


def _hit(fault: Fault, broker: int, racks: frozenset[str]) -> bool:
    """Whether a broker is under a fault, in whichever of these racks it is; where that is not told, it is not."""
    return all(fault.hits(broker, {broker: rack}) for rack in racks or {"?"})


def _distinct(racks: Sequence[frozenset[str]]) -> int:
    """In how many racks brokers can be that are each in one of a few; one of which nothing is known, in one more."""
    unknown = sum(not own for own in racks)
    named = frozenset[str]().union(*racks)
    return unknown + min(len(named), len(racks) - unknown)
