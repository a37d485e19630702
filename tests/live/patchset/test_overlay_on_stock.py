"""The packed overlay in front of a stock Kafka release: installed, removed and installed again on the same data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from feature_tools import ELR_FEATURE, RACKS_FEATURE, Said, features
from loopback_brokers import Pair, lay_out_release, run_class_classpath, shared_classes
from pyhooks.core import paths
from pyhooks.core.process import run
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.jvm.admin import Admin, Finalized
from pyhooks.jvm.java_exception import JavaError
from pyhooks.jvm.producer import Acknowledged, Producer
from pyhooks.patchset.archive import make_archive
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import high_watermark, read_all

pytestmark = pytest.mark.timeout(900)
RACKS = "min.insync.racks"
RACKS_REJECTED = "org.apache.kafka.common.errors.NotEnoughRacksException"
ONE_ATTEMPT = {"acks": "all", "retries": "0", "enable.idempotence": "false"}
FOUND = paths.OUT / "overlay-on-stock" / "found.json"


@dataclass(frozen=True)
class Stock:
    """A stock Kafka, the unpacked overlay, and a pair of brokers that can be started with or without it."""

    kafka: Path
    unpacked: Path
    pair: Pair

    @property
    def with_overlay(self) -> str:
        # what an operator sets: export CLASSPATH="<folder>/overlay/*"
        return run_class_classpath(self.kafka, f"{self.unpacked}/overlay/*")

    @property
    def without(self) -> str:
        return run_class_classpath(self.kafka)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    distribution = Distribution.load()
    packed = make_archive(distribution, tmp_path)
    (tmp_path / "opt").mkdir()
    run(["tar", "--extract", "--file", packed.path], task="unpack the archive", cwd=tmp_path / "opt")
    (unpacked,) = (tmp_path / "opt").iterdir()
    run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], task="verify the overlay", cwd=unpacked)
    kafka = lay_out_release(
        distribution.root / "libs", tmp_path / f"kafka_2.13-{distribution.manifest['kafka_version']}"
    )
    assert not list((kafka / "libs").glob("*rackgate*"))
    # in the static configuration, too, where stock Kafka does not know it either
    return Stock(kafka, unpacked, Pair(tmp_path, extra={RACKS: "1"}))


@pytest.fixture
def found() -> Iterator[dict[str, Any]]:
    """Collect observations and write them to a file at the end."""
    seen: dict[str, Any] = {}
    yield seen
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    FOUND.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def produce(pair: Pair, key: str, acks: str = "all") -> str:
    """Produce a record; return ``ok`` or the exception's class."""
    answers: list[Acknowledged | JavaError] = []
    with Producer(pair.bootstrap, {**ONE_ATTEMPT, "acks": acks}) as producer:
        producer.send("gated", key, "value", answers.append)
    (answer,) = answers
    return answer.java_class if isinstance(answer, JavaError) else "ok"


def settled(pair: Pair) -> None:
    """Wait until both replicas are in sync; before, a partition may have no leader yet."""
    with Admin(pair.bootstrap) as admin:
        wait_for(lambda: admin.in_sync("gated", (1, 2)), goal="both replicas in sync", timeout_s=60)


def keys(pair: Pair, tmp_path: Path, name: str) -> list[str]:
    history = History(tmp_path / f"{name}.jsonl")
    read_all(pair.bootstrap, ["gated"], history)
    (event,) = history.events()
    return list(event.data["keys"])


def topic_config(stock: Stock) -> str:
    """Return a stock tool's output about the topic's dynamic configuration."""
    arguments = ["java", "-cp", stock.without, "kafka.admin.ConfigCommand"]
    arguments += ["--bootstrap-server", stock.pair.bootstrap, "--describe", "--entity-type", "topics"]
    return run([*arguments, "--entity-name", "gated"], task="describe the topic")


def lines_at(pair: Pair, level: str) -> list[str]:
    return [line for node in (1, 2) for line in pair.log(node).splitlines() if f"] {level} " in line]


def try_to_set_racks(pair: Pair, value: str) -> str:
    """Set the topic's min.insync.racks; return ``ok`` or the cluster's error."""
    with Admin(pair.bootstrap) as admin:
        try:
            admin.set_topic_config("gated", RACKS, value)
        except JavaError as error:
            return error.text
    return "ok"


