"""State that all outages of one lab share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from bench.load import schedule
from bench.load.load_jobs import repeat_while_late
from bench.load.spark_load import SparkLoad
from bench.plan.outage_plan import LabPlan, OutageRunPlan
from bench.run.cluster_under_test import LabUnderTest
from bench.run.lab_run import start_workers
from pyhooks.workload.pacing import NS

T = TypeVar("T")
# Seconds from the request of a load to its first record.
LEAD_S = 4.0
TASKS = 1


@dataclass
class OutageContext:
    """State that all outages of a lab share.

    Attributes:
        lab: plan of this lab.
        folder: folder for its results.
        racks: broker id to rack.
        lead_s: seconds from the request of a load to its first record.
    """

    target: LabUnderTest
    plan: OutageRunPlan
    lab: LabPlan
    folder: Path
    run_id: str
    spark: SparkSession
    admin: AdminClient
    racks: dict[int, str]
    lead_s: float = LEAD_S

    def load(self, name: str, slots: tuple[schedule.Slot, ...], *, flush_s: float | None = None) -> SparkLoad:
        """Return a load by librdkafka that starts after the lead time; ``name`` is unique in the lab."""
        return SparkLoad(
            run_id=self.run_id,
            name=name,
            cell=None,
            state="outage",
            bootstrap=self.target.bootstrap,
            client="confluent",
            config={**self.plan.client, "linger.ms": 0},
            record_bytes=self.plan.record_bytes,
            seed=self.plan.seed,
            flush_s=self.plan.flush_s if flush_s is None else flush_s,
            tasks=TASKS,
            start_ns=time.monotonic_ns() + round(self.lead_s * NS),
            slots=slots,
        )

    def repeat_while_late(self, drive: Callable[[], T]) -> T:
        """Drive a load; while its tasks are late, repeat with twice the lead time, which later loads keep."""

        def attempt(lead_s: float) -> T:
            if lead_s > self.lead_s:
                # the worker of a failed task has ended
                start_workers(self.spark, TASKS)
            self.lead_s = lead_s
            return drive()

        return repeat_while_late(self.lead_s, attempt)

    def brokers_of(self, rack: str) -> frozenset[int]:
        """Return the ids of the brokers in a rack."""
        return frozenset(broker for broker, own in self.racks.items() if own == rack)
