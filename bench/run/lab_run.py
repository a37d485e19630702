"""``python -m bench.run.lab_run``: measure in a lab what a run still lacks; the last lab writes the report."""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench.analysis import availability, exit_reasons, latency_analysis, verdicts
from bench.load import schedule
from bench.load.arm_topics import spec
from bench.machine import Sampler
from bench.plan import scenarios
from bench.plan.scenario import OutagePlan, Scenario
from bench.progress import Steps, clock
from bench.report import verdict_counts
from bench.run import cell_measurement, run_result
from bench.run.cluster_under_test import LabTarget, attach
from bench.run.lab_session import SURE_LEAD_S, Session, pause_until, with_lead
from bench.run.run_store import OUTAGE, Store
from bench.run.sustained_rate import key
from bench.spark_session import spark_session
from pyhooks.core import exit_status, run_folder, targets
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_json
from pyhooks.core.process import supervised
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.kafka import topics
from pyhooks.workload.pacing import NS
from pyhooks.workload.topic_observer import observe_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Time limit for Spark to write the observations of a load after its last record.
WRITE_S = 60.0
PROBE_GRACE_S = 20.0
START, TAKEN = "start: Spark, idle round trips", "outage: a rack goes and comes back"
ANALYSE, REPORT = "analysis of all cells", "report"
# Estimates in seconds: lab start; Spark start and round trips; analysis, fixed part and per cell; report.
LAB_S, START_S, ANALYSE_S, EACH_CELL_S, REPORT_S = 22.0, 14.0, 15.0, 2.5, 8.0

Place = tuple[str, str]


def planned(store: Store, scenario: Scenario, place: Place) -> dict[str, float]:
    """Return the expected duration of each step in a lab, in seconds."""
    steps, first, rates = {START: START_S}, True, set(store.rates)
    # The outage phase comes before the cells, because its load also warms up the brokers.
    if scenario.outage and store.outage_is_due(scenario, place):
        steps[TAKEN] = SURE_LEAD_S + 24 + scenario.outage.total_s
    for cell in store.pending(scenario, place):
        ramp = cell.setting.load_percent is not None and key(cell) not in rates
        steps[step_of(scenario, cell.id)] = cell_measurement.planned_s(
            cell, len(store.missing(cell)), first=first, ramp=ramp
        )
        first = False
        rates.add(key(cell))
    return steps


def step_of(scenario: Scenario, cell_id: str) -> str:
    """Return the display name of a cell's step."""
    number = [cell.id for cell in scenario.cells].index(cell_id)
    return f"cell {number + 1} of {len(scenario.cells)}, {cell_id}: {scenario.cells[number].label}"


def finish_planned(scenario: Scenario) -> dict[str, float]:
    """Return the expected durations of the final steps, in seconds."""
    many = len(scenario.cells)
    return {ANALYSE: ANALYSE_S + EACH_CELL_S * many, REPORT: REPORT_S * (1 + many / 4)}


def estimate_s(store: Store, scenario: Scenario) -> float:
    """Return the expected duration of everything still missing, labs and report included, in seconds."""
    labs = sum(LAB_S + sum(planned(store, scenario, place).values()) for place in store.places(scenario))
    return labs + sum(finish_planned(scenario).values())


def in_lab(
    target: LabTarget, scenario: Scenario, store: Store, place: Place, number: int, *, console: Console, ask: Ask
) -> dict[str, Any] | None:
    """Measure what is missing in a place. If that completes the run, write the report and return the result.

    Raises:
        RackgateError: the cluster rejected a topic, a state was not reached, or a load did not end.
    """
    others = [one for one in store.places(scenario) if one != place]
    later_s = sum(LAB_S + sum(planned(store, scenario, one).values()) for one in others)
    mine = planned(store, scenario, place) | ({} if others else finish_planned(scenario))
    later_s += sum(finish_planned(scenario).values()) if others else 0.0
    steps = Steps(mine, console, later_s)
    with steps.shown(), Sampler().running() as sampler, ExitStack() as stack:
        with steps.step(START):
            admin = topics.admin(target.bootstrap)
            racks = topics.racks_of(admin)
            spark = stack.enter_context(
                spark_session(store.lab(number) / "spark", master=ask.master, jars=target.spark_jars)
            )
            warm(spark, scenario.tasks)
            history = History(target.run_dir / "history.jsonl")
            this = Session(target, scenario, store, number, spark, admin, history, steps, sampler)
            this.round_trips["idle"] = target.round_trips()
        if scenario.outage and store.outage_is_due(scenario, place):
            with steps.step(TAKEN):
                outage_phase(this, racks, scenario.outage)
            run_result.add_session(this, place, racks)
        for cell in store.pending(scenario, place):
            with steps.step(step_of(scenario, cell.id)):
                cell_measurement.measure(this, cell)
            run_result.add_session(this, place, racks)
        if others:
            return None
        return finish(spark, scenario, store, steps, ask)


