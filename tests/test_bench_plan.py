from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import pacer, pacing, scenarios
from bench.pacer import Lane, record_key
from bench.pacing import Slot
from pyhooks.errors import RackgateError
from pyhooks.workload.pacing import NS


def edited(tmp_path: Path, pattern: str, replacement: str) -> Path:
    text = scenarios.SHIPPED.read_text(encoding="utf-8")
    changed = re.sub(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert changed != text
    path = tmp_path / "plans.toml"
    path.write_text(changed, encoding="utf-8")
    return path


def test_the_quick_plan_is_as_the_issue_asks() -> None:
    quick = scenarios.load("quick")
    arms = {arm.topic: arm for arm in quick.arms}
    assert {arm.replicas for arm in quick.latency_arms} == {(1, 3, 5, 2, 4)}
    assert (arms["rf5-m3"].min_insync_replicas, arms["rf5-m3"].min_insync_racks) == (3, 1)
    assert (arms["rf5-m2r2"].min_insync_replicas, arms["rf5-m2r2"].min_insync_racks) == (2, 2)
    assert arms["rf3-m2r2"].replicas == arms["rf3-m2r1"].replicas == (1, 2, 3)
    control, base = quick.role("control"), quick.role("baseline")
    assert (control.min_insync_replicas, control.min_insync_racks) == (base.min_insync_replicas, base.min_insync_racks)
    assert len(quick.outage_arms) == 4
    whole_s = pacing.length_ns(pacing.latency_slots(quick)) / NS + quick.outage.total_s
    assert whole_s < 220  # of the 4.5 minutes; the rest is start, analysis and report


@pytest.mark.parametrize(
    ("pattern", "replacement", "told"),
    [
        (r"^seed = .*$", "", "quick.seed: is missing"),
        (r"^seed = .*$", 'seed = "x"', "quick.seed: must be a number"),
        (r"^blocks = .*$", "blocks = 1", "quick.latency.blocks: must be from 2"),
        (r"^blocks = .*$", "blocks = 2.5", "quick.latency.blocks: must be a whole number"),
        (r"^blocks = .*$", "blocks = 12\nblock = 3", "quick.latency.block: is not known"),
        (r"^p50 = .*$", "p50 = 0", "quick.latency.bands.p50: must be from 0.001"),
        (r"^discard_s = .*$", "discard_s = 9", "quick.latency.discard_s: must be below slot_s"),
        (r'^latency = "control"$', 'latency = "none"', "exactly one arm must be the control"),
        (r'^latency = "control"$', 'latency = "other"', "quick.arms[1].latency: must be one of"),
        (r"^replicas = .*$", "replicas = [1, 1]", "quick.arms[0].replicas: names a broker twice"),
        (r"^replicas = .*$", "replicas = [1, 2, 3]", "must have the same replicas"),
        (r"^min_insync_replicas = .*$", "min_insync_replicas = 6", "min_insync_replicas: is above the 5 replicas"),
        (r'^"enable.idempotence"', '"acks" = 1\n"enable.idempotence"', "quick.client.acks: is set by the benchmark"),
        (r'^topic = "rf5-m2r2"$', 'topic = "rf5-m3"', "two arms have the same topic"),
    ],
)
def test_a_wrong_file_is_told_by_name_and_key(tmp_path: Path, pattern: str, replacement: str, told: str) -> None:
    path = edited(tmp_path, pattern, replacement)
    with pytest.raises(RackgateError) as caught:
        scenarios.load("quick", path)
    assert str(path) in str(caught.value)
    assert told in str(caught.value)


def test_an_unknown_scenario_and_a_missing_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="no scenario 'fast'; it has quick"):
        scenarios.load("fast")
    with pytest.raises(RackgateError, match="can't be read"):
        scenarios.load("quick", tmp_path / "none.toml")


def test_every_round_has_every_arm_once_in_its_own_slot_and_in_varying_order() -> None:
    quick = scenarios.load("quick")
    slots = pacing.latency_slots(quick)
    ids = sorted(arm.id for arm in quick.latency_arms)
    rounds = {block: [slot for slot in slots if slot.block == block] for block in {slot.block for slot in slots}}
    assert set(rounds) == set(range(-quick.latency.warmup_rounds, quick.latency.blocks))
    assert all(sorted(slot.arm for slot in own) == ids for own in rounds.values())
    assert len({tuple(slot.arm for slot in own) for own in rounds.values()}) > 2
    assert all(a.start_ns + a.duration_ns <= b.start_ns for a, b in pairwise(slots))
    for arm in ids:
        numbers = [s for slot in slots if slot.arm == arm for s in range(slot.first_seq, slot.first_seq + slot.count)]
        assert len(set(numbers)) == len(numbers)
    assert not any(slot.measured(slot.count - 1) for slot in slots if slot.block < 0)
    assert pacing.latency_slots(quick) == slots


