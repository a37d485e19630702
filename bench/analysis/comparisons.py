"""Comparisons of every candidate with the baseline, block by block, in all cells: ratios, verdicts and reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bench.analysis import inference
from bench.analysis.inference import BlockCounts, Decision, Effect, VerdictReason
from bench.analysis.quantiles import BinCounts, align_counts, pool_counts
from bench.plan.scenario import (
    FEWEST_BLOCKS,
    MAX_CELLS,
    BenchArm,
    BenchCell,
    LatencyPlan,
    Role,
    SignificanceLevels,
    VerdictRules,
)
from pyhooks.core import statistics
from pyhooks.core.statistics import Floats, RatioVerdict

MEDIAN = 0.5
COMPARED = (MEDIAN, 0.99)
US_PER_MS = 1000.0


def quantile_name(quantile: float) -> str:
    """Return the name of a quantile, such as ``p50`` or ``p99.9``."""
    return f"p{quantile * 100:.6g}"


@dataclass(frozen=True)
class CellMeasurements:
    """Measurements of one cell."""

    cell: BenchCell
    # quantiles of each arm in each block, in ms; see ``bench.analysis.latency_analysis``
    rounds: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Mapping[str, Any]]  # outcomes of the records of each arm
    counts: Mapping[str, Mapping[int, BinCounts]]  # for each arm and block the number of latencies in each bin

    def not_acked(self, arms: Sequence[str]) -> int:
        """Return how many measured records of these arms were not acknowledged."""
        return sum(self.summary[arm]["intended"] - self.summary[arm]["acked"] for arm in arms if arm in self.summary)

    def fewest_records(self, arms: Sequence[str]) -> int:
        """Return the smallest number of records of one of these arms in a block; 0 if there is none."""
        return min((row["n"] for row in self.rounds if row["block"] >= 0 and row["arm"] in arms), default=0)

    def quantiles_ms(self, arms: Sequence[str], quantile: float) -> Floats | None:
        """Return a quantile of each arm in each block, shape (arms, blocks); None if a block lacks one of the arms."""
        name, blocks = f"{quantile_name(quantile)}_ms", range(self.cell.scenario.latency.blocks)
        value_of = {(row["arm"], row["block"]): row[name] for row in self.rounds}
        if not all((arm, block) in value_of for arm in arms for block in blocks):
            return None
        return np.array([[value_of[arm, block] for block in blocks] for arm in arms])

    def block_counts(self, arms: Sequence[str]) -> BlockCounts:
        """Return the counts of these arms together in each block."""
        blocks = range(self.cell.scenario.latency.blocks)
        bins, counts = align_counts([pool_counts([self.counts[arm][block] for arm in arms]) for block in blocks])
        return BlockCounts(statistics.bin_value(bins) / US_PER_MS, counts)

    def late_share(self, arms: Sequence[str], quantile: float) -> float:
        """Return the largest share of the pacer's own lateness in the latency of one of these arms, at a quantile."""
        name = quantile_name(quantile)
        shares = [self.summary[arm]["late_share"] for arm in arms if arm in self.summary]
        return max((share[name] for share in shares if share), default=0.0)

    def rejected(self, arms: Sequence[str]) -> list[str]:
        """Return those of these arms that a gate rejected."""
        return [arm for arm in arms if arm in self.summary and self.summary[arm]["rejected"]]


