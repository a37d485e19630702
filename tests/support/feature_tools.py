"""Run Kafka's command-line tools as an operator does, and produce one record to a gated topic."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from loopback_brokers import Brokers, shared_classes
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.producer import Acknowledged, Producer
from pyhooks.lab.kafka_process import LOG4J

FEATURES = "org.apache.kafka.tools.FeatureCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
STORAGE = "kafka.tools.StorageTool"
RACKS_FEATURE = "min.insync.racks.version"
ELR_FEATURE = "eligible.leader.replicas.version"
RACKS = "min.insync.racks"
TOPIC = "gated"
RACKS_REJECTED = "org.apache.kafka.common.errors.NotEnoughRacksException"
TOOL_S = 60.0
SETTLES_S = 90.0
# errors of a leader whose log does not exist yet: brokers report an ISR before they apply it
_NOT_YET = {
    f"org.apache.kafka.common.errors.{name}"
    for name in ("NotLeaderOrFollowerException", "UnknownTopicOrPartitionException")
}
_LEVEL = re.compile(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)\s")


@dataclass(frozen=True)
class Said:
    """Exit status and output of a tool.

    Attributes:
        status: its exit status.
        text: its standard output, followed by its standard error.
    """

    status: int
    text: str

    @property
    def line(self) -> str:
        """The output joined into one line."""
        return " ".join(self.text.split())

    def about(self, word: str) -> list[str]:
        """Return the lines that contain ``word``."""
        return [line for line in self.text.splitlines() if word in line]


def tool(classpath: str, name: str, *arguments: str) -> Said:
    """Run a tool and return its exit status and output."""
    command = ["java", *shared_classes(classpath), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dlog4j2.configurationFile={LOG4J}", "-cp", classpath]
    done = subprocess.run(
        [*DIES_WITH_PARENT, *command, name, *arguments], capture_output=True, text=True, check=False, timeout=TOOL_S
    )
    return Said(done.returncode, done.stdout + done.stderr)


def features(classpath: str, bootstrap: str, *arguments: str) -> Said:
    """Run ``kafka-features.sh --bootstrap-server … ARGUMENTS``."""
    return tool(classpath, FEATURES, "--bootstrap-server", bootstrap, *arguments)


def described(classpath: str, bootstrap: str) -> dict[str, str]:
    """Return the finalized levels that ``kafka-features describe`` prints, by feature."""
    result = features(classpath, bootstrap, "describe")
    assert result.status == 0, result.text
    return dict(_LEVEL.findall(result.text))


def configs(classpath: str, pair: Brokers, kind: str, name: str, *change: str) -> Said:
    """Run ``kafka-configs --alter`` for a topic or a broker, or for the cluster-wide default if ``name`` is empty."""
    entity = ["--entity-name", name] if name else ["--entity-default"]
    arguments = ["--bootstrap-server", pair.bootstrap, "--alter", "--entity-type", kind, *entity]
    return tool(classpath, CONFIGS, *arguments, *change)


def create_topic(pair: Brokers, config: Mapping[str, str], replicas: Sequence[int] = (1, 2)) -> None:
    """Create the gated topic, with M=1 unless ``config`` sets it; the first of ``replicas`` leads."""
    with Admin(pair.bootstrap) as admin:
        admin.create_topic(TOPIC, [list(replicas)], {"min.insync.replicas": "1", **config})
        wait_for(partial(admin.in_sync, TOPIC, tuple(replicas)), goal="both replicas in sync", timeout_s=60)


def wait_in_sync(brokers: Brokers, replicas: Collection[int]) -> None:
    """Wait until exactly these replicas of the gated topic are in sync."""
    with Admin(",".join(brokers.address(broker) for broker in replicas)) as admin:
        goal = f"{sorted(replicas)} in sync"
        wait_for(partial(admin.in_sync, TOPIC, tuple(replicas)), goal=goal, timeout_s=SETTLES_S)


def produce(pair: Brokers, acks: str = "all") -> str:
    """Produce a record without retries, once there is a leader; return ``ok`` or the exception's class."""
    once = {"acks": acks, "retries": "0", "enable.idempotence": "false", "request.timeout.ms": "10000"}

    def answer() -> str:
        answers: list[Acknowledged | JavaError] = []
        with Producer(pair.bootstrap, once) as producer:
            producer.send(TOPIC, "key", "value", answers.append)
        (one,) = answers
        outcome = one.java_class if isinstance(one, JavaError) else "ok"
        return "" if outcome in _NOT_YET else outcome

    return wait_for(answer, goal=f"a leader of {TOPIC}", timeout_s=60)
