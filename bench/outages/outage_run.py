"""``python -m bench.outages.outage_run``: all outages of one lab, and the behaviour of each topic in them."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench.analysis import availability, latency_analysis, record_check
from bench.load import schedule
from bench.load.arm_topics import spec
from bench.outages import destruction, refusal_metrics
from bench.outages.outage_context import LEAD_S, MOST_LEAD_S, TASKS, OutageContext
from bench.plan import outage_plan
from bench.plan.outage_plan import FAULT_WORDS, LabPlan, Plan
from bench.plan.scenario import Arm
from bench.progress import Steps
from bench.run.cluster_under_test import LabTarget, attach
from bench.run.lab_run import warm
from bench.run.lab_session import LateError, driven, pause_until
from bench.spark_session import spark_session
from pyhooks.core import exit_status
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_json
from pyhooks.faults import registry
from pyhooks.faults.injection import FaultTarget as Taken
from pyhooks.history.event_log import History
from pyhooks.jvm.client import start_quietly
from pyhooks.jvm.java_exception import JavaError
from pyhooks.kafka import topics
from pyhooks.workload import producer_clients
from pyhooks.workload import producer_plan as produceplan
from pyhooks.workload.pacing import NS
from pyhooks.workload.producer import ProducerRun
from pyhooks.workload.topic_observer import observe_topics

if TYPE_CHECKING:
    pass

# Time limit for a rack's followers to catch up after a heal.
SETTLED_S = 120.0
PROBE_GRACE_S = 20.0
START, END = "start: Spark, topics, round trips", "records read back"
# Estimates in seconds: lab start; first step; an outage beside its load (analysis, heal); read-back; destruction.
LAB_S, START_S, EACH_S, END_S, DESTROYED_S = 22.0, 20.0, 8.0, 12.0, 40.0


def destroyed_of(way: str) -> str:
    """Return the display name of a destruction's step."""
    return f"a rack is destroyed while another is {FAULT_WORDS[way]}"


def steps_of(plan: Plan, lab: LabPlan) -> dict[str, float]:
    """Return the expected duration of each step in a lab by its name, in seconds."""
    each_s = plan.timing.total_s + LEAD_S + EACH_S
    steps = {START: START_S}
    steps |= {step_of(lab, number, fault): each_s for number, fault in enumerate(lab.order(plan.seed), 1)}
    # records are read back before a destruction deletes many of them
    steps[END] = END_S
    if plan.destruction and plan.destruction.topology == lab.topology:
        steps |= {destroyed_of(way): DESTROYED_S + plan.timing.during_s for way in plan.destruction.ways}
    return steps


def step_of(lab: LabPlan, number: int, fault: str) -> str:
    """Return the display name of an outage's step."""
    return f"{lab.topology}: outage {number} of {sum(lab.outages.values())}, rack {lab.rack} {FAULT_WORDS[fault]}"


def estimate_s(plan: Plan, labs: Sequence[LabPlan]) -> float:
    """Return the expected duration of all these labs, in seconds."""
    return sum(LAB_S + sum(steps_of(plan, lab).values()) for lab in labs)


def in_lab(target: LabTarget, plan: Plan, lab: LabPlan, run_id: str, *, console: Console, master: str) -> None:
    """Run all outages of a lab and write the findings to ``found.json`` in the lab's folder.

    Raises:
        RackgateError: the cluster rejected a topic, its racks do not come back, or a load did not end.
    """
    steps = Steps(steps_of(plan, lab), console, estimate_s(plan, plan.labs[plan.labs.index(lab) + 1 :]))
    arms = plan.arms_of(lab)
    folder = target.run_dir
    start_quietly()
    with steps.shown(), ExitStack() as stack:
        with steps.step(START):
            admin = topics.admin(target.bootstrap)
            topics.create(admin, [spec(arm) for arm in arms])
            round_trips = target.round_trips()
            spark = stack.enter_context(spark_session(folder / "spark", master=master, jars=target.spark_jars))
            warm(spark, TASKS)
            context = OutageContext(target, plan, lab, folder, run_id, spark, admin, topics.racks_of(admin))
        found = []
        for number, fault in enumerate(lab.order(plan.seed), 1):
            with steps.step(step_of(lab, number, fault)):
                found.append(outage(context, number, fault, arms))
        with steps.step(END):
            raw = latency_analysis.read_raw(spark, folder / "raw")
            log = record_check.read_back(spark, target.bootstrap, [arm.topic for arm in arms])
            checked = record_check.check(raw, log, run_id)
        destroyed = []
        if plan.destruction and plan.destruction.topology == lab.topology:
            for way in plan.destruction.ways:
                with steps.step(destroyed_of(way)):
                    destroyed.append(destruction.measure(context, plan.destruction, way))
    told = {
        "topology": lab.topology,
        "racks": {str(broker): rack for broker, rack in sorted(context.racks.items())},
        "round_trips": round_trips,
        "outages": found,
        "destructions": destroyed,
        "end_to_end": checked,
        "target": dict(target.manifest()),
        "took_s": steps.took_s,
    }
    write_json(folder / "found.json", told)


