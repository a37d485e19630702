"""``rackgate check`` on brokers in three racks: its report, and its reassignment plan, executed by Kafka's own tool."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from check_command import check, check_in_new_process, unfenced
from feature_tools import ELR_FEATURE, RACKS, RACKS_FEATURE, tool
from loopback_brokers import Brokers, closed_port
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.patchset.distribution import Distribution

pytestmark = pytest.mark.timeout(420)
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def found(bootstrap: str, *more: str) -> tuple[int, dict[str, Any], set[tuple[str, str]]]:
    """Run ``rackgate check``; return exit status, JSON, and code and subject of each finding above a notice."""
    done = check(bootstrap, "--json", *more)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    codes = {
        (finding["topic"] or "", finding["code"]) for finding in report["findings"] if finding["severity"] != "notice"
    }
    assert (done.returncode == 1) == report["at_risk"] == bool(codes), codes
    return done.returncode, report, codes


@pytest.fixture(scope="module")
def classpath() -> str:
    return Distribution.load().classpath()


@pytest.fixture(scope="module")
def patched(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Run brokers in racks a, a, b, c, with well and badly placed topics, and one for which one rack is enough."""
    brokers = Brokers(tmp_path_factory.mktemp("patched"), {1: "a", 2: "a", 3: "b", 4: "c"}, controller=1)
    brokers.format(classpath)
    with brokers.running(classpath):
        with Admin(brokers.bootstrap) as admin:
            two = {"min.insync.replicas": "2", RACKS: "2"}
            wait_for(partial(unfenced, admin, 4), goal="four brokers", timeout_s=60)
            admin.create_topic("good", [[1, 3, 4], [3, 4, 2]], two)
            admin.create_topic("bad", [[1, 2], [2, 1], [1, 4]], two)
            admin.create_topic("lone", [[1, 2, 3]], {"min.insync.replicas": "2"})
            for topic, placed in (("good", (1, 3, 4)), ("bad", (1, 2)), ("lone", (1, 2, 3))):
                wait_for(partial(admin.in_sync, topic, placed), goal=f"{topic} in sync", timeout_s=60)
        yield brokers


def test_a_bad_placement_is_reported_and_fixed_by_its_plan(classpath: str, patched: Brokers, tmp_path: Path) -> None:
    status, report, codes = found(patched.bootstrap)
    assert status == 1
    assert codes == {("bad", "racks-out-of-reach"), ("lone", "one-rack-can-acknowledge"), ("lone", "rack-loss-stops")}
    assert report["cluster"]["racks"] == {"a": [1, 2], "b": [3], "c": [4]}
    assert report["cluster"]["enforced"] is True
    assert {broker["enforces"] for broker in report["brokers"]} == {"yes"}
    assert {broker["produce_version"] for broker in report["brokers"]} == {14}
    topics = {topic["name"]: topic for topic in report["topics"]}
    assert topics["bad"]["min_insync_racks"] == {"value": 2, "source": "topic"}
    assert topics["lone"]["min_insync_racks"] == {"value": 1, "source": "cluster"}
    assert [partition["writable"] for partition in topics["bad"]["partitions"]] == [False, False, True]
    assert topics["lone"]["partitions"][0]["lone_racks"] == ["a"]

    made = check(patched.bootstrap, "--plan")
    assert made.returncode == 0, made.stderr
    moves = json.loads(made.stdout)["partitions"]
    assert [(move["topic"], move["partition"], move["replicas"][0]) for move in moves] == [("bad", 0, 1), ("bad", 1, 2)]
    assert "2 partitions to fix, 2 replicas to move" in made.stderr
    plan = tmp_path / "plan.json"
    plan.write_text(made.stdout, encoding="utf-8")
    arguments = ["--bootstrap-server", patched.bootstrap, "--reassignment-json-file", str(plan)]
    executed = tool(classpath, REASSIGN, *arguments, "--execute")
    assert executed.status == 0, executed.text
    assert "Successfully started partition reassignments for bad-0,bad-1" in executed.line

    def verified() -> bool:
        result = tool(classpath, REASSIGN, *arguments, "--verify")
        assert result.status == 0, result.text
        return len(result.about("is completed.")) == 2

    wait_for(verified, goal="the reassignment", timeout_s=60, interval_s=0.5)
    status, report, codes = found(patched.bootstrap, "--topic", "bad", "--topic", "goo?")
    assert (status, codes) == (0, set())
    assert [topic["name"] for topic in report["topics"]] == ["bad", "good"]
    again = check(patched.bootstrap, "--plan")
    assert again.returncode == 0
    assert json.loads(again.stdout)["partitions"] == []


def test_the_table_fits_100_columns(patched: Brokers) -> None:
    done = check(patched.bootstrap)
    assert done.returncode == 1
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "rack a can acknowledge alone, since 2 replicas are enough" in " ".join(done.stdout.split())
    assert "at risk" in done.stdout
    assert not done.stderr


