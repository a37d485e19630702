"""Queries to a cluster for its placements, and to each broker for the settings and features that it enforces.

Kafka's Admin client could get metadata, settings and features from one broker. But a broker enforces what *it* knows,
and the Admin client queries the least loaded broker. So each broker gets a connection of its own, with Kafka's own
network client. The handshake returns its versions and features, and DescribeConfigs its own settings and those of the
topics that it has replicas of. Security and DNS are configured as for the Admin client.

One timeout covers all requests together. A broker that does not respond in time, rejects a request or sends an invalid
response is unknown, and so is all that only this broker knows. The rest of the report does not depend on it.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jpype

from pyhooks.core.errors import RackgateError
from pyhooks.core.exit_status import JAVA_THREAD
from pyhooks.jvm.admin import GIVEN_UP, TIMEOUT, UNSUPPORTED, Admin, ClusterNode, Reassignment, TopicState, Voter
from pyhooks.jvm.client import start_jvm
from pyhooks.jvm.java_exception import JavaError
from pyhooks.kafka.features import METADATA_FEATURE, RACKS_FEATURE
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_RACKS_OBSERVE, MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from pyhooks.kafka.topics import minimum
from pyhooks.placement.connection_diagnosis import diagnose
from pyhooks.placement.enforcement import BrokerResponse, Enforcement, strictest
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
)

# org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource
_SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default"}
# Sources whose R is in force at level 1, where only the metadata counts.
_METADATA_SOURCES = ("topic", "cluster")
# If one broker of three is silent, all five clients happen to query it once in 243 times.
_CLIENTS_MAX, _CLIENT_LEAST_S = 5, 2.0
# Largest share of the remaining time for an optional request.
_OPTIONAL_SHARE = 0.3
_LEAST_S = 0.1
_GRACE_S = 0.5
_AT_ONCE = 32
_TIMEOUTS = frozenset({TIMEOUT, GIVEN_UP})
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4  # org.apache.kafka.common.config.ConfigResource.Type
_TOPICS_AT_ONCE = 500
_REQUEST_VERSION = 4  # of DescribeConfigs, only for the JSON of a request: older brokers get an older version
_POLL_MS = 100
# Voters fetch at least every 0.5 s, even if nothing is written.
_VOTER_LATE_MS = 10_000
_KEYS = (MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS, MIN_INSYNC_RACKS_OBSERVE)


@dataclass(frozen=True)
class ClusterObservation:
    """Observed cluster and responses of its brokers."""

    cluster: ClusterSnapshot
    enforcement: Enforcement


def client_config(file: Path | None) -> dict[str, str]:
    """Read the properties file of ``--command-config`` as Kafka's own tools do, without ``bootstrap.servers``.

    Raises:
        RackgateError: the file can't be read; or there is no distribution, or no Java.
    """
    if file is None:
        return {}
    start_jvm()
    properties = jpype.JClass("java.util.Properties")()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RackgateError(f"--command-config {file}: {error}") from error
    try:
        properties.load(jpype.JClass("java.io.StringReader")(text))
    except jpype.JException as error:
        raise RackgateError(f"--command-config {file}: {JavaError.of(error).text}") from error
    settings = {str(entry.getKey()): str(entry.getValue()) for entry in properties.entrySet()}
    settings.pop("bootstrap.servers", None)
    return settings


def disable_client_log() -> None:
    """Disable the log of Kafka's clients in this process; their errors are reported in one line instead.

    Raises:
        RackgateError: there is no distribution, or no Java.
    """
    start_jvm()
    level = jpype.JClass("org.apache.logging.log4j.Level").OFF
    jpype.JClass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level)


def query_cluster(
    bootstrap: str,
    config: Mapping[str, str],
    *,
    timeout_s: float,
    report_step: Callable[[str], None],
    unclean: bool = False,
    only: Collection[str] | None = None,
) -> ClusterObservation:
    """Query a cluster and all its brokers.

    Args:
        bootstrap: bootstrap servers, ``host:port,…``.
        config: further properties of Kafka's clients.
        timeout_s: timeout of all requests together.
        report_step: called with a description of each step.
        unclean: also request ``unclean.leader.election.enable``.
        only: names of topics to query instead of all; those that do not exist are left out.

    Raises:
        RackgateError: the cluster can't be queried. A single broker that does not respond is no error.
    """
    end = time.monotonic() + timeout_s
    unanswered: dict[str, str] = {}
    voters: tuple[Voter, ...] | None = None
    with _responsive_admin(bootstrap, config, timeout_s) as admin:
        admin.deadline = end
        report_step("querying brokers and racks")
        cluster_id, nodes = admin.cluster()
        report_step("querying topics")
        topics = admin.topics(only)
        report_step("querying controllers")
        admin.deadline = time.monotonic() + _left_s(end) * _OPTIONAL_SHARE
        try:
            voters = admin.voters()
        except JavaError as error:
            unanswered["quorum"] = _reason(error)
    report_step("querying reassignments")
    reassignments = _reassignments(bootstrap, config, _left_s(end) * _OPTIONAL_SHARE)
    if isinstance(reassignments, str):
        unanswered["reassignments"] = reassignments
        reassignments = {}
    known_topics = {name: topic_state for name, topic_state in topics.items() if isinstance(topic_state, TopicState)}
    brokers, addresses = _brokers(nodes), _addresses(nodes)
    report_step(f"querying the settings of {len(addresses)} brokers")
    topics_by_broker = _topics_by_broker(known_topics, set(addresses))
    query_s = _left_s(end) * (1 - _OPTIONAL_SHARE)
    responses = query_each_broker(addresses, topics_by_broker, config, timeout_s=query_s, unclean=unclean)
    enforcement = _enforcement(brokers, responses)
    missing = sorted(
        set(known_topics) - {topic for response in responses.responses.values() for topic in response.topics}
    )
    other_view: Mapping[str, IsrRequirements] = {}
    if missing and responses.responses:
        # no broker with replicas of these topics responded, so another broker's view is the best available
        broker = min(responses.responses)
        retry = query_each_broker({broker: addresses[broker]}, {broker: missing}, config, timeout_s=_left_s(end))
        other_view = retry.responses[broker].topics if broker in retry.responses else {}
    checked_topics = tuple(
        _checked_topic(name, topic_state, reassignments, responses.responses, other_view)
        if isinstance(topic_state, TopicState)
        else CheckedTopic(name, internal=False, partitions=(), requirements=None, unanswered=_reason(topic_state))
        for name, topic_state in topics.items()
    )
    return ClusterObservation(
        ClusterSnapshot(
            cluster_id,
            brokers,
            checked_topics,
            enforcement.enforced,
            None if voters is None else tuple(voter.node_id for voter in voters),
            unanswered,
            tuple(voter.node_id for voter in voters or () if (voter.lag_ms or 0) > _VOTER_LATE_MS),
        ),
        enforcement,
    )


def _left_s(end: float) -> float:
    return max(_LEAST_S, end - time.monotonic())


def query_brokers(bootstrap: str, config: Mapping[str, str], *, timeout_s: float) -> ClusterObservation:
    """Query a cluster for its brokers, and each broker for what it enforces, without topics.

    ``timeout_s`` is the timeout of each of these two steps.

    Raises:
        RackgateError: the cluster can't be queried. A single broker that does not respond is no error.
    """
    with _responsive_admin(bootstrap, config, timeout_s) as admin:
        cluster_id, nodes = admin.cluster()
    brokers = _brokers(nodes)
    enforcement = _enforcement(brokers, query_each_broker(_addresses(nodes), {}, config, timeout_s=timeout_s))
    return ClusterObservation(ClusterSnapshot(cluster_id, brokers, (), enforcement.enforced), enforcement)


def query_cluster_id(bootstrap: str, config: Mapping[str, str], *, timeout_s: float) -> str:
    """Return Kafka's cluster id.

    Raises:
        RackgateError: the cluster can't be queried.
    """
    with _responsive_admin(bootstrap, config, timeout_s) as admin:
        return admin.cluster()[0]


@contextmanager
def _responsive_admin(bootstrap: str, config: Mapping[str, str], timeout_s: float) -> Iterator[Admin]:
    """Yield an admin client of a broker that responds; errors in the block name the cluster."""
    try:
        with Admin.responsive(bootstrap, timeout_s=timeout_s, config=config) as admin:
            yield admin
    except JavaError as error:
        if error.java_class in _TIMEOUTS:
            reason = diagnose(bootstrap, config) or f"no response within {timeout_s:.0f} s"
        else:
            reason = _root_cause(error)
        raise RackgateError(f"cluster {bootstrap}: {reason}; see --bootstrap and --command-config") from error


def _brokers(nodes: Sequence[ClusterNode]) -> dict[int, Broker]:
    return {
        node.broker_id: Broker(node.broker_id, node.rack, node.fenced, f"{node.host}:{node.port}") for node in nodes
    }


def _addresses(nodes: Sequence[ClusterNode]) -> dict[int, tuple[str, int]]:
    return {node.broker_id: (node.host, node.port) for node in nodes if not node.fenced}


def _enforcement(brokers: Mapping[int, Broker], enforcement: Enforcement) -> Enforcement:
    fenced = {broker.broker_id: "fenced" for broker in brokers.values() if broker.fenced}
    return replace(enforcement, unresponsive={**enforcement.unresponsive, **fenced})


def _reassignments(
    bootstrap: str, config: Mapping[str, str], timeout_s: float
) -> Mapping[tuple[str, int], Reassignment] | str:
    """Return the current reassignments, or the reason why they are unknown; several clients try one after another.

    A client sends this request to the broker that the metadata names as controller. In KRaft that is a random broker
    that is not fenced, and the client keeps to it even if it does not respond
    (KRaftMetadataCache.getRandomAliveBrokerId; with one of four brokers paused this happened in three of six runs).
    """
    end = time.monotonic() + timeout_s
    each_s = max(timeout_s / _CLIENTS_MAX, _CLIENT_LEAST_S)
    reason = ""
    while (left_s := end - time.monotonic()) > 0:
        try:
            with Admin(bootstrap, timeout_s=min(each_s, left_s), config=config) as admin:
                admin.deadline = end
                return admin.reassignments()
        except JavaError as error:
            # before Kafka 2.4 neither this request nor such reassignments exist
            if error.java_class == UNSUPPORTED:
                return {}
            reason = _reason(error)
            if error.java_class not in _TIMEOUTS:
                return reason
    return f"no response within {timeout_s:.0f} s: {reason}"


def _topics_by_broker(topics: Mapping[str, TopicState], brokers: set[int]) -> dict[int, list[str]]:
    """Return the topics of which each broker has replicas."""
    topics_by_broker: dict[int, list[str]] = {broker: [] for broker in brokers}
    for name, topic_state in topics.items():
        for broker in {replica for partition in topic_state.partitions.values() for replica in partition.replicas}:
            if broker in topics_by_broker:
                topics_by_broker[broker].append(name)
    return topics_by_broker


def _checked_topic(
    name: str,
    topic_state: TopicState,
    reassignments: Mapping[tuple[str, int], Reassignment],
    responses: Mapping[int, BrokerResponse],
    other_view: Mapping[str, IsrRequirements],
) -> CheckedTopic:
    by_broker = {broker: response.topics[name] for broker, response in responses.items() if name in response.topics}
    partitions = []
    for number, partition in sorted(topic_state.partitions.items()):
        reassignment = reassignments.get((name, number), Reassignment())
        partitions.append(
            ReportedPartition(
                name,
                number,
                partition.leader,
                partition.replicas,
                partition.isr,
                partition.elr,
                reassignment.adding,
                reassignment.removing,
            )
        )
    return CheckedTopic(
        name, topic_state.internal, tuple(partitions), strictest([*by_broker.values(), other_view.get(name)]), by_broker
    )


@dataclass
class ReportedSettings:
    """Settings that a broker reported; the attributes are those of ``BrokerResponse``."""

    default: IsrRequirements | None = None
    property_racks: int | None = None
    replicas_by_source: dict[str, int] = field(default_factory=dict)
    unclean: dict[str, str] = field(default_factory=dict)
    topics: dict[str, IsrRequirements] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    invalid: dict[str, dict[str, str | None]] = field(default_factory=dict)

    def read(self, results: Iterable[Mapping[str, Any]], requested: Collection[str]) -> None:
        """Read the results of a DescribeConfigs response in Kafka's JSON form.

        Topics that were not requested are ignored.
        """
        for result in results:
            name = str(result.get("resourceName") or "")
            if result.get("resourceType") == _BROKER_RESOURCE:
                name = ""
            elif name not in requested:
                continue
            if result.get("errorCode"):
                self.rejected[name] = str(result.get("errorMessage") or f"Kafka's error code {result['errorCode']}")
                continue
            configs = {config.get("name"): config for config in result.get("configs") or ()}
            # a broker without the overlay returns null for the config if it is in its properties
            if configs.get(MIN_INSYNC_RACKS, {}).get("value") is None:
                configs.pop(MIN_INSYNC_RACKS, None)
            if not name:
                self.property_racks = _values_by_source(configs.get(MIN_INSYNC_RACKS, {})).get("file")
                self.replicas_by_source = _values_by_source(configs.get(MIN_INSYNC_REPLICAS, {}))
            unclean = configs.get(UNCLEAN_ELECTION, {})
            if unclean.get("value") == "true":
                self.unclean[name] = _source(unclean)
            settings = {
                key: _setting(configs[key]) for key in (MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS) if key in configs
            }
            if MIN_INSYNC_REPLICAS not in settings:
                self.rejected[name] = f"its response has no {MIN_INSYNC_REPLICAS}"
                continue
            if invalid_values := {
                key: configs[key].get("value") for key, setting in settings.items() if setting is None
            }:
                self.invalid[name] = {
                    key: None if value is None else str(value) for key, value in invalid_values.items()
                }
                continue
            replicas, racks = settings[MIN_INSYNC_REPLICAS], settings.get(MIN_INSYNC_RACKS)
            if replicas is None:
                continue
            requirements = IsrRequirements(replicas, racks, _observed_racks(configs.get(MIN_INSYNC_RACKS_OBSERVE)))
            if name:
                self.topics[name] = requirements
            else:
                self.default = requirements

    def complete(self, requested: Collection[str]) -> None:
        """Mark settings as rejected that no result contained."""
        for name in sorted(set(requested) - self.topics.keys() - self.rejected.keys() - self.invalid.keys()):
            self.rejected[name] = "its response does not contain it"
        if self.default is None and "" not in self.rejected and "" not in self.invalid:
            self.rejected[""] = "its response does not contain them"

    def use_metadata_only(self) -> None:
        """Replace an R that is not from the metadata by 1, as all nodes do at level 1."""
        if self.default is not None:
            self.default = _metadata_requirements(self.default)
        self.topics = {name: _metadata_requirements(requirements) for name, requirements in self.topics.items()}


def _setting(config: Mapping[str, Any]) -> ConfigValue | None:
    """Return a setting, or None if its value is not valid for M and R."""
    value = minimum(config.get("value"))
    # cached: topics with the same value share one object
    return None if value is None else _settings(value, _source(config))


def _source(config: Mapping[str, Any]) -> str:
    source = config.get("configSource")
    return _SOURCES.get(source, "unknown") if isinstance(source, int) else "unknown"


_settings = lru_cache(maxsize=1024)(ConfigValue)
_NO_RACKS_REQUIRED = ConfigValue(1, "default")


def _metadata_requirements(requirements: IsrRequirements) -> IsrRequirements:
    if requirements.racks is None or requirements.racks.source in _METADATA_SOURCES:
        return requirements
    return replace(requirements, racks=_NO_RACKS_REQUIRED)


def _values_by_source(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the valid values of a broker's setting by source; that in its properties has the source ``file``."""
    values = {
        _SOURCES.get(synonym.get("source"), "unknown"): minimum(synonym.get("value"))
        for synonym in config.get("synonyms") or ()
    }
    return {source: value for source, value in values.items() if value is not None}


