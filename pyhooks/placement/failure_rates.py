"""How often brokers and racks are away, and how often they are destroyed: what the model is fed with, and from where.

A chance is written as a probability (``0.01``) or as what is known of it: ``4x1h`` is away for an hour four times a
year, ``0.0157/y`` is destroyed that often a year, of which the window makes a probability.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError

YEAR_S = 365.25 * 24 * 3600
WINDOW_MOST_S = YEAR_S
_NUMBER = r"(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
_AWAY = re.compile(_NUMBER + r"x(\S+)")
_DESTROYED = re.compile(_NUMBER + r"/y")


@dataclass(frozen=True)
class Chances:
    """Probabilities, each from 0 to 1. All brokers are alike and independent, and so are all racks.

    Attributes:
        broker_away: that a broker is not in the ISR at a random moment, for a reason of its own: failed, restarted,
            cut off or behind.
        rack_away: that a rack is away at a random moment, with all its brokers.
        broker_destroyed: that the replica of a broker which has acknowledged a record is destroyed within the window
            after that, for a reason of its own: its disk, or whatever else lets it come back without the record.
        rack_destroyed: that all replicas in a rack are destroyed within the window, together. A loss of power counts
            for records that no broker has flushed yet.
    """

    broker_away: float
    rack_away: float
    broker_destroyed: float
    rack_destroyed: float


@dataclass(frozen=True)
class Default:
    """What is taken where nothing is said.

    Attributes:
        option: by which it is set.
        value: as it would be written there.
        source: where it comes from.
    """

    option: str
    value: str
    source: str


BROKER_AWAY = Default(
    "--broker-away",
    "0.56x1h",
    "1,000 machine failures in the first year of 1,800 servers (J. Dean, Google I/O 2008, by datacenterknowledge.com)."
    " The hour is assumed: Ford et al. (OSDI 2010) wait 15 minutes before they act, and a broker has to catch up",
)
RACK_AWAY = Default(
    "--rack-away",
    "0.67x3.5h",
    "20 failures of racks of 40 to 80 machines, in the same year of the same 1,800 servers; 1 to 6 hours to get back"
    " (J. Dean, Data-Intensive Computing Symposium 2008, by e-mats.org): 60 machines and 3.5 hours are the middle",
)
BROKER_DESTROYED = Default(
    "--broker-destroyed",
    "0.0157/y",
    "disks that failed in 2024 (Backblaze, by noise.getoto.net); a replica is on one disk",
)
RACK_DESTROYED = Default(
    "--rack-destroyed",
    "0.001/y",
    "assumed: no published rate was found. That it happens: use1-az4 lost power on 22 December 2021, and some of its"
    " volumes could not be recovered (theregister.com)",
)
WINDOW = Default("--window", "24h", "assumed: Kafka does not replace a lost replica by itself, a person does")
DEFAULTS = (BROKER_AWAY, RACK_AWAY, BROKER_DESTROYED, RACK_DESTROYED, WINDOW)


def chances(broker_away: str, rack_away: str, broker_destroyed: str, rack_destroyed: str, window: str) -> Chances:
    """From what a person writes.

    Raises:
        RackgateError: one of them is not a chance, or the window not a duration.
    """
    window_s = seconds(window, WINDOW.option, most_s=WINDOW_MOST_S)
    return Chances(
        away(broker_away, BROKER_AWAY.option),
        away(rack_away, RACK_AWAY.option),
        destroyed(broker_destroyed, BROKER_DESTROYED.option, window_s),
        destroyed(rack_destroyed, RACK_DESTROYED.option, window_s),
    )


def usual() -> Chances:
    """Those of the defaults."""
    return chances(*(one.value for one in DEFAULTS))


def away(text: str, option: str) -> float:
    """A share of time: a probability, or how often a year and for how long.

    Args:
        text: ``0.01`` or ``4x1h``.
        option: by which it was given, for the error.

    Raises:
        RackgateError: neither of them, or more than always.
    """
    found = _AWAY.fullmatch(text.strip())
    if found is None:
        return _probability(text, option, "4x1h (four times a year, an hour each)")
    share = float(found[1]) * seconds(found[2], f"{option} {text}: in it,", most_s=YEAR_S) / YEAR_S
    if share > 1:
        raise RackgateError(f"{option} {text}: that is more than a year in each year")
    return share


def destroyed(text: str, option: str, window_s: float) -> float:
    """The probability that it happens within a window: as given, or from how often it happens in a year.

    Args:
        text: ``0.001`` or ``0.0157/y``.
        option: by which it was given, for the error.
        window_s: length of the window, in seconds.

    Raises:
        RackgateError: neither of them.
    """
    found = _DESTROYED.fullmatch(text.strip())
    if found is None:
        return _probability(text, option, "0.01/y (once in a hundred years)")
    return -math.expm1(-float(found[1]) * window_s / YEAR_S)


def _probability(text: str, option: str, otherwise: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise RackgateError(f"{option} {text}: expected a probability from 0 to 1, such as 0.01, or {otherwise}")
    return value
