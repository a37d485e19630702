"""Driver of a cell, with a cluster and a Spark that only record requests."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.analysis import exit_reasons
from bench.load import pacer, schedule, spark_load
from bench.load.arm_topics import BenchTopics, cell_topics
from bench.load.java_client import JavaClient
from bench.load.load_jobs import RunningLoad
from bench.load.schedule import Slot
from bench.plan import scenarios
from bench.plan.cluster_states import StateBrokers
from bench.plan.scenario import BenchArm, BenchCell
from bench.run import (
    cell_measurement,
    instruments,
    measurement_session,
    run_result,
    run_store,
    sustained_rate,
)
from bench.run.client_security import ClientSecurity
from bench.run.measurement_session import MeasurementSession
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.jvm.java_exception import ERRORS, RETRIABLE, JavaError
from pyhooks.jvm.producer import Sent
from pyhooks.kafka.gate import Requirement
from pyhooks.kafka.topics import LeaderAndIsr, Partition, TopicSpec
from pyhooks.workload.requirement_changes import ReportedRequirements

FULL = scenarios.load("full")


def cell_of(name: str) -> BenchCell:
    """Return a cell of the shipped plan without further instruments, which need a cluster."""
    return next(dataclasses.replace(cell, instruments=()) for cell in FULL.cells if cell.id == name)


class FakeTarget:
    bootstrap = "all"
    security = ClientSecurity()

    def __init__(self) -> None:
        self.states: list[StateBrokers | str] = []
        self.against: Iterator[str] = iter(())

    def round_trips(self) -> list[dict[str, Any]]:
        return [{"source": "clients"}]

    @contextlib.contextmanager
    def state(self, reached: StateBrokers, history: History) -> Iterator[None]:  # noqa: ARG002 - as the real one
        self.states.append(reached)
        yield
        self.states.append("healed")

    def contradiction(self, reached: StateBrokers) -> str:
        assert reached in self.states
        return next(self.against, "")

    def without(self, brokers: Sequence[int]) -> str:
        return f"without {sorted(brokers)}"

    @property
    def brokers(self) -> StateBrokers:
        """The brokers of the last state."""
        return next(state for state in reversed(self.states) if isinstance(state, StateBrokers))


class FakeTopics(BenchTopics):
    """Topics without a cluster: remembers the settings of each, and reports the ISR of the target's state."""

    def __init__(self, target: FakeTarget) -> None:
        super().__init__(None)
        self.target = target
        self.required: dict[str, Requirement] = {}
        self.reported: Callable[[Sequence[str]], Mapping[Partition, LeaderAndIsr]] = lambda names: {
            (name, 0): LeaderAndIsr(1, tuple(sorted(target.brokers.isr))) for name in names
        }

    def create(self, specs: Sequence[TopicSpec]) -> None:
        pass

    def delete(self, names: Sequence[str]) -> None:
        pass

    def apply_settings(self, on: Mapping[str, str], arms: Sequence[BenchArm]) -> float:
        self.required |= {on[arm.id]: Requirement(arm.min_insync_replicas, arm.min_insync_racks) for arm in arms}
        return 0.1

    def wait_isrs(self, names: Sequence[str], isr: Sequence[int]) -> None:
        pass

    def states(self, names: Sequence[str]) -> Mapping[Partition, LeaderAndIsr]:
        return self.reported(names)


