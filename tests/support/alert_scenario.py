"""Program for a lab with the exporter on all nodes: makes each alert fire and resolve, and records when.

usage: alert_scenario.py PROMETHEUS RULES FOLDER SCALE; writes FOLDER/alerts.json and FOLDER/panels.json.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from prometheus_server import SCRAPE_S, PrometheusServer, prometheus, scaled
from pyhooks.core.files import write_json
from pyhooks.core.wait import wait_for
from pyhooks.faults import registry
from pyhooks.faults.injection import FaultTarget
from pyhooks.jvm.admin import Admin
from pyhooks.kafka import reassignments, topics
from pyhooks.kafka.topics import TopicSpec
from pyhooks.lab.lab import Lab
from pyhooks.lab.topology import Node
from pyhooks.monitoring.dashboard import GRAPHS, NUMBERS

GATE = {"min.insync.replicas": "2", "min.insync.racks": "2"}
# the topics of the runbook's test, on racks a, a, b and a, b, c
SPECS = tuple(
    TopicSpec(name, replicas, GATE)
    for name, replicas in {"orders": (1, 2, 3), "invoices": (2, 1, 3), "payments": (1, 3, 5)}.items()
)
USUAL_S = 25.0
FIRES_S, RESOLVES_S = 300.0, 300.0
RACK_LOSS = (
    "KafkaUnderMinRackIsr",
    "KafkaAtMinRackIsr",
    "KafkaRackCheckFailures",
    "KafkaFencedBrokers",
    "KafkaRackUnavailable",
    "KafkaNotScraped",
)


class Scenario:
    """Lab, server, and the times at which alerts began and ended."""

    def __init__(self, lab: Lab, server: PrometheusServer, folder: Path) -> None:
        self.lab = lab
        self.server = server
        self.folder = folder
        self.changes: list[dict[str, Any]] = []
        self._ended = threading.Event()

    def record(self) -> None:
        """Record each change of the firing alerts until ``stop``, and once more after it."""
        before: set[str] = set()
        ended = False
        while not ended:
            ended = self._ended.wait(0.5)
            now = self.server.firing()
            at_s = time.time()
            self.changes += [{"alert": name, "fires": True, "at_s": at_s} for name in sorted(now - before)]
            self.changes += [{"alert": name, "fires": False, "at_s": at_s} for name in sorted(before - now)]
            before = now

    def note(self, text: str) -> None:
        """Record a step, and store what has been recorded."""
        self.changes.append({"step": text, "at_s": time.time()})
        write_json(self.folder / "alerts.json", self.changes)
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201

    def stop(self) -> None:
        """End ``record``."""
        self._ended.set()

    def wait_firing(self, *names: str) -> None:
        """Wait until these alerts fire."""
        wait_for(lambda: set(names) <= self.server.firing(), goal=f"{names} to fire", timeout_s=FIRES_S, interval_s=0.5)

    def wait_quiet(self) -> None:
        """Wait until no alert fires."""
        wait_for(lambda: not self.server.firing(), goal="no alert", timeout_s=RESOLVES_S, interval_s=0.5)

    def node(self, number: int) -> Node:
        """Return a broker by its id."""
        return self.lab.node(f"broker-{number}")

    def restart(self, number: int, change: Callable[[str], str]) -> None:
        """Restart a broker with changed properties, in good order."""
        node = self.node(number)
        path = Path(self.lab.disks[node.name]) / "server.properties"
        self.lab.kill_kafka(node)
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
        self.lab.start_kafka(node)
        self.lab.wait_unfenced([node])

    @contextmanager
    def killed(self, kind: str, name: str) -> Iterator[None]:
        """Kill a rack or a broker for the time of the block."""
        target = getattr(FaultTarget, kind)(self.lab, name)
        with registry.fault_applied(self.lab, "kill", target):
            yield


@contextmanager
def producing(bootstrap: str) -> Iterator[None]:
    """Produce to all topics with acks=all during the block; rejected records are retried for a short time."""
    ended = threading.Event()

    def produce() -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "delivery.timeout.ms": 3000,
                "request.timeout.ms": 2000,
                "enable.idempotence": False,
                "log_level": 0,
            }
        )
        while not ended.wait(0.2):
            for spec in SPECS:
                producer.produce(spec.name, b"x")
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def lose_rack(scenario: Scenario) -> None:
    """Kill rack b until all alerts about it fire."""
    scenario.note("rack b is killed")
    with scenario.killed("rack", "b"):
        scenario.wait_firing(*RACK_LOSS)
        scenario.note("rack b returns")
    scenario.wait_quiet()


def lose_leaders(scenario: Scenario) -> None:
    """Kill all brokers of orders; the last leader returns first and is killed again, so it is the only one awaited."""
    with ExitStack() as leader:
        with ExitStack() as others:
            scenario.note("brokers 3 and 2 are killed")
            others.enter_context(scenario.killed("broker", "3"))
            others.enter_context(scenario.killed("broker", "2"))
            scenario.wait_firing("KafkaUnderMinIsr")
            scenario.note("broker 1, the last leader, is killed")
            with scenario.killed("broker", "1"):
                scenario.wait_firing("KafkaOfflinePartitions")
            scenario.note("broker 1 returns and is killed again; brokers 2 and 3 return")
            leader.enter_context(scenario.killed("broker", "1"))
            # before that the controller would elect it
            wait_for(lambda: 1 not in scenario.lab.unfenced(), goal="broker 1 fenced", timeout_s=60, interval_s=0.5)
        scenario.wait_firing("KafkaPartitionsAwaitingLastKnownElr")
        scenario.note("broker 1 returns")
    scenario.wait_quiet()


def change_properties(scenario: Scenario) -> None:
    """Restart broker 5 without a rack and with an R of its own, and undo it."""
    node = scenario.node(5)
    path = Path(scenario.lab.disks[node.name]) / "server.properties"
    before = path.read_text(encoding="utf-8")
    scenario.note("broker 5 is restarted without broker.rack and with min.insync.racks=3")
    scenario.restart(5, lambda text: text.replace(f"broker.rack={node.site}\n", "") + "min.insync.racks=3\n")
    scenario.wait_firing("KafkaBrokersWithoutRack", "KafkaMinInSyncRacksExceedsMetadata")
    scenario.note("broker 5 is restarted with its properties")
    scenario.restart(5, lambda _: before)
    scenario.wait_quiet()


def place_narrowly(scenario: Scenario) -> None:
    """Require two racks of a topic in one rack, and undo it."""
    client = scenario.lab.admin
    topics.create(client, [TopicSpec("narrow", (1, 2), {"min.insync.racks": "1"})])
    scenario.note("a topic in one rack requires two")
    topics.alter(client, "narrow", {"min.insync.racks": "2"})
    scenario.wait_firing("KafkaPartitionsInTooFewRacks")
    scenario.note("it requires one")
    topics.alter(client, "narrow", {"min.insync.racks": "1"})
    scenario.wait_quiet()


def reassign(scenario: Scenario) -> None:
    """Move payments from rack c to rack a while rack b's replica is killed, and then back."""
    lab, moves, back = scenario.lab, {"payments": (1, 3, 2)}, {"payments": (1, 3, 5)}
    with Admin(lab.bootstrap) as admin:
        scenario.note("rack b's broker is killed, and payments moves from rack c to rack a")
        with scenario.killed("broker", "3"):
            topics.wait_isr(lab.admin, "payments", frozenset({1, 5}))
            admin.reassign(moves)
            scenario.wait_firing("KafkaReassignmentsAwaitingRacks")
            scenario.note("broker 3 returns")
        reassignments.wait_placed(lab.bootstrap, moves)
        # on racks a, b and a, payments would stay at its minimum
        admin.reassign(back)
    reassignments.wait_placed(lab.bootstrap, back)
    scenario.wait_quiet()


