"""Measurement of one cell in one lab: topics, state, warm-up, missing blocks, and read-back of the records."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.load import arm_topics, schedule
from bench.plan.scenario import BenchCell
from bench.run import instruments, sustained_rate
from bench.run.measurement_session import MeasurementSession
from bench.run.run_store import WARM_UP
from pyhooks.core.errors import RackgateError
from pyhooks.kafka.topics import LeaderAndIsr, TopicSpec

# Estimates in seconds for the progress display: a block beside its length; topics created, read back and deleted; a
# slow follower; killed followers, fixed part and each; two probes of all arms.
BLOCK_S, TOPICS_S, SLOW_S, DEAD_S, EACH_DEAD_S, PROBES_S = 1.5, 11.0, 15.0, 12.0, 15.0, 4.0
# one measurement of an arm by another instrument
INSTRUMENT_S = 5.0
UNDER_LOAD, ROUND_TRIPS_S = "under load", 60.0
# Limit of consecutive attempts at a block. A state that does not last through any of them is not the cell's state.
MAX_DISCARDED = 3
# Limit of partitions that a message names.
MAX_NAMED = 5


def planned_s(cell: BenchCell, blocks: int, *, first: bool, ramp: bool) -> float:
    """Return the expected duration of a cell in seconds; ``ramp``: whether its lab's sustained load is unknown."""
    plan, reached = cell.scenario.latency, cell.reached
    block_s = plan.block_s(len(cell.scenario.latency_arms) - len(cell.rejecting))
    # the first ramp comes after the long warm-up, and the cell itself then gets a short one
    warm_ups = _warm_ups(cell, first=first) + (plan.warmup_blocks_again if first and ramp else 0)
    seconds = TOPICS_S + PROBES_S + blocks * (block_s + BLOCK_S) + warm_ups * block_s
    measured_arms = [arm for arm in cell.scenario.latency_arms if arm.latency != "control"]
    measurements = len(cell.instruments) * cell.instrument_rounds * (len(measured_arms) - len(cell.rejecting))
    seconds += INSTRUMENT_S * measurements
    seconds += SLOW_S * bool(reached.slow) + (DEAD_S + EACH_DEAD_S * len(reached.dead) if reached.dead else 0.0)
    if ramp and cell.scenario.ramp:
        rates = cell.scenario.ramp.rates(cell.setting.record_bytes)
        seconds += TOPICS_S + len(rates) * (cell.scenario.ramp.step_s + BLOCK_S)
    return seconds


def _warm_ups(cell: BenchCell, *, first: bool) -> int:
    plan = cell.scenario.latency
    return plan.warmup_blocks if first else plan.warmup_blocks_again


def rate_of(session: MeasurementSession, cell: BenchCell) -> float:
    """Return the cell's rate in records per second; find the load that its lab sustains first, if needed."""
    setting = cell.setting
    if setting.rate_per_s is not None or setting.load_percent is None:
        return float(setting.rate_per_s or 0)
    name = sustained_rate.rate_key(cell)
    if name not in session.store.rates:
        session.store.add_rate(name, _ramp(session, cell))
    sustained = float(session.store.rates[name]["sustained_per_s"])
    return sustained * setting.load_percent / 100


def _ramp(session: MeasurementSession, cell: BenchCell) -> dict[str, Any]:
    """Find the load that the lab sustains in a cell's setting, on a healthy cluster and a topic of its own.

    A lab without a warm-up gets one first: brokers that still compile would be too slow a reference for the other
    rates.
    """
    ramp, arm = cell.scenario.ramp, cell.scenario.role("baseline")
    if ramp is None:
        raise RackgateError(f"cell {cell.id}: the plan has no ramp")
    (spec, *_) = arm_topics.cell_topics(replace(cell, id=f"ramp-{cell.id}"), session.number, session.prefix)
    session.topics.create([spec])
    session.topics.apply_settings({arm.id: spec.name}, [arm])
    if not session.warm:
        session.steps.tell(f"{cell.id}: warm-up before the ramp")
        plan = cell.scenario.latency
        seconds = plan.warmup_blocks * plan.block_s(len(cell.scenario.latency_arms))
        slot = schedule.steady_slot(arm.id, spec.name, rate_per_s=plan.warmup_rate_per_s, seconds=seconds)
        path = session.drive(f"ramp-{cell.id}-warmup", (slot,), cell=cell)
        shutil.rmtree(path)
        session.warm = True
    steps: list[sustained_rate.RampStep] = []
    for rate_per_s in ramp.rates(cell.setting.record_bytes):
        session.steps.tell(f"{cell.id}: search for the sustained load: {rate_per_s:g} records/s")
        slot = schedule.steady_slot(arm.id, spec.name, rate_per_s=rate_per_s, seconds=ramp.step_s)
        path = session.drive(f"ramp-{cell.id}-{rate_per_s:g}", (slot,), cell=cell)
        steps.append(sustained_rate.ramp_step(rate_per_s, session.observed([path]).toPandas()))
        shutil.rmtree(path)
        if not sustained_rate.keeps_up(steps[-1], steps[0], ramp):
            break
    _delete(session, [spec.name])
    return sustained_rate.sustained_rate(steps, ramp)


