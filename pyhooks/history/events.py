"""The event vocabulary: one frozen dataclass for the details of each kind of event, used by writers and readers.

Field names end with their unit; offsets and counts have none. Times ending in ``_ns`` are of CLOCK_MONOTONIC in
nanoseconds unless stated otherwise. Partitions are named ``topic-number``. A field of ``Omittable`` type is left out of
the stored event if it is None; stored fields that a class does not have are ignored.

Fields that mean the same everywhere are not described again: ``run``, id of the run of a producer, copier, group member
or reader; ``txn``, number of a transaction within the run; ``topic`` and ``partition``, name of a topic and number of
its partition; ``group``, group id; ``broker`` and ``node``, ids of nodes; ``begun_ns`` and ``asked_ns``, times of a
beginning and of a request; ``exception`` and ``message``, name and text of a client's error; ``error``, why something
is unknown; ``latency_ms``, milliseconds from the send or the request to the result; ``edge``, begin or end; ``arm`` and
``cycle``, arm of a comparison and number of its outage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from pyhooks.history.event_log import Details, Event, Omittable

# Process that writes the events of a test's own steps.
TEST = "test"
# Process name of the observer of leaders, ISRs and topic settings.
OBSERVER = "isr-watch"
FAULT = "fault"
# Operation of produce attempts, also used to select lines of a history before they are parsed.
PRODUCE = "produce"
# Kinds of producer clients. Stock Java clients are identified by their release.
PATCHED, CONFLUENT = "patched", "confluent"

Edge = Literal["begin", "end"]
Number = int | float
SettingsStep = Literal["made", "seen", "begin", "settled", "refused"]
LevelRequest = Literal["upgrade", "downgrade"]
FaultStep = Literal["before", "inject", "proved", "held", "heal", "healed"]


# -- producers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class IntendDetails(Details, op="intend"):
    """Records that a producer run may send from now on, written before any of them is sent.

    So even a killed producer has announced every record that can be in a log; any other record of its run is invalid.

    Attributes:
        mode: mode of the plan, see ``pyhooks.workload.producer_plan``.
        client: patched, confluent or a release.
        first_only: the client sends each record once, so rejections are definite and nothing is written twice.
        idempotent: the client must not write duplicates and must keep the order.
        acks: ``all`` or ``1``.
        record_bytes: size to which values are padded.
        to: partition to the exclusive upper bound of the sequence numbers that may be sent.
    """

    run: Omittable[str] = None
    topic: str = ""
    mode: Omittable[str] = None
    client: Omittable[str] = None
    first_only: bool
    idempotent: bool
    acks: str = "all"
    record_bytes: Omittable[int] = None
    to: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LearnDetails(Details, op="learn"):
    """A client that got no metadata of its topics before its first record, which is sent all the same."""

    run: str
    exception: str


@dataclass(frozen=True, kw_only=True)
class ProduceDetails(Details, op=PRODUCE):
    """Result of one record; the event has the time at which the client had it.

    ``ok``: acknowledged. ``fail``: certainly rejected, the record is in no log; see ``pyhooks.history.outcomes``.
    ``unknown``: everything else; after a timeout or a lost connection the record may be in the log.

    Attributes:
        key: unique key, see ``pyhooks.history.record_format``.
        seq: sequence number within run and partition.
        partition: target partition, or None if the producer left it open and did not learn it.
        intended_ns: intended send time.
        sent_ns: time at which the client got the record.
        offset: offset of an acknowledged record.
        retriable: whether a client with retries left would try again.
        defaults: whether the producer has default settings.
        delivery_timeout_ms: ``delivery.timeout.ms`` of such a producer.
    """

    run: Omittable[str] = None
    topic: str
    key: str
    seq: Omittable[int] = None
    partition: Omittable[int] = None
    intended_ns: Omittable[int] = None
    sent_ns: Omittable[int] = None
    latency_ms: Omittable[float] = None
    mode: Omittable[str] = None
    offset: Omittable[int] = None
    exception: Omittable[str] = None
    message: Omittable[str] = None
    retriable: Omittable[bool] = None
    defaults: Omittable[bool] = None
    delivery_timeout_ms: Omittable[float] = None
    txn: Omittable[int] = None
    value: Omittable[object] = None


@dataclass(frozen=True, kw_only=True)
class TransactionDetails(Details, op="txn"):
    """End of a transaction: ``ok`` committed, ``fail`` certainly aborted, ``unknown`` neither is certain.

    Attributes:
        asked: requested end, ``commit`` or ``abort``.
        records: number of records sent in it.
    """

    run: str
    txn: int
    asked: Omittable[str] = None
    records: int
    begun_ns: int
    exception: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class EndDetails(Details, op="end"):
    """End of a producer run on a topic; at this point the history has one ``produce`` event per attempt.

    Attributes:
        attempts: number of records sent.
        skipped: number of slots that passed while the client was blocked.
        to: partition to the exclusive upper bound of the sequence numbers sent.
    """

    run: Omittable[str] = None
    topic: str = ""
    attempts: Omittable[int] = None
    skipped: Omittable[int] = None
    to: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KilledDetails(Details, op="killed"):
    """A deliberate kill of a run; records that it did not log are then no evidence."""

    run: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class TornDetails(Details, op="torn"):
    """An incomplete line: found by the reader of a history, or left by a killed process on another host.

    Attributes:
        line: number of the line.
        text: its beginning.
    """

    line: Omittable[int] = None
    text: Omittable[str] = None
    run: Omittable[str] = None


# -- consumers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CopyDetails(Details, op="copy"):
    """What a transaction of a copier takes from the source topic.

    Attributes:
        group: group whose offsets the transaction commits.
        source: topic that is copied.
        taken: source partition to first offset and next offset.
    """

    run: str
    txn: int
    group: str
    source: str = ""
    taken: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class CopyEndDetails(Details, op="copied"):
    """End of a copier's run; ``unknown`` with ``error`` if its group's committed offsets are not known."""

    run: str = ""
    group: str
    source: str = ""
    error: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class CopiedDetails(CopyEndDetails, outcomes=("ok",)):
    """Offsets that a copier's group has committed in the end, by partition."""

    committed: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class MemberDetails(Details, process="member"):
    """Any event of a consumer group member; a run has one member in each group.

    Attributes:
        protocol: rebalance protocol.
    """

    run: str
    group: str
    protocol: str = ""


