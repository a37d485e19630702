"""The packed overlay in front of a stock Kafka laid out as its release: put on, taken away, put on again, same data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from loopback import Pair, lay_out_release, run_class_classpath

from pyhooks import paths
from pyhooks.build.archive import make_archive
from pyhooks.build.distribution import Distribution
from pyhooks.history import History
from pyhooks.jvm.client import Acknowledged, Admin, Producer
from pyhooks.jvm.failure import JavaError
from pyhooks.process import run
from pyhooks.wait import wait_for
from pyhooks.workload.reader import high_watermark, read_all

pytestmark = [pytest.mark.build, pytest.mark.timeout(420)]
RACKS = "min.insync.racks"
RACKS_REFUSED = "org.apache.kafka.common.errors.NotEnoughRacksException"
ONE_ATTEMPT = {"acks": "all", "retries": "0", "enable.idempotence": "false"}
FOUND = paths.OUT / "overlay-on-stock" / "found.json"


@dataclass(frozen=True)
class Stock:
    """A stock Kafka, the unpacked overlay, and a pair of brokers that can be started with and without it."""

    kafka: Path
    unpacked: Path
    pair: Pair

    @property
    def with_overlay(self) -> str:
        # what a person writes: export CLASSPATH="<folder>/overlay/*"
        return run_class_classpath(self.kafka, f"{self.unpacked}/overlay/*")

    @property
    def without(self) -> str:
        return run_class_classpath(self.kafka)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    distribution = Distribution.load()
    packed = make_archive(distribution, tmp_path)
    (tmp_path / "opt").mkdir()
    run(["tar", "--extract", "--file", packed.path], what="unpack the archive", cwd=tmp_path / "opt")
    (unpacked,) = (tmp_path / "opt").iterdir()
    run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], what="verify the overlay", cwd=unpacked)
    kafka = lay_out_release(
        distribution.root / "libs", tmp_path / f"kafka_2.13-{distribution.manifest['kafka_version']}"
    )
    assert not list((kafka / "libs").glob("*rackgate*"))
    # in a static configuration too, where a stock Kafka knows it as little
    return Stock(kafka, unpacked, Pair(tmp_path, extra={RACKS: "1"}))


@pytest.fixture
def found() -> Iterator[dict[str, Any]]:
    """What was seen, kept for a person to read."""
    seen: dict[str, Any] = {}
    yield seen
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    FOUND.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def produce(pair: Pair, key: str, acks: str = "all") -> str:
    """Produces a record; returns ``ok`` or the class of the exception."""
    answers: list[Acknowledged | JavaError] = []
    with Producer(pair.bootstrap, {**ONE_ATTEMPT, "acks": acks}) as producer:
        producer.send("gated", key, "value", answers.append)
    (answer,) = answers
    return answer.java_class if isinstance(answer, JavaError) else "ok"


def settled(pair: Pair) -> None:
    """Waits until both replicas are in sync; a producer could meet a partition that has no leader yet before."""
    with Admin(pair.bootstrap) as admin:
        wait_for(lambda: admin.in_sync("gated", (1, 2)), what="both replicas in sync", timeout_s=60)


def keys(pair: Pair, tmp_path: Path, name: str) -> list[str]:
    history = History(tmp_path / f"{name}.jsonl")
    read_all(pair.bootstrap, ["gated"], history)
    (event,) = history.events()
    return list(event.data["keys"])


def topic_config(stock: Stock) -> str:
    """What a stock tool prints of the topic's own configuration."""
    words = ["java", "-cp", stock.without, "kafka.admin.ConfigCommand"]
    words += ["--bootstrap-server", stock.pair.bootstrap, "--describe", "--entity-type", "topics"]
    return run([*words, "--entity-name", "gated"], what="describe the topic")


def snapshots(pair: Pair, node: int) -> set[str]:
    return {path.name for path in (pair.data(node) / "__cluster_metadata-0").glob("*.checkpoint")}


def lines_about(pair: Pair, node: int, text: str) -> list[str]:
    return [line for line in pair.log(node).splitlines() if text in line]


def lines_at(pair: Pair, level: str) -> list[str]:
    return [line for node in (1, 2) for line in pair.log(node).splitlines() if f"] {level} " in line]