class FakeSession(MeasurementSession):
    """Writes an empty folder for each load; its topics reject records as the gate should, unless a test sets others."""

    driven_slots: list[tuple[str, tuple[Slot, ...], str]]
    required: dict[str, Requirement]
    responses: Callable[[Sequence[str]], dict[str, str]] | None = None
    # names of the loads of ``running``; those with the numbers ``failing`` fail, from 1 on
    load_names: list[str]
    failing: Collection[int] = ()

    def drive(self, name: str, slots: tuple[Slot, ...], *, cell: BenchCell, bootstrap: str = "") -> Path:  # noqa: ARG002 - as the real one
        self.driven_slots.append((name, slots, bootstrap))
        path = self.store.unfinished(name)
        path.mkdir()
        return path

    def rejections(self, bootstrap: str, topics: Sequence[str]) -> dict[str, str]:  # noqa: ARG002 - as the real one
        if self.responses is not None:
            return self.responses(topics)
        isr = self.target.brokers.isr  # type: ignore[union-attr]
        racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
        size, spread = len(isr), len({racks[broker] for broker in isr})
        return {
            name: "NotEnoughReplicasException"
            if size < self.required[name].replicas
            else "NotEnoughRacksException"
            if spread < self.required[name].racks
            else ""
            for name in topics
        }

    @contextlib.contextmanager
    def running(self, load: spark_load.SparkLoad, path: Path) -> Iterator[RunningLoad]:
        self.load_names.append(load.name)
        path.mkdir()
        yield RunningLoad(Future(), 0)
        if len(self.load_names) in self.failing:
            raise RackgateError(f"failure {len(self.load_names)}")

    def check_records(self, paths: Sequence[Path], topics: list[str]) -> dict[str, Any]:
        assert paths
        assert topics
        return {"acked": 1}


@pytest.fixture
def this(tmp_path: Path) -> FakeSession:
    """A session on a cluster whose gate does what it should."""
    kept, _ = run_store.begin_run(
        tmp_path / "run", FULL, started=datetime(2026, 1, 1, tzinfo=UTC), build="b", given={}, fresh=False
    )
    for cell in FULL.cells:
        kept.add_rate(sustained_rate.rate_key(cell), {"sustained_per_s": 1000.0})
    target = FakeTarget()
    topics = FakeTopics(target)
    session = FakeSession(
        target=target,  # type: ignore[arg-type]
        scenario=FULL,
        store=kept,
        number=1,
        spark=None,
        topics=topics,
        history=History(tmp_path / "history.jsonl"),
        steps=SimpleNamespace(tell=lambda *_: None),  # type: ignore[arg-type]
        sampler=SimpleNamespace(usage=lambda *_: []),  # type: ignore[arg-type]
    )
    session.driven_slots, session.load_names = [], []
    session.required = topics.required
    return session


def test_a_cell_is_measured_block_by_block_in_its_state(this: FakeSession) -> None:
    cell = cell_of("isr-3-in-2")
    cell_measurement.measure(this, cell)
    assert this.store.missing(cell) == []
    assert this.store.warm_up(cell.id) is not None
    assert this.target.states == [StateBrokers((1, 3, 2), (5, 4)), "healed"]  # type: ignore[union-attr]
    (seen,) = this.store.cell(cell.id)
    assert (seen["rejected"], seen["rate_per_s"], seen["isr_racks"]) == ({}, 200.0, ["a", "b"])
    assert this.notes == []
    assert this.round_trips == {cell_measurement.UNDER_LOAD: [{"source": "clients"}]}
    names = [name for name, _, _ in this.driven_slots]
    assert names == ["isr-3-in-2-warmup", *(f"isr-3-in-2-{block:03d}" for block in range(20))]
    assert {bootstrap for _, _, bootstrap in this.driven_slots} == {"without [4, 5]"}
    for at, (_, slots, _) in enumerate(this.driven_slots[1:]):
        on = schedule.topics_of_block(cell.scenario.latency_arms, [f"isr-3-in-2-1-t{n}" for n in (1, 2, 3, 4, 5)], at)
        assert {(slot.arm, slot.topic) for slot in slots} == set(on.items())
        assert {slot.block for slot in slots} == {at}


