"""Result of a run from its stored data: the analysis of all cells, and a manifest of software, machine and labs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bench import machine
from bench.analysis import latency_analysis, predictions, record_check
from bench.analysis.comparisons import CellMeasurements
from bench.analysis.latency_analysis import SCHEMA_VERSION
from bench.plan.scenario import BenchCell, Scenario
from bench.run.measurement_session import MeasurementSession
from bench.run.run_store import OUTAGE, RunStore
from pyhooks.core.process import run
from pyhooks.lab.link_emulator import describe_trouble

# Shortest piece, in medians of the slowest arm.
MEDIANS_OF_PIECE = 20
# Fields of a cell's entry for one lab: which arms rejected before and after the blocks, and which were expected to.
REJECTIONS = ("session", "rejected", "rejected_after", "expected_to_reject")


def add_session(session: MeasurementSession, place: tuple[str, str], racks: dict[int, str]) -> None:
    """Store the description of a lab and its session's progress so far."""
    session.store.add_session(
        session.number,
        {
            "place": "/".join(place),
            "racks": {str(broker): rack for broker, rack in sorted(racks.items())},
            "round_trips": session.round_trips,
            "notes": session.notes,
            "duration_s": session.steps.duration_s,
            "target": dict(session.target.manifest()),
        },
    )


def analyse_run(
    spark: SparkSession, scenario: Scenario, store: RunStore
) -> tuple[dict[str, Any], list[CellMeasurements]]:
    """Return the numbers of all cells and of the outage phase, and the measurements of the cells."""
    findings = {cell.id: store.cell(cell.id) for cell in scenario.cells}
    sessions = [(cell, session) for cell, sessions_of in findings.items() for session in sessions_of]
    rejections = {(cell, arm): str(error) for cell, session in sessions for arm, error in session["rejected"].items()}
    raw = latency_analysis.read_raw(spark, store.raw)
    measured = latency_analysis.measurements(raw, scenario.cells, rejections)
    numbers = latency_analysis.cells(measured)
    outage = store.outage
    checks = [session["end_to_end"] for _, session in sessions if session["end_to_end"]]
    checks += [outage["end_to_end"]] if outage else []
    end_to_end = record_check.merge_checks(checks, store.run_id)
    end_to_end["unread"] = _unread(raw, {(cell, session["session"]) for cell, session in sessions})
    notes = [note for session in store.sessions for note in session["notes"]] + (outage["notes"] if outage else [])
    notes += link_notes(store.sessions)
    for cell, numbers_of in zip(scenario.cells, numbers, strict=True):
        notes += [*_cell_notes(cell, store), *piece_notes(cell, numbers_of)]
    # idle round trips of the last lab of each place
    round_trips = {
        lab["place"]: predictions.rack_round_trips(lab["round_trips"].get("idle", []), lab["racks"])
        for lab in store.sessions
    }
    usage = {cell: session["usage"] for cell, session in sessions}
    result = {
        "schema": SCHEMA_VERSION,
        "cells": [
            numbers_of
            | {
                "answer": predictions.answer(cell, numbers_of, round_trips.get("/".join(cell.place), {})),
                "findings": {
                    name: value
                    for session in findings[cell.id][-1:]
                    for name, value in session.items()
                    if name not in ("end_to_end", "usage")
                },
                "rejections": rejections_by_lab(findings[cell.id]),
                "discarded": list(store.discarded(cell.id).values()),
            }
            for cell, numbers_of in zip(scenario.cells, numbers, strict=True)
        ],
        "outage": outage["numbers"] if outage else None,
        "end_to_end": end_to_end,
        "usage": usage | ({OUTAGE: outage["usage"]} if outage else {}),
        "hosts": _hosts(raw),
        "notes": notes,
    }
    return result, measured


def _hosts(raw: DataFrame) -> list[dict[str, Any]]:
    """Return the number of intended and of acknowledged records of each load host, warm-up included."""
    if "host" not in raw.columns:
        return []  # blocks of earlier versions lack this column
    counts = F.count("*").alias("intended"), F.count_if(F.col("outcome") == "acked").alias("acked")
    return [row.asDict() for row in raw.groupBy("host").agg(*counts).orderBy("host").collect()]


