"""The simulation against the exact model, closed forms and itself, also on Spark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from model_plans import made
from pyhooks.core.spark import pack
from pyhooks.placement.exact_model import Evaluation, evaluate
from pyhooks.placement.failure_rates import YEAR_S, FailureProbabilities
from pyhooks.placement.replica_placement import parse_placement
from pyhooks.simulation.fault_history import draw_history
from pyhooks.simulation.partition_machine import ALONE, LOWERED, STATUSES, Cause, Status
from pyhooks.simulation.replication import ReplicationResult, SimulationPlan, replica_layout, run_replications
from pyhooks.simulation.spark_replications import simulate
from spark_cluster import standalone


def of(found: Sequence[ReplicationResult], setting: int, column: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([one.shares[column] for one in found if one.setting == setting])


def agrees(values: np.ndarray[Any, np.dtype[np.float64]], expected: float, what: str) -> None:
    """Check that the mean is within four standard errors of the expected value, and that these are small enough."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    assert abs(float(values.mean()) - expected) <= 4 * error + 1e-12, (
        f"{what}: {values.mean()} +- {error}, not {expected}"
    )
    assert error <= 0.2 * expected + 1e-6, f"{what}: too few to tell: {values.mean()} +- {error}"


# The exact model and closed forms.

# Brokers fail about 60 times a year for 20 h and racks 12 times for 30 h, so that rare events occur.
BROKER, RACK = (60.0, 20.0), (12.0, 30.0)


def share_away(often: float, hours: float) -> float:
    """Share of time with an outage: by M/G/∞, none is present in steady state with probability exp(-rate · mean)."""
    return -math.expm1(-often * hours * 3600 / YEAR_S)


@pytest.mark.parametrize("where", ["a,a,b", "a,b,c"])
def test_shares_of_time_are_those_of_the_exact_model(where: str) -> None:
    settings = ["2,1", "2,2", "3,1", "1,2"]
    given = {"broker_failure": f"{BROKER[0]}x{BROKER[1]}h", "rack_outage": f"{RACK[0]}x{RACK[1]}h"}
    one = made("a:2,b:2,c:2", settings, placement_text=where, partitions=1, fault_options=given, years=4.0)
    found = run_replications(one, range(60))
    chances = FailureProbabilities(share_away(*BROKER), share_away(*RACK), 0.0, 0.0)
    for number, text in enumerate(settings):
        m, r = (int(part) for part in text.split(","))
        exact: Evaluation = evaluate(parse_placement(where, "it"), min_replicas=m, min_racks=r, probabilities=chances)
        agrees(of(found, number, Status.UNAVAILABLE), exact.rejected.no_leader, f"{where} {text} nobody")
        agrees(of(found, number, Status.REPLICAS), exact.rejected.replicas, f"{where} {text} replicas")
        if exact.rejected.racks:
            agrees(of(found, number, Status.RACKS), exact.rejected.racks, f"{where} {text} racks")
        if exact.one_rack_alone:
            # the exact model lacks the wait for a holder of all records, during which no write is acknowledged
            wait = of(found, number, Status.NO_CANDIDATE)
            alone = of(found, number, ALONE)
            assert wait.mean() <= 0.02
            agrees(alone, exact.one_rack_alone, f"{where} {text} alone")
        total = sum(of(found, number, column) for column in range(STATUSES))
        assert np.asarray(total) == pytest.approx(1.0)


@pytest.mark.parametrize("window_h", [24.0, 240.0])
def test_losses_of_two_copies_are_those_of_the_closed_form(window_h: float) -> None:
    """Loss of both disks of replicas in racks a, b: the second fails while the first is being copied.

    An alternating renewal process: both disks are intact for a mean of 1 / 2d; then follows the copy window, which the
    second loss cuts short.
    """
    d = 4.0
    given = {"disk_loss": f"{d}x1ms", "copy": f"{window_h}h"}
    one = made("a:1,b:1", ["1,1", "2,1"], rf=2, partitions=1, fault_options=given, years=10.0)
    found = run_replications(one, range(60))
    window = window_h / (YEAR_S / 3600)
    second = -math.expm1(-d * window)
    expected = second / (1 / (2 * d) + second / d)
    lost = np.array([one.lost.sum() / 10.0 for one in found if one.setting == 0])
    # after a loss of both, the second disk is copied from the first to return, which is another window
    agrees(lost, expected, "both")
    assert sum(one.lost[Cause.BROKERS] for one in found) == sum(one.lost.sum() for one in found)
    # With M=2 no write is acknowledged in the window, and the replaced first disk may not lead: the losses are equal.
    both = [sum(one.lost.sum() for one in found if one.setting == setting) for setting in (0, 1)]
    assert both[1] == pytest.approx(both[0], rel=0.3)


