"""Check the guarantee itself: when all brokers are stopped, acknowledged records are in the logs of enough racks.

Reads ``produce`` events, the events of ``pyhooks.lab.disks`` (``disk``, ``disk-end``), observations and settings (see
``pyhooks.checkers.cluster_view``), and the steps of faults whose op begins with ``wipe``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition, RequirementTimeline
from pyhooks.checkers.record_view import Attempt, Place, Read, Records, fill
from pyhooks.checkers.settling_times import BLIND_S, LAG_NS, NS, SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import DiskChunkDetails, DiskEndDetails
from pyhooks.kafka import gate


@dataclass(frozen=True)
class Disks:
    """Logs of all brokers at one stop.

    Attributes:
        at_ns: time of the first event of the reading.
        logs: broker and partition to the contents of the log.
        whole: brokers that were stopped while their disk was read completely.
        racks: broker id to rack.
        missing: descriptions of missing parts.
    """

    at_ns: int
    logs: Mapping[tuple[int, Place], Read]
    whole: frozenset[int]
    racks: Mapping[int, str]
    missing: tuple[str, ...]


def disks_of(events: Sequence[Event]) -> Disks | None:
    """Return the last reading of the disks in a history, or None."""
    every = [(event, one) for event in events if (one := DiskChunkDetails.of(event) or DiskEndDetails.of(event))]
    if not every:
        return None
    own = [(event, one) for event, one in every if one.read_id == every[-1][1].read_id]
    chunks: dict[tuple[int, Place], list[tuple[Event, DiskChunkDetails]]] = {}
    missing: list[str] = []
    whole: set[int] = set()
    listed: set[tuple[int, Place]] = set()
    racks: dict[int, str] = {}
    ended: set[int] = set()
    for event, one in own:
        broker = one.broker
        racks[broker] = event.rack or ""
        if isinstance(one, DiskChunkDetails):
            chunks.setdefault((broker, (one.topic, one.partition)), []).append((event, one))
            continue
        ended.add(broker)
        listed |= {(broker, place) for place in one.replicas}
        if event.outcome != "ok":
            missing.append(f"the disk of broker {broker}: {one.error or 'not read'}")
        elif not one.stopped:
            missing.append(f"nothing tells that broker {broker} was stopped when its disk was read")
        else:
            whole.add(broker)
    missing += [f"the disk of broker {broker} was not read to its end" for broker in sorted(racks.keys() - ended)]
    logs: dict[tuple[int, Place], Read] = {}
    for broker, place in listed | chunks.keys():
        read = logs[broker, place] = Read("disk", *place, 0, "disk")
        if parts := chunks.get((broker, place)):
            fill(read, parts)
        else:
            read.gaps.append("nothing was noted of it")
        missing += [f"{place[0]}-{place[1]} on broker {broker}: {gap}" for gap in read.gaps]
    return Disks(min(event.mono_ns for event, _ in own), logs, frozenset(whole), racks, tuple(missing))


def check_promise(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check that records acknowledged before the stop are in the logs of replicas in at least min(R, RF) racks.

    Racks are those of the brokers when the record was acknowledged, from the observations around that time. A broker
    that restarts in another rack removes its copies from the old rack, which is no violation.

    R (``min.insync.racks``) is the topic's requirement when the record was acknowledged: the requested value, where
    the history has it. A broker that reports another value is wrong (see ``RequirementTimeline.strays``). If R
    changed meanwhile, too few racks for the lowest value are wrong, and too few for the highest alone are unknown.

    RF is the lower of the replication factors at the acknowledgement and at the stop. If replicas were moved in
    between, a record in too few racks is unknown, and a record on no replica is wrong. The same applies to a record
    sent before the first observation. The replicas at the stop are those of the last observation, which must be later
    than the acknowledgement.

    Members of the ISR have all acknowledged records. So a broker whose disk was wiped after the acknowledgement counts
    as having had the record if an observation between the two shows it in the ISR. This ends with an observation after
    the proved heal that shows it in the ISR again: from then on it must have all acknowledged records again. Between
    the start of the heal and such an observation, the result is unknown. An observation shows a state up to ``LAG_S``
    old.

    The broker does not count if all observations show it outside the ISR, or if it was definitely wiped before the
    record was sent. Between the start of a wipe and its proof, this is unknown. If neither is known, or the wipe was
    not proved, a record that depends on the broker is unknown. The same applies to a broker whose log could not be
    read, or begins after the record.

    Records with acks=1 are excluded: only the leader acknowledges them. A record acknowledged without an offset is
    located by its key. An example is a batch that was sent again and that the broker recognizes as a duplicate
    (DUPLICATE_SEQUENCE_NUMBER).

    Args:
        events: a whole history.
        settle_s: how long a changed setting may take to reach all brokers after one reports it, in seconds.
    """
    records = Records(events)
    missing = records.unnoted()
    acked = [attempt for attempt in records.attempts if attempt.outcome == "ok" and records.shared(attempt)]
    disks = disks_of(events)
    if disks is None:
        return Verdict.of("promise", missing=[*missing, "nobody read the disks"])
    missing += disks.missing
    acked = [attempt for attempt in acked if attempt.done_ns < disks.at_ns]
    if not acked:
        missing.append("no acknowledged record before the disks were read")
    faults = cluster_view.faults(events)
    wipes = [fault for fault in faults if fault.op.startswith("wipe")]
    observations = cluster_view.observations(events)
    moves = {place: _moves(seen) for place, seen in observations.items()}
    settings, settle_ns = RequirementTimeline(events), round(settle_s * NS)
    judge = _PromiseJudge(disks, observations, moves, settings, wipes, settle_ns)
    wrong: list[str] = []
    for topic in sorted({attempt.topic for attempt in acked}):
        wrong += settings.strays(topic, faults, settle_ns)
    for attempt in acked:
        problem, sure = judge.problem(attempt)
        if problem:
            (wrong if sure else missing).append(problem)
    notes = [f"settings that changed up to {settle_s:g} s before a record was sent may have held for it"]
    return Verdict.of("promise", wrong=wrong, missing=_each_once(missing), notes=notes)


