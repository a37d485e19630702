"""Kafka's own system tests without a lab: checkout, cases, scripts of nodes, results, session and command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from ducktape_tests.kafkatest import cli, nodes, results, session
from ducktape_tests.kafkatest.cases import Case, KafkaSuite, SuiteCase, select
from ducktape_tests.kafkatest.checkout import Checkout
from ducktape_tests.kafkatest.nodes import Arm
from ducktape_tests.kafkatest.results import ArmResult, Verdict
from ducktape_tests.kafkatest.session import Environment, Job, Session
from pyhooks.core import files, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.lab import topology
from pyhooks.patchset import series
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.series import file_diffs

KRAFT = {"metadata_quorum": "ISOLATED_KRAFT"}
ONE = Case("tests/core/one_test.py", "One", "test_it", {**KRAFT, "mode": "clean"}, 3)
OTHER = Case("tests/core/one_test.py", "One", "test_it", {**KRAFT, "mode": "hard"}, 4)
TWO = Case("tests/client/two_test.py", "Two", "test_two", KRAFT, 5)
STREAMS = Case("tests/streams/three_test.py", "Three", "test_three", KRAFT, 5)
OWN_FILE = "tests/core/min_insync_racks_test.py"
OWN = Case(OWN_FILE, "MinInsyncRacksTest", "test_rack_outage", KRAFT, 8)
ALL = (ONE, OTHER, TWO, STREAMS)
SUITE = KafkaSuite(
    (
        SuiteCase(ONE.test, 1, "pass", "two racks remain", ONE.args),
        SuiteCase(TWO.test, 2, "fail", "one", TWO.args),
        SuiteCase(OWN.test, 3, "fail", "plain", OWN.args, patched=True),
    ),
    (("tests/streams/*", "needs streams"),),
)
LOGS: Mapping[Arm, str] = {
    "stock": "KafkaConfig values: \n",
    "overlay": "KafkaConfig values: \nx -> 1,min.insync.racks -> 1\nmin.insync.racks is enforced from now on\n",
    "gate": "KafkaConfig values: \nx -> 1,min.insync.racks -> 2\nmin.insync.racks is enforced from now on\n",
}


class Node:
    """Account of a node as ducktape prints it."""

    def __repr__(self) -> str:
        return "{'ssh_config': {'host': 'x', 'port': 22}, '_logger': <Logger a.b=c (DEBUG)>, 'pid': 6}"


class RemoteCommandError(Exception):
    """Error of the same name as ducktape's."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Folder with what a checkout must have."""
    root = tmp_path / "checkout"
    files.write_text(root / "tests" / "kafkatest" / "__init__.py", "__version__ = '4.0.0.dev0'\n")
    files.write_text(root / "tests" / "kafkatest" / "tool.py", "cmd = 'kafka.tools.JmxTool kafka.tools.Missing'\n")
    files.write_text(root / "bin" / "kafka-acls.sh", "exec $(dirname $0)/kafka-run-class.sh kafka.admin.AclCommand\n")
    # prints its arguments and what the script before it exports
    original = 'printf "%s\\n" "$@" "cp=$CLASSPATH" "opts=$KAFKA_OPTS" "heap=$KAFKA_HEAP_OPTS"\n'
    files.write_text(root / "bin" / "kafka-run-class.sh", f"#!/bin/bash\n{original}", mode=0o755)
    (root / "config").mkdir()
    return root


# -- checkout -----------------------------------------------------------------------------------------------------


