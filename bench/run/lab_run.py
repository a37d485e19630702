"""``python -m bench.run.lab_run``: measure in a lab what a run still lacks; the last lab writes the report."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from bench.analysis import availability, exit_reasons, latency_analysis, pooled_runs, verdicts
from bench.load import schedule
from bench.load.arm_topics import BenchTopics, arm_topic
from bench.load.load_jobs import READY_S, WRITE_S, hold_fault
from bench.machine import UsageSampler
from bench.plan import scenarios
from bench.plan.scenario import OutagePlan, Scenario
from bench.progress import RunSteps, clock_text
from bench.report import cell_table
from bench.run import cell_measurement, run_result
from bench.run.cluster_under_test import LabUnderTest, current_lab
from bench.run.measurement_session import MeasurementSession
from bench.run.run_store import OUTAGE, RunStore
from bench.run.sustained_rate import rate_key
from bench.spark_session import spark_session
from pyhooks.core import exit_status, run_folder, targets
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_json
from pyhooks.core.process import supervised
from pyhooks.core.wait import wait_for
from pyhooks.faults import registry
from pyhooks.faults.injection import FaultTarget
from pyhooks.history.event_log import History
from pyhooks.kafka import topics
from pyhooks.lab.lab import Lab
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.producer_plan import PROBE_PROCESS
from pyhooks.workload.topic_observer import observe_topics

# Time limits for the start of the probe, which starts a JVM, and for its end.
PROBE_START_S, PROBE_GRACE_S = 60.0, 20.0
START, OUTAGE_STEP = "start: Spark, idle round trips", "outage: a rack is killed and healed"
ANALYSE, REPORT = "analysis of all cells", "report"
# Estimates in seconds: start of a load, a lab, and Spark with round trips; analysis, fixed part and per cell; report.
START_OF_LOAD_S, LAB_S, START_S, ANALYSE_S, EACH_CELL_S, REPORT_S = 2.0, 22.0, 10.0, 12.0, 2.5, 8.0

Place = tuple[str, str]


def planned(store: RunStore, scenario: Scenario, place: Place) -> dict[str, float]:
    """Return the expected duration of each step in a lab, in seconds."""
    steps, first, rates = {START: START_S}, True, set(store.rates)
    # The outage phase comes before the cells, because its load also warms up the brokers.
    if scenario.outage and store.outage_is_due(scenario, place):
        steps[OUTAGE_STEP] = START_OF_LOAD_S + 24 + scenario.outage.total_s
    for cell in store.pending(scenario, place):
        ramp = cell.setting.load_percent is not None and rate_key(cell) not in rates
        steps[step_of(scenario, cell.id)] = cell_measurement.planned_s(
            cell, len(store.missing(cell)), first=first, ramp=ramp
        )
        first = False
        rates.add(rate_key(cell))
    return steps


def step_of(scenario: Scenario, cell_id: str) -> str:
    """Return the display name of a cell's step."""
    number = [cell.id for cell in scenario.cells].index(cell_id)
    return f"cell {number + 1} of {len(scenario.cells)}, {cell_id}: {scenario.cells[number].label}"


def finish_planned(scenario: Scenario) -> dict[str, float]:
    """Return the expected durations of the final steps, in seconds."""
    many = len(scenario.cells)
    return {ANALYSE: ANALYSE_S + EACH_CELL_S * many, REPORT: REPORT_S * (1 + many / 4)}


def estimate_s(store: RunStore, scenario: Scenario) -> float:
    """Return the expected duration of everything still missing, labs and report included, in seconds."""
    labs = sum(LAB_S + sum(planned(store, scenario, place).values()) for place in store.places(scenario))
    return labs + sum(finish_planned(scenario).values())


def in_lab(
    target: LabUnderTest,
    scenario: Scenario,
    store: RunStore,
    place: Place,
    number: int,
    *,
    console: Console,
    arguments: LabRunArguments,
) -> dict[str, Any] | None:
    """Measure what is missing in a place. If that completes the run, write the report and return the result."""
    others = [other for other in store.places(scenario) if other != place]
    later_s = sum(LAB_S + sum(planned(store, scenario, other).values()) for other in others)
    steps_s = planned(store, scenario, place) | ({} if others else finish_planned(scenario))
    later_s += sum(finish_planned(scenario).values()) if others else 0.0
    steps = RunSteps(steps_s, console, later_s)
    with steps.shown(), UsageSampler().running() as sampler, ExitStack() as stack:
        with steps.step(START):
            admin = topics.admin(target.bootstrap)
            racks = topics.racks_of(admin)
            jars = Distribution.load().spark_jars
            spark = stack.enter_context(spark_session(store.lab(number) / "spark", master=arguments.master, jars=jars))
            history = History(target.lab.run_dir / "history.jsonl")
            bench_topics = BenchTopics(admin)
            session = MeasurementSession(target, scenario, store, number, spark, bench_topics, history, steps, sampler)
            session.round_trips["idle"] = target.round_trips()
        if scenario.outage and store.outage_is_due(scenario, place):
            with steps.step(OUTAGE_STEP):
                outage_phase(session, target.lab, racks, scenario.outage)
            run_result.add_session(session, place, racks)
        for cell in store.pending(scenario, place):
            with steps.step(step_of(scenario, cell.id)):
                cell_measurement.measure(session, cell)
            run_result.add_session(session, place, racks)
        if others:
            return None
        return finish(spark, scenario, store, steps, arguments)


