"""Check that tiered storage gets committed records only: segments wait while too few replicas or racks are in sync.

Reads ``RemoteSegmentsDetails``, the rounds of ``pyhooks.workload.visibility_reader``, observations, settings and faults
(see ``pyhooks.checkers.cluster_view``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.progress import windows
from pyhooks.checkers.record_view import PartitionName
from pyhooks.checkers.settling_times import NS, SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.checkers.visibility import ReaderRound, reader_rounds
from pyhooks.history.event_log import Event
from pyhooks.history.events import RemoteSegmentsDetails


@dataclass(frozen=True)
class SegmentListing:
    """Segments of a partition at one moment, by their base offsets."""

    at_ns: int
    asked_ns: int
    local: frozenset[int]
    remote: frozenset[int]

    def ends(self, bases: frozenset[int]) -> dict[int, int]:
        """Return the offset after each of these segments; without the last segment of all, which is still written."""
        known = sorted(self.local | self.remote)
        return {base: known[index] for base in bases if (index := bisect_right(known, base)) < len(known)}


def listings(events: Sequence[Event]) -> dict[PartitionName, list[SegmentListing]]:
    """Return the listings of each partition, in order of time."""
    found: defaultdict[PartitionName, list[SegmentListing]] = defaultdict(list)
    for event, listed in RemoteSegmentsDetails.each(events):
        found[PartitionName(listed.topic, 0)].append(
            SegmentListing(event.mono_ns, listed.asked_ns, frozenset(listed.local), frozenset(listed.remote))
        )
    return dict(found)


def check_remote_segments(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check which segments were copied to the remote storage, and when.

    Wrong: a remote segment with an offset at or above the high watermark that the leader returned after the listing.

    Unknown:

    * no listing in a settled interval with an insufficient ISR that shows a complete segment that waits;
    * no partition with remote segments, or none whose number grew in a settled interval with a sufficient ISR;
    * a partition without a high watermark after its listings.
    """
    cluster, leaders, found = ClusterView.of(events), reader_rounds(events), Findings()
    waited = grew = 0
    for partition, listed in sorted(listings(events).items()):
        _check_committed(partition, listed, leaders.get(partition, ()), found)
        for window in windows(partition, cluster, round(settle_s * NS)):
            inside = [one for one in listed if window.from_ns <= one.asked_ns and one.at_ns <= window.to_ns]
            if not inside:
                continue
            if window.enough:
                grew += len(inside[-1].remote) > len(inside[0].remote)
            else:
                waiting = inside[-1].ends(inside[-1].local - inside[-1].remote)
                waited += bool(waiting)
                found.notes.append(
                    f"{partition}: {window.isr_text}, too few: {len(waiting)} complete segments wait,"
                    f" {len(inside[-1].remote)} are remote"
                )
    if not waited:
        found.missing.append("no complete segment was seen to wait while too few were in sync")
    if not grew:
        found.missing.append("no segment was seen to be copied while enough were in sync")
    return found.verdict("remote")


def _check_committed(
    partition: PartitionName, listed: Sequence[SegmentListing], leader: Sequence[ReaderRound], found: Findings
) -> None:
    answers = sorted((one.asked_ns, one.high) for one in leader if one.high is not None)
    known = 0
    for listing in listed:
        index = bisect_left(answers, listing.at_ns, key=lambda answer: answer[0])
        if index == len(answers):
            continue
        known += 1
        high = answers[index][1]
        early = {base: end for base, end in listing.ends(listing.remote).items() if end > high}
        found.wrong += [
            f"{partition}: the segment of offsets {base} to {end - 1} was remote while the high watermark was {high}"
            for base, end in sorted(early.items())
        ]
    if not known:
        found.missing.append(f"{partition}: no high watermark was returned after its segments were listed")