def _observed_racks(config: Mapping[str, Any] | None) -> ConfigValue | None:
    """Return ``min.insync.racks.observe`` if it is set, and None for the default."""
    setting = _setting(config) if config else None
    return None if setting is None or setting.source == "default" else setting


def query_each_broker(
    brokers: Mapping[int, tuple[str, int]],
    topics: Mapping[int, Sequence[str]],
    config: Mapping[str, str],
    *,
    timeout_s: float,
    unclean: bool = False,
) -> Enforcement:
    """Query brokers, ``_AT_ONCE`` at a time, for versions, features, their settings and those of topics.

    The JVM must be running. Each broker has a client of its own, so that an invalid response affects only this broker.

    Args:
        brokers: host and port by id.
        topics: names of the topics to request from each broker.
        config: further properties of Kafka's clients.
        timeout_s: timeout of all requests together; a broker that has not sent all responses by then counts as silent.
        unclean: also request ``unclean.leader.election.enable``.
    """
    deadline = time.monotonic() + timeout_s
    keys = (*_KEYS, UNCLEAN_ELECTION) if unclean else _KEYS
    each_s = timeout_s / max(1, math.ceil(len(brokers) / _AT_ONCE))
    pending = deque(sorted(brokers))
    responses: dict[int, BrokerResponse | str] = {}
    errors: list[Exception] = []

    def query_pending() -> None:
        while pending and not errors:
            try:
                broker = pending.popleft()
            except IndexError:
                return
            try:
                left_s = min(each_s, deadline - time.monotonic())
                requested = topics.get(broker, ())
                requests = _describe_requests(broker, requested, keys)
                # longer, so that the deadline of the exchange ends it, and gives the reason
                timeout_ms = max(1, round((left_s + _GRACE_S) * 1000))
                with network_client(broker, brokers[broker], config, timeout_ms) as client:
                    responses[broker] = _BrokerExchange(client, frozenset(requested)).run(requests, left_s)
            except jpype.JException as error:
                responses[broker] = _reason(JavaError.of(error))
            except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
                errors.append(error)

    # daemon threads, so that one pending for DNS does not delay the end of the process
    threads = [
        threading.Thread(target=query_pending, daemon=True, name=JAVA_THREAD)
        for _ in range(min(_AT_ONCE, len(brokers)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline + _GRACE_S - time.monotonic()))
    if errors:
        raise errors[0]
    finished = dict(responses)
    timed_out = {
        broker: f"{host}:{port}: no response within {timeout_s:.0f} s"
        for broker, (host, port) in brokers.items()
        if broker not in finished
    }
    return Enforcement(
        responses={
            broker: response for broker, response in sorted(finished.items()) if isinstance(response, BrokerResponse)
        },
        unresponsive=timed_out | {broker: reason for broker, reason in finished.items() if isinstance(reason, str)},
    )


@dataclass(frozen=True)
class BrokerClient:
    """Kafka's own network client with one broker as its only node; the attributes are Java objects."""

    java: Any
    versions: Any
    node: Any
    clock: Any


@contextmanager
def network_client(
    broker: int, address: tuple[str, int], config: Mapping[str, str], timeout_ms: int
) -> Iterator[BrokerClient]:
    """Yield a network client of one broker, which is closed at the end of the block; the JVM must be running.

    ``timeout_ms`` is the timeout of each request.
    """
    kafka = jpype.JPackage("org").apache.kafka
    properties = jpype.java.util.HashMap()
    for key, value in {**config, "bootstrap.servers": "unused:1", "request.timeout.ms": str(timeout_ms)}.items():
        properties.put(key, value)
    versions = kafka.clients.ApiVersions()
    metrics = kafka.common.metrics.Metrics()
    node = kafka.common.Node(broker, *address)
    clock = kafka.common.utils.Time.SYSTEM
    client = kafka.clients.ClientUtils.createNetworkClient(
        kafka.clients.admin.AdminClientConfig(properties),
        "rackgate-check",
        metrics,
        "rackgate-check",
        kafka.common.utils.LogContext("[rackgate check] "),
        versions,
        clock,
        100,
        timeout_ms,
        None,
        kafka.clients.ManualMetadataUpdater(jpype.java.util.ArrayList([node])),
        kafka.clients.DefaultHostResolver(),
        None,
        None,
    )
    try:
        yield BrokerClient(client, versions, node, clock)
    finally:
        client.close()
        metrics.close()


@dataclass
class _BrokerExchange:
    """Requests to one broker and its responses."""

    client: BrokerClient
    topics: Collection[str]  # names of the requested topics
    handshake: BrokerResponse | None = None
    settings: ReportedSettings = field(default_factory=ReportedSettings)

    def run(self, requests: list[Any], timeout_s: float) -> BrokerResponse | str:
        """Send all requests and return the response, or the reason of a failure or timeout."""
        deadline = time.monotonic() + timeout_s
        expected = len(requests)
        while expected or self.handshake is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                missing = "no response" if self.handshake else "no connection"
                return f"{self.client.node.host()}:{self.client.node.port()}: {missing} within {timeout_s:.0f} s"
            self._send_next(requests)
            failure = self.client.java.authenticationException(self.client.node)
            if failure is not None:
                return _root_cause(JavaError.of(failure), failure)
            wait_ms = min(_POLL_MS, math.ceil(left_s * 1000))
            for response in self.client.java.poll(wait_ms, self.client.clock.milliseconds()):
                if reason := self._read(response):
                    return reason
                expected -= 1
        self.settings.complete(self.topics)
        if self.handshake.level >= 1:
            self.settings.use_metadata_only()
        return replace(self.handshake, **vars(self.settings))

    def _send_next(self, requests: list[Any]) -> None:
        client, now = self.client, self.client.clock.milliseconds()
        if not requests or not client.java.ready(client.node, now):
            return
        if self.handshake is None:
            self.handshake = _parse_versions(client.versions.get(client.node.idString()))
        client.java.send(client.java.newClientRequest(client.node.idString(), requests.pop(0), now, True), now)

    def _read(self, response: Any) -> str:
        """Read a response; return the reason if it has no result, or an empty text."""
        if response.wasDisconnected():
            return "the connection was closed before its response"
        if response.versionMismatch() is not None:
            return f"it can't describe configs: {response.versionMismatch().getMessage()}"
        # through JSON: a JPype call for each field of each topic takes ten times as long
        converter = jpype.JClass("org.apache.kafka.common.message.DescribeConfigsResponseDataJsonConverter")
        data = converter.write(response.responseBody().data(), response.requestHeader().apiVersion())
        self.settings.read(json.loads(str(data.toString()))["results"], self.topics)
        return ""


def _parse_versions(versions: Any) -> BrokerResponse:
    produce = versions.apiVersion(jpype.JClass("org.apache.kafka.common.protocol.ApiKeys").PRODUCE)
    supported = {str(entry.getKey()): int(entry.getValue().max()) for entry in versions.supportedFeatures().entrySet()}
    return BrokerResponse(
        produce=0 if produce is None else int(produce.maxVersion()),
        supported_level=supported.get(RACKS_FEATURE, 0),
        metadata_version=supported.get(METADATA_FEATURE, 0),
        levels={str(entry.getKey()): int(entry.getValue()) for entry in versions.finalizedFeatures().entrySet()},
        epoch=int(versions.finalizedFeaturesEpoch()),
        default=None,
    )


def _describe_requests(broker: int, topics: Sequence[str], keys: Sequence[str]) -> list[Any]:
    batches = [[(_BROKER_RESOURCE, str(broker))]]
    batches += [
        [(_TOPIC_RESOURCE, name) for name in topics[start : start + _TOPICS_AT_ONCE]]
        for start in range(0, len(topics), _TOPICS_AT_ONCE)
    ]
    # built from JSON, for the same reason as in _BrokerExchange._read
    mapper = jpype.JClass("com.fasterxml.jackson.databind.ObjectMapper")()
    converter = jpype.JClass("org.apache.kafka.common.message.DescribeConfigsRequestDataJsonConverter")
    builder = jpype.JClass("org.apache.kafka.common.requests.DescribeConfigsRequest$Builder")
    requests = []
    for batch in batches:
        request = {
            "resources": [
                {"resourceType": kind, "resourceName": name, "configurationKeys": list(keys)} for kind, name in batch
            ],
            # the value in a broker's properties is a synonym of the value in force
            "includeSynonyms": batch[0][0] == _BROKER_RESOURCE,
            "includeDocumentation": False,
        }
        requests.append(builder(converter.read(mapper.readTree(json.dumps(request)), jpype.JShort(_REQUEST_VERSION))))
    return requests


def _root_cause(error: JavaError, thrown: Any = None) -> str:
    """Return the message of a failure's root cause; for a client that can't be created only this one is specific.

    Args:
        error: the failure.
        thrown: the Java throwable, if it is not the ``__cause__`` of ``error``.
    """
    text, thrown = _reason(error), error.__cause__ if thrown is None else thrown
    while isinstance(thrown, jpype.JException):
        message = thrown.getMessage()
        if message is not None:
            # the message of a Java exception about a file is only the file's name
            name = str(thrown.getClass().getSimpleName())
            text = f"{name}: {message}" if isinstance(thrown, jpype.java.io.IOException) else str(message)
        thrown = thrown.getCause()
    return text


def _reason(error: JavaError) -> str:
    return "no response in time" if error.java_class in _TIMEOUTS else error.text or error.java_class
