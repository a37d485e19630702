"""Event log: parsed lines, concurrent writers, and lines left incomplete by a killed writer."""

from __future__ import annotations

import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import CONVERTED, OPENING, OUTCOMES, Event, History
from pyhooks.history.events import PollDetails
from untyped_events import event_now, note

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.integers(0), st.integers(0), st.text(), st.text(), st.none() | st.sampled_from(sorted(OUTCOMES)),
    st.none() | st.text(),
    st.dictionaries(st.text(), json_values, max_size=4),
)  # fmt: skip
def test_an_event_equals_its_parsed_line(
    mono: int, wall: int, process: str, op: str, outcome: str | None, rack: str | None, data: dict[str, object]
) -> None:
    event = Event(mono, wall, process, op, outcome, rack, data)  # type: ignore[arg-type]
    line = event.line()
    assert line.count("\n") == 1
    assert Event.parse(line) == event


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{}", "not an event"),
        ('{"mono_ns":1,"wall_ms":1,"process":"p","op":"o","outcome":"great"}', "outcome 'great'"),
        (
            '{"mono_ns":1,"wall_ms":1,"process":"p","op":"o","outcome":"info"}',
            "convert a history of an earlier version",
        ),
        ("not JSON", "line 1 column 1"),
    ],
)
def test_an_invalid_event_is_an_error_with_file_and_line(tmp_path: Path, line: str, error: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(event_now("p", "o", "ok").line() + line + "\n", encoding="utf-8")
    with pytest.raises(RackgateError, match=r"history\.jsonl:2") as caught:
        list(History(path).events())
    assert error in str(caught.value)


def test_an_earlier_history_can_be_read_after_the_conversion(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    metrics: dict[str, Any] = {"broker": 1, "late_ms": 0.5, "latency_ms": 2.5, "problem": "no response"}
    lines = [event_now("p", "no-metadata", "unknown"), event_now("metrics", "metric", "unknown", **metrics)]
    earlier = "".join(line.line() for line in lines).replace("latency_ms", "took_ms").replace("no-metadata", "learn")
    path.write_text(earlier + event_now("p", "o", None).line().replace("null", '"info"', 1), encoding="utf-8")
    poll = Event.parse(earlier.splitlines()[1])
    with pytest.raises(ValueError, match=r"latency_ms: .*convert a history of an earlier version"):
        PollDetails.of(poll)
    subprocess.run([*shlex.split(CONVERTED), path], check=True)
    events = list(History(path).events())
    assert [(event.op, event.outcome) for event in events] == [
        ("no-metadata", "unknown"),
        ("metric", "unknown"),
        ("o", None),
    ]
    assert [details.latency_ms for _, details in PollDetails.each(events)] == [2.5]


def test_concurrent_writers_do_not_mix_lines(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")

    def write(name: str) -> None:
        for number in range(200):
            note(history, name, "op", None, number=number, filler="x" * 500)

    threads = [threading.Thread(target=write, args=(f"w{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(history.events())
    assert len(events) == 800
    for index in range(4):
        numbers = [event.data["number"] for event in events if event.process == f"w{index}"]
        assert numbers == list(range(200))


def test_a_timeout_names_the_awaited_condition() -> None:
    with pytest.raises(RackgateError, match=r": a condition$"):
        wait_for(lambda: False, goal="a condition", timeout_s=0.05, interval_s=0.01)
    values = iter([None, 0, "yes"])
    assert wait_for(lambda: next(values), goal="a value", timeout_s=1, interval_s=0.001) == "yes"


def test_many_events_are_appended_at_once(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    events = [event_now("p", "op", "ok", number=number) for number in range(1000)]
    history.extend(events)
    history.extend([])
    assert list(history.events()) == events


@given(st.data())
def test_a_torn_line_does_not_affect_others(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    history = History(tmp_path_factory.mktemp("torn") / "h.jsonl")
    first, torn, last = (event_now("p", "op", "ok", text=data.draw(st.text())) for _ in range(3))
    history.append(first)
    line = torn.line().encode()
    # a killed writer may leave any part of a line, or the complete line without its newline
    written = line[: data.draw(st.integers(1, len(line) - 1))]
    with history.path.open("ab") as out:
        out.write(written)
    history.append(last)
    assert OPENING.encode().startswith(written[: len(OPENING)])
    found = list(history.events())
    if written == line[:-1]:
        assert found == [first, torn, last]
    else:
        assert [event.op for event in found] == ["op", "torn", "op"]
        assert (found[0], found[2], found[1].outcome) == (first, last, "unknown")


def test_reading_ends_at_a_line_that_is_still_being_written(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    first = note(history, "p", "first", "ok")
    line = event_now("p", "second", "ok", n=1).line()
    with history.path.open("a", encoding="utf-8") as writer:
        writer.write(line[:40])
        writer.flush()
        reading = history.events()
        assert [next(reading), next(reading).op] == [first, "torn"]
        writer.write(line[40:])
        writer.flush()
        assert list(reading) == []
    assert [event.op for event in history.events()] == ["first", "second"]
