"""Accuracy of the pacer's schedule on one core: a real client against librdkafka's mock broker."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer

from bench import machine
from bench.load.pacer import ACKED, ArmPacer, serving_reports
from bench.load.schedule import steady_slot
from pyhooks.core import resource_usage, targets
from pyhooks.core.errors import RackgateError
from pyhooks.core.targets import Target
from pyhooks.workload.pacing import NS

RATE_PER_S = 20_000.0
SECONDS = 10.0
RECORD_BYTES = 100
LATE_MS = 1.0
# Share of the rate that must be held: the last record may be late by 0.05 s in 10 s.
HELD_SHARE = 0.995
# Sampling time of all cores, to find the idlest; time limits for the client's connection and for its last reports.
SAMPLE_S, READY_S, FLUSH_S = 0.5, 10.0, 10.0
TOPIC = "pace"


def idlest_core() -> int:
    """Return the core with the lowest use during a short sample, of those that this process may use."""
    before = {core: resource_usage.busy_s([core]) for core in sorted(os.sched_getaffinity(0))}
    # the length of a measurement, not a wait for an event
    time.sleep(SAMPLE_S)
    return min(before, key=lambda core: resource_usage.busy_s([core]) - before[core])


@contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """Pin this thread, and those that it starts, to one core while the block runs."""
    allowed = os.sched_getaffinity(0)
    if core not in allowed:
        raise RackgateError(f"--core {core}: this process may use {', '.join(map(str, sorted(allowed)))}")
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def measure(core: int, *, rate_per_s: float, seconds: float) -> dict[str, Any]:
    """Drive the pacer as a load does, with librdkafka and its mock broker on the same core.

    Returns lateness of the calls of produce() after their intended times in ms, and the CPUs used by the pacer and
    others.
    """
    with pinned_to(core):
        from confluent_kafka import KafkaException, Producer

        producer = Producer(
            {
                "test.mock.num.brokers": 1,
                "bootstrap.servers": "mock",
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "queue.buffering.max.messages": 200_000,
                "log_level": 2,
            }
        )
        try:
            # creates the topic, so that the client does not connect during the schedule, which would be measured
            producer.list_topics(TOPIC, timeout=READY_S)
        except KafkaException as error:
            raise RackgateError(f"librdkafka's mock broker: {error.args[0].str()}") from error
        slot = steady_slot("pacer", TOPIC, rate_per_s=rate_per_s, seconds=seconds)
        start_ns = time.monotonic_ns() + round(0.2 * NS)
        pacer = ArmPacer("pace", "pace", (slot,), start_ns, bytes(RECORD_BYTES), 0, 1, FLUSH_S)
        with serving_reports(producer.poll), resource_usage.others([core], time.process_time) as others:
            (observed,) = pacer.drive(producer)
    late_ms = (observed.sent_ns - (start_ns + slot.intended)) / 1e6
    acked = observed.outcome.count(ACKED)
    if acked < slot.count:
        raise RackgateError(
            f"{slot.count - acked:,} of {slot.count:,} records were not acknowledged by the mock broker"
        )
    p50, p99, most = (float(value) for value in np.quantile(late_ms, [0.5, 0.99, 1.0]))
    return {
        "schema": 1,
        "core": core,
        "rate_per_s": rate_per_s,
        "records": slot.count,
        "held_per_s": slot.count / ((int(observed.sent_ns[-1]) - start_ns) / NS),
        "late_ms": {"p50": p50, "p99": p99, "max": most},
        "own_cpus": others.own_s / others.seconds,
        "others_cpus": others.cpus,
        "machine": machine.describe_machine(),
    }


def targets_of(result: Mapping[str, Any]) -> list[Target]:
    """Return the targets of a measurement at any rate: lateness, and the rate itself."""
    rate, others = result["rate_per_s"], result["others_cpus"]
    late, held = f"median lateness at {rate:,.0f} records/s on one core", f"rate held of {rate:,.0f} records/s"
    return [
        Target(late, LATE_MS, "ms", result["late_ms"]["p50"], others),
        Target(held, HELD_SHARE * rate, "records/s", result["held_per_s"], others, at_least=True),
    ]


EPILOG = (
    "Examples: rackgate bench pacer · rackgate bench pacer --core 1 --seconds 30 --json. Exit status: 0 both targets"
    " are met, 1 one is missed, 2 unknown because other processes used the core."
)


def pacer_command(
    rate: Annotated[float, typer.Option(min=1, help="Records per second.")] = RATE_PER_S,
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration in seconds.")] = SECONDS,
    core: Annotated[int | None, typer.Option(help="Number of the core [default: the one with the lowest use].")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Measure the pacer's lateness at 20,000 records/s on one otherwise idle core; needs no cluster.

    Targets: a median lateness of at most 1 ms, and 99.5 % of the rate from the first record to the last. The client is
    librdkafka with its mock broker on the same core. The use of the core by other processes is measured, too.
    """
    chosen = idlest_core() if core is None else core
    if not as_json:
        typer.echo(f"{rate:,.0f} records/s on core {chosen} for {seconds:g} s")
    result = measure(chosen, rate_per_s=rate, seconds=seconds)
    judged = targets_of(result)
    if as_json:
        typer.echo(json.dumps(result | {"targets": [target.as_json() for target in judged]}, indent=1))
    else:
        late = result["late_ms"]
        typer.echo(
            f"late by {late['p50']:.3f} ms at p50, {late['p99']:.3g} at p99, {late['max']:.3g} at most;"
            f" {result['held_per_s']:,.0f} records/s"
        )
        typer.echo(f"CPUs of this core in use: {result['own_cpus']:.2f} by it, {result['others_cpus']:.2f} by others")
        for target in judged:
            typer.echo(target.text)
    raise typer.Exit(targets.status(judged))
