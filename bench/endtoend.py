"""Acked records against what the topics hold: a Spark job over the raw observations and Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = 5
# Each kind of defect, and how it is told.
KIND_WORDS = {
    "lost": "lost",
    "duplicated": "duplicated",
    "invented": "invented",
    "out_of_order": "out of order",
    "moved": "at another offset than acknowledged",
}
KINDS = tuple(KIND_WORDS)


def read_back(
    spark: SparkSession, bootstrap: str, topics: list[str], options: Mapping[str, str] | None = None
) -> DataFrame:
    """Everything that the topics hold now, through Spark's Kafka source.

    Args:
        spark: the session.
        bootstrap: brokers.
        topics: names.
        options: further ones of the source, such as those of security.

    Returns:
        Columns topic, partition, offset, key (text).
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


def check(raw: DataFrame, log: DataFrame, run_id: str) -> dict[str, Any]:
    """Compares what was acknowledged with what is there.

    Args:
        raw: raw observations of all phases.
        log: of ``read_back``.
        run_id: of the records to look at; records of others (the probe's), and of loads that are not in ``raw`` (they
            were given up and sent anew), are only counted.

    Returns:
        Counts and examples of each of ``KINDS``, per topic too. *lost*: acked, not there. *duplicated*: there more
        than once. *invented*: there, never sent. *out_of_order*: behind a record that its client sent later.
        *moved*: acked at an offset that holds another record.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

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
    there = F.col("copies").isNotNull()
    place = F.struct(F.col("acked_partition").alias("partition"), F.col("acked_offset").alias("offset"))
    judged = (
        sent.join(copies, ["topic", "key"], "full")
        .withColumns(
            {
                "acked": acked,
                "lost": acked & ~there,
                "duplicated": there & (F.col("copies") > 1),
                "invented": F.col("outcome").isNull(),
                "moved": acked & there & ~F.coalesce(F.array_contains("places", place), F.lit(False)),
                "not_acked_but_there": ~acked & there & F.col("outcome").isNotNull(),
            }
        )
        .cache()
    )
    disordered = _out_of_order(ours.join(sent.select("topic", "key", "task"), ["topic", "key"], "left"))
    topics = _per_topic(judged, disordered, log, ours)
    found = {kind: judged.where(kind) for kind in KINDS if kind != "out_of_order"} | {"out_of_order": disordered}
    result = {
        "run_id": run_id,
        "kinds": {kind: _kind(found[kind], sum(row[kind] for row in topics)) for kind in KINDS},
        "topics": topics,
        "acked": sum(row["acked"] for row in topics),
        "read": sum(row["read"] for row in topics),
    }
    ours.unpersist()
    judged.unpersist()
    return result


def _out_of_order(ours: DataFrame) -> DataFrame:
    """Records behind one that the same client sent later; each task has a client of its own for each arm."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

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
    """Per topic: records acked, read back and of others, and the counts of each kind of defect."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    flags = ("acked", "lost", "duplicated", "invented", "moved", "not_acked_but_there")
    sums = judged.groupBy("topic").agg(*[F.count_if(F.col(flag)).alias(flag) for flag in flags])
    counted = {row["topic"]: row.asDict() for row in sums.collect()}
    numbers = [
        {row["topic"]: row["n"] for row in frame.groupBy("topic").agg(F.count("*").alias("n")).collect()}
        for frame in (ours, log, disordered)
    ]
    read, everything, wrong = numbers
    return [
        counted[topic]
        | {
            "read": read.get(topic, 0),
            "of_others": everything.get(topic, 0) - read.get(topic, 0),
            "out_of_order": wrong.get(topic, 0),
        }
        for topic in sorted(counted)
    ]


def together(found: Sequence[Mapping[str, Any]], run_id: str) -> dict[str, Any]:
    """Several checks of one run, each of other topics or of another time, as one; counts add up."""
    topics: dict[str, dict[str, Any]] = {}
    for one in found:
        for row in one["topics"]:
            own = topics.setdefault(row["topic"], {"topic": row["topic"]})
            for name, value in row.items():
                if name != "topic":
                    own[name] = own.get(name, 0) + value
    return {
        "run_id": run_id,
        "kinds": {
            kind: {
                "count": sum(one["kinds"][kind]["count"] for one in found),
                "examples": [text for one in found for text in one["kinds"][kind]["examples"]][:EXAMPLES],
            }
            for kind in KINDS
        },
        "topics": [topics[name] for name in sorted(topics)],
        "acked": sum(one["acked"] for one in found),
        "read": sum(one["read"] for one in found),
    }
