"""Cluster, audit file and audit topic in memory, whose every operation a test can stop, delay or fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyhooks.audit.audit_record import AuditRecord, Terms
from pyhooks.audit.journal import AuditContents, AuditJournal, ReadRecords
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.topics import RejectedError
from pyhooks.outage.steps import Operator, Patience
from pyhooks.placement.gate_forecast import ReportedPartition
from pyhooks.placement.topic_observation import ObservedTopic

TOPIC, CLUSTER = "orders", "cluster-id"
START = datetime(2026, 1, 1, tzinfo=UTC)
RACKS = {1: "a", 2: "a", 3: "b"}
HEALED, SHRUNK = (1, 2, 3), (1, 2)


class KilledError(BaseException):
    """End of an operator's process."""


Turn = Callable[[str], None]


def no_turn(_: str) -> None:
    """Let each operation happen at once."""


@dataclass
class FakeCluster:
    """Topic on racks a, a, b with M=2.

    Attributes:
        own: R on the topic, or None.
        inherited: R of topics without a value.
        isr: in-sync replicas.
        results: results of the next changes: ``done``, ``rejected``, ``lost`` (a timeout, not applied) or ``late`` (a
            timeout, applied); when there are none left, changes are done.
        reachable: whether queries succeed.
        leader: broker that leads, or -1.
        current: brokers that respond with recent metadata.
        unverified: brokers that do not report R.
    """

    own: int | None = 2
    inherited: int = 2
    isr: tuple[int, ...] = HEALED
    results: list[str] = field(default_factory=list)
    reachable: bool = True
    leader: int = 1
    current: frozenset[int] = frozenset(RACKS)
    unverified: tuple[int, ...] = ()

    def observed(self) -> ObservedTopic:
        partition = ReportedPartition(TOPIC, 0, self.leader, tuple(RACKS), self.isr)
        own = frozenset({self.own})
        return ObservedTopic(
            TOPIC, own, self.inherited, 2, (partition,), RACKS, self.current, unverified=self.unverified
        )


@dataclass
class ClusterView:
    """A cluster as one operator sees it; ``turn`` is called before and after each operation."""

    cluster: FakeCluster
    turn: Turn = no_turn

    def observe(self, topics: Collection[str]) -> Mapping[str, ObservedTopic]:
        self.turn("before observe")
        if not self.cluster.reachable:
            raise RackgateError("no response")
        found = {TOPIC: self.cluster.observed()} if TOPIC in topics else {}
        self.turn("after observe")
        return found

    def set_racks(self, topic: str, value: int | None) -> None:
        assert topic == TOPIC
        self.turn("before set")
        result = self.cluster.results.pop(0) if self.cluster.results else "done"
        if result == "rejected":
            raise RejectedError("rejected", exit_status=1)
        if result != "lost":
            self.cluster.own = value
        self.turn("after set")
        if result != "done":
            raise RackgateError("no response in time")


@dataclass
class FakeStore:
    """Records of an audit file or topic."""

    records: list[AuditRecord] = field(default_factory=list)
    available: bool = True
    locked: bool = False


@dataclass
class StoreView:
    """A store as one operator sees it."""

    store: FakeStore
    name: str
    turn: Turn = no_turn

    def read(self) -> ReadRecords:
        if not self.store.available:
            raise RackgateError(f"{self.name} is not available")
        return ReadRecords(tuple(self.store.records))

    def append(self, records: Sequence[AuditRecord]) -> None:
        self.turn(f"before {self.name}")
        if not self.store.available:
            raise RackgateError(f"{self.name} is not available")
        self.store.records += records
        self.turn(f"after {self.name}")

    @contextmanager
    def lock(self) -> Iterator[None]:
        self.turn("before lock")
        if self.store.locked:
            raise RackgateError("another process holds the lock")
        self.store.locked = True
        try:
            yield
        finally:
            self.store.locked = False


@dataclass
class Clock:
    """Clock that a test sets."""

    at: datetime = START

    def __call__(self) -> datetime:
        return self.at


def make_operator(
    cluster: FakeCluster,
    file: FakeStore,
    topic: FakeStore,
    clock: Clock,
    *,
    by: str = "alice@one",
    turn: Turn = no_turn,
) -> Operator:
    """Return an operator on a host with this audit file."""
    journal = AuditJournal(CLUSTER, StoreView(file, "file", turn), StoreView(topic, "topic", turn))
    return Operator(ClusterView(cluster, turn), journal, by, Patience(verify_s=0.0, poll_s=0.0, now=clock))


def make_terms(
    lowering: str = "id",
    *,
    old: int | None = 2,
    old_racks: int = 2,
    new: int = 1,
    minutes: int | None = 30,
    until_healed: bool = False,
    by: str = "alice@one",
    began: datetime = START,
) -> Terms:
    """Return the terms of a lowering of ``TOPIC``."""
    until = None if minutes is None else began + timedelta(minutes=minutes)
    return Terms(lowering, CLUSTER, TOPIC, "rack b", by, began, old, old_racks, new, until, until_healed)


def contents_of(file: FakeStore, topic: FakeStore) -> AuditContents:
    """Return the audit as read from both."""
    return AuditContents(CLUSTER, ReadRecords(tuple(file.records)), ReadRecords(tuple(topic.records)))
