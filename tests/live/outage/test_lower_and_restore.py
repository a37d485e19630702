"""``rackgate lower``, ``restore`` and ``audit`` on brokers in racks a, a, b: rack b is killed, or the commands are."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from check_command import check
from feature_tools import RACKS, RACKS_REJECTED, SETTLES_S, TOPIC, configs, create_topic, produce, wait_in_sync
from loopback_brokers import Brokers, closed_port
from outage_commands import LOWER, OutageOperator
from pyhooks.audit.journal import DEFAULT_TOPIC
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.jvm.admin import Admin
from pyhooks.kafka import topics
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.requirement_changes import query_requirements

pytestmark = pytest.mark.timeout(580)
CONTROLLER = 100
A1, A2, B = ALL = (1, 2, 3)
TWO = {"min.insync.replicas": "2"}
# the rest of a minute is for slow machines
WITHIN = ("--within", "60s")
FILE = ("pyhooks.audit.audit_file", "AuditFile", "append")
AUDIT_TOPIC = ("pyhooks.audit.audit_topic", "AuditTopic", "append")
CHANGE = ("pyhooks.outage.cluster_access", "OutageCluster", "set_racks")


@pytest.fixture(scope="module")
def classpath() -> str:
    return Distribution.load().classpath()


@pytest.fixture(scope="module")
def brokers(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Run brokers with the gated topic, which requires two racks."""
    folder = tmp_path_factory.mktemp("brokers")
    made = Brokers(folder, {A1: "a", A2: "a", B: "b"}, CONTROLLER, extra={"auto.leader.rebalance.enable": "false"})
    made.format(classpath)
    with made.running(classpath):
        create_topic(made, {**TWO, RACKS: "2"}, replicas=ALL)
        yield made


@pytest.fixture
def operator(brokers: Brokers, tmp_path: Path) -> OutageOperator:
    return OutageOperator(brokers.bootstrap, tmp_path / "state" / "audit.jsonl")


def setting(brokers: Brokers, *more: str) -> tuple[dict[str, object], set[tuple[str, str]]]:
    """Return value and source of R of the gated topic, and the findings above a notice that are about R."""
    report = json.loads(check(brokers.bootstrap, "--json", *more).stdout)
    (topic,) = [one for one in report["topics"] if one["name"] == TOPIC]
    found = {(one["topic"] or "", one["code"]) for one in report["findings"]}
    return topic["min_insync_racks"], {one for one in found if one[1] in ("racks-below-expected", "restore-missed")}


def required(brokers: Brokers) -> set[int]:
    """Return R of the gated topic as its brokers report it, once one does."""

    def reported() -> set[int]:
        try:
            answers = query_requirements(topics.admin(brokers.bootstrap), TOPIC).answers.values()
        except RackgateError:
            # a query of three seconds can fail on a busy machine
            return set()
        return {value.racks for value in answers}

    return wait_for(reported, goal=f"a value of {TOPIC}", timeout_s=SETTLES_S)


def test_lowered_in_an_outage_and_restored_when_the_rack_is_back(
    brokers: Brokers, operator: OutageOperator, classpath: str, tmp_path: Path
) -> None:
    assert produce(brokers) == "ok"
    brokers.kill(B)
    try:
        wait_in_sync(brokers, (A1, A2))
        assert produce(brokers) == RACKS_REJECTED
        assert produce(brokers, "1") == "ok"
        asked = operator.run("lower", TOPIC, "--to", "1", "--for", "1s", "--reason", "rack b lost power")
        assert (asked.returncode, produce(brokers)) == (1, RACKS_REJECTED)
        assert "1 reject acks=all now and would accept it again" in asked.stdout
        assert "one rack alone (a) would acknowledge in 1: at once " in asked.stdout
        assert "use --yes" in asked.stderr

        lowered = operator.lower("--for", "1s")
        assert lowered.returncode == 0, lowered.stdout + lowered.stderr
        assert "gated: lowered: min.insync.racks is 1 (before: 2)" in lowered.stdout
        assert produce(brokers) == "ok"
        status, found, report = operator.audit()
        assert (status, found) == (1, [(TOPIC, "waiting")])
        (lowering,) = report["lowerings"]
        assert [(one["event"], one["in_file"], one["in_topic"]) for one in lowering["records"]] == [
            ("intended", True, True),
            ("applied", True, True),
        ]
        # another host knows it from the topic, and does not lower it again
        other = OutageOperator(brokers.bootstrap, tmp_path / "other" / "audit.jsonl")
        assert other.audit()[:2] == (1, [(TOPIC, "waiting")])
        assert other.lower("--for", "1s").returncode == 1
        waits = other.run("restore", "--due")
        assert waits.returncode == 1
        assert "gated: waiting: not restored: gated-0 has in-sync replicas in 1 of 2 racks (a)" in waits.stderr
        assert setting(brokers, "--expect-racks", "2")[1] == {
            (TOPIC, "racks-below-expected"),
            (TOPIC, "restore-missed"),
        }
    finally:
        brokers.start(B, classpath)
    restored = operator.run("restore", TOPIC, "--until-healed", *WITHIN)
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert "gated: restored: min.insync.racks is 2 again" in restored.stdout
    wait_in_sync(brokers, ALL)
    assert setting(brokers, "--expect-racks", "2") == ({"value": 2, "source": "topic"}, set())
    assert operator.audit()[:2] == (0, [(TOPIC, "restored")])
    with Admin(brokers.bootstrap) as admin:
        placed = {brokers.racks[replica] for replica in admin.partition(DEFAULT_TOPIC).replicas}
    assert placed == {"a", "b"}
    assert produce(brokers) == "ok"


