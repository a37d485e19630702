from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core import statistics


@pytest.mark.parametrize("size", [3, 12])
def test_interval_covers_the_true_mean_at_its_stated_rate(size: int) -> None:
    draws = np.random.default_rng(7).normal(0.3, 2.0, size=(800, size))
    intervals = [statistics.mean_interval(row, 0.95) for row in draws]
    covered = float(np.mean([one.low <= 0.3 <= one.high for one in intervals]))
    # 800 trials: two standard errors are 1.5 points.
    assert covered == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, float("nan")]])
def test_too_few_or_broken_values_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least two finite"):
        statistics.mean_interval(values, 0.95)


def test_ratio_of_halves_is_a_half() -> None:
    ratio = statistics.ratio_interval([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 0.95)
    assert (ratio.low, ratio.point, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    for above, below in (([1.0, 2.0], [1.0]), ([1.0, 2.0], [1.0, 0.0])):
        with pytest.raises(ValueError, match="pairs of positive"):
            statistics.ratio_interval(above, below, 0.95)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=3, max_size=12),
)
def test_swapping_the_arms_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    above, below = [one for one, _ in pairs], [one for _, one in pairs]
    there, back = statistics.ratio_interval(above, below, 0.95), statistics.ratio_interval(below, above, 0.95)
    assert (there.low, there.point, there.high) == pytest.approx((1 / back.high, 1 / back.point, 1 / back.low))
    assert there.low <= there.point * (1 + 1e-9)
    assert there.point <= there.high * (1 + 1e-9)


def test_a_percentile_needs_observations_beyond_it() -> None:
    assert statistics.highest_quantile(10_000, 10) == pytest.approx(0.999)
    assert statistics.highest_quantile(5, 10) == 0.0
    assert statistics.highest_quantile(0, 10) == 0.0


def test_histogram_quantiles_are_those_of_the_sample() -> None:
    values = np.random.default_rng(5).lognormal(7, 1.5, 20_000)
    index = np.floor(np.log(values) * statistics.BINS_PER_E).astype(np.int64)
    bins, counts = np.unique(index, return_counts=True)
    quantiles = np.array([0.5, 0.9, 0.99, 0.999])
    found = statistics.histogram_quantiles(counts[None, :], statistics.bin_value(bins), quantiles)[0]
    assert found == pytest.approx(np.quantile(values, quantiles, method="inverted_cdf"), rel=0.001)


def test_resampled_quantiles_vary_only_with_differing_blocks() -> None:
    bins = np.array([1.0, 2.0, 4.0, 8.0])
    quantiles = np.array([0.5, 0.9])
    same = np.tile(np.array([50, 30, 15, 5]), (8, 1))
    differing = same.copy()
    differing[:4] = [0, 10, 40, 50]
    alike, varied, again = (
        statistics.resampled_quantiles(blocks, bins, quantiles, resamples=200, seed=1)
        for blocks in (same, differing, differing)
    )
    assert (alike == [1.0, 4.0]).all()
    assert varied[:, 0].std() > 0
    assert (varied == again).all()
