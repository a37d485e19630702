"""Log entries of Kafka processes, converted to events of a history."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.history import log_events
from pyhooks.history.event_log import History
from pyhooks.history.log_events import Entry, parse
from pyhooks.lab import kafka_process

LOG = """OpenJDK 64-Bit Server VM warning: Sharing is only supported for boot loader classes
[2026-11-23 02:41:24,219] INFO [ReplicaManager broker=5] Error processing append operation (kafka.server.ReplicaManager)
org.apache.kafka.common.errors.OutOfOrderSequenceException: Out of order sequence number (at producer)
\tat org.apache.kafka.storage.internals.log.ProducerAppendInfo.checkSequence(ProducerAppendInfo.java:156)
Caused by: java.io.IOException: No space left
\tat java.base/java.lang.Thread.run(Thread.java:840)
[2026-11-23 02:41:24,220] INFO KafkaConfig values:\x20
\tauto.create.topics.enable = true
\tbroker.rack = a
 (org.apache.kafka.common.config.AbstractConfig)
[2026-11-23 02:41:25,001] WARN Sent java.lang.Exception: at once (kafka.Some$Thing)
[2026-11-23 02:41:25,900] ERROR cut sho"""
AT_MS = 1_795_401_684_000


def test_an_entry_includes_its_continuation_lines() -> None:
    assert list(parse(LOG.splitlines(), "+0000")) == [
        Entry(
            AT_MS + 219, "INFO", "kafka.server.ReplicaManager",
            "[ReplicaManager broker=5] Error processing append operation",
            ("org.apache.kafka.common.errors.OutOfOrderSequenceException", "java.io.IOException"),
        ),
        Entry(AT_MS + 220, "INFO", "org.apache.kafka.common.config.AbstractConfig", "KafkaConfig values: "),
        Entry(AT_MS + 1001, "WARN", "kafka.Some$Thing", "Sent java.lang.Exception: at once"),
        Entry(AT_MS + 1900, "ERROR", "", "cut sho"),
    ]  # fmt: skip


def test_an_exception_without_a_stack_trace_is_not_traced() -> None:
    lines = ["[2026-11-23 02:41:24,219] WARN x (a.B)", "org.apache.kafka.common.errors.NotEnoughRacksException: few"]
    assert next(parse(lines, "+0000")).traced == ()


def test_the_parsed_format_is_the_one_configured_for_brokers() -> None:
    """The Log4j pattern of the brokers is the one that ``parse`` expects."""
    level = "%replace{%replace{%p %markerSimpleName}{^ERROR FATAL}{FATAL}}{ .*}{}"
    assert f"[%d{{yyyy-MM-dd HH:mm:ss,SSS}}] {level} %m (%c)%n" in kafka_process.LOG4J.read_text()


def test_times_are_in_the_time_zone_of_the_host() -> None:
    utc, local = (next(parse(LOG.splitlines(), zone)).at_ms for zone in ("+0000", "+0530"))
    assert utc - local == 5.5 * 3_600_000
    with pytest.raises(RackgateError, match="zone 'CET'"):
        list(parse(LOG.splitlines(), "CET"))


def test_times_are_converted_to_the_history_s_clock(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    log_events.note(parse(LOG.splitlines(), "+0000"), history, node=5, ahead_ns=AT_MS * 1_000_000, error_ns=7)
    first, second, end = history.events()
    assert (first.mono_ns, first.wall_ms) == (219_000_000, AT_MS + 219)
    assert [entry[0] for entry in first.data["entries"]] == [0, 1]
    assert (second.mono_ns, len(second.data["entries"])) == (1_001_000_000, 2)
    assert (end.op, end.outcome, end.data) == ("log-end", "ok", {"node": 5, "entries": 4, "error_ns": 7})


def test_a_log_without_kafka_entries_is_unknown(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    log_events.note(
        parse(["Error: Could not find or load main class"], "+0000"), history, node=5, ahead_ns=0, error_ns=0
    )
    (only,) = history.events()
    assert (only.op, only.outcome) == ("log-end", "unknown")
