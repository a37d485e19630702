"""Measurement of one cell in one lab: topics, state, warm-up, missing blocks, and read-back of the records."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from bench.load import arm_topics, schedule
from bench.plan.scenario import BenchArm, BenchCell
from bench.run import sustained_rate
from bench.run.measurement_session import MeasurementSession
from bench.run.run_store import WARM_UP
from pyhooks.core.errors import RackgateError

# Estimates in seconds for the progress display: a block beside its length; topics created, read back and deleted; a
# slow follower; killed followers, fixed part and each; two probes of all arms.
BLOCK_S, TOPICS_S, SLOW_S, DEAD_S, EACH_DEAD_S, PROBES_S = 1.5, 11.0, 15.0, 12.0, 15.0, 4.0
UNDER_LOAD, ROUND_TRIPS_S = "under load", 60.0
# Limit of consecutive attempts at a block. A state that does not last through any of them is not the cell's state.
MOST_THROWN_AWAY = 3


def planned_s(cell: BenchCell, blocks: int, *, first: bool, ramp: bool) -> float:
    """Return the expected duration of a cell in seconds; ``ramp``: whether its lab's sustained load is unknown."""
    plan, reached = cell.scenario.latency, cell.reached
    block_s = plan.block_s(len(cell.scenario.latency_arms) - len(cell.refusing))
    # the first ramp comes after the long warm-up, and the cell itself then gets a short one
    warm_ups = _warm_ups(cell, first=first) + (plan.warmup_blocks_again if first and ramp else 0)
    seconds = TOPICS_S + PROBES_S + blocks * (block_s + BLOCK_S) + warm_ups * block_s
    seconds += SLOW_S * len(reached.slow) + (DEAD_S + EACH_DEAD_S * len(reached.dead) if reached.dead else 0.0)
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

    A lab without a warm-up gets one first: brokers that still compile code sustain less, and the latency of the first
    rate would be too high a reference for the other rates.
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
        _, path = session.drive(f"ramp-{cell.id}-warmup", (slot,), cell=cell)
        shutil.rmtree(path)
        session.warm = True
    steps: list[sustained_rate.RampStep] = []
    for rate_per_s in ramp.rates(cell.setting.record_bytes):
        session.steps.tell(f"{cell.id}: search for the sustained load: {rate_per_s:g} records/s")
        slot = schedule.steady_slot(arm.id, spec.name, rate_per_s=rate_per_s, seconds=ramp.step_s)
        _, path = session.drive(f"ramp-{cell.id}-{rate_per_s:g}", (slot,), cell=cell)
        steps.append(sustained_rate.ramp_step(rate_per_s, session.observed([path]).toPandas()))
        shutil.rmtree(path)
        if not sustained_rate.keeps_up(steps[-1], steps[0], ramp):
            break
    _delete(session, [spec.name])
    return sustained_rate.sustained_rate(steps, ramp)


def measure(session: MeasurementSession, cell: BenchCell) -> None:
    """Measure the missing blocks of a cell, read their records back, and keep the results.

    Raises:
        RackgateError: the cell's state was not reached or kept, every arm refuses, or a load failed.
    """
    rate_per_s = rate_of(session, cell)
    specs = arm_topics.cell_topics(cell, session.number, session.prefix)
    names = [spec.name for spec in specs]
    arms = cell.scenario.latency_arms
    session.topics.create(specs)
    session.topics.apply_settings(schedule.topics_of_block(arms, names, 0), arms)
    reached = cell.reached
    with session.target.state(reached, session.history):
        session.topics.wait_isrs(names, reached.isr)
        bootstrap = session.target.without(reached.dead)
        refusing = _probe_arms(session, cell, names, bootstrap)
        driven = [arm for arm in arms if arm.id not in refusing]
        if not driven:
            raise RackgateError(f"cell {cell.id}: every arm refuses: {refusing}")
        _warm_up(session, cell, names, driven, bootstrap)
        begun_ns = time.monotonic_ns()
        settled_s = _blocks(session, cell, names, driven, rate_per_s, bootstrap)
        ended_ns = time.monotonic_ns()
        again = _probe_arms(session, cell, names, bootstrap)
    if again != refusing:
        session.notes.append(f"cell {cell.id}: probes got {refusing} before the blocks and {again} after them")
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
            "refused": refusing,
            "refused_after": again,
            "expected_to_refuse": sorted(cell.refusing),
            "usage": session.sampler.usage(begun_ns, ended_ns),
            "settings_in_force_s": settled_s,
            "end_to_end": _read_back(session, cell, names),
        },
    )
    session.warm = True
    _delete(session, names)


def _delete(session: MeasurementSession, names: Sequence[str]) -> None:
    try:
        session.topics.delete(names)
    except RackgateError as error:
        # Leftover topics only take disk space.
        session.notes.append(str(error))


def _probe_arms(session: MeasurementSession, cell: BenchCell, names: Sequence[str], bootstrap: str) -> dict[str, str]:
    """Probe each arm on the topic that has its settings now; return the exceptions of the arms that refuse."""
    arms = cell.scenario.latency_arms
    on = schedule.topics_of_block(arms, names, 0)
    session.topics.apply_settings(on, arms)
    refusals = session.refusals(bootstrap, names)
    return {arm.id: refusals[on[arm.id]] for arm in arms if refusals[on[arm.id]]}


