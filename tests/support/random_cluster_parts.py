"""Parts of the cluster of ``random_cluster``: partitions, records in flight, faults and their stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyhooks.history.event_log import Outcome


@dataclass
class Part:
    """A partition; ``eligible`` are the members of the last ISR, with all that is acknowledged, while it has none."""

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
    """A record in flight or answered; ``fate`` is the broker's response as soon as it can send one.

    ``ungated`` is one that was acknowledged when its ISR shrank to too few, as no correct cluster does.
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
    """A fault; its moments are None where they did not come, or were not proved.

    ``took`` has the records that a wipe took of each broker and partition, ``back_ns`` since when it is in sync again.
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
