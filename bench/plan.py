"""What a run does, as frozen dataclasses; ``bench.scenarios`` reads them from a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from bench import states
from bench.inference import Rules
from bench.settings import Setting
from pyhooks.kafka import gate
from pyhooks.lab import topology

Role = Literal["baseline", "control", "candidate", "none"]
ROLES: tuple[Role, ...] = ("baseline", "control", "candidate", "none")
# More verdicts would ask more of each of them than blocks can give.
MOST_CELLS = 12
# The quantiles that a verdict can be about, by the names that a plan has for them.
JUDGED = {"p50": 0.5, "p99": 0.99}


@dataclass(frozen=True)
class Arm:
    """One configuration under comparison.

    Attributes:
        id: short name for plots, such as ``A'``.
        label: what differs, for people.
        topic: name of its topic in the outage phase (one partition); in cells all arms go round all topics.
        replicas: broker ids in the order of assignment; the first is the preferred leader. Those of the arms of the
            latency phase are the same.
        min_insync_replicas: M.
        min_insync_racks: R; 1 is Kafka's behaviour without the gate.
        latency: its part in the latency phase, or ``none``.
        outage: whether it is driven in the outage phase.
    """

    id: str
    label: str
    topic: str
    replicas: tuple[int, ...]
    min_insync_replicas: int
    min_insync_racks: int
    latency: Role
    outage: bool


@dataclass(frozen=True)
class LatencyPlan:
    """How arms take turns in the blocks of a cell.

    Attributes:
        blocks: that count.
        pieces: of each arm in a block; the arms take turns, in a new order in each round of pieces.
        piece_s: length of a piece in seconds.
        discard_s: head of each piece that is discarded, in seconds, while the arm before still has records under way.
        opening_s: first piece of each arm in a block, in which its new client connects; discarded whole.
        warmup_blocks: before the first cell of a lab; discarded whole.
        warmup_blocks_again: before every other cell.
        warmup_rate_per_s: intended records per second in those.
        quantiles: percentiles of the table, as fractions.
        min_beyond: a percentile is given only if so many observations lie beyond it.
        confidence: of every interval that is shown, such as 0.95.
        resamples: bootstrap resamples.
        alpha: bound on the chance that any word of the run is wrong; ``bench.inference`` has the test.
        power: chance with which the smallest detectable ratio is detected.
        trim: share of the blocks that is left out at each end of a mean.
        min_blocks: fewer carry no verdict.
        most_late_share: of an arm's latency that may be the pacer's own lateness where a word says "equivalent".
        band_p50: half-width of the equivalence band at p50, as a fraction.
        band_p99: the same at p99.
    """

    blocks: int
    pieces: int
    piece_s: float
    discard_s: float
    opening_s: float
    warmup_blocks: int
    warmup_blocks_again: int
    warmup_rate_per_s: float
    quantiles: tuple[float, ...]
    min_beyond: int
    confidence: float
    resamples: int
    alpha: float
    power: float
    trim: float
    min_blocks: int
    most_late_share: float
    band_p50: float
    band_p99: float

    @property
    def rules(self) -> Rules:
        """What a verdict asks."""
        return Rules(
            alpha=self.alpha,
            power=self.power,
            trim=self.trim,
            min_blocks=self.min_blocks,
            confidence=self.confidence,
            resamples=self.resamples,
        )

    @property
    def measured_s(self) -> float:
        """What counts of an arm in a block, in seconds."""
        return self.pieces * (self.piece_s - self.discard_s)

    def block_s(self, arms: int) -> float:
        """Length of a block of so many arms, in seconds."""
        return arms * (self.opening_s + self.pieces * self.piece_s)

    def band(self, quantile: float) -> float:
        """Half-width of the equivalence band at ``quantile`` (0.5 or 0.99), as a fraction."""
        return {0.5: self.band_p50, 0.99: self.band_p99}[quantile]


@dataclass(frozen=True)
class OutagePlan:
    """The outage phase: all its arms at once, a rack taken away and given back.

    Attributes:
        rack: the rack that is taken away.
        rate_per_s: intended records per second and topic.
        before_s: seconds from the start to the fault.
        during_s: seconds from the fault to the heal.
        after_s: seconds from the heal to the end of the load.
        discard_s: head of the phase that is discarded, in seconds.
        settle_s: seconds after the rack left a topic's ISR until the topic's behaviour is counted.
        probe_rate_per_s: attempts per second and topic of the probe that never retries.
        isr_poll_s: seconds between two looks at leader and ISR.
        went_on_share: share of the records intended in the settled outage that must be acknowledged in it.
    """

    rack: str
    rate_per_s: float
    before_s: float
    during_s: float
    after_s: float
    discard_s: float
    settle_s: float
    probe_rate_per_s: float
    isr_poll_s: float
    went_on_share: float

    @property
    def total_s(self) -> float:
        """Length of the load in seconds."""
        return self.before_s + self.during_s + self.after_s


@dataclass(frozen=True)
class Ramp:
    """How the load that a lab sustains is found: one rate after the other, until it does not keep up.

    Attributes:
        first_per_s: the first rate; each further one is twice the one before.
        last_per_s: no higher one is tried.
        step_s: length of each, in seconds.
        most_mb_per_s: nor one of more megabytes a second.
        slower: it keeps up as long as the median latency is at most so many times that of the first rate, and every
            record is acknowledged.
    """

    first_per_s: float
    last_per_s: float
    step_s: float
    most_mb_per_s: float
    slower: float

    def rates(self, record_bytes: int) -> tuple[float, ...]:
        """The rates that are tried with records of this size, ascending; the first one in any case."""
        most = min(self.last_per_s, self.most_mb_per_s * 1e6 / record_bytes)
        found = [self.first_per_s]
        while found[-1] * 2 <= most:
            found.append(found[-1] * 2)
        return tuple(found)


@dataclass(frozen=True)
class Cell:
    """A situation in which all arms are compared.

    Attributes:
        id: short name, the value of ``cell`` in the raw observations.
        label: for people.
        state: of the cluster, such as ``healthy``.
        scenario: what is driven in it, with the cell's own blocks and pieces; its latency phase alone is read.
        setting: in what it is measured.
        judged: the quantiles that a word is said of; the others are shown without one.
        topology: of its lab.
        replicas: of each of its topics.
        found_racks: of the brokers of a cluster that is not the lab's; None for the topology's.
    """

    id: str
    label: str
    state: str
    scenario: Scenario
    setting: Setting = field(default_factory=Setting)
    judged: tuple[float, ...] = (0.5, 0.99)
    topology: str = "az3-outside"
    replicas: tuple[int, ...] = ()
    found_racks: Mapping[int, str] | None = None

    @property
    def place(self) -> tuple[str, str]:
        """Topology and link: cells that share them are measured in one lab."""
        return self.topology, self.setting.link

    @property
    def reached(self) -> states.Reached:
        """Its state as brokers.

        Raises:
            ValueError: the topology does not have it.
        """
        return states.reach(self.state, self.replicas, self.racks)

    @cached_property
    def racks(self) -> dict[int, str]:
        """Of all brokers of its topology, or of the cluster."""
        if self.found_racks is not None:
            return dict(self.found_racks)
        return {node.node_id: node.site for node in topology.load(topology.find(self.topology)).brokers}

    @property
    def refusing(self) -> frozenset[str]:
        """Ids of the arms whose gate should refuse in this state."""
        isr = self.reached.isr
        racks = gate.racks_of(isr, self.racks)
        found = set()
        for arm in self.scenario.latency_arms:
            needs = (arm.min_insync_replicas, arm.min_insync_racks)
            replicas, racks_needed = (gate.capped(need, len(self.replicas)) for need in needs)
            if not gate.Answer(len(isr), racks, replicas, racks_needed).passes:
                found.add(arm.id)
        return frozenset(found)


@dataclass(frozen=True)
class Scenario:
    """A whole run.

    Attributes:
        name: its table in the file.
        about: one line for people.
        topology: name of the lab's topology; cells in two data centres have their own.
        seed: of every random choice: order of arms, sending times, payload, resamples.
        tasks: Spark tasks that carry the load.
        flush_s: bound on waiting for the last acknowledgements, in seconds.
        client: librdkafka properties.
        java: properties of the Java producer.
        latency: how arms are compared in each cell.
        ramp: how the load that a lab sustains is found; None if no cell asks for a share of it.
        outage: the outage phase; None without one.
        arms: all arms.
        cells: the cells that carry verdicts, in the order of the file.
        bar_min: minutes that the run may take; None without a bar. Nothing is measured otherwise for it.
    """

    name: str
    about: str
    topology: str
    seed: int
    tasks: int
    flush_s: float
    client: Mapping[str, str | int | float | bool]
    java: Mapping[str, str | int | float | bool]
    latency: LatencyPlan
    ramp: Ramp | None
    outage: OutagePlan | None
    arms: tuple[Arm, ...]
    cells: tuple[Cell, ...] = ()
    bar_min: float | None = None

    @property
    def latency_arms(self) -> tuple[Arm, ...]:
        """Baseline, control and candidates, in the order of the file."""
        return tuple(arm for arm in self.arms if arm.latency != "none")

    @property
    def outage_arms(self) -> tuple[Arm, ...]:
        """The arms of the outage phase, in the order of the file."""
        return tuple(arm for arm in self.arms if arm.outage)

    def role(self, role: Role) -> Arm:
        """The arm with this part in the latency phase (the first, if several)."""
        return next(arm for arm in self.arms if arm.latency == role)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Topology and link of each lab that the run needs, in the order of its cells; the outage's first."""
        own = ((self.topology, "az"),) if self.outage else ()
        return tuple(dict.fromkeys((*own, *(cell.place for cell in self.cells))))

    def as_json(self) -> dict[str, Any]:
        """The scenario as plain JSON, for the manifest and to see whether a run can go on: without its bar of time."""
        found = asdict(dataclasses.replace(self, cells=()))
        del found["bar_min"]
        found["cells"] = [
            {
                "id": cell.id,
                **cell.setting.as_json(),
                "topology": cell.topology,
                "replicas": list(cell.replicas),
                "blocks": cell.scenario.latency.blocks,
                "pieces": cell.scenario.latency.pieces,
                "roles": {arm.id: arm.latency for arm in cell.scenario.latency_arms},
                "judged": [name for name, quantile in JUDGED.items() if quantile in cell.judged],
            }
            for cell in self.cells
        ]
        return found
