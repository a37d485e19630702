"""Verdicts and their error rates, on generated data with a known truth."""

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
from bench.plan.verdict_rules import SignificanceLevels, VerdictRules
from pyhooks.core import statistics

RULES = dataclasses.replace(scenarios.load("tail").latency.rules, resamples=300)
BLOCKS = 20
Floats = npt.NDArray[np.float64]


def test_holm_gives_the_adjusted_values_of_the_textbook() -> None:
    assert inference.holm([0.01, 0.04, 0.03, 0.005], 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # Hypotheses that are not listed still count.
    assert inference.holm([0.01, 0.02], 10) == pytest.approx([0.1, 0.18])
    assert inference.holm([], 3) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_an_adjusted_value_is_never_below_its_own_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = inference.holm(p_values, len(p_values))
    assert all(0 <= one <= after <= 1 for one, after in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    assert [adjusted[at] for at in order] == sorted(adjusted)


estimates = st.builds(Estimate, st.floats(-0.3, 0.3), st.floats(0.001, 0.1), st.integers(4, 60))
WIDE_MS = 1000.0


@given(estimates, st.sampled_from([0.05, 0.1]), st.floats(0.0001, 0.3))
def test_the_equivalence_test_is_the_inclusion_of_an_interval(one: Estimate, band: float, level: float) -> None:
    p = Effect((one,), (Estimate(0.0, 0.0, BLOCKS),)).against_different(band, WIDE_MS)
    interval = Effect((one,), (one,)).interval(level)
    if abs(p - level) > 1e-9:
        assert (p < level) == interval.inside(1 / (1 + band), 1 + band)


@given(estimates, st.floats(-0.2, 0.2))
def test_the_p_values_of_opposite_hypotheses_are_complements(one: Estimate, at: float) -> None:
    assert one.against_at_most(at) + one.against_at_least(at) == pytest.approx(1.0)


@pytest.mark.parametrize("blocks", [4, 12, 20, 33])
def test_the_trimmed_mean_has_the_error_and_the_freedom_of_yuen_s_test(blocks: int) -> None:
    values = np.random.default_rng(blocks).standard_t(2, blocks)
    for trim in (0.0, 0.2):
        one = inference.mean_estimate(values, trim)
        known = stats.ttest_ind(values, np.zeros(blocks), trim=trim, equal_var=False)
        assert one.point / one.error == pytest.approx(known.statistic)
        assert one.freedom == pytest.approx(known.df)
        assert 2 * min(one.against_at_most(0.0), one.against_at_least(0.0)) == pytest.approx(known.pvalue)


def sure(ratio: float, error: float = 0.001, gap_ms: float = 0.0) -> Effect:
    return Effect((Estimate(math.log(ratio), error, BLOCKS, RULES.trim),), (Estimate(gap_ms, 0.001, BLOCKS),))


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (sure(1.0), "equivalent"),
        (sure(1.03), "equivalent"),  # distinguishable from 1, but too small to matter
        (sure(1.2), "slower"),
        (sure(0.8), "faster"),
        (sure(1.0, 0.1), "undecided"),
        (sure(1.05), "slower"),  # on the edge of the band
        (sure(1.03, gap_ms=1.2), "slower"),  # within the band, but not within the margin
        (sure(1.0, gap_ms=-1.0), "undecided"),  # on the edge of the margin
        (None, "undecided"),
    ],
)
def test_the_verdict_of_a_single_comparison(one: Effect | None, verdict: str) -> None:
    (decision,) = inference.decide([one], [(0.05, 1.0)], RULES)
    assert decision.word == verdict
    if one is not None:
        assert inference.control_verdict(one, 0.05, 1.0, RULES) == verdict


def test_a_verdict_depends_on_the_number_of_planned_comparisons() -> None:
    near, bound = sure(1.0, math.log(1.05) / 2.6), (0.05, 1.0)
    assert inference.decide([near], [bound], RULES)[0].word == "equivalent"
    among = inference.decide([near, *[None] * 47], [bound] * 48, RULES)
    assert among[0].word == "undecided"
    # Where the others are decided, Holm's procedure leaves the last one the level that it would have had alone.
    decided = inference.decide([near, *[sure(1.0)] * 47], [bound] * 48, RULES)
    assert {one.word for one in decided} == {"equivalent"}


