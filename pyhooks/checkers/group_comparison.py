"""Check that consumer groups go through an outage alike whether two racks are required or one.

Reads ``AlikeDetails``, and all that ``pyhooks.checkers.groups`` reads. Each group of a pair has been through an outage
of its own, with the same steps for both. The number of required racks can make a difference in two respects only:
commits and rebalances wait while the coordinator's partition has too few racks, and they continue when it has enough
again. Before an outage, after it, and throughout it if the partition has as many as it needs, the number must not
affect a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyhooks.checkers import cluster_view
from pyhooks.checkers.group_latencies import AFTER, BEFORE, DURING, figures
from pyhooks.checkers.group_view import groups
from pyhooks.checkers.groups import BOUND_S, TOPIC, partition_of, stretches
from pyhooks.checkers.progress import SettledWindow
from pyhooks.checkers.settling_times import SETTLE_S
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import AlikeDetails

PHASES = (BEFORE, DURING, AFTER)
# Extra time that a change of members, or the longest pause of reading, may take with more racks required. A rebalance
# depends on heartbeats, every 3 s, and on the load of the machine.
SLOWER_S = 15.0
# Extra median latency that a commit may have; the only difference is a comparison of two numbers on the broker.
SLOWER_MS = 500.0


@dataclass(frozen=True)
class ComparedGroup:
    """Results of one group of a pair.

    Attributes:
        name: name of the group.
        told: its figures, see ``pyhooks.checkers.group_latencies``.
        enough: whether the ISR of the coordinator's partition was sufficient throughout the settled part of the outage;
            None if neither sufficient nor insufficient throughout, or unknown.
    """

    name: str
    told: Mapping[str, Any]
    enough: bool | None


def check_alike(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
    """Check that groups of a pair differ in an outage as their coordinators' partitions do, and in nothing else.

    The ISR of a coordinator's partition is sufficient if it has enough replicas and racks. Wrong while both are
    sufficient, as before and after the outage:

    * a group without a successful commit;
    * a change of members that took more than ``SLOWER_S`` longer where more racks are required;
    * a median commit latency more than ``SLOWER_MS`` longer there.

    Wrong in the outage: a commit or change that succeeds in a group with an insufficient ISR, or a group with a
    sufficient one and no successful commit. Always wrong, where more racks are required:

    * a member without a commit after the heal, or with the first one more than ``BOUND_S`` later than in the other
      group;
    * a pause of reading in the outage that is more than ``SLOWER_S`` longer. Only members that joined before the outage
      count: later ones have nothing to read until their rebalance completes.

    Unknown:

    * no pair;
    * a group that went through no outage, or through several;
    * an outage in which it is unknown whether the ISR was sufficient;
    * no commit tried, or no change, in a phase in either group;
    * different changes of members in the two groups.

    Args:
        events: a whole history.
        settle_s: seconds granted to a change to take effect.
    """
    wrong: list[str] = []
    missing: list[str] = []
    notes: list[str] = []
    arms = _arms(events, settle_s)
    pairs = [pair for _, alike in AlikeDetails.each(events) for pair in alike.pairs]
    if not pairs:
        missing.append("nothing tells which groups are to be compared")
    for more, fewer in pairs:
        absent = [name for name in (more, fewer) if name not in arms]
        missing += [f"{name}: lived through no outage of its own" for name in absent]
        unclear = [name for name in (more, fewer) if name in arms and arms[name].enough is None]
        missing += [f"{name}: whether its partition was enough in the outage is not known" for name in unclear]
        if not absent and not unclear:
            _compare(arms[more], arms[fewer], wrong, missing, notes)
    return Verdict.of("alike", wrong=wrong, missing=missing, notes=notes)


def _arms(events: Sequence[Event], settle_s: float) -> dict[str, ComparedGroup]:
    known = stretches(events, settle_s)
    faults = cluster_view.faults(events)
    found: dict[str, ComparedGroup] = {}
    alive = {group.name: min(one.join_ns for one in group.members) for group in groups(events)}
    for told in figures(events):
        name = str(told["group"])
        own = next(one for one in faults if one.proved_ns and one.heal_ns and one.inject_ns > alive[name])
        windows = known.get((TOPIC, partition_of(name, len(known))), []) if known else []
        found[name] = ComparedGroup(name, told, _enough(windows, own.proved_ns or 0, own.heal_ns or 0))
    return found


def _enough(known: Sequence[SettledWindow], from_ns: int, to_ns: int) -> bool | None:
    inside = {one.enough for one in known if one.from_ns < to_ns and one.to_ns > from_ns}
    return inside.pop() if len(inside) == 1 else None


def _compare(more: ComparedGroup, fewer: ComparedGroup, wrong: list[str], missing: list[str], notes: list[str]) -> None:
    name = f"{more.name} and {fewer.name}"
    for phase in PHASES:
        _commits(f"{name}, {phase}", more, fewer, phase, wrong, missing, notes)
    _changes(name, more, fewer, wrong, missing, notes)
    _resumed(name, more, fewer, wrong, missing)
    one, two = (float(arm.told["longest_pause_of_who_was_there_s"]) for arm in (more, fewer))
    notes.append(f"{name}: longest pauses of reading in the outage {one:g} s and {two:g} s")
    if one > two + SLOWER_S:
        wrong.append(f"{name}: {more.name} read nothing for {one:g} s of the outage, {fewer.name} for {two:g} s")


def _commits(
    name: str,
    more: ComparedGroup,
    fewer: ComparedGroup,
    phase: str,
    wrong: list[str],
    missing: list[str],
    notes: list[str],
) -> None:
    told = [arm.told["commits"][phase] for arm in (more, fewer)]
    for arm, own in zip((more, fewer), told, strict=True):
        tried = bool(own["ok"] or own["failed"])
        enough = arm.enough if phase == DURING else True
        if not tried:
            missing.append(f"{name}: {arm.name} committed nothing, and tried nothing")
        elif enough and not own["ok"]:
            wrong.append(f"{name}: no commit of {arm.name} succeeded, and its partition is enough: {own['failed']}")
        elif not enough and own["ok"]:
            wrong.append(f"{name}: {own['ok']} commits of {arm.name} succeeded, and its partition is not enough")
    one, two = (own["median_ms"] for own in told)
    notes.append(f"{name}: {told[0]['ok']} and {told[1]['ok']} commits, medians {one} ms and {two} ms")
    if one is not None and two is not None and one > two + SLOWER_MS:
        wrong.append(f"{name}: the median of a commit is {one:g} ms with {more.name}, {two:g} ms with {fewer.name}")


def _changes(
    name: str, more: ComparedGroup, fewer: ComparedGroup, wrong: list[str], missing: list[str], notes: list[str]
) -> None:
    own = [[(one["what"], one["when"]) for one in arm.told["changes"]] for arm in (more, fewer)]
    if own[0] != own[1]:
        missing.append(f"{name}: not the same was done to both: {own[0]}, {own[1]}")
        return
    compared = set()
    for one, two in zip(more.told["changes"], fewer.told["changes"], strict=True):
        what = f"{name}: {one['what']} {one['when']}"
        if one["when"] == DURING and more.enough is not fewer.enough:
            # It waits for the heal: the time from then is judged by the first commits after it.
            compared.add(DURING)
            if "over_after_the_heal_s" not in one and one["over_after_s"] is not None and not more.enough:
                wrong.append(f"{what}: over before the heal in {more.name}, whose partition is not enough")
            continue
        took = [change["over_after_s"] for change in (one, two)]
        if None in took:
            # Overtaken by the next change, as that of the other group might have been.
            notes.append(f"{what}: over after {took[0]} s and {took[1]} s")
            continue
        compared.add(one["when"])
        notes.append(f"{what}: over after {took[0]:g} s and {took[1]:g} s")
        if took[0] > took[1] + SLOWER_S:
            wrong.append(f"{what}: over after {took[0]:g} s in {more.name}, {took[1]:g} s in {fewer.name}")
    missing += [
        f"{name}: no join or leave {phase} could be compared"
        for phase in PHASES
        if phase in {when for _, when in own[0]} and phase not in compared
    ]
    if DURING not in {when for _, when in own[0]}:
        missing.append(f"{name}: nobody joined or left in the outage")


def _resumed(name: str, more: ComparedGroup, fewer: ComparedGroup, wrong: list[str], missing: list[str]) -> None:
    one, two = (list(arm.told["first_commit_after_the_heal_s"]) for arm in (more, fewer))
    if not one or len(one) != len(two):
        missing.append(f"{name}: {len(one)} and {len(two)} members lived at the heal")
        return
    if None in two:
        missing.append(f"{name}: a member of {fewer.name} has not committed after the heal")
    elif None in one:
        wrong.append(f"{name}: a member of {more.name} has not committed after the heal, all of {fewer.name} have")
    elif max(one) > max(two) + BOUND_S:
        said = f"after {max(one):g} s with {more.name}, after {max(two):g} s with {fewer.name}"
        wrong.append(f"{name}: all have committed again {said}")
