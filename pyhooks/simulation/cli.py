"""``rackgate model simulate``: simulation of years of a cluster."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Annotated, Any

import typer
from rich.console import Console

from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.core.terminal import report_console
from pyhooks.placement.exact_model import ELRS
from pyhooks.placement.failure_rates import YEAR_S, OptionDefault
from pyhooks.placement.replica_placement import MAX_REPLICAS, parse_placement, parse_racks
from pyhooks.simulation import failures as failures
from pyhooks.simulation import report, spark_replications
from pyhooks.simulation.partition_machine import NEVER, GateSetting
from pyhooks.simulation.replication import SimulationPlan
from pyhooks.simulation.summary import summarize

WIDTH = 160  # columns, where there is no terminal
MAX_BROKERS, MAX_PARTITIONS, MAX_YEARS = 2000, 200_000, 1_000_000.0
SETTINGS = ("2,1", "2,2")
_SETTING = re.compile(rf"\s*(\d+)\s*,\s*(\d+)\s*((?:,\s*(?:lower=[^,]*|elr=(?:{'|'.join(ELRS)}))\s*)*)")
SIMULATE_EPILOG = (
    "Examples: rackgate model simulate --racks a:2,b:2,c:1 · rackgate model simulate --racks a:34,b:33,c:33"
    " --partitions 10000 --setting 2,1 --setting 3,1 --setting 2,2 --setting 2,2,lower=30m · rackgate model simulate"
    " --racks a:2,b:1 --placement a,a,b --rack-outage 4x2h --json · rackgate model simulate --racks a:34,b:33,c:33"
    " --years 1000 --master spark://host:7077"
)


def _option(default: OptionDefault, text: str) -> Any:
    return typer.Option(default.option, help=text, metavar="TEXT")


simulate_app = typer.Typer()


@simulate_app.command("simulate", epilog=SIMULATE_EPILOG)
def simulate_command(
    racks: Annotated[str, typer.Option(help="Brokers of each rack: a:2,b:2,c:1.", metavar="RACKS", show_default=False)],
    rf: Annotated[int, typer.Option(min=1, max=MAX_REPLICAS, help="Replication factor, placed as by Kafka.")] = 3,
    placement_text: Annotated[
        str | None,
        typer.Option("--placement", help="Racks of the replicas of all partitions, instead: a,a,b.", metavar="RACKS"),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, max=MAX_PARTITIONS, help="Partitions of all topics.")] = 1000,
    topics: Annotated[
        int | None, typer.Option(min=1, help="Topics (default: one for each 100 partitions).", show_default=False)
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="M,R to simulate, such as 2,2; then lower=30m for an operator who lowers R to 1 after that time, and"
            " elr=racks, replicas or off, as in rackgate model exact; can be repeated (default: 2,1 and 2,2).",
            show_default=False,
        ),
    ] = None,
    years: Annotated[float, typer.Option(help="Cluster-years to simulate.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    master: Annotated[
        str, typer.Option(help="Spark master: local[2], spark://host:7077; none: this process, without Spark.")
    ] = "local[2]",
    broker_failure: Annotated[
        str, _option(failures.BROKER, "Broker failures: 4x1h is four times a year, for an hour on average; 0 is never.")
    ] = failures.BROKER.value,
    broker_restart: Annotated[str, _option(failures.STOP, "Clean restarts of a broker.")] = failures.STOP.value,
    lag: Annotated[str, _option(failures.LAG, "Spells in which a broker lags as a follower.")] = failures.LAG.value,
    disk_loss: Annotated[
        str, _option(failures.DISK, "Losses of a broker's disk, and the time until it is replaced.")
    ] = (failures.DISK.value),
    rack_outage: Annotated[str, _option(failures.RACK, "Outages of a rack.")] = failures.RACK.value,
    rack_loss: Annotated[
        str, _option(failures.RACK_DISKS, "Losses of all disks in a rack.")
    ] = failures.RACK_DISKS.value,
    power_share: Annotated[
        str, _option(failures.POWER, "Fraction of failures and outages that lose unflushed data.")
    ] = failures.POWER.value,
    burst_share: Annotated[str, _option(failures.BURST_SHARE, "Fraction of broker failures that come in bursts.")] = (
        failures.BURST_SHARE.value
    ),
    burst_size: Annotated[
        str, _option(failures.BURST_SIZE, "Mean number of brokers in a burst.")
    ] = failures.BURST_SIZE.value,
    burst_one_rack: Annotated[str, _option(failures.BURST_ONE_RACK, "Fraction of bursts within one rack.")] = (
        failures.BURST_ONE_RACK.value
    ),
    burst_spread: Annotated[
        str, _option(failures.BURST_SPREAD, "Time within which a burst begins.")
    ] = failures.BURST_SPREAD.value,
    session: Annotated[
        str, _option(failures.SESSION, "Time until an unavailable broker is fenced.")
    ] = failures.SESSION.value,
    lag_max: Annotated[
        str, _option(failures.LAG_MAX, "Maximum lag; a slow follower leaves the ISR after 1 to 1.5 times this.")
    ] = failures.LAG_MAX.value,
    flush: Annotated[
        str, _option(failures.FLUSH, "Age at which written data has been flushed.")
    ] = failures.FLUSH.value,
    catch_up: Annotated[
        str, _option(failures.CATCH_UP, "Time to catch up, for each time unavailable.")
    ] = failures.CATCH_UP.value,
    copy: Annotated[str, _option(failures.COPY, "Time to fill an empty disk.")] = failures.COPY.value,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Simulate years of a cluster: how long acks=all is rejected, what is lost, how often one rack acknowledges alone.

    Brokers fail, restart, lag and lose disks, racks are unavailable or destroyed, failures come in bursts. Partitions
    are placed as by Kafka and follow its rules: sessions, ISR, ELR, elections, M and R. All settings are simulated on
    the same faults. Intervals are of 95 %, over independent replications of a year each. The same seed gives the same
    figures on any number of cores. The model and its limits: pyhooks/simulation/partition_machine.py; sources of the
    defaults: kip/model.md.
    """
    values = (
        broker_failure, broker_restart, lag, disk_loss, rack_outage, rack_loss, power_share, burst_share, burst_size,
        burst_one_rack, burst_spread, session, lag_max, flush, catch_up, copy,
    )  # fmt: skip
    fault_options = {default.option: value for default, value in zip(failures.DEFAULTS, values, strict=True)}
    if not 0 < years <= MAX_YEARS:
        raise RackgateError(f"--years {years:g}: expected more than 0 and at most {MAX_YEARS:g}")
    plan, names = make_plan(
        racks, rf=rf, placement_text=placement_text, partitions=partitions, topics=topics,
        settings=setting or SETTINGS, seed=seed, fault_options=fault_options,
    )  # fmt: skip
    if years < 1:
        plan = replace(plan, counted_s=years * YEAR_S)
    start_s, replications = time.monotonic(), max(1, round(years))
    results, cpu_s = spark_replications.simulate(plan, replications, master=master, console=Console(stderr=True))
    work = report.SimulationWork(replications, time.monotonic() - start_s, cpu_s)
    summaries = summarize(results, plan)
    if as_json:
        sys.stdout.write(report.simulation_json(summaries, plan, names, fault_options, work) + "\n")
        return
    report.print_simulation(report_console(WIDTH), summaries, plan, work)