@dataclass(frozen=True, kw_only=True)
class JoinDetails(MemberDetails, op="join"):
    """The member has started to join the group."""


@dataclass(frozen=True, kw_only=True)
class AssignmentDetails(MemberDetails, op=("assigned", "revoked", "lost")):
    """The member's assignment changed: ``partitions`` are those of the change, ``now`` is all that it owns after it."""

    partitions: tuple[str, ...] = ()
    now: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FetchDetails(MemberDetails, op="fetch"):
    """Records received since the last such event.

    Attributes:
        count: number of records.
        next: partition to the offset of the next record.
        from_ns: beginning of the time in which they were received.
        first: partition to the offset of its first record.
    """

    count: int
    next: Mapping[str, int]
    from_ns: int
    first: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CommitDetails(MemberDetails, op="commit"):
    """A commit that has ended; ``fail``: the coordinator rejected a member of an old generation.

    Attributes:
        offsets: partition to committed offset.
        exception: error, ``not-reported`` if there was no response.
        retriable: whether the client considers it retriable.
    """

    begun_ns: int
    latency_ms: Omittable[float] = None
    offsets: Mapping[str, int]
    exception: Omittable[str] = None
    message: Omittable[str] = None
    retriable: Omittable[bool] = None


@dataclass(frozen=True, kw_only=True)
class MemberPollFailureDetails(MemberDetails, op="poll"):
    """A poll that failed; the member continues."""

    exception: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class LeaveDetails(MemberDetails, op="leave"):
    """The member has left; ``unknown`` with an exception if it could not leave cleanly."""

    begun_ns: int
    latency_ms: Omittable[float] = None
    exception: Omittable[str] = None
    message: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class CommittedOffsetsDetails(Details, op="committed", process=TEST):
    """Offsets of a group in the end, as its coordinator returned them: partition to committed offset."""

    group: str
    offsets: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class FollowDetails(Details, op="follow", process="follower"):
    """Progress of a reader of committed records; ``unknown`` if the leader does not respond.

    Attributes:
        isolation: isolation level.
        position: offset up to which it has read; lower offsets have no further records for it.
        records: number of records received so far.
    """

    run: str
    topic: str
    partition: int
    isolation: str = ""
    position: int
    records: int = 0
    asked_ns: int
    error: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class LeaderOffsetsDetails(FollowDetails, outcomes=("ok",)):
    """Progress of a reader, with the last stable offset and the high watermark (``end``) that the leader returned."""

    stable: int
    end: int