@dataclass(frozen=True)
class _Comparison:
    """A comparison before its verdict."""

    measured: CellMeasurements
    arm: BenchArm
    quantile: float

    @property
    def role(self) -> Role:
        return self.arm.latency

    @property
    def is_member(self) -> bool:
        """Whether the comparison is part of the run's family."""
        return self.role == "candidate" and self.quantile in self.measured.cell.judged

    @property
    def plan(self) -> LatencyPlan:
        return self.measured.cell.scenario.latency

    @property
    def base(self) -> str:
        """Id of the arm that the other one is compared with."""
        return self.measured.cell.scenario.role("baseline").id

    @property
    def baseline(self) -> list[str]:
        """Ids of the arms whose mean is the baseline; for the control the other one alone."""
        control = [] if self.role == "control" else [self.measured.cell.scenario.role("control").id]
        return [self.base, *control]

    @property
    def bounds(self) -> tuple[float, float]:
        """Half-width of the equivalence band, and margin in ms."""
        return self.plan.band(self.quantile), self.plan.margin_ms(self.quantile)

    @property
    def late_share(self) -> float:
        return self.measured.late_share([self.arm.id, *self.baseline], self.quantile)

    @cached_property
    def effect(self) -> Effect | None:
        """The effect; None if there are too few blocks, or one lacks the arm or one of the baseline's."""
        values_ms = self.measured.quantiles_ms([self.arm.id, *self.baseline], self.quantile)
        if values_ms is None or self.plan.blocks < FEWEST_BLOCKS:
            return None
        if self.quantile == MEDIAN:
            return inference.block_effect(values_ms[0], values_ms[1:], self.plan)
        own, others = self.measured.block_counts([self.arm.id]), self.measured.block_counts(self.baseline)
        return inference.pooled_effect(own, others, self.quantile, self.plan, self.measured.cell.scenario.seed)

    @cached_property
    def reason(self) -> VerdictReason:
        """Why the comparison can't get a verdict; ``decided`` if it can."""
        measured, both = self.measured, [self.arm.id, self.base]
        if measured.rejected(both):
            return "rejected"
        if measured.not_acked(both):
            return "not acknowledged"
        if measured.quantiles_ms(both, self.quantile) is None:
            return "missing"
        if self.plan.blocks < self.plan.min_blocks:
            return "few blocks"
        if self.role == "candidate" and not self.is_member:
            return "not judged"
        if measured.fewest_records(both) * (1.0 - self.quantile) < self.plan.min_beyond - 1e-9:
            return "few records"
        # without an effect, a block lacks the other arm of the baseline
        return "decided" if self.effect else "control"

    @property
    def fit(self) -> Effect | None:
        """The effect, if the comparison can get a verdict."""
        return self.effect if self.reason == "decided" else None


def family_size(cells: Sequence[BenchCell]) -> int:
    """Return the number of comparisons that a run's plan judges, whatever their outcome."""
    return sum(len(cell.judged) for cell in cells for arm in cell.scenario.latency_arms if arm.latency == "candidate")


def rules_of(cells: Sequence[BenchCell]) -> VerdictRules:
    """Return the rules that all cells of a run share.

    Raises:
        ValueError: there are no cells, too many cells, or cells with different rules.
    """
    if not 0 < len(cells) <= MAX_CELLS:
        raise ValueError(f"a run has 1 to {MAX_CELLS} cells with verdicts, not {len(cells)}")
    rules = {cell.scenario.latency.rules for cell in cells}
    if len(rules) > 1:
        raise ValueError("all cells of a run must have the same rules")
    return rules.pop()


def compare(run: Sequence[CellMeasurements]) -> list[list[dict[str, Any]]]:
    """Return the comparisons of each cell, controls included, with verdicts by ``bench.analysis.inference``.

    A candidate's comparison that has no fit effect (``_Comparison.reason``) is ``undecided``, and so is one

    - whose control is not equivalent, or which the test does not decide;
    - that is ``equivalent``, but the pacer's own lateness, which all arms share, could hide a difference;
    - that is ``equivalent``, but the positive control is missing or is not ``faster``.

    Quantiles of acknowledged records alone would favour the arm that lost more, so one lost record prevents a verdict.
    """
    cells = [measured.cell for measured in run]
    rules, family = rules_of(cells), family_size(cells)
    by_cell = [
        [
            _Comparison(measured, arm, quantile)
            for quantile in COMPARED
            for arm in measured.cell.scenario.latency_arms
            if arm.latency != "baseline"
        ]
        for measured in run
    ]
    members = [pair for pairs in by_cell for pair in pairs if pair.is_member]
    decisions = inference.decide([pair.fit for pair in members], [pair.bounds for pair in members], rules)
    by_pair = {id(pair): decision for pair, decision in zip(members, decisions, strict=True)}
    table = []
    for pairs in by_cell:
        controls = {(pair.role, pair.quantile): _control_verdict(pair, rules) for pair in pairs}
        table.append([_row(pair, by_pair.get(id(pair)), controls, family) for pair in pairs])
    return table


