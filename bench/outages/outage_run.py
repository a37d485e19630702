"""``python -m bench.outages.outage_run``: all outages of one lab, and the behaviour of each topic in them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.analysis import availability, latency_analysis, record_check
from bench.load import schedule
from bench.load.arm_topics import arm_topic
from bench.load.load_jobs import READY_S, hold_fault, running_load
from bench.outages import destruction, rejection_metrics
from bench.outages.outage_context import OutageContext
from bench.plan import outage_plan
from bench.plan.outage_plan import FAULT_LABELS, LabPlan, OutageRunPlan
from bench.plan.scenario import BenchArm
from bench.progress import RunSteps
from bench.run.cluster_under_test import LabUnderTest, current_lab
from bench.run.lab_run import START_OF_LOAD_S, exiting_on_error
from bench.spark_session import spark_session
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_json
from pyhooks.faults import registry
from pyhooks.faults.injection import FaultTarget
from pyhooks.history.event_log import History
from pyhooks.jvm.client import start_jvm
from pyhooks.jvm.java_exception import JavaError
from pyhooks.kafka import topics
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload import producer_clients
from pyhooks.workload.producer import ProducerRun
from pyhooks.workload.producer_plan import PROBE_PROCESS, ProducerPlan
from pyhooks.workload.topic_observer import observe_topics

# Time limit for a rack's followers to catch up after a heal.
CATCH_UP_S = 120.0
PROBE_GRACE_S = 20.0
START, END = "start: Spark, topics, round trips", "records read back"
# Estimates in seconds: lab start; first step; an outage beside its load (analysis, heal); read-back; destruction.
LAB_S, START_S, EACH_S, END_S, DESTROYED_S = 22.0, 20.0, 8.0, 12.0, 40.0


def destruction_step(fault: str) -> str:
    """Return the display name of a destruction's step."""
    return f"a rack is destroyed while another is {FAULT_LABELS[fault]}"


def planned_steps(plan: OutageRunPlan, lab: LabPlan) -> dict[str, float]:
    """Return the expected duration of each step in a lab by its name, in seconds."""
    each_s = plan.timing.total_s + START_OF_LOAD_S + EACH_S
    steps = {START: START_S}
    steps |= {outage_step(lab, number, fault): each_s for number, fault in enumerate(lab.order(plan.seed), 1)}
    # records are read back before a destruction deletes many of them
    steps[END] = END_S
    if plan.destruction and plan.destruction.topology == lab.topology:
        steps |= {destruction_step(fault): DESTROYED_S + plan.timing.during_s for fault in plan.destruction.faults}
    return steps


def outage_step(lab: LabPlan, number: int, fault: str) -> str:
    """Return the display name of an outage's step."""
    return f"{lab.name}: outage {number} of {sum(lab.outages.values())}, rack {lab.rack} {FAULT_LABELS[fault]}"


def estimate_s(plan: OutageRunPlan, labs: Sequence[LabPlan]) -> float:
    """Return the expected duration of all these labs, in seconds."""
    return sum(LAB_S + sum(planned_steps(plan, lab).values()) for lab in labs)


def in_lab(
    target: LabUnderTest, plan: OutageRunPlan, lab: LabPlan, run_id: str, *, console: Console, master: str
) -> None:
    """Run all outages of a lab and write the findings to ``found.json`` in the lab's folder."""
    steps = RunSteps(planned_steps(plan, lab), console, estimate_s(plan, plan.labs[plan.labs.index(lab) + 1 :]))
    arms = plan.arms_of(lab)
    folder = target.lab.run_dir
    start_jvm(log_level="ERROR")
    with steps.shown(), ExitStack() as stack:
        with steps.step(START):
            admin = topics.admin(target.bootstrap)
            topics.create(admin, [arm_topic(arm) for arm in arms])
            round_trips = target.round_trips()
            jars = Distribution.load().spark_jars
            spark = stack.enter_context(spark_session(folder / "spark", master=master, jars=jars))
            context = OutageContext(target, plan, lab, folder, run_id, spark, admin, topics.racks_of(admin))
        outages = []
        for number, fault in enumerate(lab.order(plan.seed), 1):
            with steps.step(outage_step(lab, number, fault)):
                outages.append(outage(context, number, fault, arms))
        with steps.step(END):
            raw = latency_analysis.read_raw(spark, folder / "raw")
            log = record_check.read_back(spark, target.bootstrap, [arm.topic for arm in arms])
            checked = record_check.check_records(raw, log, run_id)
        destructions = []
        if plan.destruction and plan.destruction.topology == lab.topology:
            for fault in plan.destruction.faults:
                with steps.step(destruction_step(fault)):
                    destructions.append(destruction.measure(context, plan.destruction, fault))
    findings = {
        "name": lab.name,
        "topology": lab.topology,
        "racks": {str(broker): rack for broker, rack in sorted(context.racks.items())},
        "round_trips": round_trips,
        "outages": outages,
        "destructions": destructions,
        "end_to_end": checked,
        "target": dict(target.manifest()),
        "duration_s": steps.duration_s,
    }
    write_json(folder / "found.json", findings)


