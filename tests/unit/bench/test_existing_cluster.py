"""Runs on an existing cluster, tested without one: plans, clocks, topic cleanup, commands."""

from __future__ import annotations

import dataclasses
import io
import json
import socket
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench.load import clock_offsets, executors
from bench.load.clock_offsets import ClockOffset, ClockReading
from bench.plan import scenarios
from bench.plan.scenario import Scenario
from bench.run import existing_cluster, topic_cleanup
from bench.run.client_security import ClientSecurity
from bench.run.cluster_under_test import ClusterTarget
from bench.run.existing_cluster import ExistingClusterRequest, fit_plan, spread_replicas
from bench_plans import healthy_with_outage
from loopback_brokers import closed_port
from pyhooks.cli import app
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.enforcement import BrokerResponse, Enforcement
from pyhooks.placement.gate_forecast import Broker, ClusterSnapshot

PLAN = scenarios.load("existing")
ASKED = ExistingClusterRequest(
    "kafka1:9092", None, "existing", scenarios.SHIPPED, "local[2]", Path(), False, (), None, None, {}, "c"
)
OVERLAY = BrokerResponse(14, 1, {RACKS_FEATURE: 1, ELR_FEATURE: 1, "metadata.version": 29}, 1, None)
STOCK = BrokerResponse(13, 0, {"metadata.version": 29}, 1, None)


def seen(racks: dict[int, str], answer: BrokerResponse = OVERLAY, fenced: tuple[int, ...] = ()) -> ClusterObservation:
    """A cluster whose brokers all say the same."""
    brokers = {one: Broker(one, rack, one in fenced, f"h{one}:9092") for one, rack in racks.items()}
    enforcement = Enforcement({one: answer for one in racks if one not in fenced}, dict.fromkeys(fenced, "fenced"))
    return ClusterObservation(ClusterSnapshot("id", brokers, (), enforcement.enforced), enforcement)


FIVE = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}


def test_replicas_are_taken_from_the_racks_in_turn() -> None:
    assert spread_replicas(FIVE, 5) == (1, 3, 5, 2, 4)
    assert spread_replicas(FIVE, 3) == (1, 3, 5)
    assert spread_replicas({7: "z", 9: "a", 8: "a"}, 2) == (8, 7)


def test_the_plan_uses_the_cluster_s_brokers_and_keeps_cells_without_faults() -> None:
    made, notes = fit_plan(scenarios.load("full"), seen(FIVE), ASKED)
    assert [cell.id for cell in made.cells] == [
        "healthy-20",
        "small-80",
        "large-50",
        "java-50",
        "no-delay-50",
        "far-java-50",
    ]
    assert {cell.replicas for cell in made.cells} == {arm.replicas for arm in made.arms} == {(1, 3, 5, 2, 4)}
    assert made.places == (("existing cluster", "as it is"),)
    assert made.cells[0].reached.isr == (1, 3, 5, 2, 4)
    assert "link as it is" in made.cells[0].label
    left = {line.split()[1]: line.split(": ", 1)[1] for line in notes}
    assert "no faults" in left["broker-gone"]
    assert "impossible with replicas 1 in a" in left["two-sites-50"]
    json.dumps(made.as_json())

    two, _ = fit_plan(scenarios.load("full"), seen({1: "x", 2: "x", 3: "y"}), ASKED)
    assert "two-sites-50" in [cell.id for cell in two.cells]
    assert two.cells[0].replicas == (1, 3, 2)


def test_an_outage_of_the_plan_is_left_out_and_reported() -> None:
    plan = dataclasses.replace(healthy_with_outage(), tasks=7)
    made, notes = fit_plan(plan, seen(FIVE), dataclasses.replace(ASKED, replicas=(2, 4, 5)))
    assert (made.outage, made.target_min) == (None, None)
    assert (made.tasks, made.cells[0].replicas, made.cells[0].scenario.tasks) == (7, (2, 4, 5), 7)
    (note,) = notes
    assert note.startswith("tail: the outage is left out")
    assert "kafka1:9092" in note
    assert [arm.id for arm in made.arms] == ["A", "A'", "B"]


