"""Which outages the suite makes on which topology, and what each of its topics must answer to single attempts. Pure.

A *case* is a fault, what it is aimed at, a topology, a placement and what a topic requires. All topics of a topology go
through the same outages, so a *run*, which is one outage of a topology, is the case of each of them. The runs in
``matrix.toml`` are few: every pair of values that is possible is in some case, and no case is added that brings no new
pair. ``python -m ducktape_tests.matrix`` writes the file.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from pyhooks.checkers.phases import OK
from pyhooks.core import toml_config
from pyhooks.core.files import write_text
from pyhooks.history.outcomes import ERRORS
from pyhooks.kafka import gate
from pyhooks.lab import topology
from pyhooks.lab.topology import Site, Topology

FILE = Path(__file__).with_name("matrix.toml")
FAULTS = ("kill", "pause", "cut", "slow", "wipe")
LEADER, FOLLOWER, CONTROLLER = TARGETS = ("leader", "follower", "controller")
TOPOLOGIES = ("az3", "az3-outside", "az3x2", "stretch2")
# M and R
NEEDS = ((2, 1), (3, 1), (2, 2), (3, 2), (2, 3))
# One letter a replica, which is its rack; the first one leads.
SHAPES = ("ab", "aab", "abc", "aabb")
# Far below replica.lag.time.max.ms and all timeouts: what is slow stays in sync.
SLOW_RTT_MS = 60.0
SEED, TRIES = 7, 200
HEAD = """\
# The outages of the suite's matrix, a committed choice: every possible pair of fault, target, topology, placement and
# requirement is in it. Made by "python -m ducktape_tests.matrix"; change that, not this.
"""

Pair = frozenset[tuple[str, Any]]


@dataclass(frozen=True, order=True)
class Run:
    """One outage.

    Attributes:
        topology: name of one.
        fault: its kind.
        target: whose rack it takes.
    """

    topology: str
    fault: str
    target: str


@dataclass(frozen=True)
class Case:
    """What one topic goes through in one outage.

    Attributes:
        run: the outage.
        shape: of the topic's placement.
        need: M and R of the topic.
    """

    run: Run
    shape: str
    need: tuple[int, int]

    @property
    def pairs(self) -> frozenset[Pair]:
        """Any two of its values."""
        values = {
            "topology": self.run.topology,
            "fault": self.run.fault,
            "target": self.run.target,
            "shape": self.shape,
            "need": self.need,
        }
        return frozenset(frozenset(two) for two in combinations(values.items(), 2))


@dataclass(frozen=True)
class Topic:
    """One topic of a topology.

    Attributes:
        name: its name.
        replicas: broker ids; the first leads.
        need: M and R.
    """

    name: str
    replicas: tuple[int, ...]
    need: tuple[int, int]


# -- what is possible -------------------------------------------------------------------------------------------------


def placed(shape: str, on: Topology) -> tuple[int, ...]:
    """Broker ids of a placement; none if the topology has too few racks, or too few brokers in one.

    The letters stand for the racks in the topology's order.
    """
    racks = dict(zip("abcdefghijkl", on.racks, strict=False))
    taken: Counter[str] = Counter()
    found: list[int] = []
    for letter in shape:
        brokers = [node.node_id for node in racks[letter].nodes if node.is_broker] if letter in racks else []
        if taken[letter] >= len(brokers):
            return ()
        found.append(brokers[taken[letter]])
        taken[letter] += 1
    return tuple(found)


def may_be_taken(target: str, on: Topology, shapes: Iterable[str] = SHAPES) -> tuple[Site, ...]:
    """The racks that a target may turn out to be.

    The leader's is where the placements begin, a follower's is one that all have in common beside it, the controller's
    any that has one.
    """
    if target == CONTROLLER:
        return tuple(rack for rack in on.racks if any(node.is_controller for node in rack.nodes))
    common = [
        letter
        for letter in sorted(set("".join(shapes)))
        if all(letter in shape for shape in shapes if placed(shape, on))
    ]
    by_letter = dict(zip("abcdefghijkl", on.racks, strict=False))
    led = {shape[0] for shape in shapes}
    return tuple(by_letter[letter] for letter in common if (letter in led) is (target == LEADER))


def impossible(case: Case, on: Topology) -> str:
    """Why there is no such case; nothing if there is.

    * The placement must fit into the topology, and the target must be in a rack.
    * A fault that takes processes or their way to others away must leave a majority of the voters, whichever rack it
      takes: without one no ISR shrinks and no leader moves, and a destroyed voter could not be replaced.
    * It must leave a replica, in sync as all of them are before, that can lead.
    """
    replicas = placed(case.shape, on)
    if not replicas:
        return f"{on.name} has no room for {case.shape}"
    taken = may_be_taken(case.run.target, on)
    if not taken:
        return f"{on.name} has no {case.run.target} in a rack that all placements share"
    if case.run.fault == "slow":
        return ""
    for rack in taken:
        lost = sum(node.is_controller for node in rack.nodes)
        if 2 * (len(on.controllers) - lost) <= len(on.controllers):
            return f"without rack {rack.name} the voters of {on.name} are no majority"
        if not surviving(replicas, racks_of(on), case.run.fault, rack.name):
            return f"without rack {rack.name} nobody is left of {case.shape}"
    return ""


def possible(names: Sequence[str] = TOPOLOGIES) -> Iterator[Case]:
    """All cases that there are."""
    for name in names:
        on = topology.load(topology.find(name))
        for fault, target, shape, need in product(FAULTS, TARGETS, SHAPES, NEEDS):
            case = Case(Run(name, fault, target), shape, need)
            if not impossible(case, on):
                yield case


# -- what is chosen ---------------------------------------------------------------------------------------------------


def choose(cases: Iterable[Case], seed: int = SEED, tries: int = TRIES) -> tuple[Run, ...]:
    """Few runs with every pair that is in any case: greedily, and the shortest of some tries; the same seed, the same.

    Args:
        cases: all that are possible.
        seed: decides between runs that bring as many new pairs.
        tries: how many.
    """
    brings: dict[Run, frozenset[Pair]] = {}
    for case in cases:
        brings[case.run] = brings.get(case.run, frozenset()) | case.pairs
    rng = random.Random(seed)  # noqa: S311 - no secret
    found = min((_greedy(brings, rng) for _ in range(tries)), key=len)
    return tuple(sorted(found, key=lambda run: (run.topology, FAULTS.index(run.fault), TARGETS.index(run.target))))


def _greedy(brings: Mapping[Run, frozenset[Pair]], rng: random.Random) -> list[Run]:
    wanted = frozenset[Pair]().union(*brings.values())
    chosen: list[Run] = []
    while wanted:
        most = max(len(pairs & wanted) for pairs in brings.values())
        chosen.append(rng.choice([run for run, pairs in sorted(brings.items()) if len(pairs & wanted) == most]))
        wanted -= brings[chosen[-1]]
    return chosen


def text(runs: Sequence[Run]) -> str:
    """The file that lists them."""
    tables = [
        f'\n[[run]]\ntopology = "{run.topology}"\nfault = "{run.fault}"\ntarget = "{run.target}"\n' for run in runs
    ]
    return HEAD + "".join(tables)


def listed(path: Path = FILE) -> tuple[Run, ...]:
    """The runs that the file lists.

    Raises:
        RackgateError: it can't be read, or lists something else.
    """
    top = toml_config.Table(toml_config.read(path, "it lists the outages of the matrix"), path)
    runs = tuple(
        Run(one.word("topology", TOPOLOGIES), one.word("fault", FAULTS), one.word("target", TARGETS))
        for one in top.tables("run")
    )
    top.done()
    return runs


# -- what is made of it, and what must come of it ---------------------------------------------------------------------


def topics_of(on: Topology) -> tuple[Topic, ...]:
    """All topics of a topology: each placement that fits with each requirement."""
    return tuple(
        Topic(f"{shape}-m{m}-r{r}", replicas, (m, r))
        for shape in SHAPES
        if (replicas := placed(shape, on))
        for m, r in NEEDS
    )


def racks_of(on: Topology) -> dict[int, str]:
    """Broker id to rack."""
    return {node.node_id: node.site for node in on.brokers}


def surviving(replicas: Iterable[int], racks: Mapping[int, str], fault: str, taken: str) -> frozenset[int]:
    """The ISR that is left of all replicas once a fault of a rack has had its effect; a slow rack stays in sync."""
    return frozenset(broker for broker in replicas if fault == "slow" or racks[broker] != taken)


def expected(
    isr: Iterable[int], racks: Mapping[int, str], *, need: tuple[int, int], replicas: int, names: str = ERRORS
) -> str:
    """How a single attempt ends with this ISR, as phases call it; replicas are asked for before racks.

    Args:
        isr: broker ids.
        racks: broker id to rack.
        need: M and R.
        replicas: how many replicas there are, in sync or not.
        names: the package of the exceptions.
    """
    answer = gate.ask(frozenset(isr), racks, min_replicas=need[0], min_racks=need[1], replicas=replicas)
    if not answer.enough_replicas:
        return f"{names}.NotEnoughReplicasException"
    return OK if answer.enough_racks else f"{names}.NotEnoughRacksException"


def together(on: Topology) -> tuple[tuple[Topic, ...], ...]:
    """The topics of a topology, those together that go on, wait or stop together in the outage of any of its racks.

    They can share a producer. A request is answered when all partitions in it are, and the next one on the same
    connection after it; so a topic that stops holds up the others of its producer until its records have timed out. So
    does one that goes on, but has a replica in the rack: it waits until that has left the ISR.
    """
    racks = racks_of(on)
    groups: dict[tuple[tuple[bool, bool], ...], list[Topic]] = {}
    for topic in topics_of(on):
        left = [surviving(topic.replicas, racks, "kill", rack.name) for rack in on.racks]
        ends = [expected(isr, racks, need=topic.need, replicas=len(topic.replicas)) for isr in left]
        waits = [len(isr) < len(topic.replicas) for isr in left]
        groups.setdefault(tuple(zip((end == OK for end in ends), waits, strict=True)), []).append(topic)
    return tuple(map(tuple, groups.values()))


def main() -> int:
    """Writes the file."""
    runs = choose(possible())
    write_text(FILE, text(runs))
    sys.stdout.write(f"{len(runs)} runs in {FILE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
