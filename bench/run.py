"""``python -m bench.run``, inside a lab: drives the load, injects the fault, analyses and writes the report."""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench import analyse, availability, endtoend, machine, pacing, report, scenarios, verdict
from bench.load import Load, observations
from bench.progress import Steps, clock
from bench.session import spark_session
from bench.target import Target, attach
from bench.topics import spec
from pyhooks.cluster import topics
from pyhooks.errors import RackgateError
from pyhooks.history import History
from pyhooks.process import DIES_WITH_PARENT, run
from pyhooks.wait import wait_for
from pyhooks.workload.looks import watched
from pyhooks.workload.pacing import NS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# From asking Spark for the load to its first record; the schedule is fixed, so this must be enough on a busy machine.
LEAD_S = 6.0
# Spark's way of writing a phase's observations after the last record.
WRITE_S = 60.0
PROBE_GRACE_S = 20.0
LATENCY, OUTAGE = "latency: all arms, block by block", "outage: a rack goes and comes back"
START, ANALYSE, REPORT = "start: Spark, topics, idle round trips", "analysis and end-to-end check", "report"


@dataclass
class Run:
    """What the phases of one run share.

    Attributes:
        target: the cluster.
        scenario: the plan.
        run_id: part of every record's key.
        spark: the session.
        history: of the run.
        steps: for the terminal.
        starts_ns: start of each phase on the monotonic clock.
        ends_ns: end of each phase.
        round_trips: measured between places: ``idle`` and ``under_load``.
        notes: what went wrong and did not end the run.
    """

    target: Target
    scenario: scenarios.Scenario
    run_id: str
    spark: SparkSession
    history: History
    steps: Steps
    starts_ns: dict[str, int] = field(default_factory=dict)
    ends_ns: dict[str, int] = field(default_factory=dict)
    round_trips: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def raw(self) -> Path:
        """Folder of the raw observations, one Parquet folder per phase."""
        return self.target.run_dir / "raw"

    @contextmanager
    def driven(self, phase: str, slots: tuple[pacing.Slot, ...]) -> Iterator[Future[None]]:
        """Drives the load of a phase while the block runs, and waits, bounded, for its end.

        Raises:
            RackgateError: the load did not end in time.
        """
        start_ns = time.monotonic_ns() + round(LEAD_S * NS)
        self.starts_ns[phase] = start_ns
        self.history.note("load", phase, "info", step="start", start_ns=start_ns, slots=len(slots))
        load = Load.of(self.scenario, slots, run_id=self.run_id, bootstrap=self.target.bootstrap, start_ns=start_ns)
        frame = observations(self.spark, load)
        pool = ThreadPoolExecutor(1)
        done = pool.submit(frame.write.parquet, str(self.raw / f"phase={phase}"))
        end_ns = start_ns + pacing.length_ns(slots)
        try:
            yield done
            left_s = max(0.0, (end_ns - time.monotonic_ns()) / NS)
            timeout_s = left_s + self.scenario.flush_s + WRITE_S
            wait_for(lambda: done.done() or None, what=f"the end of the load ({phase})", timeout_s=timeout_s)
            raise_failure(done)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.spark.sparkContext.cancelAllJobs()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        self.ends_ns[phase] = time.monotonic_ns()
        self.history.note("load", phase, "info", step="end")


