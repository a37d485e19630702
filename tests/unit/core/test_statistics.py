"""Confidence intervals, quantiles and resampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core import statistics


@pytest.mark.parametrize("size", [3, 12])
def test_interval_covers_the_true_mean_at_its_stated_rate(size: int) -> None:
    samples = np.random.default_rng(7).normal(0.3, 2.0, size=(800, size))
    intervals = [statistics.mean_interval(row, 0.95) for row in samples]
    coverage = float(np.mean([interval.low <= 0.3 <= interval.high for interval in intervals]))
    # Two standard errors of 800 trials are 0.015.
    assert coverage == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, float("nan")]])
def test_fewer_than_two_finite_values_are_an_error(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least two finite"):
        statistics.mean_interval(values, 0.95)


def test_constant_ratio_has_an_interval_of_zero_width() -> None:
    ratio = statistics.ratio_interval([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 0.95)
    assert (ratio.low, ratio.point, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    for numerators, denominators in (([1.0, 2.0], [1.0]), ([1.0, 2.0], [1.0, 0.0])):
        with pytest.raises(ValueError, match="pairs of positive"):
            statistics.ratio_interval(numerators, denominators, 0.95)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=3, max_size=12),
)
def test_swapping_numerator_and_denominator_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    numerators, denominators = [first for first, _ in pairs], [second for _, second in pairs]
    ratio = statistics.ratio_interval(numerators, denominators, 0.95)
    inverse = statistics.ratio_interval(denominators, numerators, 0.95)
    assert (ratio.low, ratio.point, ratio.high) == pytest.approx((1 / inverse.high, 1 / inverse.point, 1 / inverse.low))
    assert ratio.low <= ratio.point * (1 + 1e-9)
    assert ratio.point <= ratio.high * (1 + 1e-9)


def test_highest_quantile_leaves_enough_observations_above_it() -> None:
    assert statistics.highest_quantile(10_000, 10) == pytest.approx(0.999)
    assert statistics.highest_quantile(5, 10) == 0.0
    assert statistics.highest_quantile(0, 10) == 0.0


def test_histogram_quantiles_match_the_sample_quantiles() -> None:
    values = np.random.default_rng(5).lognormal(7, 1.5, 20_000)
    bin_indices = np.floor(np.log(values) * statistics.BINS_PER_E).astype(np.int64)
    bins, counts = np.unique(bin_indices, return_counts=True)
    quantiles = np.array([0.5, 0.9, 0.99, 0.999])
    estimated = statistics.histogram_quantiles(counts[None, :], statistics.bin_value(bins), quantiles)[0]
    assert estimated == pytest.approx(np.quantile(values, quantiles, method="inverted_cdf"), rel=0.001)


def test_resampled_quantiles_vary_only_if_blocks_differ() -> None:
    bins = np.array([1.0, 2.0, 4.0, 8.0])
    quantiles = np.array([0.5, 0.9])
    equal_blocks = np.tile(np.array([50, 30, 15, 5]), (8, 1))
    unequal_blocks = equal_blocks.copy()
    unequal_blocks[:4] = [0, 10, 40, 50]
    constant, varied, repeated = (
        statistics.resampled_quantiles(blocks, bins, quantiles, resamples=200, seed=1)
        for blocks in (equal_blocks, unequal_blocks, unequal_blocks)
    )
    assert (constant == [1.0, 4.0]).all()
    assert varied[:, 0].std() > 0
    assert (varied == repeated).all()
