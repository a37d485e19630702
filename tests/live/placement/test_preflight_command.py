"""``rackgate preflight`` and ``check --without`` with the overlay, on stock brokers and on those of Kafka 3.9."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from check_command import rackgate, unfenced
from fake_cluster import BLANK, FakeCluster
from feature_tools import ELR_FEATURE, RACKS_FEATURE
from kafka_3_9 import kafka_3_9_classpath
from loopback_brokers import Brokers
from pyhooks.core import paths
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.kafka import tools
from pyhooks.patchset import recipe
from pyhooks.patchset.distribution import Distribution
from pyhooks.placement.preflight_judgement import release_of

pytestmark = pytest.mark.timeout(600)
CONTROLLER = 100
M_2 = {"min.insync.replicas": "2"}
# a killed broker stays registered and in sync while the tests ask
PATIENT = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "120000"}


def asked(verb: str, bootstrap: str, *more: str) -> tuple[int, dict[str, Any], set[tuple[str, str]]]:
    """Run a command with ``--json``; return exit status, report, and severity and code of each finding."""
    # a busy machine needs more than the default; a healthy cluster never takes it
    patient = () if "--timeout" in more else ("--timeout", "60")
    done = rackgate(verb, "--bootstrap", bootstrap, "--json", *more, *patient)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["status"], report["ready"]) == (done.returncode, done.returncode == 0)
    return done.returncode, report, {(one["severity"], one["code"]) for one in report["findings"]}


def serious(codes: set[tuple[str, str]]) -> set[str]:
    """Return the codes that decide the exit status."""
    return {code for severity, code in codes if severity != "notice"}


def execute(command: str, classpath: str, folder: Path) -> str:
    """Execute a command of a report, with Kafka's tools from the built distribution."""
    program, *arguments = shlex.split(command)
    arguments = [str(folder / word) if word.endswith(".json") else word for word in arguments]
    if program == "rackgate":
        done = rackgate(*arguments)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout
    return tools.run(classpath, program, arguments, "")


def page_commands(name: str) -> list[list[str]]:
    """Return the arguments of ``rackgate`` in the code blocks of a page, each up to ``&&`` or ``;``."""
    text = (paths.REPO / "kip" / name).read_text(encoding="utf-8")
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    found = re.findall(r"rackgate ((?:(?!&&|;).)+)", lines)
    return [shlex.split(line) for line in found]


def create(admin: Admin, topic: str, assignment: list[list[int]], config: Mapping[str, str] | None = None) -> None:
    admin.create_topic(topic, assignment, config or {})
    for number, replicas in enumerate(assignment):
        wait_for(partial(admin.in_sync, topic, replicas, number), goal=f"{topic} in sync", timeout_s=60)


def test_a_cluster_with_the_overlay_becomes_ready_by_the_reported_commands(tmp_path: Path) -> None:
    classpath = Distribution.load().classpath()
    racks = {1: "a", 2: "a", 3: "b", 4: "c"}
    brokers = Brokers(tmp_path, racks, CONTROLLER, extra=PATIENT, own=dict.fromkeys(racks, M_2), jmx=True)
    brokers.format(classpath, "--feature", f"{RACKS_FEATURE}=0", "--feature", f"{ELR_FEATURE}=0")
    options = ("--topic", "orders", "--topic", "bad")
    nodes = ["--bootstrap-controller", brokers.controller_address, "--controller-rack", f"{CONTROLLER}=x"]
    nodes += [word for broker in racks for word in ("--jmx", f"127.0.0.1:{brokers.jmx_ports[broker]}")]
    with brokers.running(classpath), Admin(brokers.bootstrap) as admin:
        wait_for(partial(unfenced, admin, 4), goal="four brokers", timeout_s=60)
        create(admin, "orders", [[1, 2, 3, 4], [3, 4, 1, 2]])
        create(admin, "bad", [[1, 2]])
        status, report, codes = asked("preflight", brokers.bootstrap, *options, *nodes)
        assert (status, serious(codes)) == (1, {"min-isr-lost", "placement-in-too-few-racks"})
        assert not {code for _, code in codes} & {"controllers-not-asked", "produce-versions-unknown"}
        (lost,) = [one for one in report["findings"] if one["code"] == "min-isr-lost"]
        assert "min.insync.replicas=2 stands only in the properties of brokers" in lost["text"]
        assert lost["text"].endswith("for topics bad, orders")
        plan = recipe.load()
        assert {(one["role"], one["kafka"], one["overlay"]) for one in report["nodes"]} == {
            ("broker", plan.version, "yes"),
            ("controller", release_of(plan.metadata_version), "yes"),
        }
        *remedies, again = report["next"]
        assert again.startswith("rackgate preflight ")
        for command in remedies:
            execute(command, classpath, tmp_path)

        def moved() -> bool:
            return 2 not in admin.partition("bad").replicas and len(admin.partition("bad").isr) == 2

        wait_for(moved, goal="the reassignment of bad", timeout_s=60)
        status, report, codes = asked("preflight", brokers.bootstrap, *options)
        assert (status, serious(codes)) == (0, set())
        assert {code for _, code in codes} >= {
            "controllers-not-asked",
            "controller-racks-unknown",
            "produce-versions-unknown",
        }
        *enabling, verify = report["next"]
        assert [shlex.split(command)[0] for command in enabling] == [
            "kafka-features.sh",
            "kafka-configs.sh",
            "kafka-configs.sh",
        ]
        for command in enabling:
            execute(command, classpath, tmp_path)

        def enforced() -> bool:
            _, report, codes = asked("preflight", brokers.bootstrap, *options)
            return bool(report["next"] == [verify]) and not serious(codes)

        wait_for(enforced, goal="a report with nothing left to enable", timeout_s=60)
        assert "nothing at risk" in execute(verify, classpath, tmp_path)
        for page in ("rolling-restarts.md", "preflight.md"):
            for arguments in page_commands(page):
                known = [
                    {"$BOOTSTRAP": brokers.bootstrap, "plan.json": str(tmp_path / "p.json")}.get(a, a)
                    for a in arguments
                ]
                done = rackgate(*known)
                assert done.returncode in (0, 1), done.stderr
        _restarts_with_racks(brokers)
        brokers.kill(4)
        status, _, codes = asked("preflight", brokers.bootstrap, "--topic", "orders", "--timeout", "20")
        assert (status, serious(codes)) == (2, {"broker-silent"})
        status, _, codes = asked("check", brokers.bootstrap, "--topic", "orders", "--without", "1", "--timeout", "20")
        assert (status, codes) == (2, {("unknown", "broker-silent")})
        status, _, codes = asked("check", brokers.bootstrap, "--topic", "orders", "--without", "4", "--timeout", "20")
        assert (status, codes) == (0, set())


