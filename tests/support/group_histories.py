"""Events of consumer group members, for generated histories."""

from __future__ import annotations

from typing import Any

from pyhooks.history.event_log import Event, Outcome
from written_histories import S, event

RETRIABLE = "org.apache.kafka.clients.consumer.RetriableCommitFailedException"
OVERTAKEN = "org.apache.kafka.clients.consumer.CommitFailedException"


def at(moment_s: float) -> int:
    return round(moment_s * S)


def member(moment_s: float, op: str, run: str, outcome: Outcome | None = None, **more: Any) -> Event:
    return event(at(moment_s), "member", op, outcome, run=run, group="g", protocol="classic", **more)


def has(moment_s: float, run: str, *now: str, op: str = "assigned") -> Event:
    return member(moment_s, op, run, partitions=list(now), now=list(now))