def test_a_checkout_has_a_version_and_a_fingerprint_of_its_tests(checkout: Path) -> None:
    opened = Checkout.open(checkout)
    assert opened.version == "4.0.0.dev0"
    before = opened.fingerprint()
    (checkout / "tests" / "kafkatest" / "tool.pyc").write_bytes(b"x")
    (checkout / "README.md").write_text("x")
    assert opened.fingerprint() == before
    (checkout / "config" / "log4j.properties").write_text("x")
    assert opened.fingerprint() != before


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("", "no such folder"),
        ("tests/kafkatest/__init__.py", "has no tests/kafkatest/__init__.py; give the root"),
        ("bin/kafka-run-class.sh", "has no bin/kafka-run-class.sh"),
    ],
)
def test_what_a_checkout_lacks_is_named(checkout: Path, missing: str, text: str) -> None:
    target = checkout / missing
    if missing:
        target.unlink()
    root = checkout if missing else checkout / "nowhere"
    with pytest.raises(RackgateError, match=text):
        Checkout.open(root)


@pytest.mark.parametrize(
    ("init", "text"), [("", "has no __version__"), ("__version__ = '3.9.0'", r"of version 3\.9\.0, must be 4\.x")]
)
def test_tests_of_another_major_version_are_rejected(checkout: Path, init: str, text: str) -> None:
    (checkout / "tests" / "kafkatest" / "__init__.py").write_text(init)
    with pytest.raises(RackgateError, match=text):
        Checkout.open(checkout)


def test_patches_apply_to_a_copy(checkout: Path) -> None:
    before = sorted(checkout.rglob("*"))
    opened = Checkout.open(checkout)
    with opened.patched(series.load_checkout()) as copy:
        assert (copy.tests / OWN_FILE).is_file()
        assert (copy.version, copy.fingerprint() == opened.fingerprint()) == (opened.version, False)
        fingerprint = copy.fingerprint()
    assert not copy.root.exists()
    assert sorted(checkout.rglob("*")) == before
    with opened.patched(series.load_checkout()) as copy:
        assert copy.fingerprint() == fingerprint
    files.write_text(checkout / "tests" / "kafkatest" / OWN_FILE, "another\n")
    with pytest.raises(RackgateError, match="apply checkout/0001"), opened.patched(series.load_checkout()):
        pass


# -- cases --------------------------------------------------------------------------------------------------------


def test_the_shipped_suite_is_valid_and_predicts_every_case() -> None:
    suite = KafkaSuite.read()
    assert {case.gate for case in suite.cases} == {"pass", "fail"}
    assert len({(case.test, json.dumps(case.args)) for case in suite.cases}) == len(suite.cases)
    assert all(case.args["metadata_quorum"] in ("ISOLATED_KRAFT", "COMBINED_KRAFT") for case in suite.cases)
    # 25 minutes an arm with two labs at a time
    assert sum(case.minutes for case in suite.cases if not case.patched) <= 50


def test_the_suite_has_each_case_that_patches_add() -> None:
    (patch,) = series.load_checkout()
    added = [line[1:] for diff in file_diffs(patch.text) for hunk in diff.hunks for line in hunk]
    tests = {line.split("def ")[1].split("(")[0] for line in added if line.startswith("    def test_")}
    own = [case for case in KafkaSuite.read().cases if case.patched]
    assert {case.test for case in own} == {f"{OWN_FILE}::MinInsyncRacksTest.{test}" for test in tests}
    assert f"tests/kafkatest/{OWN_FILE}" in patch.files
    assert {case.gate for case in own} == {"fail"}


def test_a_suite_with_an_unknown_prediction_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text('[[case]]\ntest = "a_test.py::A.test_a"\nminutes = 1\ngate = "maybe"\nbecause = "x"\n')
    with pytest.raises(RackgateError, match="gate"):
        KafkaSuite.read(path)


