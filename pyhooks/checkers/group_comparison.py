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

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.group_latencies import AFTER, BEFORE, DURING, figures
from pyhooks.checkers.group_view import groups
from pyhooks.checkers.groups import BOUND_S, offsets_windows, partition_of
from pyhooks.checkers.progress import SettledWindow
from pyhooks.checkers.settling_times import SETTLE_S
from pyhooks.checkers.verdict import Findings, Verdict
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
    """Results of one group of a pair."""

    name: str
    figures: Mapping[str, Any]  # its figures, see ``pyhooks.checkers.group_latencies``
    # whether the ISR of the coordinator's partition was sufficient throughout the settled part of the outage; None if
    # neither sufficient nor insufficient throughout, or unknown
    enough: bool | None


def check_group_comparison(events: Sequence[Event], *, settle_s: float = SETTLE_S) -> Verdict:
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
    """
    findings = Findings()
    compared = _compared_groups(events, settle_s)
    pairs = [pair for _, alike in AlikeDetails.each(events) for pair in alike.pairs]
    if not pairs:
        findings.missing.append("no event names the groups to be compared")
    for more, fewer in pairs:
        absent = [name for name in (more, fewer) if name not in compared]
        findings.missing += [f"{name}: not exactly one outage during its lifetime" for name in absent]
        unclear = [name for name in (more, fewer) if name in compared and compared[name].enough is None]
        findings.missing += [f"{name}: whether its partition was enough in the outage is unknown" for name in unclear]
        if not absent and not unclear:
            _GroupComparison(compared[more], compared[fewer], findings).check()
    return findings.verdict("alike")


def _compared_groups(events: Sequence[Event], settle_s: float) -> dict[str, ComparedGroup]:
    cluster = ClusterView.of(events)
    known = offsets_windows(cluster, settle_s)
    joined_ns = {group.name: min(member.join_ns for member in group.members) for group in groups(events)}
    compared: dict[str, ComparedGroup] = {}
    for group in figures(events):
        name = str(group["group"])
        fault = next(
            each for each in cluster.faults if each.proved_ns and each.heal_ns and each.inject_ns > joined_ns[name]
        )
        windows = known.get(partition_of(name, len(known)), []) if known else []
        compared[name] = ComparedGroup(name, group, _enough(windows, fault.proved_ns or 0, fault.heal_ns or 0))
    return compared


def _enough(known: Sequence[SettledWindow], from_ns: int, to_ns: int) -> bool | None:
    inside = {window.enough for window in known if window.from_ns < to_ns and window.to_ns > from_ns}
    return inside.pop() if len(inside) == 1 else None


@dataclass(frozen=True)
class _GroupComparison:
    """Comparison of a pair of groups: one with more required racks, one with fewer."""

    more: ComparedGroup
    fewer: ComparedGroup
    findings: Findings

    @property
    def name(self) -> str:
        """Names of both groups."""
        return f"{self.more.name} and {self.fewer.name}"

    def check(self) -> None:
        """Compare the commits, changes of members, and pauses of reading."""
        for phase in PHASES:
            self._check_commits(phase)
        self._check_changes()
        self._check_resumption()
        pause_s, other_s = (
            float(group.figures["longest_pause_of_who_was_there_s"]) for group in (self.more, self.fewer)
        )
        self.findings.notes.append(
            f"{self.name}: longest pauses of reading in the outage {pause_s:g} s and {other_s:g} s"
        )
        if pause_s > other_s + SLOWER_S:
            self.findings.wrong.append(
                f"{self.name}: {self.more.name} read nothing for {pause_s:g} s of the outage, {self.fewer.name} for"
                f" {other_s:g} s"
            )

    def _check_commits(self, phase: str) -> None:
        name = f"{self.name}, {phase}"
        commits = [group.figures["commits"][phase] for group in (self.more, self.fewer)]
        for group, counts in zip((self.more, self.fewer), commits, strict=True):
            enough = group.enough if phase == DURING else True
            if not counts["ok"] and not counts["failed"]:
                self.findings.missing.append(f"{name}: {group.name} tried no commit")
            elif enough and not counts["ok"]:
                self.findings.wrong.append(
                    f"{name}: no commit of {group.name} succeeded, and its partition is enough: {counts['failed']}"
                )
            elif not enough and counts["ok"]:
                self.findings.wrong.append(
                    f"{name}: {counts['ok']} commits of {group.name} succeeded, and its partition is not enough"
                )
        median_ms, other_ms = (counts["median_ms"] for counts in commits)
        self.findings.notes.append(
            f"{name}: {commits[0]['ok']} and {commits[1]['ok']} commits, medians {median_ms} ms and {other_ms} ms"
        )
        if median_ms is not None and other_ms is not None and median_ms > other_ms + SLOWER_MS:
            self.findings.wrong.append(
                f"{name}: the median of a commit is {median_ms:g} ms with {self.more.name}, {other_ms:g} ms with"
                f" {self.fewer.name}"
            )

    def _check_changes(self) -> None:
        changes = [
            [(change["what"], change["when"]) for change in group.figures["changes"]]
            for group in (self.more, self.fewer)
        ]
        if changes[0] != changes[1]:
            self.findings.missing.append(f"{self.name}: different changes of members: {changes[0]}, {changes[1]}")
            return
        compared = set()
        for change, other in zip(self.more.figures["changes"], self.fewer.figures["changes"], strict=True):
            name = f"{self.name}: {change['what']} {change['when']}"
            duration_s, other_s = change["over_after_s"], other["over_after_s"]
            if change["when"] == DURING and self.more.enough is not self.fewer.enough:
                # It waits for the heal: the time from then is judged by the first commits after it.
                compared.add(DURING)
                if "over_after_the_heal_s" not in change and duration_s is not None and not self.more.enough:
                    self.findings.wrong.append(
                        f"{name}: over before the heal in {self.more.name}, whose partition is not enough"
                    )
                continue
            if duration_s is None or other_s is None:
                # Overtaken by the next change, as that of the other group might have been.
                self.findings.notes.append(f"{name}: over after {duration_s} s and {other_s} s")
                continue
            compared.add(change["when"])
            self.findings.notes.append(f"{name}: over after {duration_s:g} s and {other_s:g} s")
            if duration_s > other_s + SLOWER_S:
                self.findings.wrong.append(
                    f"{name}: over after {duration_s:g} s in {self.more.name}, {other_s:g} s in {self.fewer.name}"
                )
        changed = {when for _, when in changes[0]}
        self.findings.missing += [
            f"{self.name}: no join or leave {phase} could be compared"
            for phase in PHASES
            if phase in changed and phase not in compared
        ]
        if DURING not in changed:
            self.findings.missing.append(f"{self.name}: no join or leave in the outage")

    def _check_resumption(self) -> None:
        firsts, others = (list(group.figures["first_commit_after_the_heal_s"]) for group in (self.more, self.fewer))
        if not firsts or len(firsts) != len(others):
            self.findings.missing.append(f"{self.name}: {len(firsts)} and {len(others)} members at the heal")
        elif None in others:
            self.findings.missing.append(f"{self.name}: a member of {self.fewer.name} has not committed after the heal")
        elif None in firsts:
            self.findings.wrong.append(
                f"{self.name}: a member of {self.more.name} has not committed after the heal, all of"
                f" {self.fewer.name} have"
            )
        elif max(firsts) > max(others) + BOUND_S:
            self.findings.wrong.append(
                f"{self.name}: all have committed again after {max(firsts):g} s with {self.more.name}, after"
                f" {max(others):g} s with {self.fewer.name}"
            )
