"""JSON form of a snapshot, with stable keys. Every rate is per second; null means that a value was not observed.

* ``schema``: 1; keys may be added under the same number, none is renamed or removed.
* ``wall_ms``, ``mono_ns``: time of the snapshot; ``interval_s``: seconds since the previous object, null in the first.
* ``cluster``; ``racks``: names; ``racks_enforced``: whether an R above 1 is in force, by the cluster's features;
  ``problems``: descriptions of what could not be observed.
* ``brokers``: ``id``, ``rack``, ``state`` (up, mute, fenced, paused, down, gone, unknown), ``leads``,
  ``messages_in_per_s``, ``rack_check_failures`` (a count), ``rack_check_failures_per_s``, ``under_min_rack_isr``,
  ``at_min_rack_isr``, ``under_replicated``, ``produce_errors_per_s`` (by code).
* ``partitions``, worst first: ``topic``, ``partition``, ``leader`` (-1: none), ``replicas``, ``isr``,
  ``isr_racks``, ``leader_isr_racks`` (by the leader's own metric), ``min_racks`` (1 if R is not in force),
  ``min_replicas`` (as configured, both capped by the number of replicas), ``high_watermark``, ``log_end``, ``hw``
  (moving, back, frozen, still, unknown), ``hw_per_s``, ``hw_still_s``, ``produce`` (``ok_per_s``, ``refused_per_s``,
  ``unknown_per_s``, ``whole_topic``) or null without a history, ``failed_produce_per_s`` (the topic's, by the brokers),
  ``level`` (down, unknown, risk, warn, ok), ``verdict``.
* ``faults``: ``op``, ``rack``, ``target``, ``state`` (injecting, active, unproved, healing, healed), ``for_s``.
* ``gate``: ``brokers_known``, ``rack_check_failures_per_s``, ``under_min_rack_isr``, ``at_min_rack_isr``,
  ``under_min_isr``, ``under_replicated``, ``offline``, ``produce_errors_per_s``.
* ``counts``: partitions by level.
"""

from __future__ import annotations

import json
from typing import Any

from pyhooks.watch.states import LEVELS, BrokerSummary, OutcomeRates, PartitionSummary, Snapshot

SCHEMA = 1


def as_json(snapshot: Snapshot) -> str:
    """Return a snapshot as one line of JSON without a newline; the module's docstring lists the keys."""
    return json.dumps(document(snapshot), separators=(",", ":"))


def document(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as a JSON object."""
    seen, gate = snapshot.observation, snapshot.gate
    return {
        "schema": SCHEMA,
        "wall_ms": seen.wall_ms,
        "mono_ns": seen.mono_ns,
        "interval_s": _short(snapshot.interval_s),
        "cluster": seen.cluster,
        "racks": list(snapshot.racks),
        "racks_enforced": seen.racks_enforced,
        "counts": {level: snapshot.count(level) for level in LEVELS},
        "faults": [
            {"op": one.op, "rack": one.rack, "target": one.target, "state": one.state, "for_s": _short(one.for_s)}
            for one in snapshot.faults
        ],
        "gate": {
            "brokers_known": gate.nodes_known,
            "rack_check_failures_per_s": _short(gate.rack_failures_per_s),
            "under_min_rack_isr": gate.under_min_racks,
            "at_min_rack_isr": gate.at_min_racks,
            "under_min_isr": gate.under_min_replicas,
            "under_replicated": gate.under_replicated,
            "offline": gate.offline,
            "produce_errors_per_s": {name: _short(rate) for name, rate in gate.produce_errors_per_s.items()},
        },
        "brokers": [_broker(one) for one in snapshot.brokers],
        "partitions": [_partition(one) for one in snapshot.partitions],
        "problems": list(seen.problems),
    }


def _short(value: float | None) -> float | None:
    return round(value, 3) if value is not None else None


def _broker(one: BrokerSummary) -> dict[str, Any]:
    return {
        "id": one.broker,
        "rack": one.rack,
        "state": one.state,
        "leads": one.leads,
        "messages_in_per_s": _short(one.messages_in_per_s),
        "rack_check_failures": one.rack_failures,
        "rack_check_failures_per_s": _short(one.rack_failures_per_s),
        "under_min_rack_isr": one.under_min_racks,
        "at_min_rack_isr": one.at_min_racks,
        "under_replicated": one.under_replicated,
        "produce_errors_per_s": {name: _short(rate) for name, rate in one.produce_errors_per_s.items()},
    }


def _partition(one: PartitionSummary) -> dict[str, Any]:
    return {
        "topic": one.observed.topic,
        "partition": one.observed.partition,
        "level": one.level,
        "verdict": one.verdict,
        "leader": one.observed.leader,
        "replicas": list(one.observed.replicas),
        "isr": list(one.observed.isr) if one.observed.isr is not None else None,
        "isr_racks": one.isr_racks,
        "leader_isr_racks": one.leader_racks,
        "min_racks": one.min_racks,
        "min_replicas": one.min_replicas,
        "high_watermark": one.observed.high_watermark,
        "log_end": one.log_end,
        "hw": one.motion,
        "hw_per_s": _short(one.hw_per_s),
        "hw_still_s": _short(one.still_s),
        "produce": _outcomes(one.outcomes),
        "failed_produce_per_s": _short(one.failed_per_s),
    }


def _outcomes(one: OutcomeRates | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "ok_per_s": _short(one.ok_per_s),
        "refused_per_s": _short(one.refused_per_s),
        "unknown_per_s": _short(one.unknown_per_s),
        "whole_topic": one.whole_topic,
    }
