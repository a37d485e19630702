"""A broker that cannot apply the cluster's configs, since another of them is invalid there, still requires the racks.

A broker applies all defaults of the cluster or none. One with 2 io threads refuses a default of 12, more than twice as
many, and with it each later default. It tells the controller that it has seen them all the same, so it has to require
what the metadata requires: no less if that is raised, and no more if it is lowered.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from features import RACKS, RACKS_REFUSED, configs, create_topic, produce
from loopback import Pair

from pyhooks.build.distribution import Distribution
from pyhooks.wait import wait_for

pytestmark = [pytest.mark.build, pytest.mark.timeout(420)]
NOT_APPLIED = "Cluster default configs could not be applied"


@pytest.mark.parametrize(
    "applied_first", [False, True], ids=["raised where it cannot be applied", "lowered where it cannot be applied"]
)
def test_the_racks_of_the_cluster_are_required_where_its_configs_cannot_be_applied(
    tmp_path: Path, applied_first: bool
) -> None:
    classpath = Distribution.load().classpath()
    pair = Pair(tmp_path)
    pair.format(classpath)
    for node, threads in ((1, 8), (2, 2)):
        with pair.file(node).open("a", encoding="utf-8") as file:
            file.write(f"num.io.threads={threads}\n")

    def accepted(config: str) -> bool:
        # the broker that is asked checks the value; one in two asks the one that can have it
        return configs(classpath, pair, "brokers", "", "--add-config", config).status == 0

    def refusals() -> int:
        return pair.log(2).count(NOT_APPLIED)

    with pair.running(classpath):
        create_topic(pair, {}, replicas=(2, 1))
        if applied_first:
            wait_for(lambda: accepted(f"{RACKS}=2"), what="the cluster's racks", timeout_s=90)
            wait_for(lambda: produce(pair) == RACKS_REFUSED, what="broker 2 to require them", timeout_s=20)
        wait_for(lambda: accepted("num.io.threads=12"), what="a default that broker 2 cannot have", timeout_s=90)
        wait_for(lambda: refusals() == 1, what="broker 2 to refuse it", timeout_s=20)
        if not applied_first:
            assert produce(pair) == "ok", "both replicas are in one rack, and nobody asks"
            wait_for(lambda: accepted(f"{RACKS}=2"), what="the cluster's racks", timeout_s=90)
            wait_for(lambda: refusals() == 2, what="broker 2 not to apply them either", timeout_s=20)
        wait_for(lambda: produce(pair) == RACKS_REFUSED, what="broker 2 to require them all the same", timeout_s=20)
        wait_for(lambda: accepted(f"{RACKS}=1"), what="one rack again", timeout_s=90)
        wait_for(lambda: produce(pair) == "ok", what="broker 2 to accept it", timeout_s=20)
        assert NOT_APPLIED not in pair.log(1)
