"""Failure probabilities of brokers and racks: input of the model, with defaults and their sources.

Each is written as a probability (``0.01``) or as a rate. ``4x1h`` means unavailable four times a year for an hour each.
``0.0157/y`` means destroyed that often a year; the window turns this rate into a probability.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError

YEAR_S = 365.25 * 24 * 3600
WINDOW_MAX_S = YEAR_S
_NUMBER = r"(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
_OUTAGE_RATE = re.compile(_NUMBER + r"x(\S+)")
_DESTRUCTION_RATE = re.compile(_NUMBER + r"/y")


@dataclass(frozen=True)
class FailureProbabilities:
    """Failure probabilities, each from 0 to 1. All brokers are alike and independent, and so are all racks."""

    # a broker is out of the ISR at a random moment, independently of its rack: failed, restarting, partitioned or
    # lagging
    broker_away: float
    rack_away: float  # a rack with all its brokers is unavailable at a random moment
    # a replica with an acknowledged record is destroyed within the window after the acknowledgement, independently of
    # its rack: by its disk, or anything else that lets the broker return without the record
    broker_destroyed: float
    # all replicas in a rack are destroyed within the window by one cause. A power loss counts for records that no
    # broker has flushed yet
    rack_destroyed: float


@dataclass(frozen=True)
class OptionDefault:
    """Default of a command-line option, as written there, and its source."""

    option: str
    value: str
    source: str


BROKER_AWAY = OptionDefault(
    "--broker-away",
    "0.56x1h",
    "1,000 machine failures in the first year of 1,800 servers (J. Dean, Google I/O 2008, by datacenterknowledge.com)."
    " The hour is assumed: Ford et al. (OSDI 2010) wait 15 minutes before they act, and a broker has to catch up",
)
RACK_AWAY = OptionDefault(
    "--rack-away",
    "0.67x3.5h",
    "20 failures of racks of 40 to 80 machines, in the same year of the same 1,800 servers; 1 to 6 hours to get back"
    " (J. Dean, Data-Intensive Computing Symposium 2008, by e-mats.org): 60 machines and 3.5 hours are the middle",
)
BROKER_DESTROYED = OptionDefault(
    "--broker-destroyed",
    "0.0157/y",
    "disks that failed in 2024 (Backblaze, by noise.getoto.net); a replica is on one disk",
)
RACK_DESTROYED = OptionDefault(
    "--rack-destroyed",
    "0.001/y",
    "assumed: no published rate was found. That it happens: use1-az4 lost power on 22 December 2021, and some of its"
    " volumes could not be recovered (theregister.com)",
)
WINDOW = OptionDefault("--window", "24h", "assumed: Kafka does not replace a lost replica by itself, a person does")
DEFAULTS = (BROKER_AWAY, RACK_AWAY, BROKER_DESTROYED, RACK_DESTROYED, WINDOW)


def parse_probabilities(
    broker_away: str, rack_away: str, broker_destroyed: str, rack_destroyed: str, window: str
) -> FailureProbabilities:
    """Parse the values of the command-line options.

    Raises:
        RackgateError: a value is neither a probability nor a rate, or the window is not a duration.
    """
    window_s = seconds(window, WINDOW.option, max_s=WINDOW_MAX_S)
    return FailureProbabilities(
        parse_unavailable_share(broker_away, BROKER_AWAY.option),
        parse_unavailable_share(rack_away, RACK_AWAY.option),
        parse_destruction_probability(broker_destroyed, BROKER_DESTROYED.option, window_s),
        parse_destruction_probability(rack_destroyed, RACK_DESTROYED.option, window_s),
    )


def parse_unavailable_share(text: str, option: str) -> float:
    """Parse a share of time: a probability (``0.01``), or outages a year and their duration (``4x1h``).

    Raises:
        RackgateError: the text has neither form, or the share is above 1.
    """
    rate = outage_rate(text, option, max_s=YEAR_S)
    if rate is None:
        return _parse_probability(text, option, "4x1h (four times a year, an hour each)")
    share = rate[0] * rate[1] / YEAR_S
    if share > 1:
        raise RackgateError(f"{option} {text}: that is more than a year in each year")
    return share


def outage_rate(text: str, option: str, *, max_s: float) -> tuple[float, float] | None:
    """Parse ``4x1h`` and return the number of outages a year and their duration in seconds; None for another form."""
    match = _OUTAGE_RATE.fullmatch(text.strip())
    return (float(match[1]), seconds(match[2], f"{option} {text}: in it,", max_s=max_s)) if match else None


def parse_destruction_probability(text: str, option: str, window_s: float) -> float:
    """Parse the probability of destruction within a window: a probability (``0.001``), or a rate (``0.0157/y``).

    Raises:
        RackgateError: the text has neither form.
    """
    match = _DESTRUCTION_RATE.fullmatch(text.strip())
    if match is None:
        return _parse_probability(text, option, "0.01/y (once in a hundred years)")
    return -math.expm1(-float(match[1]) * window_s / YEAR_S)


def _parse_probability(text: str, option: str, otherwise: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise RackgateError(f"{option} {text}: expected a probability from 0 to 1, such as 0.01, or {otherwise}")
    return value
