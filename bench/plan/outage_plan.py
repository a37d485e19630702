"""Plan of a run of outages as frozen dataclasses, read from ``bench/outages.toml``."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from bench.plan.scenario import BenchArm, OutagePlan
from bench.plan.scenarios import client_properties, outage_plan, plan_table
from pyhooks.core.toml_config import Natural, Positive, Table, Text
from pyhooks.lab import topology

SHIPPED = Path(__file__).parents[1] / "outages.toml"
FaultKind = Literal["kill", "cut"]
FAULTS: tuple[FaultKind, ...] = ("kill", "cut")
FAULT_LABELS = {"kill": "killed", "cut": "cut off"}


@dataclass(frozen=True)
class ArmSettings:
    """M and R of an arm, for a topic on each placement."""

    id: Text
    label: Text
    min_insync_replicas: Positive
    min_insync_racks: Positive

    def on(self, placement: str, replicas: tuple[int, ...]) -> BenchArm:
        """Return the arm on a topic of its own with these replicas."""
        stem = "".join(c for c in placement.lower().replace(" ", "-") if c.isalnum() or c == "-")
        return BenchArm(
            **vars(self) | {"label": f"{placement}: {self.label}"},
            topic=f"{stem}-{self.id.lower()}",
            replicas=replicas,
            latency="none",
            outage=True,
        )


@dataclass(frozen=True)
class LabPlan:
    """Outages of one lab."""

    name: str  # name of the lab, unique in the plan
    topology: str  # name of its topology
    stock: bool  # whether the lab runs Kafka without the overlay
    arms: tuple[str, ...]  # ids of its arms
    rack: str  # rack that becomes unavailable
    # name of each placement to its replicas (broker ids); the first replica leads
    placements: Mapping[str, tuple[int, ...]]
    outages: Mapping[FaultKind, int]  # fault to number of outages

    def order(self, seed: int) -> tuple[FaultKind, ...]:
        """Return the faults of all outages in an order drawn from a seed."""
        every = [fault for fault, times in self.outages.items() for _ in range(times)]
        random.Random(f"{seed}/{self.name}").shuffle(every)  # noqa: S311 - a seeded plan, not a secret
        return tuple(every)


@dataclass(frozen=True)
class DestructionPlan:
    """Destruction of a rack that holds the whole ISR, because another rack is already unavailable."""

    topology: str  # topology of the lab, one that also has outages
    placement: Text  # display name of the topics' placement
    replicas: tuple[int, ...]  # replicas of the topics
    unavailable_rack: str  # rack that fails first and keeps its disks
    destroyed: str  # rack whose disks are wiped while the other rack is unavailable
    faults: tuple[FaultKind, ...]  # faults of the first rack, one destruction for each. None of them deletes its disks.


@dataclass(frozen=True)
class OutageRunPlan:
    """Plan of a whole run of outages."""

    name: str
    about: Text  # description in one line
    seed: Natural  # seed of the order of outages and of the payload
    confidence: Annotated[float, Field(ge=0.5, le=0.999)]  # confidence level of intervals over outages
    record_bytes: Annotated[int, Field(ge=1, le=1_000_000)]
    flush_s: Annotated[float, Field(ge=0.1, le=600)]  # bound on waiting for the last acknowledgements, in seconds
    client: Mapping[str, str | int | float | bool]  # librdkafka properties
    timing: OutagePlan  # rates and times of each outage; the rack of the lab replaces its rack
    # records per second that a second producer sends to each topic with ``acks=1``; 0 for none
    background_rate_per_s: Annotated[float, Field(ge=0, le=10_000)]
    meter_poll_s: Annotated[float, Field(ge=0.05, le=10)]  # seconds between two queries of a broker's metrics
    probe_timeout_ms: Annotated[int, Field(ge=100, le=60_000)]  # timeout of one probe attempt
    arms: tuple[ArmSettings, ...]
    labs: tuple[LabPlan, ...]
    destruction: DestructionPlan | None

    def arms_of(self, lab: LabPlan) -> tuple[BenchArm, ...]:
        """Return all arms on all placements of a lab."""
        arms = [arm for arm in self.arms if arm.id in lab.arms]
        return tuple(arm.on(name, replicas) for name, replicas in lab.placements.items() for arm in arms)


def load(name: str, path: Path = SHIPPED) -> OutageRunPlan:
    """Read one plan.

    Raises:
        RackgateError: the plan does not exist, or a key is missing, unknown or out of range.
    """
    table = plan_table(name, path, kind="plan", purpose="it describes outages")
    arms = tuple(arm.into(ArmSettings) for arm in table.tables("arms"))
    labs = tuple(_lab(lab, arms) for lab in table.tables("labs"))
    if len({arm.id.lower() for arm in arms}) < len(arms):
        raise table.wrong("arms", "two arms have the same id")
    if len({lab.name for lab in labs}) < len(labs):
        raise table.wrong("labs", "two labs have the same name")
    plan = table.into(
        OutageRunPlan,
        name=name,
        client=client_properties(table.table("client")),
        timing=outage_plan(table, max_per_s=10_000, rack=labs[0].rack),
        arms=arms,
        labs=labs,
        destruction=_destruction(table.table("destruction"), labs) if table.has("destruction") else None,
    )
    table.done()
    return plan


def _lab(table: Table, arms: Sequence[ArmSettings]) -> LabPlan:
    topology_name, rack = table.text("topology"), table.text("rack")
    name = table.text("name") if table.has("name") else topology_name
    if not name.replace("-", "").isalnum() or not name.isascii():
        raise table.wrong("name", f"must consist of letters, digits and hyphens, is {name!r}")
    _check_racks(table, topology_name, {"rack": rack})
    stock = table.flag("stock") if table.has("stock") else False
    ids = tuple(arm.id for arm in arms if not stock or arm.min_insync_racks == 1)
    topics, outages = table.tables("topics"), table.tables("outages")
    placements = {topic.text("placement"): _replicas(topic, topology_name) for topic in topics}
    if len(placements) < len(topics):
        raise table.wrong("topics", "two topics have the same placement")
    faults = {outage.choice("fault", FAULTS): outage.whole("times", 1, 100) for outage in outages}
    if len(faults) < len(outages):
        raise table.wrong("outages", "two outages have the same fault")
    return LabPlan(
        name=name,
        topology=topology_name,
        stock=stock,
        arms=table.choices("arms", ids) if table.has("arms") else ids,
        rack=rack,
        placements=placements,
        outages=faults,
    )


def _destruction(table: Table, labs: Sequence[LabPlan]) -> DestructionPlan:
    name = table.text("topology")
    unavailable, destroyed = table.text("unavailable_rack"), table.text("destroyed")
    if name not in [lab.topology for lab in labs]:
        raise table.wrong("topology", f"no lab of the plan has {name!r}")
    _check_racks(table, name, {"unavailable_rack": unavailable, "destroyed": destroyed})
    if unavailable == destroyed:
        raise table.wrong("destroyed", "must differ from unavailable_rack")
    return table.into(
        DestructionPlan,
        topology=name,
        replicas=_replicas(table, name),
        unavailable_rack=unavailable,
        destroyed=destroyed,
        faults=table.choices("faults", FAULTS),
    )


def _check_racks(table: Table, name: str, chosen: Mapping[str, str]) -> None:
    racks = [site.name for site in topology.load(topology.find(name)).racks]
    for key, rack in chosen.items():
        if rack not in racks:
            raise table.wrong(key, f"topology {name} has no rack {rack!r}, but {', '.join(racks)}")


def _replicas(table: Table, name: str) -> tuple[int, ...]:
    replicas = table.wholes("replicas")
    brokers = [node.node_id for node in topology.load(topology.find(name)).brokers]
    if unknown := [broker for broker in replicas if broker not in brokers]:
        raise table.wrong("replicas", f"topology {name} has no broker {unknown[0]}")
    return replicas