def set_level(stock: Stock, how: str, level: int) -> Said:
    return features(stock.with_overlay, stock.pair.bootstrap, how, "--feature", f"{RACKS_FEATURE}={level}")


def level(stock: Stock) -> Finalized:
    with Admin(stock.pair.bootstrap) as admin:
        return admin.finalized(RACKS_FEATURE)


def snapshot_offsets(pair: Pair, node: int) -> list[int]:
    """Return the metadata offsets at which a node's snapshots end."""
    folder = pair.data(node) / "__cluster_metadata-0"
    return [int(path.name.partition("-")[0]) for path in folder.glob("*-*.checkpoint")]


def a_stock_node_fails(stock: Stock, node: int, reason: str) -> str:
    """Start a node without the overlay, stop it once it has logged its error, and return that line."""
    stock.pair.start(node, stock.without)
    lines = wait_for(
        lambda: [line for line in stock.pair.log(node).splitlines() if reason in line],
        goal=f"the stock node {node} to fail with {reason}",
        timeout_s=60,
        interval_s=0.3,
    )
    assert "Kafka Server started" not in stock.pair.log(node)
    stock.pair.kill(node)
    return lines[0]


def test_on_and_off_again(stock: Stock, tmp_path: Path, found: dict[str, Any]) -> None:
    pair = stock.pair
    pair.format(stock.without)

    # The overlay on a cluster formatted by a stock Kafka changes nothing before the feature is upgraded.
    with pair.running(stock.with_overlay, clean_end=True):
        assert level(stock).level == 0
        with Admin(pair.bootstrap) as admin:
            admin.create_topic("gated", [[1, 2]], {"min.insync.replicas": "1"})
        settled(pair)
        rejection = try_to_set_racks(pair, "2")
        assert f"A value above 1 requires {RACKS_FEATURE} 1" in rejection
        assert f"upgrade --feature {ELR_FEATURE}=1 --feature {RACKS_FEATURE}=1" in rejection
        assert produce(pair, "before") == "ok"

        # a node without the overlay prevents the upgrade
        pair.restart(2, stock.without)
        rejected = set_level(stock, "upgrade", 1)
        found["upgrade with a stock broker"] = rejected.about(RACKS_FEATURE)
        assert rejected.status != 0
        assert "Broker 2 does not support this feature" in rejected.line
        pair.restart(2, stock.with_overlay)
        settled(pair)

        upgraded = set_level(stock, "upgrade", 1)
        assert upgraded.status == 0, upgraded.text
        wait_for(lambda: level(stock).level == 1, goal="the upgraded feature", timeout_s=60)
        assert try_to_set_racks(pair, "2") == "ok"
        wait_for(lambda: produce(pair, "rejected-1") == RACKS_REJECTED, goal="the gate", timeout_s=60)
        shown = high_watermark(pair.bootstrap, "gated")
        assert produce(pair, "hidden", acks="1") == "ok"
        assert high_watermark(pair.bootstrap, "gated") == shown, "what is in one rack is not shown"

        # a broker without the overlay cannot register
        pair.stop(2)
        line = a_stock_node_fails(stock, 2, "returned error UNSUPPORTED_VERSION")
        found["stock broker at level 1"] = line
        pair.start(2, stock.with_overlay)
        wait_for(lambda: pair.serves(2), goal="the broker with the overlay", timeout_s=90)
        settled(pair)

        # while a topic requires racks, a downgrade is rejected with the topic's name
        rejected = set_level(stock, "downgrade", 0)
        found["downgrade while R=2"] = rejected.about(RACKS)
        assert rejected.status != 0
        assert f"{RACKS_FEATURE} cannot be downgraded to 0 because {RACKS} is above 1 for topic gated" in rejected.line
        assert level(stock).level == 1

    # a controller without the overlay fails at the feature level record
    line = a_stock_node_fails(stock, 1, "Tried to apply FeatureLevelRecord")
    found["stock controller at level 1"] = line
    assert RACKS_FEATURE in line

    with pair.running(stock.with_overlay, clean_end=True):
        settled(pair)
        assert produce(pair, "rejected-2") == RACKS_REJECTED
        assert try_to_set_racks(pair, "1") == "ok"
        downgraded = set_level(stock, "downgrade", 0)
        assert downgraded.status == 0, downgraded.text
        wait_for(lambda: level(stock).level == 0, goal="the downgraded feature", timeout_s=60)
        assert produce(pair, "at-0") == "ok"

    # The record of level 1 is still in the metadata log. A stock controller replays it until a snapshot has the later
    # level. By default a controller writes a snapshot an hour after the last one.
    line = a_stock_node_fails(stock, 1, "Tried to apply FeatureLevelRecord")
    found["stock controller right after the downgrade"] = line
    pair.set("metadata.log.max.snapshot.interval.ms", "500")
    with pair.running(stock.with_overlay, clean_end=True):
        behind = level(stock)
        assert behind.level == 0
        wait_for(
            lambda: all(max(snapshot_offsets(pair, node), default=0) > behind.epoch for node in (1, 2)),
            goal="a snapshot behind the downgrade on both nodes",
            timeout_s=60,
        )

    # without the overlay
    with pair.running(stock.without, clean_end=True):
        settled(pair)
        assert produce(pair, "stock") == "ok", "a stock broker asks for no racks"
        # the first attempts may have been acknowledged before the gate took effect
        assert [key for key in keys(pair, tmp_path, "stock") if key != "rejected-1"] == [
            "before",
            "hidden",
            "at-0",
            "stock",
        ]
        # the topic's value is 1, which a stock node ignores and logs once
        assert RACKS not in topic_config(stock)
        found["stock: lines at ERROR"] = lines_at(pair, "ERROR")
        assert not lines_at(pair, "ERROR")

    # with the overlay again
    with pair.running(stock.with_overlay):
        settled(pair)
        assert level(stock).level == 0
        assert "requires" in try_to_set_racks(pair, "2")
        assert set_level(stock, "upgrade", 1).status == 0
        wait_for(lambda: level(stock).level == 1, goal="the upgraded feature", timeout_s=60)
        assert try_to_set_racks(pair, "2") == "ok"
        wait_for(lambda: produce(pair, "rejected-3") == RACKS_REJECTED, goal="the gate, set again", timeout_s=60)
        assert [key for key in keys(pair, tmp_path, "end") if key != "rejected-1"][:4] == [
            "before",
            "hidden",
            "at-0",
            "stock",
        ]