def _each_once(reasons: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reasons))


def _moment(observation: RecordedPartition) -> int:
    return observation.at_ns


def _since(observation: RecordedPartition) -> int:
    return observation.since_ns


def _moves(seen: Sequence[RecordedPartition]) -> list[RecordedPartition]:
    """Return the first observation of each placement, in order of time."""
    told = [observation for observation in seen if observation.replicas]
    return told[:1] + [two for one, two in pairwise(told) if set(one.replicas) != set(two.replicas)]


@dataclass(frozen=True)
class _PromiseJudge:
    disks: Disks
    observations: Mapping[Place, Sequence[RecordedPartition]]
    moves: Mapping[Place, Sequence[RecordedPartition]]
    settings: RequirementTimeline
    wipes: Sequence[RecordedFault]
    settle_ns: int

    def problem(self, attempt: Attempt) -> tuple[str, bool]:
        """Return the problem with a record, empty if there is none, and whether it is certain."""
        attempt = self._located(attempt)
        if attempt.partition is None or attempt.offset is None or attempt.offset < 0:
            return f"{attempt.topic}: nothing tells at which offset {attempt.key} was acknowledged", False
        place = (attempt.topic, attempt.partition)
        name = f"{attempt.topic}-{attempt.partition}"
        placed, own = self._placed(place, attempt)
        if not placed:
            return f"{name}: nobody looked at its placement", False
        wanted = self.settings.possible(attempt.topic, attempt.sent_ns - self.settle_ns, attempt.done_ns)
        if not wanted:
            return f"{attempt.topic}: nothing tells what it required", False
        racks = self._racks(place, attempt)
        sure: set[str] = set()
        perhaps: set[str] = set()
        # Copies on brokers that are no longer replicas do not count.
        last = placed[-1].replicas
        # Fewer replicas span fewer racks at most.
        needed = [
            min(one.effective(observation).racks, gate.capped(one.racks, len(last)))
            for one in wanted
            for observation in placed[: max(1, own)]
        ]
        if len(placed) > 1 or placed[0].at_ns > attempt.sent_ns:
            # A reassignment determines the spread of records acknowledged before it, so one rack may be enough. A
            # placement before the first observation is unknown.
            needed.append(1)
        for broker in sorted({broker for observation in placed for broker in observation.replicas}):
            had = self._had(broker, place, attempt) if broker in last else False
            own_racks = frozenset[str]().union(*(gate.racks_of([broker], {broker: one}) for one in racks(broker)))
            if had is not False:
                (sure if had and len(own_racks) == 1 else perhaps).update(own_racks)
        where = f"{name}: record {attempt.key}, acknowledged at offset {attempt.offset}, lies in"
        said = f"{where} {len(sure)} rack(s) ({', '.join(sorted(sure)) or 'none'}), {max(needed)} are required"
        if len(sure) >= max(needed):
            return "", True
        if len(sure | perhaps) >= min(needed) and (len(sure) < min(needed) or max(needed) > min(needed)):
            return f"{said}, which may have been {min(needed)}, and {len(perhaps - sure)} more may have had it", False
        if self.observations[place][-1].at_ns < attempt.done_ns:
            return f"{said}; nobody looked afterwards where its replicas are", False
        return said, True

    @cached_property
    def _offsets(self) -> Mapping[tuple[str, str | None], frozenset[tuple[int, int]]]:
        """Partitions and offsets of each key on the disks, by topic and key; needed only if an offset is unknown."""
        found: defaultdict[tuple[str, str | None], set[tuple[int, int]]] = defaultdict(set)
        for (_, (topic, partition)), log in self.disks.logs.items():
            for offset, key in log.keys.items():
                found[topic, key].add((partition, offset))
        return {one: frozenset(where) for one, where in found.items()}

    def _located(self, attempt: Attempt) -> Attempt:
        """Return the attempt; if it has no offset, with the offset of its key on the disks if there is exactly one."""
        if attempt.offset is not None and attempt.offset >= 0:
            return attempt
        found = [
            (partition, offset)
            for partition, offset in self._offsets.get((attempt.topic, attempt.key), ())
            if attempt.partition in (None, partition)
        ]
        if len(found) != 1:
            return attempt
        partition, offset = found[0]
        return replace(attempt, partition=partition, offset=offset)

    def _racks(self, place: Place, attempt: Attempt) -> Callable[[int], frozenset[str]]:
        """Return a function from broker to its rack when a record was acknowledged; several if observations differ.

        A broker leaves the ISR before it joins another rack, so observations of the broker in sync take precedence.
        """
        seen = self.observations[place]
        first = max(0, bisect_right(seen, attempt.sent_ns, key=_moment) - 1)
        after = bisect_left(seen, attempt.done_ns + LAG_NS, key=_since)
        near = seen[first : after + 1]

        def racks(broker: int) -> frozenset[str]:
            in_sync = [observation for observation in near if broker in observation.isr]
            found = {observation.racks[broker] for observation in in_sync or near if broker in observation.racks}
            others = {**seen[-1].racks, **self.disks.racks}
            return frozenset(found or ({others[broker]} if broker in others else ()))

        return racks

    def _placed(self, place: Place, attempt: Attempt) -> tuple[list[RecordedPartition], int]:
        """Return one observation per placement since the send, and how many placements are from before the outcome."""
        seen = self.observations.get(place, ())
        moves = self.moves.get(place, ())
        first = max(0, bisect_right(moves, attempt.sent_ns, key=_moment) - 1)
        after = bisect_left(seen, attempt.done_ns, key=_moment)
        until_ns = seen[after].at_ns if after < len(seen) else attempt.done_ns
        return list(moves[first:]), bisect_right(moves, until_ns, key=_moment) - first

    def _had(self, broker: int, place: Place, attempt: Attempt) -> bool | None:
        """Return whether the broker had the record at the stop or before its disk was wiped; None if unknown."""
        assert attempt.offset is not None  # noqa: S101 - asked before
        log = self.disks.logs.get((broker, place))
        if log is not None and attempt.offset in log.keys and log.keys[attempt.offset] == attempt.key:
            return True
        racks = {**self.disks.racks}
        answers = [self._had_before(fault, broker, place, attempt) for fault in self.wipes if fault.hits(broker, racks)]
        if True in answers:
            return True
        if None in answers or broker not in self.disks.whole:
            return None
        if log is not None and (log.gaps or attempt.offset < log.low):
            return None
        return False

    def _had_before(self, wipe: RecordedFault, broker: int, place: Place, attempt: Attempt) -> bool | None:
        """Return whether a wipe removed the record and the broker need not have fetched it again; None if unknown."""
        took = self._took(wipe, broker, place, attempt)
        if took is False:
            return False
        back = [observation for observation in self.observations.get(place, ()) if broker in observation.isr]
        if wipe.healed_ns is not None and any(wipe.healed_ns + LAG_NS < observation.since_ns for observation in back):
            return False
        # From the start of the heal it may be in sync again at any moment, observed or not.
        return None if wipe.heal_ns is not None or wipe.proved_ns is None else took

    def _took(self, wipe: RecordedFault, broker: int, place: Place, attempt: Attempt) -> bool | None:
        over_ns = wipe.heal_ns if wipe.proved_ns is None else wipe.proved_ns
        if over_ns is not None and over_ns <= attempt.sent_ns:
            return False
        if wipe.inject_ns <= attempt.done_ns:
            # The disk was destroyed at an unknown moment between the start of the wipe and its proof.
            return None
        # A broker with a wiped disk does not rejoin the ISR before the heal.
        until_ns = wipe.heal_ns if wipe.heal_ns is not None else self.disks.at_ns
        after = [
            observation
            for observation in self.observations.get(place, ())
            if attempt.done_ns + LAG_NS < observation.since_ns
        ]
        if any(broker in observation.isr for observation in after if observation.at_ns < until_ns):
            return True
        seen = [observation for observation in self.observations.get(place, ()) if observation.at_ns < wipe.inject_ns]
        first = bisect_right(seen, attempt.sent_ns, key=_moment) - 1
        if (
            first < 0
            or not after
            or after[0] not in seen
            or any(broker in observation.isr for observation in seen[first:])
        ):
            return None
        moments = [*(observation.at_ns for observation in seen[first:]), wipe.inject_ns]
        return None if any(two - one > BLIND_S * NS for one, two in pairwise(moments)) else False
