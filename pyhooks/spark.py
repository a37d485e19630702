"""What all Spark sessions of the project have in common: quiet, small, everything they write below one folder."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyhooks import paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_HEAP_MB = 1024
# of the driver; for a master on this machine, which nobody else is to reach
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_LOCAL = re.compile(r"local(\[(?P<cores>\d+)\])?")


def near(master: str) -> bool:
    """Whether a master and its executors are on this machine alone, so that loopback is enough."""
    return master.startswith(("local", "spark://127.0.0.1:"))


def slots(master: str) -> int | None:
    """How many tasks a master runs at a time, if its name says so, as ``local[2]`` does."""
    found = _LOCAL.fullmatch(master)
    return int(found["cores"] or 1) if found else None


def pack(folder: Path, packages: Sequence[str]) -> Path:
    """The code of packages of this project, as one file that executors can be given with ``addPyFile``."""
    file = folder / "rackgate-code.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in packages:
            for source in sorted((paths.REPO / package).rglob("*.py")):
                packed.write(source, str(source.relative_to(paths.REPO)))
    return file


def session_builder(work: Path, *, master: str, name: str) -> SparkSession.Builder:
    """A builder with what is the same for all.

    Args:
        work: folder that exists, for Spark's scratch files, warehouse and log.
        master: such as ``local[2]``.
        name: of the application.
    """
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", f"{DRIVER_HEAP_MB}m")
        .config("spark.local.dir", str(work / "spark-local"))
        .config("spark.sql.warehouse.dir", str(work / "spark-warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_logging(work)} -XX:+UseSerialGC")
    )


def _logging(work: Path) -> Path:
    """Writes Spark's logging configuration: warnings to ``spark.log``, nothing to the terminal.

    Spark's errors reach Python as exceptions.
    """
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