def test_an_inherited_value_is_inherited_again(brokers: Brokers, operator: OutageOperator, classpath: str) -> None:
    assert configs(classpath, brokers, "brokers", "", "--add-config", f"{RACKS}=2").status == 0
    assert configs(classpath, brokers, "topics", TOPIC, "--delete-config", RACKS).status == 0
    try:
        assert operator.lower("--until-healed").returncode == 0
        assert setting(brokers)[0] == {"value": 1, "source": "topic"}
        done = operator.run("restore", "--due")
        assert done.returncode == 0, done.stdout + done.stderr
        assert setting(brokers)[0] == {"value": 2, "source": "cluster"}
    finally:
        assert configs(classpath, brokers, "topics", TOPIC, "--add-config", f"{RACKS}=2").status == 0
        assert configs(classpath, brokers, "brokers", "", "--add-config", f"{RACKS}=1").status == 0


# "make kafka-long" runs all of them; the unit tests kill both commands in memory at each step
@pytest.mark.parametrize(
    ("step", "status", "value"),
    [
        pytest.param((*FILE, 1, "after"), "unfinished", 2, marks=pytest.mark.long, id="intended in file"),
        pytest.param((*AUDIT_TOPIC, 1, "after"), "unfinished", 2, marks=pytest.mark.long, id="intended in topic"),
        pytest.param((*CHANGE, 1, "before"), "unfinished", 2, marks=pytest.mark.long, id="before change"),
        pytest.param((*CHANGE, 1, "after"), "due", 1, id="after change"),
        pytest.param((*FILE, 2, "after"), "due", 1, marks=pytest.mark.long, id="applied in file"),
        pytest.param((*AUDIT_TOPIC, 2, "after"), "due", 1, marks=pytest.mark.long, id="applied in topic"),
    ],
)
def test_lower_is_killed(
    brokers: Brokers, operator: OutageOperator, step: tuple[str, str, str, int, str], status: str, value: int
) -> None:
    operator.run_killed(step, "lower", TOPIC, *LOWER, "--for", "1s")
    assert required(brokers) == {value}
    code, found, _ = operator.audit()
    assert (code, found[-1]) == (1, (TOPIC, status))
    done = operator.run("restore", "--due")
    assert done.returncode == 0, done.stdout + done.stderr
    assert required(brokers) == {2}
    code, found, _ = operator.audit()
    assert (code, found[-1]) == (0, (TOPIC, "abandoned" if value == 2 else "restored"))


@pytest.mark.parametrize(
    ("step", "status", "value"),
    [
        pytest.param((*FILE, 1, "after"), "due", 1, marks=pytest.mark.long, id="restoring in file"),
        pytest.param((*CHANGE, 1, "after"), "unfinished", 2, id="after change"),
        pytest.param((*FILE, 2, "after"), "restored", 2, marks=pytest.mark.long, id="restored in file"),
    ],
)
def test_restore_is_killed(
    brokers: Brokers, operator: OutageOperator, step: tuple[str, str, str, int, str], status: str, value: int
) -> None:
    assert operator.lower("--for", "1s").returncode == 0
    operator.run_killed(step, "restore", "--due")
    assert required(brokers) == {value}
    assert operator.audit()[1][-1] == (TOPIC, status)
    assert operator.run("restore", "--due").returncode == 0
    assert required(brokers) == {2}
    assert operator.audit()[1][-1] == (TOPIC, "restored")


def test_the_command_stays_and_restores(brokers: Brokers, operator: OutageOperator) -> None:
    done = operator.run("lower", TOPIC, "--to", "1", "--for", "2s", "--reason", "drill", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gated: restored: min.insync.racks is 2 again" in done.stdout
    assert required(brokers) == {2}


def test_ctrl_c_leaves_the_record_and_names_what_restores(brokers: Brokers, operator: OutageOperator) -> None:
    running = operator.start("lower", TOPIC, "--to", "1", "--for", "2h", "--reason", "drill", "--yes")
    try:
        wait_for(partial(applied, operator.file), goal="the lowering", timeout_s=SETTLES_S)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "to restore: rackgate restore" in errors
    assert operator.audit()[1][-1] == (TOPIC, "active")
    assert operator.run("restore", "--due").returncode == 0
    assert required(brokers) == {1}
    assert operator.run("restore", TOPIC).returncode == 0
    assert required(brokers) == {2}


def test_without_the_cluster_the_audit_is_that_of_the_file(brokers: Brokers, operator: OutageOperator) -> None:
    assert operator.lower("--for", "1s").returncode == 0
    with closed_port() as port:
        offline = OutageOperator(f"127.0.0.1:{port}", operator.file)
        status, found, report = offline.audit()
        assert (status, found) == (2, [(TOPIC, "unknown")])
        assert "can't be reached" in report["unknown"][0]
        assert offline.run("restore").returncode == 2
    assert operator.run("restore", "--due").returncode == 0
    assert required(brokers) == {2}


def applied(file: Path) -> bool:
    """Return whether a lowering was recorded as applied."""
    return file.exists() and '"event":"applied"' in file.read_text(encoding="ascii")