@dataclass(frozen=True, kw_only=True)
class ArrivalsDetails(Details, op="fetched", process="follower"):
    """Records of a topic that arrived within a second: their keys, and by how many ms each preceded the event."""

    topic: str = ""
    keys: tuple[str | None, ...]
    ago_ms: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class VisibleDetails(Details, op="visible"):
    """One round of a reader: up to where consumers can read each partition.

    The outcome is ``ok`` if every leader returned its high watermark.

    Attributes:
        next: partition to the offset after the last record read so far.
        high: partition to the high watermark that its leader returned; silent leaders are left out.
        errors: partition, or ``""`` if unknown, to the error of a request or fetch.
    """

    run: str = ""
    asked_ns: int
    next: Mapping[str, int]
    high: Mapping[str, int | None]
    errors: Omittable[Mapping[str, str]] = None


# -- contents of logs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ChunkDetails(Details):
    """Some records of a partition, in the order of their offsets.

    Chunks are contiguous from ``low`` to ``end``; otherwise one is missing.

    Attributes:
        low: log start offset.
        end: end offset when the read began.
        begin: first offset that the chunk covers.
        next: offset after the last one that it covers.
        runs: offsets of the records as pairs of first offset and count.
        keys: keys of the records.
        sizes: sizes of the values in bytes, as pairs of size and count.
        damaged: offsets of records whose value differs from the value written.
        values: values, if requested.
        why: why the chunk is not followed by another one.
    """

    low: int
    end: int
    begin: int
    next: int
    runs: tuple[tuple[int, int], ...]
    keys: tuple[str | None, ...]
    sizes: Omittable[tuple[tuple[int, int], ...]] = None
    damaged: Omittable[tuple[int, ...]] = None
    values: Omittable[tuple[object, ...]] = None
    why: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class ReadDetails(Details, op="read"):
    """Part of a final read; ``unknown`` for the last one of a partition that could not be read to its end.

    Attributes:
        read_id: id of the read.
        partitions: number of partitions of the topic.
        isolation: ``read_uncommitted`` or ``read_committed``.
    """

    read_id: Annotated[str, Field(alias="pass")]
    topic: str
    partition: int
    partitions: int
    isolation: str
    begun_ns: Omittable[int] = None
    error: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class ReadChunkDetails(ChunkDetails, ReadDetails):
    """Records of a final read."""

    @classmethod
    def describes(cls, event: Event) -> bool:
        """Return whether the event is part of a final read, and has records."""
        return super().describes(event) and "begin" in event.data


@dataclass(frozen=True, kw_only=True)
class DiskChunkDetails(ChunkDetails, op="disk"):
    """Chunk of a log on a broker's disk; ``unknown`` for the last one if reading failed there.

    Attributes:
        read_id: id of the reading.
        torn: why the log ends within a batch.
    """

    read_id: Annotated[str, Field(alias="pass")]
    broker: int
    topic: str
    partition: int
    torn: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class DiskEndDetails(Details, op="disk-end"):
    """End of the reading of a broker's disk; ``unknown`` with ``error`` if it is incomplete.

    Attributes:
        read_id: id of the reading.
        stopped: whether the broker did not run during the reading.
        replicas: topics and partition numbers of the logs on the disk.
    """

    read_id: Annotated[str, Field(alias="pass")]
    broker: int
    stopped: bool = False
    replicas: tuple[tuple[str, int], ...]
    error: Omittable[str] = None