def test_failed_query_is_a_one_line_error_within_the_timeout(patched: Brokers, tmp_path: Path) -> None:
    started = time.monotonic()
    with closed_port() as port:
        done = check_in_new_process(f"127.0.0.1:{port}", "--timeout", "3")
    assert time.monotonic() - started < 60
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: cluster 127.0.0.1:{port}: 127.0.0.1:{port} can't be reached: Connection refused;"
        " see --bootstrap and --command-config\n"
    )
    for arguments, reason in (
        (("--bootstrap", "no port"), "Invalid url"),
        (("--command-config", str(tmp_path / "absent")), "No such file"),
        (("--topic", "absent"), "the cluster has no such topic"),
        (("--plan", "--json"), "--plan prints the plan alone"),
    ):
        done = check(patched.bootstrap, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_silent_broker_is_unknown(patched: Brokers) -> None:
    patched.pause(3)
    try:
        status, report, codes = found(patched.bootstrap, "--topic", "good", "--timeout", "12")
    finally:
        patched.resume(3)
    assert status == 1
    assert ("", "broker-silent") in codes or ("", "broker-fenced") in codes
    (silent,) = [broker for broker in report["brokers"] if broker["id"] == 3]
    assert silent["answered"] is False
    assert silent["produce_version"] is None
    assert silent["enforces"].startswith("unknown")


def test_a_stock_broker_among_patched_ones_is_reported(classpath: str, tmp_path: Path) -> None:
    stock = Distribution.load().classpath(overlay=False)
    # the feature is disabled, since a stock broker cannot register while it is enabled
    brokers = Brokers(tmp_path, {1: "a", 2: "b", 3: "c"}, controller=1, extra={RACKS: "2"})
    brokers.format(classpath, "--feature", f"{RACKS_FEATURE}=0")
    with brokers.running(classpath), Admin(brokers.bootstrap) as admin:
        brokers.stop(3)
        brokers.start(3, stock)
        wait_for(partial(brokers.serves, 3), goal="the stock broker", timeout_s=60)
        wait_for(partial(unfenced, admin, 3), goal="three brokers", timeout_s=60)
        admin.create_topic("orders", [[3, 1, 2], [1, 2, 3]], {"min.insync.replicas": "2"})
        wait_for(partial(admin.in_sync, "orders", (1, 2, 3)), goal="orders in sync", timeout_s=60)
        status, report, codes = found(brokers.bootstrap)
    assert status == 1
    assert codes == {("orders", "would-not-enforce"), ("", "mixed-brokers"), ("", "not-enforced")}
    (leads,) = [finding for finding in report["findings"] if finding["code"] == "would-not-enforce"]
    assert leads["partitions"] == [0]
    assert leads["means"] == "broker 3 without the overlay leads and checks no racks"
    by_id = {broker["id"]: broker for broker in report["brokers"]}
    assert (by_id[1]["produce_version"], by_id[3]["produce_version"]) == (14, 13)
    assert by_id[1]["min_insync_racks"] == {"value": 2, "source": "file"}
    assert by_id[3]["min_insync_racks"] is None
    assert by_id[3]["enforces"] == "no (no overlay)"
    assert by_id[1]["features"] == {RACKS_FEATURE: 0, ELR_FEATURE: 1}
    assert report["cluster"]["enforced"] is False


def test_a_stock_cluster_can_be_checked(tmp_path: Path) -> None:
    stock = Distribution.load().classpath(overlay=False)
    brokers = Brokers(tmp_path, {1: "a", 2: "a", 3: "b"}, controller=1)
    brokers.format(stock)
    with brokers.running(stock), Admin(brokers.bootstrap) as admin:
        wait_for(partial(unfenced, admin, 3), goal="three brokers", timeout_s=60)
        admin.create_topic("spread", [[1, 3]], {"min.insync.replicas": "2"})
        wait_for(partial(admin.in_sync, "spread", (1, 3)), goal="spread in sync", timeout_s=60)
        assert found(brokers.bootstrap)[::2] == (0, set())
        admin.create_topic("lone", [[1, 2, 3]], {"min.insync.replicas": "2"})
        wait_for(partial(admin.in_sync, "lone", (1, 2, 3)), goal="lone in sync", timeout_s=60)
        brokers.kill(3)
        wait_for(partial(admin.in_sync, "lone", (1, 2)), goal="lone without broker 3", timeout_s=60)
        status, report, codes = found(brokers.bootstrap)
    assert status == 1
    assert codes == {
        ("spread", "too-few-replicas"),
        ("lone", "one-rack-acknowledges-now"),
        ("lone", "broker-loss-stops-now"),
    }
    topics = {topic["name"]: topic for topic in report["topics"]}
    assert topics["lone"]["min_insync_racks"] is None
    assert topics["lone"]["partitions"][0]["lone_now"] is True
    assert {broker["enforces"] for broker in report["brokers"]} == {"no (no overlay)", "unknown (fenced)"}


def test_the_check_uses_the_settings_of_a_command_config(classpath: str, tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    extra = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,PEER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{module} user_ops="secret";',
    }
    brokers = Brokers(tmp_path, {1: "a"}, controller=1, extra=extra)
    brokers.format(classpath)
    lines = "bootstrap.servers=elsewhere:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    for name, password in (("right", "secret"), ("wrong", "guessed")):
        jaas = f'sasl.jaas.config={module} \\\n  username="ops" password="{password}";\n'
        (tmp_path / name).write_text(lines + jaas, encoding="utf-8")
    with brokers.running(classpath):
        status, report, _ = found(brokers.bootstrap, "--command-config", str(tmp_path / "right"))
        rejected = check(brokers.bootstrap, "--command-config", str(tmp_path / "wrong"))
    assert status == 0
    assert [broker["answered"] for broker in report["brokers"]] == [True]
    assert rejected.returncode == 2
    assert "Authentication failed: Invalid username or password" in rejected.stderr
    assert len(rejected.stderr.splitlines()) == 1
