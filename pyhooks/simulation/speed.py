"""How fast the simulation is: one large cluster for many years, on cores of this process's Spark and on a cluster.

The cluster is a standalone master with two workers of one core each, all on this machine, which end with the
measurement. What is told beside the time on the wall is the CPU time of the simulation itself: on a machine that does
other things too, it is what can be compared.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyhooks.core import resource_usage, spark, targets
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.targets import Bar
from pyhooks.core.wait import wait_for
from pyhooks.placement.failure_rates import YEAR_S

if TYPE_CHECKING:
    from pyhooks.simulation.replication import Found

RACKS, PARTITIONS = "a:34,b:33,c:33", 10_000
# at least four failures of each broker and two outages of each rack in a year; the rest as by default
GIVEN = {"--broker-failure": "4x1h", "--rack-outage": "2x3.5h"}
SETTINGS = ("2,1", "2,2")
YEARS = 1000
WORKERS = 2
STANDALONE = "standalone"
# The bars for ``YEARS``: the time on two cores, and how many times as fast as on one core it is on two, and on two
# workers with their start. Two cores that are hyperthreads of one give 1.5.
MOST_S = 300.0
ONE, TWO = "local[1]", "local[2]"
LEAST_TIMES = {TWO: 1.4, STANDALONE: 1.05}
MASTERS = (ONE, *LEAST_TIMES)
_READY_S = 300.0
_MASTER = re.compile(r"Starting Spark master at (spark://\S+:\d+)\s")
_READY = "Successfully registered with master"

SPEED_EPILOG = (
    "Examples: rackgate model speed · rackgate model speed --years 100 --on local[2] --on standalone --json. The bar"
    " for 1,000 years on local[2] is 5 minutes; with local[1] beside it, local[2] must be 1.4 times as fast, and two"
    " workers 1.05 times, their start included. The command ends with 1 if one is missed, and with 2 if that can't be"
    " told, such as where others used the machine, or it has one core."
)
speed_app = typer.Typer()


@dataclass(frozen=True)
class Measure:
    """The same job in one place.

    Attributes:
        on: where.
        years: of the cluster.
        wall_s: from asking Spark for it to the last figure, Spark's start included.
        cpu_s: CPU time of the simulation itself.
        refused: a figure of the result, for people.
        digest: of all that replications gave, to the last bit, which is the same everywhere.
        others_cpus: CPUs that others had in use meanwhile.
    """

    on: str
    years: int
    wall_s: float
    cpu_s: float
    refused: float
    digest: str
    others_cpus: float = 0.0


def measure(on: str, years: int) -> Measure:
    """Runs the job.

    Args:
        on: a master of Spark's, or ``standalone`` for one that is started for it.
        years: how many.

    Raises:
        RackgateError: Spark does not start, or a task failed.
    """
    from pyhooks.simulation.cli import plan
    from pyhooks.simulation.spark_replications import simulate
    from pyhooks.simulation.summary import summarise

    job, _ = plan(RACKS, partitions=PARTITIONS, settings=list(SETTINGS), given=GIVEN)
    with ExitStack() as stack:
        master = stack.enter_context(standalone()) if on == STANDALONE else on
        with resource_usage.others() as others:
            done = simulate(job, round(years * YEAR_S / job.counts_s), master=master, tell=lambda _done, _of: None)
            refused = summarise(done.found, job)[0].refused.value
        return Measure(on, years, others.seconds, done.cpu_s, refused, digest(done.found), others.cpus)


def digest(found: Sequence[Found]) -> str:
    """SHA-256 of all outcomes of all replications under all settings, in whatever order they came."""
    import numpy as np

    sha = hashlib.sha256()
    for one in sorted(found, key=lambda each: (each.replication, each.setting)):
        # all of them, also those that are yet to be added
        for field in fields(one):
            value = np.asarray(getattr(one, field.name))
            sha.update(f"{field.name} {value.dtype.kind} {value.shape} ".encode())
            sha.update(value.astype(np.float64).tobytes())
    return sha.hexdigest()


def bars_of(measures: Sequence[Measure]) -> list[Bar]:
    """The bars for what was measured, of ``YEARS`` alone: the time on two cores, and whether more of them are faster.

    That takes a measurement on one core, and one on which nothing else was at work: what slows it down makes all others
    look faster.
    """
    whole = {one.on: one for one in measures if one.years == YEARS}
    found = []
    if (two := whole.get(TWO)) is not None:
        found.append(Bar(f"{two.years:,} cluster-years on {TWO}", MOST_S, "s", two.wall_s, two.others_cpus))
    if (one := whole.get(ONE)) is None:
        return found
    unjudged = ""
    if (cores := len(os.sched_getaffinity(0))) < WORKERS:
        unjudged = f"{cores} core is there, and {WORKERS} are needed"
    elif one.others_cpus > targets.MOST_OTHERS:
        unjudged = f"others had {one.others_cpus:.2f} CPUs in use beside {ONE}"
    for on, least in LEAST_TIMES.items():
        if (more := whole.get(on)) is not None:
            name, times = f"speed of {on} over that of {ONE}", one.wall_s / more.wall_s
            found.append(Bar(name, least, "times", times, more.others_cpus, at_least=True, unjudged=unjudged))
    return found


@contextmanager
def standalone(workers: int = WORKERS, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a standalone master of Spark with workers of one core each on loopback; they end with the block.

    Meanwhile ``SPARK_CONF_DIR`` of this process is a folder with their secret, for sessions of it and of its children.

    Args:
        workers: how many.
        settings: further ones of master, workers and sessions.

    Raises:
        RackgateError: they do not start.
    """
    import pyspark

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
            "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={logging}",
            "SPARK_DAEMON_MEMORY": "512m",
            spark.LOCAL_IP: host,
        }
        env["PYSPARK_PYTHON"] = sys.executable
        # code comes from the driver alone
        env.pop("PYTHONPATH", None)

        def start(name: str, *words: str) -> Path:
            log = work / f"{name}.log"
            out = stack.enter_context(log.open("w", encoding="utf-8"))
            argv = [*DIES_WITH_PARENT, str(program), *words]
            child = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=work)
            stack.callback(_end, child)
            return log

        # the master chooses its port: one that was found free may be taken by now
        log = start("master", "org.apache.spark.deploy.master.Master", *_at(host), "--webui-port", "0")
        url = wait_for(partial(_url, log), what="Spark's master", timeout_s=_READY_S)
        logs = [
            start(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *_at(host), "--webui-port", "0",
                "--cores", "1", "--memory", "2g", "--work-dir", str(work / f"work-{number}"), url,
            )
            for number in range(workers)
        ]  # fmt: skip
        for log in logs:
            wait_for(partial(_registered, log), what=f"a worker of Spark ({log.stem})", timeout_s=_READY_S)
        yield url


