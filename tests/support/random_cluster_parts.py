"""Parts of the cluster in ``random_cluster``: partitions, records in flight, faults and their stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyhooks.history.event_log import Outcome


@dataclass
class Part:
    """A partition. While its ISR is empty, ``eligible`` has the last members, which have all acknowledged records."""

    replicas: list[int]
    logs: dict[int, list[str | None]]
    isr: list[int]
    leader: int
    eligible: set[int] = field(default_factory=set)
    target: list[int] | None = None
    adding: int = 0
    hw: int = 0
    low: int = 0
    stable: int | None = None
    dead_ns: int | None = None
    behind_ns: int | None = None
    changed_ns: list[int] = field(default_factory=list)
    placed: set[frozenset[int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.placed.add(frozenset(self.replicas))


@dataclass
class Sent:
    """A record, in flight or completed. ``fate`` is the broker's response once it is decided.

    ``ungated``: acknowledged when its ISR shrank to too few racks, which no correct cluster does.
    """

    key: str
    part: int
    sent_ns: int
    data: dict[str, Any]
    fate: Outcome | None = None
    offset: int | None = None
    exception: str | None = None
    racks: int = 0
    done_ns: int = 0
    ungated: bool = False


@dataclass
class Outage:
    """A fault. A time is None if the step did not happen or was not verified.

    By broker and partition, ``took`` has the records that a wipe deleted, and ``back_ns`` when it rejoined the ISR.
    """

    op: str
    rack: str
    broker: int | None
    brokers: frozenset[int]
    wipe: bool
    fails: bool
    inject_ns: int
    stage: int = 1
    stage_ns: int = 0
    proved_ns: int | None = None
    heal_ns: int | None = None
    healed_ns: int | None = None
    took: dict[tuple[int, int], set[str | None]] = field(default_factory=dict)
    back_ns: dict[tuple[int, int], int] = field(default_factory=dict)


STAGES = 6
