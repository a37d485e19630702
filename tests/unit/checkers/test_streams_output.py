"""Output of a Kafka Streams application with exactly-once semantics."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.streams_output import ONE, check_streams_output
from pyhooks.history.event_log import Event
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory
from pyhooks.workload.streams_app import internal_topics
from written_histories import S, chunks, event, two_requirements

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


def arrival(target: str, at_s: int) -> Event:
    return event(at_s * S, "follower", "fetched", "ok", None, topic=target, keys=["k"], ago_ms=[250.0])


# Seconds in which counts arrive; rack b is out of sync at 30 to 70 s.
WITH_R_2 = (*range(5, 20), *range(90, 105))


def history(
    output: Sequence[str] = KEYS, values: Mapping[str, str] | None = None, arrivals: Sequence[int] = WITH_R_2
) -> list[Event]:
    """Return an outage with an application whose target requires two racks, and the control."""
    control = {**APPLICATION, "application": "control", "source": "in-1", "target": "out-1"}
    return [
        *(event(5 * S, "streams", "state", None, **one, state="RUNNING") for one in (APPLICATION, control)),
        *two_requirements({"out": 2, "out-1": 1}),
        *(arrival("out", at_s) for at_s in arrivals),
        *(arrival("out-1", at_s) for at_s in range(106)),
        *read("in", KEYS),
        *read("out", output, values or {}),
        *read("in-1", KEYS),
        *read("out-1", KEYS, {}),
    ]


def test_each_record_counted_once_is_valid() -> None:
    verdict = check_streams_output(history())
    assert verdict.valid == "true", verdict
    assert verdict.notes == tuple(
        f"{name}: 10 records, 10 counted; failed threads: none" for name in ("app", "control")
    )


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
    verdict = check_streams_output([one for one in history() if one.process != "follower"])
    assert {"app: no output", "control: no output"} <= set(verdict.because)
    assert verdict.valid == "unknown"


def test_counts_while_the_target_has_too_few_racks_are_wrong() -> None:
    verdict = check_streams_output(history(arrivals=(*range(5, 20), 45, 50, *range(90, 105))))
    assert verdict.because == ("app: output arrived 2 times while out had ISR [1, 2] in rack(s) a: too few",)


def test_an_application_that_stops_with_enough_racks_is_wrong() -> None:
    events = [one for one in history() if one.op != "fetched" or one.data["topic"] != "out-1"]
    verdict = check_streams_output([*events, *(arrival("out-1", at_s) for at_s in (*range(20), *range(90, 106)))])
    assert verdict.valid == "false"


def test_failed_threads_are_noted() -> None:
    failure = event(12 * S, "streams", "failure", "unknown", **APPLICATION, exception="a.b.StreamsException")
    verdict = check_streams_output([*history(), failure])
    assert verdict.valid == "true"
    assert verdict.notes[0] == "app: 10 records, 10 counted; failed threads: 1 with StreamsException"


def test_the_checker_applies_to_applications() -> None:
    assert any(map(CHECKERS["processed"].applies, history()))
    assert not any(CHECKERS["processed"].applies(one) for one in history() if one.process != "streams")


def test_internal_topics_have_the_names_that_streams_gives_them() -> None:
    assert internal_topics("app") == ("app-by-key-repartition", "app-counts-changelog")


@pytest.mark.parametrize("name", ["count-again", "write-in-outage"])
def test_a_planted_violation_is_found(name: str) -> None:
    (violation,) = [one for one in VIOLATIONS if one.name == name]
    for seed in range(5):
        planted = violation.plant(StoredHistory(history()), random.Random(seed))  # noqa: S311 - a seeded test
        assert planted is not None
        assert check_streams_output(planted).valid == "false"
