"""Reads the plan of a run from a TOML file into frozen dataclasses; a wrong file names its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench.inference import FEWEST_BLOCKS, Rules
from pyhooks import toml
from pyhooks.errors import RackgateError

SHIPPED = Path(__file__).parent / "scenarios.toml"

Role = Literal["baseline", "control", "candidate", "none"]
ROLES: tuple[Role, ...] = ("baseline", "control", "candidate", "none")
# Given by the job itself; a scenario that sets them would measure something else than it says.
RESERVED_CLIENT_KEYS = frozenset({"bootstrap.servers", "acks", "request.required.acks", "retries"})


@dataclass(frozen=True)
class Arm:
    """One configuration under comparison, with a topic of its own.

    Attributes:
        id: short name for plots, such as ``A'``.
        label: what differs, for people.
        topic: name of its topic (one partition).
        replicas: broker ids in the order of assignment; the first is the preferred leader.
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
    """The latency phase: rounds of all arms in random order, one slot an arm.

    Attributes:
        rate_per_s: intended records per second while a slot lasts.
        warmup_rounds: rounds before the first block; discarded whole.
        warmup_rate_per_s: intended records per second in those.
        blocks: rounds that count.
        slot_s: length of a slot in seconds.
        discard_s: head of each slot that is discarded, in seconds.
        gap_s: pause between two slots in seconds.
        quantiles: percentiles of the table, as fractions.
        min_beyond: a percentile is given only if so many observations lie beyond it.
        confidence: of every interval that is shown, such as 0.95.
        resamples: bootstrap resamples.
        alpha: bound on the chance that any word of the run is wrong; ``bench.inference`` has the test.
        power: chance with which the smallest detectable ratio is detected.
        trim: share of the blocks that is left out at each end of a mean.
        min_blocks: fewer carry no verdict.
        band_p50: half-width of the equivalence band at p50, as a fraction.
        band_p99: the same at p99.
    """

    rate_per_s: float
    warmup_rounds: int
    warmup_rate_per_s: float
    blocks: int
    slot_s: float
    discard_s: float
    gap_s: float
    quantiles: tuple[float, ...]
    min_beyond: int
    confidence: float
    resamples: int
    alpha: float
    power: float
    trim: float
    min_blocks: int
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
class Cell:
    """A situation in which all arms are compared: a state of the cluster, a link, a load, a size, a linger, a client.

    Attributes:
        id: short name, the value of ``cell`` in the raw observations.
        label: for people.
        state: of the cluster, such as ``healthy``.
        scenario: what was driven in it; its latency phase alone is read.
    """

    id: str
    label: str
    state: str
    scenario: Scenario


@dataclass(frozen=True)
class Scenario:
    """A whole run.

    Attributes:
        name: its table in the file.
        about: one line for people.
        topology: name of the lab's topology.
        seed: of every random choice: order of arms, payload, resamples.
        tasks: Spark tasks that carry the load.
        record_bytes: size of a record's value.
        flush_s: bound on waiting for the last acknowledgements, in seconds.
        client: librdkafka properties.
        latency: the latency phase.
        outage: the outage phase.
        arms: all arms.
    """

    name: str
    about: str
    topology: str
    seed: int
    tasks: int
    record_bytes: int
    flush_s: float
    client: Mapping[str, str | int | float | bool]
    latency: LatencyPlan
    outage: OutagePlan
    arms: tuple[Arm, ...]

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
    def cells(self) -> tuple[Cell, ...]:
        """The cells that carry verdicts: one, the healthy cluster."""
        return (Cell(self.name, self.about, "healthy", self),)

    def as_json(self) -> dict[str, Any]:
        """The scenario as plain JSON, for the manifest."""
        return asdict(self)


