"""Failure rates of a simulated cluster, their command-line options and the sources of the defaults.

Faults arrive independently of each other, at constant rates (Poisson), and last for exponentially distributed times. A
fault of a broker that is already unavailable prolongs its outage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.placement import failure_rates
from pyhooks.placement.failure_rates import YEAR_S, OptionDefault
from pyhooks.simulation.partition_machine import Timing

MAX_PER_YEAR = 10_000.0


@dataclass(frozen=True)
class SpellRate:
    """Rate and mean duration of a fault of each broker or rack."""

    per_year: float
    mean_s: float


@dataclass(frozen=True)
class BurstRates:
    """Failures of brokers that come together."""

    share: float  # fraction of all failures of brokers
    size: float  # mean number of brokers in a burst, at least 2, if there are as many
    one_rack: float  # fraction of bursts within one rack; the others take brokers from anywhere
    spread_s: float  # time within which the failures of a burst begin


@dataclass(frozen=True)
class FaultRates:
    """All faults of a cluster.

    ``power`` is the fraction of failures of brokers and outages of racks that lose unflushed data. In the others the
    process crashes, or the rack is partitioned.
    """

    broker: SpellRate  # including failures in bursts
    stop: SpellRate  # clean restarts
    lag: SpellRate  # slow as a follower
    disk: SpellRate  # until the disk is replaced; then everything is copied
    rack: SpellRate
    rack_disks: SpellRate  # all disks of a rack
    power: float
    bursts: BurstRates


BROKER = OptionDefault(
    "--broker-failure", failure_rates.BROKER_AWAY.value, "as `--broker-away` of `rackgate model exact`"
)
STOP = OptionDefault("--broker-restart", "12x2m", "assumed: an upgrade or a change of configuration each month")
LAG = OptionDefault("--lag", "4x5m", "assumed: no published rate was found")
DISK = OptionDefault(
    "--disk-loss", "0.0157x20h", "as `--broker-destroyed` of `rackgate model exact`; 24 h with `--copy`"
)
RACK = OptionDefault("--rack-outage", failure_rates.RACK_AWAY.value, "as `--rack-away` of `rackgate model exact`")
RACK_DISKS = OptionDefault("--rack-loss", "0.001x20h", "assumed, as `--rack-destroyed` of `rackgate model exact`")
POWER = OptionDefault("--power-share", "0.1", "assumed: most failures end a process or a link, not the power")
BURST_SHARE = OptionDefault(
    "--burst-share", "0.37", "fraction of failures that are part of a burst (Ford et al., OSDI 2010, by anantjain.dev)"
)
BURST_SIZE = OptionDefault("--burst-size", "3", "assumed: most bursts are small; 2 is the least")
BURST_ONE_RACK = OptionDefault(
    "--burst-one-rack", "0.5", "assumed; most large ones are tied to racks (the same, by out13.com)"
)
BURST_SPREAD = OptionDefault("--burst-spread", "2m", "assumed")
SESSION = OptionDefault("--session", "9s", "broker.session.timeout.ms of Kafka")
LAG_MAX = OptionDefault("--lag-max", "30s", "replica.lag.time.max.ms of Kafka, which checks each half of it")
FLUSH = OptionDefault("--flush", "30s", "vm.dirty_expire_centisecs of Linux 6; Kafka leaves flushing to the kernel")
CATCH_UP = OptionDefault("--catch-up", "0.1", "assumed: copying is ten times as fast as writing")
COPY = OptionDefault("--copy", "4h", "assumed: 1.5 TB at 100 MB/s")
DEFAULTS = (
    BROKER, STOP, LAG, DISK, RACK, RACK_DISKS, POWER, BURST_SHARE, BURST_SIZE, BURST_ONE_RACK, BURST_SPREAD, SESSION,
    LAG_MAX, FLUSH, CATCH_UP, COPY,
)  # fmt: skip


def parse_faults(options: Mapping[str, str]) -> tuple[FaultRates, Timing]:
    """Parse the values of the options, by option such as ``--lag``; missing ones have their defaults.

    Raises:
        RackgateError: a value is invalid.
    """

    def value(default: OptionDefault) -> tuple[str, str]:
        return options.get(default.option, default.value), default.option

    def duration(default: OptionDefault) -> float:
        return seconds(*value(default), max_s=YEAR_S / 12)

    faults = FaultRates(
        broker=_spell_rate(*value(BROKER)),
        stop=_spell_rate(*value(STOP)),
        lag=_spell_rate(*value(LAG)),
        disk=_spell_rate(*value(DISK)),
        rack=_spell_rate(*value(RACK)),
        rack_disks=_spell_rate(*value(RACK_DISKS)),
        power=_number(*value(POWER), 0.0, 1.0),
        bursts=BurstRates(
            share=_number(*value(BURST_SHARE), 0.0, 1.0),
            size=_number(*value(BURST_SIZE), 2.0, 1000.0),
            one_rack=_number(*value(BURST_ONE_RACK), 0.0, 1.0),
            spread_s=seconds(*value(BURST_SPREAD)),
        ),
    )
    catch_up = _number(*value(CATCH_UP), 0.0, 10.0)
    return faults, Timing(duration(SESSION), duration(LAG_MAX), duration(FLUSH), catch_up, duration(COPY))


def _spell_rate(text: str, option: str) -> SpellRate:
    """Parse ``4x1h`` (four times a year, an hour each on average), or ``0`` for never."""
    if text.strip() == "0":
        return SpellRate(0.0, 1.0)
    rate = failure_rates.outage_rate(text, option, max_s=YEAR_S / 12)
    if rate is None:
        raise RackgateError(
            f"{option} {text}: expected 4x1h (four times a year, an hour each on average), or 0 for never"
        )
    if rate[0] > MAX_PER_YEAR:
        raise RackgateError(f"{option} {text}: at most {MAX_PER_YEAR:g} times a year")
    return SpellRate(*rate)


def _number(text: str, option: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise RackgateError(f"{option} {text}: expected a number from {least:g} to {most:g}")
    return value
