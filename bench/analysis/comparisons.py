"""Comparisons of every candidate with the baseline, block by block, in all cells: ratios, verdicts and reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.analysis import inference
from bench.analysis.inference import Decision, Effect, VerdictReason
from bench.plan.scenario import MOST_CELLS, BenchArm, BenchCell
from bench.plan.verdict_rules import FEWEST_BLOCKS, SignificanceLevels, VerdictRules
from pyhooks.core import statistics

COMPARED = (0.5, 0.99)


def quantile_name(quantile: float) -> str:
    """Return the name of a quantile, such as ``p50`` or ``p99.9``."""
    return f"p{quantile * 100:.6g}"


@dataclass(frozen=True)
class CellMeasurements:
    """Measurements of one cell.

    Attributes:
        cell: the cell.
        rounds: quantiles of each arm in each block, in ms; see ``bench.analysis.latency_analysis``.
        summary: outcomes of the records of each arm.
    """

    cell: BenchCell
    rounds: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Mapping[str, Any]]

    def not_acked(self, arms: Sequence[str]) -> int:
        """Return how many measured records of these arms were not acknowledged."""
        return sum(self.summary[arm]["intended"] - self.summary[arm]["acked"] for arm in arms if arm in self.summary)

    def fewest_records(self, arms: Sequence[str]) -> int:
        """Return the smallest number of records of one of these arms in a block; 0 if there is none."""
        return min((row["n"] for row in self.rounds if row["block"] >= 0 and row["arm"] in arms), default=0)

    def late_share(self, arms: Sequence[str], quantile: float) -> float:
        """Return the largest share of the pacer's own lateness in the latency of one of these arms, at a quantile."""
        name, shares = quantile_name(quantile), [0.0]
        for arm in arms:
            latencies = [row[f"{name}_ms"] for row in self.rounds if row["block"] >= 0 and row["arm"] == arm]
            late = self.summary[arm]["pacer_late_ms"] if arm in self.summary else None
            if latencies and late is not None:
                shares.append(late[name] / float(np.median(latencies)))
        return max(shares)

    def refused(self, arms: Sequence[str]) -> list[str]:
        """Return those of these arms that a gate refused."""
        return [arm for arm in arms if arm in self.summary and self.summary[arm]["refused"]]


@dataclass(frozen=True)
class _Comparison:
    """A comparison before its verdict."""

    measured: CellMeasurements
    arm: BenchArm
    quantile: float
    effect: Effect | None
    reason: VerdictReason

    @property
    def is_control(self) -> bool:
        return self.arm.latency == "control"

    @property
    def is_judged(self) -> bool:
        return self.quantile in self.measured.cell.judged

    @property
    def band(self) -> float:
        return self.measured.cell.scenario.latency.band(self.quantile)

    @property
    def late_share(self) -> float:
        return self.measured.late_share([self.arm.id, self.measured.cell.scenario.role("baseline").id], self.quantile)

    @property
    def is_late(self) -> bool:
        """Whether the pacer's own lateness could hide a difference."""
        return self.late_share > self.measured.cell.scenario.latency.most_late_share

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
    if not 0 < len(cells) <= MOST_CELLS:
        raise ValueError(f"a run has 1 to {MOST_CELLS} cells with verdicts, not {len(cells)}")
    rules = {cell.scenario.latency.rules for cell in cells}
    if len(rules) > 1:
        raise ValueError("all cells of a run must have the same rules")
    return rules.pop()


def compare(run: Sequence[CellMeasurements]) -> list[list[dict[str, Any]]]:
    """Return the comparisons of each cell, controls included, with verdicts by ``bench.analysis.inference``.

    A candidate's comparison is ``undecided`` in each of these cases:

    - The plan does not judge the quantile. The comparison is then not part of the family.
    - One of its arms refuses records, and so has no latency.
    - A block lacks one of the arms.
    - A measured record of either arm was not acknowledged. Quantiles of the acknowledged records alone would favour the
      arm that lost more.
    - A block has too few records for the quantile to lie below its maximum.
    - There are fewer blocks than the rules require.
    - The control is not equivalent.
    - The test does not decide.
    - The test finds ``equivalent``, but the pacer's own lateness, which all arms share, is so large a part of the
      latency that it could hide a difference.
    """
    cells = [measured.cell for measured in run]
    rules, family = rules_of(cells), family_size(cells)
    by_cell = [
        [
            _comparison(measured, arm, quantile)
            for quantile in COMPARED
            for arm in measured.cell.scenario.latency_arms
            if arm.latency != "baseline"
        ]
        for measured in run
    ]
    members = [pair for pairs in by_cell for pair in pairs if not pair.is_control and pair.is_judged]
    decisions = inference.decide([pair.fit for pair in members], [pair.band for pair in members], rules)
    by_pair = {id(pair): decision for pair, decision in zip(members, decisions, strict=True)}
    table = []
    for pairs in by_cell:
        controls = {pair.quantile: _control_verdict(pair, rules) for pair in pairs if pair.is_control}
        table.append([_row(pair, by_pair.get(id(pair)), controls[pair.quantile], family) for pair in pairs])
    return table


