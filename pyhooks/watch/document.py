"""JSON form of a snapshot, with stable keys. Every rate is per second; null means that a value was not observed.

* ``schema``: 1; keys may be added under the same number, none is renamed or removed.
* ``wall_ms``, ``mono_ns``: time of the snapshot; ``interval_s``: seconds since the previous object, null in the first.
* ``cluster``; ``racks``: names; ``racks_enforced``: whether an R above 1 is in force, by the cluster's features;
  ``problems``: descriptions of what could not be observed; ``counts``: partitions by level.
* ``brokers``, ``faults``, ``gate``: attributes of ``BrokerSummary``, ``FaultDisplay`` and ``GateTotals`` in
  ``pyhooks.watch.states``.
* ``partitions``, worst first: ``topic``, ``partition``, ``leader`` (-1: none), ``replicas``, ``isr``,
  ``high_watermark`` and attributes of ``PartitionSummary``; ``hw``, ``hw_per_s``, ``hw_still_s`` are its ``watermark``.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pyhooks.watch.states import LEVELS, PartitionSummary, Snapshot

SCHEMA = 1


def as_json(snapshot: Snapshot) -> str:
    """Return a snapshot as one line of JSON without a newline; the module's docstring lists the keys."""
    return json.dumps(document(snapshot), separators=(",", ":"))


def document(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as a JSON object."""
    observation = snapshot.observation
    rounded: dict[str, Any] = _rounded(
        {
            "schema": SCHEMA,
            "wall_ms": observation.wall_ms,
            "mono_ns": observation.mono_ns,
            "interval_s": snapshot.interval_s,
            "cluster": observation.cluster,
            "racks": snapshot.racks,
            "racks_enforced": observation.racks_enforced,
            "counts": {level: snapshot.count(level) for level in LEVELS},
            "faults": [asdict(fault) for fault in snapshot.faults],
            "gate": asdict(snapshot.gate),
            "brokers": [asdict(broker) for broker in snapshot.brokers],
            "partitions": [_partition(partition) for partition in snapshot.partitions],
            "problems": observation.problems,
        }
    )
    return rounded


def _rounded(value: Any) -> Any:
    """Return a JSON value with three decimals in each number and lists for tuples."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def _partition(partition: PartitionSummary) -> dict[str, Any]:
    observed, watermark = partition.observed, partition.watermark
    return {
        "topic": observed.topic,
        "partition": observed.partition,
        "level": partition.level,
        "verdict": partition.verdict,
        "leader": observed.leader,
        "replicas": observed.replicas,
        "isr": observed.isr,
        "isr_racks": partition.isr_racks,
        "leader_isr_racks": partition.leader_isr_racks,
        "min_racks": partition.min_racks,
        "min_replicas": partition.min_replicas,
        "high_watermark": observed.high_watermark,
        "log_end": partition.log_end,
        "hw": watermark.motion,
        "hw_per_s": watermark.per_s,
        "hw_still_s": watermark.still_s,
        "produce": None if partition.produce is None else asdict(partition.produce),
        "failed_produce_per_s": partition.failed_produce_per_s,
    }