# -- cluster -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ObservedPartition:
    """State of a partition in an observation.

    Attributes:
        leader: broker id, or -1.
        isr: broker ids.
        replicas: broker ids in the order of the assignment.
    """

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ObservationDetails(Details, op="look", process=OBSERVER, outcomes=("ok",)):
    """Leaders, ISRs and placement at one moment; the event has the time of the response.

    Attributes:
        racks: broker id to rack.
        partitions: partition to its state.
    """

    racks: Mapping[int, str | None] = field(default_factory=dict)
    partitions: Mapping[str, ObservedPartition]
    asked_ns: Omittable[int] = None


@dataclass(frozen=True, kw_only=True)
class ObservationFailureDetails(Details, op=("look", "settings-look"), process=OBSERVER, outcomes=("unknown",)):
    """An observation without a response.

    Attributes:
        topic: topic whose settings were requested.
        error: error of the request.
        ended: whether there are no further observations.
    """

    topic: Omittable[str] = None
    error: str = ""
    ended: Omittable[bool] = None


@dataclass(frozen=True, kw_only=True)
class SettingsDetails(Details, op="settings"):
    """One step of a topic's settings.

    Steps: ``made``, the topic was created with these settings; ``seen``, a broker reports them; ``begin``, they are
    requested now and may apply from here on; ``settled``, every relevant broker reports them (with outcome ``unknown``
    not all did, and they may or may not apply); ``refused``, the requested settings apply nowhere.

    Attributes:
        min_replicas: ``min.insync.replicas``.
        min_racks: ``min.insync.racks``.
        error: why the change was refused or did not settle.
        brokers: brokers that report the settings.
        fenced: brokers that were not queried.
    """

    topic: str
    step: SettingsStep
    min_replicas: Annotated[int, Field(alias="min.insync.replicas")]
    min_racks: Annotated[int, Field(alias="min.insync.racks")]
    asked_ns: Omittable[int] = None
    error: Omittable[str] = None
    brokers: Omittable[tuple[int, ...]] = None
    fenced: Omittable[tuple[int, ...]] = None


@dataclass(frozen=True, kw_only=True)
class FaultDetails(Details, process=FAULT):
    """One step of a fault, whose kind is the event's operation and whose rack is the event's rack.

    Steps in order: ``before`` (probes succeed), ``inject``, ``proved`` (probes fail), ``held`` (they still fail),
    ``heal``, ``healed`` (they succeed). ``fail``: a probe contradicts; ``unknown``: a probe could not be run.

    Attributes:
        target: affected rack or broker, for people.
        broker: affected broker if the fault is of a single broker.
        brokers: ids of the rack's brokers.
        peers: racks from which a network partition separates its rack, if not from all.
        brokers_alone: the network partition separates only brokers, so clients and controllers reach all of them.
        probes: probe to its result, None if it could not be run.
        errors: probe to the error because of which it could not be run.
    """

    target: Omittable[str] = None
    broker: Omittable[int] = None
    brokers: Omittable[tuple[int, ...]] = None
    peers: Omittable[tuple[str, ...]] = None
    brokers_alone: Omittable[bool] = None
    step: Omittable[str] = None
    probes: Omittable[Mapping[str, bool | None]] = None
    errors: Omittable[Mapping[str, str]] = None


# -- Kafka processes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NodeDetails(Details, process="node"):
    """Any event in the life of a node's Kafka process; ``node`` is the node's id."""

    node: int


@dataclass(frozen=True, kw_only=True)
class NodeStartDetails(NodeDetails, op="start"):
    """A test or a fault starts the process."""


@dataclass(frozen=True, kw_only=True)
class NodeEndDetails(NodeDetails, op=("kill", "stop")):
    """A test or a fault ends the process; ``ran`` is whether there was one."""

    ran: bool


@dataclass(frozen=True, kw_only=True)
class NodeStateDetails(NodeDetails, op="state", outcomes=("ok",)):
    """An observed process state."""

    state: Literal["up", "paused", "down"]


