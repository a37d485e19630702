"""Numbers that a Connect worker's source writes and its sink receives."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pyhooks.checkers.connect_counts import check_connect_counts
from pyhooks.checkers.registry import CHECKERS
from pyhooks.history.event_log import Event, History
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory
from pyhooks.workload.connect_worker import ConnectRun, internal_topics, worker_properties
from written_histories import S, chunks, event, two_requirements

# When the sink of the worker with R=2 receives two records; rack b is out of sync at 30 to 70 s.
TIMES = (5, 10, 85, 90, 95)


def worker(racks: int) -> dict[str, Any]:
    return {"run": "r", "group": f"connect-{racks}", "topic": f"numbers-{racks}"}


def sunk(racks: int, at_s: int, offsets: Sequence[Sequence[int]]) -> Event:
    return event(at_s * S, "connect", "sunk", None, **worker(racks), begun_ns=(at_s - 1) * S, offsets=offsets)


def control() -> Iterator[Event]:
    yield from (sunk(1, at_s, [[at_s, 1]]) for at_s in range(100))
    yield from numbers_of(1, range(100))


def numbers_of(racks: int, numbers: Sequence[int]) -> Iterator[Event]:
    place: dict[str, Any] = {"pass": "p", "topic": f"numbers-{racks}", "partition": 0, "partitions": 1}
    for part in chunks([(at, str(number)) for at, number in enumerate(numbers)], 100, len(numbers)):
        more = {"isolation": "read_committed", "low": 0, "end": len(numbers), **part}
        yield event(120 * S, "reader", "read", **place, **more)


def history(numbers: Sequence[int] = range(10), skipped: int | None = None, again: int = 0) -> list[Event]:
    """Return an outage with two workers; the sink with R=2 skips an offset, or receives the first ones again."""
    events = [
        event(3 * S, "connect", "state", None, **worker(2), connector="source", state="RUNNING"),
        *two_requirements({"numbers-2": 2, "numbers-1": 1}),
    ]
    for number, at_s in enumerate(TIMES):
        own = [offset for offset in (2 * number, 2 * number + 1) if offset != skipped]
        events.append(sunk(2, at_s, [[offset, 1] for offset in own]))
    if again:
        events.append(sunk(2, 97, [[0, again]]))
    events.append(sunk(2, 100, []))
    return [*events, *numbers_of(2, numbers), *control()]


def test_each_number_once_is_valid() -> None:
    verdict = check_connect_counts(history(again=2))
    assert verdict.valid == "true", verdict
    assert verdict.notes == (
        "connect-1: 100 numbers; the sink received 100 records, 0 of them again, with a pause of 1 s;"
        " failed tasks: none",
        "connect-2: 10 numbers; the sink received 10 records, 2 of them again, with a pause of 75 s;"
        " failed tasks: none",
    )


def test_what_the_sink_receives_again_in_the_outage_is_not_new() -> None:
    events = history()
    events.insert(events.index(sunk(2, 85, [[4, 1], [5, 1]])), sunk(2, 50, [[2, 1]]))
    assert check_connect_counts(events).valid == "true"


def test_a_sink_that_receives_records_with_too_few_racks_is_wrong() -> None:
    events = history()
    events.insert(events.index(sunk(2, 85, [[4, 1], [5, 1]])), sunk(2, 50, [[4, 1]]))
    verdict = check_connect_counts(events)
    assert verdict.because == (
        "connect-2: output arrived 1 times while numbers-2 had ISR [1, 2] in rack(s) a: too few",
    )


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (history([0, 1, 3]), "1 numbers are missing, the first is 2"),
        (history([0, 1, 1, 2]), "1 numbers were written more than once, the first is 1"),
        (history([0, 2, 1]), "numbers are not in order"),
        (history(skipped=4), "the sink skipped 1 records, the first at offset 4"),
    ],
)
def test_what_was_lost_or_repeated_is_wrong(events: list[Event], reason: str) -> None:
    verdict = check_connect_counts(events)
    assert (verdict.valid, verdict.because[0]) == ("false", f"connect-2: {reason}")


def test_missing_evidence_is_unknown() -> None:
    assert check_connect_counts([]).valid == "unknown"
    for op in ("sunk", "read", "look", "settings"):
        assert check_connect_counts([one for one in history() if one.op != op]).valid == "unknown", op


def test_failed_tasks_are_noted() -> None:
    failed = event(12 * S, "connect", "state", None, **worker(2), connector="source", state="FAILED", trace="x")
    verdict = check_connect_counts([*history(), failed])
    assert verdict.valid == "true"
    assert verdict.notes[1].endswith("failed tasks: 1 of the source")


def test_the_checker_applies_to_workers() -> None:
    assert any(map(CHECKERS["connected"].applies, history()))
    assert not any(CHECKERS["connected"].applies(one) for one in history() if one.process != "connect")


def test_the_worker_uses_its_own_topics() -> None:
    properties = worker_properties("b:1", "connect")
    assert {properties[name] for name in internal_topics("connect")} == {
        "connect-config", "connect-offset", "connect-status"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["skip-at-sink", "sink-in-outage"])
def test_a_planted_violation_is_found(name: str) -> None:
    (violation,) = [one for one in VIOLATIONS if one.name == name]
    for seed in range(5):
        planted = violation.plant(StoredHistory(history()), random.Random(seed))  # noqa: S311 - a seeded test
        assert planted is not None
        assert check_connect_counts(planted).valid == "false"


def test_a_worker_records_what_its_sink_wrote_since_the_last_time(tmp_path: Path) -> None:
    options = Namespace(folder=str(tmp_path), run="r", group="g", topics="t", bootstrap="b:1")
    run, file = ConnectRun(options, History(tmp_path / "h.jsonl")), tmp_path / "sunk"
    run._note_sunk()
    file.write_text("0\n1\n3\n4")
    run._note_sunk()
    file.write_text("0\n1\n3\n4\n")
    run._note_sunk()
    run._note_sunk(last=True)
    events = list(History(tmp_path / "h.jsonl").events())
    assert [one.data["offsets"] for one in events] == [[[0, 2], [3, 1]], [[4, 1]], []]
    begun_ns = [one.data["begun_ns"] for one in events]
    assert begun_ns == sorted(begun_ns)
    assert all(begun <= one.mono_ns for begun, one in zip(begun_ns, events, strict=True))
