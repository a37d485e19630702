"""Stopping rule of the JMH comparison: its level, its error rate in simulations, and which heats it runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pyhooks.core.statistics import Floats
from pyhooks.verify import jmh, jmh_plan, jmh_statistics, jmh_stopping
from pyhooks.verify.cpu_contention import ContentionRule, HeatRunner, Heats, YardstickTime
from pyhooks.verify.jmh_statistics import LIMITS, Comparison, Fork, difference
from pyhooks.verify.jmh_stopping import ALPHA, CRITICAL, LOOKS, TAIL, ended, evaluate

COMPARISON = Comparison("x", "s", "o")


def pairs(differences: Sequence[float], stock_ns: float = 1000.0) -> list[Fork]:
    """Return forks of both sides in rounds 1, 2, … whose times differ so much."""
    return [
        Fork(cell, number, ns, ns, ns, 0.0, 1.0, (ns,) * 30)
        for number, difference_ns in enumerate(differences, 1)
        for cell, ns in (("s", stock_ns), ("o", stock_ns + difference_ns))
    ]


def test_the_level_of_all_looks_together_is_alpha() -> None:
    looks = np.asarray(LOOKS, dtype=float)
    correlation = np.sqrt(np.minimum.outer(looks, looks) / np.maximum.outer(looks, looks))
    edge = np.full(len(LOOKS), CRITICAL)
    inside = stats.multivariate_normal.cdf(edge, cov=correlation, lower_limit=-edge, maxpts=200_000)
    assert 1 - inside == pytest.approx(ALPHA, abs=2e-4)
    assert pytest.approx(stats.norm.sf(CRITICAL)) == TAIL


@pytest.mark.parametrize("draw", ["normal", "laplace"])
def test_wrong_verdicts_over_all_looks_are_as_rare_as_stated(draw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The true difference is at the limit, so each verdict is wrong: 5 % of 500 runs, more than 40 with p < 0.002."""
    monkeypatch.setattr(jmh_statistics, "RESAMPLES", 600)
    generator = np.random.default_rng(1)
    runs, limit, outcomes = 500, LIMITS["ns"], Counter[str]()
    for _ in range(runs):
        noise: Floats = getattr(generator, draw)(size=LOOKS[-1])
        stock = [0.0] * LOOKS[-1]
        for look in LOOKS:
            interval = difference(stock[:look], (limit + noise[:look]).tolist(), tail=TAIL)
            verdict = jmh_statistics.judge("ns", interval, look).verdict
            if verdict != "unknown":
                outcomes[verdict] += 1
                break
    assert stats.binom.sf(40, runs, ALPHA) < 0.002
    assert outcomes.total() <= 40, outcomes
    # Looks at the level of a single one would be wrong more than twice as often.
    assert max(outcomes.values()) <= 24, outcomes


def noise(count: int, spread: float) -> list[float]:
    generator = random.Random(7)  # noqa: S311 - no secret
    return [generator.gauss(0, spread) for _ in range(count)]


@pytest.mark.parametrize(("difference_ns", "verdict"), [(1.0, "met"), (60.0, "not met")])
def test_a_clear_difference_ends_at_the_first_look(difference_ns: float, verdict: str) -> None:
    forks = pairs([difference_ns + one for one in noise(12, 0.5)])
    result = evaluate(COMPARISON, forks)
    assert (result["look"], result["verdict"], result["ended"]) == (6, verdict, True)
    assert (result["forks"], result["forks_run"]) == (6, 12)
    assert ended(COMPARISON, forks, 6)
    assert not ended(COMPARISON, forks, 5)
    # Later rounds do not change the verdict.
    later = [*forks, *(replace(fork, round_=fork.round_ + 12, cpu_ns=fork.cpu_ns * 2) for fork in forks)]
    assert evaluate(COMPARISON, later) == {**result, "forks_run": 24}


def test_an_undecided_comparison_goes_on_until_the_last_look() -> None:
    forks = pairs([LIMITS["ns"] + (-1) ** number * 3.0 for number in range(60)])
    for look, following in zip((0, *LOOKS), LOOKS, strict=False):
        known = [fork for fork in forks if fork.round_ < following]
        result = evaluate(COMPARISON, known)
        assert (result["look"], result["verdict"], result["ended"]) == (look, "unknown", False)
    result = evaluate(COMPARISON, forks)
    assert (result["look"], result["verdict"], result["ended"]) == (48, "unknown", True)
    assert result["forks"] == 48


