"""Internal topics of Kafka with a chosen placement, and settings of the whole cluster: R and feature levels.

R is ``min.insync.racks``, M is ``min.insync.replicas``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ducktape_tests.services.kafka import RackKafka
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import feature_handshake, tools
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS
from pyhooks.kafka.topics import TopicSpec
from pyhooks.patchset.distribution import Distribution

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
# Coordinators keep the number of partitions that they read at startup; tests create these topics with one.
SINGLE_PARTITIONS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
HANDSHAKE_S = 10.0
LEVEL_S = 30.0
# output of the tool if the level is set
DONE = re.compile(r"was (up|down)graded to")


def offsets_topic(replicas: Sequence[int]) -> TopicSpec:
    """Return the topic of group coordinators as they create it, on chosen replicas; M and R are inherited."""
    return TopicSpec(OFFSETS, tuple(replicas), {"cleanup.policy": "compact", "compression.type": "producer"})


def transactions_topic(replicas: Sequence[int], m: int) -> TopicSpec:
    """Return the topic of transaction coordinators as they create it, on chosen replicas; R is inherited."""
    return TopicSpec(TRANSACTIONS, tuple(replicas), {"cleanup.policy": "compact", MIN_INSYNC_REPLICAS: str(m)})


def require_racks(kafka: RackKafka, racks: int) -> None:
    """Set ``min.insync.racks`` of the cluster; ``RackScenario.require_racks`` also records it in the history.

    Raises:
        RackgateError: the cluster refused.
    """
    _cluster_config(kafka, MIN_INSYNC_RACKS, racks)


def _cluster_config(kafka: RackKafka, name: str, value: int) -> None:
    asked = kafka.brokers()[0]
    words = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", f"{name}={value}")
    kafka.run_on(asked, shlex.join(tools.command(kafka.classpath, "configs", words, asked.address)))


def features_tool(kafka: RackKafka, *words: str) -> str:
    """Run the overlay's tool for features and return its output, whatever its exit status."""
    node = kafka.brokers()[0]
    command = tools.command(Distribution.load().classpath(), "features", words, node.address)
    return kafka.run_on(node, f"{shlex.join(command)} 2>&1 || true")


def ask_level(kafka: RackKafka, how: str, level: int) -> str:
    """Request a level of the feature for racks, and return the tool's output about it.

    Args:
        kafka: the cluster.
        how: ``upgrade`` or ``downgrade``.
        level: the level.
    """
    words = [how, "--feature", f"{RACKS_FEATURE}={level}"]
    # The feature for racks depends on this one, which stays enabled after a downgrade, as on stock Kafka.
    words[1:1] = ["--feature", f"{ELR_FEATURE}=1"] if level else []
    told = features_tool(kafka, *words)
    about = [line for line in told.splitlines() if RACKS_FEATURE in line]
    return (about or told.splitlines() or [""])[0].strip()


def level(kafka: RackKafka) -> int:
    """Return the level of the feature for racks that a broker reports."""
    node = kafka.brokers()[0]
    return feature_handshake.finalized(node.ip, int(node.address.rpartition(":")[2]), HANDSHAKE_S).get(RACKS_FEATURE, 0)


def level_after(kafka: RackKafka, said: str, to: int) -> int:
    """Return the level that a broker reports after a request; if the tool reports success, wait for that level first.

    Args:
        kafka: the cluster.
        said: output of the tool, see ``ask_level``.
        to: the requested level.
    """
    if DONE.search(said):
        try:
            wait_for(lambda: level(kafka) == to, what=f"level {to} of {RACKS_FEATURE} ({said})", timeout_s=LEVEL_S)
        except RackgateError:
            # A checker judges the level that it has instead.
            return level(kafka)
    return level(kafka)


def change_level(kafka: RackKafka, how: str, to: int) -> None:
    """Request a level of the feature for racks and wait until a broker reports it.

    Raises:
        RackgateError: no broker reports it in time; includes the tool's output.
    """
    said = ask_level(kafka, how, to)
    wait_for(lambda: level(kafka) == to, what=f"level {to} of {RACKS_FEATURE} ({said})", timeout_s=LEVEL_S)
