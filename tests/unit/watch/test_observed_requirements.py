"""Requirements of topics, parsed from the settings that brokers report."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pyhooks.watch.collector import _parse_requirements
from pyhooks.watch.observation import TopicRequirements


@dataclass(frozen=True)
class FakeConfigEntry:
    """Fake of confluent-kafka's ``ConfigEntry``."""

    value: str | None


def settings(replicas: str | None, racks: str | None) -> dict[str, FakeConfigEntry]:
    return {"min.insync.replicas": FakeConfigEntry(replicas), "min.insync.racks": FakeConfigEntry(racks)}


def test_numbers_are_accepted() -> None:
    assert _parse_requirements(settings("2", "3")) == TopicRequirements(2, 3)
    assert (
        _parse_requirements({"min.insync.replicas": FakeConfigEntry("2")})
        == _parse_requirements(settings("2", None))
        == TopicRequirements(2, None)
    )


@pytest.mark.parametrize("value", ["abc", "-3", "0", "", "2.0"])
def test_an_invalid_value_is_an_error(value: str) -> None:
    with pytest.raises(ValueError, match=r"min\.insync\.replicas="):
        _parse_requirements(settings(value, "1"))
    with pytest.raises(ValueError, match=r"min\.insync\.racks="):
        _parse_requirements(settings("1", value))


def test_a_topic_without_the_setting_is_unknown() -> None:
    with pytest.raises(ValueError, match="no min"):
        _parse_requirements({})