def outage(context: OutageContext, number: int, fault: str, arms: Sequence[Arm]) -> dict[str, Any]:
    """Run one outage and return its numbers; repeat it with more lead time if its load was not ready.

    Raises:
        RackgateError: the racks of the previous outage do not come back, or a load failed.
    """
    topics.wait_settled(context.admin, [spec(arm) for arm in arms], timeout_s=SETTLED_S)
    while True:
        name = f"outage-{number:02d}-{fault}-{time.monotonic_ns() // 1_000_000}"
        try:
            return _outage(context, name, number, fault, arms)
        except LateError:
            # A fault that was injected is healed by now, and the records sent so far are not counted.
            shutil.rmtree(context.folder / "raw" / name, ignore_errors=True)
            context.more_time()


def _outage(context: OutageContext, name: str, number: int, fault: str, arms: Sequence[Arm]) -> dict[str, Any]:
    plan = replace(context.plan.timing, rack=context.lab.rack)
    history = History(context.folder / "outages" / f"{name}.jsonl")
    names = [arm.topic for arm in arms]
    path = context.folder / "raw" / name
    notes: list[str] = []
    survivors = context.target.survivors(plan.rack)
    with (
        probing(context, names, history, notes),
        refusal_metrics.polled(context.target.lab, history, context.plan.meter_poll_s),
        observe_topics(survivors, names, context.racks, history, interval_s=plan.isr_poll_s),
    ):
        # one client per topic: arms on several placements have the same id and would share a client
        slots = tuple(replace(slot, arm=slot.topic) for slot in schedule.outage_slots(plan, arms))
        load = context.load(name, slots)
        with driven(context.spark, history, load, path) as done:
            fault_ns = load.start_ns + round(plan.before_s * NS)
            pause_until(fault_ns, done, "the time of the fault")
            try:
                with registry.fault_applied(
                    context.target.lab, fault, Taken.rack(context.target.lab, plan.rack), history
                ):
                    pause_until(fault_ns + round(plan.during_s * NS), done, "the time of the heal")
            except LateError:
                raise
            except RackgateError as error:
                # The load continues, and the outage is reported as unknown.
                notes.append(f"{context.lab.topology}, outage {number}: {error}")
    events = list(history.events())
    numbers = availability.summarise(
        context.spark, latency_analysis.read_raw(context.spark, path), events, plan, arms, load.start_ns
    )
    availability.decide(numbers)
    when, away = availability.fault_of(events, plan.rack), context.brokers_of(plan.rack)
    for topic in numbers["topics"]:
        # until the rack is back, or until now if its return was not observed
        until_ns = when.healed_ns or time.monotonic_ns()
        topic["meter"] = refusal_metrics.first_refusal(events, topic["topic"], when, away, until_ns)
    return {"number": number, "fault": fault, "numbers": numbers, "notes": notes}


@contextmanager
def probing(context: OutageContext, names: Sequence[str], history: History, notes: list[str]) -> Iterator[None]:
    """Run a probe without retries while the block runs; it has one client, and so one connection, per topic."""
    plan = produceplan.ProducerPlan(
        bootstrap=context.target.bootstrap,
        topics=tuple(names),
        rate_per_s=context.plan.timing.probe_rate_per_s,
        partitions=1,
        # upper bound only: the probe is stopped earlier
        seconds=context.plan.timing.total_s + MOST_LEAD_S + context.plan.flush_s + SETTLED_S,
        record_bytes=0,
        mode="probe",
        timeout_ms=context.plan.probe_timeout_ms,
        name=produceplan.PROBE_PROCESS,
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


class Ask(argparse.Namespace):
    """Command-line arguments."""

    plan: str
    plans: Path
    lab: str
    run_id: str
    master: str
    on_stderr: bool


def _asked(arguments: Sequence[str] | None) -> Ask:
    parser = argparse.ArgumentParser(prog="python -m bench.outages.outage_run", description=__doc__)
    parser.add_argument("--plan", default="full")
    parser.add_argument("--plans", type=Path, default=outage_plan.SHIPPED, help="file with the plans")
    parser.add_argument("--lab", required=True, help="topology of this lab")
    parser.add_argument("--run-id", required=True, help="part of every record's key")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--on-stderr", action="store_true", help="progress goes to standard error")
    return parser.parse_args(arguments, namespace=Ask())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    ask = _asked(arguments)
    console = Console(stderr=ask.on_stderr, soft_wrap=True, highlight=False)
    # py4j logs a traceback for each call that an interrupt ends; relevant errors are raised as well.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        plan = outage_plan.load(ask.plan, ask.plans)
        (lab,) = [lab for lab in plan.labs if lab.topology == ask.lab]
        in_lab(attach(), plan, lab, ask.run_id, console=console, master=ask.master)
    except KeyboardInterrupt:
        console.print("interrupted: no report was made")
        # Not sys.exit(): it would wait for the threads that wait for Spark. Child processes end with this one.
        os._exit(130)
    except Exception as error:  # noqa: BLE001 - else Python ends with 1, which says that records are lost
        sys.exit(exit_status.tell(error, console))


if __name__ == "__main__":
    main()
