"""Check that a partition acknowledges exactly while its ISR has enough replicas and racks.

Reads ``produce`` events, observations, settings, faults and, if present, logs; see ``pyhooks.checkers.cluster_view``.
The expected outcome is computed from M (``min.insync.replicas``), R (``min.insync.racks``), placement and ISR at every
moment. The history does not contain it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyhooks.checkers import cluster_view, settling_times
from pyhooks.checkers.broker_returns import rejected_after_returns, returns
from pyhooks.checkers.cluster_view import ClusterView, RecordedPartition
from pyhooks.checkers.record_view import Attempt, PartitionName, Records
from pyhooks.checkers.server_log_view import log_lines
from pyhooks.checkers.settling_times import BLIND_S, NS, SETTLE_S, Ahead, Change, Excuse, Span
from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import TOO_FEW

# How long an attempt may take under normal conditions.
PATIENCE_S = 5.0
# replica.lag.time.max.ms, the default in all clusters of this project, and a second for requests in flight.
LAG_MAX_S = 31.0


@dataclass(frozen=True)
class SettledWindow:
    """An interval in which a partition's state was known, settled, and called for one outcome."""

    from_ns: int  # start, monotonic
    to_ns: int  # end
    enough: bool  # whether replicas and racks in the ISR are enough to acknowledge
    observation: RecordedPartition  # an observation of the state
    ahead: Ahead  # since when leaders may have followed other states

    @property
    def isr_text(self) -> str:
        """Members of the ISR and their racks."""
        return f"ISR {list(self.observation.isr)} in rack(s) {', '.join(self.observation.isr_racks)}"

    def excuse(self, attempt: Attempt) -> Excuse:
        """Return which other state an attempt that contradicts this one may have followed."""
        return self.ahead.excuse(attempt) if settling_times.follows(attempt, enough=not self.enough) else ""

    def judges(self, attempt: Attempt) -> bool:
        """Return whether an attempt is entirely within the window and did not follow the state observed next."""
        within = self.from_ns <= attempt.sent_ns and attempt.done_ns <= self.to_ns
        return within and self.excuse(attempt) != "next"


def windows(partition: PartitionName, cluster: ClusterView, settle_ns: int) -> Iterator[SettledWindow]:
    """Yield the settled intervals of a partition: from first to last observation of a state, less the settling time.

    Time under a fault counts only once no affected broker leads or is in sync: until then observations may be outdated.
    The same applies after the heal until it is proved and has settled. Time in which settings change does not count.
    Partitions from some racks only exclude less time, see ``RecordedFault.may_outdate``.
    """
    edges = cluster.settings.edges(partition.topic)
    for part in settling_times.state_intervals(partition, cluster, settle_ns):
        if part.enough is not None:
            piece, observation = part.piece, part.observations[0]
            changed_ns = max([observation.at_ns, *(edge_ns for edge_ns in edges if edge_ns <= piece.from_ns)])
            from_ns = max(piece.from_ns, changed_ns + settle_ns)
            if from_ns < piece.to_ns:
                yield SettledWindow(from_ns, piece.to_ns, part.enough, observation, piece.ahead)