def outage(context: OutageContext, number: int, fault: str, arms: Sequence[BenchArm]) -> dict[str, Any]:
    """Run one outage and return its numbers."""
    topics.wait_settled(context.admin, [arm_topic(arm) for arm in arms], timeout_s=CATCH_UP_S)
    name = f"outage-{number:02d}-{fault}"
    plan = replace(context.plan.timing, rack=context.lab.rack)
    history = History(context.folder / "outages" / f"{name}.jsonl")
    names = [arm.topic for arm in arms]
    path = context.folder / "raw" / name
    notes: list[str] = []
    unavailable = context.brokers_of(plan.rack)
    survivors = context.target.without(unavailable)
    with (
        running_probe(context, names, history, notes),
        rejection_metrics.rejection_poller(context.target.lab, history, context.plan.meter_poll_s),
        observe_topics(survivors, names, context.racks, history, interval_s=plan.isr_poll_s),
    ):
        # one client per topic: arms on several placements have the same id and would share a client
        slots = tuple(replace(slot, arm=slot.topic) for slot in schedule.outage_slots(plan, arms))
        if background_per_s := context.plan.background_rate_per_s:
            slots += schedule.background_slots(plan, arms, background_per_s)
        load = context.load(name, slots)
        with running_load(context.spark, history, load, path) as running:
            target = FaultTarget.rack(context.target.lab, plan.rack)
            failure = hold_fault(running, plan, registry.fault_applied(context.target.lab, fault, target, history))
            if failure:
                # the outage is reported as unknown
                notes.append(f"{context.lab.name}, outage {number}: {failure}")
    events = list(history.events())
    numbers = availability.summarise(
        context.spark, latency_analysis.read_raw(context.spark, path), events, plan, arms, running.start_ns
    )
    recorded = availability.rack_fault(events, plan.rack)
    # until the rack is back, or until now if its return was not observed
    until_ns = (recorded.healed_ns if recorded else None) or time.monotonic_ns()
    for topic in numbers["topics"]:
        topic["meter"] = rejection_metrics.first_rejection(events, topic["topic"], recorded, unavailable, until_ns)
    return {"number": number, "fault": fault, "numbers": numbers, "notes": notes}


@contextmanager
def running_probe(context: OutageContext, names: Sequence[str], history: History, notes: list[str]) -> Iterator[None]:
    """Run a probe without retries while the block runs; it has one client, and so one connection, per topic."""
    plan = ProducerPlan(
        bootstrap=context.target.bootstrap,
        topics=tuple(names),
        rate_per_s=context.plan.timing.probe_rate_per_s,
        partitions=1,
        # upper bound only: the probe is stopped earlier
        seconds=context.plan.timing.total_s + READY_S + context.plan.flush_s + CATCH_UP_S,
        record_bytes=0,
        mode="probe",
        timeout_ms=context.plan.probe_timeout_ms,
        name=PROBE_PROCESS,
    )
    probe = ProducerRun(
        plan,
        history,
        lambda run_id: producer_clients.create_client(plan.client, plan.settings(run_id)),
        dict.fromkeys(names, 1),
    )
    pool = ThreadPoolExecutor(1)
    running = pool.submit(probe.run)
    try:
        yield
    finally:
        probe.stop.set()
        try:
            running.result(timeout=PROBE_GRACE_S)
        except TimeoutError:
            notes.append(f"the probe did not end within {PROBE_GRACE_S:.0f} s")
        except (JavaError, RackgateError) as error:
            notes.append(f"the probe failed: {error}")
        pool.shutdown(wait=False, cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.outages.outage_run", description=__doc__)
    parser.add_argument("--plan", default="full")
    parser.add_argument("--plans", type=Path, default=outage_plan.SHIPPED, help="file with the plans")
    parser.add_argument("--lab", required=True, help="name of this lab")
    parser.add_argument("--run-id", required=True, help="part of every record's key")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--on-stderr", action="store_true", help="progress goes to standard error")
    options = parser.parse_args(arguments)
    console = Console(stderr=options.on_stderr, soft_wrap=True, highlight=False)
    with exiting_on_error(console, "interrupted: no report was written"):
        plan = outage_plan.load(options.plan, options.plans)
        (lab,) = [lab for lab in plan.labs if lab.name == options.lab]
        in_lab(current_lab(), plan, lab, options.run_id, console=console, master=options.master)


if __name__ == "__main__":
    main()
