"""Confidence intervals, Student's t and histogram quantiles: pure functions; all randomness comes from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
RatioVerdict = Literal["faster", "slower", "equivalent", "undecided"]
# Latencies are counted in logarithmic bins; their width of 0.1 % is far below any equivalence band and the noise.
BINS_PER_E = 1000


@lru_cache
def _gauss_legendre(size: int) -> tuple[Floats, Floats]:
    """Return nodes and weights of Gauss-Legendre quadrature on -1 .. 1, each of shape (``size``,), by Newton's method.

    numpy's own function computes eigenvalues with LAPACK, which crashes in a process that also runs a JVM.
    """
    nodes = np.cos(math.pi * (np.arange(size, 0, -1) - 0.25) / (size + 0.5))
    slope = nodes
    for _ in range(10):
        before, value = np.ones_like(nodes), nodes
        for degree in range(2, size + 1):
            before, value = value, ((2 * degree - 1) * nodes * value - (degree - 1) * before) / degree
        slope = size * (nodes * value - before) / (nodes**2 - 1)
        nodes = nodes - value / slope
    return nodes, 2 / ((1 - nodes**2) * slope**2)


@dataclass(frozen=True)
class Interval:
    """Estimate ``point`` with its interval ``low`` to ``high``, in the unit of the values."""

    low: float
    point: float
    high: float

    def inside(self, low: float, high: float) -> bool:
        """Return whether the whole interval lies strictly between ``low`` and ``high``."""
        return low < self.low and self.high < high


def mean_interval(values: Sequence[float], *, confidence: float, resamples: int, seed: int) -> Interval:
    """Return the mean of independent values with an expanded percentile bootstrap interval.

    The plain percentile interval of a dozen values is too narrow: it uses the sample's spread instead of the
    population's, and a normal tail instead of Student's. The expanded interval corrects its level for both (Hesterberg,
    "What Teachers Should Know About the Bootstrap", 2015, section 3.2). A studentised interval becomes far too wide as
    soon as one block is an outlier.

    Args:
        values: at least two values, such as the log-ratio of each block.
        confidence: confidence level, such as 0.95.
        resamples: number of resamples.
        seed: random seed.

    Raises:
        ValueError: fewer than two values, or a value is not finite.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 2 or not np.isfinite(sample).all():
        raise ValueError(f"need at least two finite values, got {values!r}")
    picks = np.random.default_rng(seed).integers(0, sample.size, size=(resamples, sample.size))
    means = sample[picks].mean(axis=1)
    tail = expanded_tail(confidence, sample.size)
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(float(low), float(sample.mean()), float(high))


def expanded_tail(confidence: float, size: int) -> float:
    """Return the share of resamples to cut at each end, so that ``size`` values reach ``confidence``."""
    stretch = math.sqrt(size / (size - 1)) * student_t_quantile((1.0 + confidence) / 2.0, size - 1)
    return NormalDist().cdf(-stretch)


def student_t_tail(value: float, freedom: int) -> float:
    """Return the upper tail probability of Student's t distribution; the relative error is small far out, too.

    With ``t = sqrt(freedom) * tan(angle)`` the density is a power of the cosine on a bounded interval.
    """
    if value < 0:
        return 1.0 - student_t_tail(-value, freedom)
    nodes, weights = _gauss_legendre(200)
    half = (math.pi / 2 - math.atan(value / math.sqrt(freedom))) / 2
    integral = half * float(weights @ np.sin(half * (1.0 + nodes)) ** (freedom - 1))
    return math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi) * integral


@lru_cache(maxsize=4096)
def student_t_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t distribution by bisection; ``probability`` is at least 0.5."""
    low, high = 0.0, 1.0
    while student_t_tail(high, freedom) > 1.0 - probability:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_t_tail(middle, freedom) > 1.0 - probability else (low, middle)
    return (low + high) / 2


def ratio_interval(
    numerator: Sequence[float],
    denominator: Sequence[float],
    *,
    confidence: float,
    resamples: int,
    seed: int,
) -> Interval:
    """Return the geometric mean of paired ratios with its interval.

    Args:
        numerator: one positive value per block.
        denominator: the other arm's value in the same block.
        confidence: confidence level, such as 0.95.
        resamples: number of resamples.
        seed: random seed.

    Raises:
        ValueError: different lengths, or a value is not positive.
    """
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if above.shape != below.shape or not ((above > 0).all() and (below > 0).all()):
        raise ValueError("need pairs of positive values")
    logs = np.log(above / below)
    interval = mean_interval(logs.tolist(), confidence=confidence, resamples=resamples, seed=seed)
    return Interval(*(float(np.exp(end)) for end in (interval.low, interval.point, interval.high)))


def band_ends(band: float) -> tuple[float, float]:
    """Return the ends of the equivalence band of a ratio: ``1/(1+band)`` and ``1+band``, symmetric in the logarithm."""
    return 1.0 / (1.0 + band), 1.0 + band


def highest_quantile(observations: int, min_beyond: int) -> float:
    """Return the highest quantile with ``min_beyond`` observations above it; 0 if there is none."""
    return max(0.0, 1.0 - min_beyond / observations) if observations > 0 else 0.0


def bin_value(index: npt.NDArray[np.int64] | int) -> Floats:
    """Return the middle of a logarithmic bin, in the unit of the binned values."""
    return np.asarray(np.exp((np.asarray(index, dtype=np.float64) + 0.5) / BINS_PER_E))


def histogram_quantiles(counts: npt.NDArray[np.int64], bins: Floats, quantiles: Floats) -> Floats:
    """Return quantiles of histograms.

    Args:
        counts: shape (histograms, bins).
        bins: value of each bin, ascending.
        quantiles: fractions from 0 to 1.

    Returns:
        Shape (histograms, quantiles): the value of the bin that contains the quantile.
    """
    sums = counts.cumsum(axis=1)
    totals = sums[:, -1]
    found = np.empty((counts.shape[0], quantiles.size))
    for row in range(counts.shape[0]):
        rank = np.maximum(1, np.ceil(quantiles * totals[row]))
        found[row] = bins[np.minimum(np.searchsorted(sums[row], rank), bins.size - 1)]
    return found


def curve_intervals(
    blocks: npt.NDArray[np.int64], bins: Floats, quantiles: Floats, *, confidence: float, resamples: int, seed: int
) -> tuple[Floats, Floats]:
    """Return bootstrap intervals of pooled quantiles.

    Whole blocks are resampled because records within a block are not independent.

    Args:
        blocks: counts, shape (blocks, bins).
        bins: value of each bin, ascending.
        quantiles: fractions from 0 to 1.
        confidence: confidence level, such as 0.95.
        resamples: number of resamples.
        seed: random seed.

    Returns:
        Lower and upper ends, each of shape (quantiles,).
    """
    size = blocks.shape[0]
    weights = np.random.default_rng(seed).multinomial(size, np.full(size, 1.0 / size), size=resamples)
    # floating point is exact up to 2^53 and many times as fast as integers
    sums = (weights.astype(np.float64) @ blocks.astype(np.float64)).astype(np.int64)
    drawn = histogram_quantiles(sums, bins, quantiles)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
    return np.asarray(low), np.asarray(high)
