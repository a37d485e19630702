"""A record that times out is judged by the age of its batch, which may be older than the record."""

from __future__ import annotations

import pytest

from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.record_view import Records
from pyhooks.history.event_log import Event
from pyhooks.history.record_format import key_of
from written_histories import MS, TIMEOUT, S, Simulated


def ran_out(message: str | None, *, acknowledged: bool = True, quiet_s: float = 2.5, age_s: float = 0.1) -> list[Event]:
    """Rack b is back for long enough to settle when a record runs out of its time.

    Args:
        message: what the producer says of it.
        acknowledged: whether others are acknowledged then.
        quiet_s: how long rack b is back when it is sent.
        age_s: how long ago it was sent.
    """
    made = Simulated()

    def go_on(seconds: float, *, silent: bool = False) -> None:
        until = made.now + round(seconds * S)
        while made.now < until:
            if not silent:
                made.produce()
            made.look()
            made.now += S // 10

    go_on(4)
    made.down = {3}
    made.look()
    go_on(6)
    made.down = set()
    made.look()
    go_on(quiet_s, silent=True)
    key = key_of(made.run, "t", 0, made.seq)
    fields = {} if message is None else {"message": message}
    sent_ns = made.now
    go_on(age_s, silent=True)
    made.now = max(made.now, sent_ns + round(age_s * S)) - MS
    made.note(
        "producer", "produce", "unknown", run=made.run, topic="t", key=key, seq=made.seq, partition=0,
        sent_ns=sent_ns, latency_ms=age_s * 1000, mode="plain", exception=TIMEOUT, retriable=True, **fields,
    )  # fmt: skip
    made.seq += 1
    go_on(8, silent=not acknowledged)
    made.end()
    return made.events


def expired(batch_ms: int) -> str:
    """Message of a Java producer."""
    return (
        f"Expiring 114 record(s) for t-0:{batch_ms} ms has passed since batch creation. The request has not been sent,"
        " or no server response has been received yet."
    )


def test_a_batch_excuses_no_longer_wait_than_the_timeout_allows() -> None:
    found = check_progress(ran_out(expired(12_000), quiet_s=2.5, age_s=7.0))
    assert found.valid == "unknown"
    assert "enough, and 1 attempts were not acknowledged" in "; ".join(found.because)


@pytest.mark.parametrize(
    ("message", "acknowledged", "valid"),
    [
        pytest.param(expired(3004), True, "true", id="its batch was begun before the racks were enough"),
        pytest.param(expired(104), True, "unknown", id="its batch was begun when they were"),
        pytest.param(None, True, "unknown", id="no message about a batch"),
        pytest.param("Disconnected from node 4 due to timeout", True, "unknown", id="another reason"),
        pytest.param(expired(104), False, "false", id="and no other is acknowledged"),
        pytest.param(expired(3004), False, "false", id="an older batch is no reason where nothing is acknowledged"),
    ],
)
def test_a_record_in_an_older_batch_shares_its_time(message: str | None, acknowledged: bool, valid: str) -> None:
    found = check_progress(ran_out(message, acknowledged=acknowledged))
    assert found.valid == valid, found.because


def test_a_batch_is_never_younger_than_its_records() -> None:
    for batch_ms in (3004, 104, 3):
        (one,) = (one for one in Records(ran_out(expired(batch_ms))).attempts if one.exception == TIMEOUT)
        assert one.done_ns - one.batch_ns == max(batch_ms * MS, one.done_ns - one.sent_ns)
        assert one.done_ns - one.sent_ns < 104 * MS
    (one,) = (one for one in Records(ran_out(None)).attempts if one.exception == TIMEOUT)
    assert one.batch_ns == one.sent_ns
