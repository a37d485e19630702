"""Records acknowledged when the ISR shrinks, on generated observations and histories."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench.analysis import availability, exit_reasons, latency_analysis, record_check
from bench.load.spark_load import SCHEMA
from bench.spark_session import spark_session
from bench_observations import OUTAGE, SCENARIO, START_NS, outage_history, outage_rows
from pyhooks.workload.pacing import NS
from spark_cluster import SHORT_SESSION


def test_acks_after_an_isr_shrink_are_separated_from_in_flight_records(tmp_path: Path) -> None:
    """Move D's acks around the fault, which is verified at 16 s; the last observation of the full ISR is at 24 s."""
    arm = next(arm for arm in SCENARIO.outage_arms if arm.id == "D")
    rows = outage_rows()
    rows = rows[rows["arm"] == "D"].copy()
    sent_s = (rows["sent_ns"] - START_NS) / NS
    early = (sent_s >= 14.5) & (sent_s < 15)
    # ``early``: in all racks, with a late response. ``waited`` and ``later``: acknowledged when the ISR shrinks, which
    # is observed only afterwards.
    waited, later = (sent_s >= 15) & (sent_s < 15.5), (sent_s > 17) & (sent_s < 18)
    for chosen, done_s in ((early, 16.2), (waited, 24.3), (later, 24)):
        rows.loc[chosen, "done_ns"] = START_NS + round(done_s * NS)
    with spark_session(tmp_path / "spark", master="local[1]", conf=SHORT_SESSION) as spark:
        spark.createDataFrame(rows, SCHEMA).write.parquet(str(tmp_path / "raw"))
        raw = latency_analysis.read_raw(spark, tmp_path / "raw")
        found = availability.summarise(spark, raw, outage_history(), OUTAGE, [arm], START_NS)
    availability.add_behaviours(found)
    (topic,) = found["topics"]
    freed = round(OUTAGE.rate_per_s * 1.5)
    assert topic["behaviour"] == "was rejected"
    assert topic["settled_done"] == 0
    assert topic["acked_while_unavailable"] == early.sum() + topic["acked_without_rack"]
    assert topic["acked_without_rack"] == pytest.approx(freed, abs=2)
    own = {"arms": [dataclasses.asdict(arm)]}
    empty = {"kinds": {kind: {"count": 0, "examples": []} for kind in record_check.KINDS}, "acked": 1}
    whole = {"end_to_end": empty, "cells": [], "outage": found, "manifest": {"scenario": own}}
    (reason,) = exit_reasons.run_reasons(whole)
    assert reason.verdict == "failed"
    assert reason.text.startswith(f"Acknowledged {topic['acked_without_rack']} records without rack b ")
    topic["acked_without_rack"] = 0
    assert exit_reasons.run_reasons(whole) == []
