"""Expected values of the gate's gauges at every moment, from the metadata log alone.

Reads the events of ``pyhooks.lab.metadata_records``. The rules are those of the patch series: a leader reports the
committed ISR; other replicas report 0 for Kafka's gauges and have no rack gauges; both minima are capped as in
``pyhooks.kafka.gate``; a topic that requires one rack is neither under nor at its minimum of racks, however few there
are (``Partition.isUnderMinRackIsr`` and ``isAtMinRackIsr``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyhooks.history.event_log import Event
from pyhooks.history.events import MetadataDetails, MetadataEndDetails
from pyhooks.kafka import gate
from pyhooks.kafka.features import RACKS_FEATURE
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS

# Kafka's code for topics among the config resource types.
_TOPIC = 2
COUNTS = {
    "UnderMinRackIsr": "UnderMinRackIsrPartitionCount",
    "AtMinRackIsr": "AtMinRackIsrPartitionCount",
    "UnderMinIsr": "UnderMinIsrPartitionCount",
    "AtMinIsr": "AtMinIsrPartitionCount",
}
GAUGES = ("IsrRackCount", *COUNTS)
# Gauges of a partition that only its leader has, and one that all its replicas have.
LEADER_GAUGES = frozenset({"IsrRackCount", "UnderMinRackIsr", "AtMinRackIsr"})
REPLICA_GAUGE = "UnderMinIsr"

# broker, topic and partition or None, name
Key = tuple[int, str | None, int | None, str]


@dataclass
class _PartitionImage:
    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()


@dataclass
class _Image:
    """State of the cluster after the records up to some moment."""

    racks: dict[int, str | None] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], _PartitionImage] = field(default_factory=dict)
    configs: dict[tuple[str, str], int] = field(default_factory=dict)
    in_force: bool = False

    def replay(self, kind: str, data: Mapping[str, Any]) -> None:
        """Apply one more record."""
        if kind == "TOPIC_RECORD":
            self.topics[str(data["topicId"])] = str(data["name"])
        elif kind == "REMOVE_TOPIC_RECORD":
            removed = str(data["topicId"])
            self.topics.pop(removed, None)
            self.partitions = {key: image for key, image in self.partitions.items() if key[0] != removed}
        elif kind in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"):
            self._partition(data)
        elif kind == "CONFIG_RECORD":
            self._config(data)
        elif kind == "FEATURE_LEVEL_RECORD" and data["name"] == RACKS_FEATURE:
            self.in_force = int(data["featureLevel"]) > 0
        elif kind == "REGISTER_BROKER_RECORD":
            self.racks[int(data["brokerId"])] = data.get("rack")
            self._fence(int(data["brokerId"]), yes=bool(data.get("fenced", True)))
        elif kind == "BROKER_REGISTRATION_CHANGE_RECORD" and int(data.get("fenced", 0)):
            self._fence(int(data["brokerId"]), yes=int(data["fenced"]) > 0)
        elif kind == "UNREGISTER_BROKER_RECORD":
            self.racks.pop(int(data["brokerId"]), None)
            self.fenced.discard(int(data["brokerId"]))

    def _fence(self, broker: int, *, yes: bool) -> None:
        (self.fenced.add if yes else self.fenced.discard)(broker)

    def _partition(self, data: Mapping[str, Any]) -> None:
        key = str(data["topicId"]), int(data["partitionId"])
        before = self.partitions.get(key, _PartitionImage(-1, (), ()))
        # A change omits unchanged fields; -2 is Kafka's code for an unchanged leader.
        leader = int(data.get("leader", -2))
        isr, replicas, adding = data.get("isr"), data.get("replicas"), data.get("addingReplicas")
        self.partitions[key] = _PartitionImage(
            before.leader if leader == -2 else leader,
            before.isr if isr is None else tuple(map(int, isr)),
            before.replicas if replicas is None else tuple(map(int, replicas)),
            before.adding if adding is None else tuple(map(int, adding)),
        )

    def _config(self, data: Mapping[str, Any]) -> None:
        if data["name"] not in (MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS):
            return
        # Of the broker configs only the cluster-wide defaults count: values for a single broker are rejected.
        owner = str(data["resourceName"]) if int(data["resourceType"]) == _TOPIC else ""
        if data.get("value") is None:
            self.configs.pop((owner, str(data["name"])), None)
        else:
            self.configs[owner, str(data["name"])] = int(data["value"])

    def _required(self, topic: str, name: str) -> int:
        return self.configs.get((topic, name), self.configs.get(("", name), 1))

    def gauges(self) -> dict[Key, int | None]:
        """Return the gauges of all brokers; None for leader gauges of replicas that do not lead."""
        counts: dict[Key, int] = {(broker, None, None, name): 0 for broker in self.racks for name in COUNTS.values()}
        gauges: dict[Key, int | None] = {}
        for (topic_id, number), partition in self.partitions.items():
            topic = self.topics[topic_id]
            leader_gauges = self._leader_gauges(topic, partition)
            for broker in partition.replicas:
                for name, value in leader_gauges.items():
                    follower_value = None if name in LEADER_GAUGES else 0
                    gauges[broker, topic, number, name] = value if broker == partition.leader else follower_value
            for name, count in COUNTS.items():
                if (partition.leader, None, None, count) in counts:
                    counts[partition.leader, None, None, count] += leader_gauges[name]
        return {**gauges, **counts}

    def _leader_gauges(self, topic: str, partition: _PartitionImage) -> dict[str, int]:
        """Return the gauges that the leader of a partition reports for it."""
        racks = self._required(topic, MIN_INSYNC_RACKS) if self.in_force else 1
        answer = gate.decide(
            partition.isr,
            self.racks,
            min_replicas=self._required(topic, MIN_INSYNC_REPLICAS),
            min_racks=racks,
            replicas=len(partition.replicas),
            adding=len(partition.adding),
        )
        spanned = len(answer.racks)
        return {
            "IsrRackCount": spanned,
            "UnderMinRackIsr": int(not answer.enough_racks),
            "AtMinRackIsr": int(answer.need_racks > 1 and spanned == answer.need_racks),
            "UnderMinIsr": int(not answer.enough_replicas),
            "AtMinIsr": int(answer.replicas == answer.need_replicas),
        }


@dataclass
class _Timeline:
    """A value over time: each applies from its moment until the next one."""

    moments: list[int] = field(default_factory=list)
    values: list[int | None] = field(default_factory=list)

    def set(self, at_ns: int, value: int | None) -> None:
        if not self.values or self.values[-1] != value:
            self.moments.append(at_ns)
            self.values.append(value)

    def within(self, from_ns: int, to_ns: int) -> Sequence[int | None]:
        first = bisect_right(self.moments, from_ns) - 1
        last = bisect_right(self.moments, to_ns)
        values = self.values[max(first, 0) : last]
        return values if first >= 0 else [None, *values]


class Truth:
    """Expected gauges of the gate over time.

    Attributes:
        from_ns: since when they are known, monotonic; None if unknown.
        to_ns: until when they are known.
        error_ns: maximum error of all moments.
        missing: descriptions of missing evidence.
        racks: last registered racks of all brokers that were ever registered.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        ordered = sorted(events, key=lambda event: event.mono_ns)
        ends = list(MetadataEndDetails.each(ordered))
        batches = list(MetadataDetails.each(ordered))
        self.missing = [f"the metadata log: {end.error}" for event, end in ends if event.outcome != "ok"]
        if len(ends) != 1:
            self.missing.append(f"the metadata log was read {len(ends)} times, expected: once")
        self.from_ns = batches[0][0].mono_ns if batches and not self.missing else None
        self.to_ns = ends[0][0].mono_ns if ends else 0
        self.error_ns = ends[0][1].error_ns or 0 if ends else 0
        self._lines: dict[Key, _Timeline] = {}
        self._registered: dict[int, _Timeline] = {}
        self.racks: dict[int, str] = {}
        image = _Image()
        for event, batch in batches:
            for kind, fields in batch.records:
                image.replay(kind, fields)
            self._add(event.mono_ns, image)

    def _add(self, at_ns: int, image: _Image) -> None:
        now = image.gauges()
        self.racks |= {broker: rack or "" for broker, rack in image.racks.items()}
        for key in now.keys() | self._lines.keys():
            self._lines.setdefault(key, _Timeline()).set(at_ns, now.get(key))
        for broker in image.racks.keys() | self._registered.keys():
            up = int(broker in image.racks and broker not in image.fenced)
            self._registered.setdefault(broker, _Timeline()).set(at_ns, up)

    @property
    def keys(self) -> Iterable[Key]:
        """Keys of all gauges that ever existed."""
        return self._lines.keys()

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers that were ever registered, sorted."""
        return tuple(sorted(self._registered))

    def within(self, key: Key, from_ns: int, to_ns: int) -> frozenset[int | None]:
        """Return the values that a gauge had within an interval; None where it did not exist."""
        line = self._lines.get(key)
        return frozenset(line.within(from_ns, to_ns)) if line else frozenset({None})

    def unfenced(self, broker: int, from_ns: int, to_ns: int) -> bool:
        """Return whether a broker was registered and unfenced throughout an interval."""
        line = self._registered.get(broker)
        return line is not None and set(line.within(from_ns, to_ns)) == {1}

    def behind_ns(self, key: Key, value: float, to_ns: int) -> int:
        """Return the maximum lateness of a value that was read at an unknown moment, ``to_ns`` at the latest.

        Args:
            key: key of the gauge.
            value: value that it showed.
            to_ns: latest possible moment of the reading, such as that of the response.

        Returns:
            Time in ns since which it had no longer been true at ``to_ns``; 0 if it was true then, or never was.
        """
        line = self._lines[key]
        last = bisect_right(line.moments, to_ns) - 1
        for index in range(last, -1, -1):
            if line.values[index] == value:
                return 0 if index == last else to_ns - line.moments[index + 1]
        return 0
