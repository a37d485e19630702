"""Audit in two places: each record goes to the file first and then to the topic; reading merges both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pyhooks.audit.audit_record import AuditRecord, NotARecordError, UnknownFormatError, parse_record
from pyhooks.audit.replay import Lowering, replay
from pyhooks.core.errors import RackgateError

# A name that Kafka's tools list like any other: two leading underscores would suggest a topic of Kafka itself.
DEFAULT_TOPIC = "rackgate-audit"


@dataclass(frozen=True)
class ReadRecords:
    """Records of one place, in their order."""

    records: tuple[AuditRecord, ...] = ()
    # lines that are no records, such as that of a writer that was killed: its next step did not happen either
    damaged: int = 0
    # reasons why there may be records that this version does not understand
    unknown: tuple[str, ...] = ()


class RecordStore(Protocol):
    """Place that keeps records and never changes them."""

    def read(self) -> ReadRecords:
        """Return all records.

        Raises:
            RackgateError: they can't be read.
        """

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Append records and return once they are safe there.

        Raises:
            RackgateError: they can't be appended, or it is not known whether they were.
        """


class LockedStore(RecordStore, Protocol):
    """Store with a lock that excludes other processes that change topics with the same store."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock within the block.

        Raises:
            RackgateError: another process holds it for too long.
        """


@dataclass(frozen=True)
class AuditContents:
    """Records of a cluster, as read from file and topic."""

    cluster: str  # Kafka's cluster id; records of other clusters, which a file may have, are left out
    file: ReadRecords
    topic: ReadRecords
    topic_error: str = ""  # reason why the topic can't be read, or empty

    @property
    def lowerings(self) -> tuple[Lowering, ...]:
        """All lowerings, oldest first."""
        return replay((*self.file.records, *self.topic.records))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Reasons why there may be lowerings that are not known here."""
        reasons = [f"the audit file has a record that can't be used: {why}" for why in self.file.unknown]
        reasons += [f"the audit topic has a record that can't be used: {why}" for why in self.topic.unknown]
        if self.topic_error:
            reasons.append(
                f"the audit topic can't be read, so lowerings by other hosts are not known: {self.topic_error}"
            )
        return tuple(reasons)

    def open_lowerings(self, topic: str) -> tuple[Lowering, ...]:
        """Return the open lowerings of a topic, oldest first."""
        return tuple(one for one in self.lowerings if one.open and one.terms.topic == topic)


@dataclass(frozen=True)
class AuditJournal:
    """Audit of one cluster."""

    cluster: str  # Kafka's cluster id; empty if it is not known, for reading the records of all clusters in the file
    file: LockedStore  # of this host
    topic: RecordStore  # of the cluster

    def lock(self) -> AbstractContextManager[None]:
        """Exclude other processes that use the same file within the block.

        Raises:
            RackgateError: another process holds the lock for too long.
        """
        return self.file.lock()

    def read(self) -> AuditContents:
        """Return the records of this cluster; a topic that can't be read is part of the result.

        Raises:
            RackgateError: the file can't be read.
        """
        file = self._own(self.file.read())
        try:
            return AuditContents(self.cluster, file, self._own(self.topic.read()))
        except RackgateError as error:
            return AuditContents(self.cluster, file, ReadRecords(), str(error))

    def append(self, records: Sequence[AuditRecord]) -> str:
        """Append records to the file and then to the topic, with those of the file that the topic does not have.

        Returns:
            Reason why the topic does not have them, or why that is not known; empty if it has.

        Raises:
            RackgateError: they can't be written to the file.
        """
        self.file.append(records)
        try:
            known = {record.record for record in self.topic.read().records}
            missing = [record for record in self._own(self.file.read()).records if record.record not in known]
            self.topic.append(missing)
        except RackgateError as error:
            return str(error)
        return ""

    def _own(self, read: ReadRecords) -> ReadRecords:
        records = tuple(record for record in read.records if self.cluster in ("", record.terms.cluster))
        return ReadRecords(records, read.damaged, read.unknown)


def parse_records(lines: Iterator[bytes] | Sequence[bytes]) -> ReadRecords:
    """Parse the records of a file or topic, one a line."""
    records: list[AuditRecord] = []
    damaged, unknown = 0, []
    for line in lines:
        try:
            records.append(parse_record(line))
        except NotARecordError:
            damaged += 1
        except UnknownFormatError as error:
            unknown.append(str(error))
    return ReadRecords(tuple(records), damaged, tuple(dict.fromkeys(unknown)))