def test_ids_and_names_tell_cases_apart() -> None:
    assert ONE.id == 'tests/core/one_test.py::One.test_it@{"metadata_quorum": "ISOLATED_KRAFT", "mode": "clean"}'
    assert Case("a_test.py", "A", "test_a", {}).id == "a_test.py::A.test_a"
    assert len({case.name for case in ALL}) == len(ALL)
    assert ONE.name.startswith("one_test.test_it.")
    assert results.short(ONE.id) == "One.test_it mode=clean"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case("a.py", "A", "t", {}), "needs ZooKeeper"),
        (Case("a.py", "A", "t", {"metadata_quorum": "ZK"}), "needs ZooKeeper"),
        (Case("a.py", "A", "t", {**KRAFT, "security_protocol": "SASL_SSL"}), "needs SASL"),
        (Case("a.py", "A", "t", {**KRAFT, "consumer_version": "0.10.2.2"}), "needs an older version of Kafka"),
        (Case("a.py", "A", "t", KRAFT, ignored=True), "the checkout ignores it"),
        (STREAMS, "needs streams"),
        (Case("a.py", "A", "t", {**KRAFT, "consumer_version": "dev", "tls_version": "TLSv1.2"}), ""),
        (ONE, ""),
    ],
)
def test_cases_that_cannot_run_here_are_skipped_with_a_reason(case: Case, why: str) -> None:
    assert SUITE.why_skipped(case) == why


def test_selections() -> None:
    assert select(ALL, SUITE, ()) == (ONE, TWO)
    assert select(ALL, SUITE, (), everything=True) == (ONE, OTHER, TWO)
    assert select(ALL, SUITE, ("one_test.py",)) == (ONE, OTHER)
    assert select(ALL, SUITE, ("core/one_test.py::One",)) == (ONE, OTHER)
    assert select(ALL, SUITE, ("two_test.py::Two.test_two", OTHER.id)) == (OTHER, TWO)
    for name, text in (("ne_test.py", "no such test"), ("one_test.py::On", "no such"), ("three_test.py", "needs str")):
        with pytest.raises(RackgateError, match=text):
            select(ALL, SUITE, (name,))
    assert select((*ALL, OWN), SUITE, (), patched=True) == (OWN,)
    assert select((*ALL, OWN), SUITE, ("one_test.py",), patched=True) == (ONE, OTHER)
    with pytest.raises(RackgateError, match=r"the checkout has no tests/client/two_test\.py::Two\.test_two with"):
        select((ONE,), SUITE, ())


# -- nodes --------------------------------------------------------------------------------------------------------


def _tree(tmp_path: Path, checkout: Path, arm: Arm) -> Path:
    libs = tmp_path / "libs"
    libs.mkdir(exist_ok=True)
    with zipfile.ZipFile(libs / "kafka-tools-4.0.0.jar", "w") as jar:
        for name in ("tools/AclCommand", "tools/AclCommand$Inner", "tools/JmxTool", "one/Missing", "two/Missing"):
            jar.writestr(f"org/apache/kafka/{name}.class", "")
    tree = tmp_path / f"nodes-{arm}"
    nodes.write_tree(tree, checkout, arm, nodes.moved_classes(checkout, libs))
    # in place of the mount
    (tree / "original").rmdir()
    (tree / "original").symlink_to(checkout / "bin")
    return tree


def _run_class(tree: Path, *arguments: str, **env: str) -> list[str]:
    command = [str(tree / "bin" / "kafka-run-class.sh"), *arguments]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"], **env}, text=True, capture_output=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_classes_and_options_have_their_present_names(tmp_path: Path, checkout: Path) -> None:
    tree = _tree(tmp_path, checkout, "stock")
    acl = _run_class(tree, "kafka.admin.AclCommand", "--add", '{"a":["$(x)"]}', "", "--property")
    assert acl[:5] == ["org.apache.kafka.tools.AclCommand", "--add", '{"a":["$(x)"]}', "", "--property"]
    assert acl[5:] == ["cp=", "opts= -Dlog4j1.compatibility=true", "heap="]
    consumer = _run_class(
        tree, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--consumer.config", "f", "--property", "k=v"
    )
    assert consumer[1:5] == ["--command-config", "f", "--formatter-property", "k=v"]
    # ambiguous, so it is left as it is
    assert _run_class(tree, "kafka.tools.Missing")[0] == "kafka.tools.Missing"
    script = subprocess.run(["bash", tree / "bin" / "kafka-acls.sh"], text=True, capture_output=True, check=True)
    assert script.stdout.startswith("org.apache.kafka.tools.AclCommand\n")


