"""``rackgate bench overlay``: throughput and latency of stock Kafka and of the overlay, in labs that alternate.

Each round has a lab for each arm, in random order. In each lab ``kafka-producer-perf-test`` first warms up the brokers,
and then measures every number of partitions, in an order that all labs of the round share. The ratios of a round are
one observation each.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.plan.cell_setting import CellSetting
from bench.run import instruments
from bench.run.cluster_under_test import LabUnderTest, current_lab
from pyhooks.core import paths, run_folder, statistics
from pyhooks.core.files import read_object, write_json
from pyhooks.kafka import gate

DEFAULT_OUT = paths.OUT / "bench-overlay"
TOPOLOGY = "az3-outside"
EPILOG = "Examples: rackgate bench overlay · rackgate bench overlay --rounds 3 --json"
# Replicas of each partition; Kafka places them in all racks.
REPLICATION_FACTOR, MIN_INSYNC_REPLICAS = 3, 2
PARTITIONS = (1, 8, 64)
# Warm-up of a lab, a minute at 10 MB/s, and what one measurement sends.
WARM_UP_BYTES, CEILING_BYTES = 600_000_000, 50_000_000
# Rate of the latency measurement in records per second; a fraction of what one connection carries.
LATENCY_RATE_PER_S = 250.0
SETTING = CellSetting(record_bytes=1000, linger_ms=5)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class OverlayArm:
    """A Kafka and its setting."""

    label: str  # display name
    stock: bool  # whether it runs without the overlay
    min_insync_racks: int | None  # R; None where the setting does not exist


BASELINE = OverlayArm("stock", stock=True, min_insync_racks=None)
ARMS = (
    BASELINE,
    OverlayArm("overlay, R=1", stock=False, min_insync_racks=1),
    OverlayArm("overlay, R=2", stock=False, min_insync_racks=2),
)


def measure_in_lab(target: LabUnderTest, arm: OverlayArm, seed: str) -> list[dict[str, Any]]:
    """Measure an arm in the current lab with each number of partitions in random order, after a warm-up.

    Returns:
        ``arm``, ``partitions``, ``ceiling`` and, for one partition, ``latency``: a
        ``bench.run.instruments.Measurement`` each.
    """
    rows = []
    with _topic(target, "warm-up", arm, PARTITIONS[-1]) as topic:
        instruments.ceiling(target.run_tool, topic, SETTING, "all", WARM_UP_BYTES)
    for partitions in random.Random(seed).sample(PARTITIONS, len(PARTITIONS)):  # noqa: S311 - a seeded plan, not a secret
        with _topic(target, f"partitions-{partitions}", arm, partitions) as topic:
            row: dict[str, Any] = {"arm": arm.label, "partitions": partitions}
            row["ceiling"] = asdict(instruments.ceiling(target.run_tool, topic, SETTING, "all", CEILING_BYTES))
            if partitions == 1:
                latency = instruments.producer_perf_test(target.run_tool, topic, SETTING, LATENCY_RATE_PER_S, "all")
                row["latency"] = asdict(latency)
            rows.append(row)
    return rows


@contextmanager
def _topic(target: LabUnderTest, topic: str, arm: OverlayArm, partitions: int) -> Iterator[str]:
    """Create a topic for the block and delete it afterwards."""
    arguments = ["--create", "--topic", topic, "--partitions", str(partitions)]
    arguments += ["--replication-factor", str(REPLICATION_FACTOR)]
    arguments += ["--config", f"{gate.MIN_INSYNC_REPLICAS}={MIN_INSYNC_REPLICAS}"]
    if arm.min_insync_racks is not None:
        arguments += ["--config", f"{gate.MIN_INSYNC_RACKS}={arm.min_insync_racks}"]
    target.run_tool("topics", arguments)
    yield topic
    target.run_tool("topics", ["--delete", "--topic", topic])


def summarise(rounds: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row for each arm, number of partitions and quantity, with its ratio to stock.

    ``rounds`` has the rows of ``measure_in_lab`` of all labs of each round. A row has ``arm``, ``partitions``,
    ``quantity`` (``MB/s`` or ``mean latency, ms``), ``values`` of each round and ``ratio``: geometric mean over rounds
    with Student's t interval; None for stock and with fewer than two rounds.
    """
    quantities = {"MB/s": ("ceiling", "mb_per_s"), "mean latency, ms": ("latency", "mean_ms")}
    table: list[dict[str, Any]] = []
    for quantity, (instrument, field) in quantities.items():
        for partitions in PARTITIONS:
            by_arm = {
                arm.label: [
                    row[instrument][field]
                    for rows in rounds
                    for row in rows
                    if row["arm"] == arm.label and row["partitions"] == partitions and instrument in row
                ]
                for arm in ARMS
            }
            for label, values in by_arm.items():
                if not values:
                    continue
                base = by_arm[BASELINE.label]
                is_compared = label != BASELINE.label and len(values) > 1
                ratio = asdict(statistics.ratio_interval(values, base, CONFIDENCE)) if is_compared else None
                table.append(
                    {"arm": label, "partitions": partitions, "quantity": quantity, "values": values, "ratio": ratio}
                )
    return table


