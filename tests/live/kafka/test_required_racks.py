"""R (min.insync.racks) comes only from the metadata, and only brokers with ``broker.rack`` count for a rack.

Racks are a, a, b and M=2. With broker 3 killed the ISR is in rack a, or in rack a and on a broker without a rack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from check_command import check
from feature_tools import (
    RACKS,
    RACKS_REJECTED,
    SETTLES_S,
    TOPIC,
    configs,
    create_topic,
    produce,
    wait_in_sync,
)
from loopback_brokers import Brokers
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.kafka.gate import MIN_INSYNC_RACKS_OBSERVE
from pyhooks.lab.mbeans import BROKERS_WITHOUT_RACK, OBSERVED_REJECTIONS, PROPERTY_ABOVE_CLUSTER_VALUE
from pyhooks.patchset.distribution import Distribution

pytestmark = pytest.mark.timeout(420)
CONTROLLER = 100
A1, A2, B = ALL = (1, 2, 3)
TWO = {"min.insync.replicas": "2"}
CONTROLLER_GAUGE = f"kafka.controller:type=KafkaController,name={BROKERS_WITHOUT_RACK}"
OBSERVED = f"kafka.server:type=BrokerTopicMetrics,name={OBSERVED_REJECTIONS}"
BROKER_GAUGE = f"kafka.server:type=KafkaServer,name={PROPERTY_ABOVE_CLUSTER_VALUE}"


@contextmanager
def started(folder: Path, *, in_properties: Collection[int] = ()) -> Iterator[tuple[Brokers, str]]:
    """Run the brokers; yield them and their class path. Nodes ``in_properties`` start with R=2 in their properties."""
    built = Distribution.load()
    classpath = built.classpath()
    extra = {"auto.leader.rebalance.enable": "false"}
    own = {node: {RACKS: "2"} for node in in_properties}
    brokers = Brokers(folder, {A1: "a", A2: "a", B: "b"}, CONTROLLER, extra=extra, own=own, agent=built.hooks)
    brokers.format(classpath)
    with brokers.running(classpath):
        yield brokers, classpath


def restart_in(brokers: Brokers, classpath: str, broker: int, rack: str) -> None:
    """Restart a broker cleanly in another rack, or without a rack, and wait until all replicas are in sync."""
    brokers.restart(broker, classpath, rack=rack)
    wait_in_sync(brokers, ALL)


def kill_b(brokers: Brokers) -> None:
    brokers.kill(B)
    wait_in_sync(brokers, (A1, A2))


def meets(brokers: Brokers, outcome: str) -> None:
    """Wait until a single attempt has this outcome, since leaders apply a change shortly after the tool returns."""
    wait_for(lambda: produce(brokers) == outcome, goal=outcome, timeout_s=SETTLES_S)


def shows(brokers: Brokers, node: int, bean: str, value: int) -> None:
    """Wait until a gauge has a value."""
    wait_for(
        lambda: [text for _, _, text in brokers.metrics(node).query([(bean, "Value")], 30).rows] == [str(value)],
        goal=f"{bean} {value} on node {node}",
        timeout_s=SETTLES_S,
    )


def findings(brokers: Brokers) -> tuple[int, dict[str, str]]:
    """Run ``rackgate check``; return its exit status, and the severity of each finding by code."""
    done = check(brokers.bootstrap, "--json")
    assert done.stdout, done.stderr
    return done.returncode, {one["code"]: one["severity"] for one in json.loads(done.stdout)["findings"]}


# -- the metadata is the only source of R -----------------------------------------------------------------------------


def test_r_in_the_properties_of_brokers_alone_is_not_required(tmp_path: Path) -> None:
    with started(tmp_path, in_properties=ALL) as (brokers, classpath):
        create_topic(brokers, TWO, replicas=ALL)
        status, codes = findings(brokers)
        assert (status, codes["property-above-cluster-value"]) == (1, "error")
        for broker in ALL:
            shows(brokers, broker, BROKER_GAUGE, 1)
            assert re.search(rf"ERROR .*{re.escape(RACKS)}", brokers.log(broker)), f"broker {broker} logs no error"
        kill_b(brokers)
        assert produce(brokers) == "ok", "R is 1: one rack acknowledges"
        # with the same value in the metadata, the properties are no longer ignored
        done = configs(classpath, brokers, "brokers", "", "--add-config", f"{RACKS}=2")
        assert done.status == 0, done.text
        meets(brokers, RACKS_REJECTED)
        for broker in (A1, A2):
            shows(brokers, broker, BROKER_GAUGE, 0)
        assert "property-above-cluster-value" not in findings(brokers)[1]


def test_r_in_the_properties_of_the_controller_is_the_first_value_of_a_new_cluster(tmp_path: Path) -> None:
    with started(tmp_path, in_properties=(CONTROLLER,)) as (brokers, _):
        create_topic(brokers, TWO, replicas=ALL)
        assert produce(brokers) == "ok"
        assert "property-above-cluster-value" not in findings(brokers)[1]
        kill_b(brokers)
        meets(brokers, RACKS_REJECTED)


def test_an_observed_number_of_racks_rejects_nothing(tmp_path: Path) -> None:
    with started(tmp_path) as (brokers, _):
        create_topic(brokers, {**TWO, MIN_INSYNC_RACKS_OBSERVE: "2"}, replicas=ALL)
        assert produce(brokers) == "ok"
        kill_b(brokers)
        assert produce(brokers) == "ok"
        counts = [text for _, _, text in brokers.metrics(A1).query([(f"{OBSERVED},topic={TOPIC}", "Count")], 30).rows]
        assert counts == ["1"], "only the record without rack b would have been rejected"


# -- an unknown rack counts for no rack -------------------------------------------------------------------------------


def test_a_broker_without_a_rack_counts_for_no_rack(tmp_path: Path) -> None:
    with started(tmp_path) as (brokers, classpath):
        create_topic(brokers, {**TWO, RACKS: "2"}, replicas=ALL)
        shows(brokers, CONTROLLER, CONTROLLER_GAUGE, 0)
        restart_in(brokers, classpath, A2, "")
        assert produce(brokers) == "ok", "1 in rack a and 3 in rack b"
        shows(brokers, CONTROLLER, CONTROLLER_GAUGE, 1)
        status, codes = findings(brokers)
        assert (status, codes["brokers-without-rack"]) == (1, "error")
        kill_b(brokers)
        meets(brokers, RACKS_REJECTED)
        assert re.search(r"WARN .*Rejecting writes.*", brokers.log(A1)), "the leader reports the shortage"


def test_a_broker_without_a_rack_starts_whatever_its_properties_have(tmp_path: Path) -> None:
    with started(tmp_path, in_properties=ALL) as (brokers, classpath):
        create_topic(brokers, TWO, replicas=ALL)
        restart_in(brokers, classpath, A2, "")
        assert produce(brokers) == "ok"


def test_only_a_raise_of_r_needs_racks(tmp_path: Path) -> None:
    with started(tmp_path) as (brokers, classpath):
        create_topic(brokers, TWO, replicas=(A1, A2))
        with Admin(brokers.bootstrap) as admin:
            admin.create_topic("named", [[A1, B]], {})
            wait_for(partial(admin.in_sync, "named", (A1, B)), goal="named in sync", timeout_s=SETTLES_S)

        def change(kind: str, name: str, value: int) -> int:
            done = configs(classpath, brokers, kind, name, "--add-config", f"{RACKS}={value}")
            assert done.status == 0 or "InvalidConfigurationException" in done.text, done.text
            return done.status

        assert change("topics", TOPIC, 2) == 0
        brokers.restart(A2, classpath, rack="")
        wait_in_sync(brokers, (A1, A2))
        # unchanged and lower values are accepted
        assert change("topics", TOPIC, 2) == 0
        assert change("topics", TOPIC, 1) == 0
        assert change("brokers", "", 1) == 0
        # rejected: one of the topic's replicas, or one of the cluster's brokers, has no rack
        assert change("topics", TOPIC, 2) != 0
        assert change("brokers", "", 2) != 0
        # accepted: all replicas of this topic are on brokers with a rack
        assert change("topics", "named", 2) == 0
        brokers.restart(A2, classpath, rack="a")
        assert change("topics", TOPIC, 2) == 0
        assert change("brokers", "", 2) == 0
