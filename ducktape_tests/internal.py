"""Kafka's own topics, placed by a test, and what holds for the whole cluster: what it requires, and its features."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ducktape_tests.services.kafka import RackKafka
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import feature_handshake, tools
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.kafka.topics import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, TopicSpec
from pyhooks.patchset.distribution import Distribution

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
# Coordinators go by the number of partitions that they knew when they started; tests make these topics with one.
SINGLE_PARTITIONS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
HANDSHAKE_S = 10.0
LEVEL_S = 30.0
# what the tool says of a level that is set
DONE = re.compile(r"was (up|down)graded to")


def offsets_topic(replicas: Sequence[int]) -> TopicSpec:
    """The group coordinators' topic, as they make it, on replicas of a test's choice; what it requires is inherited."""
    return TopicSpec(OFFSETS, tuple(replicas), {"cleanup.policy": "compact", "compression.type": "producer"})


def transactions_topic(replicas: Sequence[int], m: int) -> TopicSpec:
    """The transaction coordinators' topic, as they make it, on replicas of a test's choice; its R is inherited."""
    return TopicSpec(TRANSACTIONS, tuple(replicas), {"cleanup.policy": "compact", MIN_INSYNC_REPLICAS: str(m)})


def require_racks(kafka: RackKafka, racks: int) -> None:
    """Makes ``min.insync.racks`` of the cluster; ``Drill.require_racks`` does, and tells the history.

    Raises:
        RackgateError: the cluster refused.
    """
    _cluster_config(kafka, MIN_INSYNC_RACKS, racks)


def _cluster_config(kafka: RackKafka, name: str, value: int) -> None:
    asked = kafka.brokers()[0]
    words = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", f"{name}={value}")
    kafka.run_on(asked, shlex.join(tools.command(kafka.classpath, "configs", words, asked.address)))


def features_tool(kafka: RackKafka, *words: str) -> str:
    """What the overlay's tool for features writes, however it ends."""
    node = kafka.brokers()[0]
    command = tools.command(Distribution.load().classpath(), "features", words, node.address)
    return kafka.run_on(node, f"{shlex.join(command)} 2>&1 || true")


def ask_level(kafka: RackKafka, how: str, level: int) -> str:
    """What the tool says of racks when it is asked for a level of their feature.

    Args:
        kafka: the cluster.
        how: upgrade or downgrade.
        level: which.
    """
    words = [how, "--feature", f"{RACKS_FEATURE}={level}"]
    # what the first depends on; it stays on, as a stock Kafka has it
    words[1:1] = ["--feature", f"{ELR_FEATURE}=1"] if level else []
    told = features_tool(kafka, *words)
    about = [line for line in told.splitlines() if RACKS_FEATURE in line]
    return (about or told.splitlines() or [""])[0].strip()


def level(kafka: RackKafka) -> int:
    """The level of the feature for racks as a broker tells it."""
    node = kafka.brokers()[0]
    return feature_handshake.finalized(node.ip, int(node.address.rpartition(":")[2]), HANDSHAKE_S).get(RACKS_FEATURE, 0)


def level_after(kafka: RackKafka, said: str, to: int) -> int:
    """The level that a broker tells after a request; the one asked for is waited for if the tool says it is set.

    Args:
        kafka: the cluster.
        said: by the tool, see ``ask_level``.
        to: the level asked for.
    """
    if DONE.search(said):
        try:
            wait_for(lambda: level(kafka) == to, what=f"level {to} of {RACKS_FEATURE} ({said})", timeout_s=LEVEL_S)
        except RackgateError:
            # what it is instead is for a checker to judge
            return level(kafka)
    return level(kafka)


def change_level(kafka: RackKafka, how: str, to: int) -> None:
    """Asks for a level of the feature for racks and waits until a broker tells it.

    Raises:
        RackgateError: it does not in time; with what the tool said.
    """
    said = ask_level(kafka, how, to)
    wait_for(lambda: level(kafka) == to, what=f"level {to} of {RACKS_FEATURE} ({said})", timeout_s=LEVEL_S)