def execute(
    target: Target,
    scenario: scenarios.Scenario,
    *,
    master: str,
    out: Path,
    command: str,
    console: Console,
) -> dict[str, Any]:
    """Runs a scenario from first topic to report and returns the result that was written.

    Raises:
        RackgateError: the cluster refused a topic, or the load did not end.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    history = History(target.run_dir / "history.jsonl")
    run_id = started.strftime("%Y%m%d-%H%M%S")
    steps = Steps(planned(scenario), console)
    with steps.shown(), machine.Sampler().running() as sampler:
        with ExitStack() as stack:
            with steps.step(START):
                admin = topics.admin(target.bootstrap)
                racks = topics.racks_of(admin)
                topics.create(admin, [spec(arm) for arm in scenario.arms])
                session = spark_session(target.run_dir / "spark", master=master, jars=target.spark_jars)
                this = Run(target, scenario, run_id, stack.enter_context(session), history, steps)
                warm(this.spark, scenario.tasks)
                this.round_trips["idle"] = target.round_trips()
            with steps.step(LATENCY):
                latency_phase(this)
            with steps.step(OUTAGE):
                outage_phase(this, racks)
            with steps.step(ANALYSE):
                result = analysed(this)
        result["manifest"] = manifest(this, racks, master=master, command=command, started=started)
        result["usage"] = {phase: sampler.usage(this.starts_ns[phase], this.ends_ns[phase]) for phase in this.starts_ns}
        result["verdicts"] = verdict.sentences(result)
        with steps.step(REPORT):
            result["manifest"]["took_s"] = {**steps.took_s, "whole": time.monotonic() - begun}
            write(result, out)
            report.render(result, out)
    return result


def planned(scenario: scenarios.Scenario) -> dict[str, float]:
    """What each step is expected to take, in seconds."""
    return {
        START: 12.0,
        LATENCY: LEAD_S + 4 + pacing.length_ns(pacing.latency_slots(scenario)) / NS,
        OUTAGE: LEAD_S + 4 + scenario.outage.total_s,
        ANALYSE: 25.0,
        REPORT: 8.0,
    }


def warm(spark: SparkSession, tasks: int) -> None:
    """Has Spark start its Python workers, so that the load's tasks begin before their schedule."""

    def load_client(frames: Iterator[Any]) -> Iterator[Any]:
        import confluent_kafka  # noqa: F401 - loading it is the point

        yield from frames

    spark.range(0, tasks, 1, tasks).mapInPandas(load_client, schema="id long").collect()


def latency_phase(this: Run) -> None:
    """Drives the latency phase; round trips under load are measured in a warm-up round, where they harm nothing."""
    slots = pacing.latency_slots(this.scenario)
    with this.driven("latency", slots) as done:
        first_ns = this.starts_ns["latency"] + slots[min(1, len(slots) - 1)].start_ns
        pause_until(first_ns, done, "the second slot of the load")
        this.round_trips["under_load"] = this.target.round_trips()


def outage_phase(this: Run, racks: dict[int, str]) -> None:
    """Drives the outage phase: load, probe and ISR watch side by side, the fault in the middle."""
    plan = this.scenario.outage
    names = [arm.topic for arm in this.scenario.outage_arms]
    survivors = this.target.survivors(plan.rack)
    watch = watched(survivors, names, racks, this.history, interval_s=plan.isr_poll_s)
    with watch, this.driven("outage", pacing.outage_slots(this.scenario)) as done, probing(this, names):
        start_ns = this.starts_ns["outage"]
        fault_ns = start_ns + round(plan.before_s * NS)
        pause_until(fault_ns, done, "the time of the fault")
        try:
            with this.target.outage(plan.rack, this.history):
                pause_until(fault_ns + round(plan.during_s * NS), done, "the time of the heal")
        except RackgateError as error:
            # The load goes on and the phase is reported, as unknown.
            this.notes.append(f"outage of rack {plan.rack}: {error}")
        wait_for(lambda: done.done() or None, what="the end of the load", timeout_s=plan.total_s + WRITE_S)


