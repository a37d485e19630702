"""Measurement of one cell in one lab: topics, state, warm-up, missing blocks, and read-back of the records."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from bench.analysis import record_check
from bench.load import arm_topics, schedule
from bench.plan.scenario import Arm, Cell
from bench.run import refusal_probe, sustained_rate
from bench.run.lab_session import Session
from bench.run.run_store import WARM_UP
from pyhooks.core.errors import RackgateError
from pyhooks.kafka import topics as cluster_topics

# Estimates in seconds for the progress display: a block beside its length; topics created, read back and deleted; a
# slow follower; killed followers, fixed part and each; two probes of all arms.
BLOCK_S, TOPICS_S, SLOW_S, DEAD_S, EACH_DEAD_S, PROBES_S = 1.5, 11.0, 15.0, 12.0, 15.0, 4.0
UNDER_LOAD, ROUND_TRIPS_S = "under load", 60.0
# Limit of consecutive attempts at a block. A state that does not last through any of them is not the cell's state.
MOST_THROWN_AWAY = 3


def planned_s(cell: Cell, blocks: int, *, first: bool, ramp: bool) -> float:
    """Return the expected duration of a cell in seconds.

    Args:
        cell: the cell.
        blocks: number of missing blocks.
        first: whether it is the first cell of its lab.
        ramp: whether the load that its lab sustains is still unknown.
    """
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


def _warm_ups(cell: Cell, *, first: bool) -> int:
    plan = cell.scenario.latency
    return plan.warmup_blocks if first else plan.warmup_blocks_again


def rate_of(this: Session, cell: Cell) -> float:
    """Return the cell's rate in records per second; find the load that its lab sustains first, if needed."""
    setting = cell.setting
    if setting.rate_per_s is not None or setting.load_percent is None:
        return float(setting.rate_per_s or 0)
    name = sustained_rate.key(cell)
    if name not in this.store.rates:
        this.store.add_rate(name, _ramp(this, cell))
    sustained = float(this.store.rates[name]["sustained_per_s"])
    return sustained * setting.load_percent / 100


def _ramp(this: Session, cell: Cell) -> dict[str, Any]:
    """Find the load that the lab sustains in a cell's setting, on a healthy cluster and a topic of its own.

    A lab without a warm-up gets one first: brokers that still compile code sustain less, and the latency of the first
    rate would be too high a reference for the other rates.
    """
    ramp, arm = cell.scenario.ramp, cell.scenario.role("baseline")
    if ramp is None:
        raise RackgateError(f"cell {cell.id}: the plan has no ramp")
    (spec, *_) = arm_topics.of_cell(replace(cell, id=f"ramp-{cell.id}"), this.number, this.prefix)
    this.announce([spec.name])
    cluster_topics.create(this.admin, [spec])
    arm_topics.require(this.admin, {arm.id: spec.name}, [arm], this.known)
    if not this.warm:
        this.steps.tell(f"{cell.id}: warm-up before the ramp")
        plan = cell.scenario.latency
        seconds = plan.warmup_blocks * plan.block_s(len(cell.scenario.latency_arms))
        slot = schedule.steady_slot(arm.id, spec.name, rate_per_s=plan.warmup_rate_per_s, seconds=seconds)
        _, path = this.drive(f"ramp-{cell.id}-warmup", (slot,), cell=cell)
        shutil.rmtree(path)
        this.warm = True
    steps: list[sustained_rate.Step] = []
    for rate_per_s in ramp.rates(cell.setting.record_bytes):
        this.steps.tell(f"{cell.id}: does the lab sustain {rate_per_s:g} records/s?")
        slot = schedule.steady_slot(arm.id, spec.name, rate_per_s=rate_per_s, seconds=ramp.step_s)
        _, path = this.drive(f"ramp-{cell.id}-{rate_per_s:g}", (slot,), cell=cell)
        steps.append(sustained_rate.step_of(rate_per_s, this.observed([path]).toPandas()))
        shutil.rmtree(path)
        if not sustained_rate.keeps_up(steps[-1], steps[0], ramp):
            break
    _delete(this, [spec.name])
    return sustained_rate.found(steps, ramp)


