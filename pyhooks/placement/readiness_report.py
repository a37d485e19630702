"""Reports of ``rackgate preflight`` and ``rackgate check --without`` as tables and as JSON.

The JSON of both is one object with the keys ``ready`` (true if the exit status is 0), ``status`` (the exit status),
``findings`` (a list of ``{code, severity, subject, text, remedy}``, obstacles first; ``remedy`` has shell commands, one
a line) and ``cluster`` (its id).

``rackgate check --without`` adds ``without`` (the ids, sorted). ``rackgate preflight`` adds ``racks`` (R), ``topics``
(names of the topics for which it was judged), ``nodes`` (a list of ``{id, role, rack, responded, kafka,
overlay, features, min_insync_replicas, min_insync_racks_property}``; what a node did not report is null) and ``next``
(the commands to run next).

The JSON is ASCII and has names and values unchanged. The tables escape non-printable characters. Commands are printed
on one line each, so that they can be copied, whatever the width.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyhooks.core.terminal import plain, visible
from pyhooks.kafka.features import ELR_FEATURE, METADATA_FEATURE, RACKS_FEATURE
from pyhooks.placement.enforcement import BrokerResponse
from pyhooks.placement.gate_forecast import rack_name
from pyhooks.placement.preflight_judgement import PreflightFacts, PreflightGoal, release_of
from pyhooks.placement.readiness import (
    READINESS_SEVERITIES,
    READY,
    ReadinessFinding,
    ReadinessSeverity,
    readiness_status,
)

READINESS_STYLES: dict[ReadinessSeverity, str] = {"obstacle": "bold red", "unknown": "magenta", "notice": "dim"}
FINDINGS_LISTED = 60
NODES_LISTED = 60
NEXT_LISTED = 40
VERDICTS = {0: ("green", "ready"), 1: ("red", "not ready"), 2: ("magenta", "unknown")}


def restart_json(cluster_id: str, without: Sequence[int], findings: Sequence[ReadinessFinding]) -> str:
    """Return the JSON of ``rackgate check --without``, described in the module's docstring."""
    return json.dumps({"cluster": cluster_id, "without": list(without), **_verdict_json(findings)}, indent=1)


def preflight_json(
    facts: PreflightFacts, goal: PreflightGoal, findings: Sequence[ReadinessFinding], following: Sequence[str]
) -> str:
    """Return the JSON of ``rackgate preflight``, described in the module's docstring."""
    report = {
        "cluster": facts.cluster.cluster_id,
        "racks": goal.racks,
        "topics": [topic.name for topic in goal.topics],
        "nodes": [_node_json(*node) for node in _nodes(facts)],
        **_verdict_json(findings),
        "next": list(following),
    }
    return json.dumps(report, indent=1)


def _verdict_json(findings: Sequence[ReadinessFinding]) -> dict[str, Any]:
    status = readiness_status(findings)
    return {"ready": status == READY, "status": status, "findings": [vars(finding) for finding in findings]}


def print_restart(console: Console, without: str, findings: Sequence[ReadinessFinding]) -> None:
    """Print the findings of ``rackgate check --without`` and the verdict."""
    _print_findings(console, findings)
    verdict = {0: "may be restarted now", 1: "must not be restarted now", 2: "unknown whether they may be restarted"}
    status = readiness_status(findings)
    console.print(
        Text.assemble(plain(f"{without}: "), (verdict[status], f"bold {VERDICTS[status][0]}"), _counts(findings))
    )


def print_preflight(
    console: Console,
    facts: PreflightFacts,
    goal: PreflightGoal,
    findings: Sequence[ReadinessFinding],
    following: Sequence[str],
) -> None:
    """Print nodes, findings, verdict and the commands to run next."""
    console.print(_node_table(facts))
    _print_findings(console, findings)
    colour, verdict = VERDICTS[readiness_status(findings)]
    subject = f"min.insync.racks={goal.racks} for {len(goal.topics)} topic{'s' * (len(goal.topics) != 1)}: "
    console.print(Text.assemble(subject, (verdict, f"bold {colour}"), _counts(findings)))
    console.print(Text("next", style="bold"))
    for command in following[:NEXT_LISTED]:
        _print_command(console, command)
    if len(following) > NEXT_LISTED:
        console.print(Text(f"and {len(following) - NEXT_LISTED} more commands: see --json", style="dim"))