def _comparison(measured: CellMeasurements, arm: BenchArm, quantile: float) -> _Comparison:
    scenario = measured.cell.scenario
    plan, base = scenario.latency, scenario.role("baseline").id
    name = f"{quantile_name(quantile)}_ms"
    latency = {(row["block"], row["arm"]): row[name] for row in measured.rounds if row["block"] >= 0}
    blocks = range(plan.blocks)
    logs: tuple[float, ...] | None = None
    effect: Effect | None = None
    if all((block, either) in latency for block in blocks for either in (arm.id, base)):
        logs = tuple(math.log(latency[block, arm.id] / latency[block, base]) for block in blocks)
        if len(logs) >= FEWEST_BLOCKS:
            effect = inference.estimate_effect(logs, plan.rules, scenario.seed)
    reason: VerdictReason = "decided"
    if measured.refused([arm.id, base]):
        reason = "refused"
    elif measured.not_acked([arm.id, base]):
        reason = "not acknowledged"
    elif logs is None:
        reason = "missing"
    elif len(logs) < plan.min_blocks:
        reason = "few blocks"
    elif quantile not in measured.cell.judged and arm.latency != "control":
        reason = "not judged"
    elif measured.fewest_records([arm.id, base]) * (1.0 - quantile) < 1.0 - 1e-9:
        reason = "few records"
    return _Comparison(measured, arm, quantile, effect, reason)


def _control_verdict(pair: _Comparison, rules: VerdictRules) -> statistics.RatioVerdict:
    return "undecided" if pair.fit is None else inference.control_verdict(pair.fit, pair.band, rules)


def _row(pair: _Comparison, decision: Decision | None, control: statistics.RatioVerdict, family: int) -> dict[str, Any]:
    """Return a comparison with its verdict; without a decision it is a control, or not part of the family."""
    scenario, effect = pair.measured.cell.scenario, pair.effect
    plan, base = scenario.latency, scenario.role("baseline")
    both = [pair.arm.id, base.id]
    reason: VerdictReason = pair.reason
    verdict: statistics.RatioVerdict = control if pair.is_control else decision.word if decision else "undecided"
    if reason == "decided" and not pair.is_control and control != "equivalent":
        verdict, reason = "undecided", "control"
    elif reason == "decided" and verdict == "equivalent" and pair.is_late and not pair.is_control:
        verdict, reason = "undecided", "pacer"
    elif reason == "decided" and verdict == "undecided":
        reason = "mean" if effect is not None and not effect.mean_inside(pair.band) else "noise"
    tails = plan.rules.control_tails if pair.is_control else plan.rules.tails(family)
    return {
        "cell": pair.measured.cell.id,
        "arm": pair.arm.id,
        "against": base.id,
        "is_control": pair.is_control,
        "at": quantile_name(pair.quantile),
        "word": verdict,
        "reason": reason,
        "ratio": None if effect is None else asdict(effect.interval((1.0 - plan.confidence) / 2)),
        "mean_ratio": None if effect is None else math.exp(effect.mean),
        # Of the log-ratio, for comparisons of two results.
        "error": None if effect is None else effect.error,
        "freedom": None if effect is None else effect.freedom,
        "late_share": pair.late_share,
        "band": pair.band,
        "band_ends": list(statistics.band_ends(pair.band)),
        "blocks": plan.blocks,
        "min_blocks": plan.min_blocks,
        "not_acked": pair.measured.not_acked(both),
        "refused": pair.measured.refused(both),
        "p_equivalent": None if decision is None else decision.p_equivalent,
        "p_different": None if decision is None else decision.p_different,
        **_power_figures(effect, pair.band, tails, plan.rules, hidden=reason == "control"),
    }


def _power_figures(
    effect: Effect | None, band: float, tails: SignificanceLevels, rules: VerdictRules, *, hidden: bool
) -> dict[str, Any]:
    """Return what the blocks' noise allowed to detect, and how many blocks the equivalence band requires."""
    if effect is None:
        return {"detectable_ratio": None, "provable_band": None, "block_spread": None, "blocks_needed": None}
    error, freedom, power = effect.error, effect.freedom, rules.power
    spread = error * math.sqrt(effect.blocks)
    return {
        "detectable_ratio": None if hidden else inference.detectable_ratio(error, freedom, tails, power),
        "provable_band": inference.provable_band(error, freedom, tails, power),
        # Standard deviation of a block's log-ratio.
        "block_spread": spread,
        "blocks_needed": inference.blocks_needed(spread, band, tails, rules),
    }