class LabRunArguments(argparse.Namespace):
    """Command-line arguments; ``finish`` needs only ``master``, ``command`` and ``out``."""

    scenario: str
    scenarios: Path
    topology: str | None
    tasks: int | None
    rate: float | None
    partitions: int | None
    place: str | None
    session: int
    finish: bool
    master: str
    out: Path
    command: str
    as_json: bool


def finish(
    spark: SparkSession, scenario: Scenario, store: RunStore, steps: RunSteps, arguments: LabRunArguments
) -> dict[str, Any]:
    """Analyse all measurements, write results and report, and return the result."""
    from bench.report import run_page

    with steps.step(ANALYSE):
        result, measured = run_result.analyse_run(spark, scenario, store)
        result["manifest"] = run_result.manifest(scenario, store, master=arguments.master, command=arguments.command)
        result |= exit_reasons.conclude(exit_reasons.run_reasons(result), verdicts.sentences(result))
        pooled_runs.append_run(arguments.out, store.run, arguments.command, measured, result["cells"])
        result["pooled"] = pooled_runs.pool_runs(arguments.out, store.run_id)
    with steps.step(REPORT):
        result["manifest"]["duration_s"] |= steps.duration_s
        write_json(arguments.out / "results.json", result)
        run_page.render(result, arguments.out)
    # the duration includes the report itself
    result["manifest"]["duration_s"] |= steps.duration_s | {"whole": store.duration_s}
    result["target"] = targets.of_run(scenario.target_min, store.duration_s, uninterrupted=not store.continued)
    write_json(arguments.out / "results.json", result)
    store.done()
    return result


def outage_phase(session: MeasurementSession, lab: Lab, racks: dict[int, str], plan: OutagePlan) -> None:
    """Run the outage phase and keep its outcome: load, probe and ISR observer in parallel, the fault in the middle."""
    session.topics.create([arm_topic(arm) for arm in session.scenario.outage_arms])
    arms = session.scenario.outage_arms
    names = [arm.topic for arm in arms]
    survivors = session.target.without([broker for broker, rack in racks.items() if rack == plan.rack])
    fault = registry.fault_applied(lab, "kill", FaultTarget.rack(lab, plan.rack), session.history)
    load = session.load(OUTAGE, schedule.outage_slots(plan, arms))
    path = session.store.unfinished(load.name)
    notes: list[str] = []
    log = lab.run_dir / "probe.log"
    observer = observe_topics(survivors, names, racks, session.history, interval_s=plan.isr_poll_s)
    with observer, running_probe(session, plan, names, log, notes), session.running(load, path) as running:
        start_ns = running.start_ns
        if failure := hold_fault(running, plan, fault):
            # the phase is reported as unknown
            notes.append(f"outage of rack {plan.rack}: {failure}")
    end_ns = time.monotonic_ns()
    raw = latency_analysis.read_raw(session.spark, path)
    numbers = availability.summarise(session.spark, raw, list(session.history.events()), plan, arms, start_ns)
    end_to_end = session.check_records([path], names)
    session.store.keep(path, OUTAGE, f"{OUTAGE}.{session.number}")
    session.store.add_outage(
        {
            "session": session.number,
            "numbers": numbers,
            "usage": session.sampler.usage(start_ns, end_ns),
            "notes": notes,
            "end_to_end": end_to_end,
        }
    )


@contextmanager
def running_probe(
    session: MeasurementSession, plan: OutagePlan, names: list[str], log: Path, notes: list[str]
) -> Iterator[None]:
    """Run the probe without retries from before the block to its end; kill it if it does not end then."""
    command = [sys.executable, "-m", "pyhooks.workload.producer", "--bootstrap", session.target.bootstrap]
    command += ["--mode", "probe", "--topics", ",".join(names), "--rate", f"{plan.probe_rate_per_s:g}"]
    # upper bound only: the probe is stopped earlier
    seconds = PROBE_START_S + READY_S + plan.total_s + session.scenario.flush_s + WRITE_S
    command += ["--seconds", f"{seconds:.0f}", "--history", str(session.history.path)]
    with supervised(command, log=log) as child:

        def has_begun() -> bool:
            return child.poll() is not None or any(event.process == PROBE_PROCESS for event in session.history.events())

        try:
            wait_for(has_begun, goal="the probe", timeout_s=PROBE_START_S, interval_s=0.2)
        except RackgateError as error:
            notes.append(str(error))
        yield
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout=PROBE_GRACE_S)
        except subprocess.TimeoutExpired:
            notes.append(f"the probe did not end within {PROBE_GRACE_S:.0f} s and was killed")
    if child.returncode not in (0, -9):
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        notes.append(f"the probe ended with status {child.returncode}: {''.join(last)}")