def test_the_overlay_comes_first_and_servers_have_a_small_heap(tmp_path: Path, checkout: Path) -> None:
    tree = _tree(tmp_path, checkout, "overlay")
    got = _run_class(tree, "kafka.Kafka", CLASSPATH="/x", KAFKA_HEAP_OPTS="-Xmx1G -Xms1G", KAFKA_OPTS="-Da=b")
    assert got == [
        "kafka.Kafka",
        f"cp={tree}/overlay/*:/x",
        "opts=-Da=b -Dlog4j1.compatibility=true",
        f"heap={nodes.HEAP}",
    ]


@pytest.mark.parametrize(
    ("properties", "added"),
    [
        ("process.roles=broker\nnode.id=1\n", "broker.rack=a\nmin.insync.racks=2\n"),
        ("process.roles=broker\nnode.id=3\n", "broker.rack=c\nmin.insync.racks=2\n"),
        ("process.roles=broker,controller\nnode.id=4\n", "broker.rack=a\nmin.insync.racks=2\n"),
        ("process.roles=controller\nnode.id=3001\n", "min.insync.racks=2\n"),
        ("broker.rack=r\nprocess.roles=broker\nnode.id=1\n", "min.insync.racks=2\n"),
    ],
)
def test_gate_adds_racks_and_the_requirement_once(tmp_path: Path, checkout: Path, properties: str, added: str) -> None:
    tree = _tree(tmp_path, checkout, "gate")
    path = tmp_path / "kafka.properties"
    path.write_text(properties)
    for arguments in (["kafka.tools.StorageTool", "format", "--config", str(path)], ["kafka.Kafka", str(path)]):
        assert _run_class(tree, *arguments)[: len(arguments)] == arguments
        assert path.read_text() == properties + added


def test_other_arms_leave_the_properties_as_they_are(tmp_path: Path, checkout: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text("process.roles=broker\nnode.id=1\n")
    _run_class(_tree(tmp_path, checkout, "overlay"), "kafka.Kafka", str(path))
    assert path.read_text() == "process.roles=broker\nnode.id=1\n"


def test_programs_that_a_node_may_lack(tmp_path: Path, checkout: Path) -> None:
    programs = _tree(tmp_path, checkout, "stock") / "programs"
    assert subprocess.check_output([programs / "sudo", "-E", "echo", "a b"], text=True) == "a b\n"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
        rejected = subprocess.run([programs / "nc", "-z", "127.0.0.1", port], check=False)
        listener.listen()
        accepted = subprocess.run([programs / "nc", "-w", "3", "-z", "127.0.0.1", port], check=False)
    assert (rejected.returncode != 0, accepted.returncode) == (True, 0)


def test_mounts_of_an_arm() -> None:
    stock = nodes.mounts(Path("/c"), Distribution(Path("/d")), "stock")
    assert stock == ["/c/bin", "original", "/c/config", "config", "/d/libs", "libs"]
    assert nodes.mounts(Path("/c"), Distribution(Path("/d")), "gate") == [*stock, "/d/overlay", "overlay"]


@pytest.mark.parametrize("arm", nodes.ARMS)
@pytest.mark.parametrize("ran", nodes.ARMS)
def test_logs_prove_their_own_arm_only(tmp_path: Path, arm: Arm, ran: Arm) -> None:
    log = tmp_path / "kafka.log"
    log.write_text(LOGS[ran])
    assert (nodes.why_unproved(arm, [log]) == "") == (arm == ran)
    assert nodes.why_unproved(arm, [])


def test_the_requirement_of_a_topic_proves_no_arm(tmp_path: Path) -> None:
    log = tmp_path / "kafka.log"
    log.write_text(LOGS["overlay"] + "Updating topic gated with new configuration : min.insync.racks -> 2\n")
    assert nodes.why_unproved("overlay", [log]) == ""
    assert nodes.why_unproved("gate", [log])


# -- results ------------------------------------------------------------------------------------------------------


def _write_report(folder: Path, arm: Arm, status: str, summary: str = "") -> None:
    files.write_json(
        folder / "results" / "1" / "report.json", {"results": [{"test_status": status, "summary": summary}]}
    )
    (folder / "results" / "latest").unlink(missing_ok=True)
    (folder / "results" / "latest").symlink_to(folder / "results" / "1")
    files.write_text(folder / "results" / "1" / "A" / "node" / "server-start-stdout-stderr.log", LOGS[arm])


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("PASS", ("pass", "")),
        ("FAIL", ("fail", "TimeoutError('no members')")),
        ("IGNORE", ("unknown", "ducktape's status is ignore")),
    ],
)
def test_verdicts(tmp_path: Path, status: str, expected: tuple[Verdict, str]) -> None:
    _write_report(tmp_path, "overlay", status, "TimeoutError('no members')\nTraceback …\n")
    assert results.judge(tmp_path, "overlay", "") == expected


