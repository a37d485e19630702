"""Intervals, equivalence bands and histogram quantiles: pure functions; all randomness comes from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
RatioVerdict = Literal["faster", "slower", "equivalent", "undecided"]
# Latencies are counted in logarithmic bins; their width of 0.1 % is far below any equivalence band and the noise.
BINS_PER_E = 1000


@dataclass(frozen=True)
class Interval:
    """Estimate ``point`` with its interval ``low`` to ``high``, in the unit of the values."""

    low: float
    point: float
    high: float

    def inside(self, low: float, high: float) -> bool:
        """Return whether the whole interval lies strictly between ``low`` and ``high``."""
        return low < self.low and self.high < high


def mean_interval(values: Sequence[float] | Floats, confidence: float) -> Interval:
    """Return the mean of at least two independent values with Student's t interval.

    Raises:
        ValueError: fewer than two values, or a value is not finite.
    """
    # It takes a second, and most commands need no statistics.
    from scipy import stats

    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 2 or not np.isfinite(sample).all():
        raise ValueError(f"need at least two finite values, got {sample.tolist()!r}")
    mean, error = float(sample.mean()), float(stats.sem(sample))
    reach = float(stats.t.ppf((1.0 + confidence) / 2.0, sample.size - 1)) * error
    return Interval(mean - reach, mean, mean + reach)


def ratio_interval(above: Sequence[float], below: Sequence[float], confidence: float) -> Interval:
    """Return the geometric mean of the ratios of pairs of positive values, with its interval.

    Raises:
        ValueError: different numbers of values, fewer than two, or a value is not positive.
    """
    if len(above) != len(below) or min(*above, *below) <= 0:
        raise ValueError("need pairs of positive values")
    interval = mean_interval(np.log(above) - np.log(below), confidence)
    return Interval(*np.exp([interval.low, interval.point, interval.high]).tolist())


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
    """Return quantiles (fractions from 0 to 1) of histograms, of shape (histograms, quantiles).

    ``counts`` has the shape (histograms, bins), ``bins`` the value of each bin, ascending. A quantile is the value of
    the bin that contains it.
    """
    sums = counts.cumsum(axis=1)
    totals = sums[:, -1]
    values = np.empty((counts.shape[0], quantiles.size))
    for row in range(counts.shape[0]):
        rank = np.maximum(1, np.ceil(quantiles * totals[row]))
        values[row] = bins[np.minimum(np.searchsorted(sums[row], rank), bins.size - 1)]
    return values


def resampled_quantiles(
    blocks: npt.NDArray[np.int64], bins: Floats, quantiles: Floats, *, resamples: int, seed: int
) -> Floats:
    """Return pooled quantiles of resampled blocks, of shape (resamples, quantiles).

    Whole blocks are resampled because records within a block are not independent. The same seed draws the same blocks
    for every arm with as many of them. ``blocks`` are counts of shape (blocks, bins); ``bins`` and ``quantiles`` are
    ascending.
    """
    size = blocks.shape[0]
    weights = np.random.default_rng(seed).multinomial(size, np.full(size, 1.0 / size), size=resamples)
    # A pooled quantile lies between those of the blocks, so the bins outside can be one each.
    ends = np.searchsorted(bins, histogram_quantiles(blocks, bins, quantiles[[0, -1]]))
    low, high = int(ends[:, 0].min()), int(ends[:, 1].max())
    inner = blocks[:, low : high + 1].astype(np.float64)
    inner[:, 0] += blocks[:, :low].sum(axis=1)
    inner[:, -1] += blocks[:, high + 1 :].sum(axis=1)
    # floating point is exact up to 2^53 and many times as fast as integers
    return histogram_quantiles((weights @ inner).astype(np.int64), bins[low : high + 1], quantiles)
