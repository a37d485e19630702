"""Stopping rule of the JMH comparison: a group-sequential test with Pocock's bounds, fixed before any measurement.

A comparison is evaluated at its *looks*: after 6, 12, 24 and 48 rounds, and never in between. At each look the level of
its intervals is the same (Pocock, 1977), so strict that the probability of a wrong verdict on a target at any of the
looks is at most 5 %: 2.5 % that it is ``met`` although the true difference is at the limit or above, and 2.5 % that it
is ``not met`` although it is at the limit or below. A comparison ends at the first look with a verdict, which is then
final: later rounds, made for other comparisons of its heats, do not change it. Without a verdict at the last look it is
unknown, and more forks are not allowed to change that. A comparison that is cold ends as well, because more forks do
not help.

The forks of a round are pairs, so the estimates at the looks are correlated like means of the first n differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

from pyhooks.verify.jmh_statistics import Comparison, Fork, compare, paired_rounds

# Multiples of the 6 rounds in which all orders of four sides occur.
LOOKS = (6, 12, 24, 48)
ALPHA = 0.05
# |Z| exceeds it at any of the looks with probability ALPHA, if nothing differs; the unit test computes it with scipy.
CRITICAL = 2.409
TAIL = NormalDist().cdf(-CRITICAL)
CONFIDENCE_PERCENT = round(100 * (1 - 2 * TAIL), 2)


def rule() -> dict[str, Any]:
    """Return the rule as plain JSON."""
    return {"looks": list(LOOKS), "alpha": ALPHA, "critical": CRITICAL, "confidence_percent": CONFIDENCE_PERCENT}


def ended(comparison: Comparison, forks: Sequence[Fork], rounds: int) -> bool:
    """Return whether the rule has ended a comparison at one of its looks after at most ``rounds`` rounds."""
    results = _looks(comparison, forks, rounds)
    return bool(results) and bool(results[-1]["ended"])


def evaluate(comparison: Comparison, forks: Sequence[Fork]) -> dict[str, Any]:
    """Return the comparison at the look that ended it, otherwise at its last look so far, as plain JSON.

    ``forks`` is the number of forks that it uses of each side, ``forks_run`` the number of all, ``look`` the number of
    rounds of the look, 0 before the first, and ``ended`` whether no more forks may change it. Before the first look
    there are intervals of all forks, and no verdicts.
    """
    forks_run = len(paired_rounds(comparison, forks))
    if results := _looks(comparison, forks, LOOKS[-1]):
        return {**results[-1], "forks_run": forks_run}
    result = compare(comparison, forks, TAIL)
    targets = [{**target, "verdict": "unknown"} for target in result["targets"]]
    return {**result, "targets": targets, "verdict": "unknown", "look": 0, "ended": False, "forks_run": forks_run}


def _looks(comparison: Comparison, forks: Sequence[Fork], rounds: int) -> list[dict[str, Any]]:
    """Return the results of the looks that took place after at most ``rounds`` rounds, up to the one that ended it."""
    paired = paired_rounds(comparison, forks)
    results: list[dict[str, Any]] = []
    for look in LOOKS:
        if look > rounds or not paired.issuperset(range(1, look + 1)):
            break
        result = compare(comparison, [fork for fork in forks if fork.round_ <= look], TAIL)
        end = result["verdict"] != "unknown" or result["cold"] or look == LOOKS[-1]
        results.append({**result, "look": look, "ended": end})
        if end:
            break
    return results
