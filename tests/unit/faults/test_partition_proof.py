"""Probes of a partition: one node of each other site, or all nodes where each has its own rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ducktape_tests.services.host_network import HostNetwork
from pyhooks.faults import kinds
from pyhooks.faults.injection import FaultTarget
from pyhooks.lab import topology
from pyhooks.lab.network_faults import LabNetwork

OUTSIDE = topology.load(topology.find("az3-outside"))


@pytest.mark.parametrize(
    ("network", "far"),
    [
        (LabNetwork, {"a": [1], "c": [5], "outside": [101]}),
        (HostNetwork, {"a": [1, 2], "c": [5], "outside": [101, 102, 103]}),
    ],
)
def test_all_nodes_of_a_site_are_probed_where_each_has_its_own_rules(
    network: Any, far: Mapping[str, Sequence[int]]
) -> None:
    cluster: Any = SimpleNamespace(topology=OUTSIDE, network=network, replies=None)
    rack = OUTSIDE.site("b").nodes
    inside = {node.node_id for node in rack}
    others = {one for ids in far.values() for one in ids}
    whole = kinds.PartitionFault(cluster, FaultTarget("rack", "b", "b", rack))
    queried = {(way[0].node_id, way[1].node_id) for way in whole.paths() if way[0] is not None}
    across = {(one, two) for one in inside for two in others} | {(two, one) for one in inside for two in others}
    assert {way for way in queried if not set(way) <= inside} == across
    # from one site alone: what is not cut must go on at each node
    names = [
        name for name, _ in kinds.PartitionFault(cluster, FaultTarget("rack", "b", "b", rack), ("a",))._probe_paths()
    ]
    assert len(set(names)) == len(names)
    assert {f"not cut: controller-{one} to broker-3" for one in far["outside"]} <= set(names)
    assert {f"broker-{one} to broker-3" for one in far["a"]} <= set(names)
