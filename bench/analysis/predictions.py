"""Answer to the question of a cell: predictions of the hypotheses, measurements, and rejected hypotheses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from bench.analysis import inference
from bench.plan.cluster_states import SLOW_RTT_MS
from bench.plan.question import Hypothesis, Question, awaited_followers
from bench.plan.scenario import BenchArm, BenchCell

# Data of a comparison that can't reject anything, by the reason of its verdict.
NO_DATA = ("rejected", "not acknowledged", "missing", "few blocks", "few records")


def rack_round_trips(rows: Iterable[Mapping[str, Any]], racks: Mapping[str, str]) -> dict[frozenset[str], float]:
    """Return the median round trip between two racks in ms, by the pair, from rows of all places of a lab."""
    by_name = {f"broker-{broker}": rack for broker, rack in racks.items()}
    return {
        frozenset((by_name[row["source"]], by_name[row["target"]])): float(row["p50_ms"])
        for row in rows
        if row["source"] in by_name and row["target"] in by_name
    }


def answer(
    cell: BenchCell, numbers: Mapping[str, Any], round_trips: Mapping[frozenset[str], float]
) -> dict[str, Any] | None:
    """Return the answer to a cell's question; None for a cell without one.

    A hypothesis is rejected if the interval of the ratio lies outside the range that it predicts; the only one that is
    not rejected is the answer. Without a faster positive control nothing is rejected: the cell would not show a
    difference. ``numbers`` is the cell's entry of ``bench.analysis.latency_analysis.cells``, ``round_trips`` the result
    of ``rack_round_trips``, without the delay of slow brokers.

    Returns:
        ``question``, ``arm``, ``against``, ``ratio``, ``hypotheses`` (id, label, predicted ratio, ``rejected``, and for
        each arm the ends of the predicted median in ms), ``measured_ms`` (median of each arm and its lowest and highest
        block), ``answer`` (id or None), ``missing`` (why there is none) and ``power`` (to reject the false hypothesis).
    """
    question = cell.question
    if question is None:
        return None
    medians = _medians(numbers["rounds"])
    rows = {row["arm"]: row for row in numbers["comparisons"] if row["at"] == "p50"}
    row = rows[question.arm]
    positive = next((arm for arm in cell.scenario.latency_arms if arm.latency == "positive"), None)
    missing = _missing(row, rows.get(positive.id) if positive else None)
    hypotheses = [
        {
            "id": hypothesis.id,
            "label": hypothesis.label,
            "ratio": list(hypothesis.ratio),
            "rejected": not missing and _is_outside(row["ratio"], hypothesis.ratio),
            "predicted_ms": _predicted(cell, hypothesis, medians.get(positive.id) if positive else None, round_trips),
        }
        for hypothesis in question.hypotheses
    ]
    left = [hypothesis["id"] for hypothesis in hypotheses if not hypothesis["rejected"]]
    if not missing and len(left) != 1:
        missing = "the interval of the ratio does not distinguish them" if left else "the ratio contradicts all of them"
    return {
        "question": question.text,
        "arm": question.arm,
        "against": row["against"],
        "ratio": row["ratio"],
        "hypotheses": hypotheses,
        "measured_ms": medians,
        "answer": None if missing else left[0],
        "missing": missing,
        "power": _power(row, question, numbers["confidence"]),
    }


def _missing(row: Mapping[str, Any], positive: Mapping[str, Any] | None) -> str:
    """Return why the ratio can't reject a hypothesis; empty if it can."""
    if row["ratio"] is None or row["reason"] in NO_DATA:
        return f"there is no ratio to compare ({row['reason']})"
    if positive is None or positive["verdict"] != "faster":
        verdict = "missing" if positive is None else positive["verdict"]
        return f"the positive control is {verdict}, so the cell would not show a difference"
    return ""


def _power(row: Mapping[str, Any], question: Question, confidence: float) -> float | None:
    """Return the power to reject one hypothesis if the true ratio is the nearest one that the other predicts."""
    if row["ratio"] is None:
        return None
    below, above = sorted(hypothesis.ratio for hypothesis in question.hypotheses)
    distance = math.log(above[0] / below[1])
    return inference.power(row["error"], row["freedom"], distance, (1.0 - confidence) / 2)


def _is_outside(interval: Mapping[str, float], ends: Sequence[float]) -> bool:
    return interval["high"] < ends[0] or interval["low"] > ends[1]


def _medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the median over blocks of each arm's p50, with the lowest and the highest block, in ms."""
    by_arm: dict[str, list[float]] = {}
    for row in rounds:
        if row["block"] >= 0:
            by_arm.setdefault(row["arm"], []).append(row["p50_ms"])
    return {arm: {"low": min(values), "point": median(values), "high": max(values)} for arm, values in by_arm.items()}


def _predicted(
    cell: BenchCell,
    hypothesis: Hypothesis,
    base: Mapping[str, float] | None,
    round_trips: Mapping[frozenset[str], float],
) -> dict[str, list[float]]:
    """Return the ends of the predicted median of each arm with acks=all in ms; empty without the data for it.

    The prediction is the median with acks=1, which contains everything but replication, and the round trips of the
    question to the slowest awaited follower.
    """
    if base is None or cell.question is None:
        return {}
    reached, racks = cell.reached, cell.racks
    to_ms: dict[int, float] = {}
    for broker in reached.isr[1:]:
        pair = frozenset((racks[reached.isr[0]], racks[broker]))
        if len(pair) > 1 and pair not in round_trips:
            return {}
        to_ms[broker] = (round_trips[pair] if len(pair) > 1 else 0.0) + (SLOW_RTT_MS if broker in reached.slow else 0.0)

    def slowest_ms(arm: BenchArm) -> float:
        followers = awaited_followers(
            hypothesis.awaited,
            reached,
            racks,
            to_ms,
            min_insync_replicas=arm.min_insync_replicas,
            min_insync_racks=arm.min_insync_racks,
        )
        return max((to_ms[broker] for broker in followers), default=0.0)

    arms = [arm for arm in cell.scenario.latency_arms if arm.acks == "all" and arm.id not in cell.rejecting]
    return {arm.id: [base["point"] + times * slowest_ms(arm) for times in cell.question.round_trips] for arm in arms}