def measure(this: Session, cell: Cell) -> None:
    """Measure the missing blocks of a cell, read their records back, and keep the results.

    Raises:
        RackgateError: the cell's state was not reached or kept, every arm refuses, or a load failed.
    """
    rate_per_s = rate_of(this, cell)
    specs = arm_topics.of_cell(cell, this.number, this.prefix)
    names = [spec.name for spec in specs]
    arms = cell.scenario.latency_arms
    this.announce(names)
    cluster_topics.create(this.admin, specs)
    arm_topics.require(this.admin, schedule.rotated(arms, names, 0), arms, this.known)
    reached = cell.reached
    with this.target.state(reached, this.history):
        cluster_topics.wait_isrs(this.admin, dict.fromkeys(names, frozenset(reached.isr)))
        bootstrap = this.target.without(reached.dead)
        refusing = _probed(this, cell, names, bootstrap)
        driven = [arm for arm in arms if arm.id not in refusing]
        if not driven:
            raise RackgateError(f"cell {cell.id}: every arm refuses: {refusing}")
        _warm_up(this, cell, names, driven, bootstrap)
        begun_ns = time.monotonic_ns()
        settled_s = _blocks(this, cell, names, driven, rate_per_s, bootstrap)
        ended_ns = time.monotonic_ns()
        again = _probed(this, cell, names, bootstrap)
    if again != refusing:
        this.notes.append(f"cell {cell.id}: probes got {refusing} before the blocks and {again} after them")
    this.store.add_cell(
        cell.id,
        this.number,
        {
            "session": this.number,
            "rate_per_s": rate_per_s,
            "isr": list(reached.isr),
            "isr_racks": sorted({cell.racks[broker] for broker in reached.isr}),
            "dead": list(reached.dead),
            "slow": list(reached.slow),
            "refused": refusing,
            "refused_after": again,
            "expected_to_refuse": sorted(cell.refusing),
            "usage": this.sampler.usage(begun_ns, ended_ns),
            "settings_in_force_s": settled_s,
            "end_to_end": _read_back(this, cell, names),
        },
    )
    this.warm = True
    _delete(this, names)


def _delete(this: Session, names: Sequence[str]) -> None:
    try:
        arm_topics.delete(this.admin, names)
    except RackgateError as error:
        # Leftover topics only take disk space.
        this.notes.append(str(error))


def _probed(this: Session, cell: Cell, names: Sequence[str], bootstrap: str) -> dict[str, str]:
    """Probe each arm on the topic that has its settings now; return the exceptions of the arms that refuse."""
    arms = cell.scenario.latency_arms
    on = schedule.rotated(arms, names, 0)
    arm_topics.require(this.admin, on, arms, this.known)
    said = refusal_probe.answers(bootstrap, names, this.target.security.java)
    return {arm.id: said[on[arm.id]] for arm in arms if said[on[arm.id]]}


def _warm_up(this: Session, cell: Cell, names: Sequence[str], driven: Sequence[Arm], bootstrap: str) -> None:
    plan = cell.scenario.latency
    blocks = range(-_warm_ups(cell, first=not this.warm), 0)
    if not blocks:
        return
    this.steps.tell(f"{cell.id}: warm-up")
    on = schedule.rotated(cell.scenario.latency_arms, names, 0)
    slots = _slots(cell, on, driven, blocks, plan.warmup_rate_per_s)
    pool = ThreadPoolExecutor(1)
    try:
        # Measured during the warm-up, where it does not disturb a measurement.
        asked = None if UNDER_LOAD in this.round_trips else pool.submit(this.target.round_trips)
        _, path = this.drive(f"{cell.id}-warmup", slots, cell=cell, bootstrap=bootstrap)
        if asked is not None:
            this.round_trips[UNDER_LOAD] = asked.result(timeout=ROUND_TRIPS_S)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if this.store.warm_up(cell.id) is None:
        this.store.keep(path, cell.id, f"{WARM_UP}.{this.number}")
    else:
        shutil.rmtree(path)