def panels(server: PrometheusServer, begin_s: float) -> list[dict[str, Any]]:
    """Return the series of all panels of the dashboard since ``begin_s``."""
    now_s = time.time()
    return [
        {
            "title": panel.title,
            "unit": panel.unit,
            "queries": [
                {
                    "expr": query.expr,
                    "legend": query.legend,
                    "series": server.query_range(query.expr, begin_s, now_s, max(SCRAPE_S, (now_s - begin_s) / 500)),
                }
                for query in panel.queries
            ],
        }
        for panel in (*NUMBERS, *GRAPHS)
    ]


def main(program: str, rules: str, folder: Path, scale: float) -> None:
    """Run all steps."""
    lab = Lab.attach()
    text = scaled(Path(rules).read_text(encoding="utf-8"), scale)
    with prometheus(Path(program), lab, folder / "prometheus", text) as server:
        scenario = Scenario(lab, server, folder)
        begin_s = time.time()
        topics.create(lab.admin, SPECS)
        recorder = threading.Thread(target=scenario.record, daemon=True)
        recorder.start()
        try:
            with producing(lab.bootstrap):
                wait_for(lambda: len(server.query("up == 1")) == len(lab.nodes), goal="all nodes scraped", timeout_s=60)
                scenario.wait_quiet()
                scenario.note("all is well")
                time.sleep(USUAL_S)
                lose_rack(scenario)
                if scale < 1:
                    change_properties(scenario)
                    place_narrowly(scenario)
                    reassign(scenario)
                    lose_leaders(scenario)
        finally:
            scenario.stop()
            recorder.join(timeout=60)
            write_json(folder / "alerts.json", scenario.changes)
            write_json(folder / "panels.json", panels(server, begin_s))
            write_json(folder / "names.json", server.get("label/__name__/values"))


if __name__ == "__main__":
    _, program_, rules_, folder_, scale_ = sys.argv
    main(program_, rules_, Path(folder_), float(scale_))
