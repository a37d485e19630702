"""Raw observations with a damaged Parquet page, read by Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from bench.analysis import latency_analysis
from bench.spark_session import spark_session
from observation_rows import TIMES, rows
from pyhooks.core import exit_status
from spark_cluster import SHORT_SESSION


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    path = raw / "carried.parquet"
    rows().to_parquet(path, compression=None, write_page_checksum=True)
    content = path.read_bytes()
    # inside the column data in any layout
    middle = len(content) // 4
    with spark_session(tmp_path / "spark", master="local[1]", conf=SHORT_SESSION) as spark:
        assert latency_analysis.read_raw(spark, raw).agg({"latency_us": "max"}).collect()[0][0] == 0
        path.write_bytes(content[:middle] + b"\xff" * 64 + content[middle + 64 :])
        spark.catalog.clearCache()
        with pytest.raises((PySparkException, Py4JJavaError)) as caught:
            latency_analysis.read_raw(spark, raw).select(*TIMES, "arm", "outcome").collect()
    assert "carried.parquet" in exit_status.describe(caught.value)
