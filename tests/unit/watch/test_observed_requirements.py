"""Requirements of topics, parsed from the settings that brokers report."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pyhooks.watch.collector import _parse_requirements
from pyhooks.watch.observation import TopicRequirements


@dataclass(frozen=True)
class Entry:
    """Stand-in for confluent-kafka's ConfigEntry."""

    value: str | None


def settings(replicas: str | None, racks: str | None) -> dict[str, Entry]:
    return {"min.insync.replicas": Entry(replicas), "min.insync.racks": Entry(racks)}


def test_numbers_are_accepted() -> None:
    assert _parse_requirements(settings("2", "3")) == TopicRequirements(2, 3)
    assert (
        _parse_requirements({"min.insync.replicas": Entry("2")})
        == _parse_requirements(settings("2", None))
        == TopicRequirements(2, None)
    )


@pytest.mark.parametrize("value", ["abc", "-3", "0", "", "2.0"])
def test_a_value_that_is_no_number_is_named(value: str) -> None:
    with pytest.raises(ValueError, match=r"min\.insync\.replicas="):
        _parse_requirements(settings(value, "1"))
    with pytest.raises(ValueError, match=r"min\.insync\.racks="):
        _parse_requirements(settings("1", value))


def test_a_topic_without_the_setting_is_unknown() -> None:
    with pytest.raises(ValueError, match="no min"):
        _parse_requirements({})
