"""Benchmark run on an existing cluster, with the executors of a Spark cluster as load hosts.

The cluster is used only as clients use it: topics are created, driven, read back and deleted, whatever the outcome of
the run. No fault is injected, so only those cells of a plan are measured whose state the cluster is already in.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from rich.console import Console

from bench.load import executors
from bench.load.arm_topics import BenchTopics
from bench.machine import UsageSampler
from bench.plan import scenarios
from bench.plan.lab_topology import AS_IT_IS
from bench.plan.scenario import BenchArm, BenchCell, Scenario
from bench.progress import RunSteps, clock_text
from bench.run import cell_measurement, client_security, lab_run, run_result
from bench.run.cluster_under_test import TOPOLOGY, ClusterTarget
from bench.run.measurement_session import MeasurementSession
from bench.run.run_store import RunStore, begin_run, locked_run_folder
from bench.run.topic_cleanup import TopicCleaner, deleting_topics
from bench.run_conditions import user_key
from bench.spark_session import spark_session
from pyhooks.core import run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.spark import effective_settings, in_process, near
from pyhooks.core.terminal import plain
from pyhooks.history.event_log import History
from pyhooks.kafka import topics
from pyhooks.kafka.gate import NO_RACK
from pyhooks.patchset.artifacts import sha256
from pyhooks.patchset.distribution import Distribution

if TYPE_CHECKING:
    from pyhooks.placement.cluster_query import ClusterObservation

QUERY_S = 15.0
# file with the topics that a run could not delete
LEFT = "topics-left.json"
# Master of the analysis if the observations are stored on this host alone.
ANALYSIS_MASTER = "local[2]"
REDACTION = {
    "spark.redaction.regex": client_security.REDACTED,
    "spark.sql.redaction.options.regex": client_security.REDACTED,
}


@dataclass(frozen=True)
class ExistingClusterRequest:
    """Command-line arguments of a run on an existing cluster; ``command`` is the command line for the manifest.

    ``shared``: whether executors have the folder ``out`` at the same path, which those of ``local[N]`` have anyway.
    """

    bootstrap: str
    command_config: Path | None
    scenario: str
    scenario_file: Path
    master: str
    out: Path
    fresh: bool
    replicas: tuple[int, ...]
    tasks: int | None
    environment: Path | None
    conf: Mapping[str, str]
    command: str
    rate_per_s: float | None = None
    partitions: int | None = None
    shared: bool = False

    @property
    def shares_files(self) -> bool:
        """Whether executors write observations to this host's files, so that they need not be sent."""
        return self.shared or in_process(self.master)


def measure(request: ExistingClusterRequest, console: Console) -> dict[str, Any]:
    """Measure what is missing, and write results and report.

    Raises:
        RackgateError: the cluster or the executors do not meet the plan's requirements, which is checked before
            anything is created; or the run failed later. The run's topics are deleted in any case.
    """
    from pyhooks.placement import cluster_query

    # before the cluster is queried, which may take a while
    run_folder.check(request.out.resolve(), run_folder.BENCH, keep=(run_folder.LOCK,))
    client_security.check_conf(request.conf)
    plan = scenarios.load(
        request.scenario,
        request.scenario_file,
        tasks=request.tasks,
        rate_per_s=request.rate_per_s,
        partitions=request.partitions,
    )
    if request.command_config is not None and not in_process(request.master):
        client_security.check_spark(request.master, effective_settings(request.conf))
    # py4j logs a traceback for each call that an interrupt ends; relevant errors are raised as well
    logging.getLogger().addHandler(logging.NullHandler())
    cluster_query.disable_client_log()
    security = client_security.read_security(request.command_config)
    observed = cluster_query.query_brokers(request.bootstrap, security.java, timeout_s=QUERY_S)
    target = ClusterTarget(request.bootstrap, security, observed)
    scenario, left_out = fit_plan(plan, observed, request)
    for line in left_out:
        console.print(plain(line))
    with locked_run_folder(request.out) as folder:
        return _measure_in_folder(request, target, scenario, folder, console)


