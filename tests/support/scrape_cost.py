"""Program for a lab of one node with the exporter: what a scrape costs when the node leads few and many partitions.

usage: scrape_cost.py CONFIGURATION PARTITIONS FOLDER; writes FOLDER/cost.json. The last measurement exports the gauges
of single partitions too, which the shipped rules do not: the exporter reads CONFIGURATION again when it changes.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from pyhooks.core.files import write_json
from pyhooks.core.wait import wait_for
from pyhooks.kafka import bulk_topics
from pyhooks.kafka.bulk_topics import BulkTopic
from pyhooks.lab.lab import Lab
from pyhooks.lab.topology import Node
from pyhooks.monitoring.export import PORT
from pyhooks.monitoring.exported_metrics import exporter_configuration
from pyhooks.monitoring.yaml_text import yaml_text

TOPIC_PARTITIONS = 100
SCRAPES = 20
IDLE_S = 20.0
CREATE_S = 480.0
PARTITION_GAUGES = ("UnderMinRackIsr", "AtMinRackIsr", "IsrRackCount")


def scrape(node: Node) -> tuple[str, float]:
    """Return the exporter's response and its time in seconds."""
    begin = time.monotonic()
    with urllib.request.urlopen(f"http://{node.ip}:{PORT}/metrics", timeout=120) as response:
        text = response.read().decode()
    return text, time.monotonic() - begin


def value(text: str, name: str) -> float:
    """Return the value of a metric without labels."""
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def measure(node: Node, label: str) -> dict[str, Any]:
    """Scrape a node repeatedly; CPU time is that beyond an idle period of the node before."""
    cpu = "process_cpu_seconds_total"
    scrape(node)
    begin, begin_s = value(scrape(node)[0], cpu), time.monotonic()
    time.sleep(IDLE_S)
    idle = (value(scrape(node)[0], cpu) - begin) / (time.monotonic() - begin_s)
    begin, begin_s = value(scrape(node)[0], cpu), time.monotonic()
    found = [scrape(node) for _ in range(SCRAPES)]
    text = found[-1][0]
    busy = value(text, cpu) - begin - idle * (time.monotonic() - begin_s)
    series = [line for line in text.splitlines() if line and not line.startswith("#")]
    times = sorted(took for _, took in found)
    return {
        "label": label,
        "node": node.name,
        "series": len(series),
        "kafka_series": sum(line.startswith("kafka_") for line in series),
        "bytes": len(text),
        "median_s": round(times[SCRAPES // 2], 4),
        "most_s": round(times[-1], 4),
        "cpu_s_each": round(max(0.0, busy) / SCRAPES, 4),
        "idle_cpu": round(idle, 3),
        "partitions_led": value(text, "kafka_server_replicamanager_leadercount"),
    }


def with_partitions() -> dict[str, Any]:
    """Return the configuration with the gauges of single partitions."""
    found = exporter_configuration()
    for name in PARTITION_GAUGES:
        found["includeObjectNames"].append(f"kafka.cluster:type=Partition,name={name},*")
        found["rules"].append(
            {
                "pattern": rf"^kafka\.cluster<type=Partition, name={name}, topic=(.+), partition=(.+)><>Value",
                "name": f"kafka_cluster_partition_{name.lower()}",
                "type": "GAUGE",
                "labels": {"topic": "$1", "partition": "$2"},
                "cache": True,
            }
        )
    return found


def main(configuration: Path, partitions: int, folder: Path) -> None:
    """Measure a broker before and after the partitions are created."""
    lab = Lab.attach()
    (broker,) = lab.topology.brokers
    results = [
        measure(broker, "no partitions"),
    ]
    topics = [
        BulkTopic(
            f"many-{number}",
            bulk_topics.rotating(TOPIC_PARTITIONS, [(broker.node_id,)]),
            {},
        )
        for number in range(partitions // TOPIC_PARTITIONS)
    ]
    begin = time.monotonic()
    bulk_topics.create(lab.admin, topics, CREATE_S)
    print(f"{partitions} partitions after {time.monotonic() - begin:.0f} s", flush=True)  # noqa: T201
    results.append(measure(broker, f"{partitions} partitions"))
    write_json(folder / "cost.json", results)
    configuration.write_text(yaml_text(with_partitions()), encoding="utf-8")
    wait_for(lambda: "isrrackcount" in scrape(broker)[0], goal="the new configuration", timeout_s=60, interval_s=1)
    results.append(measure(broker, f"{partitions} partitions, and gauges of each"))
    configuration.write_text(yaml_text(exporter_configuration()), encoding="utf-8")
    write_json(folder / "cost.json", results)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