def test_cells_that_differ_only_in_their_links_are_merged() -> None:
    full = scenarios.load("full")
    first = full.cells[1]
    again = dataclasses.replace(first, id="again", setting=dataclasses.replace(first.setting, link="far"))
    made, notes = fit_plan(dataclasses.replace(full, cells=(first, again)), seen(FIVE), ASKED)
    assert [cell.id for cell in made.cells] == ["small-80"]
    (note,) = notes
    assert note.startswith("cell again is left out")
    assert "small-80" in note


@pytest.mark.parametrize(
    ("cluster", "changes", "line"),
    [
        (seen({1: "a", 2: "b"}), {}, "2 brokers with a rack are too few for arm A, M=3, which needs 3; brokers must"),
        (seen({1: "a", 2: "b", 3: "c"}, fenced=(3,)), {}, "2 brokers with a rack are too few"),
        (seen({1: "a", 2: "a", 3: "a"}), {}, r"1 racks \(a\) are too few for arm B, M=2, R=2, which needs 2; brokers"),
        (seen(FIVE), {"replicas": (1, 2)}, "2 brokers .* too few for arm A, .*; name more with --replicas"),
        (seen(FIVE), {"replicas": (1, 3, 3)}, "--replicas 1,3,3: duplicate broker"),
        (seen(FIVE), {"replicas": (1, 3, 8)}, "--replicas 8: cluster kafka1:9092 has no such live broker"),
        (seen(FIVE, STOCK), {}, r"can't have arm B .*broker 1: no \(no overlay\).*README.md"),
        (
            seen(FIVE, dataclasses.replace(OVERLAY, levels={"metadata.version": 29})),
            {},
            r"can't have arm B .*broker 1: no \(feature at level 0\)",
        ),
    ],
)
def test_an_impossible_request_is_a_one_line_error(
    cluster: ClusterObservation, changes: dict[str, Any], line: str
) -> None:
    with pytest.raises(RackgateError, match=line) as caught:
        fit_plan(PLAN, cluster, dataclasses.replace(ASKED, **changes))
    assert "\n" not in str(caught.value)


def test_a_plan_without_a_state_of_the_cluster_s_is_rejected() -> None:
    full = scenarios.load("full")
    impossible = tuple(cell for cell in full.cells if cell.id == "broker-gone")
    with pytest.raises(RackgateError, match="no cell of scenario full"):
        fit_plan(dataclasses.replace(full, cells=impossible), seen(FIVE), ASKED)


def test_no_fault_is_injected_into_an_existing_cluster() -> None:
    made: Scenario = fit_plan(PLAN, seen(FIVE), ASKED)[0]
    target = ClusterTarget("k:1", ClientSecurity(), seen(FIVE))
    with target.state(made.cells[0].reached, None):  # type: ignore[arg-type]
        assert target.without(()) == "k:1"
    dead = dataclasses.replace(made.cells[0].reached, dead=(4,))
    with pytest.raises(RackgateError, match="brokers 4: no faults"), target.state(dead, None):  # type: ignore[arg-type]
        pytest.fail("it went on")
    with pytest.raises(RackgateError, match="no faults are injected"):
        target.without([4])


# Clocks.