def test_the_class_path_is_in_the_order_of_kafkas_start_script(stock: Stock) -> None:
    entries = stock.with_overlay.split(":")
    assert entries[0].endswith("/overlay/*")
    assert all(Path(entry).is_relative_to(stock.kafka / "libs") for entry in entries[1:])
    assert len(entries) == 1 + len(list((stock.kafka / "libs").iterdir()))
    stock.pair.format(stock.without)
    arguments = ["java", "-verbose:class", "-cp", stock.with_overlay, "kafka.tools.StorageTool", "info"]
    output = run([*arguments, "-c", str(stock.pair.file(2))], task="look at a disk")
    loaded = [line for line in output.splitlines() if "source: file:" in line]
    from_overlay = {line.split("source: file:")[1].strip() for line in loaded if "rackgate" in line}
    assert any(jar.endswith("core-rackgate.jar") for jar in from_overlay), loaded[-5:]
    assert any(f"kafka_2.13-{paths.kafka_version()}.jar" in line for line in loaded), (
        "what is not patched comes from the stock jars"
    )


def test_an_archive_of_stock_classes_does_not_hide_the_overlay() -> None:
    """The container image of Apache Kafka starts with such an archive."""
    built = Distribution.load()
    (archived,) = shared_classes(built.classpath(overlay=False))
    arguments = ["java", archived, "-verbose:class", "-cp", built.classpath(), "kafka.tools.StorageTool", "random-uuid"]
    output = run(arguments, task="start a tool")
    assert "Unable to use shared archive" in output
    assert "shared objects file (top)" not in output
    assert "-rackgate.jar" in output
    (tool,) = [line for line in output.splitlines() if "] kafka.tools.StorageTool source:" in line]
    assert "source: file:" in tool
