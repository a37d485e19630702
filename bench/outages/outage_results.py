"""Result of a run of outages: figures of each arm and state over all outages, from the findings of the labs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench import machine
from bench.analysis import exit_reasons, record_check, verdicts
from bench.analysis.availability import REJECTED, UNKNOWN
from bench.analysis.verdicts import sentence
from bench.plan.outage_plan import FAULT_LABELS, LabPlan, OutageRunPlan
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_json
from pyhooks.core.process import run
from pyhooks.core.statistics import mean_interval
from pyhooks.lab.link_emulator import describe_trouble
from pyhooks.patchset.distribution import Distribution

SCHEMA_VERSION = 2
# Fewer outages are counted, without an interval: its assumptions could not be checked.
FEWEST = 5


def mean_over_outages(
    values: Sequence[float], *, confidence: float, most: float = float("inf")
) -> dict[str, Any] | None:
    """Return the mean over outages, each counted as one value, with Student's t interval; None without values.

    Records within an outage depend on one another, so their number is no evidence about another outage. There is no
    interval with fewer than ``FEWEST`` outages or equal values, which don't show the variation of the next one.

    Returns:
        ``mean``, ``low`` and ``high`` (None without an interval; from 0 to ``most``), ``outages``, ``values``.
    """
    if not values:
        return None
    low, high = None, None
    if _has_interval(values):
        interval = mean_interval(values, confidence)
        low, high = max(0.0, interval.low), min(most, interval.high)
    return {"mean": float(np.mean(values)), "low": low, "high": high, "outages": len(values), "values": list(values)}


def _has_interval(values: Sequence[float]) -> bool:
    return len(values) >= FEWEST and max(values) > min(values)


def state_figures(plan: OutageRunPlan, lab: LabPlan, outages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures over all outages for each placement, fault and arm of a lab."""
    return [
        {
            "lab": lab.name,
            "stock": lab.stock,
            "topology": lab.topology,
            "rack": lab.rack,
            "placement": placement,
            "replicas": list(replicas),
            "fault": fault,
            "text": f"{placement}, rack {lab.rack} {FAULT_LABELS[fault]}"
            + ("" if lab.name == lab.topology else f", {lab.name}"),
            "arms": [
                {
                    "arm": arm.id,
                    "label": arm.label,
                    "min_insync_replicas": arm.min_insync_replicas,
                    "min_insync_racks": arm.min_insync_racks,
                }
                | over_outages(
                    [
                        (outage["numbers"], topic)
                        for outage in outages
                        if outage["fault"] == fault
                        for topic in outage["numbers"]["topics"]
                        if topic["topic"] == arm.on(placement, replicas).topic
                    ],
                    plan.confidence,
                )
                for arm in plan.arms
                if arm.id in lab.arms
            ],
        }
        for placement, replicas in lab.placements.items()
        for fault in lab.outages
    ]


def over_outages(outages: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], confidence: float) -> dict[str, Any]:
    """Return the figures of one arm in one state; outages whose fault was not proved are counted, but not evaluated.

    ``outages`` has for each outage its numbers, and the numbers of the arm's topic.
    """
    topics = [topic for numbers, topic in outages if numbers["proved"]]
    rejected = [topic for topic in topics if topic["behaviour"] == REJECTED]
    meters = [topic["meter"] for topic in topics]

    def mean(values: Iterable[float | None], most: float = float("inf")) -> dict[str, Any] | None:
        return mean_over_outages([value for value in values if value is not None], confidence=confidence, most=most)

    def catch_up(period: str, figure: str) -> dict[str, Any] | None:
        return mean(topic["catch_up"][period][figure] for topic in topics if topic["catch_up"])

    return {
        "outages": len(outages),
        "proved": len(topics),
        "did": dict(Counter(topic["behaviour"] for _, topic in outages)),
        "fewest_racks": min((t["fewest_racks"] for t in topics if t["fewest_racks"] is not None), default=None),
        "fault_intended": sum(topic.get("fault_intended", 0) for topic in topics),
        "fault_acked": sum(topic.get("fault_acked", 0) for topic in topics),
        **{
            name: mean((topic.get(name) for topic in topics), most=1.0)
            for name in ("fault_share", "settled_share", "acked_share")
        },
        "first_rejection_probe_s": mean(topic["probe"]["first_rejection_after_s"] for topic in topics),
        "first_rejection_meter_s": mean(meter["after_s"] for meter in meters),
        # without a response of any broker nothing is known of an outage
        "meter_unknown": sum(meter["answers"] == 0 for meter in meters),
        "meter_counted": sum(meter["counted"] for meter in meters),
        "first_ack_after_heal_s": mean(topic.get("first_ack_after_heal_s") for topic in rejected),
        # counted apart, because the mean covers only outages with an acknowledgement
        "no_ack_after_heal": sum(topic.get("first_ack_after_heal_s") is None for topic in rejected),
        "isr_shrank_after_s": mean(topic["left_after_s"] for topic in topics),
        "before_p50_ms": catch_up("before", "p50_ms"),
        "before_max_ms": catch_up("before", "max_ms"),
        "catch_up_p50_ms": catch_up("after", "p50_ms"),
        "catch_up_max_ms": catch_up("after", "max_ms"),
        "longest_silence_s": mean(topic["longest_silence_s"] for topic in topics),
        "exceptions": dict(sum((Counter(topic["probe"]["exceptions"]) for topic in topics), Counter())),
    }