def test_a_clock_is_read_over_a_connection_within_its_bound() -> None:
    with clock_offsets.serving_clock("127.0.0.1") as clock_served:
        assert clock_served.at.boot_id == clock_offsets.boot_id()
        reading = clock_offsets.read_clocks(clock_served.at.address)
    assert not clock_served.start_ns.done()
    assert reading.ahead_ns is not None
    assert reading.error_ns is not None
    # the same clock: its true distance is nothing
    assert abs(reading.ahead_ns) <= reading.error_ns < 1_000_000_000
    assert reading.boot_id == clock_offsets.boot_id()
    clock = clock_offsets.clock_offset(reading, clock_offsets.boot_id(), 0, 1)
    assert (clock.how, clock.same) == ("connection", True)
    assert clock.text.endswith(" ms (same clock)")


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_clock_is_read_over_ipv6(host: str) -> None:
    with clock_offsets.serving_clock(host) as clock_served:
        _, port = clock_served.at.address
        # as Spark has the driver's address, or a person
        readings = [clock_offsets.read_clocks((one, port)) for one in ("::1", "[::1]")]
        for one in ("::1", "[::1]"):
            clock_offsets.report_start((one, port), 7)
        assert clock_served.start_ns.result(timeout=0) == 7
    for reading in readings:
        assert reading.ahead_ns is not None
        assert reading.error_ns is not None
        assert abs(reading.ahead_ns) <= reading.error_ns < 1_000_000_000


def test_a_name_with_both_kinds_of_address_is_served_over_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
             (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        clock = clock_offsets.serving_clock("both")
        _, port = clock.__enter__().at.address
    try:
        assert clock_offsets.read_clocks(("127.0.0.1", port)).ahead_ns is not None
    finally:
        clock.__exit__(None, None, None)


# addresses of documents, and what can't be a name
@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "a" * 70 + ".b", "a..b"])
def test_an_address_of_another_host_is_a_one_line_error(host: str) -> None:
    with pytest.raises(RackgateError, match=r"spark\.driver\.host .*--conf") as caught:
        clock_offsets.serving_clock(host).__enter__()
    assert "\n" not in str(caught.value)


def test_an_unreachable_clock_is_bounded_by_the_times_of_the_job() -> None:
    with closed_port() as port:
        reading = clock_offsets.read_clocks(("127.0.0.1", port))
    assert (reading.ahead_ns, reading.error_ns) == (None, None)
    far = ClockReading("far", 5_000_000_000, None, None)
    found = clock_offsets.clock_offset(far, "own", 1_000_000_000, 1_040_000_000)
    assert found == ClockOffset(3980.0, 20.0, "job", same=False)
    assert found.text == "+3.98e+03 ± 20 ms"


def test_a_fresh_reading_of_the_clocks_is_preferred_to_the_offset_of_the_survey() -> None:
    near, far = ClockReading("near", 0, 0, 0), ClockReading("far", 0, 0, 0)
    pairs = [
        (near, ClockOffset(0.5, 0.9, "connection", same=True)),
        (far, ClockOffset(2000.0, 30.0, "job", same=False)),
        (far, ClockOffset(1990.0, 0.1, "connection", same=False)),
    ]
    known = clock_offsets.host_offsets(pairs)
    assert known == {"near": 0, "far": 1_990_000_000}

    def ahead_ns(boot: str, fresh_ns: int | None) -> int:
        return clock_offsets.ahead_of_driver_ns(ClockReading(boot, 0, fresh_ns, fresh_ns), "driver", known)

    assert ahead_ns("driver", 3) == ahead_ns("driver", None) == 0
    assert ahead_ns("far", 1_990_000_007) == 1_990_000_007
    assert ahead_ns("far", None) == 1_990_000_000
    assert ahead_ns("new", -5) == -5
    with pytest.raises(RuntimeError, match="can't reach the driver, and its clock was not compared"):
        ahead_ns("new", None)


def test_a_start_cannot_be_reported_to_an_unreachable_driver() -> None:
    with closed_port() as port, pytest.raises(ConnectionRefusedError):
        clock_offsets.report_start(("127.0.0.1", port), 7)


# Executors.


def host(**more: Any) -> executors.LoadHost:
    clock = ClockOffset(0.0, 0.1, "connection", same=False)
    some: dict[str, Any] = {
        "loaded": {},
        "trouble": "",
        "unreached": {},
        "round_trips_ms": {"1": [1.0, 3.0, 2.0]},
    } | more
    return executors.LoadHost("h/0", 4, "x86_64 Linux", {"python": "3.11.2"}, clock=clock, **some)


