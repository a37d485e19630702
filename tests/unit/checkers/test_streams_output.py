"""Output of a Kafka Streams application with exactly-once semantics."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.streams_output import ONE, check_streams_output
from pyhooks.history.event_log import Event, Outcome
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory
from pyhooks.workload.streams_app import internal_topics
from written_histories import S, chunks, event

KEYS = tuple(f"k{number}" for number in range(10))
APPLICATION = {"run": "r", "application": "app", "source": "in", "target": "out"}


def read(topic: str, keys: Sequence[str], values: Mapping[str, str] | None = None) -> list[Event]:
    place: dict[str, Any] = {"pass": "p", "topic": topic, "partition": 0, "partitions": 1}
    found = []
    for part in chunks(list(enumerate(keys)), 100, len(keys)):
        more: dict[str, Any] = {} if values is None else {"values": [values.get(key, ONE) for key in keys]}
        found.append(
            event(90 * S, "reader", "read", **place, isolation="read_committed", low=0, end=len(keys), **part, **more)
        )
    return found


def history(output: Sequence[str] = KEYS, values: Mapping[str, str] | None = None) -> list[Event]:
    fault = {"target": "b", "brokers": [3]}
    times: Sequence[tuple[int, str, Outcome | None]] = (
        (10, "inject", None), (11, "proved", "ok"), (20, "heal", None), (30, "healed", "ok"),
    )  # fmt: skip
    steps = [event(at_s * S, "fault", "kill-rack", outcome, "b", step=step, **fault) for at_s, step, outcome in times]
    state = event(5 * S, "streams", "state", None, **APPLICATION, state="RUNNING")
    return [state, *steps, *read("in", KEYS), *read("out", output, values or {})]


def test_each_record_counted_once_is_valid() -> None:
    verdict = check_streams_output(history())
    assert verdict.valid == "true", verdict
    assert verdict.notes == ("app: 10 records, 10 counted; failed threads: none",)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (history(KEYS[:-1]), "1 records have no count, such as k9"),
        (history([*KEYS, "k3"]), "1 records were counted more than once, such as k3"),
        (history(values={"k4": "\0" * 7 + "\2"}), "1 records have another count than 1, such as k4"),
        (history([*KEYS, "other"]), "1 records are not in in, such as other"),
    ],
)
def test_a_record_that_was_not_processed_once_is_wrong(events: list[Event], reason: str) -> None:
    verdict = check_streams_output(events)
    assert verdict.valid == "false"
    assert verdict.because[0] == f"app: {reason}"


def test_missing_evidence_is_unknown() -> None:
    assert check_streams_output([]).valid == "unknown"
    verdict = check_streams_output([one for one in history() if one.data.get("topic") != "out"])
    assert verdict.valid == "unknown"
    assert "app: out: no final read (read_committed)" in verdict.because
    verdict = check_streams_output([one for one in history() if one.process != "fault"])
    assert verdict.because == ("no outage that was healed",)


def test_failed_threads_are_noted() -> None:
    failure = event(12 * S, "streams", "failure", "unknown", **APPLICATION, exception="a.b.StreamsException")
    verdict = check_streams_output([*history(), failure])
    assert verdict.valid == "true"
    assert verdict.notes == ("app: 10 records, 10 counted; failed threads: 1 with StreamsException",)


def test_the_checker_applies_to_applications() -> None:
    assert any(map(CHECKERS["processed"].applies, history()))
    assert not any(CHECKERS["processed"].applies(one) for one in history() if one.process != "streams")


def test_internal_topics_have_the_names_that_streams_gives_them() -> None:
    assert internal_topics("app") == ("app-by-key-repartition", "app-counts-changelog")


def test_a_planted_violation_is_found() -> None:
    (violation,) = [one for one in VIOLATIONS if one.name == "count-again"]
    for seed in range(5):
        planted = violation.plant(StoredHistory(history()), random.Random(seed))  # noqa: S311 - a seeded test
        assert planted is not None
        assert check_streams_output(planted).valid == "false"
