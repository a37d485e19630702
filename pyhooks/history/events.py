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
SettingsStep = Literal["made", "seen", "begin", "settled", "rejected"]
LevelRequest = Literal["upgrade", "downgrade"]
FaultStep = Literal["before", "inject", "proved", "held", "heal", "healed"]


# -- producers ---------------------------------------------------------------------------------------------------------


class IntendDetails(Details, op="intend"):
    """Records that a producer run may send from now on, written before any of them is sent.

    So even a killed producer has announced every record that can be in a log; any other record of its run is invalid.
    """

    run: Omittable[str] = None
    topic: str = ""
    mode: Omittable[str] = None  # mode of the plan, see ``pyhooks.workload.producer_plan``
    client: Omittable[str] = None  # patched, confluent or a release
    # the client sends each record once, so rejections are definite and nothing is written twice
    first_only: bool
    idempotent: bool  # the client must not write duplicates and must keep the order
    acks: str = "all"  # ``all`` or ``1``
    record_bytes: Omittable[int] = None  # size to which values are padded
    # partition to the exclusive upper bound of the sequence numbers that may be sent
    to: Mapping[int, int] = field(default_factory=dict)


class NoMetadataDetails(Details, op="no-metadata"):
    """A client that got no metadata of its topics before its first record, which is sent all the same."""

    run: str
    exception: str


class ProduceDetails(Details, op=PRODUCE):
    """Result of one record; the event has the time at which the client had it.

    ``ok``: acknowledged. ``fail``: certainly rejected, the record is in no log; see ``pyhooks.history.outcomes``.
    ``unknown``: everything else; after a timeout or a lost connection the record may be in the log.
    """

    run: Omittable[str] = None
    topic: str
    key: str  # unique key, see ``pyhooks.history.record_format``
    seq: Omittable[int] = None  # sequence number within run and partition
    # target partition, or None if the producer left it open and did not learn it
    partition: Omittable[int] = None
    intended_ns: Omittable[int] = None  # intended send time
    sent_ns: Omittable[int] = None  # time at which the client got the record
    latency_ms: Omittable[float] = None
    mode: Omittable[str] = None
    offset: Omittable[int] = None  # offset of an acknowledged record
    exception: Omittable[str] = None
    message: Omittable[str] = None
    retriable: Omittable[bool] = None  # whether a client with retries left would try again
    defaults: Omittable[bool] = None  # whether the producer has default settings
    delivery_timeout_ms: Omittable[float] = None  # ``delivery.timeout.ms`` of such a producer
    txn: Omittable[int] = None
    value: Omittable[object] = None


class TransactionDetails(Details, op="txn"):
    """End of a transaction: ``ok`` committed, ``fail`` certainly aborted, ``unknown`` neither is certain."""

    run: str
    txn: int
    asked: Omittable[str] = None  # requested end, ``commit`` or ``abort``
    records: int  # number of records sent in it
    begun_ns: int
    exception: Omittable[str] = None


class EndDetails(Details, op="end"):
    """End of a producer run on a topic; at this point the history has one ``produce`` event per attempt."""

    run: Omittable[str] = None
    topic: str = ""
    attempts: Omittable[int] = None  # number of records sent
    skipped: Omittable[int] = None  # number of slots that passed while the client was blocked
    # partition to the exclusive upper bound of the sequence numbers sent
    to: Mapping[int, int] = field(default_factory=dict)


class KilledDetails(Details, op="killed"):
    """A deliberate kill of a run; records that it did not log are then no evidence."""

    run: Omittable[str] = None


class ClockDetails(Details, op="clock"):
    """Clock of the host of a run, if it is not the clock of the history; the run's times were converted to the latter.

    Without such an event, a run has the clock of the history.
    """

    run: str
    host: str  # hosts with the same name have one clock
    error_ns: int  # maximum error of the converted times


class TornDetails(Details, op="torn"):
    """An incomplete line: found by the reader of a history, or left by a killed process on another host."""

    line: Omittable[int] = None
    text: Omittable[str] = None  # its beginning
    run: Omittable[str] = None


# -- consumers ---------------------------------------------------------------------------------------------------------


