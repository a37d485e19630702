"""Plan of a run as frozen dataclasses; ``bench.plan.scenarios`` reads it from a TOML file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from bench.plan import cluster_states
from bench.plan.cell_setting import CellSetting
from bench.plan.question import Question
from pyhooks.core.toml_config import Natural, Naturals, Positive, Text
from pyhooks.kafka import gate
from pyhooks.lab import topology

Role = Literal["baseline", "control", "positive", "candidate", "none"]
ROLES: tuple[Role, ...] = ("baseline", "control", "positive", "candidate", "none")
Acks = Literal["all", "1"]
ACKS: tuple[Acks, ...] = ("all", "1")
# Each further verdict raises the evidence required of all verdicts; blocks can't support more than this.
MAX_CELLS = 12
# A mean of fewer blocks has no useful interval.
FEWEST_BLOCKS = 4
# Fields of ``LatencyPlan`` that a cell may have of its own.
CELL_TIMES = ("blocks", "pieces", "piece_s", "discard_s")
# Quantiles that can be judged, by their names in a plan.
JUDGED = {"p50": 0.5, "p99": 0.99}
InstrumentName = Literal["producer-perf-test", "end-to-end", "transaction"]
INSTRUMENTS: tuple[InstrumentName, ...] = ("producer-perf-test", "end-to-end", "transaction")


@dataclass(frozen=True)
class BenchArm:
    """One configuration under comparison."""

    id: Text  # short name for plots, such as ``A'``
    label: Text  # display name with the settings that differ
    topic: Text  # name of its topic in the outage phase (one partition); in cells the arms rotate over all topics
    # broker ids in the order of assignment; the first is the preferred leader. All arms of the latency phase have the
    # same replicas.
    replicas: Naturals
    min_insync_replicas: Positive  # M, ``min.insync.replicas``
    min_insync_racks: Positive  # R, ``min.insync.racks``; 1 is Kafka's behaviour without the gate
    latency: Role  # role in the latency phase, or ``none``
    outage: bool  # whether the arm takes part in the outage phase
    acks: Acks = "all"  # ``acks`` of its producer; with ``1`` the leader waits for no follower


@dataclass(frozen=True)
class SignificanceLevels:
    """Levels of one-sided tests."""

    equivalent: float  # level of each of the two tests for ``equivalent``
    different: float  # level of the tests of "not slower" and of "not faster"


@dataclass(frozen=True)
class VerdictRules:
    """Rules of all verdicts of a run, as in its plan."""

    alpha: Annotated[float, Field(ge=0.001, le=0.5)]  # bound on the probability that any verdict of the run is wrong
    power: Annotated[float, Field(ge=0.5, le=0.999)]  # probability with which the smallest detectable ratio is detected
    # share of the blocks that is left out at each end at the median, so that a burst of other work does not decide
    trim: Annotated[float, Field(ge=0, le=0.25)]
    min_blocks: Annotated[int, Field(ge=FEWEST_BLOCKS)]  # number of blocks that a verdict needs
    confidence: Annotated[float, Field(ge=0.5, le=0.999)]  # confidence level of each single interval that is shown
    resamples: Annotated[int, Field(ge=100)]  # number of resamples of whole blocks, for p99 and percentile curves

    def tails(self, family: int) -> SignificanceLevels:
        """Return the strictest levels that Holm's procedure requires in a family of this size."""
        return SignificanceLevels(self.alpha / 2 / family, self.alpha / 2 / (2 * family))

    @property
    def control_tails(self) -> SignificanceLevels:
        """Levels of a control, which is not part of the family."""
        return SignificanceLevels(self.alpha / 2, self.alpha / 2)