def slot(rate: float = 100.0, seconds: float = 1.0, discard_s: float = 0.0) -> Slot:
    return Slot("latency", 0, "A", "t", 5 * NS, round(seconds * NS), round(discard_s * NS), rate, 0)


@given(st.floats(0.5, 50_000), st.floats(0.1, 3), st.integers(1, 5))
def test_the_schedule_keeps_its_rate_and_tasks_share_it_without_overlap(rate: float, s: float, tasks: int) -> None:
    one = slot(rate, s)
    last = one.count - 1
    assert one.intended_ns(0) == one.start_ns
    assert abs(one.intended_ns(last) - one.start_ns - last / rate * NS) <= 1
    shared = sorted(index for task in range(tasks) for index in one.share(task, tasks))
    assert shared == list(range(one.count))


def test_the_head_of_a_slot_does_not_count() -> None:
    one = slot(rate=10, seconds=1, discard_s=0.5)
    assert [one.measured(index) for index in range(one.count)] == [False] * 5 + [True] * 5


@dataclass
class Message:
    at: int

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def latency(self) -> float:
        return 0.002


class KError:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


@dataclass
class FakeClient:
    """A client on a clock of its own; produce() of record ``stalls_at`` takes ``stall_ns``."""

    now: int = 0
    stalls_at: int = -1
    stall_ns: int = 0
    full_at: int = -1
    errors: dict[int, str] = field(default_factory=dict)
    open: list[Callable[[], None]] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    silent: bool = False
    purged: bool = False

    def clock(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(1, round(seconds * NS))
        self.serve()

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: Callable[..., None]) -> None:  # noqa: ARG002
        number = len(self.keys)
        self.keys.append(key)
        if number == self.full_at:
            raise BufferError
        if number == self.stalls_at:
            self.now += self.stall_ns
        if number in self.errors:
            self.open.append(lambda: on_delivery(KError(self.errors[number]), Message(number)))
        elif not self.silent:
            self.open.append(lambda: on_delivery(None, Message(number)))

    def serve(self) -> None:
        served, self.open = self.open, []
        for report in served:
            report()

    def flush(self, timeout: float) -> int:  # noqa: ARG002
        self.serve()
        return 1 if self.silent and not self.purged else 0

    def purge(self) -> None:
        self.purged = True


def drive(client: FakeClient, *slots: Slot) -> list[pacer.Observations]:
    lane = Lane("r", slots, 0, b"v", 0, 1, 1.0, clock=client.clock, sleep=client.sleep)
    return lane.drive(client)


def test_records_are_sent_at_their_intended_times() -> None:
    (seen,) = drive(FakeClient(), slot())
    intended = np.array([seen.slot.intended_ns(int(index)) for index in seen.index])
    late = seen.sent_ns - intended
    assert late.min() >= 0
    assert late.max() <= 200_000
    assert set(seen.outcome) == {"acked"}


def test_a_stall_delays_records_but_never_their_intended_times() -> None:
    client = FakeClient(stalls_at=10, stall_ns=NS // 5)
    (seen,) = drive(client, slot())
    intended = np.array([seen.slot.intended_ns(int(index)) for index in seen.index])
    late_ms = (seen.sent_ns - intended) / 1e6
    # Record 11 was due 10 ms after record 10 and goes 190 ms late; the backlog is sent at once until it is caught up.
    assert late_ms[11] == pytest.approx(190, abs=1)
    assert late_ms[20] == pytest.approx(100, abs=1)
    assert late_ms[35:].max() < 1
    assert len(seen.index) == 100
    columns: dict[str, Any] = dict(pacer.rows("r", 0, 0, seen))
    assert (columns["intended_ns"] == intended).all()


def test_outcomes_are_what_is_certain_and_no_more() -> None:
    client = FakeClient(full_at=3, errors={1: "_MSG_TIMED_OUT", 2: "NOT_ENOUGH_REPLICAS"})
    (seen,) = drive(client, slot())
    assert seen.outcome[:5] == ["acked", "unknown", "unknown", "failed", "acked"]
    assert seen.error[:5] == [None, "_MSG_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "_QUEUE_FULL", None]


def test_what_is_never_reported_is_unknown_and_given_up_in_bounded_time() -> None:
    client = FakeClient(silent=True)
    (seen,) = drive(client, slot())
    assert set(seen.outcome) == {"unknown"}
    assert set(seen.error) == {"not-reported"}
    assert client.purged


def test_keys_tell_run_phase_arm_and_sequence() -> None:
    client = FakeClient()
    drive(client, slot(rate=2))
    assert client.keys == [record_key("r", "latency", "A", 0), b"r/latency/A/1"]


def test_reports_are_served_while_the_pacer_sleeps_and_no_longer() -> None:
    served = threading.Event()
    threads: list[threading.Thread] = []

    def poll(timeout: float) -> int:
        threads.append(threading.current_thread())
        served.set()
        return int(timeout)

    with pacer.serving(poll):
        assert served.wait(5)
    assert threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()
