"""Rare losses: what leads to them is drawn more often than it happens, and each loss weighs less in return.

Importance sampling by failure biasing. Failures of brokers, losses of disks, outages of racks, racks that are destroyed
and bursts arrive independently of each other (Poisson), so each of these kinds can be drawn at ``b`` times its rate. A
loss in a partition at a moment t depends on what befell its own brokers and racks until t and on nothing else; so it
weighs the likelihood ratio of that alone,

    prod over those kinds and brokers, or racks:  b^-n · exp((b - 1) · rate · (t + warm-up)),

with n arrivals until t. Bursts that take at least one of its brokers arrive as Poisson's, too, with a part of the rate
of all bursts (``bursts.Law.meets``), and count as one kind of thing that a partition has once. All that other brokers
went through is left out of the weight, so that it does not grow with the cluster. The mean over replications is that of
plain simulation for any b; how far it scatters depends on b. Since the weight grows with the length of a replication,
replications are short: a few times what it takes until a lost copy is made again. Then each kind is drawn so often that
it befalls a partition ``AIM`` times in a replication on average ("balanced": the rarest of them as often as the
others), unless it does by itself.

A kind that leads to losses and was drawn as it happens would hardly be seen in replications so short: then the mean is
right, and what is seen is nearly always far below it. Only clean restarts and slow spells are: they happen often, and
lose nothing by themselves. How far a mean is to be trusted is told by its effective sample size (``effective``): of
values x of replications (sum of x)^2 / (sum of x^2), as many as would scatter as much if they weighed the same.
"""

from __future__ import annotations

import numpy as np

from pyhooks.placement.failure_rates import YEAR_S
from pyhooks.simulation.bursts import Law
from pyhooks.simulation.failures import Faults
from pyhooks.simulation.machine_script import Floats, Ints
from pyhooks.simulation.outage_history import KINDS, Biased, Cluster, History, Stretch

AIM = 0.5


def rates(faults: Faults) -> dict[str, float]:
    """How often each of ``KINDS`` happens to a broker or rack, in a second."""
    single = faults.broker.per_year * (1 - faults.bursts.share)
    a_year = {
        "broker": single,
        "disk": faults.disk.per_year,
        "rack": faults.rack.per_year,
        "rack_disks": faults.rack_disks.per_year,
    }
    return {kind: rate / YEAR_S for kind, rate in a_year.items()}


def balanced(
    faults: Faults, stretch: Stretch, *, replicas: int, racks: int, bursts_per_s: float, aim: float = AIM
) -> Biased:
    """How many times as often to draw each kind.

    Args:
        faults: what happens.
        stretch: the time of a replication.
        replicas: of a partition.
        racks: that they are in, on average or at most.
        bursts_per_s: how many bursts meet a partition in a second, on average.
        aim: how often each kind shall befall a partition in a replication.
    """
    befall = {kind: rate * (racks if kind.startswith("rack") else replicas) for kind, rate in rates(faults).items()}
    befall["burst"] = bursts_per_s
    expected = {kind: rate * stretch.total_s for kind, rate in befall.items()}
    return Biased(**{kind: max(1.0, aim / often) if often else 1.0 for kind, often in expected.items()})


def weights(
    faults: Faults,
    stretch: Stretch,
    biased: Biased,
    history: History,
    cluster: Cluster,
    replicas: Ints,
    at_s: float,
) -> Floats:
    """What a loss at a moment weighs in some partitions.

    Args:
        faults: how often things happen.
        stretch: the time of the replication.
        biased: how many times as often they were drawn.
        history: with what was drawn, and when.
        cluster: which broker is in which rack.
        replicas: shape (partitions, RF): the brokers of each.
        at_s: the moment.

    Returns:
        One for each partition.
    """
    log = np.zeros(len(replicas))
    for kind in KINDS:
        times = getattr(biased, kind)
        if times == 1.0:
            continue
        before = history.arrivals[kind].of[history.arrivals[kind].at_s <= at_s]
        if kind.startswith("rack"):
            number = np.bincount(before, minlength=cluster.racks)
            mine = in_racks(cluster, replicas) > 0
            happened, things = (mine * number).sum(axis=1), mine.sum(axis=1)
        else:
            happened = np.bincount(before, minlength=cluster.brokers)[replicas].sum(axis=1)
            things = np.full(len(replicas), replicas.shape[1])
        rate = rates(faults)[kind]
        log += (times - 1) * rate * (at_s + stretch.warm_s) * things - happened * np.log(times)
    if biased.burst != 1.0:
        law = Law.of(faults, cluster.sizes)
        met = np.zeros(len(replicas))
        for burst in history.bursts:
            if burst.at_s <= at_s:
                met += np.isin(replicas, burst.brokers).any(axis=1)
        of_bursts = law.per_s * law.meets(in_racks(cluster, replicas))
        log += (biased.burst - 1) * of_bursts * (at_s + stretch.warm_s) - met * np.log(biased.burst)
    return np.exp(log)


def in_racks(cluster: Cluster, replicas: Ints) -> Ints:
    """How many replicas of each partition are in each rack."""
    found = np.zeros((len(replicas), cluster.racks), dtype=np.int64)
    np.add.at(found, (np.arange(len(replicas))[:, None], cluster.rack[replicas]), 1)
    return found


def effective(values: Floats) -> float:
    """The effective sample size of what replications gave; 0 if none gave anything."""
    most = float(np.abs(values).max(initial=0.0))
    if most == 0:
        return 0.0
    parts = np.abs(values) / most
    return float(parts.sum() ** 2 / (parts**2).sum())