class Ask(argparse.Namespace):
    """Command-line arguments; ``finish`` needs only ``master``, ``command`` and ``out``."""

    scenario: str
    scenarios: Path
    topology: str | None
    tasks: int | None
    place: str | None
    session: int
    finish: bool
    master: str
    out: Path
    command: str
    as_json: bool


def finish(spark: SparkSession, scenario: Scenario, store: Store, steps: Steps, ask: Ask) -> dict[str, Any]:
    """Analyse all measurements, write results and report, and return the result."""
    from bench.report import run_page

    with steps.step(ANALYSE):
        result = run_result.analysed(spark, scenario, store)
        result["manifest"] = run_result.manifest(scenario, store, master=ask.master, command=ask.command)
        result |= exit_reasons.conclude(exit_reasons.of_run(result), verdicts.sentences(result))
    with steps.step(REPORT):
        result["manifest"]["took_s"] |= steps.took_s
        write(result, ask.out)
        run_page.render(result, ask.out)
    # the duration includes the report itself
    result["manifest"]["took_s"] |= steps.took_s | {"whole": store.took_s}
    result["bar"] = targets.of_run(scenario.bar_min, store.took_s, whole=not store.went_on)
    write(result, ask.out)
    store.done()
    return result


def warm(spark: SparkSession, tasks: int) -> None:
    """Start Spark's Python workers, so that the load's tasks are ready before their schedule begins."""

    def load_client(frames: Iterator[Any]) -> Iterator[Any]:
        # imported for the side effect: loading takes seconds on a busy machine
        import confluent_kafka  # noqa: F401

        import bench.load.spark_load  # noqa: F401

        yield from frames

    spark.range(0, tasks, 1, tasks).mapInPandas(load_client, schema="id long").collect()


def outage_phase(this: Session, racks: dict[int, str], plan: OutagePlan) -> None:
    """Run the outage phase and keep its outcome: load, probe and ISR observer in parallel, the fault in the middle."""
    topics.create(this.admin, [spec(arm) for arm in this.scenario.outage_arms])
    with_lead(SURE_LEAD_S, lambda lead_s: _outage(this, racks, plan, lead_s))


def _outage(this: Session, racks: dict[int, str], plan: OutagePlan, lead_s: float) -> None:
    from bench.analysis import record_check

    arms = this.scenario.outage_arms
    names = [arm.topic for arm in arms]
    survivors = this.target.survivors(plan.rack)
    start_ns = time.monotonic_ns() + round(lead_s * NS)
    # The unique name separates these records from those of an abandoned attempt.
    load = this.load(f"{OUTAGE}-{start_ns // 1_000_000}", schedule.outage_slots(plan, arms), start_ns)
    path = this.store.unfinished(load.name)
    notes: list[str] = []
    watch = observe_topics(survivors, names, racks, this.history, interval_s=plan.isr_poll_s)
    with watch, this.driven(load, path) as done, probing(this, plan, names, start_ns, notes):
        fault_ns = start_ns + round(plan.before_s * NS)
        pause_until(fault_ns, done, "the time of the fault")
        try:
            with this.target.outage(plan.rack, this.history):
                pause_until(fault_ns + round(plan.during_s * NS), done, "the time of the heal")
        except RackgateError as error:
            # The load continues, and the phase is reported as unknown.
            notes.append(f"outage of rack {plan.rack}: {error}")
        wait_for(lambda: done.done() or None, what="the end of the load", timeout_s=plan.total_s + WRITE_S)
    end_ns = time.monotonic_ns()
    raw = latency_analysis.read_raw(this.spark, path)
    numbers = availability.summarise(this.spark, raw, list(this.history.events()), plan, arms, start_ns)
    availability.decide(numbers)
    log = record_check.read_back(this.spark, this.target.bootstrap, names)
    found = {
        "session": this.number,
        "numbers": numbers,
        "usage": this.sampler.usage(start_ns, end_ns),
        "notes": notes,
        "end_to_end": record_check.check(raw, log, this.store.run_id),
    }
    this.store.keep(path, OUTAGE, f"{OUTAGE}.{this.number}")
    this.store.add_outage(found)