def common_behaviour(arm: Mapping[str, Any]) -> str:
    """Return what an arm did in all outages of a state, or ``unknown`` if it did not always do the same."""
    did = list(arm["did"])
    return did[0] if len(did) == 1 else UNKNOWN


def sentences(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the verdicts as sentences: of each state, of the destroyed rack, of the records read back."""
    return [
        *(verdict for state in result["states"] for verdict in _of_state(state)),
        *(_of_destroyed(row, destruction) for destruction in result["destructions"] for row in destruction["topics"]),
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
        text = _capitalised("; ".join(parts))
        rows.append(sentence("outage", common_behaviour(arm), f"{arm['label']}, {state['text']}", text))
    return rows


def _capitalised(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _did(arm: Mapping[str, Any]) -> str:
    return ", ".join(f"{did} in {times} of {arm['outages']}" for did, times in arm["did"].items())


def _when(arm: Mapping[str, Any]) -> str:
    if common_behaviour(arm) != REJECTED:
        return ""
    text = ""
    if arm["first_rejection_probe_s"]:
        text += f", first {seconds_text(arm['first_rejection_probe_s'])} after the fault (probe)"
    if arm["first_ack_after_heal_s"]:
        text += f", acknowledged again {seconds_text(arm['first_ack_after_heal_s'])} after the heal began"
    if never := arm.get("no_ack_after_heal"):
        text += f", no acknowledgement after the heal in {never}"
    return text


def seconds_text(value: Mapping[str, Any]) -> str:
    """Format a time: ``9.1 s (8.9 to 9.3)``, ``9.1 s`` for one outage, ``8.7 to 9.6 s in 3 of 3`` for few outages."""
    return _mean_text(value, 1, "s")


def ms_text(value: Mapping[str, Any]) -> str:
    """Format a duration likewise, such as ``12 ms (9 to 15)``."""
    return _mean_text(value, 1, "ms", digits=0)


def percent_text(value: Mapping[str, Any]) -> str:
    """Format a share likewise, such as ``55.0 % (53.0 to 57.0)`` or ``55.0 % in 3 of 3`` for equal values."""
    return _mean_text(value, 100, "%")


def _mean_text(value: Mapping[str, Any], factor: float, unit: str, digits: int = 1) -> str:
    def shown(number: float) -> str:
        return f"{factor * number:,.{digits}f}"

    # earlier results have an interval for few outages, too
    if _has_interval(value["values"]):
        return f"{shown(value['mean'])} {unit} ({shown(value['low'])} to {shown(value['high'])})"
    ends = dict.fromkeys(shown(end) for end in (min(value["values"]), max(value["values"])))
    text = f"{' to '.join(ends)} {unit}"
    return f"{text} in {value['outages']} of {value['outages']}" if value["outages"] > 1 else text


def _of_destroyed(row: Mapping[str, Any], destruction: Mapping[str, Any]) -> dict[str, str]:
    racks = f"rack {destruction['destroyed']} destroyed while rack {destruction['unavailable_rack']} was"
    subject = f"{row['label']}, {racks} {FAULT_LABELS[destruction['fault']]}"
    if row["unknown"]:
        return sentence("destruction", UNKNOWN, subject, _capitalised(row["unknown"]))
    text = f"{row['lost']:,} of {row['acked']:,} acknowledged records are lost."
    return sentence("destruction", "lost" if row["lost"] else "whole", subject, text)


def result(
    plan: OutageRunPlan,
    findings: Sequence[Mapping[str, Any]],
    *,
    run_id: str,
    started: datetime,
    command: str,
    master: str,
    distribution: Distribution,
    duration_s: float,
) -> dict[str, Any]:
    """Return the result of a run from the findings of its labs."""
    labs = {lab.name: lab for lab in plan.labs}
    java = run(["java", "--version"], task="ask Java for its version").splitlines()[0]
    outages = [outage for lab in findings for outage in lab["outages"]]
    destructions = [destruction for lab in findings for destruction in lab["destructions"]]
    numbers: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "states": [state for lab in findings for state in state_figures(plan, labs[str(lab["name"])], lab["outages"])],
        "labs": [
            {key: value for key, value in lab.items() if key not in ("end_to_end", "destructions")} for lab in findings
        ],
        "destructions": destructions,
        "end_to_end": record_check.merge_checks([lab["end_to_end"] for lab in findings], run_id),
        "confidence": plan.confidence,
        "notes": [
            *(note for event in (*outages, *destructions) for note in event["notes"]),
            *(
                f"{lab['topology']}: {trouble}"
                for lab in findings
                for trouble in describe_trouble(lab["target"].get("link_states", {}))
            ),
        ],
        "manifest": {
            "run_id": run_id,
            "started": started.isoformat(timespec="seconds"),
            "command": command,
            "master": master,
            "machine": machine.describe_machine(),
            "versions": machine.versions(java, distribution.manifest),
            "distribution": dict(distribution.manifest),
            "plan": asdict(plan),
            "duration_s": duration_s,
        },
    }
    return numbers | exit_reasons.conclude(exit_reasons.outage_reasons(numbers), sentences(numbers))


def load(out: Path) -> dict[str, Any]:
    """Read ``results.json`` of a folder."""
    file = out / "results.json"
    stored = read_json(file, "run 'rackgate bench outages' first")
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA_VERSION or "states" not in stored:
        raise RackgateError(f"{file}: not a result of this version of 'rackgate bench outages'")
    return stored