def _warm_up(
    session: MeasurementSession, cell: BenchCell, names: Sequence[str], driven: Sequence[BenchArm], bootstrap: str
) -> None:
    plan = cell.scenario.latency
    blocks = range(-_warm_ups(cell, first=not session.warm), 0)
    if not blocks:
        return
    session.steps.tell(f"{cell.id}: warm-up")
    on = schedule.topics_of_block(cell.scenario.latency_arms, names, 0)
    slots = _slots(cell, on, driven, blocks, plan.warmup_rate_per_s)
    pool = ThreadPoolExecutor(1)
    try:
        # Measured during the warm-up, where it does not disturb a measurement.
        measuring = None if UNDER_LOAD in session.round_trips else pool.submit(session.target.round_trips)
        _, path = session.drive(f"{cell.id}-warmup", slots, cell=cell, bootstrap=bootstrap)
        if measuring is not None:
            session.round_trips[UNDER_LOAD] = measuring.result(timeout=ROUND_TRIPS_S)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if session.store.warm_up(cell.id) is None:
        session.store.keep(path, cell.id, f"{WARM_UP}.{session.number}")
    else:
        shutil.rmtree(path)


def _slots(
    cell: BenchCell, on: Mapping[str, str], driven: Sequence[BenchArm], blocks: Sequence[int], rate_per_s: float
) -> tuple[schedule.Slot, ...]:
    return schedule.block_slots(
        cell.scenario.latency,
        {arm.id: on[arm.id] for arm in driven},
        blocks,
        rate_per_s=rate_per_s,
        seed=f"{cell.scenario.seed}/{cell.id}",
    )


def _blocks(
    session: MeasurementSession,
    cell: BenchCell,
    names: Sequence[str],
    driven: Sequence[BenchArm],
    rate_per_s: float,
    bootstrap: str,
) -> float | None:
    """Measure the missing blocks; return the longest time that a change of topic settings took, in seconds."""
    arms, missing = cell.scenario.latency_arms, session.store.missing(cell)
    longest: float | None = None
    for number, block in enumerate(missing):
        session.steps.tell(f"{cell.id}: block {block + 1} of {cell.scenario.latency.blocks}", number / len(missing))
        on = schedule.topics_of_block(arms, names, block)
        took_s = session.topics.apply_settings(on, arms)
        longest = max(took_s, longest or 0.0)
        slots = _slots(cell, on, driven, [block], rate_per_s)
        _block(session, cell, names, block, slots, bootstrap)
    return longest


def _block(
    session: MeasurementSession,
    cell: BenchCell,
    names: Sequence[str],
    block: int,
    slots: tuple[schedule.Slot, ...],
    bootstrap: str,
) -> None:
    """Measure a block and keep it if its state is proved before and after; otherwise discard and repeat it.

    Raises:
        RackgateError: the state did not last in ``MOST_THROWN_AWAY`` consecutive attempts, or was not reached again.
    """
    for _ in range(MOST_THROWN_AWAY):
        # Waiting helps if a follower left the ISR for a moment, but not if a killed one came back.
        session.topics.wait_isrs(names, cell.reached.isr)
        if why := _state_contradiction(session, cell, names):
            raise RackgateError(f"cell {cell.id}: the state before block {block + 1} is not {cell.state}: {why}")
        _, path = session.drive(f"{cell.id}-{block:03d}", slots, cell=cell, bootstrap=bootstrap)
        why = _state_contradiction(session, cell, names)
        if not why:
            session.store.keep(path, cell.id, f"{block:03d}.{session.number}")
            return
        session.store.discard(path, cell.id, block, session.number, why)
        session.steps.tell(f"{cell.id}: block {block + 1} is discarded: {why}")
    raise RackgateError(f"cell {cell.id}: state {cell.state} did not last through block {block + 1}: {why}")


def _state_contradiction(session: MeasurementSession, cell: BenchCell, names: Sequence[str]) -> str:
    """Return what contradicts the cell's state of the topics at this moment; empty if nothing does."""
    isr = tuple(sorted(cell.reached.isr))
    states = session.topics.states(names)
    wrong = [
        f"{name}: leader {states[name].leader}, ISR {list(states[name].isr)}" if name in states else f"{name}: unknown"
        for name in names
        if name not in states or states[name].isr != isr or states[name].leader != cell.reached.isr[0]
    ]
    fault = session.target.contradiction(cell.reached)
    return "; ".join([*wrong, *([fault] if fault else [])])


def _read_back(session: MeasurementSession, cell: BenchCell, names: list[str]) -> dict[str, Any] | None:
    """Check the acknowledged records of this session's blocks against the topics; None if it measured none."""
    paths = list(session.store.kept(cell.id, session.number).values())
    warm = session.store.raw / cell.id / f"{WARM_UP}.{session.number}"
    paths += [warm] if warm.exists() else []
    # Records that were acknowledged in a discarded block must not be lost either.
    paths += session.store.discarded(cell.id, session.number)
    if not paths:
        return None
    session.steps.tell(f"{cell.id}: records read back")
    return session.check_records(paths, names)
