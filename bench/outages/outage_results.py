"""Result of a run of outages: figures of each arm and state over all outages, from the findings of the labs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench import machine
from bench.analysis import exit_reasons, record_check, verdicts
from bench.analysis.availability import REFUSED, UNKNOWN
from bench.plan.outage_plan import FAULT_LABELS, LabPlan, OutageRunPlan
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_json
from pyhooks.core.process import run
from pyhooks.core.statistics import student_t_quantile
from pyhooks.patchset.distribution import Distribution

SCHEMA_VERSION = 1
# An interval over fewer outages would be too wide to be useful.
FEWEST = 2


def mean_over_outages(
    values: Sequence[float], *, confidence: float, most: float = float("inf")
) -> dict[str, Any] | None:
    """Return the mean over outages, each counted as one value, with Student's t interval; None without values.

    Records within an outage depend on one another, so their number is no evidence about another outage. If all values
    are equal, their variation does not show what the next outage might give. There is no interval then, instead of one
    of width 0.

    Args:
        values: one for each outage, 0 or more.
        confidence: confidence level, such as 0.95.
        most: greatest possible value.

    Returns:
        ``mean``, ``low`` and ``high`` (None for a single outage, and for equal values), ``outages``, ``values``.
    """
    if not values:
        return None
    mean, low, high = float(np.mean(values)), None, None
    if len(values) >= FEWEST and _varied(values):
        error = float(np.std(values, ddof=1)) / len(values) ** 0.5
        half = student_t_quantile((1 + confidence) / 2, len(values) - 1) * error
        low, high = max(0.0, mean - half), min(most, mean + half)
    return {"mean": mean, "low": low, "high": high, "outages": len(values), "values": list(values)}


def _varied(values: Sequence[float]) -> bool:
    return max(values) > min(values)


def state_figures(plan: OutageRunPlan, lab: LabPlan, outages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures over all outages for each placement, fault and arm of a lab."""
    return [
        {
            "topology": lab.topology,
            "rack": lab.rack,
            "placement": placement,
            "replicas": list(replicas),
            "fault": fault,
            "text": f"{placement}, rack {lab.rack} {FAULT_LABELS[fault]}",
            "arms": [
                {
                    "arm": arm.id,
                    "label": arm.label,
                    "min_insync_replicas": arm.min_insync_replicas,
                    "min_insync_racks": arm.min_insync_racks,
                }
                | over_outages(
                    [
                        (one["numbers"], topic)
                        for one in outages
                        if one["fault"] == fault
                        for topic in one["numbers"]["topics"]
                        if topic["topic"] == arm.on(placement, replicas).topic
                    ],
                    plan.confidence,
                )
                for arm in plan.arms
            ],
        }
        for placement, replicas in lab.placements.items()
        for fault in lab.outages
    ]


def over_outages(seen: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], confidence: float) -> dict[str, Any]:
    """Return the figures of one arm in one state; outages whose fault was not proved are counted, but not evaluated.

    Args:
        seen: for each outage its numbers, and the numbers of the arm's topic.
        confidence: confidence level of the intervals.
    """
    good = [(whole, topic) for whole, topic in seen if whole["proved"]]
    refused = [pair for pair in good if pair[1]["behaviour"] == REFUSED]
    probes = [topic["probe"]["first_refusal_after_s"] for _, topic in good]
    meters = [topic["meter"] for _, topic in good]

    def times(values: Sequence[float | None]) -> dict[str, Any] | None:
        return mean_over_outages([value for value in values if value is not None], confidence=confidence)

    def shares(name: str) -> dict[str, Any] | None:
        found = [topic[name] for _, topic in good if topic.get(name) is not None]
        return mean_over_outages(found, confidence=confidence, most=1.0)

    return {
        "outages": len(seen),
        "proved": len(good),
        "did": dict(Counter(topic["behaviour"] for _, topic in seen)),
        "fewest_racks": min((t["fewest_racks"] for _, t in good if t["fewest_racks"] is not None), default=None),
        "fault_intended": sum(topic.get("fault_intended", 0) for _, topic in good),
        "fault_acked": sum(topic.get("fault_acked", 0) for _, topic in good),
        "fault_share": shares("fault_share"),
        "settled_share": shares("settled_share"),
        "acked_share": shares("acked_share"),
        "first_refusal_probe_s": times(probes),
        "first_refusal_meter_s": times([meter["after_s"] for meter in meters]),
        # without a response of any broker nothing is known of an outage
        "meter_unknown": sum(meter["answers"] == 0 for meter in meters),
        "meter_counted": sum(meter["counted"] for meter in meters),
        "first_ack_after_heal_s": times([topic.get("first_ack_after_heal_s") for _, topic in refused]),
        # counted apart, because the mean covers only outages with an acknowledgement
        "no_ack_after_heal": sum(topic.get("first_ack_after_heal_s") is None for _, topic in refused),
        "isr_shrank_after_s": times([topic["left_after_s"] for _, topic in good]),
        "longest_silence_s": times([topic["longest_silence_s"] for _, topic in good]),
        "exceptions": dict(sum((Counter(topic["probe"]["exceptions"]) for _, topic in good), Counter())),
    }


def common_behaviour(arm: Mapping[str, Any]) -> str:
    """Return what an arm did in all outages of a state, or ``unknown`` if it did not always do the same."""
    did = list(arm["did"])
    return did[0] if len(did) == 1 else UNKNOWN


