"""Generated benchmark result of two cells and an outage, made by the benchmark's functions without Spark."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.analysis import availability, exit_reasons, latency_analysis, verdicts
from bench.analysis.comparisons import CellMeasurements, compare, family_size
from bench.analysis.latency_analysis import SCHEMA_VERSION
from bench.analysis.quantiles import BinCounts
from bench.analysis.record_check import KINDS
from bench.plan import scenarios
from bench.plan.scenario import BenchCell
from pyhooks.core.statistics import BINS_PER_E

FULL = scenarios.load("full")
FULL = dataclasses.replace(FULL, latency=dataclasses.replace(FULL.latency, resamples=500))
QUESTION = scenarios.load("question")
PER_BLOCK = 1200
MEDIAN_MS = {"A": 3.0, "A'": 3.0, "B": 3.6, "C": 3.0, "P": 1.5}
GATE = "NotEnoughRacksException"


def bin_counts(latency_ms: npt.NDArray[np.float64]) -> BinCounts:
    """Count latencies in the bins of the analysis."""
    bins = np.floor(np.log(latency_ms * 1000) * BINS_PER_E).astype(np.int64)
    return BinCounts(*np.unique(bins, return_counts=True))


def _cell(name: str, random: np.random.Generator) -> tuple[BenchCell, CellMeasurements]:
    cell = dataclasses.replace(next(one for one in FULL.cells if one.id in (name, f"{name}-20")), id=name)
    cell = dataclasses.replace(cell, scenario=dataclasses.replace(FULL, latency=FULL.latency))
    rejecting, plan = cell.rejecting, FULL.latency
    rounds: list[dict[str, Any]] = []
    summary: dict[str, dict[str, Any]] = {}
    counts: dict[str, dict[int, BinCounts]] = {}
    for arm in FULL.latency_arms:
        if arm.id in rejecting:
            no_load: dict[str, Any] = {"latency": {}, "client": {}, "late": {}}
            entry = latency_analysis._arm(cell, arm, None, no_load, "NotEnoughReplicasException")
            summary[arm.id] = entry | {"curve": None, "late_share": None}
            continue
        blocks = counts[arm.id] = {}
        pooled = []
        for block in range(plan.blocks):
            level = np.random.default_rng(block).normal(0, 0.1)
            latency_ms = MEDIAN_MS[arm.id] * np.exp(random.normal(level, 0.35, PER_BLOCK))
            blocks[block] = bin_counts(latency_ms)
            pooled.append(latency_ms)
            p50, p99 = np.quantile(latency_ms, [0.5, 0.99])
            rounds.append({"block": block, "arm": arm.id, "n": PER_BLOCK, "p50_ms": float(p50), "p99_ms": float(p99)})
        took = np.concatenate(pooled)
        quantiles = {q: float(np.quantile(took, q)) for q in (*plan.quantiles, 1.0)}
        counted = {"intended": took.size, "acked": took.size, "failed": 0, "unknown": 0}
        late = {0.5: 0.1, 0.99: 0.9, 1.0: 4.0}
        key = (cell.id, arm.id)
        found = {"latency": {key: quantiles}, "client": {key: quantiles}, "late": {key: late}}
        summary[arm.id] = latency_analysis._arm(cell, arm, counted, found, None) | {
            "curve": latency_analysis._curve(blocks, FULL),
            "late_share": {"p50": 0.02, "p99": 0.05},
        }
    return cell, CellMeasurements(cell, rounds, summary, counts)


def unacknowledged(cell_id: str, arm_id: str, error: str) -> dict[str, Any]:
    """Return the analysis of an arm without a single acknowledged record."""
    cell = next(one for one in FULL.cells if one.id in (cell_id, f"{cell_id}-20"))
    arm = next(one for one in FULL.latency_arms if one.id == arm_id)
    late = {0.5: 0.1, 0.99: 0.9, 1.0: 4.0}
    counted = {"intended": 1200, "acked": 0, "failed": 0, "unknown": 1200}
    found: dict[str, Any] = {"latency": {}, "client": {}, "late": {(cell_id, arm_id): late}}
    return latency_analysis._arm(cell, arm, counted, found, error) | {"curve": None}


def _outage() -> dict[str, Any]:
    plan = QUESTION.outage
    assert plan is not None
    topics = []
    for arm in QUESTION.outage_arms:
        rejects = arm.id == "D"
        series = []
        for second in range(round(plan.total_s)):
            away = 20 <= second < 41 if rejects else 11 <= second < 20
            burst = {41: 21, 20: 9}.get(second, 1) if rejects or second == 20 else 1
            acked = 0 if away or 11 <= second < 20 else round(plan.rate_per_s * burst)
            series.append({"s": second, "intended": plan.rate_per_s, "acked": acked})
        racks = [{"at_s": 0.0, "leader": 1, "isr": list(arm.replicas), "racks": ["a", "b", "c"]}]
        left = {"isr": [1, 2], "racks": ["a"]} if arm.id in "DE" else {"isr": [1, 5, 2], "racks": ["a", "c"]}
        racks.append({"at_s": 19.5, "leader": 1, **left})
        racks.append({"at_s": 42.0, "leader": 1, "isr": list(arm.replicas), "racks": ["a", "b", "c"]})
        rejected_at = [20 + 0.5 * n for n in range(42)] if rejects else []
        topics.append(
            {
                "arm": arm.id, "label": arm.label, "topic": arm.topic, "replicas": list(arm.replicas),
                "window_s": [21.5, 40.0], "left_after_s": 9.5, "back_after_s": 2.0,
                "fewest_racks": 1 if arm.id in "DE" else 2, "isr": racks, "looked_until_s": 63.0,
                "intended": 2440, "acked": 2440, "failed": 0, "unknown": 0, "settled_intended": 740,
                "settled_acked": 0 if rejects else 740, "settled_done": 0 if rejects else 740,
                "acked_only_after_heal": 840 if rejects else 0,
                "acked_while_unavailable": 0 if rejects else 840, "acked_without_rack": 0 if rejects else 840,
                "acked_share": 1.0, "settled_share": 0.0 if rejects else 1.0,
                "first_ack_after_heal_s": 1.6 if rejects else 0.02,
                "sent_under_fault_ms": {"p50": 9000.0 if rejects else 4.0, "p99": 30_000.0, "max": 31_000.0},
                "probe": {
                    "attempts": 128, "acked": 86 if rejects else 128, "rejected": len(rejected_at), "other": 0,
                    "exceptions": {GATE: len(rejected_at)} if rejects else {}, "settled_attempts": 37,
                    "settled_acked": 0 if rejects else 37, "settled_rejected": 37 if rejects else 0,
                    "acked_after_heal": 0 if rejects else 44, "acked_without_rack": 0 if rejects else 37,
                    "rejected_at_s": rejected_at, "first_rejection_after_s": 9.9 if rejects else None,
                    "message": "the ISR is in racks {a}, 1 of 2" if rejects else None,
                },
                "series": series,
            }
        )  # fmt: skip
    found = {
        "rack": plan.rack, "proved": True, "inject_s": 10.0, "heal_s": 40.0, "healed_s": 44.0, "length_s": plan.total_s,
        "rate_per_s": plan.rate_per_s, "probe_rate_per_s": plan.probe_rate_per_s, "settle_s": plan.settle_s,
        "accepting_share": plan.accepting_share, "topics": topics,
    }  # fmt: skip
    availability.add_behaviours(found)
    return found


def made_up() -> dict[str, Any]:
    """Return a result in which B is 20 % slower when healthy, and A and A' reject writes with an ISR of two."""
    return dict(json.loads(_made_up_text()))