def make_plan(
    racks: str,
    *,
    rf: int = 3,
    placement_text: str | None = None,
    partitions: int = 1000,
    topics: int | None = None,
    settings: Sequence[str],
    seed: int = 1,
    fault_options: dict[str, str],
) -> tuple[SimulationPlan, list[str]]:
    """Return the plan for the values of the command's options, and the names of the racks.

    Raises:
        RackgateError: a value is invalid, or does not fit the others.
    """
    brokers_by_rack = dict(sorted(parse_racks(racks, "--racks").items()))
    if sum(brokers_by_rack.values()) > MAX_BROKERS:
        raise RackgateError(f"--racks {racks}: {sum(brokers_by_rack.values())} brokers: at most {MAX_BROKERS}")
    placements: tuple[tuple[int, ...], ...] = ()
    if placement_text is not None:
        placement = parse_placement(placement_text, "--placement", brokers_by_rack)
        rf = placement.replicas
        placements = _rotated_assignment(
            brokers_by_rack, dict(zip(placement.racks, placement.counts, strict=True)), partitions
        )
    elif rf > sum(brokers_by_rack.values()):
        raise RackgateError(
            f"--rf {rf}: --racks has {sum(brokers_by_rack.values())} brokers, and each takes one replica"
        )
    if topics is not None and topics > partitions:
        raise RackgateError(f"--topics {topics}: there are {partitions} partitions, and each topic has one")
    faults, timing = failures.parse_faults(fault_options)
    plan = SimulationPlan(
        racks=tuple(brokers_by_rack.values()),
        topics=topics or max(1, partitions // 100),
        partitions=partitions,
        replication_factor=rf,
        placements=placements,
        settings=tuple(_parse_setting(text, rf) for text in settings),
        faults=faults,
        timing=timing,
        counted_s=YEAR_S,
        seed=seed,
    )
    return plan, list(brokers_by_rack)


def _rotated_assignment(
    brokers_by_rack: dict[str, int], replicas_by_rack: dict[str, int], partitions: int
) -> tuple[tuple[int, ...], ...]:
    """Return an even assignment: the brokers of a rack in turn, and the replicas as leaders in turn."""
    first_broker = dict(zip(brokers_by_rack, accumulate(brokers_by_rack.values(), initial=0), strict=False))
    placements = []
    for number in range(partitions):
        replicas = [
            first_broker[rack] + (number + index) % brokers_by_rack[rack]
            for rack, count in replicas_by_rack.items()
            for index in range(count)
        ]
        leader_index = number % len(replicas)
        placements.append(tuple(replicas[leader_index:] + replicas[:leader_index]))
    return tuple(placements)


def _parse_setting(text: str, rf: int) -> GateSetting:
    match = _SETTING.fullmatch(text)
    if match is None:
        raise RackgateError(f"--setting {text}: expected M,R such as 2,2, and then lower=30m or elr=replicas")
    for name, value in (("M", int(match[1])), ("R", int(match[2]))):
        if not 1 <= value <= rf:
            raise RackgateError(f"--setting {text}: {name} is {value}: expected 1 to {rf}, the replication factor")
    options = dict(part.strip().split("=") for part in match[3].split(",")[1:])
    lower_s = seconds(options["lower"], f"--setting {text}: lower", max_s=YEAR_S / 12) if "lower" in options else NEVER
    elr = next(elr for elr in ELRS if elr == options.get("elr", ELRS[0]))
    return GateSetting(int(match[1]), int(match[2]), elr, lower_s)
