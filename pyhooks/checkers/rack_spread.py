"""Check that records acknowledged in an outage can be in enough racks at all.

Reads ``produce`` events, observations, settings and faults; see ``pyhooks.checkers.cluster_view``. This checker grants
no settling time: from the proof that brokers are unavailable until the proof that they still are, no record that is
sent reaches them, whatever ISRs and gates do meanwhile.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition, RequirementTimeline
from pyhooks.checkers.record_view import Attempt, Place, Records
from pyhooks.checkers.settling_times import BLIND_S, LAG_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.kafka import gate

# Kinds of faults under which a broker receives nothing from the others.
TAKES = ("kill", "pause", "wipe", "cut")
# Maximum clock error of clients on another host, see ducktape_tests.services.clock.
CLOCK_NS = 200_000_000


def takes(op: str, peers: object) -> bool:
    """Return whether a fault of this op separates brokers from all others, rather than from some racks only."""
    return op.partition("-")[0] in TAKES and not peers


@dataclass(frozen=True)
class Outage:
    """The time of a fault in which affected brokers definitely received nothing from the others.

    Attributes:
        fault: the fault.
        from_ns: proof of the fault, plus ``CLOCK_NS``.
        to_ns: proof that it lasted, or the start of its heal without such a proof, less ``CLOCK_NS``.
        sure: whether it was proved to have lasted.
    """

    fault: RecordedFault
    from_ns: float
    to_ns: float
    sure: bool

    def has(self, attempt: Attempt) -> bool:
        """Return whether an attempt began and ended in it; False if the attempt's beginning is not recorded."""
        return self.from_ns < attempt.sent_ns < attempt.done_ns < self.to_ns


def outages(faults: Sequence[RecordedFault]) -> list[Outage]:
    """Return the outages of faults that separate brokers from all others, as far as proved."""
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
            # It was healed, but the start of the heal is not recorded.
            continue
        else:
            end_ns = math.inf
        found.append(Outage(fault, fault.proved_ns + CLOCK_NS, end_ns - CLOCK_NS, sure))
    return found


def check_spread(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check that each record sent and acknowledged in an outage can be in the logs of min(R, RF) racks.

    An outage is a kill, a pause, a wipe or a network partition from all other racks, from its proof to the proof that
    it lasted. Affected brokers have no record that is sent and acknowledged meanwhile. Partitioned brokers may lead and
    have clients on their own side, so the side with the most racks counts. Fewer racks than min(R, RF) are wrong,
    whether the leader checked them too late, or not at all when an ISR shrank with records waiting.

    R (``min.insync.racks``) and RF (the replication factor) are the lowest values that may have applied between the
    send and the acknowledgement; all brokers that may have been replicas then count. Records with acks=1 are excluded.

    Unknown:

    * an outage in the history and no attempt that began and ended in one;
    * a topic whose settings are unknown;
    * too few racks, but no observations around the attempt that show the placement, or an outage that was not proved to
      have lasted.

    Args:
        events: a whole history.
        settle_s: how long a changed setting may take to reach all brokers after one reports it, in seconds.
    """
    records = Records(events)
    away = outages(cluster_view.faults(events))
    missing = records.unnoted()
    if not away:
        return Verdict.of("spread", missing=[*missing, "no fault was proved that takes brokers away"])
    judge = _SpreadJudge(cluster_view.observations(events), RequirementTimeline(events), round(settle_s * NS))
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
class _SpreadJudge:
    observations: Mapping[Place, Sequence[RecordedPartition]]
    settings: RequirementTimeline
    settle_ns: int

    def problem(self, attempt: Attempt, away: Sequence[Outage]) -> tuple[str, bool, bool]:
        """Return the problem with an attempt, if any; whether it is certain; and whether too few racks were left.

        Args:
            attempt: an attempt that began and ended in outages.
            away: all of these outages.
        """
        acked = attempt.outcome == "ok"
        if attempt.partition is None:
            return _unless(not acked, f"{attempt.topic}: nothing tells to which partition {attempt.key} went")
        name = f"{attempt.topic}-{attempt.partition}"
        near, seen = self._near((attempt.topic, attempt.partition), attempt)
        placed = [observation for observation in near if observation.replicas]
        if not placed:
            return _unless(not acked, f"{name}: nobody looked at its placement")
        wanted = self.settings.possible(attempt.topic, attempt.sent_ns - self.settle_ns, attempt.done_ns)
        if not wanted:
            return _unless(not acked, f"{attempt.topic}: nothing tells what it required")
        need = min(one.effective(observation).racks for one in wanted for observation in placed)
        left = most_racks(
            {broker for observation in placed for broker in observation.replicas}, near, [one.fault for one in away]
        )
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

    def _near(self, place: Place, attempt: Attempt) -> tuple[Sequence[RecordedPartition], bool]:
        """Return the observations around an attempt, and whether they leave no gap that could hide another state."""
        seen = self.observations.get(place, ())
        first = bisect_right(seen, attempt.sent_ns, key=lambda observation: observation.at_ns) - 1
        after = bisect_left(seen, attempt.done_ns + LAG_NS, key=lambda observation: observation.since_ns)
        near = seen[max(0, first) : after + 1]
        whole = first >= 0 and after < len(seen)
        return near, whole and all(two.at_ns - one.at_ns <= BLIND_S * NS for one, two in pairwise(near))


def _unless(harmless: bool, problem: str) -> tuple[str, bool, bool]:
    return ("" if harmless else problem), False, False


def most_racks(replicas: set[int], near: Sequence[RecordedPartition], faults: Sequence[RecordedFault]) -> int:
    """Return the most racks that can have a record, if one of these replicas accepted it and others replicated it.

    Args:
        replicas: all possible replicas.
        near: observations that show the racks of brokers.
        faults: faults in force.
    """
    cuts = [one for one in faults if one.op.startswith("cut")]
    gone = [one for one in faults if one not in cuts]
    sides: defaultdict[tuple[bool, ...], list[frozenset[str]]] = defaultdict(list)
    for broker in replicas:
        racks = frozenset[str]().union(*(gate.racks_of([broker], observation.racks) for observation in near))
        if not racks and any(broker in observation.racks for observation in near):
            continue  # it has no rack, so it counts for none
        if not any(_hit(one, broker, racks) for one in gone):
            sides[tuple(_hit(one, broker, racks) for one in cuts)].append(racks)
    return max(map(_distinct, sides.values()), default=0)


def _hit(fault: RecordedFault, broker: int, racks: frozenset[str]) -> bool:
    """Return whether a fault affects a broker in each of its possible racks; an unknown rack is not affected."""
    return all(fault.hits(broker, {broker: rack}) for rack in racks or {"?"})


def _distinct(racks: Sequence[frozenset[str]]) -> int:
    """Return the most distinct racks of brokers, given the possible racks of each; one without any is one more."""
    unknown = sum(not own for own in racks)
    named = frozenset[str]().union(*racks)
    return unknown + min(len(named), len(racks) - unknown)