def test_equal_blocks_have_no_variance_and_invalid_ones_are_refused() -> None:
    same = inference.mean_estimate(np.full(BLOCKS, 0.2), RULES.trim)
    assert (same.point, same.error) == pytest.approx((0.2, 0.0))
    assert (same.against_at_most(0.1), same.against_at_most(0.3)) == pytest.approx((0.0, 1.0))
    with pytest.raises(ValueError, match="at least 4 finite"):
        inference.mean_estimate(np.array([0.1, 0.2, 0.3]), RULES.trim)
    with pytest.raises(ValueError, match="finite"):
        inference.mean_estimate(np.array([0.1] * 9 + [math.nan]), RULES.trim)


def effect(logs: Floats, rules: VerdictRules = RULES) -> Effect:
    """Effect of blocks with these log-ratios to a baseline of 2 ms."""
    return inference.block_effect(2.0 * np.exp(logs), np.full((2, logs.size), 2.0), rules)


def test_the_baseline_of_a_block_is_the_mean_of_both_arms() -> None:
    random = np.random.default_rng(3)
    own, first, second = np.exp(random.normal(1.0, 0.1, (3, BLOCKS)))
    one = inference.block_effect(own, np.array([first, second]), RULES)
    assert one.ratios[-1].point == pytest.approx(np.mean(np.log(own) - (np.log(first) + np.log(second)) / 2))
    assert one.differences[-1].point == pytest.approx(np.mean(own - np.sqrt(first * second)))
    # two arms are less noisy than one
    assert one.log_ratio.error < inference.block_effect(own, np.array([first]), RULES).log_ratio.error


def test_one_burst_moves_the_published_mean_little() -> None:
    even = np.random.default_rng(2).normal(0, 0.03, BLOCKS)
    burst = even.copy()
    burst[7] = math.log(2)
    trimmed, plain = effect(burst).ratios
    assert trimmed.against_outside(math.log(1.05)) < 0.025 < plain.against_outside(math.log(1.05))
    assert inference.control_verdict(effect(even), 0.05, WIDE_MS, RULES) == "equivalent"