def sentences(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the verdicts as sentences: of each state, of the destroyed rack, of the records read back."""
    return [
        *(row for state in result["states"] for row in _of_state(state)),
        *(_of_destroyed(row, one) for one in result["destructions"] for row in one["topics"]),
        *verdicts.record_verdicts(result["end_to_end"]),
    ]


def _of_state(state: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one sentence for each arm with the gate, with what the other arms did."""
    rows = []
    for arm in state["arms"]:
        if arm["min_insync_racks"] == 1:
            continue
        unanimous = f"in {arm['outages']} of {arm['outages']} outages"
        parts = [f"{unanimous if common_behaviour(arm) != UNKNOWN else _did(arm)}{_when(arm)}"]
        parts += [f"{other['label']} {_did(other)}" for other in state["arms"] if other is not arm]
        subject, text = f"{arm['label']}, {state['text']}", "; ".join(parts)
        text = f"{text[0].upper()}{text[1:]}."
        rows.append({"about": "outage", "word": common_behaviour(arm), "subject": subject, "text": text})
    return rows


def _did(arm: Mapping[str, Any]) -> str:
    return ", ".join(f"{word} in {times} of {arm['outages']}" for word, times in arm["did"].items())


def _when(arm: Mapping[str, Any]) -> str:
    if common_behaviour(arm) != REFUSED:
        return ""
    text = ""
    if arm["first_refusal_probe_s"]:
        text += f", first {seconds_text(arm['first_refusal_probe_s'])} after the fault (probe)"
    if arm["first_ack_after_heal_s"]:
        text += f", acknowledged again {seconds_text(arm['first_ack_after_heal_s'])} after the heal began"
    if never := arm.get("no_ack_after_heal"):
        text += f", no acknowledgement after the heal in {never}"
    return text


def seconds_text(value: Mapping[str, Any]) -> str:
    """Format a time: ``9.1 s (8.9 to 9.3)``; without interval for one outage; ``9.1 s in 3 of 3`` for equal values."""
    if not _varied(value["values"]):
        return f"{value['mean']:.1f} s{_each(value)}"
    return f"{value['mean']:.1f} s ({value['low']:.1f} to {value['high']:.1f})"


def percent_text(value: Mapping[str, Any]) -> str:
    """Format a share likewise, such as ``55.0 % (53.0 to 57.0)``."""
    if not _varied(value["values"]):
        return f"{100 * value['mean']:.1f} %{_each(value)}"
    return f"{100 * value['mean']:.1f} % ({100 * value['low']:.1f} to {100 * value['high']:.1f})"


def _each(value: Mapping[str, Any]) -> str:
    """Return in how many of several outages an equal value was observed; older results have an interval of width 0."""
    return f" in {value['outages']} of {value['outages']}" if value["outages"] > 1 else ""


def _of_destroyed(row: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, str]:
    how = FAULT_LABELS[whole["way"]]
    subject = f"{row['label']}, rack {whole['destroyed']} destroyed while rack {whole['away']} was {how}"
    if row["unknown"]:
        why = row["unknown"]
        return {"about": "destruction", "word": UNKNOWN, "subject": subject, "text": f"{why[0].upper()}{why[1:]}."}
    text = f"{row['lost']:,} of {row['acked']:,} acknowledged records are lost."
    return {"about": "destruction", "word": "lost" if row["lost"] else "whole", "subject": subject, "text": text}


def result(
    plan: OutageRunPlan,
    found: Sequence[Mapping[str, Any]],
    *,
    run_id: str,
    started: datetime,
    command: str,
    master: str,
    distribution: Distribution,
    took_s: float,
) -> dict[str, Any]:
    """Return the result of a run.

    Args:
        plan: plan of the run.
        found: findings of each lab.
        run_id: name of the run.
        started: start of the run.
        command: command that repeats the run.
        master: Spark master.
        distribution: distribution under test.
        took_s: duration of the whole run, in seconds.
    """
    labs = {lab.topology: lab for lab in plan.labs}
    java = run(["java", "--version"], what="ask Java for its version").splitlines()[0]
    whole: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "states": [state for one in found for state in state_figures(plan, labs[str(one["topology"])], one["outages"])],
        "labs": [
            {key: value for key, value in one.items() if key not in ("end_to_end", "destructions")} for one in found
        ],
        "destructions": [destroyed for one in found for destroyed in one["destructions"]],
        "end_to_end": record_check.merge_checks([one["end_to_end"] for one in found], run_id),
        "confidence": plan.confidence,
    }
    whole["notes"] = [note for one in found for outage in one["outages"] for note in outage["notes"]]
    whole["notes"] += [note for one in whole["destructions"] for note in one["notes"]]
    whole["manifest"] = {
        "run_id": run_id,
        "started": started.isoformat(timespec="seconds"),
        "command": command,
        "master": master,
        "machine": machine.describe_machine(),
        "versions": machine.versions(java, distribution.manifest),
        "distribution": dict(distribution.manifest),
        "plan": asdict(plan),
        "took_s": took_s,
    }
    return whole | exit_reasons.conclude(exit_reasons.outage_reasons(whole), sentences(whole))


def load(out: Path) -> dict[str, Any]:
    """Read ``results.json`` of a folder.

    Raises:
        RackgateError: the file is missing, or is not a result.
    """
    file = out / "results.json"
    whole = read_json(file, "run 'rackgate bench outages' first")
    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA_VERSION or "states" not in whole:
        raise RackgateError(f"{file}: not a result of this version of 'rackgate bench outages'")
    return whole
