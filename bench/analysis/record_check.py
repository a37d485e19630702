"""End-to-end check: a Spark job that compares acknowledged records with the contents of the topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

EXAMPLES = 5
# Kinds of defects and their display names.
KIND_LABELS = {
    "lost": "lost",
    "duplicated": "duplicated",
    "invented": "invented",
    "out_of_order": "out of order",
    "moved": "at another offset than acknowledged",
}
KINDS = tuple(KIND_LABELS)


def read_back(
    spark: SparkSession, bootstrap: str, topics: list[str], options: Mapping[str, str] | None = None
) -> DataFrame:
    """Read everything that the topics contain now (topic, partition, offset, key) through Spark's Kafka source.

    ``options`` are further options of the source, such as security settings.
    """
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .options(**(options or {}))
        .load()
        .selectExpr("topic", "partition", "offset", "cast(key as string) as key")
    )


def check_records(raw: DataFrame, log: DataFrame, run_id: str) -> dict[str, Any]:
    """Compare the acknowledged records of a run with the contents of the topics.

    ``raw`` has the observations of all phases, ``log`` is of ``read_back``. Records of others, such as the probe, and
    of abandoned loads, which are not in ``raw``, are only counted.

    Returns:
        Counts and examples of each of ``KINDS``, and counts per topic. *lost*: acknowledged, but not in the topic.
        *duplicated*: more than once in the topic. *invented*: in the topic, but never sent. *out_of_order*: after a
        record that its client sent later. *moved*: acknowledged with an offset at which the topic has another record.
    """
    sent = raw.select(
        "topic",
        F.concat_ws("/", "run_id", "load", "arm", "seq").alias("key"),
        "task",
        F.col("outcome"),
        F.col("partition").alias("acked_partition"),
        F.col("offset").alias("acked_offset"),
    )
    loads = F.broadcast(raw.select("load").distinct())
    named = log.where(F.col("key").startswith(f"{run_id}/")).withColumn("load", F.split("key", "/")[1])
    ours = named.join(loads, "load", "left_semi").select(*log.columns).cache()
    copies = ours.groupBy("topic", "key").agg(
        F.count("*").alias("copies"), F.collect_set(F.struct("partition", "offset")).alias("places")
    )
    acked = F.coalesce(F.col("outcome") == "acked", F.lit(False))
    is_read = F.col("copies").isNotNull()
    place = F.struct(F.col("acked_partition").alias("partition"), F.col("acked_offset").alias("offset"))
    judged = (
        sent.join(copies, ["topic", "key"], "full")
        .withColumns(
            {
                "acked": acked,
                "lost": acked & ~is_read,
                "duplicated": is_read & (F.col("copies") > 1),
                "invented": F.col("outcome").isNull(),
                "moved": acked
                & is_read
                # an acknowledgement may have no offset
                & (F.col("acked_offset") >= 0)
                & ~F.coalesce(F.array_contains("places", place), F.lit(False)),
                "not_acked_but_there": ~acked & is_read & F.col("outcome").isNotNull(),
            }
        )
        .cache()
    )
    disordered = _out_of_order(ours.join(sent.select("topic", "key", "task"), ["topic", "key"], "left"))
    topics = _per_topic(judged, disordered, log, ours)
    of_kind = {kind: judged.where(kind) for kind in KINDS if kind != "out_of_order"} | {"out_of_order": disordered}
    result = {
        "run_id": run_id,
        "kinds": {kind: _kind(of_kind[kind], sum(row[kind] for row in topics)) for kind in KINDS},
        "topics": topics,
        "acked": sum(row["acked"] for row in topics),
        "read": sum(row["read"] for row in topics),
    }
    ours.unpersist()
    judged.unpersist()
    return result


def _out_of_order(ours: DataFrame) -> DataFrame:
    """Return records that come after one that the same client sent later; each task has one client per arm."""
    parts = F.split("key", "/")
    before = (
        Window.partitionBy("topic", "partition", "load", "arm", "task")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        ours.withColumns({"load": parts[1], "arm": parts[2], "seq": parts[3].cast("long")})
        .withColumn("highest", F.max("seq").over(before))
        .where("seq < highest")
    )


def _kind(rows: DataFrame, number: int) -> dict[str, Any]:
    examples = rows.select("topic", "key").orderBy("topic", "key").limit(EXAMPLES).collect() if number else []
    return {"count": number, "examples": [f"{row['topic']}: {row['key']}" for row in examples]}


def _per_topic(judged: DataFrame, disordered: DataFrame, log: DataFrame, ours: DataFrame) -> list[dict[str, Any]]:
    """Return per topic the counts of acknowledged, read and other records, and of each kind of defect."""
    flags = ("acked", "lost", "duplicated", "invented", "moved", "not_acked_but_there")
    sums = judged.groupBy("topic").agg(*[F.count_if(F.col(flag)).alias(flag) for flag in flags])
    counts = {row["topic"]: row.asDict() for row in sums.collect()}
    read, everything, out_of_order = (
        Counter({row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()})
        for frame in (ours, log, disordered)
    )
    return [
        counts[topic]
        | {
            "read": read[topic],
            "of_others": everything[topic] - read[topic],
            "out_of_order": out_of_order[topic],
        }
        for topic in sorted(counts)
    ]


def merge_checks(checks: Sequence[Mapping[str, Any]], run_id: str) -> dict[str, Any]:
    """Merge several checks of one run, of different topics or times; counts add up."""
    topics: dict[str, Counter[str]] = {}
    for check in checks:
        for row in check["topics"]:
            counts = {name: value for name, value in row.items() if name != "topic"}
            topics.setdefault(row["topic"], Counter()).update(counts)
    return {
        "run_id": run_id,
        "kinds": {
            kind: {
                "count": sum(check["kinds"][kind]["count"] for check in checks),
                "examples": [example for check in checks for example in check["kinds"][kind]["examples"]][:EXAMPLES],
            }
            for kind in KINDS
        },
        "topics": [{"topic": name, **topics[name]} for name in sorted(topics)],
        "acked": sum(check["acked"] for check in checks),
        "read": sum(check["read"] for check in checks),
    }
