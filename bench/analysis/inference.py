"""Verdicts of a run and their error probabilities: pure functions of blocks.

A *comparison* is one candidate arm against the baseline in one cell at one quantile. Its data are the latencies of all
blocks. The baseline is the mean of the two arms with its settings, A and the control A'.

*Median.* In each block the candidate's median is compared with the baseline's, which is the geometric mean of the
medians of A and A': by the logarithm of the ratio, and by the difference in ms. Over the blocks both are averaged
twice: without the share ``trim`` of the blocks at each end, with the standard error from the winsorised blocks and
Student's t (Tukey and McLaughlin, 1963; Yuen, 1974), and over all blocks with Student's t. The trimmed mean is
published, because a burst of other work in one block does not move it. Its degrees of freedom are the number of blocks
that are not left out, less one, and less a quarter of those left out: with normal blocks Yuen's test without the latter
would reject 1.6 times as often as stated at the strictest level of 48 comparisons.

*Higher quantiles.* The quantile is that of the pooled records of all blocks, for the baseline those of A and A'. The
estimates are the logarithm of the ratio of two such quantiles, and their difference in ms. Their standard error is the
standard deviation over resamples of whole blocks, drawn jointly for all arms, times ``sqrt(n / (n - 1))`` for n blocks;
intervals and p-values are by Student's t with n - 1 degrees of freedom. This estimate has no trimmed version: every
block counts. Quantiles are taken from counts in bins of 0.1 %.

*Tests.* ``slower`` is the rejection of "the ratio is at most 1", ``faster`` that of "at least 1". ``equivalent``
requires two one-sided tests (TOST; Schuirmann, 1987) of the ratio against both ends of its band, and of the difference
against both ends of its margin in ms; for the median each of the trimmed and of the untrimmed mean. Its p-value is the
largest of all of them, so its level is that of one test, however they depend on each other (Berger, 1982). The
untrimmed test includes an effect of few blocks, such as a burst that comes with one arm alone: two arms of which one
has such an effect are not equal.

*Family.* The family consists of all comparisons that the plan names, m of them, whatever their outcome; one without
numbers has p = 1. Holm's procedure runs twice, each time with half of ``alpha``: over the m hypotheses "not
equivalent", and over the 2m one-sided ones. So the probability that any verdict of a run is wrong, of either kind, is
at most ``alpha``, however the comparisons depend on each other. If both verdicts apply, it is ``equivalent``.

*Controls.* The second arm with the baseline's settings must be equivalent to the first, otherwise the cell is
``undecided`` at that quantile. The positive control, an arm with ``acks=1``, must be ``faster`` than the baseline,
otherwise ``equivalent`` becomes ``undecided``: a cell that does not show a known difference does not show that there is
none. There is no correction for these tests, because controls can only remove verdicts.

In simulations (``tests/unit/bench/test_inference.py``) intervals cover at least as often as their confidence level
states, with blocks that are normal, drift, or are hit by bursts.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from bench.plan.scenario import FEWEST_BLOCKS, SignificanceLevels, VerdictRules
from pyhooks.core.statistics import Floats, Interval, RatioVerdict, histogram_quantiles, resampled_quantiles

Ints = npt.NDArray[np.int64]
# Why a comparison has its verdict; ``decided`` for every verdict but ``undecided``.
VerdictReason = Literal[
    "decided",
    "noise",
    "pacer",
    "control",
    "positive control",
    "rejected",
    "not acknowledged",
    "missing",
    "few blocks",
    "few records",
    "not judged",
]
# No plan is long enough for more.
MAX_BLOCKS = 1_000_000
# In place of an error of 0, which equal blocks have.
_TINY = 1e-300


@dataclass(frozen=True)
class Estimate:
    """Estimate from blocks, with an error that follows Student's t."""

    point: float
    error: float  # its standard error
    blocks: int  # number of blocks
    trim: float = 0.0  # share of the blocks that is left out at each end

    @property
    def freedom(self) -> int:
        """Degrees of freedom; see the module's description."""
        cut = math.floor(self.blocks * self.trim)
        return self.blocks - 2 * cut - 1 - cut // 2

    def interval(self, tail: float) -> Interval:
        """Return the interval that leaves out ``tail`` at each end."""
        reach = float(stats.t.isf(tail, self.freedom)) * self.error
        return Interval(self.point - reach, self.point, self.point + reach)

    def against_at_most(self, value: float) -> float:
        """Return the p-value of "at most ``value``"."""
        return float(stats.t.sf((self.point - value) / max(self.error, _TINY), self.freedom))

    def against_at_least(self, value: float) -> float:
        """Return the p-value of "at least ``value``"."""
        return float(stats.t.cdf((self.point - value) / max(self.error, _TINY), self.freedom))

    def against_outside(self, edge: float) -> float:
        """Return the p-value of "not between -``edge`` and ``edge``"."""
        return max(self.against_at_most(-edge), self.against_at_least(edge))