def overlay_command(
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds, each with three labs.")] = 5,
    seed: Annotated[int, typer.Option(help="Random seed of the order.")] = 1290,
    out: Annotated[Path, typer.Option(help="Folder for results.json and table.md.")] = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Compare stock Kafka and the overlay in labs that alternate: highest throughput, and latency at a low rate."""
    from bench.analysis.verdicts import interval_text
    from bench.plan.lab_topology import check_machine
    from bench.report.cell_table import markdown_table
    from pyhooks.lab.cli import run_in_lab
    from pyhooks.patchset import builder

    check_machine([TOPOLOGY], "local[1]")
    distribution = builder.build(force=False, quiet=as_json).distribution
    with run_folder.held(out, run_folder.OVERLAY_COST) as folder:
        work = folder / "run"
        run_folder.claim(work, run_folder.OVERLAY_COST_RUN)
        run_folder.empty(work, run_folder.OVERLAY_COST_RUN)
        measured: list[list[dict[str, Any]]] = []
        for number in range(1, rounds + 1):
            order = random.Random(f"{seed}/{number}").sample(ARMS, len(ARMS))  # noqa: S311 - a seeded plan, not a secret
            rows: list[dict[str, Any]] = []
            for arm in order:
                typer.echo(f"round {number} of {rounds}: {arm.label}", err=as_json)
                lab = work / f"{number}-{ARMS.index(arm)}"
                command = [sys.executable, "-m", "bench.run.overlay_cost", "--seed", f"{seed}/{number}"]
                command += ["--arm", arm.label]
                if status := run_in_lab(TOPOLOGY, lab, command, bare=False, stock=arm.stock):
                    raise typer.Exit(status)
                rows += read_object(lab / "rows.json", "the lab's run writes it")["rows"]
            measured.append(rows)
        result = {
            "kafka_version": distribution.manifest["kafka_version"],
            "patch_hash": distribution.manifest["patch_hash"],
            "rounds": measured,
            "table": summarise(measured),
        }
        head = ("quantity", "partitions", "arm", "mean over rounds", "ratio to stock")
        body = [
            [
                row["quantity"],
                str(row["partitions"]),
                row["arm"],
                f"{sum(row['values']) / len(row['values']):.1f}",
                interval_text(row["ratio"]) if row["ratio"] else "",
            ]
            for row in result["table"]
        ]
        write_json(out / "results.json", result)
        (out / "table.md").write_text("\n".join(markdown_table(head, body)) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(result, indent=1))
        return
    for line in markdown_table(head, body):
        typer.echo(line)
    typer.echo(f"numbers: {out / 'results.json'}")


def main() -> None:
    """Entry point in a lab: measure its arm and write ``rows.json`` in the lab's folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.run.overlay_cost", description=main.__doc__)
    parser.add_argument("--arm", required=True, choices=[arm.label for arm in ARMS], help="label of the arm")
    parser.add_argument("--seed", required=True, help="random seed of the order")
    options = parser.parse_args()
    target = current_lab()
    arm = next(arm for arm in ARMS if arm.label == options.arm)
    rows = measure_in_lab(target, arm, options.seed)
    write_json(target.lab.run_dir / "rows.json", {"rows": rows})


if __name__ == "__main__":
    main()