@cache
def _made_up_text() -> str:
    random = np.random.default_rng(12)
    run = [_cell(name, random) for name in ("healthy", "isr-2-in-2")]
    family = family_size([cell for cell, _ in run])
    numbers = [
        latency_analysis._numbers(one, rows, family)
        for (_, one), rows in zip(run, compare([one for _, one in run]), strict=True)
    ]
    findings = {"rate_per_s": 500.0, "isr": [1, 3], "isr_racks": ["a", "b"], "slow": []}
    rejections = {}
    for cell, _ in run:
        rejected = dict.fromkeys(sorted(cell.rejecting), "NotEnoughReplicasException")
        did = {"rejected": rejected, "rejected_after": rejected, "expected_to_reject": sorted(rejected)}
        rejections[cell.id] = [{"session": session, **did} for session in (1, 2)]
    arms = tuple({arm.id: arm for arm in (*FULL.arms, *QUESTION.outage_arms)}.values())
    scenario = dataclasses.replace(FULL, arms=arms, cells=tuple(cell for cell, _ in run))
    usage = [{"kind": "brokers", "processes": 5, "cpus": 0.5, "rss_mb_max": 1500.0}]
    topic = {"topic": "t", "acked": 9000, "read": 9000, "not_acked_but_there": 3, "of_others": 7}
    whole: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "cells": [
            cell | {"findings": findings, "rejections": rejections[cell["cell"]], "discarded": []} for cell in numbers
        ],
        "outage": _outage(),
        "end_to_end": {
            "run_id": "made-up", "kinds": {kind: {"count": 0, "examples": []} for kind in KINDS}, "topics": [topic],
            "acked": 9000, "read": 9000, "unread": 0,
        },
        "notes": [],
        "usage": {"healthy": usage, "outage": usage},
        "manifest": {
            "run_id": "made-up",
            "command": "rackgate bench run --scenario full",
            "conditions": {"build": "b"},
            "machine": {"kernel": "6.1", "cpu": "a CPU", "cpus": 2, "memory_gib": 24.0},
            "versions": {"kafka": "4.0.0", "spark": "4.2.0"},
            "links": {"a-b": "netem"},
            "distribution": {"patch_hash": "abc123"},
            "round_trips": {"idle": [{"source": "clients", "target": "broker-1", "p50_ms": 1.1, "p99_ms": 1.9}]},
            "rates": {},
            "scenario": scenario.as_json(),
            "duration_s": {"whole": 200.0},
        },
    }  # fmt: skip
    whole["cells"][0]["discarded"] = [{"block": 3, "session": 1, "why": "broker-4 is not slow"}]
    whole |= exit_reasons.conclude(exit_reasons.run_reasons(whole), verdicts.sentences(whole))
    return json.dumps(whole)
