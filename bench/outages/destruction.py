"""Destruction of the only rack in the ISR, and how many of the acknowledged records can be read afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from bench.analysis import availability, latency_analysis, record_check
from bench.load import schedule
from bench.load.arm_topics import arm_topic
from bench.load.load_jobs import running_load
from bench.outages.outage_context import OutageContext
from bench.plan.outage_plan import DestructionPlan, FaultKind
from bench.plan.scenario import BenchArm
from pyhooks.checkers.cluster_view import RecordedPartition, faults
from pyhooks.core.errors import RackgateError
from pyhooks.faults import registry
from pyhooks.faults.injection import FaultTarget
from pyhooks.history.event_log import History
from pyhooks.kafka import topics
from pyhooks.workload.pacing import NS
from pyhooks.workload.topic_observer import observe_topics

ISR_CHANGE_S = 40.0
ELECTION_S = 60.0
# Rejected records stay open; a record that is not acknowledged by then was not promised to the client.
FLUSH_S = 2.0
NAME = "destruction"


def measure(context: OutageContext, plan: DestructionPlan, fault: FaultKind) -> dict[str, Any]:
    """Destroy a rack under load and count the records that are left.

    Returns:
        ``proved``: whether both faults took effect and lasted; ``topics``: for each arm how many records were
        acknowledged and how many of these are ``lost``, or None with the reason in ``unknown``; ``notes``: errors.
    """
    name = f"{NAME}-{fault}"
    arms = tuple(
        replace(arm.on(f"{plan.placement} {name}", plan.replicas), label=arm.label) for arm in context.plan.arms
    )
    topics.create(context.admin, [arm_topic(arm) for arm in arms])
    history = History(context.folder / "outages" / f"{name}.jsonl")
    notes: list[str] = []
    proved = True
    try:
        _drive(context, plan, fault, arms, history, name)
    except RackgateError as error:
        notes.append(f"{name}: {error}")
        proved = False
    events = list(history.events())
    observed = availability.isr_observations(events, arms)
    wiped_ns = next((fault.inject_ns for fault in faults(events) if fault.op == "wipe-rack"), None)
    elected = _elected(context, arms)
    readable = [arm.topic for arm in arms if elected[arm.topic] is not None]
    path = context.folder / name
    counted: dict[str, dict[str, Any]] = {}
    # a load that failed has left no observations, or only some of them
    if (path / "_SUCCESS").exists() and readable:
        raw = latency_analysis.read_raw(context.spark, path)
        log = record_check.read_back(context.spark, context.target.bootstrap, readable)
        counted = {row["topic"]: row for row in record_check.check_records(raw, log, context.run_id)["topics"]}
    rows = [
        arm_row(
            arm,
            counted.get(arm.topic),
            elected[arm.topic],
            _last_isr_racks(observed[arm.topic], wiped_ns),
            plan.destroyed,
            proved=proved,
        )
        for arm in arms
    ]
    return {
        "unavailable_rack": plan.unavailable_rack,
        "fault": fault,
        "destroyed": plan.destroyed,
        "placement": plan.placement,
        "proved": proved,
        "rate_per_s": context.plan.timing.rate_per_s,
        "topics": rows,
        "notes": notes,
    }


def _drive(
    context: OutageContext,
    plan: DestructionPlan,
    fault: FaultKind,
    arms: tuple[BenchArm, ...],
    history: History,
    name: str,
) -> None:
    """Run the load; one rack fails and leaves the ISRs; after the load the other rack is destroyed; heal both.

    Raises:
        RackgateError: a fault did not take effect, last or heal, an ISR did not shrink in time, or the load failed.
    """
    lab, timing = context.target.lab, context.plan.timing
    names = [arm.topic for arm in arms]
    seconds = timing.before_s + timing.during_s
    left = frozenset(plan.replicas) - context.brokers_of(plan.unavailable_rack)
    survivors = context.target.without(context.brokers_of(plan.unavailable_rack) | context.brokers_of(plan.destroyed))
    with observe_topics(survivors, names, context.racks, history, interval_s=timing.isr_poll_s):
        slots = tuple(
            schedule.Slot("outage", 0, arm.topic, arm.topic, 0, round(seconds * NS), 0, timing.rate_per_s, 0)
            for arm in arms
        )
        load = context.load(name, slots, flush_s=FLUSH_S)
        with ExitStack() as stack:
            with running_load(context.spark, history, load, context.folder / load.name) as running:
                running.wait_until(timing.before_s, "the time of the fault")
                first_rack = FaultTarget.rack(lab, plan.unavailable_rack)
                stack.enter_context(registry.fault_applied(lab, fault, first_rack, history))
                topics.wait_isrs(context.admin, dict.fromkeys(names, left), ISR_CHANGE_S)
            with registry.fault_applied(lab, "wipe", FaultTarget.rack(lab, plan.destroyed), history):
                pass


def _elected(context: OutageContext, arms: tuple[BenchArm, ...]) -> dict[str, tuple[int, bool] | None]:
    """Return the leader of each topic after the heals, and whether its election was unclean; None without a leader.

    A replica that lost its log is not eligible. If no other replica is eligible, the topic needs an unclean election.
    """
    leaders: dict[str, tuple[int, bool] | None] = {}
    for arm in arms:
        try:
            unclean = not topics.settle_leader(context.admin, arm_topic(arm), ELECTION_S)
            elect = topics.elect_unclean if unclean else topics.leaders
            leaders[arm.topic] = elect(context.admin, [arm.topic], ELECTION_S)[arm.topic], unclean
        except RackgateError:
            leaders[arm.topic] = None
    return leaders


def _last_isr_racks(observed: Sequence[RecordedPartition], wiped_ns: int | None) -> tuple[str, ...] | None:
    """Return the racks of the ISR in the last observation before the rack was destroyed; None without one."""
    before = [observation for observation in observed if wiped_ns is not None and observation.at_ns <= wiped_ns]
    return before[-1].isr_racks if before else None


def arm_row(
    arm: BenchArm,
    counted: Mapping[str, Any] | None,
    elected: tuple[int, bool] | None,
    isr_racks: tuple[str, ...] | None,
    destroyed: str,
    *,
    proved: bool,
) -> dict[str, Any]:
    """Return the outcome of one arm's records.

    ``counted`` has the counts of ``bench.analysis.record_check.check_records``, ``elected`` the final leader and
    whether its election was unclean, ``isr_racks`` the racks of the ISR when rack ``destroyed`` was wiped; each None if
    unknown. ``proved``: whether the faults took effect and lasted.
    """
    unknown = ""
    if not proved:
        unknown = "a fault was not proved"
    elif isr_racks != (destroyed,):
        observed = "the ISR was not observed" if isr_racks is None else f"the ISR was in {', '.join(isr_racks)}"
        unknown = f"{observed} when rack {destroyed} was destroyed"
    elif elected is None:
        unknown = "it has no leader afterwards, so nothing can be read"
    elif counted is None or not counted["acked"]:
        unknown = "nothing was acknowledged"
    return {
        "arm": arm.id,
        "label": arm.label,
        "topic": arm.topic,
        "min_insync_racks": arm.min_insync_racks,
        "leader": elected[0] if elected else None,
        "unclean": elected[1] if elected else None,
        "isr_racks": None if isr_racks is None else list(isr_racks),
        "acked": counted["acked"] if counted else None,
        "read": counted["read"] if counted else None,
        "lost": None if unknown or counted is None else counted["lost"],
        "unknown": unknown,
    }
