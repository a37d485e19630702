"""Outage phase: behaviour of each topic while a rack is unavailable, from the history and the observations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bench.load.spark_load import outcome_counts
from bench.plan.scenario import BenchArm, OutagePlan
from pyhooks.checkers.cluster_view import RecordedFault, RecordedPartition, faults, observations
from pyhooks.checkers.record_view import Attempt, PartitionName, attempt_of
from pyhooks.history.event_log import Event
from pyhooks.history.events import ProduceDetails
from pyhooks.history.outcomes import TOO_FEW, TOO_FEW_AFTER_APPEND

NS = 1_000_000_000
# Time after a rack has rejoined the ISR in which its followers catch up, in seconds.
CATCH_UP_S = 5.0
# Attempts sent within this time before a fault may wait for the rack, in seconds.
BEFORE_FAULT_S = 0.5
Behaviour = Literal["continued", "was rejected", "continued unprotected", "unknown"]
CONTINUED: Behaviour = "continued"
REJECTED: Behaviour = "was rejected"
UNPROTECTED: Behaviour = "continued unprotected"
UNKNOWN: Behaviour = "unknown"
# Errors of the gate: Java exceptions without their package, and librdkafka's names. Any other error is no rejection.
REJECTIONS = frozenset(name.rsplit(".", 1)[-1] for name in TOO_FEW | TOO_FEW_AFTER_APPEND)


@dataclass(frozen=True)
class SettledOutage:
    """Settled outage of one topic: from a settling time after the rack left its ISR until the heal begins."""

    topic: str  # name of the topic
    left_ns: int  # first observation of an ISR without the rack
    from_ns: int  # start
    to_ns: int  # end


def rack_fault(events: Iterable[Event], rack: str) -> RecordedFault | None:
    """Return the last fault of ``rack`` in the history, or None."""
    return next((fault for fault in reversed(faults(events)) if fault.rack == rack), None)


def is_proved(fault: RecordedFault | None) -> bool:
    """Return whether a fault took effect and lasted until its heal."""
    return fault is not None and fault.proved_ns is not None and fault.held_ns is not None


def isr_observations(events: Iterable[Event], arms: Iterable[BenchArm]) -> dict[str, Sequence[RecordedPartition]]:
    """Return all observations of the only partition of each arm's topic, by topic, in the order of time."""
    by_partition = observations(events)
    return {arm.topic: by_partition.get(PartitionName(arm.topic, 0), []) for arm in arms}


def settled_outage(
    topic: str, observations: Sequence[RecordedPartition], fault: RecordedFault | None, plan: OutagePlan
) -> SettledOutage | None:
    """Return the settled outage of a topic; None if the rack was not observed to leave its ISR in time."""
    if fault is None or fault.heal_ns is None:
        return None
    for observation in observations:
        if fault.inject_ns < observation.at_ns < fault.heal_ns and plan.rack not in observation.isr_racks:
            left_ns = observation.at_ns
            start_ns = left_ns + round(plan.settle_s * NS)
            return SettledOutage(topic, left_ns, start_ns, fault.heal_ns) if start_ns < fault.heal_ns else None
    return None


def in_isr_until(observations: Sequence[RecordedPartition], fault: RecordedFault | None, rack: str) -> int | None:
    """Return the request time of the last observation with the rack before the first one without it, under the fault.

    None if the rack was not observed to leave the ISR, or not observed in it before.
    """
    if fault is None or fault.heal_ns is None:
        return None
    until_ns = None
    for observation in observations:
        if observation.at_ns >= fault.heal_ns:
            break
        if rack in observation.isr_racks:
            until_ns = observation.since_ns
        elif observation.at_ns > fault.inject_ns:
            return until_ns
    return None


def without_rack(sent: Any, done: Any, fault: RecordedFault | None, had_ns: Any) -> Any:
    """Return whether a record was acknowledged without the rack having it; for numbers and for Spark columns.

    A record that was sent before the proof may be on the rack, with its acknowledgement on its way. A leader
    acknowledges only what all of the ISR have, so this ends when the rack leaves the ISR: records that the change of
    the ISR releases are not on the rack. There is no grace period.

    The acknowledgement arrived at ``done``, before the heal began; ``had_ns`` is the result of ``in_isr_until``.
    """
    proved_ns = (fault.proved_ns or fault.heal_ns or 0) if fault else 0
    after_proof = sent >= proved_ns
    return after_proof if had_ns is None else after_proof | (done > had_ns)


def probe_attempts(events: Iterable[Event], topic: str) -> list[Attempt]:
    """Return all attempts of the probe at ``topic``."""
    return [
        attempt_of(event, produced)
        for event, produced in ProduceDetails.each(events)
        if event.process == "probe" and produced.topic == topic
    ]


