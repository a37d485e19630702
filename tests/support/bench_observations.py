"""Generated observations and history of a benchmark run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd

from bench.load.schedule import Slot, block_slots, outage_slots
from bench_plans import healthy_with_outage
from pyhooks.history.event_log import Event
from pyhooks.workload.pacing import NS

START_NS = 1_000 * NS
SLOWER = 1.5
SCENARIO = healthy_with_outage()
SHORTER = {"blocks": 6, "pieces": 5, "piece_s": 0.625, "discard_s": 0.125, "resamples": 500, "min_blocks": 6,
           "min_beyond": 2}  # fmt: skip
SHORT = dataclasses.replace(SCENARIO.latency, **SHORTER, warmup_blocks=1)  # type: ignore[arg-type]
SCENARIO = dataclasses.replace(SCENARIO, latency=SHORT)
CELL = dataclasses.replace(SCENARIO.cells[0], scenario=SCENARIO)
SCENARIO = dataclasses.replace(SCENARIO, cells=(CELL,))
assert SCENARIO.outage is not None
OUTAGE = SCENARIO.outage


def observed(slot: Slot, latency_ms: Any, outcomes: list[str] | None = None, first_offset: int = 0) -> pd.DataFrame:
    size = slot.count
    intended = START_NS + slot.intended
    return pd.DataFrame(
        {
            "run_id": "r",
            "load": slot.phase,
            "host": "here",
            "cell": CELL.id if slot.phase == "latency" else None,
            "state": CELL.state,
            "phase": slot.phase,
            "block": np.int32(slot.block),
            "arm": slot.arm,
            "topic": slot.topic,
            "task": np.int32(0),
            "seq": slot.first_seq + np.arange(size),
            "measured": slot.counts,
            "intended_ns": intended,
            "sent_ns": intended + 100_000,
            "done_ns": intended + (np.asarray(latency_ms) * 1e6).astype(np.int64),
            "client_us": (np.asarray(latency_ms) * 1e3).astype(np.int64) - 100,
            "outcome": outcomes or ["acked"] * size,
            "error": None,
            "partition": np.int32(0),
            "offset": first_offset + np.arange(size),
        }
    )


def latency_rows() -> pd.DataFrame:
    """Two equal arms and one that is 50 % slower; the latency level drifts from block to block."""
    random = np.random.default_rng(3)
    frames, offsets = [], dict.fromkeys(("A", "A'", "B"), 0)
    on = {arm.id: arm.topic for arm in SCENARIO.latency_arms}
    for slot in block_slots(SHORT, on, range(-1, 6), rate_per_s=100, seed="s"):
        level = 2.0 * (1 + 0.5 * math.sin(slot.block)) * (SLOWER if slot.arm == "B" else 1.0)
        if slot.block < 0:
            level *= 50
        # The same noise for all arms of a block, so that the verdicts are certain.
        noise = np.exp(np.random.default_rng(slot.block + 10).normal(0, 0.3, slot.count))
        frames.append(observed(slot, level * noise * (1 + random.uniform(0, 0.001)), None, offsets[slot.arm]))
        offsets[slot.arm] += slot.count
    return pd.concat(frames)


def outage_rows() -> pd.DataFrame:
    """A and B pause until the rack has left the ISR, E some seconds longer; D acknowledges only after the heal."""
    frames = []
    for slot in outage_slots(OUTAGE, SCENARIO.outage_arms):
        at_s = slot.intended / NS
        free_s = {"D": 62.0, "E": 30.0}.get(slot.arm, 25.0)
        held = np.where((at_s >= 15) & (at_s < free_s), free_s - at_s, 0.0)
        frames.append(observed(slot, 2.0 + held * 1000, None, 5000))
    return pd.concat(frames)


def outage_history() -> list[Event]:
    def event(at_s: float, process: str, op: str, outcome: Any, rack: str | None = None, **data: Any) -> Event:
        return Event(START_NS + round(at_s * NS), 0, process, op, outcome, rack, data)

    steps = [
        (15, None, "inject"),
        (16, "ok", "proved"),
        (55, "ok", "held"),
        (55.1, None, "heal"),
        (60, "ok", "healed"),
    ]
    events = [event(at, "fault", "kill-rack", outcome, "b", step=step) for at, outcome, step in steps]
    errors = "org.apache.kafka.common.errors"
    gate = f"{errors}.NotEnoughRacksException"
    for half in range(160):
        at_s = half / 2
        away = 24.5 <= at_s < 62
        states = {}
        for arm in SCENARIO.outage_arms:
            isr = [broker for broker in sorted(arm.replicas) if not (away and broker in (3, 4))]
            states[f"{arm.topic}-0"] = {"leader": 1, "isr": isr, "replicas": list(arm.replicas)}
            rejected = arm.id == "D" and away
            waited = 15 <= at_s < 24.5
            events.append(
                event(
                    at_s + 0.1, "probe", "produce", "fail" if rejected else "unknown" if waited else "ok",
                    topic=arm.topic, key=f"p/{arm.topic}/0/{half}", seq=half, sent_ns=START_NS + round(at_s * NS),
                    exception=gate if rejected else f"{errors}.TimeoutException" if waited else None,
                    message="racks {a} of 2" if rejected else None,
                )
            )  # fmt: skip
        racks = {"1": "a", "2": "a", "3": "b", "4": "b", "5": "c"}
        events.append(event(at_s, "isr-watch", "look", "ok", partitions=states, racks=racks))
    return sorted(events, key=lambda one: one.mono_ns)
