from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pyhooks.errors import RackgateError
from pyhooks.history import Event
from pyhooks.jvm.failure import JavaError
from pyhooks.jvm.producer import Acknowledged
from pyhooks.workload.probe import ERRORS, Attempt, Plan, main, outcome_of, parse

PLAN = Plan("b:9092", ("t",), rate_per_s=2, seconds=None, count=3, timeout_ms=5000, defaults=False)
MUST = ("--bootstrap", "b:9092", "--topics", "t,u", "--history", "h.jsonl")


def java(name: str, *, retriable: bool = True) -> JavaError:
    return JavaError(f"{ERRORS}.{name}", "text", retriable=retriable)


@pytest.mark.parametrize(
    "name", ["NotEnoughRacksException", "NotEnoughReplicasException", "TopicAuthorizationException"]
)
def test_a_refusal_before_the_append_is_certain_for_a_first_attempt_alone(name: str) -> None:
    assert outcome_of(java(name), defaults=False) == "fail"
    assert outcome_of(java(name), defaults=True) == "unknown"


@pytest.mark.parametrize(
    "name",
    [
        "TimeoutException",
        "NotEnoughRacksAfterAppendException",
        "NotEnoughReplicasAfterAppendException",
        # a leader that steps down gives it to records that wait for their acknowledgement
        "NotLeaderOrFollowerException",
        "NetworkException",
        "UnknownServerException",
    ],
)
@pytest.mark.parametrize("defaults", [False, True])
def test_what_may_have_been_appended_is_unknown(name: str, defaults: bool) -> None:
    assert outcome_of(java(name), defaults=defaults) == "unknown"


def test_an_acknowledgement_is_certain() -> None:
    assert outcome_of(Acknowledged("t", 0, 7), defaults=False) == "ok"
    assert outcome_of(Acknowledged("t", 0, 7), defaults=True) == "ok"


def test_events_carry_what_checkers_need() -> None:
    attempt = Attempt("t", 4, "k", time.monotonic_ns() - 3_000_000)
    refused = attempt.event(java("NotEnoughRacksException"), defaults=False)
    assert (refused.process, refused.op, refused.outcome) == ("probe", "produce", "fail")
    assert {
        key: refused.data[key] for key in ("topic", "key", "seq", "offset", "message", "retriable", "defaults")
    } == {
        "topic": "t",
        "key": "k",
        "seq": 4,
        "offset": None,
        "message": "text",
        "retriable": True,
        "defaults": False,
    }
    assert refused.data["exception"] == f"{ERRORS}.NotEnoughRacksException"
    assert 3.0 <= refused.data["latency_ms"] < 1000
    acked = attempt.event(Acknowledged("t", 0, 0), defaults=True)
    assert (acked.outcome, acked.data["offset"], acked.data["partition"]) == ("ok", 0, 0)
    assert acked.data["exception"] is None
    assert acked.data["defaults"] is True
    assert Event.parse(acked.line()) == acked


def test_one_attempt_a_request_and_no_second_one() -> None:
    config = PLAN.producer_config()
    assert config["retries"] == "0"
    assert config["enable.idempotence"] == "false"
    assert config["acks"] == "all"
    assert config["batch.size"] == "0"
    # the producer demands delivery timeout >= linger + request timeout
    assert int(config["delivery.timeout.ms"]) >= int(config["linger.ms"]) + int(config["request.timeout.ms"])


@pytest.mark.parametrize(("timeout_ms", "request_ms"), [(8000, 7995), (120_000, 30_000)])
def test_defaults_set_the_delivery_timeout_and_what_it_forces(timeout_ms: int, request_ms: int) -> None:
    config = replace(PLAN, defaults=True, timeout_ms=timeout_ms).producer_config()
    assert config == {"delivery.timeout.ms": str(timeout_ms), "request.timeout.ms": str(request_ms)}


def test_command_line() -> None:
    plan, path = parse([*MUST, "--rate", "4", "--seconds", "60"])
    assert plan == Plan("b:9092", ("t", "u"), 4.0, 60.0, None, 5000, defaults=False)
    assert path == Path("h.jsonl")
    plan, _ = parse([*MUST, "--count", "1", "--defaults", "--delivery-timeout-ms", "8000"])
    assert (plan.count, plan.timeout_ms, plan.defaults) == (1, 8000, True)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "one of --seconds and --count"),
        (("--count", "0"), "must be above 0"),
        (("--seconds", "-1"), "must be above 0"),
        (("--count", "1", "--rate", "0"), "--rate 0"),
        (("--count", "1", "--timeout-ms", "5"), "must be above 5"),
        (("--count", "1", "--topics", "t,,u"), "--topics"),
    ],
)
def test_a_probe_that_cannot_be_done_is_refused(more: tuple[str, ...], said: str) -> None:
    with pytest.raises(RackgateError, match=said):
        parse([*MUST, *more])


def test_an_error_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MUST, "--rate", "1"]) == 2
    written = capsys.readouterr().err
    assert written.startswith("error: one of --seconds and --count")
    assert written.count("\n") == 1
