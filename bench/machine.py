"""Description of the machine, and resource usage of the benchmark's processes during a run, from /proc."""

from __future__ import annotations

import itertools
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhooks.core.repeated_calls import calling_every
from pyhooks.core.resource_usage import PAGE_BYTES, PROC, TICKS_PER_S, busy_s
from pyhooks.lab import link_emulator

SAMPLE_S = 1.0
UNKNOWN = "unknown"
LINK_PROGRAM = link_emulator.SOURCE.stem
PYTHON_MODULES = {
    "pyspark.daemon": "Spark load tasks",
    "pyhooks.workload.producer": "probe",
    "bench.run.lab_run": "driver",
}


@dataclass(frozen=True)
class UsageSample:
    """Resource usage of the processes of one kind at one moment."""

    at_ns: int  # monotonic time
    kind: str  # a ``process_kind``, ``machine`` for all CPUs together, or ``unknown`` for processes that can't be read
    processes: int  # number of processes
    cpu_s: float | None  # CPU seconds used since each process started; None if unknown
    rss_mb: float | None  # resident memory, shared pages counted once per process; None if unknown


def process_kind(arguments: list[str], root: Path = Path("/")) -> str | None:
    """Return the kind of a process in the benchmark by its command line and its root folder; None for others."""
    # Only the first arguments: a program that starts or awaits another one has the other's arguments further behind.
    program, modules = Path(arguments[0]).name, arguments[1:3]
    if program == "java" and "kafka.Kafka" in arguments:
        properties = root / arguments[-1].lstrip("/")
        return "controllers" if "process.roles=controller" in properties.read_text(encoding="utf-8") else "brokers"
    if program == "java" and "org.apache.spark.deploy.SparkSubmit" in arguments:
        return "Spark JVM"
    if program == LINK_PROGRAM:
        return "link emulation"
    return PYTHON_MODULES.get(modules[-1]) if modules[:1] == ["-m"] else None


def sample_usage(proc: Path = PROC) -> list[UsageSample]:
    """Sample all processes of the benchmark, summed by kind, and the machine."""
    now = time.monotonic_ns()
    sums: dict[str, list[float]] = {}
    unread = 0
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            kind = process_kind(arguments, folder / "root") if arguments else None
            if kind is None:
                continue
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            pages = int((folder / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended during the sample
        except (OSError, ValueError):
            # another user's process, hidden by /proc (hidepid), or one whose configuration Kafka can't read either
            unread += 1
            continue
        total = sums.setdefault(kind, [0, 0.0, 0.0])
        total[0] += 1
        total[1] += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        total[2] += pages * PAGE_BYTES / 2**20
    samples = [UsageSample(now, kind, int(n), cpu_s, rss_mb) for kind, (n, cpu_s, rss_mb) in sorted(sums.items())]
    samples += [UsageSample(now, UNKNOWN, unread, None, None)] if unread else []
    return [*samples, UsageSample(now, "machine", 0, busy_s(None, proc), 0.0)]


class UsageSampler:
    """Sampler of resource usage, once per second from its start to its stop."""

    def __init__(self) -> None:
        self.samples: list[UsageSample] = []

    @contextmanager
    def running(self) -> Iterator[UsageSampler]:
        """Sample while the block runs."""
        self.samples.extend(sample_usage())
        with calling_every(SAMPLE_S, lambda: self.samples.extend(sample_usage()), "sampler"):
            yield self

    def usage(self, from_ns: int, to_ns: int) -> list[dict[str, Any]]:
        """Return the mean CPUs in use and the memory per kind of process between two moments; see ``usage``."""
        return usage([sample for sample in self.samples if from_ns <= sample.at_ns <= to_ns])


def usage(samples: list[UsageSample]) -> list[dict[str, Any]]:
    """Return mean CPUs in use, greatest memory and number of processes per kind; None for unknown values.

    Intervals in which the number of processes changed, or their CPU time decreased, are left out.
    """
    rows = []
    for kind in sorted({sample.kind for sample in samples}):
        of_kind = sorted((sample for sample in samples if sample.kind == kind), key=lambda sample: sample.at_ns)
        if len(of_kind) < 2:
            continue
        steps = [
            (later.cpu_s - earlier.cpu_s, (later.at_ns - earlier.at_ns) / 1e9)
            for earlier, later in itertools.pairwise(of_kind)
            if earlier.cpu_s is not None
            and later.cpu_s is not None
            and later.processes == earlier.processes
            and later.cpu_s >= earlier.cpu_s
        ]
        seconds = sum(step[1] for step in steps)
        memory = [sample.rss_mb for sample in of_kind if sample.rss_mb is not None]
        rows.append(
            {
                "kind": kind,
                "processes": max(sample.processes for sample in of_kind),
                "cpus": sum(step[0] for step in steps) / seconds if seconds else None,
                "rss_mb_max": max(memory, default=None),
            }
        )
    return rows


def describe_machine() -> dict[str, Any]:
    """Return kernel, CPU and memory of this machine."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in (PROC / "cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_kb = int((PROC / "meminfo").read_text(encoding="ascii").split()[1])
    return {
        "kernel": platform.release(),
        "system": platform.version(),
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_kb / 2**20, 1),
    }


def versions(java: str | None, kafka: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the measuring software and of the Kafka under test."""
    import confluent_kafka
    import numpy
    import pyspark

    return {
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "confluent-kafka": str(confluent_kafka.version()),
        "librdkafka": confluent_kafka.libversion()[0],
        "java": java or "unknown",
        "kafka": str(kafka.get("kafka_version", "unknown")),
        "numpy": numpy.__version__,
    }
