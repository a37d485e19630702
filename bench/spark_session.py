"""Spark session of a run, without name lookups, and with all of its files below one folder.

It listens on loopback only, unless its master is on another host.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pyhooks.core import paths
from pyhooks.core.spark import start_session

SHUFFLE_PARTITIONS = 4
CONNECT_S = 120
# Spark must not repeat a load by itself, because its records would be sent twice.
NO_RETRIES = {"spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1", "spark.speculation": "false"}
# A barrier stage waits for enough executors, such as the replacement of a lost one. Spark's default of 15 s between the
# checks would delay a block. The number of checks ends the wait before the time limit of a load
# (``bench.load.load_jobs.READY_S``), so that no job starts after it.
BARRIER_CHECKS = {
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "90",
}


@contextmanager
def spark_session(
    work: Path,
    *,
    master: str,
    jars: Sequence[Path] = (),
    python: str = sys.executable,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end of the block."""
    work.mkdir(parents=True, exist_ok=True)
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = python, sys.executable
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(paths.REPO), *([known] if known else [])])
    settings = {
        **NO_RETRIES,
        **BARRIER_CHECKS,
        **(conf or {}),
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # otherwise a damaged page would be read as other observations
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # Spark and Python connect to each other for every result; the default of 15 s was too short on a busy machine.
        "spark.python.authenticate.socketTimeout": f"{CONNECT_S}s",
        "spark.jars": ",".join(str(jar) for jar in jars),
    }
    spark = start_session(work, master=master, name="rackgate-bench", settings=settings)
    # PySpark's own handler calls the JVM from within the interrupted call, and that fails.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield spark
    except KeyboardInterrupt:
        raise  # the JVM ends with this process; stopping it first would only delay the exit
    except BaseException:
        spark.stop()
        raise
    spark.stop()