def _control_verdict(pair: _Comparison, rules: VerdictRules) -> RatioVerdict:
    return "undecided" if pair.fit is None else inference.control_verdict(pair.fit, *pair.bounds, rules)


def _row(
    pair: _Comparison, decision: Decision | None, controls: Mapping[tuple[Role, float], RatioVerdict], family: int
) -> dict[str, Any]:
    """Return a comparison with its verdict; without a decision it is a control, or not part of the family."""
    effect, plan, both = pair.effect, pair.plan, [pair.arm.id, pair.base]
    band, margin_ms = pair.bounds
    is_candidate = pair.role == "candidate"
    reason: VerdictReason = pair.reason
    verdict: RatioVerdict = "undecided" if is_candidate else controls[pair.role, pair.quantile]
    if decision:
        verdict = decision.verdict
    if reason == "decided" and is_candidate and controls["control", pair.quantile] != "equivalent":
        verdict, reason = "undecided", "control"
    # the pacer's own lateness could hide a difference
    elif reason == "decided" and is_candidate and verdict == "equivalent" and pair.late_share > plan.max_late_share:
        verdict, reason = "undecided", "pacer"
    elif is_candidate and verdict == "equivalent" and controls.get(("positive", pair.quantile)) != "faster":
        verdict, reason = "undecided", "positive control"
    elif reason == "decided" and verdict == "undecided":
        reason = "noise"
    tails = plan.rules.tails(family) if is_candidate else plan.rules.control_tails
    tail = (1.0 - plan.confidence) / 2
    return {
        "cell": pair.measured.cell.id,
        "arm": pair.arm.id,
        "against": pair.base,
        # The ratio is to the mean of these arms.
        "baseline": pair.baseline,
        "role": pair.role,
        "is_control": pair.role == "control",
        "at": quantile_name(pair.quantile),
        "verdict": verdict,
        "reason": reason,
        "ratio": None if effect is None else asdict(effect.interval(tail)),
        "difference_ms": None if effect is None else asdict(effect.differences[0].interval(tail)),
        # Without trimming.
        "mean_ratio": None if effect is None else math.exp(effect.ratios[-1].point),
        # Of the log-ratio, for comparisons of two results.
        "error": None if effect is None else effect.log_ratio.error,
        "freedom": None if effect is None else effect.log_ratio.freedom,
        "late_share": pair.late_share,
        "band": band,
        "band_ends": list(statistics.band_ends(band)),
        "margin_ms": margin_ms,
        "blocks": plan.blocks,
        "min_blocks": plan.min_blocks,
        "not_acked": pair.measured.not_acked(both),
        "rejected": pair.measured.rejected(both),
        "p_equivalent": None if decision is None else decision.p_equivalent,
        "p_different": None if decision is None else decision.p_different,
        **_power_figures(effect, band, margin_ms, tails, plan.power, hidden=reason == "control"),
    }


def _power_figures(
    effect: Effect | None, band: float, margin_ms: float, tails: SignificanceLevels, power: float, *, hidden: bool
) -> dict[str, Any]:
    """Return what the blocks' noise allowed to detect, and how many blocks band and margin require."""
    if effect is None:
        return {"detectable_ratio": None, "provable_band": None, "block_spread": None, "blocks_needed": None}
    ratio = effect.log_ratio
    edges = [(effect.ratios, math.log1p(band)), (effect.differences, margin_ms)]
    needed = [
        inference.blocks_needed(estimate, edge, tails, power) for estimates, edge in edges for estimate in estimates
    ]
    return {
        "detectable_ratio": None if hidden else inference.detectable_ratio(ratio, tails, power),
        "provable_band": math.expm1(inference.provable_edge(ratio, tails, power)),
        # Standard deviation of a block's log-ratio.
        "block_spread": ratio.error * math.sqrt(ratio.blocks),
        "blocks_needed": max(needed),
    }
