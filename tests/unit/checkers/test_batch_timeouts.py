"""Timed-out records are judged by the age of their batch, which may be older than the record."""

from __future__ import annotations

import pytest

from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.record_view import Records
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import key_of
from written_histories import MS, TIMEOUT, S, Simulated


def history_with_timeout(
    message: str | None, *, acknowledged: bool = True, idle_s: float = 2.5, age_s: float = 0.1
) -> list[Event]:
    """A record times out after rack b has returned and the change has settled.

    Args:
        message: the producer's error message.
        acknowledged: whether other records are acknowledged afterwards.
        idle_s: seconds without records from the return of rack b until the record is sent.
        age_s: seconds from the send until the timeout.
    """
    cluster = Simulated()

    def run_for(seconds: float, *, silent: bool = False) -> None:
        until = cluster.now + round(seconds * S)
        while cluster.now < until:
            if not silent:
                cluster.produce()
            cluster.look()
            cluster.now += S // 10

    run_for(4)
    cluster.down = {3}
    cluster.look()
    run_for(6)
    cluster.down = set()
    cluster.look()
    run_for(idle_s, silent=True)
    key = key_of(cluster.run, "t", 0, cluster.seq)
    fields = {} if message is None else {"message": message}
    sent_ns = cluster.now
    run_for(age_s, silent=True)
    cluster.now = max(cluster.now, sent_ns + round(age_s * S)) - MS
    cluster.note(
        "producer", "produce", "unknown", run=cluster.run, topic="t", key=key, seq=cluster.seq, partition=0,
        sent_ns=sent_ns, latency_ms=age_s * 1000, mode="plain", exception=TIMEOUT, retriable=True, **fields,
    )  # fmt: skip
    cluster.seq += 1
    run_for(8, silent=not acknowledged)
    cluster.end()
    return cluster.events


def expired_message(batch_ms: int) -> str:
    """Timeout message of a Java producer."""
    return (
        f"Expiring 114 record(s) for t-0:{batch_ms} ms has passed since batch creation. The request has not been sent,"
        " or no server response has been received yet."
    )


def test_an_older_batch_does_not_excuse_a_wait_longer_than_the_patience() -> None:
    verdict = check_progress(history_with_timeout(expired_message(12_000), idle_s=2.5, age_s=7.0))
    assert verdict.valid == "unknown"
    assert "enough, and 1 attempts were not acknowledged" in "; ".join(verdict.because)


@pytest.mark.parametrize(
    ("message", "acknowledged", "valid"),
    [
        pytest.param(expired_message(3004), True, "true", id="batch created before the ISR was sufficient"),
        pytest.param(expired_message(104), True, "unknown", id="batch created after the ISR was sufficient"),
        pytest.param(None, True, "unknown", id="message without a batch age"),
        pytest.param("Disconnected from node 4 due to timeout", True, "unknown", id="another error"),
        pytest.param(expired_message(104), False, "false", id="no other record acknowledged"),
        pytest.param(expired_message(3004), False, "false", id="older batch, no other record acknowledged"),
    ],
)
def test_a_timeout_is_excused_by_a_batch_created_before_the_racks_returned(
    message: str | None, acknowledged: bool, valid: str
) -> None:
    verdict = check_progress(history_with_timeout(message, acknowledged=acknowledged))
    assert verdict.valid == valid, verdict.because


def test_a_batch_is_at_least_as_old_as_its_records() -> None:
    for batch_ms in (3004, 104, 3):
        (attempt,) = (
            attempt
            for attempt in Records(history_with_timeout(expired_message(batch_ms))).attempts
            if attempt.exception == TIMEOUT
        )
        assert attempt.done_ns - attempt.batch_ns == max(batch_ms * MS, attempt.done_ns - attempt.sent_ns)
        assert attempt.done_ns - attempt.sent_ns < 104 * MS
    (attempt,) = (attempt for attempt in Records(history_with_timeout(None)).attempts if attempt.exception == TIMEOUT)
    assert attempt.batch_ns == attempt.sent_ns