@dataclass(frozen=True, kw_only=True)
class NodeStateFailureDetails(NodeDetails, op="state", outcomes=("unknown", "fail")):
    """A node that does not respond to a query of its state."""

    error: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class LoggedFaultsDetails(NodeDetails, op="faults-logged", outcomes=("ok",)):
    """Number of entries in the node's log, and the lines that report a fault."""

    entries: int = 0
    found: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class UnreadLogDetails(NodeDetails, op="faults-logged", outcomes=("unknown", "fail")):
    """A node whose log cannot be read."""

    error: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class ExcuseDetails(NodeDetails, op="excused"):
    """Until its next start the node may exit by itself, for a reason of ``pyhooks.history.process_events.EXCUSES``."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class LoggingNodesDetails(Details, op="logs", process="server-log"):
    """Ids of the nodes whose logs are expected."""

    nodes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class LogLinesDetails(Details, op="lines", process="server-log"):
    """All entries of a node's log within a second.

    Attributes:
        entries: for each entry the milliseconds since the event's time, log level, logger, first line of the message
            (truncated), and classes of the exceptions in the stack traces below it.
    """

    node: int
    entries: tuple[tuple[int, str, str, str, tuple[str, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class LogEndDetails(Details, op="log-end", process="server-log"):
    """End of a node's log; ``unknown`` with ``error`` if it cannot be read.

    Attributes:
        entries: number of entries.
        error_ns: possible error of all their times.
    """

    node: int
    entries: Omittable[int] = None
    error_ns: Omittable[int] = None
    error: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class MetadataDetails(Details, op="metadata", process="metadata-log"):
    """Records that the controller appended at one time: offset of the first, and type and fields of each."""

    offset: int = 0
    records: tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True, kw_only=True)
class MetadataEndDetails(Details, op="metadata-end", process="metadata-log"):
    """End of the metadata log; ``unknown`` with ``error`` if it is empty or records are missing.

    Attributes:
        controller: id of the controller whose disk has the log.
        low: first offset.
        next: offset after the last record.
        error_ns: possible error of all times.
    """

    controller: Omittable[int] = None
    low: Omittable[int] = None
    next: Omittable[int] = None
    error_ns: Omittable[int] = None
    error: Omittable[str] = None


@dataclass(frozen=True, kw_only=True)
class PollDetails(Details, op="metric", process="metrics"):
    """Request for the metrics of a Kafka process.

    Attributes:
        node: name of the node.
        late_ms: milliseconds from the due time to the request.
        took_ms: milliseconds from the request to the response.
        errors: the first few read errors of the JVM.
    """

    broker: int
    node: str = ""
    late_ms: float = 0.0
    took_ms: float
    errors: Omittable[tuple[str, ...]] = None


@dataclass(frozen=True, kw_only=True)
class PollFailureDetails(PollDetails, outcomes=("unknown",)):
    """A request without a response: why there are no metrics."""

    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class MetricsDetails(PollDetails, outcomes=("ok",)):
    """Metrics of a Kafka process.

    Attributes:
        size_bytes: size of the response.
        values: metric of the node to its value.
        topics: topic to its metrics.
        columns: names of the partitions' metrics.
        partitions: partition to the values in the order of ``columns``, None for a metric that it does not have.
    """

    size_bytes: Annotated[int, Field(alias="bytes")] = 0
    values: Mapping[str, Number | None]
    topics: Mapping[str, Mapping[str, Number | None]] = field(default_factory=dict)
    columns: tuple[str, ...]
    partitions: Mapping[str, tuple[Number | None, ...]]


# -- steps of tests ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PhaseDetails(Details, op="phase", process=TEST):
    """Begin or end of a phase, in which all attempts on a topic should end alike.

    Attributes:
        name: name of the phase.
        expect: ``ok``, or the class name of the exception expected by a first attempt without retries.
        log_bytes: size of the partition's log on the leader's disk, in phases that expect rejections.
    """

    name: str
    topic: str
    edge: Edge
    expect: str
    log_bytes: Omittable[int] = None


@dataclass(frozen=True, kw_only=True)
class RideDetails(Details, op="ride", process=TEST):
    """Clients that should ride out the outage by their own retries, by their names in ``intend`` events."""

    clients: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AlikeDetails(Details, op="alike"):
    """Pairs of groups to compare; the first group of each pair is where more racks are required."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class KnownErrorsDetails(Details, op="known-errors"):
    """Names of all errors that a client of a kind can report."""

    client: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class IdleDetails(Details, op="idle", process=TEST):
    """A topic to which nothing is written from now on."""

    topic: str


