"""Acked records against what the topics hold: a Spark job over the raw observations and Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = 5
KINDS = ("lost", "duplicated", "invented", "out_of_order", "moved")


def read_back(spark: SparkSession, bootstrap: str, topics: list[str]) -> DataFrame:
    """Everything that the topics hold now, through Spark's Kafka source.

    Returns:
        Columns topic, partition, offset, key (text).
    """
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
        .selectExpr("topic", "partition", "offset", "cast(key as string) as key")
    )


def check(raw: DataFrame, log: DataFrame, run_id: str) -> dict[str, Any]:
    """Compares what was acknowledged with what is there.

    Args:
        raw: raw observations of all phases.
        log: of ``read_back``.
        run_id: of the records to look at; records of others (the probe's) are only counted.

    Returns:
        Counts and examples of each of ``KINDS``, per topic too. *lost*: acked, not there. *duplicated*: there more
        than once. *invented*: there, never sent. *out_of_order*: behind a record that its client sent later.
        *moved*: acked at an offset that holds another record.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    sent = raw.select(
        "topic",
        F.concat_ws("/", "run_id", "phase", "arm", "seq").alias("key"),
        F.col("outcome"),
        F.col("partition").alias("acked_partition"),
        F.col("offset").alias("acked_offset"),
    )
    ours = log.where(F.col("key").startswith(f"{run_id}/")).cache()
    copies = ours.groupBy("topic", "key").agg(
        F.count("*").alias("copies"), F.collect_set(F.struct("partition", "offset")).alias("places")
    )
    joined = sent.join(copies, ["topic", "key"], "full").cache()
    acked = F.col("outcome") == "acked"
    place = F.struct(F.col("acked_partition").alias("partition"), F.col("acked_offset").alias("offset"))
    found = {
        "lost": joined.where(acked & F.col("copies").isNull()),
        "duplicated": joined.where("copies > 1"),
        "invented": joined.where(F.col("outcome").isNull()),
        "out_of_order": _out_of_order(ours),
        "moved": joined.where(acked & F.col("copies").isNotNull() & ~F.array_contains("places", place)),
    }
    totals = _totals(joined, raw, log, ours)
    result = {
        "run_id": run_id,
        "kinds": {kind: _count(rows) for kind, rows in found.items()},
        "topics": totals,
        "acked": sum(row["acked"] for row in totals),
        "read": sum(row["read"] for row in totals),
    }
    ours.unpersist()
    joined.unpersist()
    return result


def _out_of_order(ours: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    parts = F.split("key", "/")
    before = (
        Window.partitionBy("topic", "partition", "phase", "arm")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        ours.withColumns({"phase": parts[1], "arm": parts[2], "seq": parts[3].cast("long")})
        .withColumn("highest", F.max("seq").over(before))
        .where("seq < highest")
    )


def _count(rows: DataFrame) -> dict[str, Any]:
    rows = rows.select("topic", "key")
    number = rows.count()
    examples = rows.orderBy("topic", "key").limit(EXAMPLES).collect() if number else []
    return {"count": number, "examples": [f"{row['topic']}: {row['key']}" for row in examples]}


def _totals(joined: DataFrame, raw: DataFrame, log: DataFrame, ours: DataFrame) -> list[dict[str, Any]]:
    """Per topic: records acked, read back, of others, and sent without an ack that are there all the same."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    mine = joined.groupBy("topic").agg(
        F.count_if(F.col("outcome") == "acked").alias("acked"),
        F.count_if((F.col("outcome") != "acked") & F.col("copies").isNotNull()).alias("not_acked_but_there"),
    )
    read = ours.groupBy("topic").agg(F.count("*").alias("read"))
    everything = log.groupBy("topic").agg(F.count("*").alias("all"))
    rows = (
        raw.select("topic")
        .distinct()
        .join(mine, "topic", "left")
        .join(read, "topic", "left")
        .join(everything, "topic", "left")
        .na.fill(0)
        .orderBy("topic")
        .collect()
    )
    return [
        {
            "topic": row["topic"],
            "acked": row["acked"],
            "read": row["read"],
            "not_acked_but_there": row["not_acked_but_there"],
            "of_others": row["all"] - row["read"],
        }
        for row in rows
    ]
