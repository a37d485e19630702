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
from pyhooks.simulation import failures as fl
from pyhooks.simulation import report, spark_replications
from pyhooks.simulation.partition_machine import NEVER, GateSetting
from pyhooks.simulation.replication import SimulationPlan
from pyhooks.simulation.summary import summarise

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
    where: Annotated[
        str | None,
        typer.Option("--placement", help="Racks of the replicas of all partitions, instead: a,a,b.", metavar="RACKS"),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, max=MAX_PARTITIONS, help="Partitions of all topics.")] = 1000,
    topics: Annotated[
        int | None, typer.Option(min=1, help="Topics [default: one for each 100 partitions].", show_default=False)
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="M,R to simulate, such as 2,2; then lower=30m for an operator who lowers R to 1 after that time, and"
            " elr=racks, replicas or off, as in rackgate model exact; can be repeated [default: 2,1 and 2,2].",
            show_default=False,
        ),
    ] = None,
    years: Annotated[float, typer.Option(help="Cluster-years to simulate.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    master: Annotated[
        str, typer.Option(help="Spark master: local[2], spark://host:7077; none: this process, without Spark.")
    ] = "local[2]",
    broker_failure: Annotated[
        str, _option(fl.BROKER, "Broker failures: 4x1h is four times a year, for an hour on average; 0 is never.")
    ] = fl.BROKER.value,
    broker_restart: Annotated[str, _option(fl.STOP, "Clean restarts of a broker.")] = fl.STOP.value,
    lag: Annotated[str, _option(fl.LAG, "Spells in which a broker lags as a follower.")] = fl.LAG.value,
    disk_loss: Annotated[str, _option(fl.DISK, "Losses of a broker's disk, and the time until it is replaced.")] = (
        fl.DISK.value
    ),
    rack_outage: Annotated[str, _option(fl.RACK, "Outages of a rack.")] = fl.RACK.value,
    rack_loss: Annotated[str, _option(fl.RACK_DISKS, "Losses of all disks in a rack.")] = fl.RACK_DISKS.value,
    power_share: Annotated[
        str, _option(fl.POWER, "Fraction of failures and outages that lose unflushed data.")
    ] = fl.POWER.value,
    burst_share: Annotated[str, _option(fl.BURST_SHARE, "Fraction of broker failures that come in bursts.")] = (
        fl.BURST_SHARE.value
    ),
    burst_size: Annotated[str, _option(fl.BURST_SIZE, "Mean number of brokers in a burst.")] = fl.BURST_SIZE.value,
    burst_one_rack: Annotated[str, _option(fl.BURST_ONE_RACK, "Fraction of bursts within one rack.")] = (
        fl.BURST_ONE_RACK.value
    ),
    burst_spread: Annotated[str, _option(fl.BURST_SPREAD, "Time within which a burst begins.")] = fl.BURST_SPREAD.value,
    session: Annotated[str, _option(fl.SESSION, "Time until an unavailable broker is fenced.")] = fl.SESSION.value,
    lag_max: Annotated[
        str, _option(fl.LAG_MAX, "Maximum lag; a slow follower leaves the ISR after 1 to 1.5 times this.")
    ] = fl.LAG_MAX.value,
    flush: Annotated[str, _option(fl.FLUSH, "Age at which written data has been flushed.")] = fl.FLUSH.value,
    catch_up: Annotated[str, _option(fl.CATCH_UP, "Time to catch up, for each time unavailable.")] = fl.CATCH_UP.value,
    copy: Annotated[str, _option(fl.COPY, "Time to fill an empty disk.")] = fl.COPY.value,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Simulate years of a cluster: how long acks=all is refused, what is lost, how often one rack acknowledges alone.

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
    given = {default.option: value for default, value in zip(fl.DEFAULTS, values, strict=True)}
    if not 0 < years <= MAX_YEARS:
        raise RackgateError(f"--years {years:g}: expected more than 0 and at most {MAX_YEARS:g}")
    plan, names = make_plan(
        racks, rf=rf, where=where, partitions=partitions, topics=topics, settings=setting or SETTINGS, seed=seed,
        given=given,
    )  # fmt: skip
    if years < 1:
        plan = replace(plan, counted_s=years * YEAR_S)
    began, replications = time.monotonic(), max(1, round(years))
    results, cpu_s = spark_replications.simulate(plan, replications, master=master, console=Console(stderr=True))
    work = report.SimulationWork(replications, time.monotonic() - began, cpu_s)
    summaries = summarise(results, plan)
    if as_json:
        sys.stdout.write(report.simulation_json(summaries, plan, names, given, work) + "\n")
        return
    report.print_simulation(report_console(WIDTH), summaries, plan, work)


def make_plan(
    racks: str,
    *,
    rf: int = 3,
    where: str | None = None,
    partitions: int = 1000,
    topics: int | None = None,
    settings: Sequence[str],
    seed: int = 1,
    given: dict[str, str],
) -> tuple[SimulationPlan, list[str]]:
    """Return the plan for the values of the command's options, and the names of the racks.

    Raises:
        RackgateError: a value is invalid, or does not fit the others.
    """
    sizes = dict(sorted(parse_racks(racks, "--racks").items()))
    if sum(sizes.values()) > MAX_BROKERS:
        raise RackgateError(f"--racks {racks}: {sum(sizes.values())} brokers: at most {MAX_BROKERS}")
    placements: tuple[tuple[int, ...], ...] = ()
    if where is not None:
        wanted = parse_placement(where, "--placement", sizes)
        rf = wanted.replicas
        placements = _rotated(sizes, dict(zip(wanted.racks, wanted.counts, strict=True)), partitions)
    elif rf > sum(sizes.values()):
        raise RackgateError(f"--rf {rf}: --racks has {sum(sizes.values())} brokers, and each takes one replica")
    if topics is not None and topics > partitions:
        raise RackgateError(f"--topics {topics}: there are {partitions} partitions, and each topic has one")
    faults, timing = fl.parse_faults(given)
    plan = SimulationPlan(
        racks=tuple(sizes.values()),
        topics=topics or max(1, partitions // 100),
        partitions=partitions,
        factor=rf,
        placements=placements,
        settings=tuple(_parse_setting(text, rf) for text in settings),
        faults=faults,
        timing=timing,
        counted_s=YEAR_S,
        seed=seed,
    )
    return plan, list(sizes)


def _rotated(sizes: dict[str, int], wanted: dict[str, int], partitions: int) -> tuple[tuple[int, ...], ...]:
    """Return an even assignment: the brokers of a rack in turn, and the replicas as leaders in turn."""
    first = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    placements = []
    for number in range(partitions):
        replicas = [
            first[rack] + (number + one) % sizes[rack] for rack, count in wanted.items() for one in range(count)
        ]
        turn = number % len(replicas)
        placements.append(tuple(replicas[turn:] + replicas[:turn]))
    return tuple(placements)


def _parse_setting(text: str, rf: int) -> GateSetting:
    found = _SETTING.fullmatch(text)
    if found is None:
        raise RackgateError(f"--setting {text}: expected M,R such as 2,2, and then lower=30m or elr=replicas")
    for name, value in (("M", int(found[1])), ("R", int(found[2]))):
        if not 1 <= value <= rf:
            raise RackgateError(f"--setting {text}: {name} is {value}: expected 1 to {rf}, the replication factor")
    more = dict(part.strip().split("=") for part in found[3].split(",")[1:])
    lower_s = seconds(more["lower"], f"--setting {text}: lower", most_s=YEAR_S / 12) if "lower" in more else NEVER
    elr = next(one for one in ELRS if one == more.get("elr", ELRS[0]))
    return GateSetting(int(found[1]), int(found[2]), elr, lower_s)