@dataclass(frozen=True)
class Effect:
    """Estimates of one comparison; the first of each kind is published, and ``equivalent`` requires all."""

    ratios: tuple[Estimate, ...]  # estimates of the logarithm of the ratio: trimmed and untrimmed, or pooled
    differences: tuple[Estimate, ...]  # the same of the difference in ms

    @property
    def log_ratio(self) -> Estimate:
        """The published estimate of the logarithm of the ratio."""
        return self.ratios[0]

    def interval(self, tail: float) -> Interval:
        """Return the interval of the ratio that leaves out ``tail`` at each end."""
        log_interval = self.log_ratio.interval(tail)
        return Interval(math.exp(log_interval.low), math.exp(log_interval.point), math.exp(log_interval.high))

    def against_different(self, band: float, margin_ms: float) -> float:
        """Return the p-value of "the ratio is outside 1/(1+band) .. 1+band, or the difference beyond the margin"."""
        edges = [(self.ratios, math.log1p(band)), (self.differences, margin_ms)]
        return max(estimate.against_outside(edge) for estimates, edge in edges for estimate in estimates)

    def against_equal(self) -> float:
        """Return the smaller of the p-values of "not slower" and "not faster"."""
        return min(self.log_ratio.against_at_most(0.0), self.log_ratio.against_at_least(0.0))


def mean_estimate(values: Floats, trim: float) -> Estimate:
    """Return the trimmed mean of the values of blocks, with its error from the winsorised values.

    Raises:
        ValueError: there are fewer than ``FEWEST_BLOCKS`` values, or one is not finite.
    """
    size, cut = values.size, math.floor(values.size * trim)
    if size < FEWEST_BLOCKS or not np.isfinite(values).all():
        raise ValueError(f"need at least {FEWEST_BLOCKS} finite values, got {values.tolist()!r}")
    kept = np.sort(values)[cut : size - cut]
    squares = float(np.clip(values, kept[0], kept[-1]).var()) * size
    return Estimate(float(kept.mean()), math.sqrt(squares / (kept.size * (kept.size - 1))), size, trim)


def block_effect(latencies_ms: Floats, baselines_ms: Floats, rules: VerdictRules) -> Effect:
    """Return the effect from a quantile of each block.

    Args:
        latencies_ms: the candidate's quantile of each block, shape (blocks,).
        baselines_ms: the same of each arm of the baseline, shape (arms, blocks).
        rules: rules of the run.

    Raises:
        ValueError: there are fewer than ``FEWEST_BLOCKS`` blocks, or a value is not positive and finite.
    """
    baseline_ms = np.exp(np.log(baselines_ms).mean(axis=0))
    logs, gaps_ms = np.log(latencies_ms / baseline_ms), latencies_ms - baseline_ms
    trims = (rules.trim, 0.0)
    return Effect(
        tuple(mean_estimate(logs, trim) for trim in trims), tuple(mean_estimate(gaps_ms, trim) for trim in trims)
    )


@dataclass(frozen=True)
class BlockCounts:
    """Counts of an arm's latencies."""

    values_ms: Floats  # latency of each bin, ascending, shape (bins,)
    counts: Ints  # shape (blocks, bins)


def pooled_effect(
    candidate: BlockCounts, baseline: BlockCounts, quantile: float, rules: VerdictRules, seed: int
) -> Effect:
    """Return the effect from a quantile, as a fraction, of the pooled records of all blocks.

    ``baseline`` has the counts of all arms of the baseline together, in as many blocks; ``seed`` is of the resamples.
    """
    blocks = candidate.counts.shape[0]

    def quantiles(arm: BlockCounts) -> Floats:
        """Return the quantile, and then that of each resample."""
        at = np.array([quantile])
        whole = histogram_quantiles(arm.counts.sum(axis=0, keepdims=True), arm.values_ms, at)
        drawn = resampled_quantiles(arm.counts, arm.values_ms, at, resamples=rules.resamples, seed=seed)
        return np.concatenate([whole[:, 0], drawn[:, 0]])

    def estimate(values: Floats) -> tuple[Estimate]:
        error = float(values[1:].std(ddof=1)) * math.sqrt(blocks / (blocks - 1))
        return (Estimate(float(values[0]), error, blocks),)

    own, other = quantiles(candidate), quantiles(baseline)
    return Effect(estimate(np.log(own / other)), estimate(own - other))