class CopyDetails(Details, op="copy"):
    """What a transaction of a copier takes from the source topic."""

    run: str
    txn: int
    group: str  # group whose offsets the transaction commits
    source: str = ""  # topic that is copied
    taken: Mapping[str, tuple[int, int]]  # source partition to first offset and next offset


class CopyEndDetails(Details, op="copied"):
    """End of a copier's run; ``unknown`` with ``error`` if its group's committed offsets are not known."""

    run: str = ""
    group: str
    source: str = ""
    error: Omittable[str] = None


class CopiedDetails(CopyEndDetails, outcomes=("ok",)):
    """Offsets that a copier's group has committed in the end, by partition."""

    committed: Mapping[str, int]


class MemberDetails(Details, process="member"):
    """Any event of a consumer group member; a run has one member in each group."""

    run: str
    group: str
    protocol: str = ""


class JoinDetails(MemberDetails, op="join"):
    """The member has started to join the group."""


class AssignmentDetails(MemberDetails, op=("assigned", "revoked", "lost")):
    """The member's assignment changed: ``partitions`` are those of the change, ``now`` is all that it owns after it."""

    partitions: tuple[str, ...] = ()
    now: tuple[str, ...]


class FetchDetails(MemberDetails, op="fetch"):
    """Records received since the last such event."""

    count: int
    next: Mapping[str, int]  # partition to the offset of the next record
    from_ns: int  # beginning of the time in which they were received
    first: Mapping[str, int] = field(default_factory=dict)  # partition to the offset of its first record


class CommitDetails(MemberDetails, op="commit"):
    """A commit that has ended; ``fail``: the coordinator rejected a member of an old generation."""

    begun_ns: int
    latency_ms: Omittable[float] = None
    offsets: Mapping[str, int]  # partition to committed offset
    exception: Omittable[str] = None  # error, ``not-reported`` if there was no response
    message: Omittable[str] = None
    retriable: Omittable[bool] = None  # whether the client considers it retriable


class MemberPollFailureDetails(MemberDetails, op="poll"):
    """A poll that failed; the member continues."""

    exception: str
    message: str = ""


class LeaveDetails(MemberDetails, op="leave"):
    """The member has left; ``unknown`` with an exception if it could not leave cleanly."""

    begun_ns: int
    latency_ms: Omittable[float] = None
    exception: Omittable[str] = None
    message: Omittable[str] = None


class ShareMemberDetails(Details, process="share-member"):
    """Any event of a member of a share group (KIP-932); a run has one member in each group."""

    run: str
    group: str


class DeliveryDetails(ShareMemberDetails, op="delivered"):
    """Records that a poll returned, by partition: offsets as pairs of first offset and count."""

    begun_ns: int  # start of the poll
    offsets: Mapping[str, tuple[tuple[int, int], ...]]
    again: int  # number of these records that had been delivered before, by the broker's count


class AcknowledgementDetails(ShareMemberDetails, op="acknowledge"):
    """Result of accepting records of a partition; ``unknown`` unless the broker confirmed all of them."""

    begun_ns: int
    latency_ms: float
    partition: str
    offsets: tuple[tuple[int, int], ...]  # as pairs of first offset and count
    exception: Omittable[str] = None
    message: Omittable[str] = None


class SharePollFailureDetails(ShareMemberDetails, op="poll"):
    """A poll that failed; the member continues."""

    exception: str
    message: str = ""


class ConnectDetails(Details, process="connect"):
    """Any event of a Connect worker with a source that counts in ``topic`` and a sink that reads it."""

    run: str
    group: str  # group id of the worker
    topic: str


class ConnectorStateDetails(ConnectDetails, op="state"):
    """A new state of a connector's task, such as ``RUNNING`` or ``FAILED``; a failed task is restarted."""

    connector: str
    state: str
    trace: Omittable[str] = None  # first line of the exception that a task failed with


class SunkDetails(ConnectDetails, op="sunk"):
    """Offsets that the sink received since ``begun_ns``, as pairs of first offset and count; the last may have none."""

    begun_ns: int
    offsets: tuple[tuple[int, int], ...]


