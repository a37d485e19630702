"""Matrix of outages per topology, and the expected results of single attempts at each topic; pure functions.

A *case* is a fault, its target, a topology, a placement and the M and R of a topic. All topics of a topology go through
the same outages, so a *run*, which is one outage of a topology, covers one case of each topic. ``matrix.toml`` lists
few runs, selected for pairwise coverage: every possible pair of values is in a case, and no run is added without a new
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
# (M, R)
NEEDS = ((2, 1), (3, 1), (2, 2), (3, 2), (2, 3))
# Each letter is the rack of one replica; the first replica leads.
SHAPES = ("ab", "aab", "abc", "aabb")
# Far below replica.lag.time.max.ms and all timeouts, so that slow replicas stay in sync.
SLOW_RTT_MS = 60.0
SEED, TRIES = 7, 200
HEAD = """\
# The outages of the suite's matrix, a committed choice: every possible pair of fault, target, topology, placement and
# requirement is in it. Made by "python -m ducktape_tests.matrix"; change that, not this.
"""

Pair = frozenset[tuple[str, Any]]


@dataclass(frozen=True, order=True)
class MatrixOutage:
    """One outage.

    Attributes:
        topology: name of the topology.
        fault: kind of the fault.
        target: role whose rack the fault hits.
    """

    topology: str
    fault: str
    target: str


@dataclass(frozen=True)
class OutageCase:
    """One topic in one outage.

    Attributes:
        run: the outage.
        shape: the topic's placement.
        need: M and R of the topic.
    """

    run: MatrixOutage
    shape: str
    need: tuple[int, int]

    @property
    def pairs(self) -> frozenset[Pair]:
        """All pairs of its values."""
        values = {
            "topology": self.run.topology,
            "fault": self.run.fault,
            "target": self.run.target,
            "shape": self.shape,
            "need": self.need,
        }
        return frozenset(frozenset(two) for two in combinations(values.items(), 2))


@dataclass(frozen=True)
class MatrixTopic:
    """One topic of a topology.

    Attributes:
        name: its name.
        replicas: broker ids; the first leads.
        need: M and R.
    """

    name: str
    replicas: tuple[int, ...]
    need: tuple[int, int]


# -- possible cases ---------------------------------------------------------------------------------------------------


def placed(shape: str, on: Topology) -> tuple[int, ...]:
    """Return the broker ids of a placement; empty if the topology has too few racks, or too few brokers in one.

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
    """Return the racks that a target may be in.

    The leader's rack is the first one of the placements. The follower's rack is another one that all placements share.
    The controller's rack is any with a controller.
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


def impossible(case: OutageCase, on: Topology) -> str:
    """Return why a case is impossible; empty if it is possible.

    * The placement must fit into the topology, and the target must be in a rack.
    * A fault that removes processes or their connections must leave a majority of the voters, whichever rack it hits.
      Without a majority no ISR shrinks and no leader moves, and a destroyed voter could not be replaced.
    * It must leave a replica that can lead; before the fault all replicas are in sync.
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


def possible(names: Sequence[str] = TOPOLOGIES) -> Iterator[OutageCase]:
    """Yield all possible cases."""
    for name in names:
        on = topology.load(topology.find(name))
        for fault, target, shape, need in product(FAULTS, TARGETS, SHAPES, NEEDS):
            case = OutageCase(MatrixOutage(name, fault, target), shape, need)
            if not impossible(case, on):
                yield case


# -- selected runs ----------------------------------------------------------------------------------------------------


def choose(cases: Iterable[OutageCase], seed: int = SEED, tries: int = TRIES) -> tuple[MatrixOutage, ...]:
    """Return few runs that cover every pair of values of the cases: the shortest of several greedy selections.

    The same seed gives the same runs.

    Args:
        cases: all possible cases.
        seed: decides between runs with equally many new pairs.
        tries: number of greedy selections.
    """
    brings: dict[MatrixOutage, frozenset[Pair]] = {}
    for case in cases:
        brings[case.run] = brings.get(case.run, frozenset()) | case.pairs
    rng = random.Random(seed)  # noqa: S311 - no secret
    found = min((_greedy(brings, rng) for _ in range(tries)), key=len)
    return tuple(sorted(found, key=lambda run: (run.topology, FAULTS.index(run.fault), TARGETS.index(run.target))))


