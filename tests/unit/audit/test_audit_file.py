"""Audit file: records survive as written; damaged and foreign lines are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_outage import START, make_terms
from pyhooks.audit import audit_file
from pyhooks.audit.audit_file import AuditFile, default_file
from pyhooks.audit.audit_record import (
    AuditRecord,
    Event,
    NotARecordError,
    UnknownFormatError,
    format_record,
    make_record,
    parse_record,
    record_json,
)
from pyhooks.audit.audit_topic import placement
from pyhooks.core.errors import RackgateError
from pyhooks.jvm.admin import ClusterNode


def record(event: Event = "intended", *, old: int | None = 2) -> AuditRecord:
    terms = make_terms(old=old, minutes=None if old is None else 30, until_healed=old is None)
    return make_record(event, terms, at=START, by="alice@one", note="wörds\nand lines")


@pytest.mark.parametrize("old", [2, None])
def test_a_record_is_one_line_and_is_read_as_written(old: int | None) -> None:
    line = format_record(record(old=old))
    assert b"\n" not in line
    one = parse_record(line)
    assert (one.terms.old, one.note) == (old, "wörds\nand lines")
    assert format_record(one) == line


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"format": 2}, "format 2, this version knows 1"),
        ({"event": "lost"}, "event 'lost'"),
        ({"new": 0}, "0 is no number of racks"),
        ({"old": True}, "True is no number of racks"),
        ({"at": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"topic": 5}, "5 is no text"),
    ],
)
def test_records_of_other_formats_are_reported(changed: dict[str, object], error: str) -> None:
    with pytest.raises(UnknownFormatError, match=error):
        parse_record(json.dumps({**record_json(record()), **changed}).encode())
    with pytest.raises(UnknownFormatError, match="'format' is missing"):
        parse_record(b"{}")
    with pytest.raises(NotARecordError):
        parse_record(format_record(record())[:-5])


def test_an_incomplete_line_does_not_swallow_the_next_record(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "state" / "audit.jsonl")
    assert file.read().records == ()
    first, second = record(), record("applied")
    file.append([first])
    with file.path.open("ab") as stream:
        stream.write(format_record(second)[:40])
    file.append([second])
    read = file.read()
    assert (read.records, read.damaged, read.unknown) == ((first, second), 1, ())
    with file.path.open("ab") as stream:
        stream.write(b'{"format": 2}\n')
    assert len(file.read().unknown) == 1
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700


def test_unusable_files_are_errors(tmp_path: Path) -> None:
    shared = tmp_path / "audit.jsonl"
    shared.touch()
    shared.chmod(0o666)
    with pytest.raises(RackgateError, match="--audit-file"):
        AuditFile(shared).read()
    with pytest.raises(RackgateError):
        AuditFile(shared / "below").append([record()])


def test_one_process_at_a_time_has_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "LOCK_PATIENCE_S", 0.1)
    file = AuditFile(tmp_path / "audit.jsonl")
    with file.lock(), pytest.raises(RackgateError, match="another rackgate"), file.lock():
        pass
    with file.lock():
        pass


def test_the_default_file_is_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_file() == Path("/state/rackgate/audit.jsonl")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/alice")
    assert default_file() == Path("/home/alice/.local/state/rackgate/audit.jsonl")


def test_the_topic_has_a_replica_in_each_rack_that_of_an_unfenced_broker_first() -> None:
    def node(broker: int, rack: str, *, fenced: bool = False) -> ClusterNode:
        return ClusterNode(broker, "host", 9092, rack, fenced)

    assert placement([node(1, "b", fenced=True), node(2, "a", fenced=True), node(3, "a"), node(4, "c")]) == [3, 4, 1]
    assert placement([node(1, ""), node(2, ""), node(3, ""), node(4, "")]) == [1, 2, 3]
