"""Crashes of nodes and errors in Kafka's logs are found in histories that are otherwise correct."""

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
FAULTS = [
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
    f"{AT} WARN It says that somebody Encountered a fatal fault (a.B)",
    "\tEncountered fatal fault: of a message of several lines",
    "java.lang.FatalException: FATAL",
]


def life(node: int, *ops: str | tuple[str, dict[str, Any]]) -> list[Event]:
    """Events of a node in order, by their ops or with their data."""
    found: list[Event] = []
    for one in ops:
        op, fields = one if isinstance(one, tuple) else (one, {})
        outcome = fields.get("outcome", "ok")
        data = {name: value for name, value in fields.items() if name != "outcome"}
        found.append(event(len(found), "node", op, outcome, node=node, **data))
    return found


UP, DOWN = ("state", {"state": "up"}), ("state", {"state": "down"})
KILLED, GONE = ("kill", {"ran": True}), ("kill", {"ran": False})
STOPPED = ("stop", {"ran": True})
LOG = ("faults-logged", {"entries": 900, "found": []})
EXCUSED = ("excused", {"reason": process_events.NOT_LET_IN})


def logged(*lines: str) -> tuple[str, dict[str, Any]]:
    return "faults-logged", {"entries": 900, "found": list(lines)}


@pytest.mark.parametrize(
    "own",
    [
        ["start", UP, KILLED, LOG],
        # faults that end and start it, and a restart in good order
        ["start", KILLED, "start", STOPPED, "start", UP, KILLED, LOG],
        # it is down when the test ends, because it was stopped
        ["start", KILLED, DOWN, GONE, LOG],
        # killed twice
        ["start", KILLED, GONE, "start", UP, LOG],
        # a fault that holds it
        ["start", ("state", {"state": "paused"}), KILLED, LOG],
        # one cluster after the other
        ["start", UP, KILLED, LOG, "start", UP, KILLED, LOG],
        # it was not let in, and ended by itself or was killed first
        ["start", EXCUSED, GONE, "start", UP, KILLED, logged(FATAL)],
        ["start", EXCUSED, KILLED, "start", UP, KILLED, LOG],
        ["start", EXCUSED, "start", UP, KILLED, logged(FATAL)],
    ],
)
def test_a_kill_by_a_test_or_a_fault_is_no_crash(own: list[Any]) -> None:
    found = check_crashes(life(1, *own))
    assert (found.valid, found.because) == ("true", ())


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (["start", DOWN, GONE, LOG], "node 1 has ended by itself"),
        # a fault, or a restart, that found it ended, and brought it back
        (["start", GONE, "start", UP, KILLED, LOG], "node 1 had ended by itself before it was to be ended (kill)"),
        (["start", ("stop", {"ran": False}), "start", UP, LOG], "before it was to be ended (stop)"),
        (["start", "start", UP, KILLED, LOG], "node 1 had ended by itself before it was started again"),
        (["start", KILLED, "start", DOWN, GONE, LOG], "node 1 has ended by itself"),
        # an excuse ends with the next start
        (["start", EXCUSED, GONE, "start", DOWN, LOG], "node 1 has ended by itself"),
        # and is for its own lines alone
        (["start", EXCUSED, KILLED, "start", UP, logged(FAULTS[2])], "node 1 logged: "),
        (["start", UP, KILLED, LOG, "start", DOWN, GONE, LOG], "node 1 has ended by itself"),
    ],
)
def test_a_node_that_ended_by_itself_is_found(own: list[Any], reason: str) -> None:
    found = check_crashes([*life(1, *own), *life(2, "start", UP, KILLED, LOG)])
    assert found.valid == "false"
    assert len(found.because) == 1, "reported once"
    assert reason in found.because[0]


@pytest.mark.parametrize("line", FAULTS)
def test_a_fault_of_kafka_is_found(line: str) -> None:
    found = check_crashes(life(7, "start", UP, KILLED, logged(line)))
    assert (found.valid, len(found.because)) == ("false", 1)
    assert "node 7" in found.because[0]
    assert line in found.because[0]