class StreamsDetails(Details, process="streams"):
    """Any event of a Kafka Streams application that counts the records of each key of ``source`` in ``target``."""

    run: str
    application: str
    source: str
    target: str


class StreamsStateDetails(StreamsDetails, op="state"):
    """A new state of the application, such as ``RUNNING`` or ``REBALANCING``."""

    state: str


class StreamsFailureDetails(StreamsDetails, op="failure"):
    """An exception that ended a thread of the application, which replaces the thread."""

    exception: str
    message: str = ""


class CommittedOffsetsDetails(Details, op="committed", process=TEST):
    """Offsets of a group in the end, as its coordinator returned them: partition to committed offset."""

    group: str
    offsets: Mapping[str, int]


class FollowDetails(Details, op="follow", process="follower"):
    """Progress of a reader of committed records; ``unknown`` if the leader does not respond."""

    run: str
    topic: str
    partition: int
    isolation: str = ""
    position: int  # offset up to which it has read; lower offsets have no further records for it
    records: int = 0  # number of records received so far
    asked_ns: int
    error: Omittable[str] = None


class LeaderOffsetsDetails(FollowDetails, outcomes=("ok",)):
    """Progress of a reader, with the last stable offset and the high watermark (``end``) that the leader returned."""

    stable: int
    end: int


class ArrivalsDetails(Details, op="fetched", process="follower"):
    """Records of a topic that arrived within a second: their keys, and by how many ms each preceded the event."""

    topic: str = ""
    keys: tuple[str | None, ...]
    ago_ms: tuple[float, ...]


class VisibleDetails(Details, op="visible"):
    """One round of a reader: up to where consumers can read each partition.

    The outcome is ``ok`` if every leader returned its high watermark.
    """

    run: str = ""
    asked_ns: int
    next: Mapping[str, int]  # partition to the offset after the last record read so far
    # partition to the high watermark that its leader returned; silent leaders are left out
    high: Mapping[str, int | None]
    # partition, or ``""`` if unknown, to the error of a request or fetch
    errors: Omittable[Mapping[str, str]] = None


class ReplicaReadDetails(Details, op="replica-read"):
    """One round of reads from one replica, whether it leads or follows (KIP-392).

    The outcome is ``ok`` if the broker returned all its partitions without an error.
    """

    run: str = ""
    broker: int
    asked_ns: int
    # partition to the offset after the last record that this replica has returned so far; without those with an error
    next: Mapping[str, int]
    high: Mapping[str, int]  # partition to the high watermark in the replica's response
    # partition, or ``""`` for all of them, to the error
    errors: Omittable[Mapping[str, str]] = None


class RemoteSegmentsDetails(Details, op="remote-segments", process=TEST):
    """Segments of partition 0 of a topic with tiered storage, by their base offsets, listed from ``asked_ns`` on."""

    topic: str
    asked_ns: int
    local: tuple[int, ...]  # on the disk of the leader
    remote: tuple[int, ...]  # in the remote storage


# -- contents of logs --------------------------------------------------------------------------------------------------


class ChunkDetails(Details):
    """Some records of a partition, in the order of their offsets.

    Chunks are contiguous from ``low`` to ``end``; otherwise one is missing.
    """

    low: int  # log start offset
    end: int  # end offset when the read began
    begin: int  # first offset that the chunk covers
    next: int  # offset after the last one that it covers
    runs: tuple[tuple[int, int], ...]  # offsets of the records as pairs of first offset and count
    keys: tuple[str | None, ...]
    # sizes of the values in bytes, as pairs of size and count
    sizes: Omittable[tuple[tuple[int, int], ...]] = None
    # offsets of records whose value differs from the value written
    damaged: Omittable[tuple[int, ...]] = None
    values: Omittable[tuple[object, ...]] = None  # values, if requested
    why: Omittable[str] = None  # why the chunk is not followed by another one


class ReadDetails(Details, op="read"):
    """Part of a final read; ``unknown`` for the last one of a partition that could not be read to its end."""

    read_id: Annotated[str, Field(alias="pass")]  # id of the read
    topic: str
    partition: int
    partitions: int  # number of partitions of the topic
    isolation: str  # ``read_uncommitted`` or ``read_committed``
    begun_ns: Omittable[int] = None
    error: Omittable[str] = None