def measure(session: MeasurementSession, cell: BenchCell) -> None:
    """Measure the missing blocks of a cell, read their records back, and keep the results.

    Raises:
        RackgateError: the cell's state was not reached or kept, every arm rejects, or a load failed.
    """
    rate_per_s = rate_of(session, cell)
    specs = arm_topics.cell_topics(cell, session.number, session.prefix)
    reached = cell.reached
    run = CellRun(session, cell, specs, session.target.without(reached.dead))
    session.topics.create(specs)
    session.topics.apply_settings(run.topics_of_block(0), cell.scenario.latency_arms)
    with session.target.state(reached, session.history):
        session.topics.wait_isrs(run.names, reached.isr)
        rejecting = run.probe_arms()
        run.driven = [arm.id for arm in cell.scenario.latency_arms if arm.id not in rejecting]
        if not run.driven:
            raise RackgateError(f"cell {cell.id}: every arm rejects: {rejecting}")
        run.warm_up()
        begun_ns = time.monotonic_ns()
        settled_s = run.measure_blocks(rate_per_s)
        ended_ns = time.monotonic_ns()
        measured_with = run.measure_with_instruments(rate_per_s)
        rejecting_after = run.probe_arms()
    if rejecting_after != rejecting:
        session.notes.append(
            f"cell {cell.id}: probes got {rejecting} before the blocks and {rejecting_after} after them"
        )
    session.store.add_cell(
        cell.id,
        session.number,
        {
            "session": session.number,
            "rate_per_s": rate_per_s,
            "isr": list(reached.isr),
            "isr_racks": sorted({cell.racks[broker] for broker in reached.isr}),
            "dead": list(reached.dead),
            "slow": list(reached.slow),
            "rejected": rejecting,
            "rejected_after": rejecting_after,
            "expected_to_reject": sorted(cell.rejecting),
            "usage": session.sampler.usage(begun_ns, ended_ns),
            "settings_in_force_s": settled_s,
            "instruments": measured_with,
            "end_to_end": run.read_back(),
        },
    )
    session.warm = True
    _delete(session, run.names)


def _delete(session: MeasurementSession, names: Sequence[str]) -> None:
    try:
        session.topics.delete(names)
    except RackgateError as error:
        # Leftover topics only take disk space.
        session.notes.append(str(error))


