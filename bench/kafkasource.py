"""The jars of Spark's Kafka source, with a stand-in for the one that not every registry holds.

``spark-sql-kafka-0-10`` asks ``spark-token-provider-kafka-0-10`` for delegation tokens before it opens a consumer.
Where that jar is not to be had, the three classes below ``bench/java`` answer "there are none", which is right for
every cluster without delegation tokens.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyhooks import paths
from pyhooks.process import run

SOURCES = Path(__file__).parent / "java"
REAL = "spark-token-provider-kafka"
JAVA_RELEASE = "17"


def source_jars(spark_jars: Sequence[Path]) -> tuple[Path, ...]:
    """What Spark needs on its classpath to read topics.

    Args:
        spark_jars: the connector and what it depends on, from the distribution.

    Raises:
        RackgateError: the stand-in is needed and does not compile.
    """
    if any(jar.name.startswith(REAL) for jar in spark_jars):
        return tuple(spark_jars)
    return (*spark_jars, stand_in(paths.BUILD / "bench"))


def stand_in(folder: Path) -> Path:
    """The jar of the stand-in, compiled if its sources changed since it last was.

    Raises:
        RackgateError: it does not compile.
    """
    import pyspark

    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()
    jar = folder / f"kafka-source-{pyspark.__version__}-{digest[:12]}.jar"
    if jar.exists():
        return jar
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder))
    try:
        classpath = str(Path(pyspark.__file__).parent / "jars" / "*")
        options: list[str | Path] = [
            "-proc:none",
            "--release",
            JAVA_RELEASE,
            "-cp",
            classpath,
            "-d",
            scratch / "classes",
        ]
        run(["javac", *options, *sources], what="compile the stand-in for Spark's token provider")
        run(["jar", "--create", "--file", scratch / jar.name, "-C", scratch / "classes", "."], what=f"make {jar.name}")
        # Renamed last, so that a half-made jar is never taken for a good one.
        (scratch / jar.name).replace(jar)
    finally:
        shutil.rmtree(scratch)
    return jar
