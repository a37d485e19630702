"""What the forks of a benchmark say: differences with intervals, and whether they are below the bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyhooks.core.statistics import student_t_quantile

Verdict = Literal["met", "not met", "unknown"]

RESAMPLES = 20_000
_SEED = 1290
_TRIM = 0.2
FEWEST_FORKS = 3
# What disturbs a fork falls on the end of its measurement as often as on the begin; that a JVM does not run yet as it
# does in the long run shows in nearly all forks of a side, and always at the begin.
_WARMING = 1.2
_WARMING_SHARE = 0.75

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fork:
    """What one fork of one benchmark measured.

    Attributes:
        cell: name of the benchmark with its parameters and its side.
        round_: number of the round that it belongs to.
        cpu_ns: CPU time of the measuring thread per operation; see ``jmhbench.read``.
        wall_ns: time on the wall per operation, as JMH's score.
        bytes_: allocated per operation, by JMH's GC profiler.
        load: the machine's load average at its end.
        iterations_ns: as ``cpu_ns``, of each iteration.
    """

    cell: str
    round_: int
    cpu_ns: float
    wall_ns: float
    bytes_: float
    load: float
    iterations_ns: tuple[float, ...]

    @property
    def was_warming(self) -> bool:
        """Whether the first third of its iterations took much longer than the last, by their medians."""
        third = max(1, len(self.iterations_ns) // 3)
        first, last = np.median(self.iterations_ns[:third]), np.median(self.iterations_ns[-third:])
        return bool(first > _WARMING * last)

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Fork:
        """Back from what ``dataclasses.asdict`` and JSON made of it."""
        return Fork(**{**plain, "iterations_ns": tuple(plain["iterations_ns"])})


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval.

    Attributes:
        estimate: the middle.
        low: lower end.
        high: upper end.
    """

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Bar:
    """A limit and whether it is kept.

    Attributes:
        name: ``bytes``, ``ns`` or ``percent``.
        limit: the upper end of the interval must be below it.
        measured: the difference, overlay minus stock.
        verdict: met if all of the interval is below the limit, not met if all of it is above, else unknown.
        forks_needed: about how many forks would settle it if the noise stays as it is; 0 if it is settled.
    """

    name: str
    limit: float
    measured: Interval
    verdict: Verdict
    forks_needed: int


LIMITS: Mapping[str, float] = {"bytes": 0.5, "ns": 5.0, "percent": 3.0}


def trimmed_mean(values: Floats, trim: float = _TRIM) -> Floats:
    """Mean along the last axis without the lowest and the highest fifth: a burst of other work must not decide."""
    count = values.shape[-1]
    cut = math.floor(count * trim)
    ordered = np.sort(values, axis=-1)
    kept: Floats = ordered[..., cut : count - cut]
    return np.asarray(kept.mean(axis=-1), dtype=np.float64)


@cache
def _wider(count: int) -> float:
    """How much wider Student's t makes an interval of so many values than the normal distribution does."""
    return student_t_quantile(0.975, count - 1) / NormalDist().inv_cdf(0.975) * math.sqrt(count / (count - 1))


def difference(
    before: Sequence[float], after: Sequence[float], *, relative: bool = False, trim: float = _TRIM
) -> Interval:
    """The difference of two sides, paired by round, with a 95 % bootstrap interval across forks.

    Rounds are drawn anew, so what disturbed both sides of a round alike cancels. The interval is widened as
    Student's t is against the normal distribution, since a bootstrap of few forks is too narrow.

    Args:
        before: one value a round.
        after: one value a round, in the same order.
        relative: in percent of ``before``.
        trim: share of the differences to leave out at each end.

    Raises:
        ValueError: the sides differ in length, or there are fewer than ``FEWEST_FORKS`` rounds.
    """
    if len(before) != len(after) or len(before) < FEWEST_FORKS:
        raise ValueError(f"{len(before)} and {len(after)} forks; {FEWEST_FORKS} of each at least")
    one, two = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    count = len(one)
    drawn = np.random.default_rng(_SEED).integers(0, count, size=(RESAMPLES, count))

    def statistic(first: Floats, second: Floats) -> Floats:
        gap = trimmed_mean(second - first, trim)
        return gap / trimmed_mean(first, trim) * 100.0 if relative else gap

    estimate = float(statistic(one, two))
    low, high = np.percentile(statistic(one[drawn], two[drawn]), [2.5, 97.5])
    wider = _wider(count)
    return Interval(estimate, estimate - (estimate - float(low)) * wider, estimate + (float(high) - estimate) * wider)