def exception_name(attempt: Attempt) -> str:
    """Return the exception of a failed attempt without its package; empty if there is none."""
    return (attempt.exception or "").rsplit(".", 1)[-1]


def is_rejection(attempt: Attempt) -> bool:
    """Return whether a gate rejected this attempt."""
    return attempt.outcome in ("fail", "unknown") and exception_name(attempt) in REJECTIONS


def behaviour(
    *,
    proved: bool,
    settled: bool,
    intended: int,
    acked: int,
    probe_acked: int,
    probe_rejected: int,
    fewest_racks: int | None,
    accepting_share: float,
) -> Behaviour:
    """Return what a topic did in its settled outage."""
    if not proved or not settled or intended == 0 or fewest_racks is None:
        return UNKNOWN
    if acked == 0 and probe_acked == 0 and probe_rejected > 0:
        return REJECTED
    # The load's client retries rejected records silently: only a probe that got acks shows that none was rejected.
    if acked >= accepting_share * intended and probe_acked > 0 and probe_rejected == 0:
        return CONTINUED if fewest_racks >= 2 else UNPROTECTED
    return UNKNOWN


def summarise(
    spark: SparkSession,
    raw: DataFrame,
    events: Sequence[Event],
    plan: OutagePlan,
    arms: Sequence[BenchArm],
    start_ns: int,
) -> dict[str, Any]:
    """Return the numbers of the outage phase from observations of ``bench.analysis.latency_analysis.read_raw``.

    Times are seconds from ``start_ns``, the start of the phase; those named ``…after…`` count from the fault or the
    heal.
    """
    fault = rack_fault(events, plan.rack)
    observed = isr_observations(events, arms)
    windows = {arm.topic: settled_outage(arm.topic, observed[arm.topic], fault, plan) for arm in arms}
    frame = raw.where("phase = 'outage'")
    had = {arm.topic: in_isr_until(observed[arm.topic], fault, plan.rack) for arm in arms}
    counts = _counts(spark, frame, fault, windows, had)
    attempts = {arm.topic: probe_attempts(events, arm.topic) for arm in arms}
    series = _series(frame, start_ns)
    silences = _silences(frame)
    numbers: dict[str, Any] = {
        "rack": plan.rack,
        "proved": is_proved(fault),
        "inject_s": _seconds(fault.inject_ns, start_ns) if fault else None,
        "heal_s": _seconds(fault.heal_ns, start_ns) if fault else None,
        "healed_s": _seconds(fault.healed_ns, start_ns) if fault else None,
        "length_s": plan.total_s,
        "rate_per_s": plan.rate_per_s,
        "probe_rate_per_s": plan.probe_rate_per_s,
        "settle_s": plan.settle_s,
        "accepting_share": plan.accepting_share,
        "topics": [
            _topic(arm, fault, windows[arm.topic], observed[arm.topic], plan, start_ns)
            | {"probe": _probe(attempts[arm.topic], fault, windows[arm.topic], had[arm.topic], start_ns)}
            | {"catch_up": catch_up(attempts[arm.topic], fault, observed[arm.topic], plan)}
            | counts.get(arm.topic, {})
            | {"series": series.get(arm.topic, []), "longest_silence_s": silences.get(arm.topic)}
            for arm in arms
        ],
    }
    add_behaviours(numbers)
    return numbers


def add_behaviours(outage: dict[str, Any]) -> None:
    """Add to each topic in the result of ``summarise`` what it did, as ``behaviour``."""
    for topic in outage["topics"]:
        topic["behaviour"] = behaviour(
            proved=outage["proved"],
            settled=topic["window_s"] is not None,
            intended=topic.get("settled_intended", 0),
            acked=topic.get("settled_acked", 0),
            probe_acked=topic["probe"]["settled_acked"],
            probe_rejected=topic["probe"]["settled_rejected"],
            fewest_racks=topic["fewest_racks"],
            accepting_share=outage["accepting_share"],
        )


