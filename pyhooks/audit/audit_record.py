"""Record of the audit: one step of lowering or restoring a topic's ``min.insync.racks`` (R), as a line of JSON.

Each record has all terms of its lowering, so that one that is lost leaves the others understandable.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import parse_json

FORMAT = 1
Event = Literal["intended", "abandoned", "applied", "restoring", "superseded", "restored"]
# In the order in which they follow one another; of two records of a lowering the later one in this order counts.
EVENTS: tuple[Event, ...] = get_args(Event)
# After these the lowering no longer asks for a restoration.
CLOSED: frozenset[Event] = frozenset({"abandoned", "superseded", "restored"})


class NotARecordError(RackgateError):
    """The text is not a complete record, for example because its writer was killed."""


class UnknownFormatError(RackgateError):
    """The text is JSON, but no record that this version understands."""


@dataclass(frozen=True)
class Terms:
    """Terms of a lowering: what was changed, why and until when."""

    lowering: str  # id of the command; with ``topic`` the id of the lowering
    cluster: str  # Kafka's cluster id
    topic: str
    reason: str
    lowered_by: str  # user and host
    began: datetime
    old: int | None  # value of R on the topic before; None if the topic had none and inherited the cluster's
    old_racks: int  # R in force before
    new: int  # value of R that is set on the topic
    until: datetime | None  # when it is to be restored at the latest; None for no such time
    until_healed: bool  # whether it is to be restored as soon as racks are back

    @property
    def key(self) -> tuple[str, str]:
        """Id of the lowering of this topic."""
        return self.lowering, self.topic


@dataclass(frozen=True)
class AuditRecord:
    """Step of a lowering."""

    record: str  # unique id; the copies in file and topic have the same
    event: Event
    at: datetime
    by: str  # user and host
    note: str  # details for people, or empty
    terms: Terms


def make_record(event: Event, terms: Terms, *, at: datetime, by: str, note: str = "") -> AuditRecord:
    """Return a new record with an id of its own."""
    return AuditRecord(uuid.uuid4().hex, event, at, by, note, terms)


def author() -> str:
    """Return user and host of this process, as ``alice@host``; of ``sudo`` the user who called it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    caller = os.environ.get("SUDO_USER", "")
    return (
        f"{caller} as {user}@{socket.gethostname()}" if caller not in ("", user) else f"{user}@{socket.gethostname()}"
    )


def now() -> datetime:
    """Return the current time in UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def time_text(at: datetime | None) -> str | None:
    """Return a time as ISO 8601 in UTC, or None."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def terms_json(terms: Terms) -> dict[str, Any]:
    """Return the JSON object of terms; times are texts."""
    return {name: time_text(value) if isinstance(value, datetime) else value for name, value in vars(terms).items()}


def record_json(record: AuditRecord) -> dict[str, Any]:
    """Return the JSON object of a record, which has its terms, too."""
    own = {**vars(record), "at": time_text(record.at)}
    del own["terms"]
    return {"format": FORMAT, **own, **terms_json(record.terms)}


def format_record(record: AuditRecord) -> bytes:
    """Return a record as one line of ASCII JSON, without the newline."""
    return json.dumps(record_json(record), separators=(",", ":")).encode("ascii")


def parse_record(line: bytes) -> AuditRecord:
    """Parse a record.

    Raises:
        NotARecordError: it is not JSON.
        UnknownFormatError: it is JSON, but has another format or invalid values.
    """
    try:
        found = parse_json(line.decode("utf-8"))
    except ValueError as error:
        raise NotARecordError(f"not JSON: {error}") from error
    try:
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']!r:.20}, this version knows {FORMAT}")
        if found["event"] not in EVENTS:
            raise ValueError(f"event {found['event']!r:.40}")
        terms = Terms(**{name: read(found[name]) for name, read in _TERMS.items()})
        own = (_text(found["record"]), found["event"], _time(found["at"]), _text(found["by"]), _text(found["note"]))
        return AuditRecord(*own, terms)
    except (KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UnknownFormatError(f"no audit record that this version understands: {why:.200}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def _minimum(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r:.40} is no number of racks")
    return value


def _time(value: object) -> datetime:
    parsed = datetime.fromisoformat(_text(value))
    if parsed.tzinfo is None:
        raise ValueError(f"{value!r:.40} has no time zone")
    return parsed


_TERMS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("lowering", "cluster", "topic", "reason", "lowered_by"), _text),
    "began": _time,
    "old": lambda value: None if value is None else _minimum(value),
    **dict.fromkeys(("old_racks", "new"), _minimum),
    "until": lambda value: None if value is None else _time(value),
    "until_healed": lambda value: value is True,
}