def test_an_executor_that_cannot_run_load_is_a_one_line_error() -> None:
    executors._check(host())
    with pytest.raises(RackgateError, match=r"h/0 .*3\.11\.2.* can't load pandas.*README"):
        executors._check(host(trouble="load pandas: no module"))
    with pytest.raises(RackgateError, match=r"h/0 .*broker 2 at h2:9: rejected"):
        executors._check(host(unreached={"2": "h2:9: rejected"}))
    # one executor must report the starts of loads
    unreachable = dataclasses.replace(host(), clock=ClockOffset(0.0, 20.0, "job", same=False))
    executors._check_clocks([unreachable, host()], "driver:1")
    with pytest.raises(RackgateError, match=r"connect to the driver at driver:1: set spark\.driver\.host"):
        executors._check_clocks([unreachable, unreachable], "driver:1")
    assert executors.round_trips([host()]) == [{"source": "h/0", "target": "broker-1", "p50_ms": 2.0, "p99_ms": 3.0}]


def test_the_archived_client_equals_the_source_and_can_be_imported(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(executors._pack_installed(tmp_path, [executors.CONFLUENT])) as packed:
        packed.extractall(tmp_path / "client")
    # a Python without this environment's packages
    code = "import sys; sys.path.insert(0, sys.argv[1]); import confluent_kafka; print(confluent_kafka.__file__)"
    command = [sys.executable, "-I", "-S", "-c", code, str(tmp_path / "client")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(str(tmp_path / "client"))


def test_the_python_of_executors_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert executors.python_of(None, near=True) == sys.executable
    assert executors.python_of(None, near=False) == "python3"
    assert executors.python_of(Path("e.tar.gz"), near=False) == "./rackgate-environment/bin/python"
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert executors.python_of(None, near=False) == "/opt/python"


# Deletion of topics.


class FakeAdmin:
    """A cluster in which a deleted topic reappears a given number of times."""

    def __init__(self, there: set[str], *, again: int = 0) -> None:
        self.topics = set(there)
        self._again = again

    def list_topics(self, timeout: float) -> Any:  # noqa: ARG002 - as the real one
        return dataclasses.make_dataclass("Listed", ["topics"])(dict.fromkeys(self.topics))

    def delete_topics(self, names: list[str], **_: float) -> dict[str, Future[None]]:
        self._again -= 1
        if self._again < 0:
            self.topics -= set(names)
        done: Future[None] = Future()
        done.set_result(None)
        return dict.fromkeys(names, done)


def test_topics_are_deleted_until_they_stay_deleted() -> None:
    admin: Any = FakeAdmin({"ours-1", "ours-2", "theirs"}, again=2)
    begun = time.monotonic()
    topic_cleanup.delete_topics(admin, ["ours-1", "ours-2", "never-made"], quiet_s=0.2, poll_s=0.01)
    assert admin.topics == {"theirs"}
    assert time.monotonic() - begun >= 0.2


def test_topics_that_can_not_be_deleted_are_named() -> None:
    admin: Any = FakeAdmin({"ours"}, again=10_000)
    with pytest.raises(RackgateError, match=r"still exist\); delete them manually: ours$"):
        topic_cleanup.delete_topics(admin, ["ours", "gone"], quiet_s=0, timeout_s=0.1, poll_s=0.01)


def test_the_cleaner_reads_topic_names_and_ignores_a_torn_line(tmp_path: Path) -> None:
    pipe = io.StringIO()
    cleaner = topic_cleanup.TopicCleaner(pipe)
    cleaner._send({"bootstrap": "k:1", "config": {"a": "b"}, "left": str(tmp_path / "left")})
    cleaner.announce(["t1"])
    cleaner.announce(["t2", "t3"])
    deletions: list[Any] = []
    for rest, quiet_s in (('{"topics": ["t4', topic_cleanup.ABSENT_S), ('{"quiet_s": 0}\n', 0)):
        topic_cleanup.clean_up(io.StringIO(pipe.getvalue() + rest), lambda *given: deletions.append(given))
        assert deletions.pop() == ("k:1", {"a": "b"}, ["t1", "t2", "t3"], quiet_s)


def test_a_run_without_topics_leaves_nothing_to_delete(tmp_path: Path) -> None:
    with topic_cleanup.deleting_topics("127.0.0.1:1", {"security.protocol": "PLAINTEXT"}, tmp_path / "left"):
        pass
    assert not (tmp_path / "left").exists()


def test_topics_that_remain_are_listed_in_a_file_and_deleted_by_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = tmp_path / "left"
    given = json.dumps({"bootstrap": "k:1", "config": {}, "left": str(left)})

    def fail(*_: Any) -> None:
        raise RackgateError("the cluster does not respond")

    with pytest.raises(SystemExit):
        topic_cleanup.clean_up(io.StringIO(f'{given}\n{{"topics": ["t1", "t2"]}}\n'), fail)
    assert f"{left} lists them" in capsys.readouterr().out
    assert topic_cleanup._topics_left(left).get("k:1", []) == ["t1", "t2"]
    assert topic_cleanup._topics_left(left).get("elsewhere:1", []) == []
    elsewhere = given.replace("k:1", "elsewhere:1")
    with pytest.raises(SystemExit):
        topic_cleanup.clean_up(io.StringIO(f'{elsewhere}\n{{"topics": ["t3"]}}\n'), fail)
    topic_cleanup.clean_up(io.StringIO(f'{given}\n{{"topics": ["t1", "t2"]}}\n'), lambda *_: None)
    # what other brokers still have stays named
    assert topic_cleanup._topics_left(left) == {"elsewhere:1": ["t3"]}
    topic_cleanup.clean_up(io.StringIO(f'{elsewhere}\n{{"topics": ["t3"]}}\n'), lambda *_: None)
    assert not left.exists()


# Commands.


def test_bench_with_only_options_is_bench_run() -> None:
    for arguments in (["bench", "--bootstrap", "k:1"], ["bench", "run", "--bootstrap", "k:1"]):
        done = CliRunner().invoke(app, [*arguments, "--topology", "az3-outside"])
        assert "--topology is for labs" in str(done.exception)
    assert "Usage" in CliRunner().invoke(app, ["bench", "--help"]).stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--conf", "a=b", "--replicas", "1"], "--replicas, --conf: requires --bootstrap"),
        (["--tasks", "3"], "--master local[2]: runs 2 tasks at a time, and the load has 3: use 'local[3]' or a lower"),
        (["--master", "local", "--tasks", "2"], "--master local: runs 1 task at a time, and the load has 2"),
        (["--shared"], "--shared: requires --bootstrap"),
        (["--partitions", "2"], "--partitions: the slow followers of cell far-followers would lead some of several"),
        (["--rate", "0"], "--rate 0: must be from 1 to 20000 records/s with 1 task,"),
        (["--bootstrap", "k:1", "--rate", "50000"], "--rate 50000: must be from 1 to 40000 records/s with 2 tasks,"),
        (["--bootstrap", "k:1", "--partitions", "0"], "--partitions 0: must be from 1 to 1000"),
        (["--bootstrap", "k:1", "--replicas", "1;2"], "--replicas 1;2: must be broker ids"),
        (["--bootstrap", "k:1", "--conf", "spark.x"], "--conf spark.x: must be key=value"),
        (["--bootstrap", "k:1", "--environment", "/absent"], "--environment /absent: no such file"),
    ],
)
def test_conflicting_options_are_an_error(arguments: list[str], line: str) -> None:
    done = CliRunner().invoke(app, ["bench", "run", *arguments])
    assert isinstance(done.exception, RackgateError)
    assert line in str(done.exception)


def test_a_run_on_an_existing_cluster_ends_with_its_status_also_as_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measure(_: object, console: Console) -> dict[str, Any]:
        console.print("progress")
        return {"exit_status": 1}

    monkeypatch.setattr(existing_cluster, "measure", measure)
    done = CliRunner().invoke(app, ["bench", "run", "--bootstrap", "k:1", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {"exit_status": 1}
    assert done.stderr == "progress\n"
