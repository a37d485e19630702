"""State that all outages of one lab share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from bench.load import schedule
from bench.load.spark_load import SparkLoad
from bench.plan.outage_plan import LabPlan, OutageRunPlan
from bench.run.cluster_under_test import LabUnderTest


@dataclass
class OutageContext:
    """State that all outages of a lab share."""

    target: LabUnderTest
    plan: OutageRunPlan
    lab: LabPlan  # plan of this lab
    folder: Path  # folder for its results
    run_id: str
    spark: SparkSession
    admin: AdminClient
    racks: dict[int, str]  # broker id to rack

    def load(self, name: str, slots: tuple[schedule.Slot, ...], *, flush_s: float | None = None) -> SparkLoad:
        """Return a load by librdkafka, with ``acks=1`` in the background; ``name`` is unique in the lab."""
        return SparkLoad(
            run_id=self.run_id,
            name=name,
            bootstrap=self.target.bootstrap,
            config={**self.plan.client, "linger.ms": 0},
            record_bytes=self.plan.record_bytes,
            seed=self.plan.seed,
            flush_s=self.plan.flush_s if flush_s is None else flush_s,
            slots=slots,
            leader_only=frozenset(slot.arm for slot in slots if slot.phase == schedule.BACKGROUND),
        )

    def brokers_of(self, rack: str) -> frozenset[int]:
        """Return the ids of the brokers in a rack."""
        return frozenset(broker for broker, own in self.racks.items() if own == rack)