def test_an_arm_that_rejects_gets_no_load_and_is_noted(this: FakeSession) -> None:
    cell = cell_of("isr-2-in-1")
    cell_measurement.measure(this, cell)
    (seen,) = this.store.cell(cell.id)
    assert seen["rejected"] == {
        "A": "NotEnoughReplicasException",
        "A'": "NotEnoughReplicasException",
        "B": "NotEnoughRacksException",
    }
    assert seen["expected_to_reject"] == ["A", "A'", "B"]
    assert list(seen["rejected_after"]) == list(seen["rejected"]) == ["A", "A'", "B"]
    assert {slot.arm for _, slots, _ in this.driven_slots for slot in slots} == {"C", "P"}
    assert len({slot.topic for _, slots, _ in this.driven_slots for slot in slots}) == 5


def test_an_arm_that_acknowledges_where_rejection_is_expected_fails_the_run(this: FakeSession) -> None:
    cell = cell_of("isr-2-in-1")
    for exception in ("", "NotEnoughRacksException"):

        def answers(names: Sequence[str], third: str = exception) -> dict[str, str]:
            # C and P are on the last two of them and are to go on; B is on the one before them
            return dict(zip(names, ("NotEnoughReplicasException",) * 2 + (third, "", ""), strict=True))

        this.responses = answers
        cell_measurement.measure(this, cell)
        seen = this.store.cell(cell.id)
        arms = [
            {"arm": arm.id, "label": arm.label, "rejected": False, "acked": 1} for arm in cell.scenario.latency_arms
        ]
        found = {"cell": cell.id, "findings": seen[-1], "rejections": run_result.rejections_by_lab(seen), "arms": arms}
        reasons = [(reason.verdict, reason.subject) for reason in exit_reasons._of_cell(found)]
        assert reasons == ([] if exception else [("failed", "cell isr-2-in-1: M=2, R=2")])


