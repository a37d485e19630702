"""Check that records acknowledged in an outage can be in enough racks at all.

Reads ``produce`` events, observations, settings and faults; see ``pyhooks.checkers.cluster_view``. This checker grants
no settling time: from the proof that brokers are unavailable until the proof that they still are, no record that is
sent reaches them, whatever ISRs and gates do meanwhile.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyhooks.checkers.cluster_view import ClusterView, RecordedFault, RecordedPartition
from pyhooks.checkers.record_view import Attempt, PartitionName, Records
from pyhooks.checkers.settling_times import BLIND_S, LAG_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.kafka import gate

# Kinds of faults under which a broker receives nothing from the others.
ISOLATING = ("kill", "pause", "wipe", "cut")
# Maximum clock error of clients on another host, see ducktape_tests.services.clock.
CLOCK_NS = 200_000_000


def isolates(op: str, peers: object) -> bool:
    """Return whether a fault of this op separates brokers from all others, rather than from some racks only."""
    return op.partition("-")[0] in ISOLATING and not peers


@dataclass(frozen=True)
class Outage:
    """The time of a fault in which affected brokers definitely received nothing from the others."""

    fault: RecordedFault
    from_ns: float  # proof of the fault, plus ``CLOCK_NS``
    to_ns: float  # proof that it lasted, or the start of its heal without such a proof, less ``CLOCK_NS``
    certain: bool  # whether it was proved to have lasted

    def has(self, attempt: Attempt) -> bool:
        """Return whether an attempt began and ended in it; False if the attempt's beginning is not recorded."""
        return self.from_ns < attempt.sent_ns < attempt.done_ns < self.to_ns


def outages(faults: Sequence[RecordedFault]) -> list[Outage]:
    """Return the outages of faults that separate brokers from all others, as far as proved."""
    separations = []
    for fault in faults:
        if fault.proved_ns is None or not isolates(fault.op, fault.peers):
            continue
        if fault.held_ns is not None:
            end_ns: float = fault.held_ns
        elif fault.heal_ns is not None:
            end_ns = fault.heal_ns
        elif fault.healed_ns is not None:
            # It was healed, but the start of the heal is not recorded.
            continue
        else:
            end_ns = math.inf
        separations.append(Outage(fault, fault.proved_ns + CLOCK_NS, end_ns - CLOCK_NS, fault.held_ns is not None))
    return separations


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
    """
    records, cluster = Records(events), ClusterView.of(events)
    findings = Findings(missing=records.unrecorded())
    all_outages = outages(cluster.faults)
    if not all_outages:
        findings.missing.append("no fault was proved that isolates brokers")
        return findings.verdict("spread")
    judge = SpreadJudge(cluster, round(settle_s * NS))
    acked = others = short = 0
    for attempt in records.attempts:
        during = [outage for outage in all_outages if outage.has(attempt)]
        if not during or not records.acks_all(attempt):
            continue
        acked += attempt.outcome == "ok"
        others += attempt.outcome != "ok"
        problem, certain, too_few = judge.problem(attempt, during)
        short += too_few
        if problem and attempt.outcome == "ok":
            findings.add(problem, certain=certain)
    if not acked + others:
        findings.missing.append(f"no attempt began and ended in {len(all_outages)} outages")
    findings.notes.append(
        f"{acked} acknowledgements and {others} other ends of attempts in {len(all_outages)} outages are judged,"
        f" {short} of them where too few racks were left"
    )
    return findings.verdict("spread", unique=True)


@dataclass(frozen=True)
class SpreadJudge:
    """Finds the problem with an attempt that began and ended in outages, if it was acknowledged."""

    cluster: ClusterView
    settle_ns: int

    def problem(self, attempt: Attempt, during: Sequence[Outage]) -> tuple[str, bool, bool]:
        """Return the problem, if any; whether it is certain; and whether too few racks were left.

        Args:
            attempt: an attempt that began and ended in outages.
            during: all of these outages.
        """
        if (partition := attempt.partition_name) is None:
            return f"{attempt.topic}: the partition of {attempt.key} is unknown", False, False
        near, complete = self._near(partition, attempt)
        placed = [observation for observation in near if observation.replicas]
        if not placed:
            return f"{partition}: its placement was not observed", False, False
        required = self.cluster.settings.possible(attempt.topic, attempt.sent_ns - self.settle_ns, attempt.done_ns)
        if not required:
            return f"{attempt.topic}: its required replicas and racks are unknown", False, False
        need = min(requirement.effective(observation).racks for requirement in required for observation in placed)
        replicas = {broker for observation in placed for broker in observation.replicas}
        left = max_racks(replicas, near, [outage.fault for outage in during])
        if left >= need:
            return "", True, False
        reason = (
            f"{partition}: record {attempt.key} was sent and acknowledged under"
            f" {', '.join(outage.fault.name for outage in during)}, when no more than {left} rack(s) could have it;"
            f" {need} are required"
        )
        if not complete:
            return f"{reason}; the partition was not observed before and after that", False, True
        if not all(outage.certain for outage in during):
            return f"{reason}; the fault was not proved to have lasted", False, True
        return reason, True, True

    def _near(self, partition: PartitionName, attempt: Attempt) -> tuple[Sequence[RecordedPartition], bool]:
        """Return the observations around an attempt, and whether they leave no gap that could hide another state."""
        observed = self.cluster.of_partition(partition)
        first = bisect_right(observed, attempt.sent_ns, key=lambda observation: observation.at_ns) - 1
        after = bisect_left(observed, attempt.done_ns + LAG_NS, key=lambda observation: observation.since_ns)
        near = observed[max(0, first) : after + 1]
        complete = first >= 0 and after < len(observed)
        return near, complete and all(later.at_ns - earlier.at_ns <= BLIND_S * NS for earlier, later in pairwise(near))


def max_racks(replicas: set[int], near: Sequence[RecordedPartition], faults: Sequence[RecordedFault]) -> int:
    """Return the most racks that can have a record, if one of these replicas accepted it and others replicated it.

    Args:
        replicas: all possible replicas.
        near: observations that show the racks of brokers.
        faults: faults in force.
    """
    cuts = [fault for fault in faults if fault.op.startswith("cut")]
    stops = [fault for fault in faults if fault not in cuts]
    sides: defaultdict[tuple[bool, ...], list[frozenset[str]]] = defaultdict(list)
    for broker in replicas:
        racks = frozenset[str]().union(*(gate.racks_of([broker], observation.racks) for observation in near))
        if not racks and any(broker in observation.racks for observation in near):
            continue  # it has no rack, so it counts for none
        if not any(_hits(fault, broker, racks) for fault in stops):
            sides[tuple(_hits(fault, broker, racks) for fault in cuts)].append(racks)
    return max(map(_distinct, sides.values()), default=0)


def _hits(fault: RecordedFault, broker: int, racks: frozenset[str]) -> bool:
    """Return whether a fault affects a broker in each of its possible racks; an unknown rack is not affected."""
    return all(fault.hits(broker, {broker: rack}) for rack in racks or {"?"})


def _distinct(racks: Sequence[frozenset[str]]) -> int:
    """Return the most distinct racks of brokers, given the possible racks of each; one without any is one more."""
    unknown = sum(not possible for possible in racks)
    named = frozenset[str]().union(*racks)
    return unknown + min(len(named), len(racks) - unknown)
