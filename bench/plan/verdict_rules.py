"""Rules of the verdicts on latency, as a plan states them; ``bench.analysis.inference`` applies them."""

from __future__ import annotations

from dataclasses import dataclass

# A mean of fewer blocks has no useful interval.
FEWEST_BLOCKS = 4


@dataclass(frozen=True)
class VerdictRules:
    """Rules of all verdicts of a run, as in its plan.

    Attributes:
        alpha: bound on the probability that any verdict of the run is wrong.
        power: probability with which the smallest detectable ratio is detected.
        trim: share of the blocks that is left out at each end at the median, so that a burst of other work does not
            decide.
        min_blocks: number of blocks that a verdict needs.
        confidence: confidence level of each single interval that is shown.
        resamples: number of resamples of whole blocks, for higher quantiles and percentile curves.
    """

    alpha: float
    power: float
    trim: float
    min_blocks: int
    confidence: float
    resamples: int

    def tails(self, family: int) -> SignificanceLevels:
        """Return the strictest levels that Holm's procedure requires in a family of this size."""
        return SignificanceLevels(self.alpha / 2 / family, self.alpha / 2 / (2 * family))

    @property
    def control_tails(self) -> SignificanceLevels:
        """Levels of a control, which is not part of the family."""
        return SignificanceLevels(self.alpha / 2, self.alpha / 2)


@dataclass(frozen=True)
class SignificanceLevels:
    """Levels of one-sided tests.

    Attributes:
        equivalent: level of each of the two tests for ``equivalent``.
        different: level of the tests of "not slower" and of "not faster".
    """

    equivalent: float
    different: float
