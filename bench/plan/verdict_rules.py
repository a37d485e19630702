"""Rules of the verdicts on latency, as a plan states them; ``bench.analysis.inference`` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

# A mean of fewer blocks has no useful interval.
FEWEST_BLOCKS = 4


@dataclass(frozen=True)
class VerdictRules:
    """Rules of all verdicts of a run, as in its plan."""

    alpha: Annotated[float, Field(ge=0.001, le=0.5)]  # bound on the probability that any verdict of the run is wrong
    power: Annotated[float, Field(ge=0.5, le=0.999)]  # probability with which the smallest detectable ratio is detected
    # share of the blocks that is left out at each end at the median, so that a burst of other work does not decide
    trim: Annotated[float, Field(ge=0, le=0.25)]
    min_blocks: Annotated[int, Field(ge=FEWEST_BLOCKS)]  # number of blocks that a verdict needs
    confidence: Annotated[float, Field(ge=0.5, le=0.999)]  # confidence level of each single interval that is shown
    resamples: Annotated[int, Field(ge=100)]  # number of resamples of whole blocks, for p99 and percentile curves

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
