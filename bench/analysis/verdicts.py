"""Verdicts of a run as sentences, made from the numbers that the report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis.availability import REJECTED
from bench.analysis.record_check import KIND_LABELS, KINDS

# Results with an earlier schema were judged by other rules, and keep their sentences about latency.
FIRST_SCHEMA = 5


def sentences(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return all verdicts of a result, the most important first.

    Returns:
        ``about`` (question, latency, outage, end-to-end), ``verdict`` (from a closed list), ``subject`` and ``text`` of
        each.
    """
    several = len(result["cells"]) > 1
    if result["schema"] >= FIRST_SCHEMA:
        latency = [verdict for cell in result["cells"] for verdict in latency_verdicts(cell, named=several)]
    else:
        latency = [verdict for verdict in result["verdicts"] if verdict["about"] == "latency"]
    return [
        *(question_verdict(cell) for cell in result["cells"] if cell.get("answer")),
        *(outage_verdicts(result["outage"]) if result["outage"] else []),
        *latency,
        *record_verdicts(result["end_to_end"]),
    ]


def sentence(about: str, verdict: str, subject: str, text: str) -> dict[str, str]:
    """Return a verdict in the form in which results store it."""
    return {"about": about, "verdict": verdict, "subject": subject, "text": text}


def latency_verdicts(numbers: Mapping[str, Any], *, named: bool = False) -> list[dict[str, str]]:
    """Return one sentence for each candidate and judged percentile of a cell; ``named``: with the cell's name."""
    arms = {arm["arm"]: arm for arm in numbers["arms"]}
    rows = numbers["comparisons"]
    controls = {row["at"]: row for row in rows if row["is_control"]}
    positives = {row["at"]: row for row in rows if row["role"] == "positive"}
    cell = f"{numbers['cell']}: " if named else ""
    return [
        sentence(
            "latency",
            row["verdict"],
            f"{cell}{_label(arms, row['arm'])} against {_label(arms, row['against'])}, {row['at']}",
            _latency_text(row, controls[row["at"]], positives.get(row["at"]), arms, numbers["confidence"]),
        )
        for row in rows
        if not row["is_control"] and row["at"] in numbers["judged"]
    ]


def probability_text(probability: float) -> str:
    """Format a probability in percent: ``97 %``, ``> 99.9 %``."""
    return "> 99.9 %" if probability > 0.999 else f"{100 * probability:.0f} %"


def question_verdict(numbers: Mapping[str, Any]) -> dict[str, str]:
    """Return the answer to a cell's question, with the predicted and the measured ratio."""
    answer = numbers["answer"]
    arms = {arm["arm"]: arm for arm in numbers["arms"]}
    pair = f"{_label(arms, answer['arm'])} over {_label(arms, answer['against'])}"
    predictions = [
        f"{hypothesis['label']}: {ratio_text(hypothesis['ratio'][0])} to {ratio_text(hypothesis['ratio'][1])}"
        for hypothesis in answer["hypotheses"]
    ]
    text = f"Predicted ratio of the medians, {pair}: {'; '.join(predictions)}. "
    text += f"Measured: {interval_text(answer['ratio'])}." if answer["ratio"] else "Nothing was measured."
    # results of earlier versions have no power
    if answer.get("power") is not None:
        text += (
            f" Blocks of this noise reject the false prediction with probability {probability_text(answer['power'])}."
        )
    if answer["answer"] is None:
        return sentence("question", "undecided", answer["question"], f"Undecided: {answer['missing']}. {text}")
    label = next(hypothesis["label"] for hypothesis in answer["hypotheses"] if hypothesis["id"] == answer["answer"])
    return sentence("question", "answered", answer["question"], f"A leader {label}. {text}")


def _label(arms: Mapping[str, Mapping[str, Any]], arm: str) -> str:
    return str(arms[arm]["label"]) if arm in arms else arm


def _latency_text(
    row: Mapping[str, Any],
    control: Mapping[str, Any],
    positive: Mapping[str, Any] | None,
    arms: Mapping[str, Mapping[str, Any]],
    confidence: float,
) -> str:
    if row["reason"] == "rejected":
        rejections = [f"{_label(arms, arm)} ({arms[arm]['rejected_with']})" for arm in row["rejected"]]
        return f"No latency to compare: records of {' and '.join(rejections)} are rejected."
    if row["reason"] == "not acknowledged":
        return f"{row['not_acked']:,} measured records were not acknowledged, so the percentiles are not comparable."
    if row["reason"] == "missing":
        return "A block lacks one of its arms."
    bounds = f"±{row['band']:.0%} and ±{row['margin_ms']:g} ms"
    if row["ratio"] is None:
        if row["reason"] == "control":
            return "Undecided: the control has no ratio."
        return f"{row['blocks']} blocks; at least {row['min_blocks']} are required."
    text = (
        f"Ratio {interval_text(row['ratio'])}, difference {difference_text(row['difference_ms'])} ({confidence:.0%}"
        f" intervals over {row['blocks']} blocks), equivalent within {bounds}. "
    )
    if row["reason"] != "control":
        text += f"Smallest detectable ratio: {ratio_text(row['detectable_ratio'])}. "
    if row["reason"] == "few records":
        return f"{text}Undecided: a block has too few records beyond this percentile."
    if row["reason"] == "few blocks":
        return f"{text}Undecided: {row['min_blocks']} blocks are required."
    if control["ratio"] is None:
        return f"{text}Undecided: the control has no ratio."
    equal_arms = f"ratio of two equal arms {interval_text(control['ratio'])}"
    if row["reason"] == "control":
        return f"{text}Undecided: the control failed: {equal_arms}, {_control_failure(control, bounds)}."
    if row["reason"] == "pacer":
        return (
            f"{text}Undecided: {row['late_share']:.0%} of the latency is the pacer's own lateness, which all"
            " arms share and which could hide a difference."
        )
    if row["reason"] == "positive control":
        return f"{text}Undecided: {_positive_failure(positive, arms)}."
    if row["reason"] == "noise":
        needed = f"equal arms would need about {row['blocks_needed']:,} blocks"
        return f"{text}Undecided because of noise: {needed}; control: {equal_arms}."
    return f"{text}Control: {equal_arms}."


