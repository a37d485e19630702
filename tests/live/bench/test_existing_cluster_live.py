"""``rackgate bench --bootstrap``: a cluster with SASL in three racks, and a Spark master with two workers.

Run it alone with ``make bench-existing`` (a few minutes).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.plan import scenarios
from bench.report import run_page
from bench.run.client_security import convert_properties
from loopback_brokers import Brokers
from pyhooks.core import paths
from pyhooks.core.spark import ENCRYPT, ENCRYPT_FILES
from pyhooks.core.wait import wait_for
from pyhooks.kafka import topics
from pyhooks.patchset.distribution import Distribution
from spark_cluster import executor_processes, standalone

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]
RACKGATE = Path(sys.executable).with_name("rackgate")
PASSWORD = "only-here-52871"  # noqa: S105 - of a cluster that lives for this test
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{MODULE} username="ops" password="{PASSWORD}";',
}
PLACE = "existing cluster/as it is"
# A short version of the shipped plan.
SHORT = """
[short]
about = "The shipped plan for a cluster that is there, made short"
uses = ["A", "A'", "B", "C"]
tasks = 2

[short.latency]
blocks = {blocks}
pieces = 2
warmup_blocks = 1

[[short.cells]]
id = "healthy"
state = "healthy"
link = "none"
rate_per_s = 100
record_bytes = 100
linger_ms = 0
client = "confluent"

[[short.cells]]
id = "java"
state = "healthy"
link = "none"
rate_per_s = 50
record_bytes = 100
linger_ms = 0
client = "java"
blocks = 2

