"""Rare losses: what leads to them is drawn more often than it happens, and each loss weighs less in return.

Importance sampling by failure biasing. Failures of brokers, losses of disks, outages of racks and racks that are
destroyed arrive independently of each other (Poisson), so each of these kinds can be drawn at ``b`` times its rate. A
loss in a partition at a moment t depends on what befell its own brokers and racks until t and on nothing else; so it
weighs the likelihood ratio of that alone,

    prod over those kinds and brokers, or racks:  b^-n · exp((b - 1) · rate · (t + warm-up)),

with n arrivals until t. All that other brokers went through is left out of the weight, so that it does not grow with
the cluster. The mean over replications is that of plain simulation for any b; how far it scatters depends on b. Since
the weight grows with the length of a replication, replications are short: a few times what it takes until a lost copy
is made again. Then each kind is drawn so often that it befalls a partition ``AIM`` times in a replication on average
("balanced": the rarest of them as often as the others), unless it does by itself.

Bursts, clean restarts and slow spells are drawn as they happen.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pyhooks.model.chances import YEAR_S
from pyhooks.model.simulation.faults import Faults
from pyhooks.model.simulation.history import KINDS, Arrivals, Biased, Cluster, Stretch
from pyhooks.model.simulation.script import Floats, Ints

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


def balanced(faults: Faults, stretch: Stretch, *, replicas: int, racks: int, aim: float = AIM) -> Biased:
    """How many times as often to draw each kind.

    Args:
        faults: what happens.
        stretch: the time of a replication.
        replicas: of a partition.
        racks: that they are in, on average or at most.
        aim: how often each kind shall befall a partition in a replication.
    """
    found = {}
    for kind, rate in rates(faults).items():
        expected = rate * stretch.total_s * (racks if kind.startswith("rack") else replicas)
        found[kind] = max(1.0, aim / expected) if expected else 1.0
    return Biased(**found)


def weights(
    faults: Faults,
    stretch: Stretch,
    biased: Biased,
    arrivals: Mapping[str, Arrivals],
    cluster: Cluster,
    replicas: Ints,
    at_s: float,
) -> Floats:
    """What a loss at a moment weighs in some partitions.

    Args:
        faults: how often things happen.
        stretch: the time of the replication.
        biased: how many times as often they were drawn.
        arrivals: when they were.
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
        before = arrivals[kind].of[arrivals[kind].at_s <= at_s]
        if kind.startswith("rack"):
            number = np.bincount(before, minlength=cluster.racks)
            mine = np.zeros((len(replicas), cluster.racks), dtype=bool)
            np.put_along_axis(mine, cluster.rack[replicas], True, axis=1)
            happened, things = (mine * number).sum(axis=1), mine.sum(axis=1)
        else:
            happened = np.bincount(before, minlength=cluster.brokers)[replicas].sum(axis=1)
            things = np.full(len(replicas), replicas.shape[1])
        rate = rates(faults)[kind]
        log += (times - 1) * rate * (at_s + stretch.warm_s) * things - happened * np.log(times)
    return np.exp(log)
