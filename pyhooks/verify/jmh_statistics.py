"""Statistics of benchmark forks: differences with confidence intervals, and verdicts against limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache, partial
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from pyhooks.core.statistics import Floats, Interval

Verdict = Literal["met", "not met", "unknown"]

RESAMPLES = 20_000
ONE_LOOK_TAIL = 0.025
_SEED = 1290
_TRIM = 0.2
FEWEST_FORKS = 3
# A disturbance affects the end of a fork's measurement as often as its start. Incomplete warm-up affects nearly all
# forks of a side, and always at the start.
_WARMING = 1.2
_WARMING_SHARE = 0.75


@dataclass(frozen=True)
class Fork:
    """Measurements of one fork of one benchmark.

    Attributes:
        cpu_ns: CPU time of the measuring thread per operation, in the fastest slice; see ``jmh_runner.read``.
        median_ns: the same in the median slice: the median over the iterations of each one's median slice.
        wall_ns: wall-clock time per operation, JMH's score.
        bytes_: bytes allocated per operation, from JMH's GC profiler.
        load: the machine's load average at its end.
        iterations_ns: CPU time per operation in the fastest slice of each iteration.
    """

    cell: str
    round_: int
    cpu_ns: float
    median_ns: float
    wall_ns: float
    bytes_: float
    load: float
    iterations_ns: tuple[float, ...]

    @property
    def was_warming(self) -> bool:
        """Whether the median of the first third of its iterations is much slower than that of the last third."""
        third = max(1, len(self.iterations_ns) // 3)
        first, last = np.median(self.iterations_ns[:third]), np.median(self.iterations_ns[-third:])
        return bool(first > _WARMING * last)


@dataclass(frozen=True)
class TargetResult:
    """A target for a difference, with its verdict.

    Attributes:
        limit: the upper end of the interval must be below it.
        measured: the difference, overlay minus stock.
        verdict: ``met`` if the interval is below the limit, ``not met`` if it is above, otherwise ``unknown``.
        forks_needed: estimated number of forks for a verdict at the current noise; 0 if there is a verdict, or if more
            forks would not help.
    """

    name: str
    limit: float
    measured: Interval
    verdict: Verdict
    forks_needed: int


LIMITS: Mapping[str, float] = {"bytes": 0.5, "ns": 5.0, "percent": 3.0}


def trimmed_mean(values: Floats, trim: float = _TRIM) -> Floats:
    """Return the mean along the last axis without the lowest and highest ``trim`` share: outliers must not count."""
    from scipy import stats

    return np.asarray(stats.trim_mean(values, trim, axis=-1), dtype=np.float64)


@cache
def _wider(count: int, tail: float) -> float:
    """Return the factor that widens a bootstrap interval of ``count`` values, from Student's t distribution."""
    from scipy import stats

    return float(stats.t.isf(tail, count - 1)) / -NormalDist().inv_cdf(tail) * math.sqrt(count / (count - 1))


def difference(
    before: Sequence[float],
    after: Sequence[float],
    *,
    relative: bool = False,
    trim: float = _TRIM,
    tail: float = ONE_LOOK_TAIL,
) -> Interval:
    """Return the difference of two sides, paired by round, with a bootstrap interval across forks.

    The interval leaves out ``tail`` at each end, 2.5 % by default. The bootstrap resamples rounds, so a disturbance of
    both sides of a round cancels. The interval is widened by the ratio of Student's t to the normal distribution,
    because a bootstrap of few forks is too narrow. A share ``trim`` of the differences is left out at each end. A
    relative difference is in percent of ``before``.

    Raises:
        ValueError: the sides differ in length, or there are fewer than ``FEWEST_FORKS`` rounds.
    """
    if len(before) != len(after) or len(before) < FEWEST_FORKS:
        raise ValueError(f"{len(before)} and {len(after)} forks; at least {FEWEST_FORKS} of each are needed")
    return _bootstrap(tuple(before), tuple(after), relative, trim, tail, RESAMPLES)


@lru_cache(maxsize=4096)
def _bootstrap(
    before: tuple[float, ...], after: tuple[float, ...], relative: bool, trim: float, tail: float, resamples: int
) -> Interval:
    # Kept, because the forks of a look are evaluated again after each round.
    earlier, later = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    count = len(earlier)
    drawn = np.random.default_rng(_SEED).integers(0, count, size=(resamples, count))

    def statistic(first: Floats, second: Floats) -> Floats:
        gap = trimmed_mean(second - first, trim)
        return gap / trimmed_mean(first, trim) * 100.0 if relative else gap

    estimate = float(statistic(earlier, later))
    low, high = np.percentile(statistic(earlier[drawn], later[drawn]), [100 * tail, 100 * (1 - tail)])
    wider = _wider(count, tail)
    return Interval(estimate - (estimate - float(low)) * wider, estimate, estimate + (float(high) - estimate) * wider)