def test_one_copy_is_lost_with_its_disk() -> None:
    one = made("a:3", ["1,1"], rf=1, partitions=30, fault_options={"disk_loss": "2x1h"}, years=1.0)
    found = run_replications(one, range(100))
    agrees(np.array([each.lost.sum() for each in found]), 30 * 2.0, "one copy")
    agrees(np.array([float(each.events) for each in found]), 3 * 2.0, "events")


def test_destroyed_rack_loses_records_that_only_it_has_and_r_prevents_it() -> None:
    """While rack b is unavailable, M=2, R=1 lets rack a acknowledge records that are lost with it; R=2 does not."""
    given = {"rack_outage": "20x40h", "rack_loss": "3x1h", "copy": "1h"}
    one = made(
        "a:2,b:1",
        ["2,1", "2,2", "2,2,elr=replicas"],
        placement_text="a,a,b",
        partitions=1,
        fault_options=given,
        years=10.0,
    )
    found = run_replications(one, range(40))
    lost = np.array([sum(each.lost for each in found if each.setting == setting) for setting in range(3)])
    assert lost[0].sum() > 100
    # both racks are sometimes destroyed at the same time, which no setting survives
    assert lost[1, Cause.ONE_RACK] == 0 < lost[0, Cause.ONE_RACK]
    assert lost[1].sum() < lost[0].sum() / 5
    # stock ELR forgets the holder of all records, with or without the gate
    assert lost[2, Cause.FORGOTTEN] + lost[2, Cause.ONE_RACK] > 50


def test_an_operator_lowers_r_after_the_reaction_time() -> None:
    given = {"rack_outage": "6x10h"}
    one = made("a:2,b:1", ["2,2", "2,2,lower=2h"], placement_text="a,a,b", partitions=1, fault_options=given, years=8.0)
    found = run_replications(one, range(25))
    # For an outage of exponential duration T with mean h, E[min(T, r)] = h (1 - exp(-r / h)); the rest is accepted.
    rejected = [of(found, setting, Status.RACKS).mean() for setting in (0, 1)]
    assert rejected[1] / rejected[0] == pytest.approx(-math.expm1(-2 / 10), rel=0.15)
    assert of(found, 0, LOWERED).max() == 0.0
    # R stays lowered until two hours after the recovery
    assert of(found, 1, LOWERED).mean() > rejected[0] - rejected[1]


# Implementation.

BUSY = {"broker_failure": "8x4h", "broker_restart": "6x5m", "lag": "6x10m", "disk_loss": "1x20h",
    "rack_outage": "4x5h", "rack_loss": "1x20h", "power_share": "0.3", "burst_share": "0.4", "session": "9s",
    "catch_up": "0.1", "copy": "4h"}  # fmt: skip
SETTINGS = ("2,1", "2,2", "3,1", "2,2,lower=30m", "2,2,elr=replicas", "1,1,elr=off")


def one_by_one(one: SimulationPlan, number: int) -> list[tuple[np.ndarray[Any, np.dtype[np.float64]], float]]:
    """Simulate each partition as a separate cluster with the same history, so that partitions share no state."""
    where = replica_layout(one)
    found = []
    for replicas in where.replicas.tolist():
        alone = replace(one, placements=(tuple(replicas),), partitions=1)
        found.append([(each.shares, float(each.lost.sum())) for each in run_replications(alone, [number])])
    return [
        (np.mean([each[setting][0] for each in found], axis=0), sum(each[setting][1] for each in found))
        for setting in range(len(one.settings))
    ]


@pytest.mark.parametrize("racks", ["a:3,b:2,c:2", pytest.param("a:2,b:2", marks=pytest.mark.slow)])
def test_partitions_together_equal_single_partitions(racks: str) -> None:
    given = BUSY | {"disk_loss": "4x60h", "rack_loss": "3x20h"}
    one = made(racks, SETTINGS, rf=3, partitions=14, topics=2, fault_options=given, years=1.0)
    # a run in which records are lost
    every = ((number, run_replications(one, [number])) for number in range(100))
    number, together = next((number, found) for number, found in every if sum(each.lost.sum() for each in found))
    for setting, (shares, lost) in enumerate(one_by_one(one, number)):
        assert together[setting].shares == pytest.approx(shares, abs=1e-12)
        assert together[setting].lost.sum() == lost


