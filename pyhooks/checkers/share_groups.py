"""Check that share groups acknowledge exactly while the ISR of their state is sufficient, and lose no delivery.

Reads the events of ``pyhooks.workload.share_members``, the final read of the topics, observations, settings and faults
(see ``pyhooks.checkers.cluster_view``). A group's state is in ``__share_group_state``, which has one partition here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import UNCOMMITTED, PartitionName, Records, offsets_of
from pyhooks.checkers.settling_times import NS, SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import AcknowledgementDetails, DeliveryDetails, SharePollFailureDetails

STATE = PartitionName("__share_group_state", 0)
# Bound from a settled sufficient ISR of the state to the first confirmed acknowledgement that was begun after it: five
# attempts of the group's persister, and the lock of records whose acknowledgement failed.
BOUND_S = 60.0


@dataclass(frozen=True)
class Acknowledgement:
    """A request of a member to accept records."""

    begun_ns: int
    ended_ns: int
    partition: str
    offsets: frozenset[int]
    exception: str | None  # None if it was confirmed


@dataclass
class ShareGroup:
    """What the members of a group recorded."""

    # start of the poll, partition and offsets of each delivery, in order of time
    deliveries: list[tuple[int, str, frozenset[int]]] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    again: int = 0  # deliveries of records that had been delivered before


def share_groups(events: Sequence[Event]) -> dict[str, ShareGroup]:
    """Return what the members of each group recorded."""
    found: defaultdict[str, ShareGroup] = defaultdict(ShareGroup)
    for event in events:
        if (delivery := DeliveryDetails.of(event)) is not None:
            group = found[delivery.group]
            group.again += delivery.again
            for partition, runs in delivery.offsets.items():
                group.deliveries.append((delivery.begun_ns, partition, frozenset(offsets_of(runs))))
        elif (ack := AcknowledgementDetails.of(event)) is not None:
            exception = None if event.outcome == "ok" else ack.exception or "unknown"
            offsets = frozenset(offsets_of(ack.offsets))
            found[ack.group].acknowledgements.append(
                Acknowledgement(ack.begun_ns, event.mono_ns, ack.partition, offsets, exception)
            )
        elif (failure := SharePollFailureDetails.of(event)) is not None:
            found[failure.group].failures.append(failure.exception)
    return dict(found)


def check_share_groups(events: Sequence[Event], *, settle_s: float = SETTLE_S, bound_s: float = BOUND_S) -> Verdict:
    """Check deliveries and acknowledgements of share groups.

    Wrong:

    * an acknowledgement that began and was confirmed in a settled interval with an insufficient ISR of the state;
    * a settled interval with a sufficient ISR of the state, at least ``bound_s`` long, in which acknowledgements began
      and none was confirmed within the bound;
    * a record that was delivered in a poll that began after its acknowledgement had been confirmed;
    * a record of the final read that was not delivered, though one after it was;
    * a poll that failed.

    Unknown:

    * no member, no settled interval of the state, or no acknowledgement that could be judged;
    * a group without a confirmed acknowledgement, or without a complete final read of its topics.
    """
    records, cluster, found = Records(events), ClusterView.of(events), Findings()
    groups = share_groups(events)
    known = list(windows(STATE, cluster, round(settle_s * NS)))
    if not groups:
        found.missing.append("no member of a share group in the history")
    if not known:
        found.missing.append(f"no settled interval of {STATE} was observed")
    for name, group in sorted(groups.items()):
        _check_acknowledgements(name, group, known, bound_s, found)
        _check_deliveries(name, group, records, found)
        found.wrong += [f"{name}: a poll failed with {exception}" for exception in group.failures]
        errors = Counter(ack.exception.rpartition(".")[2] for ack in group.acknowledgements if ack.exception)
        results = ", ".join(f"{count} with {error}" for error, count in sorted(errors.items())) or "none"
        confirmed = sum(ack.exception is None for ack in group.acknowledgements)
        found.notes.append(
            f"{name}: {confirmed} acknowledgements confirmed, failed: {results}; {group.again} repeated deliveries,"
            f" {len(unconfirmed(group))} records delivered and never confirmed"
        )
    return found.verdict("shares")


def unconfirmed(group: ShareGroup) -> frozenset[tuple[str, int]]:
    """Return partition and offset of the delivered records of which no acknowledgement was confirmed."""
    delivered = {(partition, offset) for _, partition, offsets in group.deliveries for offset in offsets}
    return frozenset(delivered - _confirmed(group).keys())


def _confirmed(group: ShareGroup) -> Mapping[tuple[str, int], int]:
    """Return when the acknowledgement of each record was first confirmed, by partition and offset."""
    found: dict[tuple[str, int], int] = {}
    for ack in sorted(group.acknowledgements, key=lambda ack: ack.ended_ns):
        if ack.exception is None:
            for offset in ack.offsets:
                found.setdefault((ack.partition, offset), ack.ended_ns)
    return found


def _check_acknowledgements(
    name: str, group: ShareGroup, known: Sequence[SettledWindow], bound_s: float, found: Findings
) -> None:
    judged = 0
    for window in known:
        to_ns = min(window.to_ns, window.ahead.from_ns)
        begun = [ack for ack in group.acknowledgements if window.from_ns <= ack.begun_ns < to_ns]
        inside = [ack for ack in begun if ack.ended_ns <= to_ns]
        judged += len(inside)
        confirmed = [ack for ack in inside if ack.exception is None]
        if not window.enough:
            found.wrong += [
                f"{name}: {len(ack.offsets)} records of {ack.partition} were acknowledged while {STATE} had"
                f" {window.isr_text}: too few"
                for ack in confirmed
            ]
            continue
        bound_ns = window.from_ns + round(bound_s * NS)
        if begun and to_ns > bound_ns and not any(ack.ended_ns <= bound_ns for ack in confirmed):
            found.wrong.append(
                f"{name}: no acknowledgement was confirmed within {bound_s:g} s while {STATE} had {window.isr_text}:"
                " enough"
            )
    if not judged:
        found.missing.append(f"{name}: no acknowledgement could be judged")
    if all(ack.exception is not None for ack in group.acknowledgements):
        found.missing.append(f"{name}: no acknowledgement was confirmed")


def _check_deliveries(name: str, group: ShareGroup, records: Records, found: Findings) -> None:
    confirmed = _confirmed(group)
    delivered: defaultdict[str, set[int]] = defaultdict(set)
    for begun_ns, partition, offsets in group.deliveries:
        delivered[partition] |= offsets
        late = sorted(offset for offset in offsets if confirmed.get((partition, offset), begun_ns) < begun_ns)
        if late:
            found.wrong.append(
                f"{name}: {len(late)} records of {partition} were delivered after their acknowledgement was confirmed,"
                f" the first is at offset {late[0]}"
            )
    if not delivered:
        found.missing.append(f"{name}: nothing was delivered")
    for topic in sorted({PartitionName.parse(partition).topic for partition in delivered}):
        reads, gaps = records.final(topic, UNCOMMITTED)
        found.missing += [f"{name}: {gap}" for gap in gaps]
        for read in reads.values():
            own = delivered.get(str(read.partition), set())
            skipped = sorted(offset for offset in read.keys if offset < max(own, default=0) and offset not in own)
            if skipped:
                found.wrong.append(
                    f"{name}: {len(skipped)} records of {read.partition} were not delivered, the first is at offset"
                    f" {skipped[0]}"
                )
