"""Checker of node crashes and of fatal errors in server logs, and the query that collects these errors."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pyhooks.checkers.crashes import check_crashes
from pyhooks.checkers.judgement import judge
from pyhooks.core.errors import RackgateError
from pyhooks.history import process_events
from pyhooks.history.event_log import Event, History
from pyhooks.lab import kafka_process
from written_histories import event

AT = "[2026-11-23 02:41:24,219]"
FATAL = f"{AT} FATAL Exiting Kafka due to fatal exception during startup. (kafka.Kafka$)"
FATAL_LINES = [
    FATAL,
    f"{AT} FATAL [BrokerServer id=3] Fatal error during broker startup. Prepare to shutdown (kafka.server.B)",
    f"{AT} ERROR Encountered fatal fault: Unexpected error in raft IO thread (org.apache.kafka.server.fault.P)",
    f"{AT} ERROR Encountered metadata publishing fault: Error applying topics (org.apache.kafka.server.fault.L)",
    f"{AT} ERROR Encountered metadata loading fault: Error loading metadata log record from offset 7 (o.a.k.L)",
    f"{AT} ERROR Encountered quorum controller fault: maybeFenceStaleBroker: oops (org.apache.kafka.server.fault.L)",
    f"{AT} ERROR Encountered non-fatal fault: x (o.a.k.L)",
    "# A fatal error has been detected by the Java Runtime Environment:",
]
HARMLESS = [
    f"{AT} ERROR [ReplicaManager broker=1] Error processing append operation on partition t-0 (kafka.server.X)",
    f"{AT} INFO [BrokerLifecycleManager id=3] Unable to register broker 3 because the controller returned error (a.B)",
    f"{AT} WARN The message says that a broker Encountered a fatal fault (a.B)",
    "\tEncountered fatal fault: of a message of several lines",
    "java.lang.FatalException: FATAL",
]


def events_of_node(node: int, *ops: str | tuple[str, dict[str, Any]]) -> list[Event]:
    """Events of a node in order; each is an op, or an op and its data."""
    events: list[Event] = []
    for item in ops:
        op, fields = item if isinstance(item, tuple) else (item, {})
        outcome = fields.get("outcome", "ok")
        data = {name: value for name, value in fields.items() if name != "outcome"}
        events.append(event(len(events), "node", op, outcome, node=node, **data))
    return events


STATE_UP, STATE_DOWN = ("state", {"state": "up"}), ("state", {"state": "down"})
KILL_RUNNING, KILL_DEAD = ("kill", {"ran": True}), ("kill", {"ran": False})
STOP_RUNNING = ("stop", {"ran": True})
NO_FAULTS_LOGGED = ("faults-logged", {"entries": 900, "found": []})
EXIT_EXCUSED = ("excused", {"reason": process_events.NOT_LET_IN})


def logged(*lines: str) -> tuple[str, dict[str, Any]]:
    return "faults-logged", {"entries": 900, "found": list(lines)}


@pytest.mark.parametrize(
    "node_events",
    [
        ["start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED],
        # killed by a fault and started, then stopped and started
        ["start", KILL_RUNNING, "start", STOP_RUNNING, "start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED],
        # down at the end of the test because it was killed
        ["start", KILL_RUNNING, STATE_DOWN, KILL_DEAD, NO_FAULTS_LOGGED],
        # killed twice
        ["start", KILL_RUNNING, KILL_DEAD, "start", STATE_UP, NO_FAULTS_LOGGED],
        # paused by a fault
        ["start", ("state", {"state": "paused"}), KILL_RUNNING, NO_FAULTS_LOGGED],
        # two clusters, one after the other
        ["start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED, "start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED],
        # not admitted to the cluster: it exited by itself or was killed before
        ["start", EXIT_EXCUSED, KILL_DEAD, "start", STATE_UP, KILL_RUNNING, logged(FATAL)],
        ["start", EXIT_EXCUSED, KILL_RUNNING, "start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED],
        ["start", EXIT_EXCUSED, "start", STATE_UP, KILL_RUNNING, logged(FATAL)],
    ],
)
def test_kills_by_tests_and_faults_are_no_crashes(node_events: list[Any]) -> None:
    verdict = check_crashes(events_of_node(1, *node_events))
    assert (verdict.valid, verdict.because) == ("true", ())


@pytest.mark.parametrize(
    ("node_events", "reason"),
    [
        (["start", STATE_DOWN, KILL_DEAD, NO_FAULTS_LOGGED], "node 1 has ended by itself"),
        # a fault or a restart finds the process dead and starts it again
        (
            ["start", KILL_DEAD, "start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED],
            "node 1 exited on its own before it was stopped (kill)",
        ),
        (["start", ("stop", {"ran": False}), "start", STATE_UP, NO_FAULTS_LOGGED], "before it was stopped (stop)"),
        (
            ["start", "start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED],
            "node 1 had ended by itself before it was started again",
        ),
        (["start", KILL_RUNNING, "start", STATE_DOWN, KILL_DEAD, NO_FAULTS_LOGGED], "node 1 has ended by itself"),
        # an excuse applies until the next start
        (["start", EXIT_EXCUSED, KILL_DEAD, "start", STATE_DOWN, NO_FAULTS_LOGGED], "node 1 has ended by itself"),
        # and only to the log lines of the excused start
        (["start", EXIT_EXCUSED, KILL_RUNNING, "start", STATE_UP, logged(FATAL_LINES[2])], "node 1 logged: "),
        (
            ["start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED, "start", STATE_DOWN, KILL_DEAD, NO_FAULTS_LOGGED],
            "node 1 has ended by itself",
        ),
    ],
)
def test_a_node_that_exited_by_itself_is_wrong(node_events: list[Any], reason: str) -> None:
    verdict = check_crashes(
        [*events_of_node(1, *node_events), *events_of_node(2, "start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED)]
    )
    assert verdict.valid == "false"
    assert len(verdict.because) == 1, "reported once"
    assert reason in verdict.because[0]


@pytest.mark.parametrize("line", FATAL_LINES)
def test_a_logged_fatal_error_is_wrong(line: str) -> None:
    verdict = check_crashes(events_of_node(7, "start", STATE_UP, KILL_RUNNING, logged(line)))
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert "node 7" in verdict.because[0]
    assert line in verdict.because[0]


def test_an_excuse_for_one_node_does_not_apply_to_another() -> None:
    verdict = check_crashes(
        [
            *events_of_node(1, "start", EXIT_EXCUSED, STATE_UP, NO_FAULTS_LOGGED),
            *events_of_node(2, "start", STATE_UP, logged(FATAL)),
        ]
    )
    assert verdict.valid == "false"
    assert any(process_events.NOT_LET_IN in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("node_events", "reason"),
    [
        (["start", KILL_RUNNING, NO_FAULTS_LOGGED], "the state of node 1 was never queried"),
        (["start", STATE_UP, KILL_RUNNING], "the log of node 1 was not read"),
        (["start", STATE_UP, KILL_RUNNING, NO_FAULTS_LOGGED, "start", STATE_UP], "the log of node 1 was not read"),
        (["start", STATE_UP, ("faults-logged", {"outcome": "unknown", "error": "gone"})], "can't be read: gone"),
        (
            ["start", ("state", {"outcome": "unknown", "error": "timed out"}), NO_FAULTS_LOGGED],
            "state of node 1 can't be queried: timed out",
        ),
    ],
)
def test_missing_evidence_is_unknown(node_events: list[Any], reason: str) -> None:
    verdict = check_crashes(events_of_node(1, *node_events))
    assert verdict.valid == "unknown"
    assert reason in "; ".join(verdict.because)
    assert check_crashes([]).valid == "unknown"


def test_a_node_that_was_never_queried_is_unknown() -> None:
    verdict = check_crashes(
        [
            *events_of_node(1, "start", STATE_UP, NO_FAULTS_LOGGED),
            *events_of_node(2, "start", KILL_RUNNING, NO_FAULTS_LOGGED),
        ]
    )
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert "node 2" in verdict.because[0]


def test_the_checker_applies_to_histories_with_node_states() -> None:
    assert [verdict.checker for verdict in judge(events_of_node(1, "start", STATE_UP, NO_FAULTS_LOGGED))[0]] == [
        "crashes"
    ]
    verdicts, left_out = judge([])
    assert "crashes" not in [verdict.checker for verdict in verdicts] + left_out


def query_faults(log: Path) -> str:
    done = subprocess.run(
        ["sh", "-c", process_events.fault_query(str(log))], capture_output=True, text=True, check=True
    )
    return done.stdout


def record_faults(output: str, folder: Path) -> Event:
    history = History(folder / "h.jsonl")
    process_events.note_logged(history, 4, output)
    (recorded,) = history.events()
    return recorded


def test_lines_with_fatal_errors_are_collected_from_a_log(tmp_path: Path) -> None:
    log = tmp_path / "a log"
    log.write_bytes(b"\0\n" + "\n".join(["JVM warning", *HARMLESS, *FATAL_LINES]).encode())
    recorded = record_faults(query_faults(log), tmp_path)
    assert recorded.outcome == "ok"
    entries = sum(line.startswith(AT) for line in [*HARMLESS, *FATAL_LINES])
    assert recorded.data == {"node": 4, "entries": entries, "found": FATAL_LINES}
    # grep and Python find the same lines
    assert [line for line in [*HARMLESS, *FATAL_LINES] if re.search(process_events.FAULT, line)] == FATAL_LINES


def test_long_lines_and_many_lines_are_truncated(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{FATAL}{'x' * 9999}\n" * 99, encoding="ascii")
    recorded = record_faults(query_faults(log), tmp_path)
    assert [len(line) for line in recorded.data["found"]] == [process_events.LONGEST] * process_events.MAX_LINES


def test_no_lines_are_collected_from_a_log_without_fatal_errors(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(HARMLESS), encoding="utf-8")
    assert record_faults(query_faults(log), tmp_path).data == {"node": 4, "entries": 3, "found": []}


def test_a_missing_log_fails_and_one_without_entries_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        query_faults(tmp_path / "log")
    (tmp_path / "log").write_text("Error: Could not find or load main class\n", encoding="ascii")
    recorded = record_faults(query_faults(tmp_path / "log"), tmp_path)
    assert (recorded.op, recorded.outcome) == ("faults-logged", "unknown")


def test_an_excuse_needs_a_known_reason(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    with pytest.raises(RackgateError, match="nothing can be excused"):
        process_events.excuse(history, [3], "unlisted reason")
    process_events.excuse(history, [3], process_events.NOT_LET_IN)
    assert [entry.op for entry in history.events()] == ["excused"]


def test_the_log_format_writes_fatal_as_a_level() -> None:
    """Log4j logs fatal errors at level ERROR with the marker FATAL."""
    assert "%replace{%replace{%p %markerSimpleName}{^ERROR FATAL}{FATAL}}{ .*}{} %m" in kafka_process.LOG4J.read_text()