@dataclass(frozen=True)
class LatencyPlan(VerdictRules):
    """Plan of the latency phase: how the arms of a cell take turns in blocks, and how they are compared."""

    blocks: Annotated[int, Field(ge=2)]  # number of measured blocks
    pieces: Positive  # pieces of each arm in a block; the arms take turns, in a new order in each round of pieces
    piece_s: Annotated[float, Field(ge=0.05)]  # length of a piece in seconds
    # discarded head of each piece in seconds, while records of the previous arm are still in flight
    discard_s: Annotated[float, Field(ge=0)]
    # length of the first piece of each arm in a block, in which its new client connects, in seconds; discarded as a
    # whole
    opening_s: Annotated[float, Field(ge=0.05)]
    warmup_blocks: Natural  # discarded blocks before the first cell of a lab
    warmup_blocks_again: Natural  # discarded blocks before every other cell
    warmup_rate_per_s: Annotated[float, Field(ge=0.1, le=20_000)]  # intended records per second in warm-up blocks
    # percentiles of the table, as fractions
    quantiles: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], Field(min_length=1)]
    # number of observations that must lie beyond a percentile for it to be shown, and in each block for it to be judged
    min_beyond: Positive
    # share of an arm's latency that may be the pacer's own lateness for the verdict "equivalent"
    max_late_share: Annotated[float, Field(ge=0.01, le=1)]
    band_p50: float  # half-width of the equivalence band at p50, as a fraction
    band_p99: float  # the same at p99
    margin_p50_ms: float  # largest difference of equivalent arms at p50, in ms
    margin_p99_ms: float  # the same at p99

    @property
    def rules(self) -> VerdictRules:
        """Rules of the verdicts alone, to be compared with those of other cells."""
        return VerdictRules(**{rule.name: getattr(self, rule.name) for rule in dataclasses.fields(VerdictRules)})

    @property
    def measured_s(self) -> float:
        """Measured time of an arm in a block, in seconds."""
        return self.pieces * (self.piece_s - self.discard_s)

    def block_s(self, arms: int) -> float:
        """Return the length of a block with this number of arms, in seconds."""
        return arms * (self.opening_s + self.pieces * self.piece_s)

    def band(self, quantile: float) -> float:
        """Return the half-width of the equivalence band at ``quantile`` (0.5 or 0.99), as a fraction."""
        return {0.5: self.band_p50, 0.99: self.band_p99}[quantile]

    def margin_ms(self, quantile: float) -> float:
        """Return the largest difference of equivalent arms at ``quantile`` (0.5 or 0.99), in ms."""
        return {0.5: self.margin_p50_ms, 0.99: self.margin_p99_ms}[quantile]


@dataclass(frozen=True)
class OutagePlan:
    """Outage phase: load on all its arms at once, while one rack is made unavailable and healed."""

    rack: str  # rack that becomes unavailable
    rate_per_s: float  # intended records per second and topic
    before_s: Annotated[float, Field(ge=1)]  # seconds from the start to the fault
    during_s: Annotated[float, Field(ge=1)]  # seconds from the fault to the heal
    after_s: Annotated[float, Field(ge=1)]  # seconds from the heal to the end of the load
    discard_s: Annotated[float, Field(ge=0)]  # discarded head of the phase, in seconds
    # seconds from the rack's removal from a topic's ISR until the topic's behaviour is counted
    settle_s: Annotated[float, Field(ge=0)]
    # attempts per second and topic of the probe without retries
    probe_rate_per_s: Annotated[float, Field(ge=0.1, le=100)]
    isr_poll_s: Annotated[float, Field(ge=0.05, le=10)]  # seconds between two observations of leader and ISR
    # share of the records intended in the settled outage that must be acknowledged in it
    accepting_share: Annotated[float, Field(ge=0.01, le=1)]

    @property
    def total_s(self) -> float:
        """Length of the load in seconds."""
        return self.before_s + self.during_s + self.after_s


@dataclass(frozen=True)
class RampPlan:
    """Search for the load that a lab sustains: one rate after the other, until the lab does not keep up."""

    first_per_s: Annotated[float, Field(ge=1)]  # first rate; each further rate is twice the previous one
    last_per_s: Annotated[float, Field(ge=1, le=20_000)]  # highest rate to try
    step_s: Annotated[float, Field(ge=0.2)]  # duration of each rate, in seconds
    max_mb_per_s: Annotated[float, Field(ge=0.1)]  # highest throughput to try, in megabytes per second
    # the lab keeps up while every record is acknowledged and the median latency is at most ``slower`` times that of the
    # first rate
    slower: Annotated[float, Field(ge=1.1)]

    def rates(self, record_bytes: int) -> tuple[float, ...]:
        """Return the rates to try with records of this size, ascending; always at least the first one."""
        most = min(self.last_per_s, self.max_mb_per_s * 1e6 / record_bytes)
        rates_per_s = [self.first_per_s]
        while rates_per_s[-1] * 2 <= most:
            rates_per_s.append(rates_per_s[-1] * 2)
        return tuple(rates_per_s)


@dataclass(frozen=True)
class BenchCell:
    """Cluster state and setting in which all arms are compared."""

    id: str  # short name, the value of ``cell`` in the raw observations
    label: str  # display name
    state: str  # state of the cluster, such as ``healthy``
    scenario: Scenario  # scenario with the cell's own blocks, pieces and roles; its outage phase is not used
    setting: CellSetting = field(default_factory=CellSetting)  # link, load, record size, linger and client
    judged: tuple[float, ...] = (0.5, 0.99)  # quantiles that get a verdict; the others are only shown
    topology: str = "az3-outside"  # topology of its lab
    replicas: tuple[int, ...] = ()  # replicas of each of its topics
    question: Question | None = None  # question that the cell decides, or None
    # further instruments that measure its arms after the blocks, see ``bench.run.instruments``
    instruments: tuple[InstrumentName, ...] = ()
    instrument_rounds: int = 1  # how often each of them measures each arm; the order of the arms alternates
    # broker id to rack on an existing cluster; None to read the racks from the topology
    found_racks: Mapping[int, str] | None = None

    @property
    def place(self) -> tuple[str, str]:
        """Topology and link; cells that share them are measured in one lab."""
        return self.topology, self.setting.link

    @property
    def reached(self) -> cluster_states.StateBrokers:
        """Brokers in the ISR, killed and slowed in its state; ValueError if its replicas can't be in that state."""
        return cluster_states.brokers_in_state(self.state, self.replicas, self.racks)

    @cached_property
    def racks(self) -> dict[int, str]:
        """Broker id to rack, of all brokers of its topology or of the existing cluster."""
        if self.found_racks is not None:
            return dict(self.found_racks)
        return {node.node_id: node.site for node in topology.load(topology.find(self.topology)).brokers}

    @property
    def rejecting(self) -> frozenset[str]:
        """Ids of the arms that should be rejected by the gate in this state."""
        isr = self.reached.isr

        def passes(arm: BenchArm) -> bool:
            limits = gate.limits(arm.min_insync_replicas, arm.min_insync_racks, len(self.replicas))
            return limits.decide(isr, self.racks).passes

        return frozenset(arm.id for arm in self.scenario.latency_arms if not passes(arm))


