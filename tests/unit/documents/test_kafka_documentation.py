"""The text for Kafka's site has the configs, metrics, errors and options that the series defines, and no others."""

from __future__ import annotations

import re

from pyhooks.core import paths

SERIES = paths.REPO / "patch" / paths.DEFAULT_KAFKA
TEXT = (paths.REPO / "patch" / "documentation.md").read_text(encoding="utf-8")
# of stock Kafka
STOCK_METRICS = {"OfflinePartitionsCount"}
CAMEL = r"[A-Z][A-Za-z]*"


def added_lines() -> str:
    """Return the lines that the parts of the feature add to Kafka's main code."""
    added = []
    for patch in sorted(path for part in ("gate", "elr", "observe") for path in (SERIES / part).glob("*.patch")):
        for file in re.split(r"^diff --git ", patch.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            if "/src/main/" in file.partition("\n")[0]:
                added += re.findall(r"^\+(?!\+\+)(.*)$", file, re.MULTILINE)
    return "\n".join(added)


ADDED = added_lines()


def test_each_new_metric_is_documented_and_each_documented_metric_exists() -> None:
    documented = set(re.findall(rf"name=({CAMEL})", TEXT))
    named = set(re.findall(rf'"({CAMEL}(?:Count|Rate|PerSec|RackIsr|ExceedsMetadata))"', ADDED))
    assert documented == named - STOCK_METRICS


def test_the_configs_and_features_are_those_of_the_series() -> None:
    names = set(re.findall(r"min\.insync\.racks(?:\.[a-z]+)*", TEXT))
    assert names == set(re.findall(r'"(min\.insync\.racks(?:\.[a-z]+)*)"', ADDED))


def test_the_errors_are_those_of_the_series() -> None:
    named = set(re.findall(r"NotEnoughRacks\w*Exception", TEXT))
    assert named == set(re.findall(r"class (NotEnoughRacks\w*Exception)", ADDED))


def test_the_option_of_kafka_topics_exists() -> None:
    (option,) = re.findall(r"--(under-min-rack-isr-partitions)", TEXT)
    assert f'"{option}"' in ADDED