def print_result(result: Mapping[str, Any], out: Path, console: Console, *, as_json: bool) -> None:
    """Print the result of a run: as JSON on standard output, or as lines on the console."""
    if as_json:
        sys.stdout.write(json.dumps(result, indent=1, allow_nan=False) + "\n")
    else:
        print_summary(result, out, lambda line: console.print(line, markup=False))


def print_summary(result: Mapping[str, Any], out: Path, print_line: Callable[[str], None]) -> None:
    """Print verdicts, notes, and the paths of report and results."""
    for line in (*cell_table.verdict_lines(result), *pooled_runs.lines(result.get("pooled"))):
        print_line(line)
    for note in result["notes"]:
        print_line(f"note: {note}")
    print_line(f"report:  {out / 'index.html'}")
    print_line(f"numbers: {out / 'results.json'}  (took {clock_text(result['manifest']['duration_s']['whole'])})")
    if result["target"] is not None:
        print_line(targets.of_run_text(result["target"]))


def _parse(arguments: Sequence[str] | None) -> LabRunArguments:
    parser = argparse.ArgumentParser(prog="python -m bench.run.lab_run", description=__doc__)
    parser.add_argument("--scenario", default="question")
    parser.add_argument("--scenarios", type=Path, default=scenarios.SHIPPED, help="file with the plans")
    parser.add_argument("--topology", help="in place of the scenario's")
    parser.add_argument("--tasks", type=int, help="in place of the scenario's")
    parser.add_argument("--rate", type=float, help="records/s of every cell, in place of its own")
    parser.add_argument("--partitions", type=int, help="partitions of the topics of every cell")
    parser.add_argument("--place", help="topology/link of this lab [default: the only one of the plan]")
    parser.add_argument("--session", type=int, default=1, help="number of this lab in the run")
    parser.add_argument("--finish", action="store_true", help="only analyse the stored measurements; needs no lab")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--command", default="python -m bench.run.lab_run")
    parser.add_argument("--json", dest="as_json", action="store_true", help="the result as JSON; progress on stderr")
    return parser.parse_args(arguments, namespace=LabRunArguments())


def execute(arguments: LabRunArguments, console: Console) -> dict[str, Any] | None:
    """Run the requested steps; return the result if the run is complete.

    Raises:
        RackgateError: no run was begun, ``place`` does not name exactly one lab of the run, or a measurement failed.
    """
    scenario = scenarios.load(
        arguments.scenario,
        arguments.scenarios,
        arguments.topology,
        arguments.tasks,
        rate_per_s=arguments.rate,
        partitions=arguments.partitions,
    )
    store = RunStore(arguments.out / "run")
    run_folder.check(arguments.out, run_folder.BENCH, keep=(run_folder.LOCK,))
    run_folder.check(store.folder, run_folder.BENCH_RUN)
    if not store.run:
        raise RackgateError(f"{store.folder}: contains no run; start it with 'rackgate bench run'")
    if arguments.finish:
        steps = RunSteps(finish_planned(scenario), console)
        with steps.shown(), spark_session(store.folder / "spark", master=arguments.master) as spark:
            return finish(spark, scenario, store, steps, arguments)
    places = [place for place in scenario.places if arguments.place in (None, "/".join(place))]
    if len(places) != 1:
        labs = ", ".join("/".join(place) for place in scenario.places)
        raise RackgateError(f"scenario {scenario.name} needs several labs ({labs}): run it outside a lab")
    return in_lab(current_lab(), scenario, store, places[0], arguments.session, console=console, arguments=arguments)


@contextmanager
def exiting_on_error(console: Console, interrupted: str) -> Iterator[None]:
    """End this process with the status of an error or of Ctrl-C in the block, after a message to the console."""
    # py4j logs a traceback for each call that an interrupt ends; relevant errors are raised as well.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        yield
    except KeyboardInterrupt:
        console.print(interrupted)
        # Not sys.exit(): it would wait for the threads that wait for Spark. Child processes end with this one.
        os._exit(130)
    except Exception as error:  # noqa: BLE001 - Python's own exit status 1 would mean that records are lost
        sys.exit(exit_status.report_error(error, console))


def main(
    command_line: Sequence[str] | None = None,
    run: Callable[[LabRunArguments, Console], dict[str, Any] | None] = execute,
) -> None:
    """Entry point; exit with the status of the result if this process completed the run."""
    arguments = _parse(command_line)
    console = Console(stderr=arguments.as_json, soft_wrap=True, highlight=False)
    with exiting_on_error(
        console, "interrupted: the same command continues with the finished blocks; no report was written"
    ):
        result = run(arguments, console)
        if result is not None:
            print_result(result, arguments.out, console, as_json=arguments.as_json)
            sys.exit(result["exit_status"])


if __name__ == "__main__":
    main()