class ReadChunkDetails(ChunkDetails, ReadDetails):
    """Records of a final read."""

    @classmethod
    def describes(cls, event: Event) -> bool:
        """Return whether the event is part of a final read, and has records."""
        return super().describes(event) and "begin" in event.data


class AppendedDetails(Details, op="appended"):
    """A record in the log of a topic with LogAppendTime, though its client did not get an acknowledgement."""

    topic: str
    partition: int
    key: str
    append_ms: int  # time at which the leader appended it, in milliseconds since the epoch


class DiskChunkDetails(ChunkDetails, op="disk"):
    """Chunk of a log on a broker's disk; ``unknown`` for the last one if reading failed there."""

    read_id: Annotated[str, Field(alias="pass")]  # id of the reading
    broker: int
    topic: str
    partition: int
    torn: Omittable[str] = None  # why the log ends within a batch


class DiskEndDetails(Details, op="disk-end"):
    """End of the reading of a broker's disk; ``unknown`` with ``error`` if it is incomplete."""

    read_id: Annotated[str, Field(alias="pass")]  # id of the reading
    broker: int
    stopped: bool = False  # whether the broker did not run during the reading
    replicas: tuple[tuple[str, int], ...]  # topics and partition numbers of the logs on the disk
    error: Omittable[str] = None


# -- cluster -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ObservedPartition:
    """State of a partition in an observation."""

    leader: int  # broker id, or -1
    isr: tuple[int, ...]  # broker ids
    replicas: tuple[int, ...] = ()  # broker ids in the order of the assignment


class ObservationDetails(Details, op="look", process=OBSERVER, outcomes=("ok",)):
    """Leaders, ISRs and placement at one moment; the event has the time of the response."""

    racks: Mapping[int, str | None] = field(default_factory=dict)  # broker id to rack
    partitions: Mapping[str, ObservedPartition]  # partition to its state
    asked_ns: Omittable[int] = None


class ObservationFailureDetails(Details, op=("look", "settings-look"), process=OBSERVER, outcomes=("unknown",)):
    """An observation without a response."""

    topic: Omittable[str] = None  # topic whose settings were requested
    error: str = ""  # error of the request
    ended: Omittable[bool] = None  # whether there are no further observations


class SettingsDetails(Details, op="settings"):
    """One step of a topic's settings.

    Steps: ``made``, the topic was created with these settings; ``seen``, a broker reports them; ``begin``, they are
    requested now and may apply from here on; ``settled``, every relevant broker reports them (with outcome ``unknown``
    not all did, and they may or may not apply); ``rejected``, the requested settings apply nowhere.
    """

    topic: str
    step: SettingsStep
    min_replicas: Annotated[int, Field(alias="min.insync.replicas")]  # ``min.insync.replicas``
    min_racks: Annotated[int, Field(alias="min.insync.racks")]  # ``min.insync.racks``
    asked_ns: Omittable[int] = None
    error: Omittable[str] = None  # why the change was rejected or did not settle
    brokers: Omittable[tuple[int, ...]] = None  # brokers that report the settings
    fenced: Omittable[tuple[int, ...]] = None  # brokers that were not queried


class FaultDetails(Details, process=FAULT):
    """One step of a fault, whose kind is the event's operation and whose rack is the event's rack.

    Steps in order: ``before`` (probes succeed), ``inject``, ``proved`` (probes fail), ``held`` (they still fail),
    ``heal``, ``healed`` (they succeed). ``fail``: a probe contradicts; ``unknown``: a probe could not be run.
    """

    target: Omittable[str] = None  # affected rack or broker, for people
    broker: Omittable[int] = None  # affected broker if the fault is of a single broker
    brokers: Omittable[tuple[int, ...]] = None  # ids of the rack's brokers
    # racks from which a network partition separates its rack, if not from all
    peers: Omittable[tuple[str, ...]] = None
    # the network partition separates only brokers, so clients and controllers reach all of them
    brokers_alone: Omittable[bool] = None
    step: Omittable[str] = None
    probes: Omittable[Mapping[str, bool | None]] = None  # probe to its result, None if it could not be run
    errors: Omittable[Mapping[str, str]] = None  # probe to the error because of which it could not be run


