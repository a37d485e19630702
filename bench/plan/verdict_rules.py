"""Rules of the verdicts on latency, as a plan states them; ``bench.analysis.inference`` applies them."""

from __future__ import annotations

from dataclasses import dataclass

# A mean of fewer blocks has no useful interval.
FEWEST_BLOCKS = 4


@dataclass(frozen=True)
class VerdictRules:
    """Rules of all verdicts of a run, as in its plan."""

    alpha: float  # bound on the probability that any verdict of the run is wrong
    power: float  # probability with which the smallest detectable ratio is detected
    # share of the blocks that is left out at each end at the median, so that a burst of other work does not decide
    trim: float
    min_blocks: int  # number of blocks that a verdict needs
    confidence: float  # confidence level of each single interval that is shown
    resamples: int  # number of resamples of whole blocks, for higher quantiles and percentile curves

    def tails(self, family: int) -> SignificanceLevels:
        """Return the strictest levels that Holm's procedure requires in a family of this size."""
        return SignificanceLevels(self.alpha / 2 / family, self.alpha / 2 / (2 * family))

    @property
    def control_tails(self) -> SignificanceLevels:
        """Levels of a control, which is not part of the family."""
        return SignificanceLevels(self.alpha / 2, self.alpha / 2)


@dataclass(frozen=True)
class SignificanceLevels:
    """Levels of one-sided tests."""

    equivalent: float  # level of each of the two tests for ``equivalent``
    different: float  # level of the tests of "not slower" and of "not faster"
