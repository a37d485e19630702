"""Asks a cluster for placements, and each broker for what it goes by itself.

Metadata, settings and features could all be had from one broker through Kafka's Admin client, but what a broker
enforces is what *it* knows, and an Admin asks whichever broker is least busy. So each broker is asked over a connection
of its own, with Kafka's own network client: the handshake tells its versions and features, and it describes its own
settings and those of the topics that it has replicas of. Security and DNS are set as for the Admin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jpype

from pyhooks.check.enforce import MIN_RACKS, MIN_REPLICAS, Answer, Enforcement, strictest
from pyhooks.check.placement import Broker, Cluster, Need, Partition, Setting, Topic
from pyhooks.errors import RackgateError
from pyhooks.features import RACKS_FEATURE
from pyhooks.jvm.admin import TIMEOUT, UNSUPPORTED, Admin, ClusterNode, Reassignment, TopicState
from pyhooks.jvm.client import java_of
from pyhooks.jvm.failure import JavaError

# org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource
_SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default"}
# One broker of three may be silent: all of these meet it once in 243 times.
_CLIENTS, _LEAST_S = 5, 3.0
# Of a question that any broker can answer: a paused one that is asked keeps it until this part of the bound is over.
_TRIES = 6
_TOPIC, _BROKER = 2, 4  # org.apache.kafka.common.config.ConfigResource.Type
_TOPICS_AT_ONCE = 2000
_POLL_MS = 50


@dataclass(frozen=True)
class Seen:
    """A cluster and what its brokers say.

    Attributes:
        cluster: placements.
        enforcement: answers of brokers.
    """

    cluster: Cluster
    enforcement: Enforcement


def client_config(file: Path | None) -> dict[str, str]:
    """The properties of ``--command-config``, as Kafka's own tools read them; ``bootstrap.servers`` is left out.

    Raises:
        RackgateError: the file cannot be read; or there is no distribution, or no Java.
    """
    if file is None:
        return {}
    properties = java_of("java.util.Properties", lambda kind, _config: kind(), "", {})
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RackgateError(f"--command-config {file}: {error}") from error
    try:
        properties.load(jpype.JClass("java.io.StringReader")(text))
    except jpype.JException as error:
        raise RackgateError(f"--command-config {file}: {JavaError.of(error).text}") from error
    found = {str(entry.getKey()): str(entry.getValue()) for entry in properties.entrySet()}
    found.pop("bootstrap.servers", None)
    return found


def hush() -> None:
    """Lets Kafka's clients in this process write no log: what they run into is told in a line of our own.

    Raises:
        RackgateError: no distribution, or no Java.
    """
    levels = java_of("org.apache.logging.log4j.Level", lambda kind, _config: kind.OFF, "", {})
    jpype.JClass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(levels)


def look(bootstrap: str, config: Mapping[str, str], *, timeout_s: float, say: Callable[[str], None]) -> Seen:
    """Asks a cluster.

    Args:
        bootstrap: brokers, ``host:port,…``.
        config: further properties of Kafka's clients.
        timeout_s: bound for each of the questions; there are six, one of which may be put several times.
        say: told what is being asked.

    Raises:
        RackgateError: the cluster can't be asked. A single broker that is silent is no error.
    """
    try:
        with Admin(bootstrap, timeout_s=timeout_s, config=config, tries=_TRIES) as admin:
            say("asking for brokers and racks")
            cluster_id, nodes = admin.cluster()
            say("asking for topics")
            topics = admin.topics()
            voters = admin.voters()
        say("asking for reassignments")
        moving = _reassignments(bootstrap, config, timeout_s)
    except JavaError as error:
        raise _unasked(bootstrap, error, timeout_s) from error
    brokers, questions = _brokers(nodes), _questions(nodes)
    say(f"asking {len(questions)} brokers what they enforce")
    found = ask_brokers(questions, _hosted(topics, set(questions)), config, timeout_s=timeout_s)
    enforcement = _enforcement(brokers, found)
    rest = sorted(set(topics) - {topic for answer in found.answers.values() for topic in answer.topics})
    elsewhere: Mapping[str, Need] = {}
    if rest and found.answers:
        # topics whose brokers are all away: what another broker says of them is better than nothing
        one = min(found.answers)
        again = ask_brokers({one: questions[one]}, {one: rest}, config, timeout_s=timeout_s)
        elsewhere = again.answers[one].topics if one in again.answers else {}
    made = tuple(_topic(name, state, moving, found.answers, elsewhere) for name, state in topics.items())
    return Seen(Cluster(cluster_id, brokers, made, enforcement.enforced, voters), enforcement)


def look_at_brokers(bootstrap: str, config: Mapping[str, str], *, timeout_s: float) -> Seen:
    """Asks a cluster for its brokers, and each of them what it enforces; topics are left out.

    Args:
        bootstrap: brokers, ``host:port,…``.
        config: further properties of Kafka's clients.
        timeout_s: bound for each of the two questions.

    Raises:
        RackgateError: the cluster can't be asked. A single broker that is silent is no error.
    """
    try:
        with Admin(bootstrap, timeout_s=timeout_s, config=config, tries=_TRIES) as admin:
            cluster_id, nodes = admin.cluster()
    except JavaError as error:
        raise _unasked(bootstrap, error, timeout_s) from error
    brokers = _brokers(nodes)
    enforcement = _enforcement(brokers, ask_brokers(_questions(nodes), {}, config, timeout_s=timeout_s))
    return Seen(Cluster(cluster_id, brokers, (), enforcement.enforced), enforcement)


def _unasked(bootstrap: str, error: JavaError, timeout_s: float) -> RackgateError:
    why = f"no answer within {timeout_s:.0f} s" if error.java_class == TIMEOUT else _deepest(error)
    return RackgateError(f"cluster {bootstrap}: {why}; see --bootstrap and --command-config")


def _brokers(nodes: Sequence[ClusterNode]) -> dict[int, Broker]:
    return {
        node.broker_id: Broker(node.broker_id, node.rack, node.fenced, f"{node.host}:{node.port}") for node in nodes
    }


def _questions(nodes: Sequence[ClusterNode]) -> dict[int, tuple[str, int]]:
    return {node.broker_id: (node.host, node.port) for node in nodes if not node.fenced}


def _enforcement(brokers: Mapping[int, Broker], found: Found) -> Enforcement:
    fenced = {broker.broker_id: "fenced" for broker in brokers.values() if broker.fenced}
    return Enforcement(answers=found.answers, silent={**found.silent, **fenced})


def _reassignments(
    bootstrap: str, config: Mapping[str, str], timeout_s: float
) -> Mapping[tuple[str, int], Reassignment]:
    """The reassignments under way, asked for by up to ``_CLIENTS`` clients.

    A client puts this question to the broker that is named to it as the controller. In KRaft that is one of all brokers
    that are not fenced, drawn at random, and the client stays with it though it be silent (Kafka 4.3's
    KRaftMetadataCache.getRandomAliveBrokerId; seen with one of four brokers paused: three times of six).
    """
    each_s = max(timeout_s / _CLIENTS, min(timeout_s, _LEAST_S))
    for left in reversed(range(_CLIENTS)):
        try:
            with Admin(bootstrap, timeout_s=each_s, config=config) as admin:
                return admin.reassignments()
        except JavaError as error:
            # before Kafka 2.4 there is no such question, and nobody could move anything this way
            if error.java_class == UNSUPPORTED:
                return {}
            if error.java_class != TIMEOUT or not left:
                raise
    return {}


def _hosted(topics: Mapping[str, TopicState], brokers: set[int]) -> dict[int, list[str]]:
    """Which topics each broker has replicas of."""
    hosted: dict[int, list[str]] = {broker: [] for broker in brokers}
    for name, state in topics.items():
        for broker in {replica for partition in state.partitions.values() for replica in partition.replicas}:
            if broker in hosted:
                hosted[broker].append(name)
    return hosted


def _topic(
    name: str,
    state: TopicState,
    moving: Mapping[tuple[str, int], Reassignment],
    answers: Mapping[int, Answer],
    elsewhere: Mapping[str, Need],
) -> Topic:
    said = {broker: answer.topics[name] for broker, answer in answers.items() if name in answer.topics}
    partitions = []
    for number, told in sorted(state.partitions.items()):
        change = moving.get((name, number), Reassignment())
        partitions.append(
            Partition(name, number, told.leader, told.replicas, told.isr, told.elr, change.adding, change.removing)
        )
    return Topic(name, state.internal, tuple(partitions), strictest([*said.values(), elsewhere.get(name)]), said)


@dataclass(frozen=True)
class Found:
    """What brokers said, and why others did not; both by broker id."""

    answers: Mapping[int, Answer]
    silent: Mapping[int, str]


@dataclass
class _Talk:
    """A broker that is being asked."""

    node: Any
    requests: list[Any]
    answer: Answer | None = None
    open: int = 0
    topics: dict[str, Need] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    default: Need | None = None


def ask_brokers(
    brokers: Mapping[int, tuple[str, int]],
    topics: Mapping[int, Sequence[str]],
    config: Mapping[str, str],
    *,
    timeout_s: float,
) -> Found:
    """Asks brokers, all at once, for versions, features, their settings and those of topics. The JVM must run.

    Args:
        brokers: host and port by id.
        topics: which topics to ask each for.
        config: further properties of Kafka's clients.
        timeout_s: bound for all of it; who has not said everything by then counts as silent.
    """
    kafka = jpype.JPackage("org").apache.kafka
    properties = jpype.java.util.HashMap()
    bounds = {"bootstrap.servers": "unused:1", "request.timeout.ms": str(round(timeout_s * 1000))}
    for key, value in {**config, **bounds}.items():
        properties.put(key, value)
    versions, clock = kafka.clients.ApiVersions(), kafka.common.utils.Time.SYSTEM
    metrics = kafka.common.metrics.Metrics()
    talks = {
        broker: _Talk(kafka.common.Node(broker, host, port), _requests(kafka, broker, topics.get(broker, ())))
        for broker, (host, port) in brokers.items()
    }
    nodes = jpype.java.util.ArrayList([talk.node for talk in talks.values()])
    client = kafka.clients.ClientUtils.createNetworkClient(
        kafka.clients.admin.AdminClientConfig(properties),
        "rackgate-check",
        metrics,
        "rackgate-check",
        kafka.common.utils.LogContext("[rackgate check] "),
        versions,
        clock,
        100,
        round(timeout_s * 1000),
        None,
        kafka.clients.ManualMetadataUpdater(nodes),
        kafka.clients.DefaultHostResolver(),
        None,
        None,
    )
    try:
        silent = _converse(client, versions, clock, talks, timeout_s)
    except jpype.JException as error:
        silent = {broker: str(JavaError.of(error)) for broker in talks}
    finally:
        client.close()
        metrics.close()
    answers = {
        broker: replace(talk.answer, default=talk.default, topics=talk.topics, refused=talk.refused)
        for broker, talk in talks.items()
        if broker not in silent and talk.answer is not None
    }
    return Found(answers, silent)


def _converse(client: Any, versions: Any, clock: Any, talks: dict[int, _Talk], timeout_s: float) -> dict[int, str]:
    """Asks until all have answered, failed or run out of time; returns who did not answer, and why."""
    silent: dict[int, str] = {}
    deadline = time.monotonic() + timeout_s
    while True:
        busy = [broker for broker, talk in talks.items() if broker not in silent and (talk.requests or talk.open)]
        if not busy:
            return silent
        if time.monotonic() >= deadline:
            for broker in busy:
                talk = talks[broker]
                where = f"{talk.node.host()}:{talk.node.port()}"
                done = "does not answer" if talk.answer else "no connection to it"
                silent[broker] = f"{where}: {done} within {timeout_s:.0f} s"
            return silent
        for broker in busy:
            talk = talks[broker]
            try:
                _send_next(client, versions, clock, talk)
            except jpype.JException as error:
                silent[broker] = _why(JavaError.of(error))
                continue
            failed = client.authenticationException(talk.node)
            if failed is not None:
                silent[broker] = _why(JavaError.of(failed))
        for response in client.poll(_POLL_MS, clock.milliseconds()):
            broker = int(str(response.destination()))
            because = _take(talks[broker], broker, response)
            if because:
                silent.setdefault(broker, because)


def _send_next(client: Any, versions: Any, clock: Any, talk: _Talk) -> None:
    now = clock.milliseconds()
    if not talk.requests or not client.ready(talk.node, now):
        return
    if talk.answer is None:
        talk.answer = _handshake(versions.get(talk.node.idString()))
    request = client.newClientRequest(talk.node.idString(), talk.requests.pop(0), now, True)
    client.send(request, now)
    talk.open += 1


def _handshake(told: Any) -> Answer:
    produce = told.apiVersion(jpype.JClass("org.apache.kafka.common.protocol.ApiKeys").PRODUCE)
    supported = told.supportedFeatures().get(RACKS_FEATURE)
    return Answer(
        produce=0 if produce is None else int(produce.maxVersion()),
        supports=0 if supported is None else int(supported.max()),
        levels={str(entry.getKey()): int(entry.getValue()) for entry in told.finalizedFeatures().entrySet()},
        epoch=int(told.finalizedFeaturesEpoch()),
        default=None,
    )


def _requests(kafka: Any, broker: int, topics: Sequence[str]) -> list[Any]:
    wanted = [[(_BROKER, str(broker))]]
    wanted += [
        [(_TOPIC, name) for name in topics[start : start + _TOPICS_AT_ONCE]]
        for start in range(0, len(topics), _TOPICS_AT_ONCE)
    ]
    keys = jpype.java.util.ArrayList([MIN_REPLICAS, MIN_RACKS])
    data_class = kafka.common.message.DescribeConfigsRequestData
    resource_class = jpype.JClass("org.apache.kafka.common.message.DescribeConfigsRequestData$DescribeConfigsResource")
    requests = []
    for resources in wanted:
        asked = jpype.java.util.ArrayList()
        for kind, name in resources:
            resource = resource_class().setResourceType(jpype.JByte(kind)).setResourceName(name)
            asked.add(resource.setConfigurationKeys(keys))
        builder = jpype.JClass("org.apache.kafka.common.requests.DescribeConfigsRequest$Builder")
        requests.append(builder(data_class().setResources(asked)))
    return requests


def _take(talk: _Talk, broker: int, response: Any) -> str:
    """Reads a response; returns why there is none in it, or nothing."""
    talk.open -= 1
    if response.wasDisconnected():
        return "the connection ended before it answered"
    if response.versionMismatch() is not None:
        return f"it can't describe configs: {response.versionMismatch().getMessage()}"
    for result in response.responseBody().data().results():
        name = "" if int(result.resourceType()) == _BROKER else str(result.resourceName())
        code = int(result.errorCode())
        if code:
            error = jpype.JClass("org.apache.kafka.common.protocol.Errors").forCode(jpype.JShort(code))
            talk.refused[name] = str(result.errorMessage() or error.message())
            continue
        values = {
            str(config.name()): Setting(int(str(config.value())), _SOURCES.get(int(config.configSource()), "unknown"))
            for config in result.configs()
            if config.value() is not None
        }
        if MIN_REPLICAS not in values:
            talk.refused[name] = f"broker {broker} has no {MIN_REPLICAS}"
            continue
        need = Need(values[MIN_REPLICAS], values.get(MIN_RACKS))
        if name:
            talk.topics[name] = need
        else:
            talk.default = need
    return ""


def _deepest(error: JavaError) -> str:
    """The message at the root of a failure: a client that can't be made says why only there."""
    text, thrown = _why(error), error.__cause__
    while thrown is not None:
        text = str(thrown.getMessage() or text) if isinstance(thrown, jpype.JException) else text
        thrown = thrown.getCause() if isinstance(thrown, jpype.JException) else None
    return text


def _why(error: JavaError) -> str:
    return error.text or error.java_class
