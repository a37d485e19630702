"""Event types: stored keys, round trips, and that only the history package reads the stored ``data``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from pyhooks.history import events as events_module
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
# Programs that plant violations in recorded histories edit the stored form itself.
EDITORS = {
    ROOT / "pyhooks" / "verify" / f"{name}.py"
    for name in (
        *("cluster_violations", "consumer_violations", "feature_violations", "record_violations"),
        *("stored_history", "stored_logs"),
    )
}
STORED = sorted((ROOT / "tests" / "support" / "lab_histories").glob("*.jsonl"))


def event_types(base: type[Details] = Details) -> Iterator[type[Details]]:
    """Yield all subclasses of ``base``."""
    for event_type in base.__subclasses__():
        yield event_type
        yield from event_types(event_type)


def most_specific(event: Event) -> Details | None:
    """Return the details of an event, parsed as its most specific type."""
    found = [
        event_type
        for event_type in event_types()
        if (event_type.ops or event_type.process) and event_type.describes(event)
    ]
    return max(found, key=lambda event_type: len(event_type.__mro__)).of(event) if found else None


def test_stored_details_are_read_only_by_the_history_package() -> None:
    direct_reads = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "history" not in path.relative_to(ROOT).parts[1:2] and path not in EDITORS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\.data(\[|\.get\()|\bnote\([^)]*\*\*|\.data\.items\(", line)
    ]
    assert direct_reads == []


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
        known = {field.name for field in fields(type(details))}  # type: ignore[arg-type]
        assert event.data.items() <= again.data.items() or not known, event
        # Added keys are defaults that a reader would have used.
        assert again.data.keys() - event.data.keys() <= {"replicas", "acks", "racks", "errors", "first", "node"}, event


def test_only_related_types_describe_the_same_events() -> None:
    types_with_ops = [event_type for event_type in event_types() if event_type.ops]
    for first in types_with_ops:
        for second in types_with_ops:
            related = (
                issubclass(first, second)
                or issubclass(second, first)
                or "begin" in vars(second).get("__annotations__", {})
            )
            same = set(first.ops) & set(second.ops) and first.outcomes & second.outcomes
            if same and not related and (not first.process or not second.process or first.process == second.process):
                pytest.fail(f"{first.__name__} and {second.__name__} describe the same events")


def test_fields_have_the_stored_keys() -> None:
    settings = SettingsDetails(topic="t", step="seen", min_replicas=2, min_racks=1)
    assert settings.event("ok", process="p").data == {
        "topic": "t", "step": "seen", MIN_INSYNC_REPLICAS: 2, MIN_INSYNC_RACKS: 1,
    }  # fmt: skip
    read = ReadDetails(read_id="r", topic="t", partition=0, partitions=1, isolation="read_committed")
    assert read.event("ok", process="reader").data == {
        "pass": "r", "topic": "t", "partition": 0, "partitions": 1, "isolation": "read_committed",
    }  # fmt: skip


def test_an_event_equals_the_one_read_back() -> None:
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


def test_unknown_keys_are_ignored() -> None:
    found = ProduceDetails.of(Event(1, 1, "p", "produce", "ok", None, {"topic": "t", "key": "k", "later_key": 1}))
    assert found == ProduceDetails(topic="t", key="k")


@pytest.mark.parametrize(
    ("data", "reason"), [({"topic": "t"}, "key: "), ({"topic": "t", "key": "k", "seq": "one"}, "seq: ")]
)
def test_malformed_details_are_reported_with_their_line(tmp_path: Path, data: dict[str, object], reason: str) -> None:
    path = tmp_path / "history.jsonl"
    lines = [{"mono_ns": 1, "wall_ms": 1, "process": "p", "op": "produce", "outcome": "ok", "rack": None, "data": each}
             for each in ({"topic": "t", "key": "k"}, data)]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(ValueError, match=f"line 2: produce event: {reason}"):
        list(ProduceDetails.each(History(path).events()))


def test_all_event_types_are_in_one_module() -> None:
    modules = {event_type.__module__ for event_type in event_types()}
    # tests define event types too
    assert {module for module in modules if module.startswith("pyhooks.")} == {events_module.__name__}