def test_a_failed_command_is_named_with_its_output(tmp_path: Path) -> None:
    command = "/opt/kafka-dev/bin/kafka-topics.sh --create --config a='b'"
    error = RemoteCommandError(Node(), command, 1, b"[x] ERROR Unknown topic config name: min.insync.racks\n (T)\n")
    _write_report(tmp_path, "stock", "FAIL", f"{error!r}\nTraceback …\n")
    expected = f"kafka-topics.sh ended with status 1: [x] ERROR {results.UNKNOWN_CONFIG}"
    assert results.judge(tmp_path, "stock", "") == ("fail", expected)


def test_a_failure_with_rack_errors_is_marked(tmp_path: Path) -> None:
    _write_report(tmp_path, "gate", "FAIL", "TimeoutError('no records')")
    output = tmp_path / "results" / "1" / "A" / "node" / "verifiable_producer.stdout"
    files.write_text(output, '{"exception":"class org.apache.kafka.common.errors.NotEnoughReplicasException"}\n')
    assert results.judge(tmp_path, "gate", "") == ("fail", "TimeoutError('no records')")
    files.write_text(output, '{"exception":"class org.apache.kafka.common.errors.NotEnoughRacksException"}\n')
    verdict, reason = results.judge(tmp_path, "gate", "")
    assert (verdict, reason) == ("fail", f"TimeoutError('no records'){results.RACK_ERRORS}")


@pytest.mark.parametrize(
    ("verdict", "reason", "problem"),
    [
        ("fail", f"no records{results.RACK_ERRORS}", ""),
        ("fail", "no members", "fails on gate for another reason than predicted: one"),
        ("pass", "", "was predicted to fail on gate: one"),
    ],
)
def test_a_predicted_failure_needs_rack_errors(verdict: Verdict, reason: str, problem: str) -> None:
    document = results.compare((TWO,), SUITE, {(TWO.id, "gate"): _result(TWO, "gate", verdict, reason)}, ("gate",))
    assert document["cases"][0]["problems"] == ([problem] if problem else [])


def test_a_pass_in_another_arm_than_planned_is_unknown(tmp_path: Path) -> None:
    _write_report(tmp_path, "overlay", "PASS")
    verdict, reason = results.judge(tmp_path, "gate", "")
    assert (verdict, "not proved" in reason) == ("unknown", True)


def test_a_run_without_a_report_or_stopped_is_unknown(tmp_path: Path) -> None:
    assert results.judge(tmp_path, "stock", "") == ("unknown", "ducktape reported 0 results, expected 1: ")
    files.write_text(tmp_path / "session.log", "start\nerror: no memory\n\n")
    assert results.judge(tmp_path, "stock", "")[1].endswith("expected 1: error: no memory")
    _write_report(tmp_path, "stock", "PASS")
    assert results.judge(tmp_path, "stock", "stopped after 8 minutes") == ("unknown", "stopped after 8 minutes")


