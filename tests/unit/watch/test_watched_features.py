"""Feature queries of ``rackgate watch``: the queried broker and the parsed response."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import features
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.watch.collector import ClusterMetadata, Collector, WatchedCluster

ON = {ELR_FEATURE: 1, RACKS_FEATURE: 1}


@pytest.mark.parametrize(("levels", "enforced"), [(ON, True), ({ELR_FEATURE: 1}, False), ({RACKS_FEATURE: 1}, False)])
def test_the_first_broker_that_responds_is_queried_again(
    levels: Mapping[str, int], enforced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queried: list[str] = []

    def finalized(host: str, _port: int, _timeout_s: float) -> Mapping[str, int]:
        queried.append(host)
        if host == "one":
            raise RackgateError("one:9092: no response to ApiVersions: timed out")
        return levels

    monkeypatch.setattr(features, "finalized", finalized)
    collector = Collector(WatchedCluster("t", "nowhere:1"))
    assert collector.observe().racks_enforced is None
    collector._metadata.put(ClusterMetadata({1: ("one", 9092), 2: ("two", 9092), 3: ("three", 9092)}, {}), 0)
    assert collector._query_features() is enforced
    assert collector._query_features() is enforced
    assert queried == ["one", "two", "two"]


def test_without_a_response_the_feature_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def finalized(host: str, port: int, _timeout_s: float) -> Mapping[str, int]:
        raise RackgateError(f"{host}:{port}: no response to ApiVersions: timed out")

    monkeypatch.setattr(features, "finalized", finalized)
    collector = Collector(WatchedCluster("t", "nowhere:1"))
    with pytest.raises(RackgateError, match="not known yet"):
        collector._query_features()
    collector._metadata.put(ClusterMetadata({1: ("one", 9092)}, {}), 0)
    with pytest.raises(RackgateError, match="one:9092: no response"):
        collector._query_features()