@dataclass(frozen=True, kw_only=True)
class VersionsDetails(Details, op="versions"):
    """Request versions that a client would use with brokers.

    Attributes:
        client: kind of client.
        brokers: kind of brokers.
        baseline: whether the others are compared with these brokers.
        versions: request name to version.
    """

    client: str
    brokers: str = ""
    baseline: bool
    versions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class LevelDetails(Details, op="level"):
    """A request for a level of the feature, and its result.

    Attributes:
        how: upgrade or downgrade.
        to: requested level.
        before: level before, as a broker reports it.
        after: level after.
        lack: number of nodes without the overlay.
        said: output of the tool.
    """

    how: LevelRequest
    to: int
    before: int
    after: int
    lack: int
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class MoveDetails(Details, op="moved"):
    """A completed reassignment: replicas of a topic's partition before and after, and broker id to rack."""

    topic: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...]
    racks: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class WarningsDetails(Details, op="warnings"):
    """For each controller the numbers of partitions in too few racks that it has logged, in order."""

    counts: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class ArmDetails(Details, op="arm", process=TEST):
    """Switch to the cluster of an arm, on which these topics are probed."""

    arm: str = ""
    probed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StageDetails(Details, op="stage", process=TEST):
    """Begin or end of a stage, with the CPU time used by the Kafka process of each node so far.

    Attributes:
        stage: name of the stage.
        ticks: node to process id and clock ticks.
        hz: clock ticks per second.
    """

    arm: str
    stage: str
    cycle: int
    edge: Edge
    ticks: Mapping[str, tuple[int, int]]
    hz: int


@dataclass(frozen=True, kw_only=True)
class ReachedDetails(Details, op="reached", process=TEST):
    """All partitions concerned have lost a member of the ISR (``lost``), or have all back (``back``).

    Attributes:
        what: lost or back.
        since_ns: time of the fault, or of its heal.
    """

    arm: str
    cycle: int = 0
    what: Literal["lost", "back"]
    since_ns: int


@dataclass(frozen=True, kw_only=True)
class BlockDetails(Details, op="block", process=TEST):
    """Begin or end of a block of the slowdown test.

    Attributes:
        round: number of the round.
        topics: topics whose latency is measured.
        probed: topics to which single attempts are sent.
        driven: topics whose records are rejected, or accepted, all the time.
    """

    arm: str
    round: int
    topics: tuple[str, ...] = ()
    probed: tuple[str, ...] = ()
    driven: tuple[str, ...] = ()
    edge: Edge


@dataclass(frozen=True, kw_only=True)
class RollDetails(Details, op="roll", process=TEST):
    """A node was started with other software: ``stock`` or ``overlay``."""

    node: str
    software: str


@dataclass(frozen=True, kw_only=True)
class RoundDetails(Details, op="round", process=TEST):
    """A random round: its seed and description."""

    seed: int
    text: str


@dataclass(frozen=True, kw_only=True)
class ElectionDetails(Details, op="elect-unclean", process=TEST):
    """Unclean elections: topic to the elected leader."""

    leaders: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class MomentDetails(Details, op="look", process=TEST):
    """State of the only partition at a named moment."""

    moment: str
    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DestroyDetails(Details, op="destroy", process=TEST):
    """A destroyed disk: ids of the broker's log directory before and after; Kafka draws a new one at formatting."""

    broker: int
    directory_before: str
    directory_after: str


@dataclass(frozen=True, kw_only=True)
class LoadDetails(Details, process="load"):
    """Start or end of a benchmark load, whose name is the event's operation.

    Attributes:
        step: start or end.
        start_ns: start of the schedule.
        slots: number of scheduled records.
    """

    step: Literal["start", "end"]
    start_ns: Omittable[int] = None
    slots: Omittable[int] = None