def test_equivalence_needs_the_mean_of_all_blocks_too() -> None:
    """One arm is three times as slow in every tenth block: trimming cuts that off, and equal the arms are not."""
    random = np.random.default_rng(11)
    verdicts: list[str] = []
    for _ in range(100):
        logs = random.normal(0, 0.02, BLOCKS)
        logs[random.choice(BLOCKS, BLOCKS // 10, replace=False)] += math.log(3)
        one = effect(logs)
        assert one.interval(0.0125).inside(1 / 1.05, 1.05)
        verdicts.append(inference.decide([one], [(0.05, WIDE_MS)], RULES)[0].word)
    assert "equivalent" not in verdicts
    # likewise if the mean lies in the band, but is not shown to
    small = np.r_[np.zeros(BLOCKS - 1), math.log(2)] + random.normal(0, 0.02, BLOCKS)
    assert abs(small.mean()) < math.log(1.05)
    assert inference.decide([effect(small)], [(0.05, WIDE_MS)], RULES)[0].word == "undecided"
    calm = effect(random.normal(0, 0.02, BLOCKS))
    assert inference.decide([calm], [(0.05, WIDE_MS)], RULES)[0].word == "equivalent"


def binned(latencies_ms: Floats) -> BlockCounts:
    """Counts of latencies, shape (blocks, records)."""
    indices = np.floor(np.log(latencies_ms * 1000) * statistics.BINS_PER_E).astype(np.int64)
    first, size = int(indices.min()), int(np.ptp(indices)) + 1
    places = indices - first + size * np.arange(indices.shape[0])[:, None]
    counts = np.bincount(places.ravel(), minlength=size * indices.shape[0]).reshape(indices.shape[0], size)
    found = np.flatnonzero(counts.any(axis=0))
    return BlockCounts(statistics.bin_value(first + found) / 1000, counts[:, found])


def pooled(own_ms: Floats, *baseline_ms: Floats) -> Effect:
    return inference.pooled_effect(binned(own_ms), binned(np.concatenate(baseline_ms, axis=1)), 0.99, RULES, 1)


def test_p99_is_that_of_the_pooled_records_of_whole_blocks() -> None:
    random = np.random.default_rng(4)
    level = np.exp(random.normal(0, 0.3, (BLOCKS, 1)))
    own, first, second = (level * np.exp(random.normal(1.0, 0.4, (BLOCKS, 1000))) for _ in range(3))
    one = pooled(own * 1.5, first, second)
    whole = [float(np.quantile(values, 0.99)) for values in (own * 1.5, np.concatenate([first, second]))]
    assert one.log_ratio.point == pytest.approx(math.log(whole[0] / whole[1]), abs=0.005)
    assert one.differences[0].point == pytest.approx(whole[0] - whole[1], rel=0.02)
    assert (len(one.ratios), len(one.differences), one.log_ratio.freedom) == (1, 1, BLOCKS - 1)
    # Blocks are drawn for all arms together, so what differs between blocks alone cancels; what is one arm's does not.
    apart = pooled(own * 1.5, first[np.argsort(level[:, 0])[::-1]], second[random.permutation(BLOCKS)])
    assert one.log_ratio.error < 0.5 * apart.log_ratio.error


# What follows draws many runs whose truth is known. A slot's level is: the block's (common to all arms) + what drifts
# from slot to slot in time (autocorrelated) + noise + now and then a burst that hits one slot.
@dataclasses.dataclass(frozen=True)
class World:
    """Noise of a generated machine, on the scale of the logarithm."""

    noise: float = 0.05
    drift: float = 0.05
    memory: float = 0.9
    burst_share: float = 0.0
    burst: float = 0.6


BURSTS = World(burst_share=0.05)


def levels(random: np.random.Generator, world: World, arms: int, blocks: int, truth: float = 0.0) -> Floats:
    """Level of each arm in each block, shape (arms, blocks); random order in each block. All but the first two have
    the true log-ratio."""
    slots = arms * blocks
    steps = random.normal(0, world.drift * math.sqrt(1 - world.memory**2), slots)
    drift = np.empty(slots)
    level = random.normal(0, world.drift)
    for at in range(slots):
        level = world.memory * level + steps[at]
        drift[at] = level
    hit = random.random(slots) < world.burst_share
    in_time = drift + random.normal(0, world.noise, slots) + hit * random.exponential(world.burst, slots)
    order = np.argsort(random.random((blocks, arms)), axis=1)
    by_arm = np.empty((blocks, arms))
    np.put_along_axis(by_arm, order, in_time.reshape(blocks, arms), axis=1)
    by_arm[:, 2:] += truth
    return np.asarray(by_arm.T)


def median_effects(
    random: np.random.Generator, world: World, *, truth: float = 0.0, candidates: int = 1, blocks: int = BLOCKS,
    rules: VerdictRules = RULES,
) -> list[Effect]:  # fmt: skip
    first, second, *others = 2.0 * np.exp(levels(random, world, 2 + candidates, blocks, truth))
    return [inference.block_effect(own, np.array([first, second]), rules) for own in others]


RECORDS, STEP_MS, PAUSES, PAUSE_MS = 1000, 4.0, 3, 11.0


def tail_effects(
    random: np.random.Generator, world: World, *, truth: float = 0.0, candidates: int = 1, blocks: int = BLOCKS
) -> list[Effect]:
    """Records of a broker that pauses now and then; a burst is one long pause in a slot."""
    level = levels(random, dataclasses.replace(world, burst_share=0.0), 2 + candidates, blocks, truth)
    took_ms = 3.0 * np.exp(random.normal(0, 0.35, (*level.shape, RECORDS)))
    due_ms = STEP_MS * np.arange(RECORDS)
    lengths_ms = random.exponential(PAUSE_MS, (PAUSES + 1, *level.shape, 1))
    lengths_ms[-1] *= (random.random(lengths_ms[-1].shape) < world.burst_share) * 500 * world.burst / PAUSE_MS
    for length_ms in lengths_ms:
        end_ms = random.uniform(0, STEP_MS * RECORDS, length_ms.shape) + length_ms
        took_ms += np.where((end_ms - length_ms <= due_ms) & (due_ms < end_ms), end_ms - due_ms, 0.0)
    first, second, *others = took_ms * np.exp(level)[..., None]
    return [pooled(own, first, second) for own in others]


def few_and_many(few: int, many: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("runs", [few, pytest.param(many, marks=pytest.mark.slow)])


def allowed(share: float, runs: int) -> float:
    """The share, and three standard errors of a simulation of so many runs."""
    return share + 3 * math.sqrt(share * (1 - share) / runs)


# Drawing records takes fifty times as long as drawing medians.
DRAWS = {"p50": (median_effects, 1), "p99": (tail_effects, 20)}
each_quantile = pytest.mark.parametrize(("draw", "fewer"), DRAWS.values(), ids=DRAWS)
WORLDS = {"normal": World(drift=0.0), "drift": World(noise=0.02, drift=0.08), "bursts": BURSTS}


@few_and_many(2_000, 20_000)
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("blocks", [12, 20])
@each_quantile
def test_intervals_cover_the_truth_at_their_stated_rate(
    draw: Any, fewer: int, world: World, blocks: int, runs: int
) -> None:
    random = np.random.default_rng(5)
    runs //= fewer
    tail = (1 - RULES.confidence) / 2
    intervals = [draw(random, world, truth=0.1, blocks=blocks)[0].interval(tail) for _ in range(runs)]
    missed = sum(not one.low <= math.exp(0.1) <= one.high for one in intervals)
    assert missed / runs <= allowed(1 - RULES.confidence, runs)


@few_and_many(400, 20_000)
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize(
    ("truth", "wrong"),
    [(0.0, {"faster", "slower"}), (math.log(1.05), {"equivalent", "faster"})],
    ids=["equal", "on-the-edge"],
)
@each_quantile
def test_a_run_has_a_wrong_verdict_no_more_often_than_stated(
    draw: Any, fewer: int, truth: float, wrong: set[str], world: World, runs: int
) -> None:
    """Runs of three cells with two candidates each, at one quantile."""
    random = np.random.default_rng(6)
    runs //= fewer
    bad = 0
    for _ in range(runs):
        found = [one for _ in range(3) for one in draw(random, world, truth=truth, candidates=2)]
        bad += any(one.word in wrong for one in inference.decide(found, [(0.05, WIDE_MS)] * len(found), RULES))
    assert bad / runs <= allowed(RULES.alpha, runs)


@few_and_many(300, 4_000)
@pytest.mark.parametrize(("ratio", "gap_ms"), [(1.0, 0.2), (1.04, 0.05)], ids=["margin", "band"])
def test_arms_on_the_edge_of_band_or_margin_are_seldom_equivalent(ratio: float, gap_ms: float, runs: int) -> None:
    """The truth is on the edge of the narrower of the two, and well within the other one."""
    random = np.random.default_rng(12)
    base_ms = 10.0 if ratio == 1.0 else 1.0
    truth = math.log1p(gap_ms / base_ms)
    margin_ms = gap_ms if ratio == 1.0 else 1.0
    verdicts = []
    for _ in range(runs):
        noise = np.exp(random.normal(0, 0.01, (3, BLOCKS))) * base_ms
        one = inference.block_effect(noise[0] * math.exp(truth), noise[1:], RULES)
        verdicts.append(inference.decide([one], [(0.05, margin_ms)], RULES)[0].word)
    assert verdicts.count("equivalent") / runs <= allowed(RULES.alpha / 2, runs)


@pytest.mark.parametrize("size", [1, 48])
def test_the_smallest_detectable_ratio_is_that_of_the_noncentral_t_distribution(size: int) -> None:
    one, tails = Estimate(0.0, 0.02, BLOCKS, RULES.trim), RULES.tails(size)
    shift = math.log(inference.detectable_ratio(one, tails, RULES.power)) / one.error
    assert stats.nct.sf(stats.t.isf(tails.different, 11), 11, shift) == pytest.approx(RULES.power, rel=1e-6)


@few_and_many(300, 4_000)
@pytest.mark.parametrize("size", [1, 48])
def test_the_smallest_detectable_ratio_is_detected_with_the_stated_power(size: int, runs: int) -> None:
    world, rules = World(drift=0.0), dataclasses.replace(RULES, trim=0.0)
    # of one arm against the mean of two
    true = Estimate(0.0, world.noise * math.sqrt(1.5 / BLOCKS), BLOCKS)
    tails = rules.tails(size)
    ratio = inference.detectable_ratio(true, tails, rules.power)
    random = np.random.default_rng(7)
    found = [median_effects(random, world, truth=math.log(ratio), rules=rules)[0].log_ratio for _ in range(runs)]
    detected = [one.against_at_most(0.0) <= tails.different for one in found]
    assert np.mean(detected) == pytest.approx(rules.power, abs=3 * math.sqrt(0.16 / runs))
    # What a run publishes is estimated from its own blocks.
    published = [inference.detectable_ratio(one, tails, rules.power) for one in found]
    assert math.log(float(np.median(published))) == pytest.approx(math.log(ratio), rel=0.06)


@few_and_many(1_500, 10_000)
@each_quantile
def test_the_smallest_detectable_ratio_is_detected_with_bursts_too(draw: Any, fewer: int, runs: int) -> None:
    random = np.random.default_rng(8)
    runs //= fewer
    found = [draw(random, BURSTS)[0].log_ratio for _ in range(runs)]
    error = float(np.sqrt(np.mean([one.error**2 for one in found])))
    tails = RULES.tails(2)
    ratio = inference.detectable_ratio(dataclasses.replace(found[0], error=error), tails, RULES.power)
    detected = [
        draw(random, BURSTS, truth=math.log(ratio))[0].log_ratio.against_at_most(0.0) <= tails.different
        for _ in range(runs)
    ]
    # Bursts make one run's error very different from another's, so the figure is for the typical run.
    assert RULES.power - 0.08 <= float(np.mean(detected)) <= RULES.power + 0.12


@few_and_many(300, 4_000)
def test_the_stated_number_of_blocks_shows_equal_arms_to_be_equivalent(runs: int) -> None:
    world, tails = World(drift=0.0), RULES.control_tails

    def needed(spread: float, trim: float = 0.0, tails: SignificanceLevels = tails) -> int:
        return inference.blocks_needed(Estimate(0.0, spread, 1, trim), math.log(1.05), tails, RULES.power)

    blocks = needed(world.noise * math.sqrt(1.5))
    random = np.random.default_rng(9)
    verdicts = [
        inference.control_verdict(median_effects(random, world, blocks=blocks)[0], 0.05, WIDE_MS, RULES)
        for _ in range(runs)
    ]
    # The trimmed mean of normal noise spreads some more than the plain one, which the number is for, and both must do.
    assert RULES.power - 0.15 <= verdicts.count("equivalent") / runs <= RULES.power + 0.05
    assert needed(0.11) < needed(0.11, RULES.trim) < needed(0.11, RULES.trim, RULES.tails(48))
    assert needed(0.11) < needed(0.2)


def test_the_rules_are_in_the_plan() -> None:
    plan = scenarios.load("tail").latency
    assert plan.rules == VerdictRules(0.05, 0.8, 0.2, 20, 0.95, 1000)
    assert (plan.band_p50, plan.band_p99, plan.margin_p50_ms, plan.margin_p99_ms) == (0.05, 0.10, 1.0, 5.0)
    assert plan.blocks >= plan.min_blocks