def judge(name: str, measured: Interval, forks: int) -> TargetResult:
    """Compare a difference with its limit."""
    limit = LIMITS[name]
    if measured.high < limit:
        return TargetResult(name, limit, measured, "met", 0)
    if measured.low > limit:
        return TargetResult(name, limit, measured, "not met", 0)
    margin = abs(limit - measured.point)
    reach = measured.high - measured.point if measured.point < limit else measured.point - measured.low
    needed = math.ceil(forks * (reach / margin) ** 2) if margin > 0 else 0
    return TargetResult(name, limit, measured, "unknown", max(needed, forks + 1))


@dataclass(frozen=True)
class Comparison:
    """Two cells to compare.

    Attributes:
        other: name of the cell on the overlay, or again on the published jars for a control.
        control: whether both sides are the same, so that no difference is expected.
    """

    name: str
    stock: str
    other: str
    control: bool = False


def paired_rounds(comparison: Comparison, forks: Sequence[Fork]) -> frozenset[int]:
    """Return the numbers of the rounds with a fork of each side."""
    sides = ({fork.round_ for fork in forks if fork.cell == cell} for cell in (comparison.stock, comparison.other))
    return frozenset.intersection(*map(frozenset, sides))


def compare(comparison: Comparison, forks: Sequence[Fork], tail: float = ONE_LOOK_TAIL) -> dict[str, Any]:
    """Return a comparison as plain JSON; with too few forks it has no targets, and its verdict is unknown.

    Its intervals leave out ``tail`` at each end. The targets are judged by the fastest slice; ``median_slice`` has the
    same differences and the ratio of the median slices, and ``ratio`` that of the fastest.

    ``warming`` is the share of each side's forks that became faster during the measurement. If it is three quarters or
    more on a side, the comparison is ``cold``: the verdicts on time are then unknown, however narrow the intervals.
    """
    sides = [{f.round_: f for f in forks if f.cell == cell} for cell in (comparison.stock, comparison.other)]
    rounds = sorted(paired_rounds(comparison, forks))
    result: dict[str, Any] = {**asdict(comparison), "forks": len(rounds), "cold": False}
    if len(rounds) < FEWEST_FORKS:
        return {**result, "targets": [], "verdict": "unknown"}
    stock, other = ([side[number] for number in rounds] for side in sides)
    interval = partial(difference, tail=tail)
    cpu = [f.cpu_ns for f in stock], [f.cpu_ns for f in other]
    medians = [f.median_ns for f in stock], [f.median_ns for f in other]
    bytes_ = [f.bytes_ for f in stock], [f.bytes_ for f in other]
    # A trimmed mean ignores effects in fewer than a fifth of the forks, such as rare decisions of the JIT compiler; a
    # plain mean includes them.
    measured, untrimmed = (
        {
            "bytes": interval(*bytes_, trim=trim),
            "ns": interval(*cpu, trim=trim),
            "percent": interval(*cpu, relative=True, trim=trim),
        }
        for trim in (_TRIM, 0.0)
    )
    result["warming"] = {
        name: round(sum(f.was_warming for f in side) / len(rounds), 3)
        for name, side in (("stock", stock), ("other", other))
    }
    result["cold"] = max(result["warming"].values()) >= _WARMING_SHARE
    targets = [
        replace(target, verdict="unknown", forks_needed=0) if result["cold"] and target.name != "bytes" else target
        for target in (judge(name, estimates, len(rounds)) for name, estimates in measured.items())
    ]
    result["stock_ns"], result["other_ns"] = (round(float(trimmed_mean(np.asarray(side))), 3) for side in cpu)
    result["stock_bytes"] = round(float(np.median([f.bytes_ for f in stock])), 3)
    result["untrimmed"] = {name: _plain(estimates) for name, estimates in untrimmed.items()}
    result["ratio"] = _ratio(measured["percent"])
    # The median slice includes what the fastest leaves out, such as cache misses caused by other programs.
    percent = interval(*medians, relative=True)
    result["median_slice"] = {
        "stock_ns": round(float(trimmed_mean(np.asarray(medians[0]))), 3),
        "ns": _plain(interval(*medians)),
        "percent": _plain(percent),
        "ratio": _ratio(percent),
    }
    result["wall_ns_difference"] = _plain(interval([f.wall_ns for f in stock], [f.wall_ns for f in other]))
    return {
        **result,
        "targets": [{**asdict(target), "measured": _plain(target.measured)} for target in targets],
        "verdict": worst([target.verdict for target in targets]),
    }


def _plain(interval: Interval) -> dict[str, float]:
    return {"estimate": interval.point, "low": interval.low, "high": interval.high}


def _ratio(percent: Interval) -> dict[str, float]:
    """Return the ratio of the other side to stock, from their difference in percent of stock."""
    return {name: 1 + value / 100 for name, value in _plain(percent).items()}


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the worst verdict: ``not met``, then ``unknown``, then ``met``; ``unknown`` if there are none."""
    for verdict in ("not met", "unknown"):
        if verdict in verdicts:
            return verdict
    return "met" if verdicts else "unknown"