def test_a_look_needs_all_of_its_rounds() -> None:
    forks = [fork for fork in pairs(noise(13, 0.5)) if fork.round_ != 4]
    result = evaluate(COMPARISON, forks)
    assert (result["look"], result["verdict"], result["forks"]) == (0, "unknown", 12)
    assert {target["verdict"] for target in result["targets"]} == {"unknown"}


def test_a_cold_comparison_ends_without_a_verdict() -> None:
    cold = (460.0,) * 15 + (80.0,) * 15
    forks = [replace(fork, iterations_ns=cold) for fork in pairs(noise(6, 0.5))]
    result = evaluate(COMPARISON, forks)
    assert (result["verdict"], result["cold"], result["ended"]) == ("unknown", True, True)


def test_the_median_slice_is_reported_beside_the_fastest() -> None:
    forks = [
        replace(fork, median_ns=fork.median_ns * (1.1 if fork.cell == "o" else 1.0)) for fork in pairs(noise(6, 0.5))
    ]
    result = evaluate(COMPARISON, forks)
    assert result["ratio"]["low"] < 1 < result["ratio"]["high"]
    median = result["median_slice"]
    assert median["ratio"]["low"] < 1.1 < median["ratio"]["high"]
    assert median["ratio"]["estimate"] == pytest.approx(1 + median["percent"]["estimate"] / 100)
    assert median["ns"]["estimate"] == pytest.approx(100, rel=0.05)
    # Only the fastest slice is judged.
    assert result["verdict"] == "met"


def run_rounds(added_ns: Callable[[str, int], float], forks: int, heats: Heats, only: str) -> Counter[int]:
    """Run rounds in which an overlay cell takes ``added_ns(cell, round)`` more; return the number of forks by round."""
    ran = Counter[int]()

    def fork(cell: str, number: int) -> Fork:
        ns = 1000 + (added_ns(cell, number) if cell.startswith(jmh_plan.OVERLAY) else 0.0)
        return Fork(cell, number, ns, ns, ns, 0.0, 1.0, (ns,) * 30)

    def forks_of(names: Sequence[str], number: int) -> Sequence[Fork]:
        ran[number] += len(names)
        return [fork(name, number) for name in names]

    runner = HeatRunner(heats, measure=lambda: YardstickTime(0.15, 0.15, 0.3), forks=forks_of, keep=lambda _: None)
    effort: Any = replace(jmh_plan.FULL, forks=forks)
    list(jmh._rounds(runner, heats, jmh_plan.plan(only)[0], effort))
    return ran


def test_only_heats_of_undecided_comparisons_go_on() -> None:
    def added_ns(cell: str, number: int) -> float:
        # Undecided at an ISR of 7 until the second look.
        undecided = "isr=7" in cell and number <= 6
        return LIMITS["ns"] + (4.0 if number % 2 else -4.0) if undecided else 0.1

    heats = Heats(ContentionRule())
    ran = run_rounds(added_ns, 48, heats, "high watermark, ISR of")
    cells = len(jmh_plan.plan("high watermark, ISR of")[0])
    heat = len(jmh_plan.plan("high watermark, ISR of 7")[0])
    assert [ran[number] for number in range(1, 7)] == [cells] * 6
    stopped = max(ran)
    assert stopped in LOOKS[1:]
    assert [ran[number] for number in range(7, stopped + 1)] == [heat] * (stopped - 6)


def test_a_short_run_can_be_continued_to_the_next_look() -> None:
    heats = Heats(ContentionRule())

    def added_ns(_: str, number: int) -> float:
        return LIMITS["ns"] + (4.0 if number % 2 else -4.0)

    assert sorted(run_rounds(added_ns, 6, heats, "high watermark, ISR of 7")) == [1, 2, 3, 4, 5, 6]
    assert sorted(run_rounds(added_ns, 12, heats, "high watermark, ISR of 7")) == [7, 8, 9, 10, 11, 12]
    assert not jmh_stopping.ended(jmh_plan.plan("high watermark, ISR of 7")[1][0], jmh._forks(heats), 12)