def unobserved_attempts(observations: Sequence[RecordedPartition], attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts that were in flight while the partition was not observed.

    That is between observations further apart than ``BLIND_S``, before the first observation, or after the last one.
    """
    if not observations:
        return list(attempts)
    moments = [observation.at_ns for observation in observations]
    gaps = [(before, after) for before, after in pairwise(moments) if after - before > BLIND_S * NS]
    gaps += [(-1, moments[0]), (moments[-1], settling_times.NEVER_NS)]
    return [
        attempt
        for attempt in attempts
        if any(attempt.done_ns > begin_ns and attempt.sent_ns < end_ns for begin_ns, end_ns in gaps)
    ]


def check_progress(events: Sequence[Event], *, settle_s: float = SETTLE_S, attempts_min: int = 1) -> Verdict:
    """Check that attempts in every settled interval end as M, R, placement and ISR demand.

    While the ISR is sufficient (enough replicas and racks), these are wrong:

    * a rejection due to too few replicas or racks;
    * an interval without any acknowledgement, if an attempt finished or was waited for longer than ``PATIENCE_S``,
      unless a returning replica may hold it up (see ``_catch_up_times``).

    A single attempt without an acknowledgement is unknown. The exception is an attempt that timed out within
    ``PATIENCE_S`` with a batch begun before the interval, if others are acknowledged.

    While the ISR is insufficient, an acknowledgement of an attempt sent in the interval is wrong, and of one sent
    before it unknown. The same applies where the state changes too often for an interval to settle, but the expected
    outcome stays the same: after ``settle_s`` any other outcome is wrong.

    The requested settings are required: where the history has them, a broker that reports others is wrong, see
    ``RequirementTimeline.strays``.

    While a change settles, attempts are not judged, only noted. The same applies to attempts that follow a change up to
    ``LAG_S`` before observations show it; if no observation shows what they may have followed, they are unknown. The
    measured settling time (see ``pyhooks.checkers.settling_times``) is a note, too. A change that attempts contradict
    and that none follows is unknown.

    Also unknown:

    * no settled interval at all;
    * an interval in which fewer than ``attempts_min`` attempts began, though a producer ran for ``PATIENCE_S`` of it;
    * attempts while the partition was not observed (see ``unobserved_attempts``);
    * attempts that contradict observations under a fault, where nothing is judged, unless logs show that a broker that
      came back was removed from the ISR meanwhile (see ``pyhooks.checkers.broker_returns``);
    * attempts that are not judged because a heal is not proved, or settings never settled;
    * a partition without any judged attempt, or without one while its ISR was sufficient, or insufficient, though a
      producer ran for ``PATIENCE_S`` of such an interval.

    An insufficient interval needs no attempts if it continues one in which attempts were judged, since patient
    producers begin none there: a heal of other brokers separates the two, and nothing changed in between (see
    ``_continues``).

    Args:
        events: a whole history. Its clients must have been able to reach all leaders that are not under a fault.
        settle_s: how long a change may take from its first observation until all brokers follow it, in seconds.
        attempts_min: minimum number of attempts in each interval of at least ``PATIENCE_S``, unless it continues
            another as above.
    """
    records = Records(events)
    cluster = ClusterView.of(events)
    failed_ns, returned = cluster_view.failed_observations(events), returns(log_lines(events))
    findings = Findings(missing=records.unrecorded())
    changes: list[Change] = []
    settle_ns = round(settle_s * NS)
    attempts_by_partition = settling_times.attempts_of(records)
    if not attempts_by_partition:
        findings.missing.append("no attempt in the history")
    for partition, attempts in sorted(attempts_by_partition.items()):
        topic, observed = partition.topic, cluster.of_partition(partition)
        strays = cluster.settings.strays(topic, cluster.faults, settle_ns)
        findings.wrong += [stray for stray in strays if stray not in findings.wrong]
        if topic not in cluster.settings.topics:
            findings.missing.append(f"{topic}: its required replicas and racks are unknown")
            continue
        known = list(windows(partition, cluster, settle_ns))
        if not known:
            findings.missing.append(f"{partition}: no settled interval was observed")
        if unseen := unobserved_attempts(observed, attempts):
            failed = sum(unseen[0].sent_ns <= at_ns <= unseen[-1].done_ns for at_ns in failed_ns)
            findings.missing.append(
                f"{partition}: not observed during {len(unseen)} attempts, the first is {unseen[0].key}"
                f" ({failed} failed observations)"
            )
        unjudged = [attempt for attempt in attempts if not any(window.judges(attempt) for window in known)]
        if unjudged:
            findings.notes.append(
                f"{partition}: {len(unjudged)} of {len(attempts)} attempts are not judged: a change, a fault, or no"
                " observation"
            )
        _check_doubtful(
            partition,
            cluster,
            unjudged,
            rejected_after_returns(topic, observed, attempts, returned, cluster.settings),
            settle_ns,
            findings,
        )
        findings.missing += _unproved_heals(partition, cluster, unjudged)
        begun_ns = cluster.settings.unsettled_ns(topic)
        if begun_ns is not None and (after := [attempt for attempt in unjudged if attempt.sent_ns > begun_ns]):
            findings.missing.append(
                f"{partition}: no evidence that a change of settings settled, so {len(after)} attempts after it are not"
                f" judged, the first is {after[0].key}"
            )
        _check_windows(partition, cluster, known, attempts, records.run_times(topic), attempts_min, findings)
        for span in settling_times.spans(partition, cluster, settle_ns):
            change = settling_times.change_of(span, attempts)
            changes += [change] if change is not None else []
            late = settling_times.late_attempts(span, unjudged, settle_ns)
            _check_span(partition, span, change, late, settle_s, findings)
    topics = sorted({partition.topic for partition in attempts_by_partition})
    findings.notes.append(settling_times.summarize(changes, cluster.settings, topics, settle_s).text)
    return findings.verdict("progress")


def _check_doubtful(
    partition: PartitionName,
    cluster: ClusterView,
    unjudged: Sequence[Attempt],
    after_returns: Sequence[Attempt],
    settle_ns: int,
    findings: Findings,
) -> None:
    """Check attempts that contradict observations under a fault: these may be outdated, which is not certain."""
    without_faults = replace(cluster, faults=())
    contradicting = [
        attempt
        for span in settling_times.spans(partition, without_faults, settle_ns)
        for attempt, excuse in settling_times.late_attempts(span, unjudged, settle_ns)
        if not excuse
    ]
    explained = [attempt for attempt in after_returns if attempt in contradicting]
    if explained:
        lasted_s = (explained[-1].done_ns - explained[0].sent_ns) / NS
        findings.notes.append(
            f"{partition}: {len(explained)} attempts were rejected within {lasted_s:.1f} s while a broker that came"
            " back was out of the ISR, as the controller logged"
        )
    if doubtful := [attempt for attempt in contradicting if attempt not in explained]:
        findings.missing.append(
            f"{partition}: {len(doubtful)} attempts contradict observations that a fault makes doubtful, the first is"
            f" {doubtful[0].key}"
        )


def _check_windows(
    partition: PartitionName,
    cluster: ClusterView,
    known: Sequence[SettledWindow],
    attempts: Sequence[Attempt],
    run_times: Sequence[tuple[float, float]],
    attempts_min: int,
    findings: Findings,
) -> None:
    """Check the attempts in all settled intervals of a partition."""
    judged: defaultdict[bool, int] = defaultdict(int)
    # The insufficient interval in which attempts were judged last, as long as nothing has changed since.
    tried: SettledWindow | None = None
    for window in known:
        continues = tried is not None and _continues(tried, window, partition, cluster)
        # Without a running producer no attempts are expected.
        long = _producer_ns(window, run_times) >= PATIENCE_S * NS
        began = sum(window.from_ns <= attempt.sent_ns < window.to_ns for attempt in attempts)
        if long and not continues and began < attempts_min:
            lasted_s = (window.to_ns - window.from_ns) / NS
            findings.missing.append(f"{_state(partition, window)}: {began} attempts in {lasted_s:.1f} s")
        if window.enough:
            count = _check_sufficient(
                partition, window, attempts, _catch_up_times(window.observation, cluster), findings
            )
        else:
            count = _check_insufficient(partition, window, attempts, findings)
        tried = window if count and not window.enough else tried if continues else None
        if count or long:
            judged[window.enough] += count
    if known and not judged:
        findings.missing.append(f"{partition}: no attempt could be judged")
    findings.missing += [
        f"{partition}: no attempt could be judged while its ISR was {'enough' if enough else 'too few'}"
        for enough, count in sorted(judged.items())
        if not count
    ]


def _producer_ns(window: SettledWindow, run_times: Sequence[tuple[float, float]]) -> float:
    """Return the longest time for which one producer ran in a window, in nanoseconds; 0 or less if none did."""
    return max(min(window.to_ns, to_ns) - max(window.from_ns, from_ns) for from_ns, to_ns in run_times)


def _continues(before: SettledWindow, window: SettledWindow, partition: PartitionName, cluster: ClusterView) -> bool:
    """Return whether two windows with an insufficient ISR are one: nothing that affects outcomes changed in between.

    This requires the same state in every observation, observations without a gap, constant settings, and no fault that
    makes the observations doubtful (``RecordedFault.may_outdate``).
    """
    if before.enough or window.enough:
        return False
    observed = [
        observation
        for observation in cluster.of_partition(partition)
        if before.from_ns <= observation.at_ns <= window.to_ns
    ]
    if {observation.state for observation in observed} != {window.observation.state}:
        return False
    if any(later.at_ns - earlier.at_ns > BLIND_S * NS for earlier, later in pairwise(observed)):
        return False
    if len(cluster.settings.possible(partition.topic, before.from_ns, window.to_ns)) != 1:
        return False
    return not any(
        fault.may_outdate(window.observation)
        and fault.inject_ns < window.to_ns
        and (math.inf if fault.healed_ns is None else fault.healed_ns) > before.from_ns
        for fault in cluster.faults
    )


def _catch_up_times(observation: RecordedPartition, cluster: ClusterView) -> list[tuple[int, int]]:
    """Return when the high watermark may wait for a returning replica, though all ISR members have the record.

    Kafka's leader also waits for a replica outside the ISR that was caught up within replica.lag.time.max.ms and whose
    broker is unfenced (Partition.maybeIncrementLeaderHW). After a short network partition the broker is unfenced
    before TCP retransmits its fetches.
    """
    outside = [broker for broker in observation.replicas if broker not in observation.isr]
    return [
        (fault.heal_ns, fault.inject_ns + round(LAG_MAX_S * NS))
        for fault in cluster.faults
        if fault.heal_ns is not None and any(fault.keeps_out(broker, observation) for broker in outside)
    ]


def _unproved_heals(partition: PartitionName, cluster: ClusterView, unjudged: Sequence[Attempt]) -> Iterator[str]:
    """Describe unproved heals due to which attempts are not judged: without an end, these would excuse anything."""
    for fault in cluster.faults:
        if fault.heal_ns is None or (fault.healed_ns is not None and not fault.doubted):
            continue
        outdated = [observation for observation in cluster.of_partition(partition) if fault.may_outdate(observation)]
        to_ns = fault.healed_ns if fault.healed_ns is not None else outdated[-1].at_ns if outdated else 0
        if after := [attempt for attempt in unjudged if fault.heal_ns < attempt.sent_ns <= to_ns]:
            yield (
                f"{partition}: a heal of {fault.op} was not proved, so {len(after)} attempts after it are not judged,"
                f" the first is {after[0].key}"
            )


def _check_span(
    partition: PartitionName,
    span: Span,
    change: Change | None,
    late: Sequence[tuple[Attempt, Excuse]],
    settle_s: float,
    findings: Findings,
) -> None:
    """Check a change, and the outcomes expected from then on."""
    now = "enough" if span.enough else "too few"
    for attempt, excuse in late:
        since_s = (attempt.sent_ns - span.from_ns) / NS
        reason = f"{partition}: {now} for {since_s:.1f} s, in changing states, and record {attempt.key} was"
        findings.add(f"{reason} {_result(attempt)}", certain=not excuse)
    if change is None or not change.old:
        return
    reason = f"{partition}: outcomes followed the previous state for {change.lag_s:.1f} s after it was {now}"
    if change.certain and change.certain[-1].sent_ns - span.from_ns >= settle_s * NS:
        findings.wrong.append(f"{reason}: the change did not take effect within {settle_s:g} s")
    elif not change.followed:
        findings.missing.append(f"{reason}, and no outcome was seen to follow the change")


def _result(attempt: Attempt) -> str:
    return "acknowledged" if attempt.outcome == "ok" else f"rejected with {attempt.exception}"


def _state(partition: PartitionName, window: SettledWindow) -> str:
    return f"{partition}: {window.isr_text}, leader {window.observation.leader}"


def _check_insufficient(
    partition: PartitionName, window: SettledWindow, attempts: Sequence[Attempt], findings: Findings
) -> int:
    """Check that nothing is acknowledged in a window with an insufficient ISR; return the number of judged attempts."""
    for attempt in attempts:
        excuse = window.excuse(attempt)
        if attempt.outcome == "ok" and window.from_ns <= attempt.done_ns <= window.to_ns and excuse != "next":
            reason = f"{_state(partition, window)}: too few, and record {attempt.key} was acknowledged"
            findings.add(reason, certain=attempt.sent_ns >= window.from_ns and not excuse)
    return sum(window.judges(attempt) and attempt.sent_ns < window.to_ns for attempt in attempts)


def _check_sufficient(
    partition: PartitionName,
    window: SettledWindow,
    attempts: Sequence[Attempt],
    catch_up_times: Sequence[tuple[int, int]],
    findings: Findings,
) -> int:
    """Check that attempts are acknowledged in a window with a sufficient ISR; return the number of judged attempts."""
    state, patience_ns = _state(partition, window), PATIENCE_S * NS
    began = [attempt for attempt in attempts if window.from_ns <= attempt.sent_ns < window.to_ns]
    inside = [attempt for attempt in began if window.judges(attempt)]
    stuck = [
        attempt for attempt in began if attempt.done_ns > window.to_ns and window.to_ns - attempt.sent_ns > patience_ns
    ]
    acked = sum(attempt.outcome == "ok" for attempt in inside)
    for attempt in inside:
        if attempt.exception in TOO_FEW:
            reason = f"{state}: enough, and record {attempt.key} was {_result(attempt)}"
            findings.add(reason, certain=not window.excuse(attempt))
    failed = [attempt for attempt in inside if attempt.outcome != "ok" and attempt.exception not in TOO_FEW] + stuck
    waiting = [
        attempt
        for attempt in failed
        if any(attempt.done_ns > from_ns and attempt.sent_ns < to_ns for from_ns, to_ns in catch_up_times)
    ]
    failed = [attempt for attempt in failed if attempt not in waiting]
    # They joined a batch begun before the window, and had only the rest of its time.
    older = [
        attempt
        for attempt in failed
        if acked and attempt.batch_ns < window.from_ns and attempt.done_ns - window.from_ns <= patience_ns
    ]
    failed = [attempt for attempt in failed if attempt not in older]
    if waiting:
        findings.notes.append(f"{state}: {len(waiting)} attempts waited for a returning replica")
    if older:
        findings.notes.append(f"{state}: {len(older)} attempts timed out with a batch begun before")
    certain_ns = window.ahead.from_ns
    if not acked and any(
        attempt.done_ns <= certain_ns or certain_ns - attempt.sent_ns > patience_ns for attempt in failed
    ):
        findings.wrong.append(f"{state}: enough, and none of {len(inside) + len(stuck)} attempts was acknowledged")
    # Later attempts may have followed the state observed next.
    elif unclear := [attempt for attempt in failed if not acked or attempt.done_ns <= window.ahead.moved_ns]:
        exception = unclear[0].exception or "no result in time"
        findings.missing.append(
            f"{state}: enough, and {len(unclear)} attempts were not acknowledged, the first: {exception}"
        )
    return len(inside) + len(stuck) - len(waiting)
