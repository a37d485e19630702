"""The runbook kip/operations.md: each command works in a lab that loses a rack."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from feature_tools import ELR_FEATURE, RACKS_FEATURE
from operations_page import RUNBOOK, commands, section
from pyhooks.core.wait import wait_for
from pyhooks.kafka.tools import TOOLS
from pyhooks.lab.kafka_process import NODE_DISK
from pyhooks.lab.topology import find
from terminal_user import Person, visiting

STEPS = (
    "Preflight",
    "Adopt",
    "Assess",
    "Move a replica",
    "Lower R",
    "Restore",
    "Audit",
    "Rolling restarts",
    "Maintenance",
    "Roll back",
)
# Commands with options outside of code blocks: the test below tests/ that runs them.
INLINE = {
    "kafka-topics.sh --describe --unavailable-partitions": "the test below, in Assess",
    "rackgate check --plan": "the test below, after the upgrade",
    "kafka-cluster.sh unregister --id N": "live/documents/test_maintenance.py",
    "rackgate restore --due": "live/outage/test_lower_and_restore.py",
    "kafka-leader-election.sh --election-type unclean --topic T --partition P": "live/kafka/test_rack_destroyed.py",
}
# one partition each; racks a, a, b and a, b, c
PLACED = {"orders": "1:2:3", "invoices": "2:1:3", "payments": "1:3:5"}
GATE = ("--config", "min.insync.replicas=2", "--config", "min.insync.racks=2")
CONTROLLERS = ("controller-101", "controller-102", "controller-103")
# by default a metadata snapshot is due after an hour
SNAPSHOTS = 'properties = { "metadata.log.max.snapshot.interval.ms" = 5000 }\n'
CHECKPOINT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
SETTLES_S = 120.0


def in_lab(arguments: list[str], replaced: dict[str, str]) -> list[str]:
    """Return a runbook command as arguments of ``rackgate``, which knows the addresses of its lab's brokers.

    Args:
        arguments: a command of the runbook.
        replaced: replacements of some of its arguments.
    """
    program, *rest = arguments
    for option in ("--bootstrap-server", "--bootstrap"):
        if option in rest:
            at = rest.index(option)
            assert rest[at + 1] == "$BOOTSTRAP", arguments
            del rest[at : at + 2]
    # the command reads the metrics of a lab's brokers without their ports
    while "--jmx" in rest:
        at = rest.index("--jmx")
        del rest[at : at + 2]
    rest = [replaced.get(word, word) for word in rest]
    return (
        rest if program == "rackgate" else ["lab", "kafka", program.removeprefix("kafka-").removesuffix(".sh"), *rest]
    )


def test_every_command_is_in_a_step_and_of_a_form_that_a_lab_can_run() -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    assert len([line for line in blocks if line.strip()]) == sum(len(commands(title)) for title in STEPS)
    for title in STEPS:
        for arguments in commands(title):
            assert re.fullmatch(r"kafka-[a-z-]+\.sh|rackgate|ls", arguments[0]), arguments
            if arguments[0] == "ls":
                continue
            assert "$BOOTSTRAP" in arguments, arguments
            own = in_lab(arguments, {})
            of_tools = own[:2] == ["lab", "kafka"] and own[2] in TOOLS
            assert of_tools or own[0] in ("preflight", "adopt", "check", "lower", "restore", "audit"), own


def test_each_command_outside_of_code_blocks_is_run_by_a_test() -> None:
    text = re.sub(r"```.*?```", "", RUNBOOK.read_text(encoding="utf-8"), flags=re.DOTALL)
    spans = {" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)}
    assert {span for span in spans if re.match(r"(kafka-[a-z-]+\.sh|rackgate) .*--", span)} == set(INLINE)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """Yield a user with a lab that has frequent metadata snapshots and the runbook's three topics."""
    topology = tmp_path / "runbook.toml"
    # SNAPSHOTS extends the topology file's last table, which is that of the controllers
    topology.write_text(find("az3-outside").read_text(encoding="utf-8") + SNAPSHOTS, encoding="utf-8")
    with visiting(tmp_path / "state") as made:
        made.check_output("lab", "up", "--topology", str(topology), "--run-dir", str(tmp_path / "run"))
        for topic, placed in PLACED.items():
            arguments = ("topics", "--create", "--topic", topic, "--replica-assignment", placed, *GATE)
            made.check_output("lab", "kafka", *arguments)
        yield made


