"""Probes of a network partition: one node per site, or all nodes if each has its own firewall rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ducktape_tests.services.host_network import HostNetwork
from pyhooks.faults import kinds
from pyhooks.faults.injection import FaultTarget
from pyhooks.lab import topology
from pyhooks.lab.network import LabNetwork

OUTSIDE = topology.load(topology.find("az3-outside"))


@pytest.mark.parametrize(
    ("network", "probed"),
    [
        (LabNetwork, {"a": [1], "c": [5], "outside": [101]}),
        (HostNetwork, {"a": [1, 2], "c": [5], "outside": [101, 102, 103]}),
    ],
)
def test_all_nodes_of_a_site_are_probed_if_each_has_its_own_rules(
    network: Any, probed: Mapping[str, Sequence[int]]
) -> None:
    cluster: Any = SimpleNamespace(topology=OUTSIDE, network=network, replies=None)
    rack = OUTSIDE.site("b").nodes
    inside = {node.node_id for node in rack}
    outside = {node_id for ids in probed.values() for node_id in ids}
    partition = kinds.PartitionFault(cluster, FaultTarget("rack", "b", "b", rack))
    probe_paths = {(source.node_id, target.node_id) for source, target in partition.paths() if source is not None}
    across = {pair for near in inside for far in outside for pair in ((near, far), (far, near))}
    assert {path for path in probe_paths if not set(path) <= inside} == across
    # partitioned from site a only: the connections of each node to other sites must still work
    names = [
        name for name, _ in kinds.PartitionFault(cluster, FaultTarget("rack", "b", "b", rack), ("a",))._probe_paths()
    ]
    assert len(set(names)) == len(names)
    assert {f"not cut: controller-{node_id} to broker-3" for node_id in probed["outside"]} <= set(names)
    assert {f"broker-{node_id} to broker-3" for node_id in probed["a"]} <= set(names)
