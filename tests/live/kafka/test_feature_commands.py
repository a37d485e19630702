"""The feature min.insync.racks.version with Kafka's own tools: format, describe, upgrade, downgrade, errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from feature_tools import (
    ELR_FEATURE,
    RACKS,
    RACKS_FEATURE,
    RACKS_REJECTED,
    STORAGE,
    TOPIC,
    configs,
    create_topic,
    described,
    features,
    produce,
    tool,
)
from loopback_brokers import Pair
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.kafka.gate import MIN_INSYNC_RACKS_OBSERVE
from pyhooks.patchset.distribution import Distribution

pytestmark = pytest.mark.timeout(420)
LEVEL_0 = ("--feature", f"{RACKS_FEATURE}=0")


@pytest.fixture(scope="module")
def classpath() -> str:
    return Distribution.load().classpath()


def at_level(pair: Pair, level: int) -> bool:
    with Admin(pair.bootstrap) as admin:
        return admin.finalized(RACKS_FEATURE).level == level


def test_the_storage_tool_knows_the_feature(classpath: str, tmp_path: Path) -> None:
    mapping = tool(classpath, STORAGE, "version-mapping")
    assert f"{RACKS_FEATURE}=1" in mapping.text
    needs = tool(classpath, STORAGE, "feature-dependencies", "--feature", f"{RACKS_FEATURE}=1")
    assert f"{ELR_FEATURE}=1" in needs.text
    stock = Distribution.load().classpath(overlay=False)
    assert RACKS_FEATURE not in tool(stock, STORAGE, "version-mapping").text
    # the controller records in the ELR which replicas have the acknowledged records, so the feature requires it
    pair = Pair(tmp_path)
    pair.format(classpath)
    pair.wipe(1)
    arguments = ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(pair.file(1))]
    rejected = tool(classpath, STORAGE, *arguments, "--feature", f"{ELR_FEATURE}=0", "--feature", f"{RACKS_FEATURE}=1")
    assert rejected.status != 0
    assert f"{RACKS_FEATURE} could not be set to 1 because it depends on {ELR_FEATURE} level 1" in rejected.line


def test_a_new_cluster_has_the_feature_and_keeps_it_while_racks_are_required(classpath: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.format(classpath)
    with pair.running(classpath):
        assert described(classpath, pair.bootstrap)[RACKS_FEATURE] == "1"
        create_topic(pair, {RACKS: "2"})
        assert produce(pair) == RACKS_REJECTED

        rejected = configs(classpath, pair, "brokers", "1", "--add-config", f"{RACKS}=2")
        assert rejected.status != 0
        assert f"Broker-level {RACKS} cannot be set while it is enforced for all" in rejected.line
        assert configs(classpath, pair, "brokers", "", "--add-config", f"{RACKS}=2").status == 0
        rejected = configs(classpath, pair, "brokers", "", "--delete-config", RACKS)
        assert rejected.status != 0
        assert f"Cluster-level {RACKS} cannot be removed while it is enforced. Set it to 1." in rejected.line

        for feature in (RACKS_FEATURE, ELR_FEATURE):
            rejected = features(classpath, pair.bootstrap, "downgrade", "--feature", f"{feature}=0")
            assert rejected.status != 0
            expected = f"{feature} cannot be downgraded to 0 because {RACKS} is above 1 for the cluster, topic {TOPIC}."
            assert expected in rejected.line
        assert described(classpath, pair.bootstrap)[RACKS_FEATURE] == "1"

        assert configs(classpath, pair, "brokers", "", "--add-config", f"{RACKS}=1").status == 0
        assert configs(classpath, pair, "topics", TOPIC, "--add-config", f"{RACKS}=1").status == 0
        done = features(classpath, pair.bootstrap, "downgrade", *LEVEL_0)
        assert done.status == 0, done.text
        wait_for(partial(at_level, pair, 0), goal="the downgraded feature", timeout_s=60)
        assert described(classpath, pair.bootstrap)[RACKS_FEATURE] == "0"
        assert produce(pair) == "ok"


def test_an_upgraded_cluster_enforces_the_property_of_its_controller(classpath: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path, extra={RACKS: "2"})
    pair.format(classpath, *LEVEL_0)
    with pair.running(classpath):
        assert described(classpath, pair.bootstrap)[RACKS_FEATURE] == "0"
        warning = (
            f"{RACKS} is 2 in the properties of this broker, but it is not enforced unless both {ELR_FEATURE} and"
            f" {RACKS_FEATURE} are 1."
        )
        for node in (1, 2):
            lines = [line for line in pair.log(node).splitlines() if warning in line]
            assert len(lines) == 1, pair.log(node)[-3000:]
            assert "] WARN " in lines[0]
        # both replicas are in one rack; observing logs this without rejecting writes
        create_topic(pair, {MIN_INSYNC_RACKS_OBSERVE: "2"})
        assert produce(pair) == "ok"
        observed = f"If {RACKS} were 2, this leader would reject writes because of missing racks"
        wait_for(lambda: observed in pair.log(1), goal="the line about the observed number", timeout_s=60)

        rejected = configs(classpath, pair, "topics", TOPIC, "--add-config", f"{RACKS}=2")
        assert rejected.status != 0
        assert f"A value above 1 requires {RACKS_FEATURE} 1 and {ELR_FEATURE} 1" in rejected.line
        # the commands that the message recommends
        levels = ("--feature", f"{ELR_FEATURE}=1", "--feature", f"{RACKS_FEATURE}=1")
        assert f"upgrade {' '.join(levels)}" in rejected.line
        done = features(classpath, pair.bootstrap, "upgrade", "--feature", f"{RACKS_FEATURE}=1")
        assert done.status == 0, done.text
        wait_for(lambda: produce(pair) == RACKS_REJECTED, goal="the gate", timeout_s=60)
        expected = f"{RACKS} is enforced from now on"
        wait_for(lambda: expected in pair.log(1), goal="the line that says so", timeout_s=60)
        # the controller has copied its property into the metadata, where it must be lowered before a downgrade
        rejected = features(classpath, pair.bootstrap, "downgrade", *LEVEL_0)
        assert rejected.status != 0
        assert f"because {RACKS} is above 1 for the cluster. Set it to 1 there" in rejected.line
