"""Spark sessions and the standalone cluster: listening addresses, rejected clients, and the file of the secret."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import spark_cluster
from listening_sockets import PROC, Listener, listening_sockets, parse_address, process_tree, rejection
from loopback_brokers import closed_port
from pyhooks.core import paths, spark
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for
from spark_cluster import FIRST_COMPILER

# The benchmark's session, on a given master or on its own standalone cluster; runs until its input ends.
SESSION = """
import contextlib, json, os, sys
from pathlib import Path
from bench.spark_session import spark_session
from spark_cluster import SHORT_SESSION, standalone
with contextlib.ExitStack() as stack:
    work, master = Path(sys.argv[1]), sys.argv[2]
    if master == "standalone":
        master = stack.enter_context(standalone(1))
    spark = stack.enter_context(spark_session(work, master=master, conf=SHORT_SESSION))
    frame = spark.range(0, 4, 1, 2).mapInPandas(lambda frames: frames, schema="id long")
    print(json.dumps({"rows": frame.count(), "master": master, "conf": os.environ.get("SPARK_CONF_DIR")}), flush=True)
    sys.stdin.read()
"""
# folder of spark_cluster.py
HELPERS = (str(Path(spark_cluster.__file__).parent),)
START_S = 180.0
SOON_S = 90.0
# Sockets not shown to reject a client without the secret, by the first argument of their process, with the reason.
OPEN = {
    "-c": "accumulators, in the driver's Python: asks for a token, but not while it serves its first client, which is"
    " Spark's JVM; it has one client at a time, so no other client gets an answer",
}
# a host with IPv4 only and a name that does not resolve
BARE_HOST = (
    "hostname nowhere.invalid && ip link set lo up && ! getent hosts nowhere.invalid"
    ' && echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && exec "$@"'
)


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a child process, without variables for Spark except the given ones.

    Its JVM has only the first compiler, which takes less time for so short a session.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    own["SPARK_SUBMIT_OPTS"] = FIRST_COMPILER
    return {**own, "PYTHONPATH": os.pathsep.join((str(paths.REPO), *HELPERS)), **more}


@contextlib.contextmanager
def child(folder: Path, master: str, *before: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``SESSION`` during the block, with its output in files of a folder."""
    folder.mkdir()
    argv = [*DIES_WITH_PARENT, *before, sys.executable, "-c", SESSION, str(folder / "work"), master]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment(**more))
        try:
            yield process
        finally:
            try:
                process.communicate(timeout=SOON_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


def ready(folder: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait until the session has run a job, and return its JSON output."""

    def line() -> str:
        assert process.poll() is None, (folder / "err").read_text(encoding="utf-8")
        return (folder / "out").read_text(encoding="utf-8")

    found: dict[str, Any] = json.loads(wait_for(line, goal="a job of Spark", timeout_s=START_S))
    assert found["rows"] == 4
    return found


def check_addresses(found: list[Listener]) -> None:
    """Check that all sockets are on loopback."""
    assert [one.text for one in found if not one.address.is_loopback] == []


def kinds(found: list[Listener]) -> Counter[str]:
    """Check that all sockets except ``OPEN`` reject clients without the secret; count the kinds of rejection."""
    check_addresses(found)
    assert [one.command[1] for one in found if one.command[1] in OPEN] == list(OPEN)
    rejections = {one.text: rejection(one) for one in found if one.command[1] not in OPEN}
    assert [text for text, how in rejections.items() if not how] == []
    return Counter(rejections.values())


@dataclass(frozen=True)
class Running:
    """A standalone master, its worker and a session, all descendants of one process."""

    pid: int
    master: str
    conf: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("spark") / "cluster"
    with child(folder, "standalone") as process:
        found = ready(folder, process)
        yield Running(process.pid, found["master"], Path(found["conf"]))


@pytest.mark.timeout(400)
def test_master_worker_executor_and_driver_reject_clients_without_the_secret(cluster: Running) -> None:
    found = listening_sockets(process_tree(cluster.pid))
    assert kinds(found) == {
        # RPC of master, worker and driver; block transfer of driver and executor
        "Spark: SASL expected": 5,
        # web UIs of master and worker
        "web: 403": 2,
        "py4j: authentication error": 1,
        "Python daemon: err": 1,
    }


def test_the_secret_is_in_a_private_file(cluster: Running) -> None:
    file = cluster.conf / spark.DEFAULTS
    assert file.stat().st_mode & 0o777 == 0o600
    assert cluster.conf.stat().st_mode & 0o777 == 0o700
    own = dict(line.split(" ", 1) for line in file.read_text(encoding="utf-8").splitlines())
    secrets = [own[spark.SECRET], own["spark.org.apache.spark.ui.JWSFilter.param.secretKey"]]
    assert len(set(secrets)) == 2
    assert min(map(len, secrets)) >= 40
    judged = 0
    for pid in process_tree(cluster.pid):
        try:
            command = (PROC / str(pid) / "cmdline").read_bytes()
            mode = (PROC / str(pid) / "environ").stat().st_mode
        except (FileNotFoundError, ProcessLookupError):
            continue  # a short-lived process has ended
        assert [one for one in secrets if one.encode() in command] == []
        # the executor's secret is in its environment
        assert mode & 0o077 == 0
        judged += 1
    # the test's child, master, worker, driver, executor, and Python
    assert judged >= 6


@pytest.mark.timeout(300)
def test_the_master_rejects_an_application_without_the_secret(cluster: Running, tmp_path: Path) -> None:
    log = cluster.conf / "master.log"
    registered = log.read_text(encoding="utf-8").count("Registered app")
    assert registered == 1
    (tmp_path / "conf").mkdir()
    folder = tmp_path / "without-secret"
    with child(folder, cluster.master, **{spark.CONF_DIR: str(tmp_path / "conf")}) as process:

        def rejected() -> bool:
            assert process.poll() is None, (folder / "err").read_text(encoding="utf-8")
            file = folder / "work" / "spark.log"
            return file.exists() and "Expected SaslMessage" in file.read_text(encoding="utf-8")

        wait_for(rejected, goal="the master's rejection", timeout_s=SOON_S)
        assert "Failed to connect to master" in (folder / "work" / "spark.log").read_text(encoding="utf-8")
        # it would retry for a minute
        process.kill()
    assert (folder / "out").read_bytes() == b""
    assert log.read_text(encoding="utf-8").count("Registered app") == registered


@pytest.mark.timeout(300)
def test_a_session_in_this_process_rejects_clients_without_its_secret(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    with child(folder, "local[1]") as process:
        ready(folder, process)
        found = listening_sockets(process_tree(process.pid))
        assert kinds(found) == {
            "Spark: SASL expected": 2,
            "py4j: authentication error": 1,
            "Python daemon: err": 1,
        }


@pytest.mark.timeout(300)
def test_a_session_starts_on_an_ipv4_host_with_an_unknown_name(tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    before = ("unshare", "--user", "--map-root-user", "--uts", "--net", "sh", "-c", BARE_HOST, "sh")
    with child(folder, "local[1]", *before) as process:
        ready(folder, process)
        found = listening_sockets(process_tree(process.pid))
        assert {one.address for one in found} == {ipaddress.ip_address("127.0.0.1")}
        assert len(found) >= 4
        assert {one.network for one in found} != {str(Path("/proc/self/ns/net").readlink())}


@pytest.mark.timeout(300)
def test_a_simulation_listens_only_on_loopback(tmp_path: Path) -> None:
    arguments = ["model", "simulate", "--racks", "a:2,b:2,c:1", "--partitions", "10", "--years", "10", "--master"]
    argv = [*DIES_WITH_PARENT, sys.executable, "-m", "pyhooks.cli", *arguments, "local[2]"]
    seen: dict[tuple[int, int], Listener] = {}
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=environment())

        def ended() -> bool:
            # Do not probe: a server that Spark opens for a single result would take the probe for its client.
            for one in listening_sockets(process_tree(process.pid)):
                seen[one.pid, one.port] = one
            return process.poll() is not None

        wait_for(ended, goal="a simulation", timeout_s=START_S)
    assert process.returncode == 0, (tmp_path / "out").read_text(encoding="utf-8")
    # RPC, block transfer, py4j, accumulators and the Python daemon
    assert len(seen) >= 5
    check_addresses(list(seen.values()))


def test_addresses_of_proc_net_tcp() -> None:
    assert parse_address("0100007F:1F90") == (ipaddress.ip_address("127.0.0.1"), 8080)
    assert parse_address("00000000:0016") == (ipaddress.ip_address("0.0.0.0"), 22)  # noqa: S104 - parsed, not listened on
    assert parse_address("00000000000000000000000001000000:0050") == (ipaddress.ip_address("::1"), 80)
    mapped = parse_address("0000000000000000FFFF00000100007F:0050")
    assert mapped == (ipaddress.ip_address("127.0.0.1"), 80)


@pytest.mark.parametrize(
    ("master", "near", "in_process"),
    [
        ("local", True, True),
        ("local[*]", True, True),
        ("local[2,4]", True, True),
        ("local-cluster[2,1,1024]", True, False),
        ("spark://127.0.0.1:7077", True, False),
        ("spark://127.9.9.9:7077", True, False),
        ("spark://localhost:7077", True, False),
        ("spark://[::1]:7077", True, False),
        ("spark://127.0.0.1:7077,10.0.0.1:7077", False, False),
        ("spark://127.0.0.1.example.org:7077", False, False),
        ("spark://localhost.example.org:7077", False, False),
        ("localhost", False, False),
        ("k8s://https://127.0.0.1:6443", False, False),
        ("yarn", False, False),
    ],
)
def test_local_masters_are_recognised(master: str, near: bool, in_process: bool) -> None:
    assert (spark.near(master), spark.in_process(master)) == (near, in_process)


# spark-defaults.conf


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(spark.CONF_DIR, str(tmp_path))
    return tmp_path / spark.DEFAULTS


@pytest.mark.parametrize("separator", [" ", "=", "\t", " : "])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666])
def test_a_secret_that_other_users_can_read_is_rejected(defaults: Path, mode: int, separator: str) -> None:
    defaults.write_text(f"spark.ui.enabled false\n  {spark.SECRET}{separator}abc-7\n", encoding="utf-8")
    defaults.chmod(0o600)
    spark.check_defaults_file()
    defaults.chmod(mode)
    with pytest.raises(RackgateError, match=f"has spark.authenticate.secret and mode {mode:04o}") as caught:
        spark.check_defaults_file()
    assert str(caught.value).startswith(f"{defaults} ")
    assert "\n" not in str(caught.value)
    assert "abc-7" not in str(caught.value)


def test_a_file_without_a_secret_may_be_public(defaults: Path) -> None:
    spark.check_defaults_file()
    defaults.write_text(f"# {spark.SECRET} abc\nspark.authenticate.secretBitLength 128\n", encoding="utf-8")
    defaults.chmod(0o644)
    spark.check_defaults_file()


def test_a_file_that_can_not_be_read_is_rejected_before_spark_starts(defaults: Path, tmp_path: Path) -> None:
    defaults.mkdir()
    with pytest.raises(RackgateError, match=f"{defaults}: Spark's configuration can't be read: ") as caught:
        spark.start_session(tmp_path, master="spark://127.0.0.1:1", name="t")
    assert "\n" not in str(caught.value)
    with pytest.raises(RackgateError, match="can't be read"):
        spark.effective_settings({})


def test_a_new_secret_is_written_for_each_cluster_and_never_over_another(defaults: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    spark.write_defaults_file(tmp_path / "other", {})
    spark.write_defaults_file(tmp_path, {"spark.io.encryption.enabled": "true"})
    first, second = (
        dict(line.split(" ", 1) for line in (folder / spark.DEFAULTS).read_text(encoding="utf-8").splitlines())
        for folder in (tmp_path, tmp_path / "other")
    )
    assert first[spark.SECRET] != second[spark.SECRET]
    assert (first["spark.io.encryption.enabled"], first["spark.master.rest.enabled"]) == ("true", "false")
    with pytest.raises(FileExistsError):
        spark.write_defaults_file(tmp_path, {})
    assert defaults.exists()


# Secrets of Kafka on a Spark cluster.


def bench(conf: Path, master: str, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``rackgate bench`` on a cluster that does not exist, with ``SPARK_CONF_DIR``."""
    config = conf / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\n", encoding="utf-8")
    env = environment(**{spark.CONF_DIR: str(conf)}, **variables)
    with closed_port() as port:
        arguments = ["bench", "--bootstrap", f"127.0.0.1:{port}", "--command-config", str(config), "--master", master]
        argv = [sys.executable, "-m", "pyhooks.cli", *arguments, "--out", str(conf / "out"), *more]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=SOON_S, env=env)


SAFE = {spark.AUTHENTICATE: "true", spark.SECRET: "abc", spark.ENCRYPT: "true", spark.ENCRYPT_FILES: "true"}


@pytest.mark.timeout(300)
def test_the_bench_rejects_a_remote_master_by_spark_s_effective_settings(tmp_path: Path) -> None:
    file = tmp_path / spark.DEFAULTS
    file.touch(mode=0o600)
    file.write_text("".join(f"{name} {value}\n" for name, value in SAFE.items()), encoding="utf-8")
    for variables, more, missing in (
        ({}, ("--conf", f"{spark.ENCRYPT}=false"), spark.ENCRYPT),
        ({"PYSPARK_SUBMIT_ARGS": f"--conf {spark.ENCRYPT_FILES}=false pyspark-shell"}, (), spark.ENCRYPT_FILES),
    ):
        done = bench(tmp_path, "spark://192.0.2.1:7077", *more, **variables)
        assert done.returncode == 2, done.stdout + done.stderr
        assert re.search(rf"--master spark://192\.0\.2\.1:7077: .* set {missing}=true in {file}", done.stderr)
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "out").exists()