[[short.cells]]
id = "gone"
state = "broker-gone"
link = "none"
rate_per_s = 100
record_bytes = 100
linger_ms = 0
client = "confluent"
"""


@dataclass(frozen=True)
class Place:
    """Cluster, Spark master and folders of the run."""

    brokers: Brokers
    master: str
    folder: Path
    spark: Path

    def arguments(self, blocks: int) -> list[str]:
        """Return the benchmark's command line, for a plan with ``blocks`` blocks."""
        plan = self.folder / f"plan-{blocks}.toml"
        plan.write_text(scenarios.SHIPPED.read_text("utf-8") + SHORT.format(blocks=blocks), encoding="utf-8")
        config = self.folder / "client.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in CLIENT.items()), encoding="utf-8")
        return [
            str(RACKGATE), "bench", "--bootstrap", self.brokers.bootstrap, "--master", self.master,
            "--command-config", str(config), "--scenario", "short", "--scenario-file", str(plan),
            "--out", str(self.folder / f"out-{blocks}"),
        ]  # fmt: skip

    def topics(self) -> set[str]:
        """Return the run's topics that exist on the cluster."""
        admin = topics.admin(self.brokers.bootstrap, convert_properties(CLIENT, "").librdkafka)
        return {name for name in admin.list_topics(timeout=10).topics if name.startswith("rackgate")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Run three brokers with SASL/PLAIN, a Spark master and two one-core workers."""
    folder, spark = tmp_path_factory.mktemp("existing"), tmp_path_factory.mktemp("spark")
    classpath = Distribution.load().classpath()
    extra = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,PEER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{MODULE} user_ops="{PASSWORD}";',
        "auto.create.topics.enable": "true",
    }
    brokers = Brokers(tmp_path_factory.mktemp("brokers"), {1: "a", 2: "b", 3: "c"}, controller=1, extra=extra)
    brokers.format(classpath)
    with pytest.MonkeyPatch.context() as patch:
        # so that logs and work folders of master, workers and executors are in ``spark``
        patch.setattr(tempfile, "tempdir", str(spark))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        (spark / "events").mkdir()
        # Encryption as required with other hosts; and an event log, which must not contain a secret.
        settings = {
            ENCRYPT: "true",
            ENCRYPT_FILES: "true",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (spark / "events").as_uri(),
        }
        with brokers.running(classpath), standalone(2, settings) as master:
            yield Place(brokers, master, folder, spark)


def env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(paths.REPO)}


@pytest.fixture(scope="module")
def whole(place: Place) -> tuple[dict[str, Any], str]:
    """Run the benchmark to its end; return its results and output."""
    done = subprocess.run(place.arguments(2), capture_output=True, text=True, check=False, timeout=600, env=env())
    assert done.returncode == 0, done.stdout + done.stderr
    return run_page.load(place.folder / "out-2"), done.stdout


def test_every_acknowledged_record_is_read_back_and_each_worker_sent_its_share(
    place: Place, whole: tuple[dict[str, Any], str]
) -> None:
    result, output = whole
    (end,) = [row for row in result["verdicts"] if row["about"] == "end-to-end"]
    assert end["verdict"] == "whole"
    assert result["end_to_end"]["unread"] == 0
    assert [one["cell"] for one in result["cells"]] == ["healthy", "java"]
    assert "cell gone is left out: broker-gone: no faults are injected" in output
    # each of the two tasks sends every second record of every arm
    assert len(result["hosts"]) == 2
    assert {one["host"] for one in result["hosts"]} == {one["host"] for one in result["manifest"]["executors"]}
    first, second = (one["intended"] for one in result["hosts"])
    assert first == pytest.approx(second, rel=0.02)
    assert sum(one["acked"] for one in result["hosts"]) == result["end_to_end"]["acked"] > 1000
    assert not place.topics()


def test_the_executors_have_the_driver_s_client_and_clock(whole: tuple[dict[str, Any], str]) -> None:
    result, output = whole
    import confluent_kafka

    for host in result["manifest"]["executors"]:
        assert host["versions"]["confluent_kafka"] == confluent_kafka.version()
        # loaded from the driver's archives, not from this host's installation
        assert host["loaded"] == {"code": "rackgate-code.zip", "client": "rackgate-clients"}
        own = host["clock"]
        assert own["same"] is True
        assert own["how"] == "connection"
        assert abs(own["ahead_ms"]) <= own["error_ms"]
        assert f"load host {host['host']}: " in output
    assert {(row["source"], row["target"]) for row in result["manifest"]["round_trips"][f"{PLACE}, idle"]} == {
        (source, f"broker-{broker}")
        for source in [*(host["host"] for host in result["manifest"]["executors"]), "driver"]
        for broker in (1, 2, 3)
    }


def test_the_page_describes_cluster_and_load_hosts_and_no_file_has_a_secret(
    place: Place, whole: tuple[dict[str, Any], str]
) -> None:
    result, output = whole
    page = (place.folder / "out-2" / "index.html").read_text(encoding="utf-8")
    assert "<h2>Load hosts</h2>" in page
    assert all(host["host"] in page for host in result["manifest"]["executors"])
    assert PASSWORD not in output
    files = [file for folder in (place.folder / "out-2", place.spark) for file in folder.rglob("*") if file.is_file()]
    assert any(file.name == "stderr" for file in files), "the logs of executors"
    logged = b"".join(file.read_bytes() for file in files if "events" in file.parts)
    assert b'"SparkListenerTaskEnd"' in logged, "the event log"
    config = (place.folder / "client.properties").read_bytes()
    hashes = [hashlib.sha256(secret).hexdigest().encode() for secret in (PASSWORD.encode(), config)]
    assert [file for file in files for secret in (PASSWORD.encode(), *hashes) if secret in file.read_bytes()] == []
    assert result["manifest"]["conditions"]["given"]["command_config"].startswith("hmac-sha256:")


def test_a_lost_executor_costs_a_block_and_not_the_run(place: Place) -> None:
    """An executor is killed in a block; the block is repeated with its replacement, and the run has a note."""
    out = place.folder / "out-4"
    child = subprocess.Popen(place.arguments(4), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env())

    def second_block_has_begun() -> bool:
        assert child.poll() is None, child.communicate()[0]
        return any('"op":"healthy-001-' in file.read_text("utf-8") for file in out.glob("run/labs/*/history.jsonl"))

    try:
        wait_for(second_block_has_begun, goal="the second block", timeout_s=240)
        lost, _ = executor_processes(place.spark)
        os.kill(lost, signal.SIGKILL)
        output, _ = child.communicate(timeout=400)
    finally:
        child.kill()
    assert child.returncode == 0, output
    result = run_page.load(out)
    (note,) = [note for note in result["notes"] if "is repeated" in note]
    assert re.fullmatch(r"load healthy-001-\d+\.1 is repeated: the load failed: ExecutorLostFailure .*137", note)
    (end,) = [row for row in result["verdicts"] if row["about"] == "end-to-end"]
    assert end["verdict"] == "whole"
    # a third executor has replaced the lost one
    assert len(result["hosts"]) == 3
    kept = {path.name for path in out.glob("run/raw/healthy/*") if not path.name.startswith("warmup")}
    assert kept == {f"{block:03d}.1" for block in range(4)}
    assert not place.topics()


@pytest.fixture(scope="module")
def environment(place: Place) -> Path:
    """Pack a small virtual environment whose packages are those of this environment, by a .pth file."""
    folder = place.folder / "environment"
    venv.create(folder, symlinks=True)
    own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (own / "all.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    packed = place.folder / "environment.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for part in folder.iterdir():
            archive.add(part, part.name)
    return packed


def pythons(name: str) -> int:
    """Return the number of processes whose program path ends with ``name``."""
    found = 0
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += entry.read_bytes().split(b"\0")[0].decode(errors="replace").endswith(name)
    return found


def begun(place: Place, environment: Path) -> subprocess.Popen[str]:
    """Start a long run with a packed environment, and wait until it has kept one more block."""
    kept = len(blocks(place))
    arguments = [*place.arguments(500), "--environment", str(environment)]
    child = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env(), start_new_session=True
    )

    def under_way() -> bool:
        assert child.poll() is None, child.communicate()[0]
        return len(blocks(place)) > kept

    wait_for(under_way, goal="a block", timeout_s=240)
    assert len(place.topics()) == 4
    assert pythons("rackgate-environment/bin/python") >= 2
    return child


def blocks(place: Place) -> list[Path]:
    raw = place.folder / "out-500" / "run" / "raw" / "healthy"
    return [path for path in raw.glob("*.*") if not path.name.startswith("warmup")]


def test_after_kill_9_and_ctrl_c_no_topic_is_left_and_the_run_continues(place: Place, environment: Path) -> None:
    child = begun(place, environment)
    child.kill()
    child.communicate(timeout=150)
    # the clean-up process notices the kill by the end of its pipe
    wait_for(lambda: not place.topics(), goal="topics to be gone", timeout_s=60)
    kept = len(blocks(place))
    assert kept >= 1

    again = begun(place, environment)
    again.send_signal(signal.SIGINT)
    output, _ = again.communicate(timeout=150)
    assert again.returncode == 130, output
    # 500 blocks of the first cell and 2 of the second
    assert f"continues: {kept} of 502 blocks are kept" in output
    assert "interrupted: the topics of the run are deleted" in output
    assert "Traceback" not in output
    assert not place.topics()
    assert json.loads((place.folder / "out-500" / "run" / "run.json").read_text("utf-8")).get("done") is None


def test_an_impossible_run_is_a_one_line_error_before_any_change(place: Place) -> None:
    for more, line in (
        (("--replicas", "1,2"), "2 brokers with a rack are too few for arm A, M=3, which needs 3; name more with"),
        (("--replicas", "1,2,7"), "--replicas 7: cluster .* has no such live broker with a rack"),
    ):
        arguments = [*place.arguments(2), "--out", str(place.folder / "rejected"), *more]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120, env=env())
        assert done.returncode == 2, done.stdout
        assert not (place.folder / "rejected").exists()
        assert len(done.stderr.splitlines()) == 1
        assert re.search(line, done.stderr)