def _topic(
    arm: BenchArm,
    fault: RecordedFault | None,
    window: SettledOutage | None,
    observations: Sequence[RecordedPartition],
    plan: OutagePlan,
    start_ns: int,
) -> dict[str, Any]:
    settled = [seen for seen in observations if window and window.from_ns <= seen.at_ns < window.to_ns]
    heal_ns = fault.heal_ns if fault else None
    back_ns = next((x.at_ns for x in observations if heal_ns and x.at_ns > heal_ns and plan.rack in x.isr_racks), None)
    changes = [
        *observations[:1],
        *(new for old, new in pairwise(observations) if (old.leader, old.isr) != (new.leader, new.isr)),
    ]
    return {
        "arm": arm.id,
        "label": arm.label,
        "topic": arm.topic,
        "replicas": list(arm.replicas),
        "window_s": None if window is None else [_seconds(window.from_ns, start_ns), _seconds(window.to_ns, start_ns)],
        "left_after_s": _seconds(window.left_ns, fault.inject_ns) if window and fault else None,
        "back_after_s": _seconds(back_ns, heal_ns),
        "fewest_racks": min((len(seen.isr_racks) for seen in settled), default=None),
        "isr": [
            {"at_s": _seconds(x.at_ns, start_ns), "leader": x.leader, "isr": list(x.isr), "racks": list(x.isr_racks)}
            for x in changes
        ],
        "looked_until_s": _seconds(observations[-1].at_ns, start_ns) if observations else None,
    }


def _seconds(at_ns: int | None, since_ns: int | None) -> float | None:
    return None if at_ns is None or since_ns is None else (at_ns - since_ns) / NS


def _probe(
    attempts: Sequence[Attempt],
    fault: RecordedFault | None,
    window: SettledOutage | None,
    had_ns: int | None,
    start_ns: int,
) -> dict[str, Any]:
    acked = [attempt for attempt in attempts if attempt.outcome == "ok"]
    rejected = [attempt for attempt in attempts if is_rejection(attempt)]
    settled = [attempt for attempt in attempts if window and window.from_ns <= attempt.done_ns < window.to_ns]
    heal_ns = fault.heal_ns if fault else None
    # a rejection after the heal is not an effect of the fault
    first_ns = next(
        (x.done_ns for x in rejected if fault and fault.inject_ns < x.done_ns < (heal_ns or math.inf)), None
    )
    return {
        "attempts": len(attempts),
        "acked": len(acked),
        "rejected": len(rejected),
        "other": len(attempts) - len(acked) - len(rejected),
        "exceptions": dict(Counter(exception_name(attempt) for attempt in attempts if attempt.outcome != "ok")),
        "settled_attempts": len(settled),
        "settled_acked": sum(attempt.outcome == "ok" for attempt in settled),
        "settled_rejected": sum(is_rejection(attempt) for attempt in settled),
        "acked_after_heal": sum(bool(heal_ns) and attempt.done_ns >= (heal_ns or 0) for attempt in acked),
        "acked_without_rack": sum(
            bool(without_rack(attempt.sent_ns, attempt.done_ns, fault, had_ns))
            for attempt in acked
            if attempt.done_ns < (heal_ns or 0)
        ),
        "rejected_at_s": [(attempt.done_ns - start_ns) / NS for attempt in rejected],
        "first_rejection_after_s": _seconds(first_ns, fault.inject_ns) if fault else None,
        "message": next((str(attempt.message) for attempt in rejected), None),
    }


def catch_up(
    attempts: Sequence[Attempt],
    fault: RecordedFault | None,
    observations: Sequence[RecordedPartition],
    plan: OutagePlan,
) -> dict[str, dict[str, float]] | None:
    """Return the durations of the probe's attempts before a fault and while the returned rack's followers catch up.

    The rack has rejoined when attempts are no longer rejected; on a topic without rejections, when an ISR with it is
    observed. An attempt without an acknowledgement counts with the time until its error.

    Returns:
        ``before`` and ``after``, each with ``attempts``, ``p50_ms`` and ``max_ms``; None if the rack was not observed
        to rejoin, or there is no attempt in one of the two periods.
    """
    if fault is None or fault.heal_ns is None:
        return None
    heal_ns = fault.heal_ns
    rejected = [attempt.sent_ns for attempt in attempts if is_rejection(attempt) and attempt.done_ns > fault.inject_ns]
    back = [x.at_ns for x in observations if x.at_ns > heal_ns and plan.rack in x.isr_racks]
    if not back:
        return None
    rejoined_ns = max(rejected) if rejected else back[0]
    periods = {
        "before": (0, fault.inject_ns - round(BEFORE_FAULT_S * NS)),
        "after": (rejoined_ns + 1, rejoined_ns + round(CATCH_UP_S * NS)),
    }
    durations_ms = {
        name: [(x.done_ns - x.sent_ns) / 1e6 for x in attempts if from_ns <= x.sent_ns < to_ns]
        for name, (from_ns, to_ns) in periods.items()
    }
    if not all(durations_ms.values()):
        return None
    return {
        name: {"attempts": len(values), "p50_ms": median(values), "max_ms": max(values)}
        for name, values in durations_ms.items()
    }


