"""Kafka's command-line tools by script name, run with the class path of a lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyhooks.core import paths, process, toml_config
from pyhooks.core.errors import RackgateError

# Enough for the lab's clusters; a tool that needs more must be run by hand.
HEAP_MB = 256


@dataclass(frozen=True)
class Tool:
    """One of Kafka's command-line tools."""

    java_class: str
    bootstrap: str = "--bootstrap-server"  # option for the bootstrap addresses, or empty
    last: bool = False  # whether that option must follow all others, because it belongs to a subcommand


# log warnings only, to standard error
_QUIET = paths.REPO / "pyhooks" / "jvm" / "log4j2.properties"
_TOOLS = "org.apache.kafka.tools"
# Keys are the names of Kafka's scripts without "kafka-" and ".sh"; classes are those that the scripts start, unless
# ``[tools]`` in ``patch/VERSION/kafka.toml`` has another one.
TOOLS = {
    "acls": Tool(f"{_TOOLS}.AclCommand"),
    "broker-api-versions": Tool(f"{_TOOLS}.BrokerApiVersionsCommand"),
    "client-metrics": Tool(f"{_TOOLS}.ClientMetricsCommand"),
    "cluster": Tool(f"{_TOOLS}.ClusterTool", last=True),
    "configs": Tool("kafka.admin.ConfigCommand"),
    "console-consumer": Tool(f"{_TOOLS}.consumer.ConsoleConsumer"),
    "console-producer": Tool(f"{_TOOLS}.ConsoleProducer"),
    "console-share-consumer": Tool(f"{_TOOLS}.consumer.ConsoleShareConsumer"),
    "consumer-groups": Tool(f"{_TOOLS}.consumer.group.ConsumerGroupCommand"),
    "consumer-perf-test": Tool(f"{_TOOLS}.ConsumerPerformance"),
    "delegation-tokens": Tool(f"{_TOOLS}.DelegationTokenCommand"),
    "delete-records": Tool(f"{_TOOLS}.DeleteRecordsCommand"),
    "dump-log": Tool(f"{_TOOLS}.DumpLogSegments", ""),
    "e2e-latency": Tool(f"{_TOOLS}.EndToEndLatency", ""),
    "features": Tool(f"{_TOOLS}.FeatureCommand"),
    "get-offsets": Tool(f"{_TOOLS}.GetOffsetShell"),
    "groups": Tool(f"{_TOOLS}.GroupsCommand"),
    "leader-election": Tool(f"{_TOOLS}.LeaderElectionCommand"),
    "log-dirs": Tool(f"{_TOOLS}.LogDirsCommand"),
    "metadata-quorum": Tool(f"{_TOOLS}.MetadataQuorumCommand"),
    "producer-perf-test": Tool(f"{_TOOLS}.ProducerPerformance"),
    "reassign-partitions": Tool(f"{_TOOLS}.reassign.ReassignPartitionsCommand"),
    "replica-verification": Tool(f"{_TOOLS}.ReplicaVerificationTool", "--broker-list"),
    "share-groups": Tool(f"{_TOOLS}.consumer.group.ShareGroupCommand"),
    "storage": Tool("kafka.tools.StorageTool", ""),
    "topics": Tool(f"{_TOOLS}.TopicCommand"),
    "transactions": Tool(f"{_TOOLS}.TransactionsCommand"),
    "verifiable-consumer": Tool(f"{_TOOLS}.VerifiableConsumer"),
    "verifiable-producer": Tool(f"{_TOOLS}.VerifiableProducer"),
}


@cache
def _classes_of(recipe: Path) -> dict[str, str]:
    """Return the tools whose class is another one in the recipe's version of Kafka, with that class."""
    return dict(toml_config.read(recipe, "it has the classes of tools").get("tools", {}))


def command(classpath: str, name: str, arguments: Sequence[str], bootstrap: str) -> list[str]:
    """Return the command line of a tool; adds the brokers unless ``arguments`` name some or request help.

    ``name`` is the script's name, with or without ``kafka-`` and ``.sh``.

    Raises:
        RackgateError: unknown tool; the message lists all names.
    """
    short = name.removeprefix("kafka-").removesuffix(".sh")
    tool = TOOLS.get(short)
    if tool is None:
        raise RackgateError(f"no tool {name!r} of Kafka; there are: {', '.join(TOOLS)}")
    java_command = ["java", f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    java_class = _classes_of(paths.patch_folder() / "kafka.toml").get(short, tool.java_class)
    java_command += [f"-Dlog4j2.configurationFile={_QUIET}", "-cp", classpath, java_class]
    named = any(argument.startswith(("--bootstrap", "--broker-list")) for argument in arguments)
    if tool.bootstrap and not named and not {"--help", "--version"} & set(arguments):
        brokers = [tool.bootstrap, bootstrap]
        return [*java_command, *arguments, *brokers] if tool.last else [*java_command, *brokers, *arguments]
    return [*java_command, *arguments]


def run(classpath: str, name: str, arguments: Sequence[str], bootstrap: str, *, timeout_s: float = 60.0) -> str:
    """Run a tool to completion and return its output.

    Raises:
        RackgateError: the tool failed; the detail is its output.
    """
    return process.run(
        command(classpath, name, arguments, bootstrap), task=f"kafka-{name} {' '.join(arguments)}", timeout_s=timeout_s
    )
