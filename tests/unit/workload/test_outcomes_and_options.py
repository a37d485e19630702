"""Outcomes of produce errors, command lines and client configurations, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event
from pyhooks.history.events import CONFLUENT, PATCHED
from pyhooks.history.outcomes import ERRORS, Acked, Rejected, outcome_of
from pyhooks.history.record_format import is_damaged, key_of, parts_of, text_of, value_of
from pyhooks.workload.producer import OpenRecord, main
from pyhooks.workload.producer_clients import ProducerRecord, ProducerSettings, SendResult, create_client
from pyhooks.workload.producer_plan import PROBE_PROCESS, ProducerMode, ProducerPlan, parse

PROBE = ProducerPlan(
    "b:9092", ("t",), rate_per_s=2, count=3, partitions=1, mode="probe", record_bytes=0, name=PROBE_PROCESS
)
REQUIRED = ("--bootstrap", "b:9092", "--topics", "t,u", "--history", "h.jsonl")


def java_error(name: str, *, retriable: bool = True) -> Rejected:
    return Rejected(f"{ERRORS}.{name}", "text", retriable)


@pytest.mark.parametrize(
    "error",
    [
        f"{ERRORS}.NotEnoughRacksException",
        f"{ERRORS}.NotEnoughReplicasException",
        f"{ERRORS}.TopicAuthorizationException",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_RACKS",
    ],
)
def test_a_rejection_before_the_append_is_a_failure_only_without_retries(error: str) -> None:
    assert outcome_of(Rejected(error, "", True), first_only=True) == "fail"
    assert outcome_of(Rejected(error, "", True), first_only=False) == "unknown"


@pytest.mark.parametrize(
    "error",
    [
        f"{ERRORS}.TimeoutException",
        f"{ERRORS}.NotEnoughRacksAfterAppendException",
        f"{ERRORS}.NotEnoughReplicasAfterAppendException",
        # also returned for appended records that await acknowledgement when the leader resigns
        f"{ERRORS}.NotLeaderOrFollowerException",
        f"{ERRORS}.NetworkException",
        f"{ERRORS}.UnknownServerException",
        "_MSG_TIMED_OUT",
        "_UNKNOWN_TOPIC",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "not-reported",
    ],
)
@pytest.mark.parametrize("first_only", [False, True])
def test_a_record_that_may_have_been_appended_is_unknown(error: str, first_only: bool) -> None:
    assert outcome_of(Rejected(error, "", True), first_only=first_only) == "unknown"


@pytest.mark.parametrize("first_only", [False, True])
def test_an_acknowledgement_succeeds_and_a_full_queue_fails(first_only: bool) -> None:
    assert outcome_of(Acked(0, 7), first_only=first_only) == "ok"
    assert outcome_of(Rejected("_QUEUE_FULL", "", True), first_only=first_only) == "fail"


def test_a_record_rejected_by_the_client_was_not_sent() -> None:
    assert outcome_of(Rejected("MSG_SIZE_TOO_LARGE", "", False, local=True), first_only=False) == "fail"
    assert outcome_of(Rejected("MSG_SIZE_TOO_LARGE", "", False), first_only=False) == "unknown"
    client = create_client(CONFLUENT, replace(PROBE, bootstrap="127.0.0.1:1").settings("id"))
    client.send([ProducerRecord(7, "t", 0, b"k", b"x" * 2_000_000)])
    (report,) = client.take(0)
    client.close()
    assert isinstance(report.answer, Rejected)
    assert (report.token, report.answer.error, report.answer.local) == (7, "MSG_SIZE_TOO_LARGE", True)


def test_events_have_the_fields_that_checkers_need() -> None:
    attempt = OpenRecord("t", 0, 4, "k", 900, txn=None)
    rejected = attempt.event(PROBE, "run-1", SendResult(1, 1_000_000, 4_500_000, java_error("NotEnoughRacksException")))
    assert (rejected.process, rejected.op, rejected.outcome, rejected.mono_ns) == (
        "probe",
        "produce",
        "fail",
        4_500_000,
    )
    assert rejected.data == {
        "run": "run-1",
        "topic": "t",
        "key": "k",
        "seq": 4,
        "partition": 0,
        "intended_ns": 900,
        "sent_ns": 1_000_000,
        "latency_ms": 3.5,
        "mode": "probe",
        "exception": f"{ERRORS}.NotEnoughRacksException",
        "message": "text",
        "retriable": True,
    }
    acked = replace(attempt, txn=3).event(replace(PROBE, defaults=True), "run-1", SendResult(1, 5, 6, Acked(2, 0)))
    assert (acked.outcome, acked.data["offset"], acked.data["partition"], acked.data["txn"]) == ("ok", 0, 2, 3)
    assert acked.data["defaults"] is True
    assert Event.parse(acked.line()) == acked


def test_probes_send_one_request_per_attempt() -> None:
    config = PROBE.settings("id").java()
    assert config["retries"] == "0"
    assert config["enable.idempotence"] == "false"
    assert config["acks"] == "all"
    assert config["batch.size"] == "0"
    assert "transactional.id" not in config


@pytest.mark.parametrize("mode", ["probe", "plain", "idempotent", "transactional"])
@pytest.mark.parametrize("timeout_ms", [6, 5000, 120_000])
@pytest.mark.parametrize("linger_ms", [0, 5])
def test_timeouts_satisfy_the_constraints_of_the_java_client(
    mode: ProducerMode, timeout_ms: int, linger_ms: int
) -> None:
    plan = replace(PROBE, mode=mode, timeout_ms=timeout_ms, linger_ms=linger_ms)
    config = plan.settings("id").java()
    assert int(config["delivery.timeout.ms"]) >= int(config["linger.ms"]) + int(config["request.timeout.ms"])
    assert int(config["request.timeout.ms"]) > 0
    assert ("transactional.id" in config) == (mode == "transactional")
    assert ("retries" in config) == (mode in ("probe", "plain"))


@pytest.mark.parametrize(("timeout_ms", "request_ms"), [(8000, 7995), (120_000, 30_000)])
def test_defaults_set_the_delivery_timeout_and_dependent_settings(timeout_ms: int, request_ms: int) -> None:
    config = replace(PROBE, defaults=True, timeout_ms=timeout_ms).settings("id").java()
    assert config == {
        "bootstrap.servers": "b:9092",
        "delivery.timeout.ms": str(timeout_ms),
        "request.timeout.ms": str(request_ms),
    }
    with pytest.raises(RackgateError, match="applies to Java producers only"):
        replace(PROBE, defaults=True, timeout_ms=timeout_ms).settings("id").librdkafka()


@pytest.mark.parametrize("mode", ["probe", "plain", "idempotent", "transactional"])
def test_librdkafka_accepts_its_configuration(mode: ProducerMode) -> None:
    client = create_client(CONFLUENT, replace(PROBE, mode=mode, bootstrap="127.0.0.1:1").settings("id"))
    client.close()
    assert client.take(0) == []
    client.release()


def test_an_unknown_client_is_rejected() -> None:
    settings: ProducerSettings = PROBE.settings("id")
    with pytest.raises(RackgateError, match=r"0\.8"):
        create_client("0.8", settings)


@pytest.mark.parametrize(
    ("plan", "first_only"),
    [
        (PROBE, True),
        (replace(PROBE, defaults=True), False),
        (replace(PROBE, client="3.9"), True),
        # librdkafka may resend a request even with retries=0
        (replace(PROBE, client=CONFLUENT), False),
        (replace(PROBE, mode="plain", client=CONFLUENT), False),
        (replace(PROBE, mode="plain"), True),
        (replace(PROBE, mode="plain", retries=1), False),
        (replace(PROBE, mode="idempotent"), False),
        (replace(PROBE, mode="transactional"), False),
    ],
)
def test_first_only_requires_a_single_attempt_without_idempotence(plan: ProducerPlan, first_only: bool) -> None:
    assert plan.first_only is first_only


def test_the_command_line_is_parsed() -> None:
    plan, path = parse([*REQUIRED, "--mode", "probe", "--rate", "4", "--seconds", "60"])
    expected = ProducerPlan(
        "b:9092", ("t", "u"), 4.0, partitions=1, seconds=60.0, mode="probe", record_bytes=0, name="probe"
    )
    assert plan == expected
    assert path == Path("h.jsonl")
    plan, _ = parse([*REQUIRED, "--mode", "probe", "--count", "1", "--defaults", "--delivery-timeout-ms", "8000"])
    assert (plan.count, plan.timeout_ms, plan.defaults) == (1, 8000, True)
    plan, _ = parse([*REQUIRED, "--count", "9", "--client", "3.9", "--mode", "transactional", "--abort-share", "0.5"])
    assert (plan.client, plan.mode, plan.abort_share, plan.partitions) == ("3.9", "transactional", 0.5, None)
    assert (plan.name, plan.record_bytes) == ("producer", 100)
    assert parse([*REQUIRED, "--count", "9"])[0].client == PATCHED
    plan, _ = parse([*REQUIRED, "--count", "9", "--config", "metadata.max.age.ms=500", "--config", "linger.ms=0=1"])
    assert plan.config == {"metadata.max.age.ms": "500", "linger.ms": "0=1"}
    for config in (plan.settings("id").java(), plan.settings("id").librdkafka()):
        assert (config["metadata.max.age.ms"], config["linger.ms"]) == ("500", "0=1")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ((), "--seconds or --count"),
        (("--count", "0"), "must be above 0"),
        (("--seconds", "-1"), "must be above 0"),
        (("--count", "1", "--rate", "0"), "--rate 0"),
        (("--count", "1", "--timeout-ms", "5"), "must be above 5"),
        (("--count", "1", "--timeout-ms", "50", "--linger-ms", "50"), "must be above 50"),
        (("--count", "1", "--topics", "t,,u"), "--topics"),
        (("--count", "1", "--topics", "t,t"), "--topics"),
        (("--count", "1", "--topics", "t/u"), "--topics"),
        (("--count", "1", "--retries", "2", "--mode", "idempotent"), "--retries 2"),
        (("--count", "1", "--run", "a/b"), "--run 'a/b'"),
        (("--count", "1", "--defaults"), "--defaults belongs"),
        (("--count", "1", "--abort-share", "0.1"), "--abort-share belongs"),
        (("--count", "1", "--abort-share", "1.1", "--mode", "transactional"), "0..1"),
        (("--count", "1", "--partitions", "-1"), "--partitions -1"),
        (("--count", "1", "--config", "linger.ms"), "--config 'linger.ms': expected NAME=VALUE"),
    ],
)
def test_an_invalid_plan_is_rejected(more: tuple[str, ...], error: str) -> None:
    with pytest.raises(RackgateError, match=error):
        parse([*REQUIRED, *more])


def test_an_error_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUIRED, "--rate", "1"]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("error: --seconds or --count")
    assert stderr.count("\n") == 1


names = st.text(st.characters(exclude_characters="/\n", codec="utf-8"), min_size=1)


@given(names, names, st.integers(0, 10**6), st.integers(0, 10**9), st.integers(0, 400), st.data())
def test_a_value_is_derived_from_its_key(
    run: str, topic: str, partition: int, seq: int, size: int, data: st.DataObject
) -> None:
    key = key_of(run, topic, partition, seq)
    assert parts_of(key) == (run, topic, partition, seq)
    value = value_of(key, size)
    assert len(value) == max(size, len(key.encode()))
    assert text_of(key.encode()) == key
    assert not is_damaged(key, value)
    position = data.draw(st.integers(0, len(value) - 1))
    assert is_damaged(key, value[:position] + bytes([value[position] ^ 1]) + value[position + 1 :])
    assert is_damaged(key, None)
    assert not is_damaged("another key", b"anything")


def test_keys_that_are_not_utf8_are_written_in_hex() -> None:
    assert text_of(b"\xff\x00") == "0xff00"
    assert text_of(None) is None


@pytest.mark.parametrize("mode", ["probe", "plain"])
def test_acks_1_is_parsed(mode: ProducerMode) -> None:
    assert PROBE.settings("id").librdkafka()["acks"] == "all"
    plan, _ = parse([*REQUIRED, "--count", "1", "--mode", mode, "--acks", "1"])
    assert plan.acks == "1"
    assert plan.settings("id").java()["acks"] == plan.settings("id").librdkafka()["acks"] == "1"
    client = create_client(CONFLUENT, replace(PROBE, acks="1", bootstrap="127.0.0.1:1").settings("id"))
    client.close()


@pytest.mark.parametrize(
    "more", [("--mode", "idempotent"), ("--mode", "transactional"), ("--mode", "probe", "--defaults")]
)
def test_idempotence_requires_acks_all(more: tuple[str, ...]) -> None:
    with pytest.raises(RackgateError, match="--acks 1 belongs to"):
        parse([*REQUIRED, "--count", "1", "--acks", "1", *more])