def _restarts_with_racks(brokers: Brokers) -> None:
    bootstrap = brokers.bootstrap
    assert asked("check", bootstrap, "--topic", "orders", "--without-rack", "a")[::2] == (0, set())
    # M alone would allow it: two replicas are left, both in rack a
    status, _, codes = asked("check", bootstrap, "--topic", "orders", "--without-rack", "b", "--without", "4")
    assert (status, codes) == (1, {("obstacle", "restart-always-stops")})
    status, _, codes = asked("check", bootstrap, "--topic", "bad", "--without", "1", "--accept-unavoidable")
    assert (status, codes) == (0, {("notice", "restart-always-stops")})
    assert asked("check", bootstrap, "--without", str(CONTROLLER))[::2] == (
        1,
        {("obstacle", "restart-always-stops-controllers")},
    )
    done = rackgate("check", "--bootstrap", bootstrap, "--without", "1")
    assert (done.returncode, done.stderr) == (1, "")
    assert "broker 1: must not be restarted now (1 obstacle)" in done.stdout
    assert "\x1b" not in done.stdout
    done = rackgate("check", "--bootstrap", bootstrap, "--without", "9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --without 9: no such node, there are: 1, 2, 3, 4, 100\n"


def test_a_stock_cluster_is_not_ready_and_its_restarts_are_judged_by_m(tmp_path: Path) -> None:
    stock = Distribution.load().classpath(overlay=False)
    brokers = Brokers(tmp_path, {1: "a", 2: "A", 3: ""}, controller=1, extra=PATIENT)
    brokers.format(stock)
    with brokers.running(stock), Admin(brokers.bootstrap) as admin:
        wait_for(partial(unfenced, admin, 3), goal="three brokers", timeout_s=60)
        create(admin, "orders", [[2, 3, 1]], {**M_2, "unclean.leader.election.enable": "true"})
        create(admin, "pair", [[2, 3]], M_2)
        status, report, codes = asked("preflight", brokers.bootstrap)
        assert status == 1
        assert serious(codes) == {
            "overlay-missing",
            "brokers-without-rack",
            "similar-racks",
            "placement-in-too-few-racks",
            "unclean-election",
        }
        subjects = {one["code"]: one["subject"] for one in report["findings"]}
        assert subjects["overlay-missing"] == "brokers 1, 2, 3"
        assert subjects["brokers-without-rack"] == "broker 3"
        assert subjects["similar-racks"] == "brokers 1, 2"
        assert subjects["unclean-election"] == "orders"
        # the broker without a rack does not add one
        assert subjects["placement-in-too-few-racks"] == "pair"
        assert {(one["kafka"], one["overlay"]) for one in report["nodes"]} == {
            (release_of(recipe.load().metadata_version), "no")
        }
        done = rackgate("preflight", "--bootstrap", brokers.bootstrap)
        assert done.returncode == 1
        assert "min.insync.racks=2 for 2 topics: not ready (5 obstacles," in done.stdout
        assert asked("check", brokers.bootstrap, "--topic", "orders", "--without", "3")[::2] == (0, set())
        status, _, codes = asked("check", brokers.bootstrap, "--without", "3")
        assert (status, codes) == (1, {("obstacle", "restart-always-stops")})
        status, _, codes = asked("check", brokers.bootstrap, "--topic", "orders", "--without-rack", "a")
        assert (status, codes) == (1, {("obstacle", "restart-always-stops-controllers")})
        brokers.kill(3)
        status, _, codes = asked("preflight", brokers.bootstrap, "--timeout", "20")
        assert (status, {("unknown", "broker-silent"), ("obstacle", "overlay-missing")} <= codes) == (1, True)
        status, _, codes = asked("check", brokers.bootstrap, "--topic", "orders", "--without", "2", "--timeout", "20")
        assert (status, codes) == (2, {("unknown", "broker-silent")})


def _as_3_9(name: str, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Respond like a broker of Kafka 3.9, which knows neither fenced brokers in DescribeCluster nor later features."""
    if name == "ApiVersions":
        versions = {0: 11, 3: 12, 18: 4, 32: 4, 46: 0, 55: 1, 60: 1}
        return {
            "errorCode": 0,
            "throttleTimeMs": 0,
            "apiKeys": [{"apiKey": key, "minVersion": 0, "maxVersion": version} for key, version in versions.items()],
            "supportedFeatures": [{"name": "metadata.version", "minVersion": 1, "maxVersion": 21}],
            "finalizedFeaturesEpoch": 7,
            "finalizedFeatures": [{"name": "metadata.version", "maxVersionLevel": 21, "minVersionLevel": 21}],
        }
    if name == "DescribeConfigs":
        results = []
        for one in request["resources"]:
            value, source = ("2", 1) if one["resourceType"] == 2 else ("1", 5)
            config = {**BLANK, "name": "min.insync.replicas", "value": value, "configSource": source}
            kept = {key: value for key, value in one.items() if key != "configurationKeys"}
            results.append({**kept, "errorCode": 0, "errorMessage": None, "configs": [config]})
        return {"throttleTimeMs": 0, "results": results}
    return None


def test_kafka_3_9_can_be_judged() -> None:
    fake = FakeCluster({1: "a", 2: "b", 3: "c"}, {"orders": [[1, 2, 3]]}, odd=dict.fromkeys((1, 2, 3), _as_3_9))
    with fake.running():
        status, report, codes = asked("preflight", fake.bootstrap)
        assert (status, serious(codes)) == (1, {"kafka-version", "metadata-version-too-low"})
        assert {one["kafka"] for one in report["nodes"]} == {"3.9"}
        assert asked("check", fake.bootstrap, "--without", "3")[::2] == (0, set())
        assert asked("check", fake.bootstrap, "--without", "2,3")[0] == 1


# "make kafka-long": it downloads another Kafka
@pytest.mark.long
def test_brokers_of_kafka_3_9_are_judged(tmp_path: Path) -> None:
    classpath = kafka_3_9_classpath(tmp_path)
    brokers = Brokers(tmp_path, {1: "a", 2: "a", 3: "b"}, CONTROLLER, extra=PATIENT)
    brokers.format(classpath)
    with brokers.running(classpath), Admin(brokers.bootstrap) as admin:
        wait_for(partial(unfenced, admin, 3), goal="three brokers", timeout_s=60)
        create(admin, "orders", [[1, 2, 3]], M_2)
        create(admin, "narrow", [[1, 2]])
        status, report, codes = asked("preflight", brokers.bootstrap)
        assert (status, serious(codes)) == (
            1,
            {"kafka-version", "metadata-version-too-low", "placement-in-too-few-racks"},
        )
        assert {one["kafka"] for one in report["nodes"] if one["role"] == "broker"} == {"3.9"}
        enforced = rackgate("check", "--bootstrap", brokers.bootstrap, "--expect-racks", "2", "--json")
        assert enforced.returncode == 1
        assert {one["code"] for one in json.loads(enforced.stdout)["findings"]} >= {"racks-below-expected"}
        assert asked("check", brokers.bootstrap, "--topic", "orders", "--without", "3")[::2] == (0, set())
        status, _, codes = asked("check", brokers.bootstrap, "--topic", "orders", "--without-rack", "a")
        assert (status, codes) == (1, {("obstacle", "restart-always-stops")})
        brokers.kill(3)
        status, _, codes = asked("check", brokers.bootstrap, "--topic", "orders", "--without", "2", "--timeout", "20")
        assert (status, codes) == (2, {("unknown", "broker-silent")})