class Operator:
    """Operator who carries out the runbook's steps.

    Attributes:
        person: the user who runs commands.
        moves: the file used for ``move.json``.
        used: the commands that were run, by section and index.
    """

    def __init__(self, person: Person, folder: Path) -> None:
        self.person = person
        self.moves = folder / "move.json"
        self.used: set[tuple[str, int]] = set()

    def run(self, title: str, number: int, *more: str, topic: str = "orders") -> subprocess.CompletedProcess[str]:
        """Run a command of a section by its index, with additional options or on another topic."""
        return self.person.run(
            *in_lab(self.arguments(title, number), {"orders": topic, "move.json": str(self.moves)}), *more
        )

    def arguments(self, title: str, number: int) -> list[str]:
        """Return a command of a section by its index, ready to run."""
        self.used.add((title, number))
        return commands(title)[number]

    def check_output(self, title: str, number: int, *more: str, topic: str = "orders") -> str:
        """Run a command that must succeed; return its output."""
        done = self.run(title, number, *more, topic=topic)
        assert done.returncode == 0, (done.args, done.stdout + done.stderr)
        return done.stdout

    def listed(self, title: str, number: int) -> set[str]:
        """Return which of the three topics ``kafka-topics --describe`` lists."""
        return set(re.findall(r"Topic: (\w+)\s+Partition:", self.check_output(title, number))) & set(PLACED)

    def checks(self, title: str, number: int) -> tuple[int, dict[str, Any]]:
        """Return exit status and report of ``rackgate check``."""
        done = self.run(title, number, "--json")
        assert done.stdout, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, report

    def audit(self) -> set[str]:
        """Return the topics that the audit lists."""
        status, report = self.checks("Audit", 0)
        found = {one["topic"] for one in report["findings"] if one["code"] == "racks-below-expected"}
        assert status == 1 or not found
        return found

    def accepted(self) -> None:
        """Wait until a single attempt is acknowledged, since a newly elected leader may reject one."""
        wait_for(lambda: self.probe() == "ok", goal="an acknowledgement", timeout_s=SETTLES_S, interval_s=1.0)

    def probe(self) -> str:
        """Return the result of a producer's single attempt."""
        (event,) = [
            json.loads(line)
            for line in self.run("Assess", 5).stdout.splitlines()
            if '"producer_send_success"' in line or '"producer_send_error"' in line
        ]
        return str(event.get("exception", "ok"))


