"""Conversion of timestamps from another host's clock."""

from __future__ import annotations

import time

import pytest

from ducktape_tests.services.clock import HostClock, clock_details, compare_clocks
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event
from pyhooks.history.events import ClockDetails


def test_local_clock_has_no_offset() -> None:
    assert compare_clocks(time.monotonic_ns) == HostClock(0, 0)


@pytest.mark.parametrize("ahead_s", [-7200, -3, 5, 86400])
def test_offset_error_is_bounded_by_the_read_duration(ahead_s: int) -> None:
    clock = compare_clocks(lambda: time.monotonic_ns() + ahead_s * 10**9)
    assert abs(clock.ahead_ns - ahead_s * 10**9) <= clock.error_ns + 1
    assert 0 < clock.error_ns < 10**8


def test_fastest_reading_determines_the_error_and_must_be_within_the_limit() -> None:
    delays_s = iter((0.3, 0.25, 0.0, 0.25, 0.3))

    def read() -> int:
        deadline = time.monotonic() + next(delays_s)
        wait_for(lambda: time.monotonic() >= deadline, goal="a slow reading", timeout_s=1, interval_s=0.001)
        return time.monotonic_ns() + 10**12

    assert compare_clocks(read).error_ns < 100_000_000
    with pytest.raises(RackgateError, match="limit is 0 ms"):
        compare_clocks(lambda: time.monotonic_ns() + 10**12, limit_ms=0.0)


def test_all_timestamps_of_an_event_are_converted() -> None:
    data = {"sent_ns": 50, "intended_ns": 40, "begun_ns": None, "latency_ms": 3.5, "seq": 7}
    remote = Event(100, 5, "producer", "produce", "ok", "a", data)
    assert HostClock(0, 0).to_local(remote) is remote
    local = HostClock(30, 1).to_local(remote)
    assert (local.mono_ns, local.wall_ms, local.rack) == (70, 5, "a")
    assert local.data == {**data, "sent_ns": 20, "intended_ns": 10}


def test_the_error_until_a_later_comparison_includes_the_drift() -> None:
    first = HostClock(1000, 20)
    assert first.error_until_ns(HostClock(1000, 5)) == 20
    assert first.error_until_ns(HostClock(1030, 5)) == first.error_until_ns(HostClock(970, 5)) == 35


def test_the_clock_of_another_host_is_described_for_each_run() -> None:
    found = clock_details(HostClock(-700, 20), lambda: HostClock(-750, 10), "load-1", ["run-1", "run-2"])
    assert found == [ClockDetails(run=run, host="load-1", error_ns=60) for run in ("run-1", "run-2")]


def test_the_local_clock_has_no_error() -> None:
    assert clock_details(HostClock(0, 0), lambda: HostClock(7, 7), "load-1", ["run-1"]) == []