def _counts(
    spark: SparkSession,
    frame: DataFrame,
    fault: RecordedFault | None,
    windows: Mapping[str, SettledOutage | None],
    had: Mapping[str, int | None],
) -> dict[str, dict[str, Any]]:
    """Count the outcomes of the measured records of each topic, in total and in the settled outage."""
    rows = [
        (topic, window and window.from_ns, window and window.to_ns, had[topic]) for topic, window in windows.items()
    ]
    settled = spark.createDataFrame(rows, "topic string, from_ns long, to_ns long, had_ns long")
    # Without a fault in the history no record counts as sent under it.
    inject_ns, heal_ns = (fault.inject_ns, fault.heal_ns) if fault and fault.heal_ns else (0, 0)
    proved_ns = (fault.proved_ns if fault else None) or heal_ns
    acked = F.col("outcome") == "acked"
    inside = F.col("intended_ns").between(F.col("from_ns"), F.col("to_ns") - 1)
    sent_in_fault = (F.col("intended_ns") >= inject_ns) & (F.col("intended_ns") < heal_ns)
    in_fault = acked & sent_in_fault
    late = acked & (F.col("done_ns") >= heal_ns) & F.lit(heal_ns > 0)
    unavailable = acked & (F.col("done_ns") >= proved_ns) & (F.col("done_ns") < heal_ns)
    without = without_rack(F.col("sent_ns"), F.col("done_ns"), fault, F.col("had_ns"))
    counts = (
        frame.where("measured")
        .join(F.broadcast(settled), "topic", "left")
        .withColumn("held_ms", F.when(in_fault, F.col("latency_us") / 1000))
        .groupBy("topic")
        .agg(
            *outcome_counts(),
            F.count_if(inside).alias("settled_intended"),
            F.count_if(inside & acked & (F.col("done_ns") < F.col("to_ns"))).alias("settled_acked"),
            F.count_if(acked & F.col("done_ns").between(F.col("from_ns"), F.col("to_ns") - 1)).alias("settled_done"),
            F.count_if(sent_in_fault).alias("fault_intended"),
            F.count_if(in_fault & (F.col("done_ns") < heal_ns)).alias("fault_acked"),
            F.count_if(in_fault & (F.col("done_ns") >= heal_ns)).alias("acked_only_after_heal"),
            F.count_if(unavailable).alias("acked_while_unavailable"),
            F.count_if(acked & (F.col("done_ns") < heal_ns) & without).alias("acked_without_rack"),
            F.expr("percentile(held_ms, array(0.5, 0.99, 1.0))").alias("held"),
            (F.min(F.when(late, F.col("done_ns"))) - heal_ns).alias("first_ack_ns"),
        )
    )
    summary: dict[str, dict[str, Any]] = {}
    for row in counts.collect():
        numbers = row.asDict()
        held, first_ack_ns = numbers.pop("held"), numbers.pop("first_ack_ns")
        summary[numbers.pop("topic")] = numbers | {
            "acked_share": numbers["acked"] / numbers["intended"],
            "settled_share": _share(numbers["settled_acked"], numbers["settled_intended"]),
            "fault_share": _share(numbers["fault_acked"], numbers["fault_intended"]),
            "first_ack_after_heal_s": None if first_ack_ns is None else first_ack_ns / NS,
            "sent_under_fault_ms": None if not held else dict(zip(("p50", "p99", "max"), held, strict=True)),
        }
    return summary


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _silences(frame: DataFrame) -> dict[str, float]:
    """Return the longest time between two acknowledgements of each topic, in seconds."""
    before = F.lag("done_ns").over(Window.partitionBy("topic").orderBy("done_ns"))
    gaps = frame.where("outcome = 'acked'").withColumn("gap_ns", F.col("done_ns") - before)
    rows = gaps.groupBy("topic").agg(F.max("gap_ns").alias("gap_ns")).where("gap_ns is not null").collect()
    return {row["topic"]: row["gap_ns"] / NS for row in rows}


def _series(frame: DataFrame, start_ns: int) -> dict[str, list[dict[str, Any]]]:
    """Return per topic and second the records intended in it and the acknowledgements that arrived in it."""

    def per_second(column: str, rows: DataFrame) -> dict[tuple[str, int], int]:
        second = F.floor((F.col(column) - start_ns) / NS).alias("second")
        counts = rows.groupBy("topic", second).agg(F.count("*").alias("n")).collect()
        return {(row["topic"], row["second"]): row["n"] for row in counts}

    intended = per_second("intended_ns", frame)
    acked = per_second("done_ns", frame.where("outcome = 'acked'"))
    series: dict[str, list[dict[str, Any]]] = {}
    for topic, second in sorted(intended.keys() | acked.keys()):
        point = {"s": second, "intended": intended.get((topic, second), 0), "acked": acked.get((topic, second), 0)}
        series.setdefault(topic, []).append(point)
    return series
