"""The maintenance section of kip/operations.md, on brokers that the test can restart and move between racks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from loopback_brokers import Brokers
from operations_page import commands
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.jvm.producer import Producer
from pyhooks.kafka import tools
from pyhooks.patchset.distribution import Distribution

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
TOPIC = "orders"
A1, A2, B = 1, 2, 3
ALL = (A1, A2, B)
CONTROLLER = 100
RACKS = {A1: "a", A2: "a", B: "b"}
SETTLES_S = 120.0
TOOL_S = 120.0
# section and index of each command
SECTION = "Maintenance"
DEFAULT_2, DELETE_OWN, SHOW_OWN, SHORT, UNREGISTER = ((SECTION, number) for number in range(5))
UNAVAILABLE, SHOW_DEFAULT, DEFAULT_1, OWN_2 = ("Assess", 2), ("Preflight", 3), ("Roll back", 1), ("Restore", 2)
OK, REPLICAS, RACKS_MISSING = "ok", "NotEnoughReplicasException", "NotEnoughRacksException"


class Operator:
    """Operator who carries out the section's steps.

    Attributes:
        brokers: brokers in racks a, a, b.
        classpath: class path with the overlay.
        up: running brokers.
    """

    def __init__(self, brokers: Brokers, classpath: str) -> None:
        self.brokers = brokers
        self.classpath = classpath
        self.up = set(ALL)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers.address(broker) for broker in sorted(self.up))

    def run(self, command_line: list[str]) -> tuple[int, str]:
        """Run a command; return its exit status, and its output in one line."""
        program, *arguments = [self.bootstrap if word == "$BOOTSTRAP" else word for word in command_line]
        command = tools.command(self.classpath, program, arguments, self.bootstrap)
        done = subprocess.run(
            [*DIES_WITH_PARENT, *command], capture_output=True, text=True, check=False, timeout=TOOL_S
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def check_output(self, step: tuple[str, int]) -> str:
        """Run a command of a section, which must succeed; return its output."""
        title, number = step
        status, text = self.run(commands(title)[number])
        assert status == 0, text
        return text

    def set_min_replicas(self, number: int) -> None:
        """Set M of the topic."""
        title, index = OWN_2
        *own, _ = commands(title)[index]
        status, text = self.run([*own, f"min.insync.replicas={number}"])
        assert status == 0, text

    def probe(self) -> str:
        """Return the result of a single attempt with acks=all."""
        config = {"acks": "all", "retries": "0", "enable.idempotence": "false", "max.block.ms": "10000"}
        with Producer(self.bootstrap, config) as producer:
            sent = producer.send_batch(TOPIC, [b"value"], partitions=0).result(90)
        return OK if sent.acked.all() else sent.errors[0].java_class.rpartition(".")[2]

    def meets(self, outcome: str) -> None:
        """Wait until a single attempt has this result; leaders apply a change some time after the tool returns."""
        wait_for(lambda: self.probe() == outcome, goal=outcome, timeout_s=SETTLES_S, interval_s=0.5)

    def stop(self, broker: int) -> None:
        """Stop a broker cleanly and wait until it is out of the ISR."""
        self.brokers.stop(broker)
        self._is_gone(broker)

    def kill(self, *brokers: int) -> None:
        """Kill a broker, as a power failure does."""
        for broker in brokers:
            self.brokers.kill(broker)
            self.up.discard(broker)

    def start(self, *brokers: int) -> None:
        """Start brokers and wait until they serve requests."""
        for broker in brokers:
            self.brokers.start(broker, self.classpath)
        for broker in brokers:
            wait_for(partial(self.brokers.serves, broker), goal=f"broker {broker}", timeout_s=SETTLES_S)
            self.up.add(broker)

    def rename(self, broker: int, rack: str) -> None:
        """Restart a broker cleanly with another name of its rack."""
        self.stop(broker)
        self.brokers.set_rack(broker, rack)
        self.start(broker)
        self.in_sync(*self.up)

    def in_sync(self, *brokers: int) -> None:
        """Wait until exactly these brokers are in sync."""
        with Admin(self.bootstrap) as admin:
            wait_for(
                lambda: sorted(admin.partition(TOPIC).isr) == sorted(brokers),
                goal=f"{brokers} in sync",
                timeout_s=SETTLES_S,
            )

    def _is_gone(self, broker: int) -> None:
        self.up.discard(broker)
        with Admin(self.bootstrap) as admin:
            wait_for(
                lambda: broker not in admin.partition(TOPIC).isr, goal=f"an ISR without {broker}", timeout_s=SETTLES_S
            )


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    classpath = Distribution.load().classpath()
    brokers = Brokers(tmp_path, RACKS, CONTROLLER, extra={"auto.leader.rebalance.enable": "false"})
    brokers.format(classpath)
    with brokers.running(classpath):
        with Admin(brokers.bootstrap) as admin:
            admin.create_topic(TOPIC, [ALL], {"min.insync.replicas": "2"})
            wait_for(partial(admin.in_sync, TOPIC, ALL), goal="all replicas in sync", timeout_s=SETTLES_S)
        yield Operator(brokers, classpath)


def test_every_command_of_the_section_is_covered() -> None:
    assert len(commands(SECTION)) == UNREGISTER[1] + 1


def test_maintenance(operator: Operator) -> None:
    assert operator.probe() == OK
    operator.stop(B)
    assert operator.probe() == OK, "no racks are required yet"
    _the_default_of_the_cluster(operator)
    _a_value_that_was_deleted(operator)
    _restart_in_an_outage(operator)
    _rename_a_rack(operator)


def _the_default_of_the_cluster(operator: Operator) -> None:
    operator.check_output(DEFAULT_2)
    operator.meets(RACKS_MISSING)
    assert "min.insync.racks=2" in operator.check_output(SHOW_DEFAULT)
    operator.check_output(DEFAULT_1)
    operator.meets(OK)
    title, number = DEFAULT_2
    *own, _, _ = commands(title)[number]
    status, output = operator.run([*own, "--delete-config", "min.insync.racks"])
    assert status != 0
    assert "InvalidConfigurationException" in output
    assert "min.insync.racks=1" in operator.check_output(SHOW_DEFAULT)


def _a_value_that_was_deleted(operator: Operator) -> None:
    operator.check_output(OWN_2)
    operator.meets(RACKS_MISSING)
    assert "min.insync.racks=2 sensitive" in operator.check_output(SHOW_OWN)
    operator.check_output(DELETE_OWN)
    # R is 1 now: a single rack acknowledges
    operator.meets(OK)
    # the effective value comes first, followed by its origin
    output = operator.check_output(SHOW_OWN)
    assert re.search(r"min\.insync\.racks=1 sensitive=false synonyms=\{DYNAMIC_DEFAULT_BROKER_CONFIG", output), output
    operator.check_output(OWN_2)
    operator.meets(RACKS_MISSING)


def _restart_in_an_outage(operator: Operator) -> None:
    # Changing the value above cleared the ELR, so broker 3 has to leave the ISR again while racks are required.
    operator.start(B)
    operator.in_sync(*ALL)
    operator.stop(B)
    for broker in (A1, A2):
        operator.stop(broker)
        operator.start(broker)
        operator.meets(RACKS_MISSING)
    assert f"Topic: {TOPIC}" not in operator.check_output(UNAVAILABLE)
    operator.kill(A1, A2)
    operator.start(A1, A2)
    wait_for(
        lambda: f"Topic: {TOPIC}" in operator.check_output(UNAVAILABLE),
        goal="no leader",
        timeout_s=SETTLES_S,
        interval_s=1.0,
    )
    # as soon as both killed brokers have registered again
    wait_for(
        lambda: f"Elr: {B} " in operator.check_output(UNAVAILABLE),
        goal="one that may lead",
        timeout_s=SETTLES_S,
        interval_s=1.0,
    )
    operator.start(B)
    operator.in_sync(*ALL)
    with Admin(operator.bootstrap) as admin:
        assert admin.partition(TOPIC).leader == B
    operator.meets(OK)


def _rename_a_rack(operator: Operator) -> None:
    operator.set_min_replicas(3)
    operator.meets(OK)
    operator.rename(A1, "z")
    operator.stop(B)
    # One rack has two names, so only M prevents acknowledgements.
    operator.meets(REPLICAS)
    operator.start(B)
    operator.in_sync(*ALL)
    operator.rename(A2, "z")
    operator.set_min_replicas(2)
    operator.meets(OK)
    operator.stop(B)
    operator.meets(RACKS_MISSING)
    operator.start(B)
    operator.in_sync(*ALL)


def test_a_broker_unregistered_during_a_rack_shortage_leaves_the_elr(operator: Operator) -> None:
    operator.check_output(OWN_2)
    operator.meets(OK)
    assert f"Topic: {TOPIC}" not in operator.check_output(SHORT)
    operator.stop(B)
    wait_for(lambda: f"Elr: {B} " in operator.check_output(SHORT), goal="an ELR", timeout_s=SETTLES_S, interval_s=1.0)
    operator.check_output(UNREGISTER)
    with Admin(operator.bootstrap) as admin:
        # at once, since the partition must not wait forever for an unregistered broker
        wait_for(lambda: admin.partition(TOPIC).elr == (), goal="an ELR without it", timeout_s=SETTLES_S)
    operator.kill(A1, A2)
    operator.start(B)
    with Admin(operator.bootstrap) as admin:
        # the killed brokers stay leader until their sessions end
        wait_for(lambda: admin.partition(TOPIC).leader == -1, goal="no leader", timeout_s=SETTLES_S)
        assert B not in admin.partition(TOPIC).elr, "stopped in good order, and not trusted all the same"
