"""The Spark session of a run: loopback only, nothing looked up, everything it writes below one folder."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyhooks import paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = 4
CONNECT_S = 120


@contextmanager
def spark_session(work: Path, *, master: str, jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """Starts Spark and stops it at the end.

    Args:
        work: folder for Spark's scratch files and warehouse.
        master: such as ``local[2]``.
        jars: further jars for driver and executors (the Kafka source).
    """
    from pyspark.sql import SparkSession

    work.mkdir(parents=True, exist_ok=True)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(paths.REPO), *([known] if known else [])])
    # Spark's errors reach Python as exceptions; what else it has to say goes to a file.
    builder = (
        SparkSession.builder.master(master)
        .appName("rackgate-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(work / "spark-local"))
        .config("spark.sql.warehouse.dir", str(work / "spark-warehouse"))
        .config("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.ui.showConsoleProgress", "false")
        # Spark and Python connect to each other for every result; on a busy machine 15 s, the default, were too few.
        .config("spark.python.authenticate.socketTimeout", f"{CONNECT_S}s")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_logging(work)} -XX:+UseSerialGC")
    )
    spark = builder.getOrCreate()
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


def _logging(work: Path) -> Path:
    """Writes Spark's logging configuration: warnings to ``spark.log``, nothing to the terminal."""
    lines = (
        "status = error",
        "appender.file.type = File",
        "appender.file.name = file",
        f"appender.file.fileName = {work / 'spark.log'}",
        "appender.file.layout.type = PatternLayout",
        "appender.file.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex",
        "rootLogger.level = warn",
        "rootLogger.appenderRef.file.ref = file",
    )
    file = work / "log4j2.properties"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