def level(text: str, feature: str) -> tuple[str, int]:
    """Parse a feature's finalized level and the metadata offset from the output of ``kafka-features describe``."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"Feature: {feature} ")]
    found = re.search(r"FinalizedVersionLevel: (\S+)\s+Epoch: (\d+)", line)
    assert found, line
    return found[1], int(found[2])


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_runbook(person: Person, tmp_path: Path) -> None:
    operator = Operator(person, tmp_path)
    wait_for(
        lambda: not operator.listed("Restore", 1), goal="all replicas in sync", timeout_s=SETTLES_S, interval_s=1.0
    )
    _before(operator)
    assert "kill: in force on rack b, proved" in person.check_output("rack", "kill", "b")
    _assess(operator)
    _go_on(operator)
    assert "is healed, proved" in person.check_output("rack", "heal", "b")
    _restore(operator)
    _roll_back(operator)
    _upgrade(operator)
    _change_edition(operator)
    # test_maintenance.py covers the section on maintenance
    assert operator.used == {
        (title, n) for title in STEPS if title != "Maintenance" for n in range(len(commands(title)))
    }


def _before(operator: Operator) -> None:
    assert operator.audit() == set()
    status, report = operator.checks("Preflight", 0)
    assert (status, report["ready"]) == (0, True), report["findings"]
    _, report = operator.checks("Preflight", 1)
    assert report["cluster"]["enforced"] is True
    # The loss of a rack would stop writes to these topics; another placement would survive it.
    assert {("orders", "rack-loss-stops"), ("invoices", "rack-loss-stops")} <= _codes(report)
    assert ("payments", "rack-loss-stops") not in _codes(report)
    status, report = operator.checks("Rolling restarts", 0)
    # broker 3 has the only replicas of orders and invoices in rack b
    obstacles = {one["code"] for one in report["findings"] if one["severity"] == "obstacle"}
    assert (status, obstacles) == (1, {"restart-always-stops"})
    kept = operator.check_output("Preflight", 2)
    for topic in PLACED:
        assert re.search(rf"Topic: {topic}\s.*min\.insync\.racks=2", kept), kept
    assert "Default configs for broker" in operator.check_output("Preflight", 3)
    operator.accepted()


def _assess(operator: Operator) -> None:
    wait_for(
        lambda: operator.listed("Assess", 0) == {"orders", "invoices"},
        goal="the topics in racks a, a, b to reject",
        timeout_s=SETTLES_S,
        interval_s=1.0,
    )
    assert operator.listed("Assess", 1) == {"payments"}, "one more rack, and it rejects"
    assert operator.listed("Assess", 2) == set(), "all have a leader"
    assert re.search(r"LeaderId:\s+10[123]\b", operator.check_output("Assess", 3))
    status, report = operator.checks("Assess", 4)
    assert status == 1
    assert ("orders", "too-few-racks") in _codes(report)
    assert operator.probe().endswith("NotEnoughRacksException")
    gate = json.loads(operator.person.check_output("lab", "metrics", "--for", "5s", "--json"))["nodes"]
    brokers = [row["gate"] for row in gate if row["gate"]]
    assert sum(row["UnderMinRackIsrPartitionCount"]["last"] for row in brokers) == 2
    assert sum(row["AtMinRackIsrPartitionCount"]["last"] for row in brokers) == 1
    assert sum(row["RackCheckFailureRate.Count"]["last"] for row in brokers) >= 1


def _go_on(operator: Operator) -> None:
    title = "Move a replica"
    (plan,) = re.findall(r"```json\n(.*?)```", section(title), re.DOTALL)
    assert [one["topic"] for one in json.loads(plan)["partitions"]] == ["invoices"]
    operator.moves.write_text(plan, encoding="utf-8")
    assert "Successfully started partition reassignment" in operator.check_output(title, 0)
    wait_for(
        lambda: "is completed." in operator.check_output(title, 1),
        goal="the reassignment",
        timeout_s=SETTLES_S,
        interval_s=1.0,
    )
    # invoices accepts writes again, with a replica in a third rack
    wait_for(
        lambda: operator.listed("Assess", 0) == {"orders"},
        goal="invoices to take writes",
        timeout_s=SETTLES_S,
        interval_s=1.0,
    )

    assert "orders: lowered: min.insync.racks is 1 (before: 2)" in operator.check_output("Lower R", 0)
    wait_for(
        lambda: not operator.listed("Assess", 0), goal="orders to take writes", timeout_s=SETTLES_S, interval_s=1.0
    )
    operator.accepted()
    assert operator.audit() == {"orders"}
    operator.check_output("Lower R", 1, topic="payments")
    assert operator.audit() == {"orders", "payments"}


def _restore(operator: Operator) -> None:
    wait_for(
        lambda: not operator.listed("Restore", 1), goal="all replicas in sync", timeout_s=SETTLES_S, interval_s=1.0
    )
    assert operator.audit() == {"orders", "payments"}, "that the rack is back restores nothing"
    assert re.search(r"Topic: orders\s.*min\.insync\.racks=1", operator.check_output("Preflight", 2))
    assert operator.run("Audit", 1).returncode == 1, "the restoration of orders is due"
    assert "orders: restored: min.insync.racks is 2 again" in operator.check_output("Restore", 0)
    operator.check_output("Audit", 1)
    operator.check_output("Restore", 2, topic="payments")
    wait_for(lambda: operator.audit() == set(), goal="the restored value", timeout_s=SETTLES_S, interval_s=1.0)
    assert operator.listed("Assess", 0) == set()
    operator.accepted()


def _roll_back(operator: Operator) -> None:
    rejected = operator.run("Roll back", 2)
    output = " ".join((rejected.stdout + rejected.stderr).split())
    assert rejected.returncode != 0
    assert f"{RACKS_FEATURE} cannot be downgraded to 0" in output
    for topic in PLACED:
        assert topic in output
        operator.check_output("Roll back", 0, topic=topic)
    operator.check_output("Roll back", 1)
    operator.check_output("Roll back", 2)
    wait_for(
        lambda: level(operator.check_output("Roll back", 3), RACKS_FEATURE)[0] == "0",
        goal="the downgrade",
        timeout_s=SETTLES_S,
        interval_s=1.0,
    )
    _, offset = level(operator.check_output("Roll back", 3), RACKS_FEATURE)
    last = operator.arguments("Roll back", 4)
    assert last[0] == "ls"
    arguments = [word.replace("$METADATA_LOG_DIR", str(NODE_DISK / "data")) for word in last]
    for node in CONTROLLERS:
        wait_for(
            partial(_is_beyond, operator.person, node, arguments, offset),
            goal=f"a snapshot of {node} behind metadata offset {offset}",
            timeout_s=SETTLES_S,
            interval_s=1.0,
        )


def _upgrade(operator: Operator) -> None:
    # what the preflight prints where M stands in the properties of brokers alone
    cluster = ("--entity-type", "brokers", "--entity-default")
    operator.person.check_output(
        "lab", "kafka", "configs", "--alter", *cluster, "--add-config", "min.insync.replicas=2"
    )
    assert "min.insync.replicas=2" in operator.check_output("Preflight", 3)
    rejected = operator.run("Restore", 2)
    assert rejected.returncode != 0, "R above 1 at level 0"
    assert f"A value above 1 requires {RACKS_FEATURE} 1" in " ".join((rejected.stdout + rejected.stderr).split())
    assert "rackgate lab kafka features" in operator.check_output("Adopt", 0)
    # there is no terminal to ask
    operator.check_output("Adopt", 1, "--yes")
    assert level(operator.check_output("Roll back", 3), RACKS_FEATURE)[0] == "0", "nothing is enforced yet"
    operator.check_output("Adopt", 2, "--yes")
    features = operator.check_output("Roll back", 3)
    assert (level(features, RACKS_FEATURE)[0], level(features, ELR_FEATURE)[0]) == ("1", "1")
    assert json.loads(operator.person.check_output("check", "--plan"))["partitions"] == []
    for topic in PLACED.keys() - {"orders"}:
        operator.check_output("Restore", 2, topic=topic)
    wait_for(lambda: operator.audit() == set(), goal="R=2 again", timeout_s=SETTLES_S, interval_s=1.0)
    operator.accepted()


def _change_edition(operator: Operator) -> None:
    """Run the commands before and after a change to another edition; the software itself is not replaced here."""
    kept = operator.check_output("Preflight", 2)
    for topic in PLACED:
        assert re.search(rf"Topic: {topic}\s.*min\.insync\.racks=2", kept), kept
        operator.check_output("Roll back", 0, topic=topic)
    assert "Default configs for broker" in operator.check_output("Preflight", 3)
    operator.check_output("Roll back", 1)
    wait_for(lambda: operator.audit() == set(PLACED), goal="R=1 everywhere", timeout_s=SETTLES_S, interval_s=1.0)
    for topic in PLACED:
        operator.check_output("Restore", 2, topic=topic)
    wait_for(lambda: operator.audit() == set(), goal="R=2 again", timeout_s=SETTLES_S, interval_s=1.0)
    operator.accepted()


def _codes(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(one["topic"], one["code"]) for one in report["findings"]}


def _is_beyond(person: Person, node: str, arguments: list[str], offset: int) -> bool:
    """Return whether a node's newest metadata snapshot is beyond an offset, according to the listed files."""
    listing = person.check_output("lab", "exec", "--node", node, "--", *arguments)
    return max(map(int, CHECKPOINT.findall(listing)), default=-1) > offset