@contextmanager
def probing(this: Session, plan: OutagePlan, names: list[str], start_ns: int, notes: list[str]) -> Iterator[None]:
    """Run the probe without retries while the block runs, then wait for its end; kill it if it does not end."""
    seconds = (start_ns - time.monotonic_ns()) / NS + plan.total_s
    words = [sys.executable, "-m", "pyhooks.workload.producer", "--bootstrap", this.target.bootstrap]
    words += ["--mode", "probe", "--topics", ",".join(names), "--rate", f"{plan.probe_rate_per_s:g}"]
    words += ["--seconds", f"{seconds:.0f}", "--history", str(this.history.path)]
    log = this.target.run_dir / "probe.log"
    with supervised(words, log=log) as child:
        yield
        try:
            child.wait(timeout=PROBE_GRACE_S)
        except subprocess.TimeoutExpired:
            notes.append(f"the probe did not end within {PROBE_GRACE_S:.0f} s and was ended")
    if child.returncode not in (0, -9):
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        notes.append(f"the probe ended with status {child.returncode}: {''.join(last)}")


def write(result: dict[str, Any], out: Path) -> None:
    """Write ``results.json``; a non-finite number raises here instead of failing in the reader's browser."""
    write_json(out / "results.json", result)


def tell(result: Mapping[str, Any], out: Path, console: Console, *, as_json: bool) -> None:
    """Print the result of a run: as JSON on standard output, or as lines on the console.

    Args:
        result: result of ``finish``.
        out: folder of results and report.
        console: console for the lines.
        as_json: whether to print JSON instead.
    """
    if as_json:
        sys.stdout.write(json.dumps(result, indent=1, allow_nan=False) + "\n")
    else:
        last_lines(result, out, lambda line: console.print(line, markup=False))


def last_lines(result: Mapping[str, Any], out: Path, print_line: Callable[[str], None]) -> None:
    """Print verdicts, notes, and the paths of report and results."""
    for line in verdict_counts.lines(result):
        print_line(line)
    for note in result["notes"]:
        print_line(f"note: {note}")
    print_line(f"report:  {out / 'index.html'}")
    print_line(f"numbers: {out / 'results.json'}  (took {clock(result['manifest']['took_s']['whole'])})")
    if result["bar"] is not None:
        print_line(targets.of_run_text(result["bar"]))


def _asked() -> Ask:
    parser = argparse.ArgumentParser(prog="python -m bench.run.lab_run", description=__doc__)
    parser.add_argument("--scenario", default="quick")
    parser.add_argument("--scenarios", type=Path, default=scenarios.SHIPPED, help="file with the plans")
    parser.add_argument("--topology", help="another one than the scenario's")
    parser.add_argument("--tasks", type=int, help="another number than the scenario's")
    parser.add_argument("--place", help="topology/link of this lab [default: the only one of the plan]")
    parser.add_argument("--session", type=int, default=1, help="number of this lab in the run")
    parser.add_argument("--finish", action="store_true", help="only analyse what was measured; needs no lab")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--command", default="python -m bench.run.lab_run")
    parser.add_argument("--json", dest="as_json", action="store_true", help="the result as JSON; progress on stderr")
    return parser.parse_args(namespace=Ask())


def execute(ask: Ask, console: Console) -> dict[str, Any] | None:
    """Run the requested steps; return the result if the run is complete.

    Raises:
        RackgateError: see ``in_lab``; or no run was begun, or ``place`` does not name exactly one lab of the run.
    """
    scenario = scenarios.load(ask.scenario, ask.scenarios, ask.topology, ask.tasks)
    store = Store(ask.out / "run")
    run_folder.check(ask.out, run_folder.BENCH, keep=(run_folder.LOCK,))
    run_folder.check(store.folder, run_folder.BENCH_RUN)
    if not store.run:
        raise RackgateError(f"{store.folder}: no run was begun there; start this with 'rackgate bench run'")
    if ask.finish:
        steps = Steps(finish_planned(scenario), console)
        with steps.shown(), spark_session(store.folder / "spark", master=ask.master) as spark:
            return finish(spark, scenario, store, steps, ask)
    places = [place for place in scenario.places if ask.place in (None, "/".join(place))]
    if len(places) != 1:
        told = ", ".join("/".join(place) for place in scenario.places)
        raise RackgateError(f"scenario {scenario.name} needs several labs ({told}): run it outside of a lab")
    return in_lab(attach(), scenario, store, places[0], ask.session, console=console, ask=ask)


def main() -> None:
    """Entry point; exit with the status of the result if this process completed the run."""
    ask = _asked()
    console = Console(stderr=ask.as_json, soft_wrap=True, highlight=False)
    # py4j logs a traceback for each call that an interrupt ends; relevant errors are raised as well.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        result = execute(ask, console)
        if result is not None:
            tell(result, ask.out, console, as_json=ask.as_json)
            sys.exit(result["exit_status"])
    except KeyboardInterrupt:
        console.print("interrupted: the same command goes on with the finished blocks; no report was made")
        # Not sys.exit(): it would wait for the threads that wait for Spark. Child processes end with this one.
        os._exit(130)
    except Exception as error:  # noqa: BLE001 - else Python ends with 1, which says that records are lost
        sys.exit(exit_status.tell(error, console))


if __name__ == "__main__":
    main()
