"""``rackgate model simulate``: years of a cluster, event by event."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.placement.exact_model import ELRS
from pyhooks.placement.failure_rates import YEAR_S, Default
from pyhooks.placement.replica_placement import MAX_REPLICAS, parse, placement
from pyhooks.simulation import failures as fl

WIDTH = 160  # columns, where there is no terminal
MAX_BROKERS, MAX_PARTITIONS, MAX_YEARS, MAX_REPLICATIONS = 2000, 200_000, 1_000_000.0, 1_000_000
SETTINGS = ("2,1", "2,2")
# a replication for rare losses counts so many times as long as it warms up
_RARE_COUNTS = 1.0
_TELL_S = 10.0

SIMULATE_EPILOG = (
    "Examples: rackgate model simulate --racks a:2,b:2,c:1 · rackgate model simulate --racks a:34,b:33,c:33"
    " --partitions 10000 --setting 2,1 --setting 3,1 --setting 2,2 --setting 2,2,lower=30m · rackgate model simulate"
    " --racks a:2,b:1 --placement a,a,b --rack-outage 4x2h --json · rackgate model simulate --racks a:34,b:33,c:33"
    " --rare · rackgate model simulate --racks a:34,b:33,c:33 --years 1000 --master spark://host:7077"
)


def _option(default: Default, text: str) -> Any:
    return typer.Option(default.option, help=text, metavar="TEXT")


simulate_app = typer.Typer()


@simulate_app.command("simulate", epilog=SIMULATE_EPILOG)
def simulate_command(
    racks: Annotated[str, typer.Option(help="Brokers of each rack: a:2,b:2,c:1.", metavar="RACKS", show_default=False)],
    rf: Annotated[int, typer.Option(min=1, max=MAX_REPLICAS, help="Replication factor; Kafka places.")] = 3,
    where: Annotated[
        str | None,
        typer.Option("--placement", help="Where all replicas are, instead: a,a,b or a:2,b.", metavar="RACKS"),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, max=MAX_PARTITIONS, help="Of all topics.")] = 1000,
    topics: Annotated[
        int | None, typer.Option(min=1, help="How many have them [default: one for each 100].", show_default=False)
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="M,R to judge, such as 2,2; then lower=30m for an operator who lowers R to 1 after that time, and"
            " elr=racks, replicas or off, as in rackgate model exact; can be repeated [default: 2,1 and 2,2].",
            show_default=False,
        ),
    ] = None,
    years: Annotated[float, typer.Option(help="Cluster-years to simulate.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 1,
    rare: Annotated[
        bool, typer.Option("--rare", help="Losses alone, what leads to them drawn more often than it happens.")
    ] = False,
    master: Annotated[
        str, typer.Option(help="Spark's master: local[2], spark://host:7077; none runs in this process.")
    ] = "local[2]",
    broker_failure: Annotated[
        str, _option(fl.BROKER, "A broker fails: 4x1h is four times a year, for an hour on average; 0 is never.")
    ] = fl.BROKER.value,
    broker_restart: Annotated[str, _option(fl.STOP, "A broker is restarted cleanly.")] = fl.STOP.value,
    lag: Annotated[str, _option(fl.LAG, "A broker does not keep up as a follower.")] = fl.LAG.value,
    disk_loss: Annotated[str, _option(fl.DISK, "A broker's disk is destroyed, and how long until it has another.")] = (
        fl.DISK.value
    ),
    rack_outage: Annotated[str, _option(fl.RACK, "A rack is away.")] = fl.RACK.value,
    rack_loss: Annotated[str, _option(fl.RACK_DISKS, "All disks in a rack are destroyed.")] = fl.RACK_DISKS.value,
    power_share: Annotated[
        str, _option(fl.POWER, "Share of failures and outages that lose what is not flushed.")
    ] = fl.POWER.value,
    burst_share: Annotated[str, _option(fl.BURST_SHARE, "Share of broker failures that come in bursts.")] = (
        fl.BURST_SHARE.value
    ),
    burst_size: Annotated[str, _option(fl.BURST_SIZE, "Brokers of a burst, on average.")] = fl.BURST_SIZE.value,
    burst_one_rack: Annotated[str, _option(fl.BURST_ONE_RACK, "Share of bursts that stay in one rack.")] = (
        fl.BURST_ONE_RACK.value
    ),
    burst_spread: Annotated[str, _option(fl.BURST_SPREAD, "Within this a burst begins.")] = fl.BURST_SPREAD.value,
    session: Annotated[str, _option(fl.SESSION, "Until a broker that is away is fenced.")] = fl.SESSION.value,
    lag_max: Annotated[
        str, _option(fl.LAG_MAX, "A slow follower leaves the ISR after 1 to 1.5 times this.")
    ] = fl.LAG_MAX.value,
    flush: Annotated[str, _option(fl.FLUSH, "What is older than this is flushed.")] = fl.FLUSH.value,
    catch_up: Annotated[str, _option(fl.CATCH_UP, "Time to catch up, for each time away.")] = fl.CATCH_UP.value,
    copy: Annotated[str, _option(fl.COPY, "Time to fill an empty disk.")] = fl.COPY.value,
    as_json: Annotated[bool, typer.Option("--json", help="All that was found, for programs.")] = False,
) -> None:
    """Simulates years of a cluster: how long acks=all is taken, what is lost, how often one rack acknowledges alone.

    Brokers fail, restart, lag and lose disks, racks are away or destroyed, failures come in bursts; partitions are
    where Kafka would put them, and live by Kafka's rules: sessions, ISR, ELR, elections, M and R. All settings are
    judged on the same faults. Intervals are of 95 %, over independent replications of a year each. With --rare
    replications are short and failures are drawn more often than they happen, each loss weighing less: for losses too
    rare to be seen. The same seed gives the same figures on any number of cores. What is modelled and what is left
    out: pyhooks/simulation/partition_machine.py; where the defaults come from: kip/model.md.
    """
    given = {
        fl.BROKER.option: broker_failure, fl.STOP.option: broker_restart, fl.LAG.option: lag, fl.DISK.option: disk_loss,
        fl.RACK.option: rack_outage, fl.RACK_DISKS.option: rack_loss, fl.POWER.option: power_share,
        fl.BURST_SHARE.option: burst_share, fl.BURST_SIZE.option: burst_size, fl.BURST_ONE_RACK.option: burst_one_rack,
        fl.BURST_SPREAD.option: burst_spread, fl.SESSION.option: session, fl.LAG_MAX.option: lag_max,
        fl.FLUSH.option: flush, fl.CATCH_UP.option: catch_up, fl.COPY.option: copy,
    }  # fmt: skip
    if not 0 < years <= MAX_YEARS:
        raise RackgateError(f"--years {years:g}: expected more than 0 and at most {MAX_YEARS:g}")
    made, names = plan(
        racks, rf=rf, where=where, partitions=partitions, topics=topics, settings=setting or list(SETTINGS), seed=seed,
        given=given,
    )  # fmt: skip
    if rare:
        made = rarely(made)
    elif years < 1:
        made = _with_length(made, years)
    replications = max(1, round(years * YEAR_S / made.counts_s))
    if replications > MAX_REPLICATIONS:
        raise RackgateError(f"--years {years:g}: {replications} replications: at most {MAX_REPLICATIONS}")
    from pyhooks.simulation import report, spark_replications
    from pyhooks.simulation.summary import summarise

    began = time.monotonic()
    with _progress(Console(stderr=True), replications) as tell:
        done = spark_replications.simulate(made, replications, master=master, tell=tell)
    judged, took = summarise(done.found, made), report.Took(replications, time.monotonic() - began, done.cpu_s)
    if as_json:
        sys.stdout.write(report.simulated_json(judged, made, names, given, took) + "\n")
        return
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=WIDTH)
    report.print_simulated(console, judged, made, took)


def plan(
    racks: str,
    *,
    rf: int = 3,
    where: str | None = None,
    partitions: int = 1000,
    topics: int | None = None,
    settings: list[str],
    seed: int = 1,
    given: dict[str, str],
) -> tuple[Any, list[str]]:
    """What a person asks for; and the names of the racks.

    Raises:
        RackgateError: something is not well written, or does not fit together.
    """
    from pyhooks.simulation.machine_script import Timing
    from pyhooks.simulation.replication import Plan

    room = dict(sorted(parse(racks, "--racks").items()))
    if sum(room.values()) > MAX_BROKERS:
        raise RackgateError(f"--racks {racks}: {sum(room.values())} brokers: at most {MAX_BROKERS}")
    placements: tuple[tuple[int, ...], ...] = ()
    if where is not None:
        wanted = placement(where, "--placement", room)
        rf = wanted.replicas
        placements = _rotated(room, dict(zip(wanted.racks, wanted.counts, strict=True)), partitions)
    elif rf > sum(room.values()):
        raise RackgateError(f"--rf {rf}: --racks has {sum(room.values())} brokers, and each takes one replica")
    if topics is not None and topics > partitions:
        raise RackgateError(f"--topics {topics}: there are {partitions} partitions, and each topic has one")

    def duration(default: Default) -> float:
        return seconds(given.get(default.option, default.value), default.option, most_s=YEAR_S / 12)

    timing = Timing(
        session_s=duration(fl.SESSION),
        lag_s=duration(fl.LAG_MAX),
        flush_s=duration(fl.FLUSH),
        catch_up=fl.number(given.get(fl.CATCH_UP.option, fl.CATCH_UP.value), fl.CATCH_UP.option, 0.0, 10.0),
        copy_s=duration(fl.COPY),
    )
    made = Plan(
        racks=tuple(room.values()),
        topics=topics or max(1, partitions // 100),
        partitions=partitions,
        factor=rf,
        placements=placements,
        settings=tuple(_setting(text, rf) for text in settings),
        faults=fl.faults(given),
        timing=timing,
        counts_s=YEAR_S,
        seed=seed,
    )
    return made, list(room)


def _rotated(room: dict[str, int], wanted: dict[str, int], partitions: int) -> tuple[tuple[int, ...], ...]:
    """As an even assignment by hand: brokers of a rack in turn, and leaders too."""
    first = dict(zip(room, [0, *_running(list(room.values()))], strict=False))
    found = []
    for number in range(partitions):
        replicas = [first[rack] + (number + one) % room[rack] for rack, count in wanted.items() for one in range(count)]
        turn = number % len(replicas)
        found.append(tuple(replicas[turn:] + replicas[:turn]))
    return tuple(found)


def _running(numbers: list[int]) -> list[int]:
    total, found = 0, []
    for one in numbers:
        total += one
        found.append(total)
    return found


def _setting(text: str, rf: int) -> Any:
    from pyhooks.simulation.machine_script import NEVER, Setting

    wrong = f"--setting {text}: expected M,R such as 2,2, and then lower=30m or elr=replicas"
    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        raise RackgateError(wrong)
    minimum = {"M": int(parts[0]), "R": int(parts[1])}
    for name, value in minimum.items():
        if not 1 <= value <= rf:
            raise RackgateError(f"--setting {text}: {name} is {value}: expected 1 to {rf}, the replication factor")
    lower_s, elr = NEVER, ELRS[0]
    for part in parts[2:]:
        word, _, value_text = part.partition("=")
        if word == "lower":
            lower_s = seconds(value_text, f"--setting {text}: lower", most_s=YEAR_S / 12)
        elif word == "elr" and value_text in ELRS:
            elr = next(one for one in ELRS if one == value_text)
        else:
            raise RackgateError(wrong)
    return Setting(minimum["M"], minimum["R"], elr, lower_s)


def rarely(made: Any) -> Any:
    """The same plan, for rare losses: short replications, and what leads to losses drawn more often."""
    from dataclasses import replace

    from pyhooks.simulation import rare_losses
    from pyhooks.simulation.bursts import Law
    from pyhooks.simulation.replication import layout

    short = _with_length(made, made.stretch.warm_s * _RARE_COUNTS / YEAR_S)
    cluster, placed = layout(made)
    law = Law.of(made.faults, cluster.sizes)
    biased = rare_losses.balanced(
        short.faults,
        short.stretch,
        replicas=short.factor,
        racks=max(len(set(pattern)) for pattern in placed.patterns),
        bursts_per_s=law.per_s * float(law.meets(rare_losses.in_racks(cluster, placed.replicas)).mean()),
    )
    return replace(short, biased=biased)


def _with_length(made: Any, years: float) -> Any:
    from dataclasses import replace

    return replace(made, counts_s=years * YEAR_S)


@contextmanager
def _progress(console: Console, replications: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; else a line now and then."""
    if not console.is_terminal:
        yield _teller(lambda line: console.print(line, highlight=False))
        return
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=replications)
        yield lambda done, _: bar.update(task, completed=done)


def _teller(write: Callable[[str], None]) -> Callable[[int, int], None]:
    begun = told = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told < _TELL_S or done >= of:
            return
        told = now
        left_s = int((now - begun) * (of - done) / done) if done else 0
        write(f"{done} of {of} replications" + (f", about {left_s // 60}:{left_s % 60:02d} left" if done else ""))

    return tell