# -- Kafka processes ---------------------------------------------------------------------------------------------------


class NodeDetails(Details, process="node"):
    """Any event in the life of a node's Kafka process; ``node`` is the node's id."""

    node: int


class NodeStartDetails(NodeDetails, op="start"):
    """A test or a fault starts the process."""


class NodeEndDetails(NodeDetails, op=("kill", "stop")):
    """A test or a fault ends the process; ``ran`` is whether there was one."""

    ran: bool


class NodeStateDetails(NodeDetails, op="state", outcomes=("ok",)):
    """An observed process state."""

    state: Literal["up", "paused", "down"]


class NodeStateFailureDetails(NodeDetails, op="state", outcomes=("unknown", "fail")):
    """A node that does not respond to a query of its state."""

    error: Omittable[str] = None


class LoggedFaultsDetails(NodeDetails, op="faults-logged", outcomes=("ok",)):
    """Number of entries in the node's log, and the lines that report a fault."""

    entries: int = 0
    found: tuple[str, ...]


class UnreadLogDetails(NodeDetails, op="faults-logged", outcomes=("unknown", "fail")):
    """A node whose log cannot be read."""

    error: Omittable[str] = None


class ExcuseDetails(NodeDetails, op="excused"):
    """Until its next start the node may exit by itself, for a reason of ``pyhooks.history.process_events.EXCUSES``."""

    reason: str


class LoggingNodesDetails(Details, op="logs", process="server-log"):
    """Ids of the nodes whose logs are expected."""

    nodes: tuple[int, ...]


class LogLinesDetails(Details, op="lines", process="server-log"):
    """All entries of a node's log within a second."""

    node: int
    # for each entry the milliseconds since the event's time, log level, logger, first line of the message (truncated),
    # and classes of the exceptions in the stack traces below it
    entries: tuple[tuple[int, str, str, str, tuple[str, ...]], ...]


class LogEndDetails(Details, op="log-end", process="server-log"):
    """End of a node's log; ``unknown`` with ``error`` if it cannot be read."""

    node: int
    entries: Omittable[int] = None  # number of entries
    error_ns: Omittable[int] = None  # possible error of all their times
    error: Omittable[str] = None


class MetadataDetails(Details, op="metadata", process="metadata-log"):
    """Records that the controller appended at one time: offset of the first, and type and fields of each."""

    offset: int = 0
    records: tuple[tuple[str, Mapping[str, Any]], ...]


class MetadataEndDetails(Details, op="metadata-end", process="metadata-log"):
    """End of the metadata log; ``unknown`` with ``error`` if it is empty or records are missing."""

    controller: Omittable[int] = None  # id of the controller whose disk has the log
    low: Omittable[int] = None  # first offset
    next: Omittable[int] = None  # offset after the last record
    error_ns: Omittable[int] = None  # possible error of all times
    error: Omittable[str] = None


class PollDetails(Details, op="metric", process="metrics"):
    """Request for the metrics of a Kafka process."""

    broker: int
    node: str = ""  # name of the node
    late_ms: float = 0.0  # milliseconds from the due time to the request
    latency_ms: float
    errors: Omittable[tuple[str, ...]] = None  # the first few read errors of the JVM


class PollFailureDetails(PollDetails, outcomes=("unknown",)):
    """A request without a response: why there are no metrics."""

    problem: str = ""


class MetricsDetails(PollDetails, outcomes=("ok",)):
    """Metrics of a Kafka process."""

    size_bytes: Annotated[int, Field(alias="bytes")] = 0  # size of the response
    values: Mapping[str, Number | None]  # metric of the node to its value
    topics: Mapping[str, Mapping[str, Number | None]] = field(default_factory=dict)  # topic to its metrics
    columns: tuple[str, ...]  # names of the partitions' metrics
    # partition to the values in the order of ``columns``, None for a metric that it does not have
    partitions: Mapping[str, tuple[Number | None, ...]]


# -- steps of tests ----------------------------------------------------------------------------------------------------


