from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core import statistics

OPTIONS: dict[str, Any] = {"confidence": 0.95, "resamples": 1000, "seed": 1}


@pytest.mark.parametrize(
    ("probability", "freedom", "known"),
    [(0.975, 1, 12.7062), (0.975, 11, 2.20099), (0.95, 5, 2.01505), (0.995, 30, 2.75000)],
)
def test_student_t_quantiles_are_those_of_the_tables(probability: float, freedom: int, known: float) -> None:
    assert statistics.student_t_quantile(probability, freedom) == pytest.approx(known, rel=1e-4)


def test_the_tails_of_student_t_are_those_of_the_tables_far_out_too() -> None:
    # One degree of freedom is Cauchy's distribution and two have a closed form.
    for value in (0.0, 1.5, 50.0, 4000.0):
        assert statistics.student_t_tail(value, 1) == pytest.approx(math.atan2(1.0, value) / math.pi, rel=1e-9)
        closed = 1.0 / (value**2 + 2 + value * math.sqrt(value**2 + 2))
        assert statistics.student_t_tail(value, 2) == pytest.approx(closed, rel=1e-9)
    assert statistics.student_t_tail(-2.0, 7) == pytest.approx(1 - statistics.student_t_tail(2.0, 7))
    assert statistics.student_t_quantile(1 - 1e-6, 19) == pytest.approx(6.7, abs=0.1)


@pytest.mark.parametrize("size", [12, 20])
def test_interval_covers_the_true_mean_at_its_stated_rate(size: int) -> None:
    draws = np.random.default_rng(7).normal(0.3, 2.0, size=(800, size))
    intervals = [statistics.mean_interval(row.tolist(), confidence=0.95, resamples=1500, seed=3) for row in draws]
    covered = float(np.mean([one.low <= 0.3 <= one.high for one in intervals]))
    # 800 trials: two standard errors are 1.5 points; the plain percentile interval of 12 covers 91 %.
    assert 0.93 <= covered <= 0.98


def test_interval_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    values = [0.1, 0.4, -0.2, 0.3, 0.0, 0.25]
    first = statistics.mean_interval(values, **OPTIONS)
    assert first == statistics.mean_interval(values, **OPTIONS)
    assert first != statistics.mean_interval(values, confidence=0.95, resamples=1000, seed=2)


def test_one_extreme_block_keeps_the_interval_bounded() -> None:
    values = [0.0, 0.01, -0.01, 0.02, 0.0, 5.0]
    assert statistics.mean_interval(values, **OPTIONS).high < 5.0


@pytest.mark.parametrize("values", [[], [1.0], [1.0, float("nan")]])
def test_too_few_or_broken_values_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least two finite"):
        statistics.mean_interval(values, **OPTIONS)


def test_ratio_of_halves_is_a_half() -> None:
    ratio = statistics.ratio_interval([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], **OPTIONS)
    assert (ratio.low, ratio.point, ratio.high) == pytest.approx((0.5, 0.5, 0.5))


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=3, max_size=12),
)
def test_swapping_the_arms_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    above, below = [one for one, _ in pairs], [one for _, one in pairs]
    there = statistics.ratio_interval(above, below, **OPTIONS)
    back = statistics.ratio_interval(below, above, **OPTIONS)
    assert there.point == pytest.approx(1 / back.point)
    assert there.low == pytest.approx(1 / back.high)
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


def test_curve_intervals_contain_the_curve_and_widen_with_differing_blocks() -> None:
    bins = np.array([1.0, 2.0, 4.0, 8.0])
    quantiles = np.array([0.5, 0.9])
    same = np.tile(np.array([50, 30, 15, 5]), (8, 1))
    low, high = statistics.curve_intervals(same, bins, quantiles, confidence=0.95, resamples=200, seed=1)
    assert low == pytest.approx(high)
    differing = same.copy()
    differing[:4] = [0, 10, 40, 50]
    low, high = statistics.curve_intervals(differing, bins, quantiles, confidence=0.95, resamples=200, seed=1)
    assert low[0] < high[0]


def test_quadrature_is_exact_for_polynomials_up_to_twice_its_nodes() -> None:
    nodes, weights = statistics._gauss_legendre(7)
    for power in range(14):
        known = 2 / (power + 1) if power % 2 == 0 else 0.0
        assert float(weights @ nodes**power) == pytest.approx(known, abs=1e-14)
    assert float(weights @ nodes**14) != pytest.approx(2 / 15, abs=1e-6)
