"""Kafka's own command-line tools, as an operator calls them, and what they say."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from pyhooks.cluster.kafka import LOG4J
from pyhooks.process import DIES_WITH_PARENT

FEATURES = "org.apache.kafka.tools.FeatureCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
STORAGE = "kafka.tools.StorageTool"
RACKS_FEATURE = "min.insync.racks.version"
ELR_FEATURE = "eligible.leader.replicas.version"
TOOL_S = 60.0
_LEVEL = re.compile(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)\s")


@dataclass(frozen=True)
class Said:
    """How a tool ended.

    Attributes:
        status: its exit status.
        text: what it wrote, standard output first.
    """

    status: int
    text: str

    @property
    def line(self) -> str:
        """The same in one line."""
        return " ".join(self.text.split())

    def about(self, word: str) -> list[str]:
        """The lines that have a word in them."""
        return [line for line in self.text.splitlines() if word in line]


def tool(classpath: str, name: str, *arguments: str) -> Said:
    """Runs a tool to its end, whatever that is."""
    words = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOG4J}", "-cp", classpath]
    done = subprocess.run(
        [*DIES_WITH_PARENT, *words, name, *arguments], capture_output=True, text=True, check=False, timeout=TOOL_S
    )
    return Said(done.returncode, done.stdout + done.stderr)


def features(classpath: str, bootstrap: str, *arguments: str) -> Said:
    """``kafka-features.sh --bootstrap-server … ARGUMENTS``."""
    return tool(classpath, FEATURES, "--bootstrap-server", bootstrap, *arguments)


def described(classpath: str, bootstrap: str) -> dict[str, str]:
    """The finalized levels that ``kafka-features describe`` prints, by feature."""
    said = features(classpath, bootstrap, "describe")
    assert said.status == 0, said.text
    return dict(_LEVEL.findall(said.text))
