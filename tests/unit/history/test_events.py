"""The event vocabulary: stored keys, round trips, and that nothing reads stored details past it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from pyhooks.history import events as vocabulary
from pyhooks.history.event_log import Details, Event, History
from pyhooks.history.events import (
    ObservationDetails,
    ObservedPartition,
    ProduceDetails,
    ReadChunkDetails,
    ReadDetails,
    SettingsDetails,
)
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS

ROOT = Path(__file__).parents[3]
SOURCES = ("pyhooks", "bench", "ducktape_tests")
STORED = sorted((ROOT / "tests" / "support" / "lab_histories").glob("*.jsonl"))


def kinds(base: type[Details] = Details) -> Iterator[type[Details]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def most_specific(event: Event) -> Details | None:
    found = [kind for kind in kinds() if (kind.ops or kind.process) and kind.describes(event)]
    return max(found, key=lambda kind: len(kind.__mro__)).of(event) if found else None


def test_stored_details_are_read_only_by_the_history_package() -> None:
    past = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "history" not in path.relative_to(ROOT).parts[1:2]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\.data(\[|\.get\()|\bnote\([^)]*\*\*|\.data\.items\(", line)
    ]
    assert past == []


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_histories_keep_all_their_keys_and_values(path: Path) -> None:
    events = list(History(path).events())
    assert events
    for event in events:
        details = most_specific(event)
        assert details is not None, event
        again = details.event_at(
            event.mono_ns, event.wall_ms, event.outcome, process=event.process, op=event.op, rack=event.rack
        )
        known = {one.name for one in fields(type(details))}  # type: ignore[arg-type]
        assert event.data.items() <= again.data.items() or not known, event
        # What is added is a default that a reader would have used.
        assert again.data.keys() - event.data.keys() <= {"replicas", "acks", "racks", "errors", "first", "node"}, event


def test_no_two_kinds_describe_the_same_events_unless_one_is_a_base_of_the_other() -> None:
    named = [kind for kind in kinds() if kind.ops]
    for one in named:
        for two in named:
            related = issubclass(one, two) or issubclass(two, one) or "begin" in vars(two).get("__annotations__", {})
            same = set(one.ops) & set(two.ops) and one.outcomes & two.outcomes
            if same and not related and (not one.process or not two.process or one.process == two.process):
                pytest.fail(f"{one.__name__} and {two.__name__} describe the same events")


def test_fields_have_the_stored_keys() -> None:
    settings = SettingsDetails(topic="t", step="seen", min_replicas=2, min_racks=1)
    assert settings.event("ok", process="p").data == {
        "topic": "t", "step": "seen", MIN_INSYNC_REPLICAS: 2, MIN_INSYNC_RACKS: 1,
    }  # fmt: skip
    read = ReadDetails(read_id="r", topic="t", partition=0, partitions=1, isolation="read_committed")
    assert read.event("ok", process="reader").data == {
        "pass": "r", "topic": "t", "partition": 0, "partitions": 1, "isolation": "read_committed",
    }  # fmt: skip


def test_an_event_in_memory_equals_the_one_that_is_read_back() -> None:
    state = ObservedPartition(leader=1, isr=(1, 2), replicas=(1, 2, 3))
    event = ObservationDetails(racks={1: "a", 2: None}, partitions={"t-0": state}, asked_ns=3).event("ok")
    assert event.data["racks"] == {"1": "a", "2": None}
    again = Event.parse(event.line())
    assert again == event
    found = ObservationDetails.of(again)
    assert found is not None
    assert (found.racks, found.partitions["t-0"]) == ({1: "a", 2: None}, state)


def test_details_of_another_kind_or_outcome_are_not_returned() -> None:
    event = ProduceDetails(topic="t", key="k").event("ok", process="probe")
    assert SettingsDetails.of(event) is None
    assert ObservationDetails.of(Event(1, 1, "isr-watch", "look", "unknown", None, {"error": "e"})) is None
    assert ReadChunkDetails.of(event) is None


def test_further_keys_are_tolerated() -> None:
    found = ProduceDetails.of(Event(1, 1, "p", "produce", "ok", None, {"topic": "t", "key": "k", "of_later": 1}))
    assert found == ProduceDetails(topic="t", key="k")


@pytest.mark.parametrize(
    ("data", "reason"), [({"topic": "t"}, "key: "), ({"topic": "t", "key": "k", "seq": "one"}, "seq: ")]
)
def test_malformed_details_are_reported_with_their_line(tmp_path: Path, data: dict[str, object], reason: str) -> None:
    path = tmp_path / "history.jsonl"
    lines = [{"mono_ns": 1, "wall_ms": 1, "process": "p", "op": "produce", "outcome": "ok", "rack": None, "data": one}
             for one in ({"topic": "t", "key": "k"}, data)]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(ValueError, match=f"line 2: produce event: {reason}"):
        list(ProduceDetails.each(History(path).events()))


def test_the_vocabulary_is_in_one_module() -> None:
    assert {kind.__module__ for kind in kinds()} == {vocabulary.__name__}
