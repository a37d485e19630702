"""The clock of another host: what it tells of moments, by ours."""

from __future__ import annotations

import time

import pytest

from ducktape_tests.services import clock
from ducktape_tests.services.clock import HostClock, compare
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event


def test_the_clock_of_this_machine_is_ours() -> None:
    assert compare(time.monotonic_ns) == HostClock(0, 0)


@pytest.mark.parametrize("ahead_s", [-7200, -3, 5, 86400])
def test_another_one_is_known_as_well_as_its_answer_is_quick(ahead_s: int) -> None:
    found = compare(lambda: time.monotonic_ns() + ahead_s * 10**9)
    assert abs(found.ahead_ns - ahead_s * 10**9) <= found.error_ns + 1
    assert 0 < found.error_ns < 10**8


def test_the_quickest_answer_counts_and_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter((0.3, 0.25, 0.0, 0.25, 0.3))

    def ask() -> int:
        until = time.monotonic() + next(waits)
        wait_for(lambda: time.monotonic() >= until, what="a slow answer", timeout_s=1, interval_s=0.001)
        return time.monotonic_ns() + 10**12

    assert compare(ask).error_ns < 100_000_000
    monkeypatch.setattr(clock, "ERROR_MS", 0.0)
    with pytest.raises(RackgateError, match="compare clocks: an answer takes"):
        compare(lambda: time.monotonic_ns() + 10**12)


def test_all_moments_of_an_event_are_moved() -> None:
    data = {"sent_ns": 50, "intended_ns": 40, "begun_ns": None, "latency_ms": 3.5, "seq": 7}
    there = Event(100, 5, "producer", "produce", "ok", "a", data)
    assert HostClock(0, 0).here(there) is there
    here = HostClock(30, 1).here(there)
    assert (here.mono_ns, here.wall_ms, here.rack) == (70, 5, "a")
    assert here.data == {**data, "sent_ns": 20, "intended_ns": 10}