def test_instruments_measure_the_arms_in_alternating_order(this: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = next(cell for cell in FULL.cells if cell.id == "healthy-20")
    order: dict[str, list[str]] = {}

    def measure(
        instrument: str, _run_tool: object, _bootstrap: str, topic: str, *_: object, acks: str, **__: object
    ) -> instruments.Measurement | None:
        order.setdefault(instrument, []).append(topic[-1])
        if instrument == "transaction" and acks == "1":
            return None
        return instruments.Measurement(50, float(len(order[instrument])), 9.0)

    this.target.run_tool = None  # type: ignore[method-assign,assignment]
    monkeypatch.setattr(instruments, "measure", measure)
    cell_measurement.measure(this, cell)
    (seen,) = this.store.cell(cell.id)
    assert {instrument: "".join(turns) for instrument, turns in order.items()} == dict.fromkeys(
        cell.instruments, "012344321001234"
    )
    assert list(seen["instruments"]["P"]) == ["producer-perf-test", "end-to-end"]
    first = seen["instruments"]["A"]["end-to-end"]
    assert (first["records"], first["p50_ms"], first["mean_ms"]) == (150, 10.0, None)
    assert [run["p50_ms"] for run in first["runs"]] == [1.0, 10.0, 11.0]


def test_only_missing_blocks_are_measured_and_later_cells_warm_up_less(this: FakeSession) -> None:
    cell = cell_of("healthy-20")
    for block in (0, 1, 19):
        path = this.store.unfinished("x")
        path.mkdir()
        this.store.keep(path, cell.id, f"{block:03d}.0")
    cell_measurement.measure(this, cell)
    names = [name for name, _, _ in this.driven_slots]
    assert names == ["healthy-20-warmup", *(f"healthy-20-{block:03d}" for block in range(2, 19))]
    warm = cell.scenario.latency
    assert {slot.block for slot in this.driven_slots[0][1]} == set(range(-warm.warmup_blocks, 0))
    cell_measurement.measure(this, cell_of("large-50"))
    again = next(slots for name, slots, _ in this.driven_slots if name == "large-50-warmup")
    assert {slot.block for slot in again} == set(range(-warm.warmup_blocks_again, 0))


def test_a_state_that_did_not_last_is_noted(this: FakeSession) -> None:
    exceptions = iter(["", "NotEnoughReplicasException"])
    this.responses = lambda names: dict.fromkeys(names, next(exceptions))
    cell_measurement.measure(this, cell_of("healthy-20"))
    assert "probes got {} before the blocks and" in this.notes[0]


def test_a_block_whose_state_did_not_last_is_discarded_counted_and_repeated(this: FakeSession) -> None:
    # asked before and after each block; the third block's follower is no longer slow at its end, twice
    objections = ["", ""] * 2 + ["", "slow-broker: not slow"] * 2 + ["", ""]
    this.target.against = iter(objections)  # type: ignore[union-attr]
    cell = cell_of("slow-follower-20")
    cell_measurement.measure(this, cell)
    assert this.store.missing(cell) == []
    found = this.store.discarded(cell.id)
    assert [(one["block"], one["why"]) for one in found.values()] == [(2, "slow-broker: not slow")] * 2
    assert not list(this.store.raw.glob("**/_why.json"))
    driven = [name for name, _, _ in this.driven_slots if name.startswith(f"{cell.id}-0")]
    assert driven.count(f"{cell.id}-002") == 3
    assert len(driven) == cell.scenario.latency.blocks + 2
    assert any("2 blocks discarded" in note for note in run_result._cell_notes(cell, this.store))
    # what was acknowledged in them is read back as well
    assert set(found) == set(this.store.discarded(cell.id, this.number))
    assert this.store.discarded(cell.id, this.number + 1) == {}


def test_a_state_that_never_lasts_ends_the_run(this: FakeSession) -> None:
    samples = 0

    def states(names: Sequence[str]) -> dict[Partition, LeaderAndIsr]:
        nonlocal samples
        samples += 1
        isr = (1, 2, 3, 4, 5) if samples % 2 else (1, 2)
        return {(name, 0): LeaderAndIsr(1, isr) for name in names}

    this.topics.reported = states  # type: ignore[attr-defined]
    with pytest.raises(RackgateError, match=r"cell healthy-20: .*block 1: .*ISR \[1, 2\]"):
        cell_measurement.measure(this, cell_of("healthy-20"))
    assert len(this.store.discarded("healthy-20")) == cell_measurement.MAX_DISCARDED


def test_an_unknown_state_is_no_proof(this: FakeSession) -> None:
    this.topics.reported = lambda _: {}  # type: ignore[attr-defined]
    with pytest.raises(RackgateError, match=r"before block 1 .*unknown"):
        cell_measurement.measure(this, cell_of("healthy-20"))


def test_the_state_of_every_partition_is_proved(this: FakeSession) -> None:
    cell = next(one for one in scenarios.load("full", partitions=3).cells if one.id == "isr-3-in-2")
    wrong = 5

    def states(names: Sequence[str]) -> dict[Partition, LeaderAndIsr]:
        # replicas 1, 3, 5, 2, 4; 5 and 4 are killed, so 2 leads the partition whose first replica is 5
        leaders = (1, 3, wrong)
        return {(name, number): LeaderAndIsr(one, (1, 2, 3)) for name in names for number, one in enumerate(leaders)}

    this.topics.reported = states  # type: ignore[attr-defined]
    with pytest.raises(RackgateError, match=r"before block 1 .*: isr-3-in-2-1-t1-2: leader 5, ISR \[1, 2, 3\]; "):
        cell_measurement.measure(this, cell)
    wrong = 2
    cell_measurement.measure(this, cell)
    assert this.store.missing(cell) == []
    this.topics.reported = lambda names: {(name, 0): LeaderAndIsr(1, (1, 2, 3)) for name in names}  # type: ignore[attr-defined]
    run = cell_measurement.CellRun(this, cell, cell_topics(cell, 1), "")
    assert re.fullmatch(r"(\S+-t\d-[12]: unknown; ){5}and 5 more partitions", run._contradiction())


def test_a_load_has_the_partitions_of_its_cell(this: FakeSession) -> None:
    cell = next(one for one in scenarios.load("full", partitions=64).cells if one.id == "healthy-20")
    assert {(spec.partitions, len(spec.assignment)) for spec in cell_topics(cell, 1)} == {(64, 64)}
    assert this.load("x", (), cell=cell).partitions == 64
    # topics of the outage phase have one
    assert this.load("outage", ()).partitions == this.load("x", (), cell=cell_of("healthy-20")).partitions == 1


def test_a_cell_in_which_every_arm_rejects_ends_the_run(this: FakeSession) -> None:
    this.responses = lambda names: dict.fromkeys(names, "NotEnoughReplicasException")
    with pytest.raises(RackgateError, match="cell healthy-20: every arm rejects"):
        cell_measurement.measure(this, cell_of("healthy-20"))


def test_the_rate_a_lab_sustains_is_measured_once_and_kept(this: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_of("large-50")
    (this.store.folder / "rates.json").unlink()
    took = {250: 2.0, 500: 3.0, 1000: 30.0}
    monkeypatch.setattr(
        sustained_rate, "ramp_step", lambda rate, _: sustained_rate.RampStep(rate, 1.0, took[rate], 0.0)
    )
    frame = SimpleNamespace(toPandas=pd.DataFrame)
    this.spark = SimpleNamespace(read=SimpleNamespace(parquet=lambda *_: frame))
    assert cell_measurement.rate_of(this, cell) == 250.0
    # brokers that are still compiling sustain less
    warm_up, *tried = [slots[0] for _, slots, _ in this.driven_slots]
    plan = cell.scenario.latency
    assert warm_up.rate_per_s == plan.warmup_rate_per_s
    assert warm_up.duration_ns == round(plan.warmup_blocks * plan.block_s(5) * 1e9)
    assert [slot.rate_per_s for slot in tried] == [250, 500, 1000]
    assert cell_measurement.rate_of(this, cell) == 250.0
    assert len(this.driven_slots) == 4
    (found,) = this.store.rates.values()
    assert [step["p50_ms"] for step in found["steps"]] == [2.0, 3.0, 30.0]
    assert not list(this.store.unfinished("none").parent.glob("*"))
    took |= {2000: 30.0}
    this.driven_slots.clear()
    cell_measurement.rate_of(this, cell_of("healthy-20"))
    assert this.driven_slots[0][0] == "ramp-healthy-20-250"


def test_a_load_has_the_cell_s_client_size_and_linger(this: FakeSession) -> None:
    java = this.load("x", (), cell=cell_of("java-50"))
    assert re.fullmatch(r"x-\d+\.1", java.name)
    assert (java.client, java.record_bytes, java.config["linger.ms"]) == ("java", 1000, 5)
    assert "queue.buffering.max.messages" not in java.config
    small = this.load("x", (), cell=cell_of("small-80"), bootstrap="some")
    assert (small.client, small.record_bytes, small.bootstrap, small.state) == ("confluent", 100, "some", "healthy")
    outage = this.load("outage", ())
    assert (outage.cell, outage.state, outage.client, outage.config["linger.ms"]) == (None, "outage", "confluent", 0)


def use_real_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make cells drive their loads through ``running``, each in a millisecond of its own."""
    ticks = itertools.count(10**15, 10**6)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(ticks))
    monkeypatch.setattr(FakeSession, "drive", MeasurementSession.drive)


def test_a_failed_load_costs_one_block_and_a_note(this: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    use_real_loads(monkeypatch)
    cell = cell_of("healthy-20")
    # the warm-up, and one block twice
    this.failing = {1, 5, 6}
    cell_measurement.measure(this, cell)
    blocks = cell.scenario.latency.blocks
    assert len(set(this.load_names)) == len(this.load_names) == 1 + blocks + len(this.failing)
    failed = [this.load_names[number - 1] for number in sorted(this.failing)]
    assert [name.rsplit("-", 1)[0] for name in failed] == ["healthy-20-warmup", "healthy-20-002", "healthy-20-002"]
    assert this.notes == [
        f"load {name} is repeated: failure {number}" for name, number in zip(failed, (1, 5, 6), strict=True)
    ]
    # what they wrote is in no block, neither kept nor discarded
    assert len(this.store.kept(cell.id)) == blocks
    assert this.store.discarded(cell.id) == {}
    assert sorted(path.name for path in this.store.unfinished("none").parent.iterdir()) == sorted(failed)


def test_a_load_that_fails_repeatedly_ends_the_run_with_its_error(
    this: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_real_loads(monkeypatch)
    this.failing = range(1, 99)
    with pytest.raises(RackgateError, match=f"^failure {measurement_session.MAX_ATTEMPTS}$"):
        cell_measurement.measure(this, cell_of("healthy-20"))
    assert len(this.load_names) == measurement_session.MAX_ATTEMPTS == len(this.notes) + 1
    assert this.store.kept("healthy-20") == {}
    assert this.store.warm_up("healthy-20") is None


def test_only_different_settings_are_changed_and_awaited() -> None:
    arms = FULL.latency_arms
    altered: list[str] = []
    requests: list[str] = []
    values: dict[str, Requirement] = {}

    def alter(_: object, topic: str, config: Mapping[str, str]) -> None:
        altered.append(topic)
        values[topic] = Requirement(int(config["min.insync.replicas"]), int(config["min.insync.racks"]))

    def ask(_: object, topic: str) -> ReportedRequirements:
        requests.append(topic)
        # one broker is behind at first, with what no arm requires
        behind = Requirement(1, 3) if requests.count(topic) == 1 else values[topic]
        return ReportedRequirements(0, answers={1: values[topic], 3: behind})

    names = ["t1", "t2", "t3", "t4", "t5"]
    topics = BenchTopics(None, alter=alter, query=ask)
    topics.apply_settings(schedule.topics_of_block(arms, names, 0), arms)
    assert sorted(altered) == names
    assert all(requests.count(name) == 2 for name in names)
    altered.clear()
    topics.apply_settings(schedule.topics_of_block(arms, names, 1), arms)
    # A has moved to where A' was, which asks for the same.
    assert len(altered) == 4
    assert topics._in_force == {
        "t2": Requirement(3, 1), "t3": Requirement(3, 1), "t4": Requirement(2, 2), "t5": Requirement(2, 1),
        "t1": Requirement(1, 1),
    }  # fmt: skip


def test_a_change_that_does_not_take_effect_ends_in_bounded_time() -> None:
    old = ReportedRequirements(0, answers={1: Requirement(1, 1)})
    topics = BenchTopics(None, alter=lambda *_: None, query=lambda *_: old, timeout_s=0.2)
    arm = FULL.role("baseline")
    with pytest.raises(RackgateError, match="the brokers of t to apply"):
        topics.apply_settings({"A": "t"}, [arm])


class FakeProducer:
    """A Java producer that completes records on request."""

    def __init__(self) -> None:
        self.metadata_of: list[str] = []
        self.futures: list[Future[Sent]] = []
        self.closed = 0

    def fetch_metadata(self, topic: str) -> None:
        self.metadata_of.append(topic)

    def send_batch(self, topic: str, values: list[bytes], *, keys: list[bytes], partitions: int) -> Future[Sent]:
        assert (topic, values, keys, partitions) == ("t", [b"v"], [b"k"], 3)
        self.futures.append(Future())
        return self.futures[-1]

    def close(self) -> None:
        self.closed += 1
        for future in self.futures:
            if not future.done():
                future.set_exception(RackgateError("the producer ended"))


def sent(error: JavaError | None = None) -> Sent:
    one = np.array([0])
    wrong = np.array([-1 if error is None else 0])
    return Sent("t", one, one + 7, one + 1_000, one + 4_000, wrong, () if error is None else (error,))


def test_the_java_producer_s_own_clock_times_the_end_of_a_record() -> None:
    fake: Any = FakeProducer()
    client = JavaClient(fake, ["t"])
    results: list[tuple[Any, Any]] = []
    for _ in range(3):
        client.produce("t", b"v", b"k", 3, on_delivery=lambda error, message: results.append((error, message)))
    assert fake.metadata_of == ["t"]
    fake.futures[0].set_result(sent())
    fake.futures[1].set_result(sent(JavaError([f"{ERRORS}.TimeoutException", RETRIABLE], "")))
    assert results[0] == (None, pacer.TimedAck(0, 7, done_ns=4_000, own_ns=3_000))
    assert (results[1][0].name(), results[1][1]) == ("TimeoutException", None)
    assert client.flush(0.01) == 1
    client.purge()
    assert results[2][0].name() == "RackgateError"
    assert client.flush(0.01) == 0


def test_a_probe_distinguishes_acks_rejections_and_other_results() -> None:
    answers = {
        "open": sent(),
        "shut": sent(JavaError([f"{ERRORS}.NotEnoughRacksException", RETRIABLE], "")),
        "lost": sent(JavaError([f"{ERRORS}.TimeoutException", RETRIABLE], "")),
    }

    class Probe:
        def send_batch(self, topic: str, values: list[bytes], *, keys: list[bytes]) -> Future[Sent]:  # noqa: ARG002
            future: Future[Sent] = Future()
            if topic in answers:
                future.set_result(answers[topic])
            return future

    producer: Any = Probe()
    assert measurement_session.rejection(producer, "open") == ""
    assert measurement_session.rejection(producer, "shut") == "NotEnoughRacksException"
    with pytest.raises(RackgateError, match=r"lost .*TimeoutException 3"):
        measurement_session.rejection(producer, "lost")
    with pytest.raises(RackgateError, match=r"topic silent .*3 times"):
        measurement_session.rejection(producer, "silent", response_s=0.01)


@pytest.mark.parametrize("client", ["confluent", "java"])
def test_only_the_positive_control_s_client_has_acks_1_and_no_idempotence(
    this: FakeSession, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    configs: list[Mapping[str, Any]] = []

    class Client:
        def __init__(self, *given: Any, close_timeout_s: float = 0.0) -> None:  # noqa: ARG002 - as the Java producer
            # addresses come first for the Java client alone
            configs.append(next(one for one in given if isinstance(one, dict)))

        def fetch_metadata(self, topic: str) -> None:
            pass

        def close(self) -> None:
            pass

        def poll(self, timeout: float) -> int:
            return int(timeout)

        def purge(self) -> None:
            pass

    monkeypatch.setattr("confluent_kafka.Producer", Client)
    monkeypatch.setattr("pyhooks.jvm.producer.Producer", Client)
    monkeypatch.setattr(pacer.ArmPacer, "drive", lambda *_: [])
    monkeypatch.setattr(pd, "concat", lambda *_, **__: None)
    cell = cell_of("java-50" if client == "java" else "healthy-20")
    arms = [arm.id for arm in cell.scenario.latency_arms]
    slots = tuple(schedule.steady_slot(arm, f"t-{arm}", rate_per_s=10, seconds=0.1) for arm in arms)
    load = this.load("x", slots, cell=cell)
    assert (load.client, load.leader_only) == (client, frozenset("P"))
    assert load.config["enable.idempotence"] is True

    def agree_on_start() -> int:
        assert len(configs) == len(arms), "clients must be ready before the tasks agree on the start"
        return 7

    assert len(list(spark_load.run_task(load, 0, agree_on_start))) == len(arms)
    found = {arm: (config["acks"], config["enable.idempotence"]) for arm, config in zip(arms, configs, strict=True)}
    true, false = ("true", "false") if client == "java" else (True, False)
    assert found == dict.fromkeys(arms, ("all", true)) | {"P": ("1", false)}
    # everything else is the same for all arms
    others = [
        {key: value for key, value in config.items() if key not in ("acks", "enable.idempotence", "client.id")}
        for config in configs
    ]
    assert all(one == others[0] for one in others)