def _measure_in_folder(
    request: ExistingClusterRequest, target: ClusterTarget, scenario: Scenario, folder: Path, console: Console
) -> dict[str, Any]:
    """Measure in a folder that is locked by this run."""
    build = f"cluster {target.observed.cluster.cluster_id}, load from {request.master}"
    store, continues = begin_run(
        folder, scenario, started=datetime.now(UTC), build=build, given=_condition_values(request), fresh=request.fresh
    )
    progress = store.progress(scenario, continues=continues)
    places = ", ".join(f"{broker} ({target.racks[broker]})" for broker in scenario.cells[0].replicas)
    console.print(plain(f"{scenario.name}: {progress}; replicas on brokers {places}"))
    planned = lab_run.planned(store, scenario, scenario.places[0]) | lab_run.finish_planned(scenario)
    console.print(f"about {clock_text(sum(planned.values()))} to the report", markup=False)
    steps = RunSteps(planned, console)
    with steps.shown():
        if store.places(scenario):
            config = target.security.librdkafka
            with deleting_topics(request.bootstrap, config, request.out.resolve() / LEFT) as cleaner:
                _measure(request, target, scenario, store, steps, cleaner, console)
                cleaner.report_no_clients()
        work = folder / "spark"
        # on the executors if they share the observations, else on this host
        analysis = _spark(request, work) if request.shares_files else spark_session(work, master=ANALYSIS_MASTER)
        with analysis as spark:
            arguments = lab_run.LabRunArguments(
                master=request.master, command=request.command, out=request.out.resolve()
            )
            return lab_run.finish(spark, scenario, store, steps, arguments)


def _condition_values(request: ExistingClusterRequest) -> dict[str, Any]:
    """Return the command-line values that must be equal for a run to continue; possible secrets as keyed hashes."""
    given: dict[str, Any] = {"bootstrap": request.bootstrap, "command_config": None, "conf": {}, "environment": None}
    if request.command_config or request.conf or request.environment:
        hide = user_key(request.out).hide
        if request.command_config is not None:
            given["command_config"] = hide("command_config", request.command_config.read_bytes())
        if request.environment is not None:
            # the hash of a hash, because the file may be larger than memory
            given["environment"] = hide("environment", sha256(request.environment).encode())
        given["conf"] = {name: hide(f"conf.{name}", os.fsencode(value)) for name, value in request.conf.items()}
    return given


def _measure(
    request: ExistingClusterRequest,
    target: ClusterTarget,
    scenario: Scenario,
    store: RunStore,
    steps: RunSteps,
    cleaner: TopicCleaner,
    console: Console,
) -> None:
    number = store.next_session()
    place, folder = scenario.places[0], store.lab(number)
    work = folder / "spark"
    with ExitStack() as stack:
        with steps.step(lab_run.START):
            spark = stack.enter_context(_spark(request, work))
            java = any(cell.setting.client == "java" for cell in scenario.cells)
            executors.send(spark, work, request.environment, java=java)
            slots = executors.await_slots(spark, scenario.tasks)
            target.hosts, known_offsets_ns = executors.survey(
                spark, slots, target.addresses, java=java, shared=store.folder if request.shares_files else None
            )
            for host in target.hosts:
                console.print(plain(f"load host {host.name}: {host.cpus} CPUs, clock {host.clock.text}"))
            session = MeasurementSession(
                target=target,
                scenario=scenario,
                store=store,
                number=number,
                spark=spark,
                topics=BenchTopics(topics.admin(request.bootstrap, target.security.librdkafka), cleaner.announce),
                history=History(folder / "history.jsonl"),
                steps=steps,
                # never started, because this host carries no load
                sampler=UsageSampler(),
                prefix=f"rackgate-bench-{store.run_id}-{token_hex(3)}-",
                known_offsets_ns=known_offsets_ns,
                carried=not request.shares_files,
            )
            session.round_trips["idle"] = executors.round_trips(target.hosts) + target.round_trips()
        for cell in store.pending(scenario, place):
            with steps.step(lab_run.step_of(scenario, cell.id)):
                cell_measurement.measure(session, cell)
            run_result.add_session(session, place, target.racks)


@contextmanager
def _spark(request: ExistingClusterRequest, work: Path) -> Iterator[SparkSession]:
    """Open a session on the cluster's master; its executors end with the block, also after Ctrl-C."""
    python = executors.python_of(request.environment, near=near(request.master))
    conf = {**request.conf, **REDACTION}
    jars = Distribution.load().spark_jars
    with spark_session(work, master=request.master, jars=jars, python=python, conf=conf) as spark:
        try:
            yield spark
        except KeyboardInterrupt:
            # Kill the driver at once: Spark then ends the executors, whose clients could recreate deleted topics.
            context: Any = spark.sparkContext
            # otherwise the accumulator server's thread prints an error about the lost connection
            context._accumulatorServer.handle_error = lambda *_: None
            context._gateway.proc.kill()
            raise