def _result(case: Case, arm: Arm, verdict: Verdict, reason: str = "") -> ArmResult:
    return ArmResult(case.id, arm, verdict, 60.0, reason, "c", "4.0.0")


@pytest.mark.parametrize(
    ("verdicts", "status", "problem"),
    [
        (("pass", "pass", "pass"), 0, ""),
        (("fail", "fail", "pass"), 0, ""),
        (("fail", "pass", "pass"), 0, ""),
        (("pass", "fail", "pass"), 1, "passes on stock and fails on the overlay"),
        (("pass", "pass", "fail"), 1, "was predicted to pass on gate: two racks remain"),
        (("pass", "pass", "unknown"), 2, ""),
        (("pass", "pass", None), 2, ""),
        (("pass", "fail", "unknown"), 1, "passes on stock and fails on the overlay"),
    ],
)
def test_comparison(verdicts: Sequence[Verdict | None], status: int, problem: str) -> None:
    found = {
        (ONE.id, arm): _result(ONE, arm, verdict)
        for arm, verdict in zip(nodes.ARMS, verdicts, strict=True)
        if verdict is not None
    }
    document = results.compare((ONE,), SUITE, found, nodes.ARMS)
    assert document["exit_status"] == status
    assert document["cases"][0]["problems"] == ([problem] if problem else [])
    assert document["cases"][0]["predicted"] == {"gate": "pass", "because": "two racks remain"}


@pytest.mark.parametrize(
    ("stock", "overlay", "reason", "problems"),
    [
        ("fail", "pass", results.UNKNOWN_CONFIG, []),
        ("fail", "fail", results.UNKNOWN_CONFIG, ["fails on the overlay"]),
        ("fail", "pass", "no node", ["fails on stock for another reason than the missing min.insync.racks"]),
        ("pass", "pass", "", ["passes on stock, which has no min.insync.racks"]),
    ],
)
def test_a_case_that_a_patch_adds_fails_on_stock_only(
    stock: Verdict, overlay: Verdict, reason: str, problems: list[str]
) -> None:
    verdicts: Mapping[Arm, Verdict] = {"stock": stock, "overlay": overlay}
    found = {(OWN.id, arm): _result(OWN, arm, verdict, reason) for arm, verdict in verdicts.items()}
    document = results.compare((OWN,), SUITE, found, ("stock", "overlay"))
    assert (document["exit_status"], document["cases"][0]["problems"]) == (1 if problems else 0, problems)


def test_arms_that_were_not_requested_need_no_verdict() -> None:
    document = results.compare((OTHER,), SUITE, {(OTHER.id, "stock"): _result(OTHER, "stock", "pass")}, ("stock",))
    assert (document["exit_status"], document["cases"][0]["overlay"]) == (0, "not run")
    assert results.compare((), SUITE, {}, ("stock",))["exit_status"] == 2


def test_results_are_stored_and_malformed_ones_named(tmp_path: Path) -> None:
    path = results.result_path(tmp_path, "stock", ONE)
    _result(ONE, "stock", "pass").save(path)
    assert results.load_all(tmp_path, ALL) == {(ONE.id, "stock"): _result(ONE, "stock", "pass")}
    files.write_json(path, {"schema": 1, "verdict": "maybe", "arm": "stock"})
    with pytest.raises(RackgateError, match=f"{path}: case: is missing"):
        results.load_all(tmp_path, ALL)
    _result(TWO, "stock", "pass").save(path)
    with pytest.raises(RackgateError, match="has a result of"):
        results.load_all(tmp_path, ALL)


# -- session and command --------------------------------------------------------------------------------------------


def test_the_topology_of_a_lab_has_the_nodes_of_the_case() -> None:
    wanted = topology.parse(tomllib.loads(session.topology_text(7)), source="x")
    assert len(wanted.nodes) == 7
    assert not wanted.links