@dataclass
class CellRun:
    """Measurement of one cell in the current session."""

    session: MeasurementSession
    cell: BenchCell
    specs: list[TopicSpec]  # the cell's topics
    bootstrap: str  # addresses of the live brokers
    # ids of the arms that get load, because no probe of them was rejected
    driven: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of the cell's topics."""
        return [spec.name for spec in self.specs]

    def topics_of_block(self, block: int) -> dict[str, str]:
        """Return the topic of each arm in a block."""
        return schedule.topics_of_block(self.cell.scenario.latency_arms, self.names, block)

    def probe_arms(self) -> dict[str, str]:
        """Probe each arm on its topic of the first block; return the exceptions of the arms that reject."""
        arms, topics = self.cell.scenario.latency_arms, self.topics_of_block(0)
        self.session.topics.apply_settings(topics, arms)
        rejections = self.session.rejections(self.bootstrap, self.names)
        return {arm.id: rejections[topics[arm.id]] for arm in arms if rejections[topics[arm.id]]}

    def warm_up(self) -> None:
        """Drive the warm-up blocks; meanwhile measure the round trips under load, unless that is done."""
        session, cell = self.session, self.cell
        blocks = range(-_warm_ups(cell, first=not session.warm), 0)
        if not blocks:
            return
        session.steps.tell(f"{cell.id}: warm-up")
        slots = self._slots(0, blocks, cell.scenario.latency.warmup_rate_per_s)
        pool = ThreadPoolExecutor(1)
        try:
            # Measured during the warm-up, where it does not disturb a measurement.
            measuring = None if UNDER_LOAD in session.round_trips else pool.submit(session.target.round_trips)
            path = self._drive("warmup", slots)
            if measuring is not None:
                session.round_trips[UNDER_LOAD] = measuring.result(timeout=ROUND_TRIPS_S)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        if session.store.warm_up(cell.id) is None:
            session.store.keep(path, cell.id, f"{WARM_UP}.{session.number}")
        else:
            shutil.rmtree(path)

    def measure_blocks(self, rate_per_s: float) -> float | None:
        """Measure the missing blocks; return the longest time that a change of topic settings took, in seconds."""
        session, cell = self.session, self.cell
        missing = session.store.missing(cell)
        duration_s: list[float] = []
        for number, block in enumerate(missing):
            session.steps.tell(f"{cell.id}: block {block + 1} of {cell.scenario.latency.blocks}", number / len(missing))
            duration_s.append(session.topics.apply_settings(self.topics_of_block(block), cell.scenario.latency_arms))
            self._measure_block(block, self._slots(block, [block], rate_per_s))
        return max(duration_s, default=None)

    def measure_with_instruments(self, rate_per_s: float) -> dict[str, dict[str, Any]]:
        """Measure the driven arms, without the control, with the cell's further instruments, on topics of their own.

        Returns:
            Arm to instrument to ``bench.run.instruments.summarise``.
        """
        session, cell = self.session, self.cell
        arms = [arm for arm in cell.scenario.latency_arms if arm.id in self.driven and arm.latency != "control"]
        measured: dict[str, dict[str, Any]] = {arm.id: {} for arm in arms if cell.instruments}
        for instrument in cell.instruments:
            prefix = f"{session.prefix}{cell.id}-{session.number}-{instrument}"
            topics = {arm.id: f"{prefix}-{number}" for number, arm in enumerate(arms)}
            session.topics.create(
                [TopicSpec(topic, cell.replicas, {}, cell.setting.partitions) for topic in topics.values()]
            )
            session.topics.apply_settings(topics, arms)
            runs: dict[str, list[instruments.Measurement]] = {arm.id: [] for arm in arms}
            for number in range(cell.instrument_rounds):
                for arm in arms if number % 2 == 0 else reversed(arms):
                    session.steps.tell(f"{cell.id}: {instrument}, {arm.label}")
                    measurement = instruments.measure(
                        instrument,
                        session.target.run_tool,
                        self.bootstrap,
                        topics[arm.id],
                        cell.setting,
                        rate_per_s=rate_per_s,
                        acks=arm.acks,
                        client=cell.scenario.client,
                    )
                    runs[arm.id] += [measurement] if measurement else []
            for arm_id, measurements in runs.items():
                if measurements:
                    measured[arm_id][instrument] = instruments.summarise(measurements)
            _delete(session, list(topics.values()))
        return measured

    def _slots(self, settings_of: int, blocks: Sequence[int], rate_per_s: float) -> tuple[schedule.Slot, ...]:
        topics, seed = self.topics_of_block(settings_of), f"{self.cell.scenario.seed}/{self.cell.id}"
        return schedule.block_slots(
            self.cell.scenario.latency,
            {arm: topics[arm] for arm in self.driven},
            blocks,
            rate_per_s=rate_per_s,
            seed=seed,
        )

    def _drive(self, name: str, slots: tuple[schedule.Slot, ...]) -> Path:
        cell = self.cell
        return self.session.drive(f"{cell.id}-{name}", slots, cell=cell, bootstrap=self.bootstrap)

    def _measure_block(self, block: int, slots: tuple[schedule.Slot, ...]) -> None:
        """Measure a block and keep it if its state is proved before and after; otherwise discard and repeat it.

        Raises:
            RackgateError: the state did not last in ``MAX_DISCARDED`` consecutive attempts, or was not reached again;
                or the load failed repeatedly.
        """
        session, cell = self.session, self.cell
        for _ in range(MAX_DISCARDED):
            # Waiting helps if a follower left the ISR for a moment, but not if a killed one came back.
            session.topics.wait_isrs(self.names, cell.reached.isr)
            if reason := self._contradiction():
                raise RackgateError(f"cell {cell.id}: the state before block {block + 1} is not {cell.state}: {reason}")
            path = self._drive(f"{block:03d}", slots)
            reason = self._contradiction()
            if not reason:
                session.store.keep(path, cell.id, f"{block:03d}.{session.number}")
                return
            session.store.discard(path, cell.id, block, session.number, reason)
            session.steps.tell(f"{cell.id}: block {block + 1} is discarded: {reason}")
        raise RackgateError(f"cell {cell.id}: state {cell.state} did not last through block {block + 1}: {reason}")

    def _contradiction(self) -> str:
        """Return what contradicts the cell's state of the topics at this moment; empty if nothing does."""
        reached = self.cell.reached
        isr = tuple(sorted(reached.isr))
        assigned = {partition: replicas for spec in self.specs for partition, replicas in spec.assignment.items()}
        # the controller elects the first replica in the ISR
        expected = {
            partition: LeaderAndIsr(next(broker for broker in replicas if broker in isr), isr)
            for partition, replicas in assigned.items()
        }
        states = self.session.topics.states(self.names)
        contradictions = [
            f"{name}-{number}: " + (f"leader {state.leader}, ISR {list(state.isr)}" if state else "unknown")
            for (name, number), wanted in expected.items()
            if (state := states.get((name, number))) != wanted
        ]
        more = [f"and {len(contradictions) - MAX_NAMED} more partitions"] if len(contradictions) > MAX_NAMED else []
        fault = self.session.target.contradiction(reached)
        return "; ".join([*contradictions[:MAX_NAMED], *more, *([fault] if fault else [])])

    def read_back(self) -> dict[str, Any] | None:
        """Check the acknowledged records of this session's blocks against the topics; None if it measured none."""
        session, cell = self.session, self.cell
        paths = list(session.store.kept(cell.id, session.number).values())
        warm_up = session.store.raw / cell.id / f"{WARM_UP}.{session.number}"
        paths += [warm_up] if warm_up.exists() else []
        # Records that were acknowledged in a discarded block must not be lost either.
        paths += session.store.discarded(cell.id, session.number)
        if not paths:
            return None
        session.steps.tell(f"{cell.id}: records read back")
        return session.check_records(paths, self.names)
