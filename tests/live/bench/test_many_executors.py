"""A load of eight executors on topics of 64 partitions, of which one is killed in mid-run.

Run it alone with ``make bench-scale`` (minutes).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from bench.plan import scenarios
from bench.report import run_page
from loopback_brokers import Brokers
from pyhooks.core import paths
from pyhooks.core.wait import wait_for
from pyhooks.patchset.distribution import Distribution
from spark_cluster import SHORT_SESSION, executor_processes, standalone

# 14 JVMs; "make bench-scale" runs it, and test_existing_cluster_live.py covers lost executors and observations sent to
# the driver
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
RACKGATE = Path(sys.executable).with_name("rackgate")
EXECUTORS, RATE_PER_S, PARTITIONS, BLOCKS = 8, 10_000, 64, 3
PLAN = f"""
[scale]
about = "M=3 against M=2 with R=2, with as many load hosts as there are executors"
uses = ["A", "A'", "B"]

[scale.latency]
blocks = {BLOCKS}
pieces = 2
warmup_blocks = 2

[[scale.cells]]
id = "wide"
state = "healthy"
link = "none"
rate_per_s = 250
record_bytes = 100
linger_ms = 5
client = "confluent"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Run the benchmark, and kill an executor in the second block; return the result and the folder of its data."""
    folder, spark = tmp_path_factory.mktemp("scale"), tmp_path_factory.mktemp("spark")
    plan, out = folder / "plan.toml", folder / "out"
    plan.write_text(scenarios.SHIPPED.read_text("utf-8") + PLAN, encoding="utf-8")
    classpath = Distribution.load().classpath()
    brokers = Brokers(tmp_path_factory.mktemp("brokers"), {1: "a", 2: "b", 3: "c"}, controller=1)
    brokers.format(classpath)
    with pytest.MonkeyPatch.context() as patch:
        # so that the work folders of executors are in ``spark``
        patch.setattr(tempfile, "tempdir", str(spark))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        with brokers.running(classpath), standalone(1, SHORT_SESSION, cores=EXECUTORS) as master:
            command = [
                str(RACKGATE), "bench", "--bootstrap", brokers.bootstrap, "--master", master, "--shared",
                "--scenario", "scale", "--scenario-file", str(plan), "--out", str(out), "--tasks", str(EXECUTORS),
                "--rate", str(RATE_PER_S), "--partitions", str(PARTITIONS),
                "--conf", "spark.executor.cores=1", "--conf", "spark.executor.memory=512m",
            ]  # fmt: skip
            env = {**os.environ, "PYTHONPATH": str(paths.REPO)}
            pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            with subprocess.Popen(command, env=env, **pipe) as child:

                def second_block_has_begun() -> bool:
                    assert child.poll() is None, child.communicate()[0]
                    return any(
                        '"op":"wide-001-' in file.read_text("utf-8") for file in out.glob("run/labs/*/history.jsonl")
                    )

                try:
                    wait_for(second_block_has_begun, goal="the second block", timeout_s=480)
                    first, *others = executor_processes(spark)
                    assert len(others) == EXECUTORS - 1
                    os.kill(first, signal.SIGKILL)
                    output, _ = child.communicate(timeout=1200)
                finally:
                    child.kill()
    assert child.returncode == 0, output
    return run_page.load(out), out / "run"


def test_every_record_is_accounted_for_and_the_lost_executor_cost_a_block(run: tuple[dict[str, Any], Path]) -> None:
    result, folder = run
    (note,) = [note for note in result["notes"] if "is repeated" in note]
    assert re.fullmatch(r"load wide-001-\d+\.1 is repeated: the load failed: ExecutorLostFailure .*137", note)
    (end,) = [row for row in result["verdicts"] if row["about"] == "end-to-end"]
    assert end["verdict"] == "whole"
    assert result["end_to_end"]["unread"] == 0
    # the warm-up, and blocks of three arms, each with an opening of 0.2 s and two pieces of 0.6 s
    acked = sum(row["acked"] for row in result["hosts"])
    assert acked == result["end_to_end"]["acked"] == sum(row["intended"] for row in result["hosts"])
    assert acked > BLOCKS * 3 * 1.4 * RATE_PER_S
    kept = {path.name for path in (folder / "raw" / "wide").glob("*") if not path.name.startswith("warmup")}
    assert kept == {f"{block:03d}.1" for block in range(BLOCKS)}


def test_all_executors_send_an_equal_share_to_all_partitions(run: tuple[dict[str, Any], Path]) -> None:
    result, folder = run
    (cell,) = result["cells"]
    assert (cell["setting"]["rate_per_s"], cell["setting"]["partitions"]) == (RATE_PER_S, PARTITIONS)
    # the lost one is replaced
    assert len(result["hosts"]) == EXECUTORS + 1
    columns = ["seq", "task", "partition", "topic"]
    rows = parquet.read_table(folder / "raw" / "wide" / "002.1", columns=columns).to_pandas()
    assert (rows["partition"] == rows["seq"] % PARTITIONS).all()
    assert set(rows["partition"]) == set(range(PARTITIONS))
    shares = Counter(rows["task"])
    assert set(shares) == set(range(EXECUTORS))
    assert max(shares.values()) - min(shares.values()) <= 3 * 3
    # one file of each task, which its executor wrote
    assert len(list((folder / "raw" / "wide" / "002.1").glob("*.parquet"))) == EXECUTORS


def test_figures_of_the_trial(run: tuple[dict[str, Any], Path]) -> None:
    """Print what bench/scale.md extrapolates from."""
    result, folder = run
    files = list((folder / "raw").rglob("*.parquet"))
    size, rows = sum(file.stat().st_size for file in files), sum(parquet.read_metadata(file).num_rows for file in files)
    late_ms = {arm["arm"]: arm["pacer_late_ms"] for arm in result["cells"][0]["arms"]}
    clocks = [host["clock"]["error_ms"] for host in result["manifest"]["executors"]]
    figures = {
        "observations": rows,
        "bytes_per_observation": size / rows,
        "late_ms": late_ms,
        "clock_error_ms": max(clocks),
        "settings_in_force_s": result["cells"][0]["findings"]["settings_in_force_s"],
        "duration_s": result["manifest"]["duration_s"],
    }
    print(json.dumps(figures, indent=1))  # noqa: T201 - shown by pytest -s
    assert 0 < size / rows < 200