def _greedy(brings: Mapping[MatrixOutage, frozenset[Pair]], rng: random.Random) -> list[MatrixOutage]:
    wanted = frozenset[Pair]().union(*brings.values())
    chosen: list[MatrixOutage] = []
    while wanted:
        most = max(len(pairs & wanted) for pairs in brings.values())
        chosen.append(rng.choice([run for run, pairs in sorted(brings.items()) if len(pairs & wanted) == most]))
        wanted -= brings[chosen[-1]]
    return chosen


def text(runs: Sequence[MatrixOutage]) -> str:
    """Return the content of the file that lists the runs."""
    tables = [
        f'\n[[run]]\ntopology = "{run.topology}"\nfault = "{run.fault}"\ntarget = "{run.target}"\n' for run in runs
    ]
    return HEAD + "".join(tables)


def listed(path: Path = FILE) -> tuple[MatrixOutage, ...]:
    """Return the runs that the file lists.

    Raises:
        RackgateError: the file can't be read, or an entry is invalid.
    """
    top = toml_config.Table(toml_config.read(path, "it lists the outages of the matrix"), path)
    runs = tuple(
        MatrixOutage(one.word("topology", TOPOLOGIES), one.word("fault", FAULTS), one.word("target", TARGETS))
        for one in top.tables("run")
    )
    top.done()
    return runs


# -- topics and expected results --------------------------------------------------------------------------------------


def topics_of(on: Topology) -> tuple[MatrixTopic, ...]:
    """Return all topics of a topology: each placement that fits with each pair of M and R."""
    return tuple(
        MatrixTopic(f"{shape}-m{m}-r{r}", replicas, (m, r))
        for shape in SHAPES
        if (replicas := placed(shape, on))
        for m, r in NEEDS
    )


def racks_of(on: Topology) -> dict[int, str]:
    """Return the rack of each broker by id."""
    return {node.node_id: node.site for node in on.brokers}


def surviving(replicas: Iterable[int], racks: Mapping[int, str], fault: str, taken: str) -> frozenset[int]:
    """Return the ISR that remains of all replicas once a fault of a rack is effective; a slow rack stays in sync."""
    return frozenset(broker for broker in replicas if fault == "slow" or racks[broker] != taken)


def expected(
    isr: Iterable[int], racks: Mapping[int, str], *, need: tuple[int, int], replicas: int, names: str = ERRORS
) -> str:
    """Return the expected result of a single attempt with this ISR; M is checked before R.

    Args:
        isr: broker ids.
        racks: broker id to rack.
        need: M and R.
        replicas: number of replicas, in sync or not.
        names: package of the exceptions.
    """
    answer = gate.ask(frozenset(isr), racks, min_replicas=need[0], min_racks=need[1], replicas=replicas)
    if not answer.enough_replicas:
        return f"{names}.NotEnoughReplicasException"
    return OK if answer.enough_racks else f"{names}.NotEnoughRacksException"


def together(on: Topology) -> tuple[tuple[MatrixTopic, ...], ...]:
    """Group the topics of a topology by whether they continue, wait or stop in the outage of each rack.

    The topics of a group can share a producer. A broker responds to a request when all partitions in it are done, and
    to the next one on the same connection after that. So a topic that stops delays the others of its producer until its
    records have timed out. A topic that continues but has a replica in the rack delays them until that replica has left
    the ISR.
    """
    racks = racks_of(on)
    groups: dict[tuple[tuple[bool, bool], ...], list[MatrixTopic]] = {}
    for topic in topics_of(on):
        left = [surviving(topic.replicas, racks, "kill", rack.name) for rack in on.racks]
        ends = [expected(isr, racks, need=topic.need, replicas=len(topic.replicas)) for isr in left]
        waits = [len(isr) < len(topic.replicas) for isr in left]
        groups.setdefault(tuple(zip((end == OK for end in ends), waits, strict=True)), []).append(topic)
    return tuple(map(tuple, groups.values()))


def main() -> int:
    """Write the file."""
    runs = choose(possible())
    write_text(FILE, text(runs))
    sys.stdout.write(f"{len(runs)} runs in {FILE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
