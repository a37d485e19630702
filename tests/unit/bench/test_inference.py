"""Verdicts and their error rates, on generated data with a known truth."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis import inference
from bench.analysis.inference import Effect
from bench.plan import scenarios
from bench.plan.verdict_rules import VerdictRules

RULES = dataclasses.replace(scenarios.load("tail").latency.rules, resamples=1000)
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


effects = st.builds(
    Effect, st.floats(-0.3, 0.3), st.floats(0.001, 0.1), st.integers(3, 60), st.just(BLOCKS), st.just(0.0)
)


@given(effects, st.sampled_from([0.05, 0.1]), st.floats(0.0001, 0.3))
def test_the_equivalence_test_is_the_inclusion_of_an_interval(one: Effect, band: float, level: float) -> None:
    p = one.against_different(band)
    interval = one.interval(level)
    if abs(p - level) > 1e-9:
        assert (p < level) == interval.inside(1 / (1 + band), 1 + band)


@given(effects, st.floats(-0.2, 0.2))
def test_the_p_values_of_opposite_hypotheses_are_complements(one: Effect, at: float) -> None:
    assert one.against_at_most(at) + one.against_at_least(at) == pytest.approx(1.0)


def sure(ratio: float, error: float = 0.001) -> Effect:
    return Effect(math.log(ratio), error, 15, BLOCKS, math.log(ratio))


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (sure(1.0), "equivalent"),
        (sure(1.03), "equivalent"),  # distinguishable from 1, but too small to matter
        (sure(1.2), "slower"),
        (sure(0.8), "faster"),
        (sure(1.0, 0.1), "undecided"),
        (sure(1.05), "slower"),  # on the edge of the band
        (None, "undecided"),
    ],
)
def test_the_verdict_of_a_single_comparison(one: Effect | None, verdict: str) -> None:
    (decision,) = inference.decide([one], [0.05], RULES)
    assert decision.word == verdict
    if one is not None:
        assert inference.control_verdict(one, 0.05, RULES) == verdict


def test_a_verdict_depends_on_the_number_of_planned_comparisons() -> None:
    near = sure(1.0, math.log(1.05) / 2.6)
    assert inference.decide([near], [0.05], RULES)[0].word == "equivalent"
    among = inference.decide([near, *[None] * 47], [0.05] * 48, RULES)
    assert among[0].word == "undecided"
    # Where the others are decided, Holm's procedure leaves the last one the level that it would have had alone.
    decided = inference.decide([near, *[sure(1.0)] * 47], [0.05] * 48, RULES)
    assert {one.word for one in decided} == {"equivalent"}


def test_equal_blocks_have_no_variance_and_invalid_ones_are_refused() -> None:
    same = inference.estimate_effect([0.2] * BLOCKS, RULES, 1)
    assert same.point == pytest.approx(0.2)
    assert same.error == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="at least 4 finite"):
        inference.estimate_effect([0.1, 0.2, 0.3], RULES, 1)
    with pytest.raises(ValueError, match="finite"):
        inference.estimate_effect([0.1] * 9 + [math.nan], RULES, 1)


def test_a_burst_in_one_block_does_not_decide() -> None:
    even = np.random.default_rng(2).normal(0, 0.03, BLOCKS)
    burst = even.copy()
    # moves the plain mean by 3.5 %, which is within the band
    burst[7] = math.log(2)
    with_trim, without = (
        inference.estimate_effect(burst, dataclasses.replace(RULES, trim=trim), 1) for trim in (RULES.trim, 0.0)
    )
    assert inference.control_verdict(with_trim, 0.05, RULES) == "equivalent"
    assert inference.control_verdict(without, 0.05, RULES) == "undecided"


def test_the_plain_mean_of_all_blocks_must_lie_in_the_band_too() -> None:
    """One arm is three times as slow in every tenth block: trimming cuts that off, and equal the arms are not."""
    random = np.random.default_rng(11)
    verdicts: list[str] = []
    for _ in range(100):
        logs = random.normal(0, 0.02, BLOCKS)
        logs[random.choice(BLOCKS, BLOCKS // 10, replace=False)] += math.log(3)
        one = inference.estimate_effect(logs, RULES, 1)
        assert one.interval(0.0125).inside(1 / 1.05, 1.05)
        assert not one.mean_inside(0.05)
        verdicts.append(inference.decide([one], [0.05], RULES)[0].word)
    assert "equivalent" not in verdicts
    calm = inference.estimate_effect(random.normal(0, 0.02, BLOCKS), RULES, 1)
    assert inference.decide([calm], [0.05], RULES)[0].word == "equivalent"


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


QUIET, BURSTS = World(), World(burst_share=0.05)


def log_ratios(random: np.random.Generator, world: World, arms: int, blocks: int, truth: float = 0.0) -> Floats:
    """Log-ratios of each arm but the first to the first, shape (arms - 1, blocks); random order in each block."""
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
    by_arm[:, 1:] += truth
    return np.asarray((by_arm[:, 1:] - by_arm[:, :1]).T)


def few_and_many(few: int, many: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("runs", [few, pytest.param(many, marks=pytest.mark.slow)])


def allowed(share: float, runs: int) -> float:
    """The share, and three standard errors of a simulation of so many runs."""
    return share + 3 * math.sqrt(share * (1 - share) / runs)


@few_and_many(400, 10_000)
@pytest.mark.parametrize("world", [QUIET, BURSTS], ids=["quiet", "bursts"])
@pytest.mark.parametrize("blocks", [12, 20])
def test_intervals_cover_the_truth_at_their_stated_rate(world: World, blocks: int, runs: int) -> None:
    random = np.random.default_rng(5)
    missed = 0
    for _ in range(runs):
        one = inference.estimate_effect(log_ratios(random, world, 2, blocks, 0.1)[0], RULES, 1)
        interval = one.interval((1 - RULES.confidence) / 2)
        missed += not interval.low <= math.exp(0.1) <= interval.high
    assert missed / runs <= allowed(1 - RULES.confidence, runs)


def family(random: np.random.Generator, world: World, cells: int, truth: float) -> tuple[list[Effect | None], int]:
    """A run of so many cells with two candidates each, at one quantile."""
    found: list[Effect | None] = []
    for _ in range(cells):
        logs = log_ratios(random, world, 3, BLOCKS, truth)
        found += [inference.estimate_effect(row, RULES, 1) for row in logs]
    return found, len(found)


@few_and_many(150, 4_000)
@pytest.mark.parametrize("world", [QUIET, BURSTS], ids=["quiet", "bursts"])
@pytest.mark.parametrize(
    ("truth", "wrong"),
    [(0.0, {"faster", "slower"}), (math.log(1.05), {"equivalent", "faster"})],
    ids=["equal", "on-the-edge"],
)
def test_a_run_has_a_wrong_verdict_no_more_often_than_stated(
    truth: float, wrong: set[str], world: World, runs: int
) -> None:
    random = np.random.default_rng(6)
    bad = 0
    for _ in range(runs):
        found, size = family(random, world, 6, truth)
        bad += any(one.word in wrong for one in inference.decide(found, [0.05] * size, RULES))
    assert bad / runs <= allowed(RULES.alpha, runs)


@few_and_many(300, 4_000)
@pytest.mark.parametrize("size", [1, 48])
def test_the_smallest_detectable_ratio_is_detected_with_the_stated_power(size: int, runs: int) -> None:
    world, rules = World(drift=0.0), dataclasses.replace(RULES, trim=0.0)
    spread = world.noise * math.sqrt(2)
    tails = rules.tails(size)
    ratio = inference.detectable_ratio(spread / math.sqrt(BLOCKS), BLOCKS - 1, tails, rules.power)
    random = np.random.default_rng(7)
    detected, published = 0, []
    for _ in range(runs):
        one = inference.estimate_effect(log_ratios(random, world, 2, BLOCKS, math.log(ratio))[0], rules, 1)
        detected += one.against_at_most(0.0) <= tails.different
        published.append(inference.detectable_ratio(one.error, one.freedom, tails, rules.power))
    assert detected / runs == pytest.approx(rules.power, abs=3 * math.sqrt(0.16 / runs) + 0.01)
    # What a run publishes is estimated from its own blocks.
    assert math.log(float(np.median(published))) == pytest.approx(math.log(ratio), rel=0.06)


@few_and_many(300, 4_000)
def test_the_smallest_detectable_ratio_holds_with_trimmed_blocks_and_bursts(runs: int) -> None:
    random = np.random.default_rng(8)
    errors = [inference.estimate_effect(log_ratios(random, BURSTS, 2, BLOCKS)[0], RULES, 1).error for _ in range(runs)]
    freedom = BLOCKS - 2 * math.floor(BLOCKS * RULES.trim) - 1
    tails = RULES.tails(2)
    ratio = inference.detectable_ratio(float(np.sqrt(np.mean(np.square(errors)))), freedom, tails, RULES.power)
    logs = [log_ratios(random, BURSTS, 2, BLOCKS, math.log(ratio))[0] for _ in range(runs)]
    detected = [inference.estimate_effect(row, RULES, 1).against_at_most(0.0) <= tails.different for row in logs]
    # Bursts make one run's error very different from another's, so the figure is for the typical run.
    assert RULES.power - 0.08 <= float(np.mean(detected)) <= RULES.power + 0.12


@few_and_many(300, 4_000)
def test_the_stated_number_of_blocks_shows_equal_arms_to_be_equivalent(runs: int) -> None:
    world, rules = World(drift=0.0), RULES
    blocks = inference.blocks_needed(world.noise * math.sqrt(2), 0.05, rules.control_tails, rules)
    random = np.random.default_rng(9)
    verdicts = [
        inference.control_verdict(
            inference.estimate_effect(log_ratios(random, world, 2, blocks)[0], rules, 1), 0.05, rules
        )
        for _ in range(runs)
    ]
    # A trimmed mean of normal noise spreads some more than a plain one, and the number here is for the plain one; a run
    # takes the spread from its own trimmed mean.
    assert rules.power - 0.15 <= verdicts.count("equivalent") / runs <= rules.power + 0.1
    few = inference.blocks_needed(0.11, 0.05, rules.control_tails, rules)
    assert few < inference.blocks_needed(0.11, 0.05, rules.tails(48), rules)
    assert few < inference.blocks_needed(0.2, 0.05, rules.control_tails, rules)


def test_the_rules_are_in_the_plan() -> None:
    plan = scenarios.load("tail").latency
    assert plan.rules == VerdictRules(0.05, 0.8, 0.2, 20, 0.95, 10_000)
    assert (plan.band_p50, plan.band_p99) == (0.05, 0.10)
    assert plan.blocks >= plan.min_blocks
