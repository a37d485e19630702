"""Events from a cluster's metadata log, read from a stopped controller's disk with Kafka's own tool.

The events (``MetadataDetails``) have the time at which the controller appended the records, converted to the monotonic
clock of this process, and its records about brokers, partitions and topics' requirements. ``MetadataEndDetails`` has
the time of the last batch.

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
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import MetadataDetails, MetadataEndDetails

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
class MetadataRecord:
    """Record of the metadata log."""

    offset: int
    at_ms: int  # append time by the controller's clock, in milliseconds since the epoch
    kind: str  # Kafka's name of its type; empty for a control record
    data: dict[str, Any]  # its fields, without those that have default values


def dump_arguments(segments: Iterable[str]) -> list[str]:
    """Return the arguments of Kafka's ``dump-log`` whose output ``parse_dump`` reads."""
    return ["--cluster-metadata-decoder", "--files", ",".join(segments)]


def parse_dump(text: str) -> Iterator[MetadataRecord]:
    """Parse the records in the output of Kafka's ``dump-log``.

    Raises:
        RackgateError: a record line can't be parsed.
    """
    for line in text.splitlines():
        if not line.startswith("| offset: "):
            continue
        match = _RECORD.match(line)
        try:
            if match is None:
                raise ValueError("offset, time or payload is missing")
            parsed: dict[str, Any] = json.loads(match[3]) if match[3] else {"type": "", "data": {}}
            yield MetadataRecord(int(match[1]), int(match[2]), str(parsed["type"]), dict(parsed["data"]))
        except (ValueError, KeyError, TypeError) as error:
            raise RackgateError(f"can't read a line of the metadata log: {line[:120]!r}: {error}") from error


def write_events(
    records: Iterable[MetadataRecord], history: History, *, controller: int, ahead_ns: int, error_ns: int
) -> None:
    """Write the events of a metadata log to a history.

    Args:
        records: in order, from the first one on.
        history: history to append to.
        controller: id of the controller whose disk has the log.
        ahead_ns: difference between the controller's wall clock and this process's monotonic clock.
        error_ns: maximum error of that difference.
    """
    listed = list(records)
    events: list[Event] = []
    for at_ms, group in groupby(listed, key=lambda record: record.at_ms):
        same = [record for record in group if record.kind in KINDS]
        if same:
            batch = MetadataDetails(offset=same[0].offset, records=tuple((record.kind, record.data) for record in same))
            events.append(batch.event_at(at_ms * 1_000_000 - ahead_ns, at_ms, "ok"))
    if not listed:
        history.add(MetadataEndDetails(controller=controller, error="the log is empty"), "unknown")
        return
    gaps = [later.offset for earlier, later in pairwise(listed) if later.offset != earlier.offset + 1]
    missing = listed[0].offset or (gaps[0] if gaps else 0)
    end = MetadataEndDetails(
        controller=controller,
        low=listed[0].offset,
        next=listed[-1].offset + 1,
        error_ns=error_ns,
        error=f"records are missing before offset {missing}" if missing else None,
    )
    last_ms = listed[-1].at_ms
    history.extend([*events, end.event_at(last_ms * 1_000_000 - ahead_ns, last_ms, "unknown" if missing else "ok")])
