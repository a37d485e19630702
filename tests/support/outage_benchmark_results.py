"""Generated results of the outage benchmark."""

from __future__ import annotations

import dataclasses
from typing import Any

from bench.analysis import exit_reasons
from bench.analysis.availability import CONTINUED, REJECTED, UNKNOWN, UNPROTECTED
from bench.outages import destruction, outage_results
from bench.plan import outage_plan

PLAN = outage_plan.load("full")


def topic(arm: str, replicas: tuple[int, ...], placement: str, behaviour: str, **more: Any) -> dict[str, Any]:
    own = next(one for one in PLAN.arms if one.id == arm).on(placement, replicas)
    rejected = behaviour == REJECTED
    series = [
        {"s": second, "intended": 20, "acked": 0 if rejected and 13 <= second < 30 else 20} for second in range(36)
    ]
    probe = {
        "first_rejection_after_s": 9.5 if rejected else None,
        "exceptions": {"NotEnoughRacksException": 40} if rejected else {},
        "rejected_at_s": [14.0, 15.0] if rejected else [],
        "settled_acked": 0 if rejected else 40,
        "settled_rejected": 40 if rejected else 0,
        "acked_after_heal": 0 if rejected else 12,
        "acked_without_rack": 0 if rejected else 60,
    }
    racks = {1: "a", 2: "a", 3: "b", 5: "c"}
    isr: list[dict[str, Any]] = [
        {"at_s": at_s, "leader": 1, "isr": own, "racks": sorted({racks[broker] for broker in own})}
        for at_s, own in ((0.0, list(replicas)), (13.0, [broker for broker in replicas if broker != 3]))
    ]
    found = {
        "arm": arm, "label": own.label, "topic": own.topic, "replicas": list(replicas), "behaviour": behaviour,
        "window_s": [15.0, 26.0], "acked": 720, "settled_intended": 220, "settled_acked": 0 if rejected else 220,
        "settled_done": 0 if rejected else 220, "fewest_racks": 1, "acked_without_rack": 0 if rejected else 340,
        "fault_intended": 440, "fault_acked": 180 if rejected else 440,
        "fault_share": 0.41 if rejected else 1.0, "settled_share": 0.0 if rejected else 1.0, "acked_share": 1.0,
        "left_after_s": 9.2, "longest_silence_s": 26.0 if rejected else 9.2,
        "first_ack_after_heal_s": 5.0 if rejected else 0.01, "looked_until_s": 36.0, "isr": isr, "series": series,
        "probe": probe,
        "catch_up": {"before": {"attempts": 16, "p50_ms": 3.0, "max_ms": 9.0},
                     "after": {"attempts": 20, "p50_ms": 4.0, "max_ms": 80.0 if rejected else 12.0}},
        "meter": {"after_s": 9.4 if rejected else None, "at_most_early_s": 0.2, "counted": 300 if rejected else 0,
                  "answers": 80},
    }  # fmt: skip
    return found | more


def outage(fault: str, number: int, *, proved: bool = True) -> dict[str, Any]:
    rejected, unprotected, on = REJECTED, UNPROTECTED, CONTINUED
    did = {"a,a,b": (rejected, rejected, unprotected), "a,b,c": (rejected, on, on)}
    topics = [
        topic(arm, PLAN.labs[0].placements[placement], placement, word if proved else UNKNOWN)
        for placement, words in did.items()
        for arm, word in zip("ABC", words, strict=True)
    ]
    numbers = {
        "rack": "b", "proved": proved, "inject_s": 4.0, "heal_s": 26.0, "healed_s": 30.0, "length_s": 36.0,
        "rate_per_s": 20.0, "topics": topics,
    }  # fmt: skip
    return {"number": number, "fault": fault, "numbers": numbers, "notes": []}


LAB = PLAN.labs[0]
OUTAGES = [outage("kill", 1), outage("kill", 2), outage("kill", 3, proved=False), outage("cut", 4)]
ARM, WITHOUT = (PLAN.arms[arm].on("a,a,b", (1, 2, 3)) for arm in (1, 2))


def result() -> dict[str, Any]:
    round_trips = [{"source": "clients", "target": "a", "p50_ms": 2.1, "p99_ms": 3.0}]
    destroyed = {
        "unavailable_rack": "b", "fault": "cut", "destroyed": "a", "placement": "a,a,b", "proved": True, "notes": [],
        "topics": [
            destruction.arm_row(ARM, {"acked": 400, "read": 400, "lost": 0}, (3, False), ("a",), "a", proved=True),
            destruction.arm_row(WITHOUT, {"acked": 900, "read": 0, "lost": 900}, (1, True), ("a",), "a", proved=True),
        ],
    }  # fmt: skip
    kinds = {kind: {"count": 0, "examples": []} for kind in ("lost", "duplicated", "invented", "out_of_order", "moved")}
    whole: dict[str, Any] = {
        "schema": outage_results.SCHEMA_VERSION,
        "states": outage_results.state_figures(PLAN, LAB, OUTAGES),
        "labs": [{"name": LAB.name, "topology": LAB.topology, "round_trips": round_trips, "outages": OUTAGES}],
        "destructions": [destroyed],
        "end_to_end": {"kinds": kinds, "acked": 9000, "read": 9000, "topics": []},
        "confidence": 0.95,
        "notes": [],
        "manifest": {
            "run_id": "r", "command": "rackgate bench outages", "duration_s": 600.0, "plan": dataclasses.asdict(PLAN),
            "machine": {"cpu": "c", "cpus": 2, "memory_gib": 8, "kernel": "k"}, "versions": {"kafka": "4.0.0"},
            "distribution": {},
        },
    }  # fmt: skip
    return whole | exit_reasons.conclude(exit_reasons.outage_reasons(whole), outage_results.sentences(whole))