def _slots(
    cell: Cell, on: Mapping[str, str], driven: Sequence[Arm], blocks: Sequence[int], rate_per_s: float
) -> tuple[schedule.Slot, ...]:
    return schedule.block_slots(
        cell.scenario.latency,
        {arm.id: on[arm.id] for arm in driven},
        blocks,
        rate_per_s=rate_per_s,
        seed=f"{cell.scenario.seed}/{cell.id}",
    )


def _blocks(
    this: Session, cell: Cell, names: Sequence[str], driven: Sequence[Arm], rate_per_s: float, bootstrap: str
) -> float | None:
    """Measure the missing blocks; return the longest time that a change of topic settings took, in seconds."""
    arms, missing = cell.scenario.latency_arms, this.store.missing(cell)
    longest: float | None = None
    for number, block in enumerate(missing):
        this.steps.tell(f"{cell.id}: block {block + 1} of {cell.scenario.latency.blocks}", number / len(missing))
        on = schedule.rotated(arms, names, block)
        took_s = arm_topics.require(this.admin, on, arms, this.known)
        longest = max(took_s, longest or 0.0)
        slots = _slots(cell, on, driven, [block], rate_per_s)
        _block(this, cell, names, block, slots, bootstrap)
    return longest


def _block(
    this: Session, cell: Cell, names: Sequence[str], block: int, slots: tuple[schedule.Slot, ...], bootstrap: str
) -> None:
    """Measure a block and keep it if its state is proved before and after; otherwise discard and repeat it.

    Raises:
        RackgateError: the state did not last in ``MOST_THROWN_AWAY`` consecutive attempts, or was not reached again.
    """
    for _ in range(MOST_THROWN_AWAY):
        # Waiting helps if a follower left the ISR for a moment, but not if a killed one came back.
        cluster_topics.wait_isrs(this.admin, dict.fromkeys(names, frozenset(cell.reached.isr)))
        if why := _contrary(this, cell, names):
            raise RackgateError(f"cell {cell.id}: the state before block {block + 1} is not {cell.state}: {why}")
        _, path = this.drive(f"{cell.id}-{block:03d}", slots, cell=cell, bootstrap=bootstrap)
        why = _contrary(this, cell, names)
        if not why:
            this.store.keep(path, cell.id, f"{block:03d}.{this.number}")
            return
        this.store.throw_away(path, cell.id, block, this.number, why)
        this.steps.tell(f"{cell.id}: block {block + 1} is thrown away: {why}")
    raise RackgateError(f"cell {cell.id}: state {cell.state} did not last through block {block + 1}: {why}")


def _contrary(this: Session, cell: Cell, names: Sequence[str]) -> str:
    """Return what contradicts the cell's state of the topics at this moment; empty if nothing does."""
    isr = tuple(sorted(cell.reached.isr))
    states = cluster_topics.look(this.admin, names)
    wrong = [
        f"{name}: leader {states[name].leader}, ISR {list(states[name].isr)}" if name in states else f"{name}: unknown"
        for name in names
        if name not in states or states[name].isr != isr or states[name].leader != cell.reached.isr[0]
    ]
    told = this.target.contradiction(cell.reached)
    return "; ".join([*wrong, *([told] if told else [])])


def _read_back(this: Session, cell: Cell, names: list[str]) -> dict[str, Any] | None:
    """Check the acknowledged records of this session's blocks against the topics; None if it measured none."""
    paths = list(this.store.kept(cell.id, this.number).values())
    warm = this.store.raw / cell.id / f"{WARM_UP}.{this.number}"
    paths += [warm] if warm.exists() else []
    # Records that were acknowledged in a discarded block must not be lost either.
    paths += this.store.thrown_away(cell.id, this.number)
    if not paths:
        return None
    this.steps.tell(f"{cell.id}: records read back")
    log = record_check.read_back(this.spark, this.target.bootstrap, names, this.target.security.spark)
    return record_check.check(this.observed(paths), log, this.store.run_id)
