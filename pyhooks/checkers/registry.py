"""Checkers that need only a history, by name.

Each takes the events of a whole history. Where settling times matter, it also takes ``settle_s``: the seconds granted
to a change of ISR, leader or settings to take effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature

from pyhooks.checkers import (
    feature_levels,
    group_comparison,
    idle_topics,
    many_partitions,
    placement_reports,
    request_versions,
    slowdown,
)
from pyhooks.checkers.client_retries import check_rides
from pyhooks.checkers.cluster_view import PROVED
from pyhooks.checkers.copied_records import check_copied
from pyhooks.checkers.crashes import check_crashes
from pyhooks.checkers.default_producer import check_defaults
from pyhooks.checkers.delivery import check_delivery
from pyhooks.checkers.faults import check_faults
from pyhooks.checkers.gauges import check_meter, check_metrics
from pyhooks.checkers.groups import check_groups
from pyhooks.checkers.known_errors import check_known_errors
from pyhooks.checkers.log_flood import check_flood
from pyhooks.checkers.offsets import check_offsets
from pyhooks.checkers.phases import check_phases
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.rack_spread import check_spread, isolates
from pyhooks.checkers.recovery import check_recovery
from pyhooks.checkers.refusals import check_refusals
from pyhooks.checkers.transaction_recovery import check_unstuck
from pyhooks.checkers.transactions import check_transactions
from pyhooks.checkers.verdict import Verdict
from pyhooks.checkers.visibility import check_visibility
from pyhooks.history.event_log import Details, Event
from pyhooks.history.events import (
    AlikeDetails,
    BlockDetails,
    CopyDetails,
    DiskChunkDetails,
    DiskEndDetails,
    FaultDetails,
    FollowDetails,
    IdleDetails,
    KnownErrorsDetails,
    LevelDetails,
    LogEndDetails,
    LoggingNodesDetails,
    LogLinesDetails,
    MemberDetails,
    MetadataEndDetails,
    MoveDetails,
    NodeDetails,
    PhaseDetails,
    ProduceDetails,
    ReachedDetails,
    RideDetails,
    SettingsDetails,
    TransactionDetails,
    VersionsDetails,
    VisibleDetails,
)
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
    fault = FaultDetails.of(event)
    return fault is not None and (fault.step, event.outcome) == (PROVED, "ok") and isolates(event.op, fault.peers)


def _transactional(event: Event) -> bool:
    produced = ProduceDetails.of(event)
    return TransactionDetails.describes(event) or (produced is not None and produced.txn is not None)


def _refused(event: Event) -> bool:
    result = ProduceDetails.of(event) or TransactionDetails.of(event)
    return result is not None and result.exception in TOO_FEW


def _with_defaults(event: Event) -> bool:
    produced = ProduceDetails.of(event)
    return produced is not None and bool(produced.defaults)


# Applicable to any history of a cluster under load.
GENERAL: Mapping[str, Checker] = {
    "faults": Checker(check_faults, "every fault took hold, lasted and was healed", _kind(FaultDetails)),
    "phases": Checker(partial(check_phases, attempts_min=1), "attempts ended as the test expects", _kind(PhaseDetails)),
    "delivery": Checker(
        check_delivery, "acknowledged records are read, rejected records are not", _kind(ProduceDetails)
    ),
    "offsets": Checker(check_offsets, "each offset has one record, in the order of sending", _kind(ProduceDetails)),
    "transactions": Checker(check_transactions, "transactions are read as a whole or not at all", _transactional),
    "promise": Checker(
        check_promise, "acknowledged records are on disks in enough racks", _kind(DiskChunkDetails, DiskEndDetails)
    ),
    "spread": Checker(check_spread, "records acknowledged in an outage can be in enough racks", _outage),
    "progress": Checker(
        check_progress, "records are acknowledged exactly while the ISR is sufficient", _kind(SettingsDetails)
    ),
    "refusals": Checker(check_refusals, "each rejection names its cause: replicas or racks", _refused),
    "recovery": Checker(
        check_recovery, "partitions are in sync and acknowledge within a bound after a heal", _kind(FaultDetails)
    ),
}
# Applicable to specific tests: other histories are complete without their events.
OF_TESTS: Mapping[str, Checker] = {
    "defaults": Checker(check_defaults, "a default producer reports a rejection as a timeout", _with_defaults),
    "visibility": Checker(
        check_visibility, "records with acks=1 are hidden until the ISR is sufficient", _kind(VisibleDetails)
    ),
    "idle": Checker(
        idle_topics.check_idle, "waiting records of an idle topic are shown when R is lowered", _kind(IdleDetails)
    ),
    "copied": Checker(
        check_copied, "each record is copied once, with its group's offsets in the same transaction", _kind(CopyDetails)
    ),
    "unstuck": Checker(
        check_unstuck, "committed records are read and written again after a heal", _kind(FollowDetails)
    ),
    "groups": Checker(
        check_groups,
        "groups commit and rebalance exactly while the ISR of their coordinator's partition is sufficient",
        _kind(MemberDetails),
    ),
    "alike": Checker(
        group_comparison.check_alike,
        "with enough racks, the number of required racks does not affect groups",
        _kind(AlikeDetails),
    ),
    "levels": Checker(
        feature_levels.check_levels,
        "the feature is switched and racks are required where a cluster allows it",
        _kind(LevelDetails),
    ),
    "versions": Checker(
        request_versions.check_versions, "a client uses the same versions with all brokers", _kind(VersionsDetails)
    ),
    "warned": Checker(
        placement_reports.check_warned,
        "controllers report partitions that were moved into too few racks, and no others",
        _kind(MoveDetails),
    ),
    "known": Checker(check_known_errors, "clients receive only errors that they know", _kind(KnownErrorsDetails)),
    "rides": Checker(check_rides, "clients ride out an outage by their own retries", _kind(RideDetails)),
    "metrics": Checker(check_metrics, "gauges of the gate are correct, at most 2 s late", _kind(MetadataEndDetails)),
    "meter": Checker(check_meter, "the meter counts the rejections that clients got", _kind(MetadataEndDetails)),
    "flood": Checker(
        check_flood,
        "brokers log a rack shortage once, and not each rejection",
        _kind(LoggingNodesDetails, LogLinesDetails, LogEndDetails),
    ),
    "crashes": Checker(check_crashes, "no node ended by itself or logged an internal fault", _kind(NodeDetails)),
    "slowdown": Checker(
        slowdown.check_slowdown, "rejecting records slows other topics no more than accepting them", _kind(BlockDetails)
    ),
    "stops": Checker(
        many_partitions.check_stops,
        "patched Kafka rejects probes in each outage, stock Kafka never does",
        _kind(ReachedDetails),
    ),
}
CHECKERS: Mapping[str, Checker] = {**GENERAL, **OF_TESTS}