def _environment(tmp_path: Path) -> Environment:
    kafka = Distribution(tmp_path / "dist")
    manifest = {"kafka_version": "4.0.0", "patch_hash": "abc", "files": {}, "overlay": [], "patches": []}
    files.write_json(kafka.root / "manifest.json", manifest)
    trees = {arm: tmp_path / f"nodes-{arm}" for arm in nodes.ARMS}
    return Environment(Path(sys.executable), tmp_path, "c", kafka, tmp_path / "run", {}, trees)


def test_results_of_another_build_or_checkout_are_not_current(tmp_path: Path) -> None:
    environment = _environment(tmp_path)
    assert environment.is_current(_result(ONE, "stock", "pass"))
    assert not environment.is_current(_result(ONE, "overlay", "pass"))
    assert environment.is_current(ArmResult(ONE.id, "overlay", "fail", 1.0, "x", "c", "4.0.0 with abc"))
    assert not environment.is_current(ArmResult(ONE.id, "stock", "pass", 1.0, "", "d", "4.0.0"))
    assert not environment.is_current(_result(ONE, "stock", "unknown"))


def test_a_job_runs_ducktape_in_a_bare_lab(tmp_path: Path) -> None:
    command = _environment(tmp_path).command(Job(ONE, "gate", 1), tmp_path / "t.toml")
    assert command[3:9] == ["lab", "run", "--bare", "--topology", str(tmp_path / "t.toml"), "--run-dir"]
    assert command[-1] == f"{tmp_path}/tests/kafkatest/{ONE.id}"
    assert command[command.index("--cluster") + 1] == "ducktape_tests.cluster.NodesCluster"
    assert json.loads(command[command.index(str(tmp_path / "nodes-gate")) + 1])[-1] == "overlay"


def test_a_session_runs_all_jobs_and_ends_one_that_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(self: Environment, job: Job, path: Path) -> list[str]:
        assert path.is_file()
        if job.case is TWO:
            return ["sleep", "60"]
        _write_report(self.folder(job), job.arm, "PASS" if job.arm == "stock" else "FAIL", "AssertionError()")
        return ["true"]

    monkeypatch.setattr(Environment, "command", command)
    monkeypatch.setattr(session, "UPDATE_S", 0.01)
    monkeypatch.setattr(session, "LIMIT_EXTRA_MIN", 0.01)
    events: list[tuple[Any, ...]] = []
    jobs = [Job(TWO, "stock", 0.001), Job(ONE, "stock", 1), Job(ONE, "overlay", 1)]
    environment = _environment(tmp_path)
    Session(
        environment,
        jobs,
        2,
        lambda job, left: events.append(("started", job.arm, job.case, left > 0)),
        lambda job, result, left: events.append((result.verdict, job.arm, job.case, left >= 0)),
    ).run()
    assert sorted(event[0] for event in events) == ["fail", "pass", "started", "started", "started", "unknown"]
    assert all(event[-1] for event in events)
    stored = results.load_all(environment.run_dir, ALL)
    assert stored[TWO.id, "stock"].reason == "stopped after 0 minutes"
    assert stored[ONE.id, "overlay"].reason == "AssertionError()"


class SimulatedSession:
    """Session that stores a pass for every job except the suite's predicted failure, without a lab."""

    jobs: ClassVar[list[Job]] = []

    def __init__(self, environment: Environment, jobs: Sequence[Job], at_once: int, started: Any, ended: Any) -> None:
        self.environment, self.started, self.ended = environment, started, ended
        SimulatedSession.jobs = list(jobs)
        assert at_once == 2

    def run(self) -> None:
        for job in self.jobs:
            fails = job.arm == "gate" and job.case == TWO
            verdict: Verdict = "fail" if fails else "pass"
            built = self.environment.versions(job.arm)
            fingerprint = self.environment.fingerprint
            reason = f"why{results.RACK_ERRORS}" if fails else ""
            result = ArmResult(job.case.id, job.arm, verdict, 60.0, reason, fingerprint, built)
            result.save(results.result_path(self.environment.run_dir, job.arm, job.case))
            self.started(job, 1.0)
            self.ended(job, result, 0.0)