def holm(p_values: Sequence[float], hypotheses: int) -> list[float]:
    """Return Holm's adjusted p-values; a hypothesis is rejected at every level at or above its own.

    ``p_values`` are of some of that many hypotheses, including the smallest of all.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values)
    adjusted = np.empty_like(values)
    steps = (hypotheses - np.arange(values.size)) * values[order]
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return [float(value) for value in adjusted]


@dataclass(frozen=True)
class Decision:
    """Verdict of the tests on one comparison, before its control is considered."""

    verdict: RatioVerdict
    p_equivalent: float  # adjusted p-value of "not equivalent", to be compared with ``alpha``
    p_different: float  # the smaller of the adjusted p-values of "not slower" and "not faster"


def decide(
    effects: Sequence[Effect | None], bounds: Sequence[tuple[float, float]], rules: VerdictRules
) -> list[Decision]:
    """Return the verdicts of a whole family.

    Args:
        effects: effect of each comparison that the plan names; None if there are no numbers.
        bounds: half-width of the equivalence band of each comparison, as a fraction, and its margin in ms.
        rules: of the run.
    """
    outside = [
        1.0 if effect is None else effect.against_different(*bound)
        for effect, bound in zip(effects, bounds, strict=True)
    ]
    equal = [1.0 if effect is None else effect.against_equal() for effect in effects]
    # Each of the two families has half of alpha.
    p_equivalent = [min(1.0, 2 * p) for p in holm(outside, len(effects))]
    p_different = [min(1.0, 2 * p) for p in holm(equal, 2 * len(effects))]
    return [
        Decision(_verdict(effect, p_e <= rules.alpha, p_d <= rules.alpha), p_e, p_d)
        for effect, p_e, p_d in zip(effects, p_equivalent, p_different, strict=True)
    ]


def control_verdict(effect: Effect, band: float, margin_ms: float, rules: VerdictRules) -> RatioVerdict:
    """Return the verdict of a control, tested without correction as if it were the only comparison of the run."""
    tails = rules.control_tails
    return _verdict(
        effect, effect.against_different(band, margin_ms) <= tails.equivalent, effect.against_equal() <= tails.different
    )


def _verdict(effect: Effect | None, is_equivalent: bool, is_different: bool) -> RatioVerdict:
    if effect is None or not (is_equivalent or is_different):
        return "undecided"
    return "equivalent" if is_equivalent else "slower" if effect.log_ratio.point > 0 else "faster"


def _distance(tail: float, power: float, freedom: int) -> float:
    """Return how many standard errors an effect needs so that a t-test of level ``tail`` detects it with ``power``."""
    # the parameter of the noncentral t distribution that exceeds the critical value so often
    return float(special.nctdtrinc(freedom, 1.0 - power, stats.t.isf(tail, freedom)))


def power(log_ratio_error: float, freedom: int, distance: float, tail: float) -> float:
    """Return the probability that the interval that leaves out ``tail`` at each end excludes a value.

    ``distance`` is the logarithm of the true ratio over the value, absolute.
    """
    critical = float(stats.t.isf(tail, freedom))
    return 1.0 - float(special.nctdtr(freedom, distance / max(log_ratio_error, _TINY), critical))


def detectable_ratio(log_ratio: Estimate, tails: SignificanceLevels, power: float) -> float:
    """Return the true ratio above 1 at which blocks of this noise reject "not slower" with probability ``power``.

    The level is ``tails.different``, that of the first hypothesis of its family. The inverse applies to "not faster".
    """
    return math.exp(log_ratio.error * _distance(tails.different, power, log_ratio.freedom))


def provable_edge(estimate: Estimate, tails: SignificanceLevels, power: float) -> float:
    """Return the narrowest edge such that an estimate of a true 0 is shown to lie within it with this probability."""
    # Both one-sided tests must reject, so each may miss half as often.
    return estimate.error * _distance(tails.equivalent, (1.0 + power) / 2, estimate.freedom)


def blocks_needed(estimate: Estimate, edge: float, tails: SignificanceLevels, power: float) -> int:
    """Return how many such blocks are needed to show a true 0 to lie within the edge with this probability."""
    spread = estimate.error * math.sqrt(estimate.blocks)

    def enough(blocks: int) -> bool:
        imagined = Estimate(0.0, spread / math.sqrt(blocks), blocks, estimate.trim)
        return provable_edge(imagined, tails, power) <= edge

    return FEWEST_BLOCKS + bisect.bisect_left(range(FEWEST_BLOCKS, MAX_BLOCKS), True, key=enough)
