"""Duration and memory of ``rackgate check`` on brokers with 10,000 partitions."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from check_command import CPU_S, MEMORY_MB, measured_check, unfenced
from loopback_brokers import Brokers
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.kafka.cluster_metadata import MetadataClient
from pyhooks.patchset.distribution import Distribution

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
TOPICS, PARTITIONS = 100, 100
RACKS = {1: "a", 2: "a", 3: "b", 4: "c"}


NAMES = [f"topic-{number:03}" for number in range(TOPICS)]


def whole(asker: MetadataClient) -> bool:
    """Return whether a broker's own metadata has all partitions, with all replicas in sync."""
    metadata = asker.query_or_none(NAMES, 30.0)
    partitions = metadata.partitions.values() if metadata else ()
    return len(partitions) == TOPICS * PARTITIONS and all(len(one.isr) == 2 for one in partitions)


def test_10000_partitions_take_10_s_and_500_mb_at_most(tmp_path: Path) -> None:
    classpath = Distribution.load().classpath()
    brokers = Brokers(tmp_path, RACKS, controller=1, heap_mb=1024)
    brokers.format(classpath)
    placed = [[1 + n % 4, 1 + (n + 1 + n // 4 % 3) % 4] for n in range(PARTITIONS)]
    with brokers.running(classpath):
        with Admin(brokers.bootstrap, timeout_s=120.0) as admin:
            wait_for(partial(unfenced, admin, 4), goal="four brokers", timeout_s=120)
            for name in NAMES:
                admin.create_topic(name, placed, {"min.insync.replicas": "2", "min.insync.racks": "2"})
        # wait for each broker, since the check may query any of them
        for broker in RACKS:
            asker = MetadataClient(brokers.address(broker), each_s=30.0)
            wait_for(partial(whole, asker), goal=f"all of it on broker {broker}", timeout_s=600, interval_s=2)
        status, cpu_s, memory_mb = measured_check(brokers.bootstrap, tmp_path / "out", "--json")
    output = json.loads((tmp_path / "out").read_bytes())
    print(f"{cpu_s:.1f} s of CPU time, {memory_mb:.0f} MB")  # noqa: T201 - the figures of the run
    assert sum(len(topic["partitions"]) for topic in output["topics"]) == TOPICS * PARTITIONS
    assert all(broker["answered"] for broker in output["brokers"])
    assert status == 1
    assert cpu_s <= CPU_S, f"{cpu_s:.1f} s of CPU time"
    assert memory_mb <= MEMORY_MB, f"{memory_mb:.0f} MB"
