"""Scenarios read from a TOML file into frozen dataclasses; errors name the wrong key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.plan import cell_setting
from bench.plan.question import read_question
from bench.plan.scenario import (
    ACKS,
    CELL_TIMES,
    INSTRUMENTS,
    JUDGED,
    MAX_CELLS,
    ROLES,
    BenchArm,
    BenchCell,
    LatencyPlan,
    OutagePlan,
    RampPlan,
    Role,
    Scenario,
)
from pyhooks.core import toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table

SHIPPED = Path(__file__).parents[1] / "scenarios.toml"

# Set by the benchmark itself; a scenario that overrode them would not measure what it claims.
RESERVED_CLIENT_KEYS = frozenset({"bootstrap.servers", "acks", "request.required.acks", "retries", "linger.ms"})
FAR_STATE = "two-data-centres"
# Table of the values that all scenarios of a file inherit.
COMMON = "common"


def plan_table(name: str, path: Path, *, kind: str, purpose: str) -> Table:
    """Return the table of a plan, with the values that all plans of the file inherit.

    Raises:
        RackgateError: the plan does not exist, or the file can't be read.
    """
    raw = toml_config.read(path, purpose)
    names = [table for table in raw if table != COMMON]
    if name not in names:
        raise RackgateError(f"{path}: no {kind} {name!r}; it has {', '.join(names)}")
    file = Table(raw, path)
    return Table(_merged(file.table(COMMON, {}).rest(), file.table(name).rest()), path, f"{name}.")


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` overridden by ``changes``, table by table; a list replaces the whole list."""
    both = dict(base)
    for key, value in changes.items():
        below = both.get(key)
        both[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both


def load(
    name: str,
    path: Path = SHIPPED,
    place: str | None = None,
    tasks: int | None = None,
    *,
    rate_per_s: float | None = None,
    partitions: int | None = None,
) -> Scenario:
    """Read one scenario; ``place`` is its topology in place of the scenario's own, and likewise the other values.

    Raises:
        RackgateError: the scenario does not exist, a key is missing, unknown or out of range, or its cells can't have
            this rate or these partitions.
    """
    table = plan_table(name, path, kind="scenario", purpose="it describes the scenarios")
    topology_name = table.text("topology")
    own_tasks = table.whole("tasks", 1)
    target_min = table.number("target_min", 0.1) if table.has("target_min") else None
    scenario = table.into(
        Scenario,
        name=name,
        topology=place or topology_name,
        tasks=tasks or own_tasks,
        client=client_properties(table.table("client")),
        java=client_properties(table.table("java", {})),
        latency=_latency(table.table("latency")),
        ramp=table.table("ramp").into(RampPlan) if table.has("ramp") else None,
        outage=outage_plan(table.table("outage"), max_per_s=1_000_000) if table.has("outage") else None,
        arms=_arms(table),
        # the target is for the plan as it is in the file
        target_min=target_min
        if place in (None, topology_name) and tasks in (None, own_tasks) and rate_per_s is None and partitions is None
        else None,
        cells=(),
    )
    _check_arms(scenario, table)
    cells = [_scaled(cell, rate_per_s, partitions) for cell in _cells(scenario, table)]
    table.done()
    return dataclasses.replace(scenario, cells=tuple(cells))


def _scaled(cell: BenchCell, rate_per_s: float | None, partitions: int | None) -> BenchCell:
    """Return a cell with this rate and number of partitions, each if given."""
    setting, tasks = cell.setting, cell.scenario.tasks
    if rate_per_s is not None:
        most = tasks * cell_setting.MAX_PER_TASK
        if not 1 <= rate_per_s <= most:
            number = f"{tasks} task{'s' if tasks > 1 else ''}"
            raise RackgateError(
                f"--rate {rate_per_s:g}: must be from 1 to {most} records/s with {number}, because a task sends at most"
                f" {cell_setting.MAX_PER_TASK}; raise --tasks for more"
            )
        setting = dataclasses.replace(setting, rate_per_s=rate_per_s, load_percent=None)
    if partitions is not None:
        if not 1 <= partitions <= cell_setting.MAX_PARTITIONS:
            raise RackgateError(f"--partitions {partitions}: must be from 1 to {cell_setting.MAX_PARTITIONS}")
        setting = dataclasses.replace(setting, partitions=partitions)
    return dataclasses.replace(cell, setting=setting, label=setting.text)


def _cells(scenario: Scenario, table: Table) -> tuple[BenchCell, ...]:
    far_table = table.table("two_data_centres") if table.has("two_data_centres") else None
    far = (far_table.text("topology"), far_table.wholes("replicas")) if far_table else None
    tables = table.tables("cells")
    if len(tables) > MAX_CELLS:
        raise table.wrong(
            "cells",
            f"{len(tables)} of them: at most {MAX_CELLS}, because each verdict requires more evidence of all others",
        )
    cells = tuple(_cell(scenario, cell_table, far) for cell_table in tables)
    if len({cell.id for cell in cells}) != len(cells):
        raise table.wrong("cells", "two cells have the same id")
    if scenario.ramp is None and any(cell.setting.load_percent for cell in cells):
        raise table.wrong("ramp", "is missing, and a cell has load_percent")
    return cells


def _cell(scenario: Scenario, table: Table, far: tuple[str, tuple[int, ...]] | None) -> BenchCell:
    cell_id = table.text("id")
    if not cell_id.replace("-", "").isalnum() or not cell_id.isascii() or cell_id != cell_id.lower():
        raise table.wrong("id", f"must consist of lowercase letters, digits and hyphens, is {cell_id!r}")
    setting = cell_setting.read_setting(table)
    place, replicas = scenario.topology, scenario.role("baseline").replicas
    if setting.state == FAR_STATE:
        if far is None:
            raise table.wrong("state", f"{FAR_STATE!r} needs [{scenario.name}.two_data_centres]")
        place, replicas = far
    judged = table.choices("judged", tuple(JUDGED)) if table.has("judged") else tuple(JUDGED)
    plan = scenario.latency
    own = [name for name in CELL_TIMES if table.has(name)]
    latency = table.into(LatencyPlan, **{name: value for name, value in vars(plan).items() if name not in own})
    _check_head(table, latency.discard_s, "piece_s", latency.piece_s)
    arms = _roles(scenario, table) if table.has("baseline") else scenario.arms
    cell = BenchCell(
        id=cell_id,
        label=setting.text,
        state=setting.state,
        scenario=dataclasses.replace(scenario, latency=latency, arms=arms),
        setting=setting,
        judged=tuple(JUDGED[name] for name in JUDGED if name in judged),
        topology=place,
        replicas=replicas,
        question=read_question(table.table("question"), [arm.id for arm in arms if arm.latency == "candidate"])
        if table.has("question")
        else None,
        instruments=table.choices("instruments", INSTRUMENTS, default=()),
        instrument_rounds=table.whole("instrument_rounds", 1, 20, default=1),
    )
    if unknown := [broker for broker in replicas if broker not in cell.racks]:
        raise table.wrong("state", f"topology {place} has no broker {unknown[0]}")
    try:
        rejecting = cell.rejecting
    except ValueError as error:
        raise table.wrong("state", str(error)) from error
    if len(rejecting) == len(cell.scenario.latency_arms):
        raise table.wrong("state", "every arm rejects records in it, so there is nothing to measure")
    return cell


def _roles(scenario: Scenario, table: Table) -> tuple[BenchArm, ...]:
    """Return all arms with the roles that a cell assigns instead of the scenario's; other arms get the role ``none``.

    This allows comparisons in a state in which the scenario's baseline is rejected.
    """
    # the positive control is the same in every cell
    positive: dict[str, Role] = {arm.id: arm.latency for arm in scenario.arms if arm.latency == "positive"}
    ids = tuple(arm.id for arm in scenario.arms if arm.id not in positive)
    roles: dict[str, Role] = {table.choice("baseline", ids): "baseline"}
    for arm_id in (table.choice("control", ids), *(candidates := table.choices("candidates", ids))):
        if arm_id in roles:
            raise table.wrong("candidates", f"{arm_id!r} has two roles")
        roles[arm_id] = "candidate" if arm_id in candidates else "control"
    if len({arm.replicas for arm in scenario.arms if arm.id in roles}) > 1:
        raise table.wrong("candidates", "arms that are compared must have the same replicas")
    roles |= positive
    return tuple(dataclasses.replace(arm, latency=roles.get(arm.id, "none")) for arm in scenario.arms)


def client_properties(table: Table) -> dict[str, str | int | float | bool]:
    """Read the properties of a client; a property that is reserved for the benchmark is an error."""
    for key in table.left():
        if key in RESERVED_CLIENT_KEYS:
            raise table.wrong(key, "is set by the benchmark itself")
    return {key: table.scalar(key) for key in table.left()}


def _latency(table: Table) -> LatencyPlan:
    bands, margins_ms = table.table("bands"), table.table("margins_ms")
    plan = table.into(
        LatencyPlan,
        band_p50=bands.number("p50", 0.001, 1),
        band_p99=bands.number("p99", 0.001, 1),
        margin_p50_ms=margins_ms.number("p50", 0.001),
        margin_p99_ms=margins_ms.number("p99", 0.001),
    )
    _check_head(table, plan.discard_s, "piece_s", plan.piece_s)
    return plan


def _check_head(table: Table, discard_s: float, whole: str, whole_s: float) -> None:
    if discard_s >= whole_s:
        raise table.wrong("discard_s", f"must be below {whole} = {whole_s:g}")


def outage_plan(table: Table, *, max_per_s: float, rack: str | None = None) -> OutagePlan:
    """Read times and rates of an outage with at most ``max_per_s`` records/s; without ``rack`` the table names it."""
    rate_per_s = table.number("rate_per_s", 0.1, max_per_s)
    plan = table.into(OutagePlan, rack=rack or table.text("rack"), rate_per_s=rate_per_s)
    _check_head(table, plan.discard_s, "before_s", plan.before_s)
    return plan


def _arm(table: Table) -> BenchArm:
    arm = table.into(BenchArm, latency=table.choice("latency", ROLES), acks=table.choice("acks", ACKS, "all"))
    if arm.min_insync_replicas > len(arm.replicas):
        raise table.wrong("min_insync_replicas", f"is above the {len(arm.replicas)} replicas")
    return arm


def _arms(table: Table) -> tuple[BenchArm, ...]:
    """Read the arms in the order of the scenario's ``uses``; all arms without it."""
    arms = tuple(_arm(arm) for arm in table.tables("arms"))
    if not table.has("uses"):
        return arms
    by_id = {arm.id: arm for arm in arms}
    return tuple(by_id[arm_id] for arm_id in table.choices("uses", tuple(by_id)))


def _check_arms(scenario: Scenario, table: Table) -> None:
    for name in ("id", "topic"):
        if len({getattr(arm, name) for arm in scenario.arms}) != len(scenario.arms):
            raise table.wrong("arms", f"two arms have the same {name}")
    roles = [str(arm.latency) for arm in scenario.latency_arms]
    for role in ("baseline", "control"):
        if roles.count(role) != 1:
            raise table.wrong("arms", f"exactly one arm must be the {role} of the latency phase")
    if any((arm.latency == "positive") is not (arm.acks == "1") for arm in scenario.arms):
        raise table.wrong("arms", "acks = '1' is for the positive control of the latency phase, and for it alone")
    if roles.count("positive") > 1:
        raise table.wrong("arms", "at most one arm can be the positive control of the latency phase")
    if "candidate" not in roles:
        raise table.wrong("arms", "at least one arm must be a candidate of the latency phase")
    if len({arm.replicas for arm in scenario.latency_arms}) != 1:
        raise table.wrong("arms", "the arms of the latency phase must have the same replicas")
    if scenario.outage and not scenario.outage_arms:
        raise table.wrong("arms", "at least one arm must take part in the outage phase")