def judge(name: str, measured: Interval, forks: int) -> Bar:
    """Holds a difference against its limit."""
    limit = LIMITS[name]
    if measured.high < limit:
        return Bar(name, limit, measured, "met", 0)
    if measured.low > limit:
        return Bar(name, limit, measured, "not met", 0)
    margin = abs(limit - measured.estimate)
    reach = measured.high - measured.estimate if measured.estimate < limit else measured.estimate - measured.low
    needed = math.ceil(forks * (reach / margin) ** 2) if margin > 0 else 0
    return Bar(name, limit, measured, "unknown", max(needed, forks + 1))


@dataclass(frozen=True)
class Comparison:
    """Two cells to be held against each other.

    Attributes:
        name: for people.
        stock: cell on the published jars.
        other: cell on the overlay, or again on the published jars for a control.
        control: whether no difference is expected, since both sides are the same.
    """

    name: str
    stock: str
    other: str
    control: bool = False


def compare(comparison: Comparison, forks: Sequence[Fork]) -> dict[str, Any]:
    """One comparison as plain JSON; without enough forks its bars are unknown.

    ``warming`` is the share of forks of each side that were still getting faster while they were measured. If it is
    three quarters of a side, the comparison is ``cold``: that side was not warm, and what is said of time is unknown,
    however narrow its interval.
    """
    sides = [{f.round_: f for f in forks if f.cell == cell} for cell in (comparison.stock, comparison.other)]
    rounds = sorted(set(sides[0]) & set(sides[1]))
    result: dict[str, Any] = {**asdict(comparison), "forks": len(rounds), "cold": False}
    if len(rounds) < FEWEST_FORKS:
        return {**result, "bars": [], "verdict": "unknown"}
    stock, other = ([side[number] for number in rounds] for side in sides)
    cpu = [f.cpu_ns for f in stock], [f.cpu_ns for f in other]
    bytes_ = [f.bytes_ for f in stock], [f.bytes_ for f in other]
    measured = {"bytes": difference(*bytes_), "ns": difference(*cpu), "percent": difference(*cpu, relative=True)}
    result["warming"] = {
        name: round(sum(f.was_warming for f in side) / len(rounds), 3)
        for name, side in (("stock", stock), ("other", other))
    }
    result["cold"] = max(result["warming"].values()) >= _WARMING_SHARE
    bars = [
        replace(bar, verdict="unknown", forks_needed=0) if result["cold"] and bar.name != "bytes" else bar
        for bar in (judge(name, interval, len(rounds)) for name, interval in measured.items())
    ]
    result["stock_ns"], result["other_ns"] = (round(float(trimmed_mean(np.asarray(side))), 3) for side in cpu)
    result["stock_bytes"] = round(float(np.median([f.bytes_ for f in stock])), 3)
    # A trimmed mean does not see what befalls fewer than a fifth of the forks, such as a compiler that now and then
    # decides otherwise; a plain mean does.
    untrimmed = {
        "bytes": difference(*bytes_, trim=0.0),
        "ns": difference(*cpu, trim=0.0),
        "percent": difference(*cpu, relative=True, trim=0.0),
    }
    result["untrimmed"] = {name: asdict(interval) for name, interval in untrimmed.items()}
    result["wall_ns_difference"] = asdict(difference([f.wall_ns for f in stock], [f.wall_ns for f in other]))
    return {**result, "bars": [asdict(bar) for bar in bars], "verdict": worst([bar.verdict for bar in bars])}


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """``not met`` before ``unknown`` before ``met``; of nothing, ``unknown``."""
    for verdict in ("not met", "unknown"):
        if verdict in verdicts:
            return verdict
    return "met" if verdicts else "unknown"
