"""Verdicts and their error rates, on simulated data with known true ratios."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bench.analysis import inference
from bench.analysis.inference import BlockCounts, Effect, Estimate
from bench.plan import scenarios
from bench.plan.scenario import SignificanceLevels, VerdictRules
from pyhooks.core import statistics

RULES = dataclasses.replace(scenarios.load("tail").latency.rules, resamples=300)
BLOCKS = 20
Floats = npt.NDArray[np.float64]


def test_holm_adjusts_p_values() -> None:
    assert inference.holm([0.01, 0.04, 0.03, 0.005], 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # The family also contains hypotheses without a p-value.
    assert inference.holm([0.01, 0.02], 10) == pytest.approx([0.1, 0.18])
    assert inference.holm([], 3) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_adjusted_p_values_are_not_smaller_and_keep_the_order(p_values: list[float]) -> None:
    adjusted = inference.holm(p_values, len(p_values))
    assert all(0 <= p <= adjusted_p <= 1 for p, adjusted_p in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    assert [adjusted[index] for index in order] == sorted(adjusted)


estimates = st.builds(Estimate, st.floats(-0.3, 0.3), st.floats(0.001, 0.1), st.integers(4, 60))
WIDE_MS = 1000.0


@given(estimates, st.sampled_from([0.05, 0.1]), st.floats(0.0001, 0.3))
def test_equivalence_means_the_interval_lies_in_the_band(estimate: Estimate, band: float, level: float) -> None:
    p = Effect((estimate,), (Estimate(0.0, 0.0, BLOCKS),)).against_different(band, WIDE_MS)
    interval = Effect((estimate,), (estimate,)).interval(level)
    if abs(p - level) > 1e-9:
        assert (p < level) == interval.inside(1 / (1 + band), 1 + band)


@given(estimates, st.floats(-0.2, 0.2))
def test_the_p_values_of_opposite_hypotheses_are_complements(estimate: Estimate, bound: float) -> None:
    assert estimate.against_at_most(bound) + estimate.against_at_least(bound) == pytest.approx(1.0)


@pytest.mark.parametrize("blocks", [4, 12, 20, 33])
def test_the_trimmed_mean_has_the_error_of_yuen_s_test_and_fewer_degrees_of_freedom(blocks: int) -> None:
    values = np.random.default_rng(blocks).standard_t(2, blocks)
    for trim in (0.0, 0.2):
        estimate = inference.mean_estimate(values, trim)
        known = stats.ttest_ind(values, np.zeros(blocks), trim=trim, equal_var=False)
        assert estimate.point / estimate.error == pytest.approx(known.statistic)
        assert estimate.freedom == pytest.approx(known.df - int(blocks * trim) // 2)


def precise_effect(ratio: float, error: float = 0.001, difference_ms: float = 0.0) -> Effect:
    return Effect((Estimate(math.log(ratio), error, BLOCKS, RULES.trim),), (Estimate(difference_ms, 0.001, BLOCKS),))


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (precise_effect(1.0), "equivalent"),
        (precise_effect(1.03), "equivalent"),  # distinguishable from 1, but too small to matter
        (precise_effect(1.2), "slower"),
        (precise_effect(0.8), "faster"),
        (precise_effect(1.0, 0.1), "undecided"),
        (precise_effect(1.05), "slower"),  # on the edge of the band
        (precise_effect(1.03, difference_ms=1.2), "slower"),  # within the band, but not within the margin
        (precise_effect(1.0, difference_ms=-1.0), "undecided"),  # on the edge of the margin
        (None, "undecided"),
    ],
)
def test_the_verdict_of_a_single_comparison(measured: Effect | None, verdict: str) -> None:
    (decision,) = inference.decide([measured], [(0.05, 1.0)], RULES)
    assert decision.verdict == verdict
    if measured is not None:
        assert inference.control_verdict(measured, 0.05, 1.0, RULES) == verdict


def test_a_verdict_depends_on_the_number_of_planned_comparisons() -> None:
    barely_equivalent, limits = precise_effect(1.0, math.log(1.05) / 2.6), (0.05, 1.0)
    assert inference.decide([barely_equivalent], [limits], RULES)[0].verdict == "equivalent"
    of_family = inference.decide([barely_equivalent, *[None] * 47], [limits] * 48, RULES)
    assert of_family[0].verdict == "undecided"
    # If all others are decided, Holm's procedure tests the last comparison at the level of a single one.
    decided = inference.decide([barely_equivalent, *[precise_effect(1.0)] * 47], [limits] * 48, RULES)
    assert {decision.verdict for decision in decided} == {"equivalent"}


def test_equal_blocks_have_no_variance_and_invalid_blocks_are_an_error() -> None:
    constant = inference.mean_estimate(np.full(BLOCKS, 0.2), RULES.trim)
    assert (constant.point, constant.error) == pytest.approx((0.2, 0.0))
    assert (constant.against_at_most(0.1), constant.against_at_most(0.3)) == pytest.approx((0.0, 1.0))
    with pytest.raises(ValueError, match="at least 4 finite"):
        inference.mean_estimate(np.array([0.1, 0.2, 0.3]), RULES.trim)
    with pytest.raises(ValueError, match="finite"):
        inference.mean_estimate(np.array([0.1] * 9 + [math.nan]), RULES.trim)


def effect(log_ratios: Floats, rules: VerdictRules = RULES) -> Effect:
    """Return the effect of blocks with these log-ratios to a baseline of 2 ms."""
    return inference.block_effect(2.0 * np.exp(log_ratios), np.full((2, log_ratios.size), 2.0), rules)


def test_the_baseline_of_a_block_is_the_mean_of_both_arms() -> None:
    random = np.random.default_rng(3)
    own, first, second = np.exp(random.normal(1.0, 0.1, (3, BLOCKS)))
    candidate = inference.block_effect(own, np.array([first, second]), RULES)
    assert candidate.ratios[-1].point == pytest.approx(np.mean(np.log(own) - (np.log(first) + np.log(second)) / 2))
    assert candidate.differences[-1].point == pytest.approx(np.mean(own - np.sqrt(first * second)))
    # A baseline of two arms is less noisy than one arm.
    assert candidate.log_ratio.error < inference.block_effect(own, np.array([first]), RULES).log_ratio.error


def test_one_burst_hardly_changes_the_trimmed_mean() -> None:
    even = np.random.default_rng(2).normal(0, 0.03, BLOCKS)
    burst = even.copy()
    burst[7] = math.log(2)
    trimmed, plain = effect(burst).ratios
    assert trimmed.against_outside(math.log(1.05)) < 0.025 < plain.against_outside(math.log(1.05))
    assert inference.control_verdict(effect(even), 0.05, WIDE_MS, RULES) == "equivalent"


def test_equivalence_needs_the_mean_of_all_blocks_too() -> None:
    """An arm is three times as slow in every tenth block: trimming removes these blocks, but the arms differ."""
    random = np.random.default_rng(11)
    verdicts: list[str] = []
    for _ in range(100):
        log_ratios = random.normal(0, 0.02, BLOCKS)
        log_ratios[random.choice(BLOCKS, BLOCKS // 10, replace=False)] += math.log(3)
        slow_blocks = effect(log_ratios)
        assert slow_blocks.interval(0.0125).inside(1 / 1.05, 1.05)
        verdicts.append(inference.decide([slow_blocks], [(0.05, WIDE_MS)], RULES)[0].verdict)
    assert "equivalent" not in verdicts
    # The same applies if the mean of all blocks is in the band, but not significantly.
    one_slow_block = np.r_[np.zeros(BLOCKS - 1), math.log(2)] + random.normal(0, 0.02, BLOCKS)
    assert abs(one_slow_block.mean()) < math.log(1.05)
    assert inference.decide([effect(one_slow_block)], [(0.05, WIDE_MS)], RULES)[0].verdict == "undecided"
    quiet = effect(random.normal(0, 0.02, BLOCKS))
    assert inference.decide([quiet], [(0.05, WIDE_MS)], RULES)[0].verdict == "equivalent"


def binned(latencies_ms: Floats) -> BlockCounts:
    """Return the histogram of latencies of shape (blocks, records)."""
    indices = np.floor(np.log(latencies_ms * 1000) * statistics.BINS_PER_E).astype(np.int64)
    first, size = int(indices.min()), int(np.ptp(indices)) + 1
    bin_indices = indices - first + size * np.arange(indices.shape[0])[:, None]
    counts = np.bincount(bin_indices.ravel(), minlength=size * indices.shape[0]).reshape(indices.shape[0], size)
    occupied = np.flatnonzero(counts.any(axis=0))
    return BlockCounts(statistics.bin_value(first + occupied) / 1000, counts[:, occupied])


def pooled(own_ms: Floats, *baseline_ms: Floats) -> Effect:
    return inference.pooled_effect(binned(own_ms), binned(np.concatenate(baseline_ms, axis=1)), 0.99, RULES, 1)


def test_p99_is_the_quantile_of_the_pooled_records_of_all_blocks() -> None:
    random = np.random.default_rng(4)
    level = np.exp(random.normal(0, 0.3, (BLOCKS, 1)))
    own, first, second = (level * np.exp(random.normal(1.0, 0.4, (BLOCKS, 1000))) for _ in range(3))
    paired = pooled(own * 1.5, first, second)
    p99s = [float(np.quantile(values, 0.99)) for values in (own * 1.5, np.concatenate([first, second]))]
    assert paired.log_ratio.point == pytest.approx(math.log(p99s[0] / p99s[1]), abs=0.005)
    assert paired.differences[0].point == pytest.approx(p99s[0] - p99s[1], rel=0.02)
    assert (len(paired.ratios), len(paired.differences), paired.log_ratio.freedom) == (1, 1, BLOCKS - 1)
    # All arms resample the same blocks, so variation common to the arms of a block cancels.
    unpaired = pooled(own * 1.5, first[np.argsort(level[:, 0])[::-1]], second[random.permutation(BLOCKS)])
    assert paired.log_ratio.error < 0.5 * unpaired.log_ratio.error


# Simulations of many runs with a known true ratio. The log-level of a slot is the sum of an autocorrelated drift over
# time, independent noise and an occasional burst in a single slot.
@dataclasses.dataclass(frozen=True)
class NoiseModel:
    """Noise of a simulated machine, as standard deviations of the logarithm."""

    noise: float = 0.05
    drift: float = 0.05
    memory: float = 0.9
    burst_share: float = 0.0
    burst: float = 0.6


BURSTS = NoiseModel(burst_share=0.05)


def levels(random: np.random.Generator, model: NoiseModel, arms: int, blocks: int, truth: float = 0.0) -> Floats:
    """Return the log-level of each arm in each block, shape (arms, blocks), with a random order of the arms in a block.

    The first two arms are the baseline; the others have the true log-ratio ``truth``.
    """
    slots = arms * blocks
    steps = random.normal(0, model.drift * math.sqrt(1 - model.memory**2), slots)
    drift = np.empty(slots)
    level = random.normal(0, model.drift)
    for slot in range(slots):
        level = model.memory * level + steps[slot]
        drift[slot] = level
    hit = random.random(slots) < model.burst_share
    by_time = drift + random.normal(0, model.noise, slots) + hit * random.exponential(model.burst, slots)
    order = np.argsort(random.random((blocks, arms)), axis=1)
    by_arm = np.empty((blocks, arms))
    np.put_along_axis(by_arm, order, by_time.reshape(blocks, arms), axis=1)
    by_arm[:, 2:] += truth
    return np.asarray(by_arm.T)


def median_effects(
    random: np.random.Generator, model: NoiseModel, *, truth: float = 0.0, candidates: int = 1, blocks: int = BLOCKS,
    rules: VerdictRules = RULES,
) -> list[Effect]:  # fmt: skip
    first, second, *others = 2.0 * np.exp(levels(random, model, 2 + candidates, blocks, truth))
    return [inference.block_effect(own, np.array([first, second]), rules) for own in others]


RECORDS, STEP_MS, PAUSES, PAUSE_MS = 1000, 4.0, 3, 11.0


def tail_effects(
    random: np.random.Generator, model: NoiseModel, *, truth: float = 0.0, candidates: int = 1, blocks: int = BLOCKS
) -> list[Effect]:
    """Return p99 effects for a broker with occasional pauses; a burst is one long pause in a slot."""
    level = levels(random, dataclasses.replace(model, burst_share=0.0), 2 + candidates, blocks, truth)
    latency_ms = 3.0 * np.exp(random.normal(0, 0.35, (*level.shape, RECORDS)))
    due_ms = STEP_MS * np.arange(RECORDS)
    lengths_ms = random.exponential(PAUSE_MS, (PAUSES + 1, *level.shape, 1))
    lengths_ms[-1] *= (random.random(lengths_ms[-1].shape) < model.burst_share) * 500 * model.burst / PAUSE_MS
    for length_ms in lengths_ms:
        end_ms = random.uniform(0, STEP_MS * RECORDS, length_ms.shape) + length_ms
        latency_ms += np.where((end_ms - length_ms <= due_ms) & (due_ms < end_ms), end_ms - due_ms, 0.0)
    first, second, *others = latency_ms * np.exp(level)[..., None]
    return [pooled(own, first, second) for own in others]


def few_or_many_runs(few: int, many: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("runs", [few, pytest.param(many, marks=pytest.mark.slow)])


def max_share(share: float, runs: int) -> float:
    """Return the share plus three standard errors of a simulation with this number of runs."""
    return share + 3 * math.sqrt(share * (1 - share) / runs)


# Simulating records takes fifty times as long as simulating medians.
SIMULATIONS = {"p50": (median_effects, 1), "p99": (tail_effects, 20)}
each_quantile = pytest.mark.parametrize(("simulate", "run_divisor"), SIMULATIONS.values(), ids=SIMULATIONS)
NOISE_MODELS = {"normal": NoiseModel(drift=0.0), "drift": NoiseModel(noise=0.02, drift=0.08), "bursts": BURSTS}


@few_or_many_runs(2_000, 200_000)
@pytest.mark.parametrize("blocks", [12, 20, 30])
def test_the_trimmed_mean_rejects_as_often_as_stated_at_strict_levels(blocks: int, runs: int) -> None:
    draws = np.random.default_rng(13).normal(size=(runs, blocks))
    estimates = [inference.mean_estimate(values, RULES.trim) for values in draws]
    p_values = stats.t.sf([estimate.point / estimate.error for estimate in estimates], estimates[0].freedom)
    for level in (0.025, 0.001):
        assert np.mean(p_values <= level) <= max_share(level, runs)


@few_or_many_runs(2_000, 20_000)
@pytest.mark.parametrize("model", NOISE_MODELS.values(), ids=NOISE_MODELS)
@pytest.mark.parametrize("blocks", [12, 20])
@each_quantile
def test_intervals_cover_the_true_ratio_at_their_confidence(
    simulate: Any, run_divisor: int, model: NoiseModel, blocks: int, runs: int
) -> None:
    random = np.random.default_rng(5)
    runs //= run_divisor
    tail = (1 - RULES.confidence) / 2
    intervals = [simulate(random, model, truth=0.1, blocks=blocks)[0].interval(tail) for _ in range(runs)]
    missed = sum(not interval.low <= math.exp(0.1) <= interval.high for interval in intervals)
    assert missed / runs <= max_share(1 - RULES.confidence, runs)


@few_or_many_runs(400, 6_000)
@pytest.mark.parametrize("model", NOISE_MODELS.values(), ids=NOISE_MODELS)
@pytest.mark.parametrize(
    ("truth", "wrong"),
    [(0.0, {"faster", "slower"}), (math.log(1.05), {"equivalent", "faster"})],
    ids=["equal", "on-the-edge"],
)
@each_quantile
def test_a_run_has_a_wrong_verdict_with_at_most_the_error_rate(
    simulate: Any, run_divisor: int, truth: float, wrong: set[str], model: NoiseModel, runs: int
) -> None:
    """Runs of three cells with two candidates each, at one quantile."""
    random = np.random.default_rng(6)
    runs //= run_divisor
    wrong_runs = 0
    for _ in range(runs):
        effects = [cell_effect for _ in range(3) for cell_effect in simulate(random, model, truth=truth, candidates=2)]
        decisions = inference.decide(effects, [(0.05, WIDE_MS)] * len(effects), RULES)
        wrong_runs += any(decision.verdict in wrong for decision in decisions)
    assert wrong_runs / runs <= max_share(RULES.alpha, runs)


@few_or_many_runs(300, 4_000)
@pytest.mark.parametrize(("ratio", "difference_ms"), [(1.0, 0.2), (1.04, 0.05)], ids=["margin", "band"])
def test_arms_on_the_edge_of_band_or_margin_are_seldom_equivalent(
    ratio: float, difference_ms: float, runs: int
) -> None:
    """The true difference is on the edge of the narrower limit, and well within the other."""
    random = np.random.default_rng(12)
    base_ms = 10.0 if ratio == 1.0 else 1.0
    truth = math.log1p(difference_ms / base_ms)
    margin_ms = difference_ms if ratio == 1.0 else 1.0
    verdicts = []
    for _ in range(runs):
        noise = np.exp(random.normal(0, 0.01, (3, BLOCKS))) * base_ms
        edge = inference.block_effect(noise[0] * math.exp(truth), noise[1:], RULES)
        verdicts.append(inference.decide([edge], [(0.05, margin_ms)], RULES)[0].verdict)
    assert verdicts.count("equivalent") / runs <= max_share(RULES.alpha / 2, runs)


@pytest.mark.parametrize("size", [1, 48])
def test_the_smallest_detectable_ratio_is_that_of_the_noncentral_t_distribution(size: int) -> None:
    estimate, tails = Estimate(0.0, 0.02, BLOCKS, RULES.trim), RULES.tails(size)
    shift = math.log(inference.detectable_ratio(estimate, tails, RULES.power)) / estimate.error
    assert stats.nct.sf(stats.t.isf(tails.different, 9), 9, shift) == pytest.approx(RULES.power, rel=1e-6)


@few_or_many_runs(300, 4_000)
@pytest.mark.parametrize("size", [1, 48])
def test_the_smallest_detectable_ratio_is_detected_with_the_stated_power(size: int, runs: int) -> None:
    model, rules = NoiseModel(drift=0.0), dataclasses.replace(RULES, trim=0.0)
    # The variance of one arm against the mean of two.
    true = Estimate(0.0, model.noise * math.sqrt(1.5 / BLOCKS), BLOCKS)
    tails = rules.tails(size)
    ratio = inference.detectable_ratio(true, tails, rules.power)
    random = np.random.default_rng(7)
    estimates = [median_effects(random, model, truth=math.log(ratio), rules=rules)[0].log_ratio for _ in range(runs)]
    detected = [estimate.against_at_most(0.0) <= tails.different for estimate in estimates]
    assert np.mean(detected) == pytest.approx(rules.power, abs=3 * math.sqrt(0.16 / runs))
    # A run publishes an estimate from its own blocks.
    published = [inference.detectable_ratio(estimate, tails, rules.power) for estimate in estimates]
    assert math.log(float(np.median(published))) == pytest.approx(math.log(ratio), rel=0.06)


@few_or_many_runs(1_500, 10_000)
@each_quantile
def test_the_smallest_detectable_ratio_is_detected_despite_bursts(simulate: Any, run_divisor: int, runs: int) -> None:
    random = np.random.default_rng(8)
    runs //= run_divisor
    estimates = [simulate(random, BURSTS)[0].log_ratio for _ in range(runs)]
    error = float(np.sqrt(np.mean([estimate.error**2 for estimate in estimates])))
    tails = RULES.tails(2)
    ratio = inference.detectable_ratio(dataclasses.replace(estimates[0], error=error), tails, RULES.power)
    detected = [
        simulate(random, BURSTS, truth=math.log(ratio))[0].log_ratio.against_at_most(0.0) <= tails.different
        for _ in range(runs)
    ]
    # Bursts make the error vary between runs, so the detectable ratio is that of a typical run.
    assert RULES.power - 0.08 <= float(np.mean(detected)) <= RULES.power + 0.12


@few_or_many_runs(300, 4_000)
def test_equal_arms_are_equivalent_with_the_number_of_blocks_needed(runs: int) -> None:
    model, tails = NoiseModel(drift=0.0), RULES.control_tails

    def needed(spread: float, trim: float = 0.0, tails: SignificanceLevels = tails) -> int:
        return inference.blocks_needed(Estimate(0.0, spread, 1, trim), math.log(1.05), tails, RULES.power)

    blocks = needed(model.noise * math.sqrt(1.5))
    random = np.random.default_rng(9)
    verdicts = [
        inference.control_verdict(median_effects(random, model, blocks=blocks)[0], 0.05, WIDE_MS, RULES)
        for _ in range(runs)
    ]
    # Both means must be in the band; the number of blocks is for the plain mean, and the trimmed mean varies more.
    assert RULES.power - 0.15 <= verdicts.count("equivalent") / runs <= RULES.power + 0.05
    assert needed(0.11) < needed(0.11, RULES.trim) < needed(0.11, RULES.trim, RULES.tails(48))
    assert needed(0.11) < needed(0.2)


def test_the_plan_contains_the_rules() -> None:
    plan = scenarios.load("tail").latency
    assert plan.rules == VerdictRules(0.05, 0.8, 0.2, 20, 0.95, 1000)
    assert (plan.band_p50, plan.band_p99, plan.margin_p50_ms, plan.margin_p99_ms) == (0.05, 0.10, 1.0, 5.0)
    assert plan.blocks >= plan.min_blocks
