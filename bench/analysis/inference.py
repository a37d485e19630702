"""Verdicts of a run and their error probabilities: pure functions of the log-ratios of blocks.

A *comparison* is one candidate arm against the baseline in one cell at one quantile. Its data are the log-ratios of the
two arms' quantiles, one per block. A verdict is about ``theta``, the (trimmed) mean of their distribution.

*Interval.* Whole blocks are resampled (bootstrap), and the trimmed mean of each resample is taken. The central 68.3 %
of these means span two standard errors, once widened by ``sqrt(n / (n - 1))``. The interval is the trimmed mean of the
blocks, plus and minus Student's t times that error. The degrees of freedom are the number of untrimmed blocks less one
(Tukey and McLaughlin, 1963). The outer percentiles of the resamples are not used. A family of dozens needs levels below
one in a thousand, which about twenty blocks can't resolve. And a single extreme block that is drawn three times would
dominate them, as it would dominate the standard deviation of the means. In simulations
(``tests/unit/bench/test_inference.py``) the interval covers at least as often as its confidence level states, with
blocks that are normal, drift, or are hit by bursts.

*Tests.* ``equivalent`` requires two one-sided tests (TOST; Schuirmann, 1987): both "theta <= -log(1 + band)" and
"theta >= log(1 + band)" are rejected, each at level a. This is the same as an interval of confidence 1 - 2a inside the
band. The plain mean of all blocks must lie in the band too: trimming removes an effect of few blocks, such as a burst
that comes with one arm alone, and two arms of which one has such an effect are not equal. An additional condition can
only remove verdicts, so the level remains valid. ``slower`` is the rejection of "theta <= 0", ``faster`` that of
"theta >= 0".

*Family.* The family consists of all comparisons that the plan names, m of them, whatever their outcome; one without
numbers has p = 1. Holm's procedure runs twice, each time with half of ``alpha``: over the m hypotheses "not
equivalent", and over the 2m one-sided ones. So the probability that any verdict of a run is wrong, of either kind, is
at most ``alpha``, however the comparisons depend on each other. If both verdicts apply, it is ``equivalent``.

*Control.* The second arm with the baseline's settings must be equivalent by itself, otherwise the cell is ``undecided``
at that quantile. There is no correction for this test, because the control can only remove verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from bench.plan.verdict_rules import FEWEST_BLOCKS, SignificanceLevels, VerdictRules
from pyhooks.core.statistics import Interval, RatioVerdict, student_t_quantile, student_t_tail

Floats = npt.NDArray[np.float64]
# Why a comparison has its verdict; ``decided`` for every verdict but ``undecided``.
VerdictReason = Literal[
    "decided",
    "noise",
    "mean",
    "pacer",
    "control",
    "refused",
    "not acknowledged",
    "missing",
    "few blocks",
    "few records",
    "not judged",
]
# One standard error below and above the centre.
_MIDDLE = [NormalDist().cdf(-1.0), NormalDist().cdf(1.0)]


@dataclass(frozen=True)
class Effect:
    """Estimate of a log-ratio.

    Attributes:
        point: trimmed mean of the blocks' log-ratios.
        error: standard error of ``point``.
        freedom: degrees of freedom of Student's t.
        blocks: number of blocks.
        mean: plain mean of all blocks' log-ratios.
    """

    point: float
    error: float
    freedom: int
    blocks: int
    mean: float

    def interval(self, tail: float) -> Interval:
        """Return the interval of the ratio that leaves out ``tail`` at each end."""
        reach = student_t_quantile(1.0 - tail, self.freedom) * self.error
        return Interval(math.exp(self.point - reach), math.exp(self.point), math.exp(self.point + reach))

    def against_at_most(self, log_ratio: float) -> float:
        """Return the p-value of "theta is at most ``log_ratio``"."""
        if self.error == 0.0:
            return 0.0 if self.point > log_ratio else 1.0
        return student_t_tail((self.point - log_ratio) / self.error, self.freedom)

    def against_at_least(self, log_ratio: float) -> float:
        """Return the p-value of "theta is at least ``log_ratio``"."""
        return replace(self, point=-self.point, mean=-self.mean).against_at_most(-log_ratio)

    def mean_inside(self, band: float) -> bool:
        """Return whether the plain mean of all blocks lies within 1/(1+band) .. 1+band."""
        return abs(self.mean) < math.log1p(band)

    def against_different(self, band: float) -> float:
        """Return the p-value of "the ratio is outside 1/(1+band) .. 1+band"; 1 if the plain mean of all blocks is."""
        if not self.mean_inside(band):
            return 1.0
        edge = math.log1p(band)
        return max(self.against_at_most(-edge), self.against_at_least(edge))

    def against_equal(self) -> float:
        """Return the smaller of the p-values of "not slower" and "not faster"."""
        return min(self.against_at_most(0.0), self.against_at_least(0.0))


def trimmed_means(values: Floats, trim: float) -> Floats:
    """Return the means along the last axis without the share ``trim`` at each end."""
    cut = math.floor(values.shape[-1] * trim)
    if cut:
        values = np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut]
    return np.asarray(values.mean(axis=-1), dtype=np.float64)


@lru_cache(maxsize=16)
def _picks(size: int, resamples: int, seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, size, size=(resamples, size))


def estimate_effect(logs: Sequence[float] | Floats, rules: VerdictRules, seed: int) -> Effect:
    """Estimate the log-ratio of two arms from the log-ratios of blocks.

    Raises:
        ValueError: there are fewer than ``FEWEST_BLOCKS`` values, or one is not finite.
    """
    sample = np.asarray(logs, dtype=np.float64)
    if sample.size < FEWEST_BLOCKS or not np.isfinite(sample).all():
        raise ValueError(f"need at least {FEWEST_BLOCKS} finite values, got {sample.tolist()!r}")
    size = int(sample.size)
    means = trimmed_means(sample[_picks(size, rules.resamples, seed)], rules.trim)
    low, high = np.quantile(means, _MIDDLE)
    error = float(high - low) / 2 * math.sqrt(size / (size - 1))
    freedom = size - 2 * math.floor(size * rules.trim) - 1
    return Effect(float(trimmed_means(sample, rules.trim)), error, freedom, size, float(sample.mean()))


def holm(p_values: Sequence[float], hypotheses: int) -> list[float]:
    """Return Holm's adjusted p-values; a hypothesis is rejected at every level at or above its own.

    Args:
        p_values: p-values of some of the hypotheses, including the smallest of all.
        hypotheses: number of all hypotheses.
    """
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for step, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (hypotheses - step) * p_values[at]))
        adjusted[at] = highest
    return adjusted


@dataclass(frozen=True)
class Decision:
    """Verdict of the tests on one comparison, before its control is considered.

    Attributes:
        word: the verdict.
        p_equivalent: adjusted p-value of "not equivalent", to be compared with ``alpha``.
        p_different: the smaller of the adjusted p-values of "not slower" and "not faster".
    """

    word: RatioVerdict
    p_equivalent: float
    p_different: float


def decide(effects: Sequence[Effect | None], bands: Sequence[float], rules: VerdictRules) -> list[Decision]:
    """Return the verdicts of a whole family.

    Args:
        effects: effect of each comparison that the plan names; None if there are no numbers.
        bands: half-width of the equivalence band of each comparison, as a fraction.
        rules: rules of the run.
    """
    outside = [1.0 if effect is None else effect.against_different(b) for effect, b in zip(effects, bands, strict=True)]
    equal = [1.0 if effect is None else effect.against_equal() for effect in effects]
    # Each of the two families has half of alpha.
    p_equivalent = [min(1.0, 2 * p) for p in holm(outside, len(effects))]
    p_different = [min(1.0, 2 * p) for p in holm(equal, 2 * len(effects))]
    return [
        Decision(_verdict(effect, p_e <= rules.alpha, p_d <= rules.alpha), p_e, p_d)
        for effect, p_e, p_d in zip(effects, p_equivalent, p_different, strict=True)
    ]


def control_verdict(effect: Effect, band: float, rules: VerdictRules) -> RatioVerdict:
    """Return the verdict of a control, tested without correction as if it were the only comparison of the run."""
    tails = rules.control_tails
    return _verdict(
        effect, effect.against_different(band) <= tails.equivalent, effect.against_equal() <= tails.different
    )


def _verdict(effect: Effect | None, is_equivalent: bool, is_different: bool) -> RatioVerdict:
    if effect is None or not (is_equivalent or is_different):
        return "undecided"
    return "equivalent" if is_equivalent else "slower" if effect.point > 0 else "faster"


def _distance(tail: float, power: float, freedom: int) -> float:
    """Return how many standard errors an effect needs so that a t-test of level ``tail`` detects it with ``power``.

    Uses the approximation of the inverse noncentral t distribution by Johnson and Welch (Biometrika 31, 1940).
    """
    critical = student_t_quantile(1.0 - tail, freedom)
    spread = math.sqrt(1.0 + critical**2 / (2 * freedom))
    return critical * (1.0 - 1.0 / (4 * freedom)) + NormalDist().inv_cdf(power) * spread


def detectable_ratio(error: float, freedom: int, tails: SignificanceLevels, power: float) -> float:
    """Return the smallest ratio above 1 that the test would have distinguished from 1.

    If this were the true ratio, and the blocks as noisy as they are, "not slower" would be rejected with probability
    ``power`` at the level ``tails.different``, which is that of the first hypothesis of its family. The inverse of the
    ratio applies to "not faster".
    """
    return math.exp(error * _distance(tails.different, power, freedom))


def provable_band(error: float, freedom: int, tails: SignificanceLevels, power: float) -> float:
    """Return the narrowest band in which two arms of ratio 1 are found equivalent with probability ``power``."""
    # Both one-sided tests must reject, so each may miss half as often.
    return math.expm1(error * _distance(tails.equivalent, (1.0 + power) / 2, freedom))


def blocks_needed(spread: float, band: float, tails: SignificanceLevels, rules: VerdictRules) -> int:
    """Return how many blocks are needed to find two arms of ratio 1 equivalent with probability ``rules.power``.

    Args:
        spread: standard deviation of the blocks' log-ratios (for a trimmed mean: its standard error times the root of
            the number of blocks).
        band: half-width of the equivalence band, as a fraction.
        tails: levels of the tests.
        rules: rules of the run.
    """

    def enough(blocks: int) -> bool:
        freedom = blocks - 2 * math.floor(blocks * rules.trim) - 1
        return provable_band(spread / math.sqrt(blocks), freedom, tails, rules.power) <= band

    low, high = FEWEST_BLOCKS, FEWEST_BLOCKS
    while not enough(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