def test_on_off_on(stock: Stock, tmp_path: Path, found: dict[str, Any]) -> None:
    pair = stock.pair
    pair.format(stock.with_overlay)

    with pair.running(stock.with_overlay):
        with Admin(pair.bootstrap) as admin:
            admin.create_topic("gated", [[1, 2]], {"min.insync.replicas": "1", RACKS: "2"})
        settled(pair)
        assert produce(pair, "refused-1") == RACKS_REFUSED
        assert produce(pair, "hidden", acks="1") == "ok"
        assert high_watermark(pair.bootstrap, "gated") == 0, "what is in one rack is not shown"
        assert RACKS in topic_config(stock)

    with pair.running(stock.without):
        settled(pair)
        assert produce(pair, "stock") == "ok", "a stock broker asks for no racks"
        assert keys(pair, tmp_path, "stock") == ["hidden", "stock"]
        assert RACKS not in topic_config(stock), "a stock broker drops the config that it does not know"
        # notes 4.13: the controller tells of it in one line, a node that is a broker alone drops it without a word,
        # and neither minds the name in its static configuration
        about = {node: lines_about(pair, node, RACKS) for node in (1, 2)}
        found["stock: lines about min.insync.racks, by node"] = about
        found["stock: lines at ERROR"] = lines_at(pair, "ERROR")
        (line,) = about[1]
        assert f"INFO [QuorumController id=1] Skipping unsupported config {RACKS} for resource" in line
        assert "name='gated'" in line
        assert about[2] == []
        assert not lines_at(pair, "ERROR")

    with pair.running(stock.with_overlay):
        settled(pair)
        assert produce(pair, "refused-2") == RACKS_REFUSED, "the record of the config is still in the metadata log"
        assert keys(pair, tmp_path, "overlay") == ["hidden", "stock"]
        assert f"{RACKS}=2" in topic_config(stock)

    # a snapshot that a stock node writes has what it knows: the topic's config is gone for good
    before = [snapshots(pair, node) for node in (1, 2)]
    pair.set("metadata.log.max.snapshot.interval.ms", "500")
    with pair.running(stock.without):
        settled(pair)
        wait_for(
            lambda: all(snapshots(pair, node) - old for node, old in zip((1, 2), before, strict=True)),
            what="a snapshot on both nodes",
            timeout_s=60,
        )
        assert produce(pair, "stock-2") == "ok"

    pair.set("metadata.log.max.snapshot.interval.ms", "3600000")
    with pair.running(stock.with_overlay):
        settled(pair)
        found["overlay after a stock snapshot: the topic's config"] = topic_config(stock)
        assert RACKS not in topic_config(stock).replace(f"{RACKS}=1", ""), "dropped by the stock snapshot"
        assert produce(pair, "unprotected") == "ok", "and nobody refuses what stands in one rack"
        with Admin(pair.bootstrap) as admin:
            admin.set_topic_config("gated", RACKS, "2")
        wait_for(lambda: produce(pair, "refused-3") == RACKS_REFUSED, what="the gate, set again", timeout_s=10)
        assert keys(pair, tmp_path, "end")[:4] == ["hidden", "stock", "stock-2", "unprotected"]


def test_the_class_path_is_in_the_order_of_kafkas_start_script(stock: Stock) -> None:
    entries = stock.with_overlay.split(":")
    assert entries[0].endswith("/overlay/*")
    assert all(Path(entry).is_relative_to(stock.kafka / "libs") for entry in entries[1:])
    assert len(entries) == 1 + len(list((stock.kafka / "libs").iterdir()))
    stock.pair.format(stock.without)
    words = ["java", "-verbose:class", "-cp", stock.with_overlay, "kafka.tools.StorageTool", "info"]
    said = run([*words, "-c", str(stock.pair.file(2))], what="look at a disk")
    loaded = [line for line in said.splitlines() if "source: file:" in line]
    from_overlay = {line.split("source: file:")[1].strip() for line in loaded if "rackgate" in line}
    assert any(jar.endswith("core-rackgate.jar") for jar in from_overlay), loaded[-5:]
    assert any("kafka_2.13-4.3.1.jar" in line for line in loaded), "what is not patched comes from the stock jars"
