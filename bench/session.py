"""The Spark session of a run: nothing looked up, everything it writes below one folder.

It listens on loopback only, unless its master is on another host.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyhooks.core import paths
from pyhooks.core.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = 4
CONNECT_S = 120


@contextmanager
def spark_session(
    work: Path,
    *,
    master: str,
    jars: Sequence[Path] = (),
    python: str = sys.executable,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Starts Spark and stops it at the end.

    Args:
        work: folder for Spark's scratch files and warehouse.
        master: such as ``local[2]``.
        jars: further jars for driver and executors (the Kafka source).
        python: that executors work with.
        conf: further settings of Spark.
    """
    work.mkdir(parents=True, exist_ok=True)
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = python, sys.executable
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(paths.REPO), *([known] if known else [])])
    settings = {
        **(conf or {}),
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # else a damaged page is read as other observations
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # Spark and Python connect to each other for every result; on a busy machine 15 s, the default, were too few.
        "spark.python.authenticate.socketTimeout": f"{CONNECT_S}s",
        "spark.jars": ",".join(str(jar) for jar in jars),
    }
    spark = start_session(work, master=master, name="rackgate-bench", settings=settings)
    # PySpark's own handler talks to the JVM from within whatever call was interrupted, and fails at that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield spark
    except KeyboardInterrupt:
        raise  # the JVM ends with this process; stopping it first would only keep the person waiting
    except BaseException:
        spark.stop()
        raise
    spark.stop()