def _positive_failure(positive: Mapping[str, Any] | None, arms: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why a cell does not show that it would show a difference."""
    if positive is None or positive["ratio"] is None:
        return "there is no positive control, so the cell might not show a difference"
    outcome = "not shown to be faster" if positive["verdict"] == "undecided" else positive["verdict"]
    return (
        f"the positive control, {_label(arms, positive['arm'])}, is {outcome}, ratio"
        f" {interval_text(positive['ratio'])}, so the cell might not show a difference"
    )


def _control_failure(control: Mapping[str, Any], bounds: str) -> str:
    """Return why a control failed."""
    if control["reason"] == "noise":
        needed = control["blocks_needed"]
        return f"not shown to lie within {bounds}; with this noise equal arms would need about {needed:,} blocks"
    if control["reason"] == "decided":
        return f"{control['verdict']} than itself"
    return f"{control['reason']}"


def interval_text(interval: Mapping[str, float]) -> str:
    """Format an interval, such as ``1.010 (0.980 to 1.043)``."""
    return f"{ratio_text(interval['point'])} ({ratio_text(interval['low'])} to {ratio_text(interval['high'])})"


def difference_text(interval: Mapping[str, float]) -> str:
    """Format a difference in ms, such as ``0.02 ms (-0.11 to 0.15)``."""
    low, point, high = (f"{interval[end]:.2f}" for end in ("low", "point", "high"))
    return f"{point} ms ({low} to {high})"


def ratio_text(value: float) -> str:
    """Format a ratio: three digits, but three decimals near 1, so that a detectable difference does not read 1."""
    return f"{value:.3f}" if 0.5 < value < 2 else f"{value:.3g}"


def outage_verdicts(numbers: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one sentence for each topic."""
    return [
        sentence(
            "outage",
            topic["behaviour"],
            f"{topic['label']} ({topic['topic']}), rack {numbers['rack']} unavailable",
            _outage_text(topic, numbers),
        )
        for topic in numbers["topics"]
    ]


def _outage_text(topic: Mapping[str, Any], numbers: Mapping[str, Any]) -> str:
    if not numbers["proved"]:
        return "The fault was not proved to have taken effect, so there is no verdict."
    if topic["window_s"] is None:
        return f"Rack {numbers['rack']} was not observed to leave the ISR in time."
    probe = topic["probe"]
    length_s = topic["window_s"][1] - topic["window_s"][0]
    counts = f"{topic['settled_acked']:,} of {topic['settled_intended']:,} records"
    text = f"{counts} acknowledged in {length_s:.0f} s of settled outage"
    racks = topic["fewest_racks"]
    if racks is not None:
        text += f", with {racks} rack{'s' if racks != 1 else ''} in the ISR"
    text += f"; the probe without retries got {probe['settled_acked']} acks and {probe['settled_rejected']} rejections"
    if probe["exceptions"] and topic["behaviour"] == REJECTED:
        name = max(probe["exceptions"], key=probe["exceptions"].__getitem__)
        text += f" ({name}"
        text += f", the first {probe['first_rejection_after_s']:.1f} s after the fault)" if probe["rejected"] else ")"
        if topic["first_ack_after_heal_s"] is not None:
            text += f"; first ack {topic['first_ack_after_heal_s']:.1f} s after the heal began"
        else:
            text += "; no ack after the heal began"
        if leaked := topic["acked_without_rack"]:
            records, were = ("record", "was") if leaked == 1 else ("records", "were")
            text += f"; {leaked:,} {records} that waited when the rack left the ISR {were} acknowledged while it was"
            text += " unavailable"
    return text + "."


def record_verdicts(numbers: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one sentence for the comparison of acknowledged records with the topics."""
    kinds = numbers["kinds"]
    wrong = [f"{kinds[kind]['count']:,} {KIND_LABELS[kind]}" for kind in KINDS if kinds[kind]["count"]]
    subject = f"{numbers['acked']:,} acknowledged records read back"
    if wrong:
        return [sentence("end-to-end", "broken", subject, f"{', '.join(wrong)}.")]
    if numbers["acked"] == 0:
        return [sentence("end-to-end", "unknown", subject, "Nothing was acknowledged, so nothing was checked.")]
    kinds_text = ", ".join(KIND_LABELS[kind] for kind in KINDS)
    unread = numbers.get("unread", 0)
    rest = f" {unread:,} more could not be read back, since the run was interrupted." if unread else ""
    return [sentence("end-to-end", "whole", subject, f"None {kinds_text}.{rest}")]


def lines(verdicts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the verdicts as lines for a terminal."""
    return [f"{verdict['subject']}: {verdict['verdict'].upper()}. {verdict['text']}" for verdict in verdicts]
