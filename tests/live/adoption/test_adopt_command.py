"""``rackgate adopt`` on brokers with the overlay: from no required racks to an enforced R=2 in three commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import operations_page
from check_command import rackgate, unfenced
from feature_tools import ELR_FEATURE, RACKS_FEATURE
from loopback_brokers import Brokers
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.kafka import tools
from pyhooks.patchset.distribution import Distribution

pytestmark = pytest.mark.timeout(900)
CONTROLLER = 100
RACKS = {1: "a", 2: "a", 3: "b"}
STEPS = ["preflight", "observe", "report", "enforce", "verify"]
RECORDS = 5


def adopt(bootstrap: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Run ``rackgate adopt --json``; return exit status, and the steps by name."""
    done = rackgate("adopt", "--bootstrap", bootstrap, "--json", "--timeout", "45", *more)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    steps = {step["name"]: step for step in report["steps"]}
    assert list(steps) == STEPS
    assert report["status"] == done.returncode
    return done.returncode, steps


def states(steps: Mapping[str, Any]) -> list[str]:
    return [step["state"] for step in steps.values()]


def produce(bootstrap: str, topic: str) -> None:
    """Produce records with acks=all, each in a request of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60000})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode())
        assert producer.flush(90) == 0


def test_from_no_required_racks_to_enforced_ones(tmp_path: Path) -> None:
    classpath = Distribution.load().classpath()
    brokers = Brokers(tmp_path, RACKS, CONTROLLER, jmx=True)
    brokers.format(classpath, "--feature", f"{RACKS_FEATURE}=0", "--feature", f"{ELR_FEATURE}=0")
    bootstrap = brokers.bootstrap
    addresses = [f"127.0.0.1:{brokers.jmx_ports[broker]}" for broker in RACKS]
    jmx = [word for address in addresses for word in ("--jmx", address)]
    with brokers.running(classpath), Admin(bootstrap) as admin:
        wait_for(partial(unfenced, admin, 3), goal="three brokers", timeout_s=120)
        for topic, replicas in (("orders", [1, 2, 3]), ("invoices", [3, 1, 2]), ("bad", [1, 2])):
            admin.create_topic(topic, [replicas], {"min.insync.replicas": "2"})
            wait_for(partial(admin.in_sync, topic, replicas), goal=f"{topic} in sync", timeout_s=120)
        status, steps = adopt(bootstrap, "bad", "--yes")
        assert (status, states(steps)) == (1, ["not met", *["pending"] * 4])
        assert "placement-in-too-few-racks" in steps["preflight"]["findings"][0]
        # there is no terminal to ask
        status, steps = adopt(bootstrap, "orders", "--until", "observe")
        assert (status, states(steps)[:2]) == (1, ["done", "pending"])

        status, steps = adopt(bootstrap, "orders", "--until", "observe", "--yes")
        assert (status, states(steps)) == (0, ["done", "done", "pending", "pending", "pending"])
        brokers.stop(3)
        wait_for(partial(admin.in_sync, "orders", [1, 2]), goal="rack b away", timeout_s=120)
        produce(bootstrap, "orders")
        brokers.start(3, classpath)
        for topic in ("orders", "invoices"):
            wait_for(partial(admin.in_sync, topic, [1, 2, 3]), goal=f"{topic} in sync again", timeout_s=180)

        status, steps = adopt(bootstrap, "orders", "--yes")
        assert (status, steps["report"]["state"]) == (2, "unknown")
        status, steps = adopt(bootstrap, "orders", "--yes", *jmx)
        assert (status, states(steps)) == (1, ["done", "done", "not met", "pending", "pending"])
        # the leader may have changed since on a busy machine, and then counts them under its total alone
        (finding,) = steps["report"]["findings"]
        assert re.fullmatch(rf"(orders: |broker \d: ){RECORDS} appends .* would have been rejected", finding)
        assert len(steps["enforce"]["commands"]) == 2

        status, steps = adopt(bootstrap, "orders", "--yes", "--accept-report", *jmx)
        assert (status, states(steps)) == (0, ["done"] * 5)
        assert steps["verify"]["text"].startswith("3 brokers enforce it")
        assert admin.finalized(RACKS_FEATURE).level == 1
        status, steps = adopt(bootstrap, "orders", "--yes")
        assert (status, states(steps), {len(step["commands"]) for step in steps.values()}) == (0, ["done"] * 5, {0})
        checked = rackgate("check", "--bootstrap", bootstrap, "--topic", "orders", "--json")
        (topic_report,) = json.loads(checked.stdout)["topics"]
        assert topic_report["min_insync_racks"] == {"value": 2, "source": "topic"}
        _by_the_printed_commands(bootstrap, classpath, jmx)
        _commands_of_the_page(bootstrap, addresses)


def _by_the_printed_commands(bootstrap: str, classpath: str, jmx: list[str]) -> None:
    status, steps = adopt(bootstrap, "invoices", "--dry-run", *jmx)
    assert (status, states(steps)) == (0, ["done", *["pending"] * 4])
    done = rackgate("adopt", "--bootstrap", bootstrap, "invoices", "--dry-run", *jmx)
    for step in steps.values():
        for command in step["commands"]:
            assert f"\n  {command}\n" in done.stdout
            program, *arguments = shlex.split(command)
            if program == "rackgate":
                assert rackgate(*arguments).returncode in (0, 1)
            else:
                tools.run(classpath, program, arguments, "")
    status, steps = adopt(bootstrap, "invoices")
    assert (status, states(steps)) == (0, ["done"] * 5)


def _commands_of_the_page(bootstrap: str, addresses: list[str]) -> None:
    listed = operations_page.commands("Adopt")
    assert len(listed) == 3
    for program, *words in listed:
        assert program == "rackgate"
        left = iter(addresses)
        words = [next(left) if word.endswith(":9999") else word for word in words]
        assert rackgate(*[bootstrap if word == "$BOOTSTRAP" else word for word in words]).returncode == 0