def test_an_excuse_for_one_node_does_not_cover_another() -> None:
    found = check_crashes([*life(1, "start", EXCUSED, UP, LOG), *life(2, "start", UP, logged(FATAL))])
    assert found.valid == "false"
    assert any(process_events.NOT_LET_IN in note for note in found.notes)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (["start", KILLED, LOG], "the state of node 1 was never queried"),
        (["start", UP, KILLED], "the log of node 1 was not read"),
        (["start", UP, KILLED, LOG, "start", UP], "the log of node 1 was not read"),
        (["start", UP, ("faults-logged", {"outcome": "unknown", "error": "gone"})], "can't be read: gone"),
        (
            ["start", ("state", {"outcome": "unknown", "error": "no way"}), LOG],
            "state of node 1 can't be queried: no way",
        ),
    ],
)
def test_missing_evidence_is_unknown(own: list[Any], reason: str) -> None:
    found = check_crashes(life(1, *own))
    assert found.valid == "unknown"
    assert reason in "; ".join(found.because)
    assert check_crashes([]).valid == "unknown"


def test_a_node_that_was_never_queried_is_unknown() -> None:
    found = check_crashes([*life(1, "start", UP, LOG), *life(2, "start", KILLED, LOG)])
    assert (found.valid, len(found.because)) == ("unknown", 1)
    assert "node 2" in found.because[0]


def test_the_checker_applies_where_nodes_were_watched() -> None:
    assert [one.checker for one in judge(life(1, "start", UP, LOG))[0]] == ["crashes"]
    found, left_out = judge([])
    assert "crashes" not in [one.checker for one in found] + left_out


def asked(log: Path) -> str:
    done = subprocess.run(
        ["sh", "-c", process_events.fault_query(str(log))], capture_output=True, text=True, check=True
    )
    return done.stdout


def read(answer: str, folder: Path) -> Event:
    history = History(folder / "h.jsonl")
    process_events.note_logged(history, 4, answer)
    (only,) = history.events()
    return only


def test_log_lines_that_report_an_error_are_found(tmp_path: Path) -> None:
    log = tmp_path / "a log"
    log.write_bytes(b"\0\n" + "\n".join(["JVM warning", *HARMLESS, *FAULTS]).encode())
    found = read(asked(log), tmp_path)
    assert found.outcome == "ok"
    entries = sum(line.startswith(AT) for line in [*HARMLESS, *FAULTS])
    assert found.data == {"node": 4, "entries": entries, "found": FAULTS}
    # grep and Python find the same lines
    assert [line for line in [*HARMLESS, *FAULTS] if re.search(process_events.FAULT, line)] == FAULTS


def test_many_and_long_lines_are_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{FATAL}{'x' * 9999}\n" * 99, encoding="ascii")
    found = read(asked(log), tmp_path)
    assert [len(line) for line in found.data["found"]] == [process_events.LONGEST] * process_events.MOST_LINES


def test_a_log_without_an_error_has_no_entries_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(HARMLESS), encoding="utf-8")
    assert read(asked(log), tmp_path).data == {"node": 4, "entries": 3, "found": []}


def test_a_missing_or_empty_log_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        asked(tmp_path / "log")
    (tmp_path / "log").write_text("Error: Could not find or load main class\n", encoding="ascii")
    found = read(asked(tmp_path / "log"), tmp_path)
    assert (found.op, found.outcome) == ("faults-logged", "unknown")


def test_an_excuse_needs_a_known_reason(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    with pytest.raises(RackgateError, match="nothing can be excused"):
        process_events.excuse(history, [3], "it happens")
    process_events.excuse(history, [3], process_events.NOT_LET_IN)
    assert [one.op for one in history.events()] == ["excused"]


def test_fatal_errors_are_found_by_their_level() -> None:
    """To log4j it is an error with a marker."""
    assert "%replace{%replace{%p %markerSimpleName}{^ERROR FATAL}{FATAL}}{ .*}{} %m" in kafka_process.LOG4J.read_text()
