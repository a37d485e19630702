"""What all outages of one lab share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import pacing
from bench.load import Load
from bench.outageplan import LabPlan, Plan
from bench.run import warm
from bench.target import LabTarget
from pyhooks.core.errors import RackgateError
from pyhooks.workload.pacing import NS

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

# From asking for a load to its first record; one that was late is asked for again with twice as much.
LEAD_S, MOST_LEAD_S = 4.0, 64.0
TASKS = 1


@dataclass
class Here:
    """What all outages of a lab share.

    Attributes:
        target: the lab.
        plan: of the run.
        lab: of this lab.
        folder: for what is kept of it.
        run_id: of the run and this lab.
        spark: the Spark session.
        admin: for topics.
        racks: broker id to rack.
        lead_s: from asking for a load to its first record.
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

    def load(self, name: str, slots: tuple[pacing.Slot, ...], *, flush_s: float | None = None) -> Load:
        """A load by librdkafka that begins soon.

        Args:
            name: of the load, unique in the lab.
            slots: the schedule.
            flush_s: bound on waiting for the last acknowledgements, if not the plan's.
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
        """Gives the next load twice as long to get ready.

        Raises:
            RackgateError: this one had ``MOST_LEAD_S``.
        """
        if self.lead_s >= MOST_LEAD_S:
            raise RackgateError(
                f"a load was not ready in {self.lead_s:.0f} s: is the machine busy with something else?"
            )
        self.lead_s *= 2
        # a worker whose task has failed is gone
        warm(self.spark, TASKS)

    def brokers_of(self, rack: str) -> frozenset[int]:
        """Ids of the brokers in a rack."""
        return frozenset(broker for broker, own in self.racks.items() if own == rack)
