"""Findings about whether an operation on a cluster may start now, and the exit status that they give. Pure functions.

``rackgate preflight`` judges whether min.insync.racks may be enabled, ``rackgate check --without`` whether brokers may
be restarted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

ReadinessSeverity = Literal["obstacle", "unknown", "notice"]
READINESS_SEVERITIES: tuple[ReadinessSeverity, ...] = ("obstacle", "unknown", "notice")
READY, NOT_READY, UNKNOWN = 0, 1, 2


@dataclass(frozen=True)
class ReadinessFinding:
    """Reason against an operation, fact that could not be determined, or notice."""

    code: str  # stable name of the kind of finding, for programs
    severity: ReadinessSeverity  # an ``obstacle`` makes the exit status 1. Without obstacles, ``unknown`` makes it 2.
    subject: str  # what it is about: a topic with partitions, brokers, controllers or the cluster
    text: str  # what is wrong, in a sentence
    remedy: str  # shell commands, one a line; a line that starts with ``#`` describes a step that no command can do


@dataclass(frozen=True)
class CommandWriter:
    """Writes the commands of remedies with the options that reach the cluster."""

    bootstrap: str = ""  # bootstrap servers; empty for the lab that runs, whose commands know them
    command_config: str = ""  # properties file of the clients, or empty

    def kafka(self, tool: str, *arguments: str) -> str:
        """Return a command with one of Kafka's tools, named as its script without ``kafka-`` and ``.sh``."""
        if not self.bootstrap:
            return shlex.join(["rackgate", "lab", "kafka", tool, *arguments])
        return shlex.join(
            [f"kafka-{tool}.sh", "--bootstrap-server", self.bootstrap, *self._config_option(), *arguments]
        )

    def rackgate(self, verb: str, *arguments: str) -> str:
        """Return a command with a verb of ``rackgate``."""
        cluster = ["--bootstrap", self.bootstrap] if self.bootstrap else []
        return shlex.join(["rackgate", verb, *cluster, *self._config_option(), *arguments])

    def _config_option(self) -> list[str]:
        return ["--command-config", self.command_config] if self.command_config else []


def readiness_status(findings: Iterable[ReadinessFinding]) -> int:
    """Return the exit status: 1 with an obstacle, else 2 with something unknown, else 0."""
    severities = {finding.severity for finding in findings}
    if "obstacle" in severities:
        return NOT_READY
    return UNKNOWN if "unknown" in severities else READY


def obstacles_first(findings: Iterable[ReadinessFinding]) -> tuple[ReadinessFinding, ...]:
    """Sort findings by severity, obstacles first; the order of equal ones does not change."""
    return tuple(sorted(findings, key=lambda finding: READINESS_SEVERITIES.index(finding.severity)))