def _unread(raw: DataFrame, checked: set[tuple[str, int]]) -> int:
    """Return the number of acknowledged records of blocks whose lab ended before they could be read back.

    ``checked`` has the cells and sessions whose records were read back; a load's name ends with that of the session.
    """
    session = F.element_at(F.split("load", r"\."), -1).cast("int").alias("session")
    rows = raw.where("cell is not null and outcome = 'acked'").groupBy("cell", session).count().collect()
    return sum(row["count"] for row in rows if (row["cell"], row["session"]) not in checked)


def link_notes(sessions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a note about each emulated link that lost frames unintentionally while the lab of a session was used."""
    return [
        f"lab {session['place']}: {trouble}"
        for session in sessions
        for trouble in describe_trouble(session["target"].get("link_states", {}))
    ]


def _cell_notes(cell: BenchCell, store: RunStore) -> list[str]:
    """Return the notes about a cell."""
    notes = []
    discarded = list(store.discarded(cell.id).values())
    if discarded:
        blocks = f"{len(discarded)} block{'s' if len(discarded) > 1 else ''}"
        notes.append(f"cell {cell.id}: {blocks} discarded because the state did not last: {discarded[-1]['why']}")
    measured = {int(path.name.split(".")[1]) for path in store.kept(cell.id).values()}
    if len(measured) > 1:
        notes.append(
            f"cell {cell.id}: its blocks were measured in {len(measured)} labs, because the run was interrupted"
        )
    return notes


def piece_notes(cell: BenchCell, numbers: Mapping[str, Any]) -> list[str]:
    """Return a note if the pieces of a cell are short for its latencies, so that records of other arms are in them."""
    plan = cell.scenario.latency
    arms = [arm["percentiles_ms"] for arm in numbers["arms"] if arm["role"] != "none"]
    medians = [arm["p50"] for arm in arms if arm["p50"] is not None]
    if medians and plan.piece_s * 1000 < MEDIANS_OF_PIECE * max(medians):
        length = plan.piece_s * 1000 / max(medians)
        return [f"cell {cell.id}: a piece is {length:.0f} medians long, not {MEDIANS_OF_PIECE}: use a longer piece_s"]
    return []


def rejections_by_lab(sessions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each lab of a cell which arms rejected, and which were expected to."""
    return [{name: lab[name] for name in REJECTIONS} for lab in sessions]


def manifest(scenario: Scenario, store: RunStore, *, master: str, command: str) -> dict[str, Any]:
    """Return the manifest of a result: software, machine, settings and labs."""
    sessions = store.sessions
    target = sessions[-1]["target"]
    java = run(["java", "--version"], task="ask Java for its version").splitlines()[0]
    round_trips = {f"{lab['place']}, {state}": rows for lab in sessions for state, rows in lab["round_trips"].items()}
    steps: dict[str, float] = {}
    for lab in sessions:
        for name, seconds in lab["duration_s"].items():
            steps[name] = steps.get(name, 0.0) + seconds
    return {
        "run_id": store.run_id,
        "started": store.run["started"],
        "command": command,
        "master": master,
        "conditions": store.run["conditions"],
        "machine": machine.describe_machine(),
        "versions": machine.versions(java, target.get("distribution", {})),
        "racks": sessions[0]["racks"],
        "round_trips": round_trips,
        "rates": store.rates,
        "scenario": scenario.as_json(),
        "labs": [
            {
                "place": lab["place"],
                "links": lab["target"]["links"],
                # absent on an existing cluster
                "link_states": lab["target"].get("link_states", {}),
                "topology": lab["target"]["topology"],
            }
            for lab in sessions
        ],
        "distribution": target["distribution"],
        "links": target["links"],
        # only for an existing cluster
        **{key: target[key] for key in ("cluster", "executors") if key in target},
        "duration_s": steps | {"whole": store.duration_s},
    }