def fit_plan(
    plan: Scenario, observed: ClusterObservation, request: ExistingClusterRequest
) -> tuple[Scenario, list[str]]:
    """Adapt a plan to a cluster: use its brokers as replicas, and keep only the cells whose state it is in.

    Returns:
        The adapted plan, and one line for each part that is left out.

    Raises:
        RackgateError: the cluster can't have the plan's topics, or nothing of the plan remains.
    """
    racks = {
        broker.broker_id: broker.rack
        for broker in observed.cluster.brokers.values()
        if not broker.fenced and broker.rack != NO_RACK
    }
    name = f"cluster {request.bootstrap}"
    replicas = request.replicas or spread_replicas(racks, min(len(plan.role("baseline").replicas), len(racks)))
    all_arms = (*plan.latency_arms, *(arm for cell in plan.cells for arm in cell.scenario.latency_arms))
    _check_placement(name, all_arms, replicas, racks, chosen=bool(request.replicas))
    _check_gate(name, all_arms, replicas, observed)

    def placed(arms: Sequence[BenchArm]) -> tuple[BenchArm, ...]:
        return tuple(dataclasses.replace(arm, replicas=replicas, outage=False) for arm in arms)

    adapted = dataclasses.replace(
        plan, topology=TOPOLOGY, outage=None, arms=placed(plan.latency_arms), cells=(), target_min=None
    )
    chosen: list[BenchCell] = []
    left_out = [f"{plan.name}: the outage is left out: no faults are injected into {name}"] if plan.outage else []
    for cell in plan.cells:
        setting = dataclasses.replace(cell.setting, link=AS_IT_IS)
        arms = placed(cell.scenario.latency_arms)
        adapted_cell = dataclasses.replace(
            cell,
            label=setting.text,
            scenario=dataclasses.replace(adapted, latency=cell.scenario.latency, arms=arms),
            setting=setting,
            topology=TOPOLOGY,
            replicas=replicas,
            found_racks=racks,
            instruments=(),
        )
        if (reason := _reason_left_out(adapted_cell, chosen)) is not None:
            left_out.append(f"cell {cell.id} is left out: {reason}")
        else:
            chosen.append(adapted_cell)
            if cell.instruments:
                left_out.append(f"cell {cell.id}: {', '.join(cell.instruments)} are left out: they are for labs")
    if not chosen:
        raise RackgateError(f"{name}: the cluster is in the state of no cell of scenario {plan.name}")
    return dataclasses.replace(adapted, cells=tuple(chosen)), left_out


def _reason_left_out(cell: BenchCell, chosen: Sequence[BenchCell]) -> str | None:
    """Return why a cell can't be measured; None if it can."""
    try:
        reached = cell.reached
    except ValueError as error:
        return str(error)
    if reached.dead or reached.slow:
        return f"{cell.state}: no faults are injected into an existing cluster"
    same = [other.id for other in chosen if other.setting == cell.setting]
    return f"the same as {same[0]}, because links are not emulated" if same else None


def spread_replicas(racks: Mapping[int, str], number: int) -> tuple[int, ...]:
    """Choose brokers from all racks in turn, those with the lowest ids first."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(racks.items()):
        by_rack.setdefault(rack, []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return tuple(broker for turn in turns for broker in turn if broker is not None)[:number]


def _check_placement(
    name: str, arms: Sequence[BenchArm], replicas: Sequence[int], racks: Mapping[int, str], *, chosen: bool
) -> None:
    if unknown := [broker for broker in replicas if broker not in racks]:
        raise RackgateError(f"--replicas {unknown[0]}: {name} has no such live broker with a rack")
    if len(set(replicas)) != len(replicas):
        raise RackgateError(f"--replicas {','.join(map(str, replicas))}: duplicate broker")
    most = max(arms, key=lambda arm: arm.min_insync_replicas)
    advice = "name more with --replicas" if chosen else "brokers must be alive and have broker.rack"
    if len(replicas) < most.min_insync_replicas:
        raise RackgateError(
            f"{name}: {len(replicas)} brokers with a rack are too few for arm {most.id}, {most.label}, which needs"
            f" {most.min_insync_replicas}; {advice}"
        )
    widest = max(arms, key=lambda arm: arm.min_insync_racks)
    spanned = sorted({racks[broker] for broker in replicas})
    if len(spanned) < widest.min_insync_racks:
        raise RackgateError(
            f"{name}: {len(spanned)} racks ({', '.join(spanned)}) are too few for arm {widest.id}, {widest.label},"
            f" which needs {widest.min_insync_racks}; {advice}"
        )


def _check_gate(name: str, arms: Sequence[BenchArm], replicas: Sequence[int], observed: ClusterObservation) -> None:
    """Check that the cluster would enforce the settings of the arms."""
    with_racks = sorted({arm.id for arm in arms if arm.min_insync_racks > 1})
    states = {broker: observed.enforcement.describe(observed.cluster.brokers[broker]) for broker in replicas}
    lacking = [f"broker {broker}: {state}" for broker, state in states.items() if state != "yes"]
    if with_racks and lacking:
        raise RackgateError(
            f"{name} can't have arm {', '.join(with_racks)} (min.insync.racks), because not all brokers enforce it"
            f" ({'; '.join(lacking)}); see README.md, 'On your own Kafka'"
        )
