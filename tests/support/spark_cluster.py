"""Standalone Spark cluster on loopback, for tests of sessions and jobs on a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pyspark

from pyhooks.core import spark
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for

# C1 only: C2 does not pay off in sessions this short.
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
SHORT_SESSION = {
    "spark.driver.defaultJavaOptions": FIRST_COMPILER,
    "spark.executor.defaultJavaOptions": FIRST_COMPILER,
}
_READY_S = 300.0
_MASTER = re.compile(r"Starting Spark master at (spark://\S+:\d+)\s")
_READY = "Successfully registered with master"


@contextmanager
def standalone(workers: int = 2, settings: Mapping[str, str] | None = None, *, cores: int = 1) -> Iterator[str]:
    """Run a Spark master and workers on loopback during the block; yield the master's URL.

    During the block, ``SPARK_CONF_DIR`` of this process is a folder with their secret, for its own and its children's
    sessions.

    Args:
        workers: number of workers.
        settings: additional settings of master, workers and sessions.
        cores: number of cores that each worker offers.
    """
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    host = spark.HOST
    with tempfile.TemporaryDirectory(prefix="rackgate-spark-") as folder, ExitStack() as stack:
        work = Path(folder)
        spark.write_defaults_file(work, settings or {})
        stack.enter_context(spark.environment({spark.CONF_DIR: folder}))
        logging = work / "log4j2.properties"
        logging.write_text(
            "status = error\nappender.out.type = Console\nappender.out.name = out\nappender.out.target = SYSTEM_OUT\n"
            "appender.out.layout.type = PatternLayout\nappender.out.layout.pattern = %m%n\n"
            "rootLogger.level = info\nrootLogger.appenderRef.out.ref = out\n",
            encoding="utf-8",
        )
        env = {
            **os.environ,
            "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={logging} {FIRST_COMPILER}",
            "SPARK_DAEMON_MEMORY": "512m",
            spark.LOCAL_IP: host,
        }
        env["PYSPARK_PYTHON"] = sys.executable
        # workers must get their code from the driver only
        env.pop("PYTHONPATH", None)

        def start(name: str, *arguments: str) -> Path:
            log = work / f"{name}.log"
            out = stack.enter_context(log.open("w", encoding="utf-8"))
            argv = [*DIES_WITH_PARENT, str(program), *arguments]
            child = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=work)
            stack.callback(_end, child)
            return log

        # the master chooses its port, since a port found free here may be taken by then
        log = start("master", "org.apache.spark.deploy.master.Master", *_at(host), "--webui-port", "0")
        url = wait_for(partial(_url, log), goal="Spark's master", timeout_s=_READY_S)
        logs = [
            start(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *_at(host), "--webui-port", "0",
                "--cores", str(cores), "--memory", f"{2 * cores}g", "--work-dir", str(work / f"work-{number}"), url,
            )
            for number in range(workers)
        ]  # fmt: skip
        for log in logs:
            wait_for(partial(_registered, log), goal=f"a worker of Spark ({log.stem})", timeout_s=_READY_S)
        yield url


def executor_processes(folder: Path) -> list[int]:
    """Return the process ids of the executors whose work folders are below ``folder``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_executor = b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes()
            if is_executor and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
    return sorted(found)


def _registered(log: Path) -> bool:
    return _READY in log.read_text(encoding="utf-8")


def _url(log: Path) -> str:
    """Return the URL in a master's log; empty if it has not started yet."""
    found = _MASTER.search(log.read_text(encoding="utf-8"))
    return found[1] if found else ""


def _at(host: str) -> tuple[str, ...]:
    return "--host", host, "--port", "0"


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(timeout=20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