class PhaseDetails(Details, op="phase", process=TEST):
    """Begin or end of a phase, in which all attempts on a topic should end alike."""

    name: str  # name of the phase
    topic: str
    edge: Edge
    expect: str  # ``ok``, or the class name of the exception expected by a first attempt without retries
    # size of the partition's log on the leader's disk, in phases that expect rejections
    log_bytes: Omittable[int] = None


class RideDetails(Details, op="ride", process=TEST):
    """Clients that should ride out the outage by their own retries, by their names in ``intend`` events."""

    clients: tuple[str, ...]


class AlikeDetails(Details, op="alike"):
    """Pairs of groups to compare; the first group of each pair is where more racks are required."""

    pairs: tuple[tuple[str, str], ...]


class KnownErrorsDetails(Details, op="known-errors"):
    """Names of all errors that a client of a kind can report."""

    client: str
    names: tuple[str, ...]


class IdleDetails(Details, op="idle", process=TEST):
    """A topic to which nothing is written from now on."""

    topic: str


class VersionsDetails(Details, op="versions"):
    """Request versions that a client would use with brokers."""

    client: str  # kind of client
    brokers: str = ""  # kind of brokers
    baseline: bool  # whether the others are compared with these brokers
    versions: Mapping[str, str]  # request name to version


class LevelDetails(Details, op="level"):
    """A request for a level of the feature, and its result."""

    how: LevelRequest  # upgrade or downgrade
    to: int  # requested level
    before: int  # level before, as a broker reports it
    after: int  # level after
    stock_nodes: Annotated[int, Field(alias="lack")]  # number of nodes without the overlay
    output: Annotated[str, Field(alias="said")] = ""  # output of the tool


class MoveDetails(Details, op="moved"):
    """A completed reassignment: replicas of a topic's partition before and after, and broker id to rack."""

    topic: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...]
    racks: Mapping[int, str]


class WarningsDetails(Details, op="warnings"):
    """For each controller the numbers of partitions in too few racks that it has logged, in order."""

    counts: Mapping[str, tuple[int, ...]]


class ArmDetails(Details, op="arm", process=TEST):
    """Switch to the cluster of an arm, on which these topics are probed."""

    arm: str = ""
    probed: tuple[str, ...] = ()


class StageDetails(Details, op="stage", process=TEST):
    """Begin or end of a stage, with the CPU time used by the Kafka process of each node so far."""

    arm: str
    stage: str  # name of the stage
    cycle: int
    edge: Edge
    ticks: Mapping[str, tuple[int, int]]  # node to process id and clock ticks
    hz: int  # clock ticks per second


class ReachedDetails(Details, op="reached", process=TEST):
    """All partitions concerned have lost a member of the ISR (``lost``), or have all back (``back``)."""

    arm: str
    cycle: int = 0
    change: Annotated[Literal["lost", "back"], Field(alias="what")]  # lost or back
    since_ns: int  # time of the fault, or of its heal


class BlockDetails(Details, op="block", process=TEST):
    """Begin or end of a block of the slowdown test."""

    arm: str
    round: int  # number of the round
    topics: tuple[str, ...] = ()  # topics whose latency is measured
    probed: tuple[str, ...] = ()  # topics to which single attempts are sent
    driven: tuple[str, ...] = ()  # topics whose records are rejected, or accepted, all the time
    edge: Edge


class RollDetails(Details, op="roll", process=TEST):
    """A node was started with other software: ``stock`` or ``overlay``."""

    node: str
    software: str


class RoundDetails(Details, op="round", process=TEST):
    """A random round: its seed and description."""

    seed: int
    text: str


class ResourcesDetails(Details, op="resources", process=TEST):
    """Resources of a process: of a node's Kafka by the node's name, or of the lab's own processes together."""

    name: str
    memory_kib: int  # resident
    files: int  # number of open file descriptors


class ElectionDetails(Details, op="elect-unclean", process=TEST):
    """Unclean elections: topic to the elected leader."""

    leaders: Mapping[str, int]


class LoadDetails(Details, process="load"):
    """Start or end of a benchmark load, whose name is the event's operation."""

    step: Literal["start", "end"]  # start or end
    start_ns: Omittable[int] = None  # start of the schedule
    slots: Omittable[int] = None  # number of scheduled records
