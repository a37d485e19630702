"""``rackgate bench overlay``: throughput and latency of stock Kafka and of the overlay, in labs that alternate.

Each round has a lab of stock Kafka and a lab of the overlay, in random order. In each lab ``kafka-producer-perf-test``
measures every arm with every number of partitions. The ratios of a round are one observation each.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
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
# Rate of the latency measurement in records per second; a fraction of what one connection carries.
LATENCY_RATE_PER_S = 250.0
SETTING = CellSetting(record_bytes=1000, linger_ms=0)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class OverlayArm:
    """A Kafka and its setting.

    Attributes:
        label: display name.
        stock: whether it runs without the overlay.
        min_insync_racks: R; None where the setting does not exist.
    """

    label: str
    stock: bool
    min_insync_racks: int | None


BASELINE = OverlayArm("stock", stock=True, min_insync_racks=None)
ARMS = (
    BASELINE,
    OverlayArm("overlay, R=1", stock=False, min_insync_racks=1),
    OverlayArm("overlay, R=2", stock=False, min_insync_racks=2),
)


def measure_in_lab(target: LabUnderTest, arms: Sequence[OverlayArm], seed: str) -> list[dict[str, Any]]:
    """Measure the arms in the current lab in random order, after a warm-up.

    Returns:
        ``arm``, ``partitions``, ``ceiling`` and, for one partition, ``latency``: a
        ``bench.run.instruments.Measurement`` each.
    """
    combinations = [(arm, partitions) for arm in arms for partitions in PARTITIONS]
    random.Random(seed).shuffle(combinations)  # noqa: S311 - a seeded plan, not a secret
    rows = []
    for number, (arm, partitions) in enumerate([(arms[0], PARTITIONS[-1]), *combinations]):
        topic = f"overlay-{number}"
        _create(target, topic, arm, partitions)
        row: dict[str, Any] = {"arm": arm.label, "partitions": partitions}
        row["ceiling"] = instruments.ceiling(target.run_tool, topic, SETTING, "all").as_json()
        if partitions == 1:
            latency = instruments.producer_perf_test(target.run_tool, topic, SETTING, LATENCY_RATE_PER_S, "all")
            row["latency"] = latency.as_json()
        target.run_tool("topics", ["--delete", "--topic", topic])
        # the first measurement warms up the brokers
        rows += [row] if number else []
    return rows


def _create(target: LabUnderTest, topic: str, arm: OverlayArm, partitions: int) -> None:
    arguments = ["--create", "--topic", topic, "--partitions", str(partitions)]
    arguments += ["--replication-factor", str(REPLICATION_FACTOR)]
    arguments += ["--config", f"{gate.MIN_INSYNC_REPLICAS}={MIN_INSYNC_REPLICAS}"]
    if arm.min_insync_racks is not None:
        arguments += ["--config", f"{gate.MIN_INSYNC_RACKS}={arm.min_insync_racks}"]
    target.run_tool("topics", arguments)


def summarise(rounds: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row for each arm, number of partitions and quantity, with its ratio to stock.

    Args:
        rounds: rows of ``measure_in_lab`` of both labs of each round.

    Returns:
        ``arm``, ``partitions``, ``quantity`` (``MB/s`` or ``mean latency, ms``), ``values`` of each round and, except
        for stock, ``ratio``: geometric mean over rounds with Student's t interval; None with fewer than two rounds.
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
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds, each with two labs.")] = 5,
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
        found: list[list[dict[str, Any]]] = []
        for number in range(1, rounds + 1):
            order = random.Random(f"{seed}/{number}").sample([True, False], 2)  # noqa: S311 - a seeded plan, not a secret
            rows: list[dict[str, Any]] = []
            for stock in order:
                name = "stock" if stock else "overlay"
                typer.echo(f"round {number} of {rounds}: {name}", err=as_json)
                lab = work / f"{number}-{name}"
                command = [sys.executable, "-m", "bench.run.overlay_cost", "--seed", f"{seed}/{number}"]
                command += ["--stock"] if stock else []
                if status := run_in_lab(TOPOLOGY, lab, command, bare=False, stock=stock):
                    raise typer.Exit(status)
                rows += read_object(lab / "rows.json", "the lab's run writes it")["rows"]
            found.append(rows)
        result = {
            "kafka_version": distribution.manifest["kafka_version"],
            "patch_hash": distribution.manifest["patch_hash"],
            "rounds": found,
            "table": summarise(found),
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
    """Entry point in a lab: measure its arms and write ``rows.json`` in the lab's folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.run.overlay_cost", description=main.__doc__)
    parser.add_argument("--stock", action="store_true", help="the lab runs stock Kafka")
    parser.add_argument("--seed", required=True, help="random seed of the order")
    options = parser.parse_args()
    target = current_lab()
    rows = measure_in_lab(target, [arm for arm in ARMS if arm.stock is options.stock], options.seed)
    write_json(target.lab.run_dir / "rows.json", {"rows": rows})


if __name__ == "__main__":
    main()
