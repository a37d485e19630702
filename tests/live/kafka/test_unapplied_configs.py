"""A broker that cannot apply the cluster's dynamic configs still requires the values in the metadata.

A broker applies all cluster defaults or none. One with 2 I/O threads rejects a default of 12 (more than double), and
with it all later defaults. It still reports to the controller that it has processed them. So it has to require
what the metadata requires: no less if that is raised, and no more if it is lowered.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from feature_tools import RACKS, RACKS_REJECTED, TOPIC, configs, create_topic, produce
from loopback_brokers import Brokers
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.patchset.distribution import Distribution

pytestmark = pytest.mark.timeout(420)
NOT_APPLIED = "Cluster default configs could not be applied"
REPLICAS = "min.insync.replicas"
REPLICAS_REJECTED = "org.apache.kafka.common.errors.NotEnoughReplicasException"
TOO_MANY = "num.io.threads=12"


class Unequal:
    """Three brokers in one rack; the second cannot apply a default of 12 I/O threads."""

    def __init__(self, folder: Path) -> None:
        self.classpath = Distribution.load().classpath()
        self.pair = Brokers(folder, {1: "a", 2: "a", 3: "a"}, controller=1)
        self.pair.format(self.classpath)
        for node, threads in ((1, 8), (2, 2), (3, 8)):
            with self.pair.file(node).open("a", encoding="utf-8") as file:
                file.write(f"num.io.threads={threads}\n")

    def change(self, how: str, config: str) -> None:
        """Alter the cluster's defaults."""

        def accepted() -> bool:
            # the broker that gets the request validates the value; two of the three accept it
            return configs(self.classpath, self.pair, "brokers", "", f"--{how}-config", config).status == 0

        wait_for(accepted, goal=f"{how} {config}", timeout_s=90)

    def rejections(self, number: int) -> None:
        """Wait until broker 2 has logged ``count`` rejected changes."""
        wait_for(lambda: self.pair.log(2).count(NOT_APPLIED) == number, goal="broker 2 not to apply them", timeout_s=90)

    def answers(self, outcome: str) -> None:
        """Wait until a single attempt has this outcome."""
        wait_for(lambda: produce(self.pair) == outcome, goal=f"a record to be answered with {outcome}", timeout_s=90)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Unequal]:
    made = Unequal(tmp_path)
    with made.pair.running(made.classpath):
        yield made
        assert NOT_APPLIED not in made.pair.log(1)


def test_the_racks_of_the_cluster_are_required_where_its_configs_cannot_be_applied(brokers: Unequal) -> None:
    create_topic(brokers.pair, {}, replicas=(2, 1))
    # raised where it cannot be applied
    brokers.change("add", TOO_MANY)
    brokers.rejections(1)
    assert produce(brokers.pair) == "ok", "both replicas are in one rack, and nobody asks"
    brokers.change("add", f"{RACKS}=2")
    brokers.rejections(2)
    brokers.answers(RACKS_REJECTED)
    brokers.change("add", f"{RACKS}=1")
    brokers.answers("ok")
    brokers.rejections(3)
    # applied, and then lowered where it cannot be applied
    brokers.change("delete", TOO_MANY.partition("=")[0])
    brokers.change("add", f"{RACKS}=2")
    brokers.answers(RACKS_REJECTED)
    brokers.rejections(3)
    brokers.change("add", TOO_MANY)
    brokers.rejections(4)
    brokers.answers(RACKS_REJECTED)
    brokers.change("add", f"{RACKS}=1")
    brokers.answers("ok")


def test_the_replicas_of_the_cluster_are_required_where_its_configs_cannot_be_applied(brokers: Unequal) -> None:
    brokers.change("add", f"{REPLICAS}=2")
    with Admin(brokers.pair.bootstrap) as admin:
        admin.create_topic(TOPIC, [[2, 3]], {})
        brokers.answers("ok")
        brokers.pair.kill(3)
        wait_for(lambda: admin.in_sync(TOPIC, (2,)), goal="broker 2 to be alone in sync", timeout_s=60)
    brokers.answers(REPLICAS_REJECTED)
    brokers.change("add", TOO_MANY)
    brokers.rejections(1)
    brokers.change("add", f"{REPLICAS}=1")
    brokers.rejections(2)
    # With ELR enabled, leaders require the metadata's value even if their log config lacks it
    brokers.answers("ok")