@dataclass(frozen=True)
class Scenario:
    """Plan of a whole run."""

    name: str
    about: Text  # description in one line
    topology: str  # name of the lab's topology; cells in two data centres have their own
    seed: Natural  # seed of every random choice: order of arms, sending times, payload, resamples
    tasks: int  # number of Spark tasks that send the load
    flush_s: Annotated[float, Field(ge=0.1, le=600)]  # bound on waiting for the last acknowledgements, in seconds
    client: Mapping[str, str | int | float | bool]  # librdkafka properties
    java: Mapping[str, str | int | float | bool]  # properties of the Java producer
    latency: LatencyPlan
    ramp: RampPlan | None  # how to find the load that a lab sustains; None if no cell needs it
    outage: OutagePlan | None
    arms: tuple[BenchArm, ...]
    cells: tuple[BenchCell, ...] = ()  # cells with verdicts, in the order of the file
    # target duration of the run in minutes, or None. It does not affect any measurement.
    target_min: float | None = None

    @property
    def latency_arms(self) -> tuple[BenchArm, ...]:
        """Baseline, controls and candidates, in the order of the file."""
        return tuple(arm for arm in self.arms if arm.latency != "none")

    @property
    def outage_arms(self) -> tuple[BenchArm, ...]:
        """The arms of the outage phase, in the order of the file."""
        return tuple(arm for arm in self.arms if arm.outage)

    def role(self, role: Role) -> BenchArm:
        """Return the arm with this role in the latency phase (the first, if several)."""
        return next(arm for arm in self.arms if arm.latency == role)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Topology and link of each lab that the run needs: the outage's first, then in the order of the cells."""
        of_outage = ((self.topology, "az"),) if self.outage else ()
        return tuple(dict.fromkeys((*of_outage, *(cell.place for cell in self.cells))))

    def as_json(self) -> dict[str, Any]:
        """Return the scenario as plain JSON for the manifest and the run's conditions, without its target duration."""
        plain = asdict(dataclasses.replace(self, cells=()))
        del plain["target_min"]
        plain["cells"] = [
            {
                "id": cell.id,
                **cell.setting.as_json(),
                "topology": cell.topology,
                "replicas": list(cell.replicas),
                **{name: getattr(cell.scenario.latency, name) for name in CELL_TIMES},
                "roles": {arm.id: arm.latency for arm in cell.scenario.latency_arms},
                "judged": [name for name, quantile in JUDGED.items() if quantile in cell.judged],
                "question": cell.question and asdict(cell.question),
                "instruments": list(cell.instruments),
                # left out if it is 1, as in earlier results
                **({"instrument_rounds": cell.instrument_rounds} if cell.instrument_rounds > 1 else {}),
            }
            for cell in self.cells
        ]
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Scenario:
        """Return the scenario of ``as_json`` as far as an analysis needs it: without outage, ramp and questions."""
        without_phases = {**plain, "ramp": None, "outage": None, "cells": ()}
        scenario = TypeAdapter(cls).validate_python(without_phases)
        return dataclasses.replace(scenario, cells=tuple(scenario._cell(cell) for cell in plain["cells"]))

    def _cell(self, plain: Mapping[str, Any]) -> BenchCell:
        """Return a cell of ``as_json``."""
        setting = TypeAdapter(CellSetting).validate_python(plain)
        latency = dataclasses.replace(self.latency, **{name: plain[name] for name in CELL_TIMES})
        arms = tuple(dataclasses.replace(arm, latency=plain["roles"].get(arm.id, "none")) for arm in self.arms)
        return BenchCell(
            id=plain["id"],
            label=setting.text,
            state=setting.state,
            scenario=dataclasses.replace(self, latency=latency, arms=arms),
            setting=setting,
            judged=tuple(JUDGED[name] for name in plain["judged"]),
            topology=plain["topology"],
            replicas=tuple(plain["replicas"]),
        )