def _registered(log: Path) -> bool:
    return _READY in log.read_text(encoding="utf-8")


def _url(log: Path) -> str:
    """Return the address that a master reports; empty if it has not started."""
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


def told(measures: Sequence[Measure]) -> dict[str, Any]:
    """As JSON: ``job``, ``measures`` as in ``Measure``, and ``bars``."""
    job = {"racks": RACKS, "partitions": PARTITIONS, "given": GIVEN, "settings": list(SETTINGS)}
    bars = [bar.as_json() for bar in bars_of(measures)]
    return {"job": job, "measures": [asdict(one) for one in measures], "bars": bars}


def measured(on: Sequence[str], years: int, write: Callable[[str], None]) -> list[Measure]:
    """One after the other, with a line for each.

    Raises:
        RackgateError: figures differ, which they must not.
    """
    found: list[Measure] = []
    for number, one in enumerate(on):
        left = "" if not found else f", about {found[-1].wall_s * (len(on) - number) / 60:.0f} min to the end"
        write(f"{years} cluster-years on {one}{left}")
        found.append(measure(one, years))
        write(f"  {found[-1].wall_s:.0f} s, {found[-1].cpu_s:.0f} s of CPU in the simulation")
    if len({one.digest for one in found}) > 1:
        told = ", ".join(f"{one.on} {one.digest[:12]} (refused {one.refused})" for one in found)
        raise RackgateError(f"the same job gave different figures: {told}")
    return found


@speed_app.command("speed", epilog=SPEED_EPILOG)
def speed_command(
    years: Annotated[int, typer.Option(min=1, help="Cluster-years.")] = YEARS,
    on: Annotated[
        list[str] | None,
        typer.Option(
            help="Where: Spark's master, or standalone for one with two workers that is started here; can be repeated"
            " [default: local[1], local[2], standalone].",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures, for programs.")] = False,
) -> None:
    """Measures how long 1,000 years of 100 brokers and 10,000 partitions take: on a core, on two, on two workers."""
    import json

    found = measured(on or list(MASTERS), years, lambda line: typer.echo(line, err=as_json))
    held = bars_of(found)
    if as_json:
        typer.echo(json.dumps(told(found), indent=1))
    else:
        for bar in held:
            typer.echo(bar.text)
    raise typer.Exit(targets.status(held))