def test_replication_does_not_depend_on_others() -> None:
    one = made("a:2,b:2,c:1", SETTINGS, partitions=20, fault_options=BUSY)
    alone = [found for number in (3, 0, 2) for found in run_replications(one, [number])]
    together = {(found.replication, found.setting): found for found in run_replications(one, range(4))}
    for found in alone:
        other = together[found.replication, found.setting]
        assert (found.shares == other.shares).all()
        assert (found.lost == other.lost).all()
        assert (found.events, found.tail_s) == (other.events, other.tail_s)


def test_history_does_not_depend_on_settings() -> None:
    one = made("a:2,b:2,c:1", ["2,1", "3,3"], partitions=20, fault_options=BUSY)
    both, first = run_replications(one, [1]), run_replications(replace(one, settings=one.settings[:1]), [1])
    assert (both[0].shares == first[0].shares).all()


def test_nothing_happens_where_nothing_fails() -> None:
    one = made("a:2,b:2", ["2,2", "3,1", "1,3"], partitions=4)
    for found in run_replications(one, [0]):
        taken = found.setting < 2
        assert found.shares[Status.ACCEPTED] == float(taken)
        # there are only two racks, so R=3 cannot be met
        assert found.shares[Status.RACKS] == float(not taken)
        assert found.shares[ALONE] == 0.0


def test_overlapping_outages_are_one_interval_with_all_events() -> None:
    one = made("a:2,b:2,c:2", ["2,1"], fault_options=BUSY | {"broker_failure": "200x60h"})
    history = draw_history(one.racks, one.faults, one.warm_s, one.counted_s, np.random.default_rng(1))
    for broker in range(sum(one.racks)):
        own = np.flatnonzero(history.broker == broker)
        slow = history.event_code[history.first_event[own]] == 7
        for kind in (slow, ~slow):
            begins, ends = history.from_s[own[kind]], history.to_s[own[kind]]
            order = np.argsort(begins)
            assert (begins[order][1:] > ends[order][:-1]).all()
    for number in range(len(history.broker)):
        events = slice(history.first_event[number], history.first_event[number + 1])
        assert history.event_s[events][0] == history.from_s[number]
        assert history.event_s[events][-1] == history.to_s[number]
        assert history.event_code[events][-1] in (6, 8)


# On Spark.

CONSOLE = Console(stderr=True)


def test_the_code_for_executors_has_what_they_import(tmp_path: Any) -> None:
    import zipfile

    with zipfile.ZipFile(pack(tmp_path, ["pyhooks"])) as packed:
        names = set(packed.namelist())
    assert {"pyhooks/__init__.py", "pyhooks/kafka/gate.py", "pyhooks/simulation/partition_machine.py"} <= names
    assert not any(name.endswith((".jar", ".toml")) for name in names)


def same(found: Sequence[ReplicationResult], expected: Sequence[ReplicationResult]) -> None:
    """Check that results are bit-identical, in any order."""
    ordered = sorted(found, key=lambda each: (each.replication, each.setting))
    assert len(ordered) == len(expected)
    for each, other in zip(ordered, expected, strict=True):
        assert (each.replication, each.setting, each.events) == (other.replication, other.setting, other.events)
        assert (each.shares == other.shares).all()
        assert (each.lost == other.lost).all()
        assert (each.tail_s, each.with_tail) == (other.tail_s, other.with_tail)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_spark_gives_the_same_results() -> None:
    one = made("a:2,b:2,c:1", ["2,1", "2,2"], partitions=10, fault_options=BUSY)
    results, cpu_s = simulate(one, 7, master="local[2]", console=CONSOLE, tasks=3)
    same(results, run_replications(one, range(7)))
    assert cpu_s > 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_results_do_not_depend_on_tasks_and_executors() -> None:
    """Also on a master with two workers, which get the code only from the driver."""
    one = made("a:2,b:2,c:1", ["2,1", "2,2"], partitions=10, fault_options=BUSY)
    expected = run_replications(one, range(7))
    for slices in (1, 7):
        same(simulate(one, 7, master="local[2]", console=CONSOLE, tasks=slices)[0], expected)
    with standalone() as master:
        same(simulate(one, 7, master=master, console=CONSOLE)[0], expected)
