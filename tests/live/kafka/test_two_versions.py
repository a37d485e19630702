"""Rolling upgrade between two versions of Kafka, both with the overlay, with R=2 in force, under load; and back.

Racks are a, a, b. The distribution of the other version is built if it is missing, which takes some minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from feature_tools import (
    RACKS,
    RACKS_FEATURE,
    RACKS_REJECTED,
    SETTLES_S,
    TOPIC,
    create_topic,
    described,
    features,
    produce,
    wait_in_sync,
)
from loopback_brokers import Brokers
from producer_processes import running_producers
from pyhooks.checkers.record_view import Records
from pyhooks.checkers.registry import CHECKERS
from pyhooks.core import paths
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.history.events import ProduceDetails
from pyhooks.jvm.admin import Admin
from pyhooks.kafka.features import METADATA_FEATURE
from pyhooks.lab.disks import BrokerDisk, read_disks
from pyhooks.patchset import builder
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import read_all
from pyhooks.workload.topic_observer import observe_topics
from untyped_events import note

# Builds another version, and restarts and kills nodes for minutes: "make kafka-long".
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
EARLIER, LATER = "earlier", "later"
CONTROLLER = 100
A1, A2, B = ALL = (1, 2, 3)
BROKER_RACKS = {A1: "a", A2: "a", B: "b"}
TWO = {"min.insync.replicas": "2", RACKS: "2"}
# topic of each producer, by its client
LOADS = {"patched": "load-patched", "3.9": "load-39"}
SETTINGS = {
    # only restarts may move the leader
    "auto.leader.rebalance.enable": "false",
    # the controller fences a killed broker sooner
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
}
GOES_ON_S = 120.0


@pytest.fixture(
    scope="module", params=[version for version in paths.patched_versions() if version != paths.DEFAULT_KAFKA]
)
def classpaths(request: pytest.FixtureRequest) -> dict[str, str]:
    """Build the other version; return the class paths of both."""
    default = Distribution.load(paths.BUILD / f"kafka-{paths.DEFAULT_KAFKA}" / "dist")
    other = builder.build(kafka_toml=paths.patch_folder(request.param) / "kafka.toml").distribution
    both = {str(one.manifest["kafka_version"]): one.classpath() for one in (default, other)}
    order = sorted(both, key=lambda version: [int(number) for number in version.split(".")])
    return dict(zip((EARLIER, LATER), (both[version] for version in order), strict=True))


class Cluster:
    """Brokers and a controller, each on one of two versions.

    Args:
        folder: folder for their files.
        classpaths: class path by version.
        begin: version that all nodes start with.
    """

    def __init__(self, folder: Path, classpaths: Mapping[str, str], begin: str) -> None:
        self.history = History(folder / "history.jsonl")
        self.brokers = Brokers(folder, BROKER_RACKS, CONTROLLER, extra=SETTINGS)
        self._classpaths = classpaths
        self._runs = dict.fromkeys((CONTROLLER, *ALL), begin)

    def change(self, node: int, version: str) -> None:
        """Restart a node with another version; then check the promise and that producers go on."""
        self._runs[node] = version
        self.brokers.restart(node, self._classpaths[version])
        wait_in_sync(self.brokers, ALL)
        self.check_promise()

    def check_promise(self) -> None:
        """Kill broker B, check that single attempts are rejected in rack a alone, and start it again."""
        self.brokers.kill(B)
        wait_in_sync(self.brokers, (A1, A2))
        wait_for(lambda: produce(self.brokers) == RACKS_REJECTED, goal=RACKS_REJECTED, timeout_s=SETTLES_S)
        with Admin(self.brokers.address(A1)) as admin:
            leader = admin.partition(TOPIC).leader
        versions = {str(node): version for node, version in self._runs.items()}
        note(self.history, "test", "rejected", "ok", leader=leader, versions=versions)
        self.brokers.start(B, self._classpaths[self._runs[B]])
        wait_in_sync(self.brokers, ALL)
        self.wait_acknowledged()

    def wait_acknowledged(self) -> None:
        """Wait until each producer has an acknowledged record that it sent after now."""
        now_ns = note(self.history, "test", "mark", None).mono_ns

        def continued() -> bool:
            events = [event for event in self.history.events() if event.outcome == "ok"]
            return {d.topic for _, d in ProduceDetails.each(events) if (d.sent_ns or 0) > now_ns} == set(LOADS.values())

        wait_for(continued, goal="acknowledged records of each producer", timeout_s=GOES_ON_S, interval_s=1)


def arguments(bootstrap: str, client: str, topic: str) -> list[str]:
    """Return the arguments of a producer that retries until rack b is back, and is stopped before it ends itself."""
    load = ["--bootstrap", bootstrap, "--topics", topic, "--client", client, "--mode", "idempotent", "--rate", "10"]
    return [*load, "--timeout-ms", "120000", "--seconds", "1700"]


def rejected_while(history: History) -> list[tuple[str, str]]:
    """Return the versions of leader and controller at each rejection."""
    data = [event.data for event in history.events() if event.op == "rejected"]
    return [(one["versions"][str(one["leader"])], one["versions"][str(CONTROLLER)]) for one in data]


@pytest.mark.parametrize("back", [False, True], ids=["upgrade", "downgrade"])
def test_a_rolling_change_of_version_keeps_the_promise(
    classpaths: Mapping[str, str], tmp_path: Path, back: bool
) -> None:
    """Kafka permits the way back until the upgrade of metadata.version is finalized."""
    first, second = (LATER, EARLIER) if back else (EARLIER, LATER)
    cluster = Cluster(tmp_path, classpaths, first)
    brokers, history = cluster.brokers, cluster.history
    brokers.format(classpaths[EARLIER])
    with brokers.running(classpaths[first]):
        create_topic(brokers, TWO, replicas=ALL)
        with Admin(brokers.bootstrap) as admin:
            for topic in LOADS.values():
                admin.create_topic(topic, [list(ALL)], TWO)
                wait_for(partial(admin.in_sync, topic, ALL), goal=f"{topic} in sync", timeout_s=SETTLES_S)
        levels = described(classpaths[EARLIER], brokers.bootstrap)
        assert levels[RACKS_FEATURE] == "1"
        programs = [arguments(brokers.bootstrap, client, topic) for client, topic in LOADS.items()]
        watch = observe_topics(brokers.bootstrap, list(LOADS.values()), BROKER_RACKS, history, interval_s=0.5)
        with watch, running_producers(programs, history, logs=tmp_path):
            cluster.wait_acknowledged()
            for node in (A1, A2, B, CONTROLLER) if back else (CONTROLLER, B, A2, A1):
                cluster.change(node, second)
            if not back:
                _finalize(brokers, classpaths, levels)
                cluster.check_promise()
        read_all(brokers.bootstrap, list(LOADS.values()), history, values=True)
    disks = [BrokerDisk(broker, rack, brokers.data(broker), stopped=True) for broker, rack in BROKER_RACKS.items()]
    read_disks(disks, history, topics=list(LOADS.values()))

    events = list(history.events())
    for name in ("delivery", "promise"):
        verdict = CHECKERS[name].check(events)
        assert (name, verdict.valid) == (name, "true"), verdict.because[:5]
    outcomes = [attempt.outcome for attempt in Records(events).attempts]
    assert set(outcomes) == {"ok"}, "a record was given up"
    # a leader of each version rejected, each under a controller of the other version, too
    assert {EARLIER, LATER} <= {leader for leader, _ in rejected_while(history)}
    assert any(leader != controller for leader, controller in rejected_while(history))


def _finalize(brokers: Brokers, classpaths: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Finalize the upgrade of metadata.version; afterwards Kafka rejects the way back."""
    tool = classpaths[LATER]
    release = paths.DEFAULT_KAFKA.rpartition(".")[0]
    done = features(tool, brokers.bootstrap, "upgrade", "--release-version", release)
    assert done.status == 0, done.text
    after = described(tool, brokers.bootstrap)
    assert after[METADATA_FEATURE] != before[METADATA_FEATURE]
    assert after[RACKS_FEATURE] == before[RACKS_FEATURE]
    rejected = features(tool, brokers.bootstrap, "downgrade", "--metadata", before[METADATA_FEATURE])
    assert rejected.status != 0, rejected.text
