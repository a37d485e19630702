"""Checkers that need only a history, by name.

Each takes ``events``, those of a whole history. Where settling times matter, it also takes ``settle_s``: the seconds
granted to a change of ISR, leader or settings to take effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature

from pyhooks.checkers import (
    client_retries,
    connect_counts,
    copied_records,
    crashes,
    default_producer,
    delivery,
    faults,
    feature_levels,
    gauges,
    group_comparison,
    groups,
    idle_topics,
    known_errors,
    late_requests,
    log_flood,
    many_partitions,
    offsets,
    phases,
    placement_reports,
    polls,
    progress,
    promise,
    rack_spread,
    realtime_order,
    recovery,
    rejections,
    remote_segments,
    replica_reads,
    request_versions,
    resource_growth,
    share_groups,
    slowdown,
    streams_output,
    transaction_recovery,
    transactions,
    visibility,
)
from pyhooks.checkers.cluster_view import PROVED
from pyhooks.checkers.verdict import Verdict
from pyhooks.history import events
from pyhooks.history.event_log import Details, Event
from pyhooks.history.outcomes import TOO_FEW

Check = Callable[..., Verdict]


@dataclass(frozen=True)
class Checker:
    """A registered checker."""

    check: Check  # function from a history's events to a verdict
    subject: str  # what it checks, for output
    # whether an event makes the checker applicable; without such an event its verdict could only be unknown
    applies: Callable[[Event], bool]

    @property
    def settles(self) -> bool:
        """Whether ``check`` takes ``settle_s``."""
        return "settle_s" in signature(self.check).parameters


def _kind(*kinds: type[Details]) -> Callable[[Event], bool]:
    return lambda event: any(kind.describes(event) for kind in kinds)


def _outage(event: Event) -> bool:
    fault = events.FaultDetails.of(event)
    return (
        fault is not None
        and (fault.step, event.outcome) == (PROVED, "ok")
        and rack_spread.isolates(event.op, fault.peers)
    )


def _transactional(event: Event) -> bool:
    produced = events.ProduceDetails.of(event)
    return events.TransactionDetails.describes(event) or (produced is not None and produced.txn is not None)


def _rejected(event: Event) -> bool:
    result = events.ProduceDetails.of(event) or events.TransactionDetails.of(event)
    return result is not None and result.exception in TOO_FEW


def _with_defaults(event: Event) -> bool:
    produced = events.ProduceDetails.of(event)
    return produced is not None and bool(produced.defaults)


# Applicable to any history of a cluster under load.
GENERAL: Mapping[str, Checker] = {
    "faults": Checker(faults.check_faults, "every fault took hold, lasted and was healed", _kind(events.FaultDetails)),
    "phases": Checker(
        partial(phases.check_phases, attempts_min=1), "attempts ended as the test expects", _kind(events.PhaseDetails)
    ),
    "delivery": Checker(
        delivery.check_delivery, "acknowledged records are read, rejected records are not", _kind(events.ProduceDetails)
    ),
    "offsets": Checker(
        offsets.check_offsets, "each offset has one record, in the order of sending", _kind(events.ProduceDetails)
    ),
    "realtime_order": Checker(
        realtime_order.check_realtime_order,
        "a record acknowledged before another was sent has the lower offset",
        _kind(events.ProduceDetails),
    ),
    "transactions": Checker(
        transactions.check_transactions, "transactions are read as a whole or not at all", _transactional
    ),
    "promise": Checker(
        promise.check_promise,
        "acknowledged records are on disks in enough racks",
        _kind(events.DiskChunkDetails, events.DiskEndDetails),
    ),
    "spread": Checker(rack_spread.check_spread, "records acknowledged in an outage can be in enough racks", _outage),
    "progress": Checker(
        progress.check_progress,
        "records are acknowledged exactly while the ISR is sufficient",
        _kind(events.SettingsDetails),
    ),
    "rejections": Checker(rejections.check_rejections, "each rejection names its cause: replicas or racks", _rejected),
    "recovery": Checker(
        recovery.check_recovery,
        "partitions are in sync and acknowledge within a bound after a heal",
        _kind(events.FaultDetails),
    ),
}
# Applicable to specific tests: other histories are complete without their events.
OF_TESTS: Mapping[str, Checker] = {
    "defaults": Checker(
        default_producer.check_defaults, "a default producer reports a rejection as a timeout", _with_defaults
    ),
    "visibility": Checker(
        visibility.check_visibility,
        "records with acks=1 are hidden until the ISR is sufficient",
        _kind(events.VisibleDetails),
    ),
    "polls": Checker(
        polls.check_polls,
        "consumers receive each record once, in order, and only if it is committed",
        _kind(
            events.FollowDetails,
            events.VisibleDetails,
            events.FetchDetails,
            events.ArrivalsDetails,
        ),
    ),
    "late": Checker(
        late_requests.check_late_requests,
        "requests that arrive after their client gave up stay in their transaction",
        _kind(events.AppendedDetails),
    ),
    "replicas": Checker(
        replica_reads.check_replica_reads,
        "no replica shows records beyond the high watermark",
        _kind(events.ReplicaReadDetails),
    ),
    "remote": Checker(
        remote_segments.check_remote_segments,
        "remote storage has committed records only, and gets them while the ISR is sufficient",
        _kind(events.RemoteSegmentsDetails),
    ),
    "idle": Checker(
        idle_topics.check_idle,
        "waiting records of an idle topic are shown when R is lowered",
        _kind(events.IdleDetails),
    ),
    "copied": Checker(
        copied_records.check_copied,
        "each record is copied once, with its group's offsets in the same transaction",
        _kind(events.CopyDetails),
    ),
    "unstuck": Checker(
        transaction_recovery.check_transaction_recovery,
        "committed records are read and written again after a heal",
        _kind(events.FollowDetails),
    ),
    "groups": Checker(
        groups.check_groups,
        "groups commit and rebalance exactly while the ISR of their coordinator's partition is sufficient",
        _kind(events.MemberDetails),
    ),
    "alike": Checker(
        group_comparison.check_group_comparison,
        "with enough racks, the number of required racks does not affect groups",
        _kind(events.AlikeDetails),
    ),
    "shares": Checker(
        share_groups.check_share_groups,
        "share groups acknowledge exactly while the ISR of their state is sufficient, and deliver all records",
        _kind(events.ShareMemberDetails),
    ),
    "connected": Checker(
        connect_counts.check_connect_counts,
        "a source of Connect writes each number once and a sink receives each, exactly while the ISR is sufficient",
        _kind(events.ConnectDetails),
    ),
    "processed": Checker(
        streams_output.check_streams_output,
        "a stream processor counts each record exactly once",
        _kind(events.StreamsDetails),
    ),
    "levels": Checker(
        feature_levels.check_levels,
        "the feature is switched and racks are required where a cluster allows it",
        _kind(events.LevelDetails),
    ),
    "versions": Checker(
        request_versions.check_versions,
        "a client uses the same versions with all brokers",
        _kind(events.VersionsDetails),
    ),
    "warned": Checker(
        placement_reports.check_placement_reports,
        "controllers report partitions that were moved into too few racks, and no others",
        _kind(events.MoveDetails),
    ),
    "known": Checker(
        known_errors.check_known_errors, "clients receive only errors that they know", _kind(events.KnownErrorsDetails)
    ),
    "rides": Checker(
        client_retries.check_client_retries,
        "clients ride out an outage by their own retries",
        _kind(events.RideDetails),
    ),
    "metrics": Checker(
        gauges.check_metrics, "gauges of the gate are correct, at most 2 s late", _kind(events.MetadataEndDetails)
    ),
    "meter": Checker(
        gauges.check_meter, "the meter counts the rejections that clients got", _kind(events.MetadataEndDetails)
    ),
    "flood": Checker(
        log_flood.check_flood,
        "brokers log a rack shortage once, and not each rejection",
        _kind(events.LoggingNodesDetails, events.LogLinesDetails, events.LogEndDetails),
    ),
    "crashes": Checker(
        crashes.check_crashes, "no node ended by itself or logged an internal fault", _kind(events.NodeDetails)
    ),
    "flat": Checker(
        resource_growth.check_growth,
        "no process keeps growing in memory or open files",
        _kind(events.ResourcesDetails),
    ),
    "slowdown": Checker(
        slowdown.check_slowdown,
        "rejecting records slows other topics no more than accepting them",
        _kind(events.BlockDetails),
    ),
    "stops": Checker(
        many_partitions.check_stops,
        "patched Kafka rejects probes in each outage, stock Kafka never does",
        _kind(events.ReachedDetails),
    ),
}
CHECKERS: Mapping[str, Checker] = {**GENERAL, **OF_TESTS}