class _Table:
    """One TOML table that is read key by key; what is wrong or left over is an error with its full key."""

    def __init__(self, raw: object, file: Path, key: str) -> None:
        if not isinstance(raw, dict):
            raise RackgateError(f"{file}: [{key}] must be a table")
        self._raw = dict(raw)
        self._file = file
        self._key = key

    def wrong(self, key: str, why: str) -> RackgateError:
        return RackgateError(f"{self._file}: key {self._key}.{key}: {why}")

    def _take(self, key: str) -> Any:
        if key not in self._raw:
            raise self.wrong(key, "is missing")
        return self._raw.pop(key)

    def text(self, key: str) -> str:
        value = self._take(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"must be a text, is {value!r}")
        return value

    def flag(self, key: str) -> bool:
        value = self._take(key)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, is {value!r}")
        return value

    def number(self, key: str, low: float, high: float = float("inf")) -> float:
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, f"must be a number, is {value!r}")
        if not low <= value <= high:
            raise self.wrong(key, f"must be from {low:g} to {high:g}, is {value:g}")
        return float(value)

    def whole(self, key: str, low: int, high: float = float("inf")) -> int:
        value = self._raw.get(key)
        if isinstance(value, float):
            raise self.wrong(key, f"must be a whole number, is {value!r}")
        return int(self.number(key, low, high))

    def numbers(self, key: str, low: float, high: float) -> tuple[float, ...]:
        value = self._take(key)
        good = isinstance(value, list) and value and all(isinstance(x, int | float) for x in value)
        if not good or not all(low < x < high for x in value):
            raise self.wrong(key, f"must be a list of numbers between {low:g} and {high:g}, is {value!r}")
        return tuple(float(x) for x in value)

    def ids(self, key: str) -> tuple[int, ...]:
        value = self._take(key)
        if not isinstance(value, list) or not value or not all(type(x) is int and x >= 0 for x in value):
            raise self.wrong(key, f"must be a list of broker ids, is {value!r}")
        if len(set(value)) != len(value):
            raise self.wrong(key, f"names a broker twice: {value!r}")
        return tuple(value)

    def table(self, key: str) -> _Table:
        return _Table(self._take(key), self._file, f"{self._key}.{key}")

    def tables(self, key: str) -> list[_Table]:
        value = self._take(key)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, "must be a list of tables")
        return [_Table(raw, self._file, f"{self._key}.{key}[{n}]") for n, raw in enumerate(value)]

    def rest(self) -> dict[str, Any]:
        rest, self._raw = self._raw, {}
        return rest

    def done(self) -> None:
        for key in self._raw:
            raise self.wrong(key, "is not known")


def names(path: Path = SHIPPED) -> tuple[str, ...]:
    """Names of the scenarios in a file.

    Raises:
        RackgateError: the file can't be read or is not TOML.
    """
    return tuple(toml.read(path, "it describes the scenarios"))


def load(name: str, path: Path = SHIPPED) -> Scenario:
    """Reads one scenario.

    Args:
        name: a table of the file.
        path: the file; the one that comes with the project by default.

    Raises:
        RackgateError: no such scenario, or a key is missing, unknown or out of its range.
    """
    raw = toml.read(path, "it describes the scenarios")
    if name not in raw:
        raise RackgateError(f"{path}: no scenario {name!r}; it has {', '.join(raw)}")
    table = _Table(raw[name], path, name)
    scenario = Scenario(
        name=name,
        about=table.text("about"),
        topology=table.text("topology"),
        seed=table.whole("seed", 0),
        tasks=table.whole("tasks", 1),
        record_bytes=table.whole("record_bytes", 1, 1_000_000),
        flush_s=table.number("flush_s", 0.1, 600),
        client=_client(table.table("client")),
        latency=_latency(table.table("latency")),
        outage=_outage(table.table("outage")),
        arms=tuple(_arm(arm) for arm in table.tables("arms")),
    )
    table.done()
    _check_arms(scenario, table)
    return scenario


def _client(table: _Table) -> dict[str, str | int | float | bool]:
    properties = table.rest()
    for key, value in properties.items():
        if key in RESERVED_CLIENT_KEYS:
            raise table.wrong(key, "is set by the benchmark itself")
        if not isinstance(value, str | int | float | bool):
            raise table.wrong(key, "must be a text, a number or a flag")
    return properties