@contextmanager
def probing(this: Run, names: list[str]) -> Iterator[None]:
    """Runs the probe that never retries beside the block; it ends by itself, or is ended."""
    plan = this.scenario.outage
    seconds = (this.starts_ns["outage"] - time.monotonic_ns()) / NS + plan.total_s
    words = [sys.executable, "-m", "pyhooks.workload.produce", "--bootstrap", this.target.bootstrap]
    words += ["--mode", "probe", "--topics", ",".join(names), "--rate", f"{plan.probe_rate_per_s:g}"]
    words += ["--seconds", f"{seconds:.0f}", "--history", str(this.history.path)]
    log = this.target.run_dir / "probe.log"
    with log.open("w", encoding="utf-8") as out:
        child = subprocess.Popen([*DIES_WITH_PARENT, *words], stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
            child.wait(timeout=PROBE_GRACE_S)
        except subprocess.TimeoutExpired:
            this.notes.append(f"the probe did not end within {PROBE_GRACE_S:.0f} s and was ended")
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if child.returncode not in (0, -9):
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        this.notes.append(f"the probe ended with status {child.returncode}: {''.join(last)}")


def raise_failure(done: Future[None]) -> None:
    """Raises what ended the load, if it has ended badly.

    Raises:
        RackgateError: a task failed; its words are in the message, Spark's in the detail.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not done.done():
        return
    try:
        done.result()
    except (PySparkException, Py4JError) as error:
        words = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        raise RackgateError(f"the load failed: {words[0] if words else 'see below'}", detail=str(error)) from error


def pause_until(at_ns: int, done: Future[None], what: str) -> None:
    """Waits until a moment of the schedule; a load that fails meanwhile ends the wait with its error."""

    def reached() -> bool | None:
        raise_failure(done)
        return time.monotonic_ns() >= at_ns or None

    left_s = max(0.0, (at_ns - time.monotonic_ns()) / NS)
    wait_for(reached, what=what, timeout_s=left_s + 10, interval_s=0.02)


def analysed(this: Run) -> dict[str, Any]:
    """The numbers of all phases."""
    raw = analyse.read_raw(this.spark, this.raw)
    return {
        "schema": report.SCHEMA_VERSION,
        "latency": analyse.latency(raw, this.scenario),
        "outage": outage_numbers(this, raw),
        "end_to_end": end_to_end_numbers(this, raw),
        "notes": this.notes,
    }


def outage_numbers(this: Run, raw: DataFrame) -> dict[str, Any]:
    """Availability, decided."""
    events = list(this.history.events())
    numbers = availability.summarise(this.spark, raw, events, this.scenario, this.starts_ns["outage"])
    availability.decide(numbers)
    return numbers


def end_to_end_numbers(this: Run, raw: DataFrame) -> dict[str, Any]:
    """Acked records against the topics."""
    names = [arm.topic for arm in this.scenario.arms]
    log = endtoend.read_back(this.spark, this.target.bootstrap, names)
    return endtoend.check(raw, log, this.run_id)


def manifest(this: Run, racks: dict[int, str], *, master: str, command: str, started: datetime) -> dict[str, Any]:
    """By what, on what and how the numbers came to be."""
    target = dict(this.target.manifest())
    java = run(["java", "--version"], what="ask Java for its version").splitlines()[0]
    return {
        "run_id": this.run_id,
        "started": started.isoformat(timespec="seconds"),
        "command": command,
        "master": master,
        "machine": machine.describe(),
        "versions": machine.versions(java, target.get("distribution", {})),
        "racks": {str(broker): rack for broker, rack in sorted(racks.items())},
        "round_trips": this.round_trips,
        "scenario": this.scenario.as_json(),
        **target,
    }


def write(result: dict[str, Any], out: Path) -> None:
    """Writes ``results.json``; a number that is not finite is an error here and not in the reader's browser."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, allow_nan=False)
    (out / "results.json").write_text(text + "\n", encoding="utf-8")


def last_lines(result: dict[str, Any], out: Path, print_line: Callable[[str], None]) -> None:
    """What was made, where, and the verdict in words."""
    for line in verdict.lines(result["verdicts"]):
        print_line(line)
    for note in result["notes"]:
        print_line(f"note: {note}")
    print_line(f"report:  {out / 'index.html'}")
    print_line(f"numbers: {out / 'results.json'}  (took {clock(result['manifest']['took_s']['whole'])})")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--scenario", default="quick")
    parser.add_argument("--scenarios", type=Path, default=scenarios.SHIPPED, help="file with the plans")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--command", default="python -m bench.run")
    words = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    # py4j logs the traceback of every call that an interrupt ends; what matters is raised as well.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        scenario = scenarios.load(words.scenario, words.scenarios)
        result = execute(attach(), scenario, master=words.master, out=words.out, command=words.command, console=console)
    except RackgateError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"error: {error}", markup=False)
        if error.detail:
            console.print(error.detail, markup=False)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        console.print("interrupted: no report was made")
        # Not sys.exit(), which would wait for the threads that wait for Spark. Children die with us.
        os._exit(130)
    last_lines(result, words.out, lambda line: console.print(line, markup=False))


if __name__ == "__main__":
    main()
