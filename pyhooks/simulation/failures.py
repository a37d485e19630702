"""What fails in a cluster, how often and for how long: what the simulation is fed with, and from where.

All arrive independently of each other and of what is already away, at the same rate all the time (Poisson), and last
for times that are drawn from exponential distributions. What hits the same broker while it is away prolongs that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.placement import failure_rates
from pyhooks.placement.failure_rates import YEAR_S, Default

_SPELLS = re.compile(r"(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)x(\S+)")
MOST_A_YEAR = 10_000.0


@dataclass(frozen=True)
class Spells:
    """Something that comes again and again, to each broker or each rack.

    Attributes:
        per_year: how often, to each.
        mean_s: how long it lasts on average, in seconds.
    """

    per_year: float
    mean_s: float


@dataclass(frozen=True)
class Bursts:
    """Failures that come together.

    Attributes:
        share: of all failures of brokers.
        size: how many brokers they take on average, at least 2, where there are so many.
        one_rack: the share of bursts that stay in one rack; the others take brokers from anywhere.
        spread_s: they begin within so many seconds.
    """

    share: float
    size: float
    one_rack: float
    spread_s: float


@dataclass(frozen=True)
class Faults:
    """All that fails.

    Attributes:
        broker: failures of brokers, those in bursts included.
        stop: clean restarts.
        lag: spells in which a broker does not keep up as a follower.
        disk: losses of a broker's disk, until there is another one; then all is copied.
        rack: outages of racks.
        rack_disks: racks that are destroyed, in the same way.
        power: the share of failures of brokers, and of outages of racks, that lose what is not flushed. Of the others
            a broker's process crashes, and a rack is cut off.
        bursts: which failures of brokers come together.
    """

    broker: Spells
    stop: Spells
    lag: Spells
    disk: Spells
    rack: Spells
    rack_disks: Spells
    power: float
    bursts: Bursts


BROKER = Default("--broker-failure", failure_rates.BROKER_AWAY.value, "as `--broker-away` of `rackgate model exact`")
STOP = Default("--broker-restart", "12x2m", "assumed: an upgrade or a change of configuration each month")
LAG = Default("--lag", "4x5m", "assumed: no published rate was found")
DISK = Default("--disk-loss", "0.0157x20h", "as `--broker-destroyed` of `rackgate model exact`; 24 h with `--copy`")
RACK = Default("--rack-outage", failure_rates.RACK_AWAY.value, "as `--rack-away` of `rackgate model exact`")
RACK_DISKS = Default("--rack-loss", "0.001x20h", "assumed, as `--rack-destroyed` of `rackgate model exact`")
POWER = Default("--power-share", "0.1", "assumed: most failures end a process or a link, not the power")
BURST_SHARE = Default(
    "--burst-share",
    "0.37",
    "so many failures are part of a burst (Ford et al., OSDI 2010, by anantjain.dev)",
)
BURST_SIZE = Default("--burst-size", "3", "assumed: most bursts are small; 2 is the least")
BURST_ONE_RACK = Default(
    "--burst-one-rack", "0.5", "assumed; most large ones are tied to racks (the same, by out13.com)"
)
BURST_SPREAD = Default("--burst-spread", "2m", "assumed")
SESSION = Default("--session", "9s", "broker.session.timeout.ms of Kafka")
LAG_MAX = Default("--lag-max", "30s", "replica.lag.time.max.ms of Kafka, which looks each half of it")
FLUSH = Default("--flush", "30s", "vm.dirty_expire_centisecs of Linux 6; Kafka leaves flushing to the kernel")
CATCH_UP = Default(
    "--catch-up", "0.1", "assumed, of the time that it was away: copying is ten times as fast as writing"
)
COPY = Default("--copy", "4h", "assumed: 1.5 TB at 100 MB/s")
DEFAULTS = (
    BROKER, STOP, LAG, DISK, RACK, RACK_DISKS, POWER, BURST_SHARE, BURST_SIZE, BURST_ONE_RACK, BURST_SPREAD, SESSION,
    LAG_MAX, FLUSH, CATCH_UP, COPY,
)  # fmt: skip


def spells(text: str, option: str) -> Spells:
    """As a person writes it: ``4x1h`` is four times a year, an hour each on average; ``0`` is never.

    Raises:
        RackgateError: not of that form, or too often.
    """
    if text.strip() == "0":
        return Spells(0.0, 1.0)
    found = _SPELLS.fullmatch(text.strip())
    if found is None:
        raise RackgateError(
            f"{option} {text}: expected 4x1h (four times a year, an hour each on average), or 0 for never"
        )
    often = float(found[1])
    if often > MOST_A_YEAR:
        raise RackgateError(f"{option} {text}: at most {MOST_A_YEAR:g} times a year")
    return Spells(often, seconds(found[2], f"{option} {text}: in it,", most_s=YEAR_S / 12))


def share(text: str, option: str) -> float:
    """A part of a whole, from 0 to 1.

    Raises:
        RackgateError: it is none.
    """
    return number(text, option, 0.0, 1.0)


def number(text: str, option: str, least: float, most: float) -> float:
    """A number within bounds.

    Raises:
        RackgateError: it is none, or not within them.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise RackgateError(f"{option} {text}: expected a number from {least:g} to {most:g}")
    return value


def faults(given: Mapping[str, str]) -> Faults:
    """From what a person writes.

    Args:
        given: options, as ``--lag``, to what is written; those that are missing are as by default.

    Raises:
        RackgateError: one of them is not well written.
    """

    def of(default: Default) -> tuple[str, str]:
        return given.get(default.option, default.value), default.option

    spread, option = of(BURST_SPREAD)
    size, size_option = of(BURST_SIZE)
    return Faults(
        broker=spells(*of(BROKER)),
        stop=spells(*of(STOP)),
        lag=spells(*of(LAG)),
        disk=spells(*of(DISK)),
        rack=spells(*of(RACK)),
        rack_disks=spells(*of(RACK_DISKS)),
        power=share(*of(POWER)),
        bursts=Bursts(
            share(*of(BURST_SHARE)),
            number(size, size_option, 2.0, 1000.0),
            share(*of(BURST_ONE_RACK)),
            seconds(spread, option),
        ),
    )