def _latency(table: _Table) -> LatencyPlan:
    bands = table.table("bands")
    plan = LatencyPlan(
        rate_per_s=table.number("rate_per_s", 0.1, 1_000_000),
        warmup_rounds=table.whole("warmup_rounds", 0),
        warmup_rate_per_s=table.number("warmup_rate_per_s", 0.1, 1_000_000),
        blocks=table.whole("blocks", 2),
        slot_s=table.number("slot_s", 0.1),
        discard_s=table.number("discard_s", 0),
        gap_s=table.number("gap_s", 0),
        quantiles=table.numbers("quantiles", 0, 1),
        min_beyond=table.whole("min_beyond", 1),
        confidence=table.number("confidence", 0.5, 0.999),
        resamples=table.whole("resamples", 100),
        alpha=table.number("alpha", 0.001, 0.5),
        power=table.number("power", 0.5, 0.999),
        trim=table.number("trim", 0, 0.25),
        min_blocks=table.whole("min_blocks", FEWEST_BLOCKS),
        band_p50=bands.number("p50", 0.001, 1),
        band_p99=bands.number("p99", 0.001, 1),
    )
    bands.done()
    if plan.discard_s >= plan.slot_s:
        raise table.wrong("discard_s", f"must be below slot_s = {plan.slot_s:g}")
    table.done()
    return plan


def _outage(table: _Table) -> OutagePlan:
    plan = OutagePlan(
        rack=table.text("rack"),
        rate_per_s=table.number("rate_per_s", 0.1, 1_000_000),
        before_s=table.number("before_s", 1),
        during_s=table.number("during_s", 1),
        after_s=table.number("after_s", 1),
        discard_s=table.number("discard_s", 0),
        settle_s=table.number("settle_s", 0),
        probe_rate_per_s=table.number("probe_rate_per_s", 0.1, 100),
        isr_poll_s=table.number("isr_poll_s", 0.05, 10),
        went_on_share=table.number("went_on_share", 0.01, 1),
    )
    if plan.discard_s >= plan.before_s:
        raise table.wrong("discard_s", f"must be below before_s = {plan.before_s:g}")
    table.done()
    return plan


def _arm(table: _Table) -> Arm:
    role = table.text("latency")
    if role not in ROLES:
        raise table.wrong("latency", f"must be one of {', '.join(ROLES)}, is {role!r}")
    arm = Arm(
        id=table.text("id"),
        label=table.text("label"),
        topic=table.text("topic"),
        replicas=table.ids("replicas"),
        min_insync_replicas=table.whole("min_insync_replicas", 1),
        min_insync_racks=table.whole("min_insync_racks", 1),
        latency=role,
        outage=table.flag("outage"),
    )
    if arm.min_insync_replicas > len(arm.replicas):
        raise table.wrong("min_insync_replicas", f"is above the {len(arm.replicas)} replicas")
    table.done()
    return arm


def _check_arms(scenario: Scenario, table: _Table) -> None:
    for what in ("id", "topic"):
        seen = [getattr(arm, what) for arm in scenario.arms]
        if len(set(seen)) != len(seen):
            raise table.wrong("arms", f"two arms have the same {what}")
    roles = [str(arm.latency) for arm in scenario.latency_arms]
    for role in ("baseline", "control"):
        if roles.count(role) != 1:
            raise table.wrong("arms", f"exactly one arm must be the {role} of the latency phase")
    if "candidate" not in roles:
        raise table.wrong("arms", "at least one arm must be a candidate of the latency phase")
    placements = {arm.replicas for arm in scenario.latency_arms}
    if len(placements) != 1:
        raise table.wrong("arms", "the arms of the latency phase must have the same replicas")
    if not scenario.outage_arms:
        raise table.wrong("arms", "at least one arm must take part in the outage phase")
