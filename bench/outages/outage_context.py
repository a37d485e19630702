"""State that all outages of one lab share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.load import schedule
from bench.load.spark_load import Load
from bench.plan.outage_plan import LabPlan, Plan
from bench.run.cluster_under_test import LabTarget
from bench.run.lab_run import warm
from pyhooks.core.errors import RackgateError
from pyhooks.workload.pacing import NS

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

# Seconds from the request of a load to its first record. After a late load they are doubled, up to the maximum.
LEAD_S, MOST_LEAD_S = 4.0, 64.0
TASKS = 1


@dataclass
class OutageContext:
    """State that all outages of a lab share.

    Attributes:
        target: the lab.
        plan: plan of the run.
        lab: plan of this lab.
        folder: folder for its results.
        run_id: id of the run.
        spark: the Spark session.
        admin: client for topic operations.
        racks: broker id to rack.
        lead_s: seconds from the request of a load to its first record.
    """

    target: LabTarget
    plan: Plan
    lab: LabPlan
    folder: Path
    run_id: str
    spark: SparkSession
    admin: AdminClient
    racks: dict[int, str]
    lead_s: float = LEAD_S

    def load(self, name: str, slots: tuple[schedule.Slot, ...], *, flush_s: float | None = None) -> Load:
        """Return a load by librdkafka that starts after the lead time.

        Args:
            name: name of the load, unique in the lab.
            slots: the schedule.
            flush_s: bound on waiting for the last acknowledgements; None for the plan's.
        """
        return Load(
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

    def more_time(self) -> None:
        """Double the lead time of the next load.

        Raises:
            RackgateError: the lead time was ``MOST_LEAD_S`` already.
        """
        if self.lead_s >= MOST_LEAD_S:
            raise RackgateError(
                f"a load was not ready in {self.lead_s:.0f} s: is the machine busy with something else?"
            )
        self.lead_s *= 2
        # the worker of a failed task has ended
        warm(self.spark, TASKS)

    def brokers_of(self, rack: str) -> frozenset[int]:
        """Return the ids of the brokers in a rack."""
        return frozenset(broker for broker, own in self.racks.items() if own == rack)