def _counts(findings: Sequence[ReadinessFinding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    listed = [
        f"{counts[severity]} {severity}" + "s" * (counts[severity] > 1 and severity != "unknown")
        for severity in READINESS_SEVERITIES
        if counts[severity]
    ]
    return f" ({', '.join(listed)})" if listed else ""


def _print_findings(console: Console, findings: Sequence[ReadinessFinding]) -> None:
    for finding in findings[:FINDINGS_LISTED]:
        entry = Table.grid(padding=(0, 1, 0, 0))
        entry.add_column(width=8)
        entry.add_column()
        head = Text.assemble(plain(finding.subject, "bold", length_max=100), (f" {finding.code}", "dim"))
        entry.add_row(
            Text(finding.severity, READINESS_STYLES[finding.severity]), Text.assemble(head, "\n", plain(finding.text))
        )
        console.print(entry)
        for line in finding.remedy.splitlines():
            _print_command(console, line)
    if len(findings) > FINDINGS_LISTED:
        console.print(Text(f"and {len(findings) - FINDINGS_LISTED} more findings: see --json", style="dim"))


def _print_command(console: Console, command: str) -> None:
    console.print(Text(f"  {visible(command)}", style="dim" if command.startswith("#") else "cyan"), soft_wrap=True)


def _nodes(facts: PreflightFacts) -> list[tuple[int, str, str, BrokerResponse | None, str]]:
    """Return id, role, rack, response and exact version of all nodes; the version is empty if it is not known."""
    jmx = facts.jmx or {}
    nodes = [
        (
            broker,
            "broker",
            node.rack,
            facts.enforcement.responses.get(broker),
            jmx[broker].kafka_version if broker in jmx else "",
        )
        for broker, node in sorted(facts.cluster.brokers.items())
    ]
    asked: Mapping[int, BrokerResponse] = facts.controllers.responses if facts.controllers else {}
    controllers = {*(facts.cluster.voters or ()), *asked} - facts.cluster.brokers.keys()
    return [
        *nodes,
        *(
            (controller, "controller", facts.voter_racks.get(controller, ""), asked.get(controller), "")
            for controller in sorted(controllers)
        ),
    ]


def _overlay(role: str, response: BrokerResponse) -> str:
    if role == "broker":
        return response.overlay
    # controllers have no Produce version, so the feature alone is their sign
    return "yes" if response.supported_level >= 1 else "no"


def _node_json(node: int, role: str, rack: str, response: BrokerResponse | None, version: str) -> dict[str, Any]:
    default = response.default if response else None
    features = (METADATA_FEATURE, ELR_FEATURE, RACKS_FEATURE)
    return {
        "id": node,
        "role": role,
        "rack": rack or None,
        "responded": response is not None,
        "kafka": version or (response and release_of(response.metadata_version)),
        "overlay": response and _overlay(role, response),
        "features": response and {name: response.levels.get(name, 0) for name in features},
        "min_insync_replicas": default and vars(default.replicas),
        "min_insync_racks_property": response and response.property_racks,
    }


def _node_table(facts: PreflightFacts) -> Table:
    table = Table(
        title="nodes", title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("node", justify="right")
    for name in ("role", "rack", "Kafka", "overlay", "ELR", "racks feature", "M default"):
        table.add_column(name, overflow="fold")
    nodes = _nodes(facts)
    for node, role, rack, response, version in nodes[:NODES_LISTED]:
        rack_text = Text("?", "dim") if role == "controller" and not rack else plain(rack_name(rack), length_max=100)
        if response is None:
            asked = role == "broker" or facts.controllers is not None
            table.add_row(str(node), role, rack_text, *("?",) * 5, style="magenta" if asked else "dim")
            continue
        default = response.default.replicas if response.default else None
        overlay = _overlay(role, response)
        table.add_row(
            str(node),
            role,
            rack_text,
            version or release_of(response.metadata_version),
            Text(overlay, "green" if overlay == "yes" else "yellow"),
            str(response.levels.get(ELR_FEATURE, 0)),
            f"{response.levels.get(RACKS_FEATURE, 0)} of {response.supported_level}",
            f"{default.value} {default.source}" if default else "?",
        )
    if len(nodes) > NODES_LISTED:
        table.caption = f"and {len(nodes) - NODES_LISTED} more nodes: see --json"
    return table
