"""Events from a cluster's metadata log, read from a stopped controller's disk with Kafka's own tool.

The events have process ``metadata-log`` and the time at which the controller appended the records, converted to the
monotonic clock of this process. Op ``metadata``, ``data`` ``{offset, records}``: all records appended at that time
about brokers, partitions and topics' requirements, each as ``[type, data]``. Op ``metadata-end``, ``data``
``{controller, low, next, error_ns}``, has the time of the last batch; all times may be off by ``error_ns``. Its outcome
is ``unknown``, with ``error``, if the log is empty or records are missing.

An idle controller appends a record twice a second (``metadata.max.idle.interval.ms``), so the end of the log shows
until when the metadata is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History, Outcome

PROCESS = "metadata-log"
OP, END = "metadata", "metadata-end"
TOPIC = "__cluster_metadata-0"
KINDS = frozenset(
    {
        "TOPIC_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_CHANGE_RECORD",
        "CONFIG_RECORD",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "UNREGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
    }
)
_RECORD = re.compile(r"^\| offset: (\d+) .*?CreateTime: (\d+) .*?(?:payload: (\{.*\}))?$")


@dataclass(frozen=True)
class Record:
    """Record of the metadata log.

    Attributes:
        offset: offset in the log.
        at_ms: append time by the controller's clock, in milliseconds since the epoch.
        kind: Kafka's name of its type; empty for a control record.
        data: its fields, without those that have default values.
    """

    offset: int
    at_ms: int
    kind: str
    data: dict[str, Any]


def words(segments: Iterable[str]) -> list[str]:
    """Return the arguments of Kafka's ``dump-log`` whose output ``parse`` reads.

    Args:
        segments: log segment files, in order.
    """
    return ["--cluster-metadata-decoder", "--files", ",".join(segments)]


def parse(text: str) -> Iterator[Record]:
    """Parse the records in the output of Kafka's ``dump-log``.

    Raises:
        RackgateError: a record line can't be parsed.
    """
    for line in text.splitlines():
        if not line.startswith("| offset: "):
            continue
        found = _RECORD.match(line)
        try:
            if found is None:
                raise ValueError("offset, time or payload is missing")
            told: dict[str, Any] = json.loads(found[3]) if found[3] else {"type": "", "data": {}}
            yield Record(int(found[1]), int(found[2]), str(told["type"]), dict(told["data"]))
        except (ValueError, KeyError, TypeError) as error:
            raise RackgateError(f"can't read a line of the metadata log: {line[:120]!r}: {error}") from error


def note(records: Iterable[Record], history: History, *, controller: int, ahead_ns: int, error_ns: int) -> None:
    """Write the events of a metadata log to a history.

    Args:
        records: in order, from the first one on.
        history: history to append to.
        controller: id of the controller whose disk has the log.
        ahead_ns: difference between the controller's wall clock and this process's monotonic clock.
        error_ns: maximum error of that difference.
    """
    found = list(records)
    events: list[Event] = []
    for at_ms, group in groupby(found, key=lambda one: one.at_ms):
        same = [one for one in group if one.kind in KINDS]
        if same:
            told = {"offset": same[0].offset, "records": [[one.kind, one.data] for one in same]}
            events.append(_event(at_ms, ahead_ns, OP, told))
    if not found:
        history.note(PROCESS, END, "unknown", controller=controller, error="the log holds nothing")
        return
    last: dict[str, Any] = {"controller": controller, "low": found[0].offset, "next": found[-1].offset + 1}
    last["error_ns"] = error_ns
    gaps = [later.offset for one, later in pairwise(found) if later.offset != one.offset + 1]
    if found[0].offset or gaps:
        last["error"] = f"records are missing before offset {found[0].offset or gaps[0]}"
    history.extend([*events, _event(found[-1].at_ms, ahead_ns, END, last)])


def _event(at_ms: int, ahead_ns: int, op: str, data: dict[str, Any]) -> Event:
    outcome: Outcome = "unknown" if "error" in data else "ok"
    return Event(at_ms * 1_000_000 - ahead_ns, at_ms, PROCESS, op, outcome, None, data)