def _invoke(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    checkout: Path,
    *arguments: str,
    cases: Callable[[Checkout, Path], Sequence[Case]] = lambda *_: ALL,
) -> Any:
    monkeypatch.setattr(cli, "Session", SimulatedSession)
    monkeypatch.setattr(cli, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(cli, "_require", lambda *_: None)
    monkeypatch.setattr(Checkout, "cases", cases)
    monkeypatch.setattr(KafkaSuite, "read", staticmethod(lambda: SUITE))
    monkeypatch.setattr(Distribution, "load", staticmethod(lambda: _environment(tmp_path).kafka))
    monkeypatch.setattr(SimulatedSession, "jobs", [])
    fixed = ["--checkout", str(checkout), "--run-dir", str(tmp_path / "out")]
    return CliRunner().invoke(cli.kafkatest_app, [*fixed, *arguments])


def test_a_run_continues_where_an_earlier_one_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path
) -> None:
    first = _invoke(monkeypatch, tmp_path, checkout, "--arm", "stock")
    assert (first.exit_code, len(SimulatedSession.jobs)) == (0, 2)
    second = _invoke(monkeypatch, tmp_path, checkout, "--json")
    assert second.exit_code == 0, second.output
    assert [job.arm for job in SimulatedSession.jobs] == ["overlay", "gate"] * 2
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [(row["stock"], row["overlay"], row["gate"]) for row in document["cases"]] == [
        ("pass", "pass", "pass"),
        ("pass", "pass", "fail"),
    ]
    assert _invoke(monkeypatch, tmp_path, checkout).exit_code == 0
    assert SimulatedSession.jobs == []
    _invoke(monkeypatch, tmp_path, checkout, "--fresh")
    assert len(SimulatedSession.jobs) == 6


def test_all_cases_run_on_stock_and_overlay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path) -> None:
    done = _invoke(monkeypatch, tmp_path, checkout, "--suite", "all")
    assert done.exit_code == 0
    assert {(job.arm, job.case) for job in SimulatedSession.jobs} == {
        (arm, case) for arm in ("stock", "overlay") for case in (ONE, OTHER, TWO)
    }
    assert "not run" in done.output


def test_patched_runs_only_the_cases_that_patches_add(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path
) -> None:
    roots: list[Path] = []

    def cases(opened: Checkout, _: Path) -> Sequence[Case]:
        roots.append(opened.root)
        return (*ALL, OWN) if (opened.tests / OWN_FILE).is_file() else ALL

    done = _invoke(monkeypatch, tmp_path, checkout, "--patched", cases=cases)
    # the session here lets stock pass, too
    assert done.exit_code == 1
    assert [(job.arm, job.case) for job in SimulatedSession.jobs] == [("stock", OWN), ("overlay", OWN)]
    assert "passes on stock, which has no min.insync.racks" in " ".join(done.output.split())
    assert roots[0] != checkout
    assert not roots[0].exists()


def test_the_list_has_predictions_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path
) -> None:
    listed = _invoke(monkeypatch, tmp_path, checkout, "--list")
    assert "two racks remain" in listed.output
    assert "2 cases, 3 lab minutes an arm" in listed.output
    rows = json.loads(_invoke(monkeypatch, tmp_path, checkout, "--list", "--json", "one_test.py").output)
    assert [row["gate"] for row in rows] == ["pass", None]
    assert not (tmp_path / "out").exists()


def test_wrong_arms_and_foreign_folders_are_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path
) -> None:
    wrong = _invoke(monkeypatch, tmp_path, checkout, "--arm", "gates")
    assert str(wrong.exception) == "--arm gates: must be one of stock, overlay, gate"
    files.write_text(tmp_path / "out" / "mine.txt", "x")
    foreign = _invoke(monkeypatch, tmp_path, checkout)
    assert run_folder.MARKER in str(foreign.exception)
    assert (tmp_path / "out" / "mine.txt").exists()
