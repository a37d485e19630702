"""Rare losses: what is drawn more often than it happens and weighs less comes to the same, bursts too."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from model_plans import made
from pyhooks.cli import app
from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation import failures as fl
from pyhooks.simulation.bursts import Law
from pyhooks.simulation.cli import rarely
from pyhooks.simulation.outage_history import KINDS, Biased, draw
from pyhooks.simulation.rare_losses import effective, in_racks, weights
from pyhooks.simulation.replication import Plan, layout, play
from pyhooks.simulation.summary import LEAST

# as by default, but for how often brokers fail
BURSTS = {
    option.option[2:]: option.value
    for option in (fl.BURST_SHARE, fl.BURST_SIZE, fl.BURST_ONE_RACK, fl.BURST_SPREAD, fl.POWER, fl.SESSION, fl.CATCH_UP)
}


@pytest.mark.parametrize("kind", [*KINDS, "burst"])
def test_weights_are_one_on_average(kind: str) -> None:
    """And what is counted by them comes as often as it does without."""
    given = BURSTS | {"broker_failure": "30x1h", "disk_loss": "10x1h", "rack_outage": "10x1h", "rack_loss": "10x1h"}
    one = made("a:3,b:2,c:1", ["1,1"], partitions=4, given=given, years=0.02)
    cluster, placed = layout(one)
    biased = Biased(**{kind: 3.0})
    at_s = one.counts_s * 0.7
    found, met = [], []
    for number in range(1500):
        history = draw(cluster, one.faults, one.stretch, np.random.default_rng(number), biased)
        found.append(weights(one.faults, one.stretch, biased, history, cluster, placed.replicas, at_s))
        drawn = [burst.brokers for burst in history.bursts if burst.at_s <= at_s]
        met.append(sum(np.isin(placed.replicas, each).any(axis=1).astype(float) for each in drawn) + np.zeros(4))
    weighed = np.array(found)
    assert (weighed.std(axis=0) > 0.1).all()
    error = weighed.std(axis=0) / math.sqrt(len(weighed))
    assert (np.abs(weighed.mean(axis=0) - 1) <= 4 * error).all()
    law = Law.of(one.faults, cluster.sizes)
    expected = law.per_s * law.meets(in_racks(cluster, placed.replicas)) * (at_s + one.stretch.warm_s)
    counted = weighed * np.array(met)
    assert (np.abs(counted.mean(axis=0) - expected) <= 4 * counted.std(axis=0) / math.sqrt(len(counted))).all()


def test_bursts_drawn_more_often_lose_as_often() -> None:
    """Nearly all losses come from them: drawn as they happen, so short replications would not see any."""
    one = made("a:1,b:1,c:1", ["1,1", "2,1"], partitions=1, given=BURSTS | {"broker_failure": "6x1h"})
    rare = rarely(one)
    assert rare.biased is not None
    assert rare.biased.burst > 50
    both_agree(one, rare, plain=1000, weighed=8000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_by_default_plain_and_rare_come_to_the_same() -> None:
    """A cluster whose losses, nearly all from bursts, plain simulation sees in some thousand years."""
    found = []
    for more in (["--years", "3000"], ["--years", "400", "--rare"]):
        words = [
            "--racks",
            "a:4,b:4,c:4",
            "--partitions",
            "2000",
            "--setting",
            "2,1",
            "--master",
            "none",
            "--json",
            *more,
        ]
        done = CliRunner().invoke(app, ["model", "simulate", *words], catch_exceptions=False)
        found.append(json.loads(done.stdout)["settings"][0]["lost"])
    plain, rare = found
    assert plain["number"] >= LEAST <= rare["number"]
    assert plain["low"] <= rare["high"]
    assert rare["low"] <= plain["high"]


def test_the_effective_sample_size_is_how_many_weigh_the_same() -> None:
    assert effective(np.zeros(5)) == 0.0
    assert effective(np.array([0.0, 2.0, 2.0, 2.0])) == pytest.approx(3.0)
    assert effective(np.array([1e-200, 1e-200, 0.0])) == pytest.approx(2.0)
    assert effective(np.array([100.0, 1.0, 1.0])) == pytest.approx(1.04, rel=0.01)


@pytest.mark.slow
def test_drawn_more_often_and_weighing_less_it_is_the_same() -> None:
    """Where plain simulation sees losses, both agree."""
    given = {"disk_loss": "1x20h", "rack_loss": "0.2x20h", "copy": "4h", "rack_outage": "2x5h", "session": "9s"}
    one = made("a:2,b:2", ["1,1", "2,1"], rf=2, partitions=12, given=given)
    rare = rarely(one)
    assert rare.biased is not None
    assert rare.biased.rack_disks > rare.biased.disk > 1
    both_agree(one, rare, plain=1000, weighed=3000)


def both_agree(one: Plan, rare: Plan, *, plain: int, weighed: int) -> None:
    """Plain replications of a year, and weighed ones, in batches as large as suits."""
    of_plain = [found for first in range(0, plain, 50) for found in play(one, range(first, min(plain, first + 50)))]
    of_rare = [
        found for first in range(0, weighed, 400) for found in play(rare, range(first, min(weighed, first + 400)))
    ]
    years = [one.counts_s / YEAR_S, rare.counts_s / YEAR_S]
    for setting in range(len(one.settings)):
        seen, heavy = (
            np.array([each.lost.sum() / length for each in found if each.setting == setting])
            for found, length in zip((of_plain, of_rare), years, strict=True)
        )
        error = math.hypot(seen.std() / math.sqrt(len(seen)), heavy.std() / math.sqrt(len(heavy)))
        assert abs(seen.mean() - heavy.mean()) <= 4 * error, (setting, seen.mean(), heavy.mean(), error)
        assert error <= 0.5 * seen.mean()


def test_two_disks_drawn_more_often_are_lost_as_often() -> None:
    """As above, where less work is enough."""
    one = made("a:1,b:1", ["1,1"], rf=2, partitions=1, given={"disk_loss": "2x1ms", "copy": "60h"}, years=10.0)
    rare = rarely(one)
    assert rare.biased is not None
    assert rare.biased.disk > 1
    both_agree(one, rare, plain=30, weighed=800)


def told(*words: str) -> str:
    done = CliRunner().invoke(app, ["model", "simulate", "--master", "none", *words], catch_exceptions=False)
    return done.stdout


def test_of_few_that_weigh_much_no_interval_is_told() -> None:
    words = ["--racks", "a:1,b:1,c:1", "--partitions", "3", "--years", "5", "--rare", "--setting", "1,1"]
    lost = json.loads(told(*words, "--json"))["settings"][0]["lost"]
    assert 0 < lost["number"] < LEAST
    assert (lost["low"], lost["high"]) == (None, None)
    said = told(*words)
    assert f"(effective sample size {lost['number']:.3g})" in said
    assert "too few for an interval" in said
    assert "below an effective sample size of 20 there is no interval" in said


def test_where_none_was_drawn_nothing_is_told() -> None:
    said = told("--racks", "a:1,b:1,c:1", "--partitions", "3", "--years", "0.001", "--rare")
    assert "0 (none drawn, so nothing is told)" in said
