"""Consumer groups in an outage of a rack, with two racks required by the cluster and with one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import ClassVar

from ducktape.mark import matrix

from ducktape_tests.scenario import (
    FAILED_RACK,
    FLOOD,
    NEEDS,
    OFFSETS,
    PATIENT_MS,
    SINGLE_PARTITIONS,
    LoadSpec,
    RackScenario,
    offsets_topic,
    require_true,
    sleep,
    spec,
)
from ducktape_tests.services.clients import Program, wait_events
from pyhooks.checkers.group_latencies import figures
from pyhooks.checkers.group_view import groups
from pyhooks.checkers.groups import BOUND_S
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event
from pyhooks.history.events import TEST, AlikeDetails, CommitDetails, MemberDetails
from pyhooks.jvm.group_member import PROTOCOLS
from pyhooks.kafka import topics
from pyhooks.workload.group_offsets import note_committed

# all in more than one rack even without rack b, so that there is always something to read
DATA = {"d1": (1, 2, 5), "d2": (2, 5, 3), "d3": (5, 1, 4), "d4": (1, 5, 3)}
# placements of the offsets topic: one replica in rack a, or three in racks a, a, b
PLACES = {1: (1,), 3: (1, 2, 3)}
STEADY_S = 5.0
# an unanswered commit ends after 5 s (offsets.commit.timeout.ms)
OUTAGE_S = 8.0
# R of the cluster; the outages with the two values are compared
REQUIRED = (2, 1)
# Longer than the checker allows, so that it judges late results.
PATIENCE_S = BOUND_S + 60


class GroupsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    PROPERTIES: ClassVar[Mapping[str, str]] = SINGLE_PARTITIONS

    @matrix(replicas=[1, 3])
    def test_groups_in_an_outage(self, replicas: int) -> None:
        """Commits and rebalances wait for the racks that the offsets topic requires, and nothing else does.

        Groups of each protocol read topics that stay writable. In an outage of rack b a member joins each group and one
        leaves; after the heal another one joins. This is done with R=2 and with R=1 for the cluster. All results must
        equal those with R=1 where the racks suffice. The durations of commits and rebalances are recorded.

        Args:
            replicas: of ``__consumer_offsets``: 1, or 3 in racks a, a, b.
        """
        topics.create(self.kafka.admin, [offsets_topic(PLACES[replicas])])
        self.kafka.wait_log(OFFSETS, PLACES[replicas])
        specs = [spec(name, placed, 2) for name, placed in DATA.items()]
        load = LoadSpec(",".join(DATA), "idempotent", "confluent", rate_per_s=5, patient_ms=PATIENT_MS)
        with self.under_load(specs, [load], also=[OFFSETS]):
            more, fewer = REQUIRED
            pairs = tuple((_group(protocol, more), _group(protocol, fewer)) for protocol in PROTOCOLS)
            self.history.add(AlikeDetails(pairs=pairs), process=TEST)
            for racks in REQUIRED:
                self.require_racks(racks)
                self._outage(racks, PLACES[replicas])
            note_committed(self.kafka.admin, [name for pair in pairs for name in pair], self.history)
        # With a single replica the partition of the coordinators never has too few racks.
        short = [FLOOD] if replicas > 1 else []
        self.read_final_state(logs=bool(short))
        verdicts = self.verdicts((*NEEDS, "groups", "alike", *short))
        self.figures(replicas=replicas, groups=figures(list(self.history.events())))
        require_true(verdicts)

    def _outage(self, racks: int, placed: Sequence[int]) -> None:
        names = [_group(protocol, racks) for protocol in PROTOCOLS]
        with ExitStack() as stack, ExitStack() as first:
            members = [stack.enter_context(self._member(names)), first.enter_context(self._member(names))]
            self._commit(members, names, STEADY_S)
            self._balanced(members, names)
            with self.fault("kill", rack=FAILED_RACK):
                remaining = frozenset(broker for broker in placed if self.racks[broker] != FAILED_RACK)
                enough = len({self.racks[broker] for broker in remaining}) >= min(racks, len(placed))
                self.wait_isr(remaining, OFFSETS)
                self._tried(members, names, OUTAGE_S)
                members.append(stack.enter_context(self._member(names)))
                self._lasts(OUTAGE_S, members[2:], names)
                if enough:
                    self._balanced(members, names)
                first.close()
                del members[1]
                self._lasts(OUTAGE_S)
                if enough:
                    self._balanced(members, names)
            self._commit(members, names, STEADY_S, PATIENCE_S)
            self._balanced(members, names)
            members.append(stack.enter_context(self._member(names)))
            self._commit(members, names, STEADY_S, PATIENCE_S)
            self._balanced(members, names)

    @contextmanager
    def _member(self, names: Sequence[str]) -> Iterator[Program]:
        """Run a process with a member in each group; the members leave at the end of the block."""
        groups_by_protocol = ",".join(f"{name}:{name.partition('-')[0]}" for name in names)
        with self.client("group_members", ",".join(DATA), "--groups", groups_by_protocol) as (member,):
            yield member

    def _commit(self, members: Sequence[Program], names: Sequence[str], seconds: float, more_s: float = 90.0) -> None:
        """Wait until each member has completed a commit that it started ``seconds`` from now or later."""
        self._ended(members, names, seconds, more_s, ok=True)

    def _tried(self, members: Sequence[Program], names: Sequence[str], seconds: float) -> None:
        """Wait until each member has ended a commit, with any result, that it started ``seconds`` from now or later."""
        self._ended(members, names, seconds, 60.0, ok=False)

    def _ended(
        self, members: Sequence[Program], names: Sequence[str], seconds: float, more_s: float, *, ok: bool
    ) -> None:
        since_ns = time.monotonic_ns() + round(seconds * 1e9)

        def key(member: Program, event: Event, commit: CommitDetails) -> tuple[str, str] | None:
            counts = commit.begun_ns >= since_ns and (event.outcome == "ok" or not ok)
            return (member.run_id, commit.group) if counts else None

        pending = {(member.run_id, name) for member in members for name in names}
        goal = f"{len(pending)} members to {'commit' if ok else 'try to commit'} after {seconds:g} s"
        wait_events(members, CommitDetails, key, pending, goal=goal, timeout_s=seconds + more_s)

    def _balanced(self, members: Sequence[Program], names: Sequence[str]) -> None:
        """Wait until the last rebalance of each group is complete, so that the next one does not overtake it."""

        def balanced() -> bool:
            for member in members:
                member.fetch()
            recorded = groups([event for event in self.history.events() if MemberDetails.describes(event)])
            return all(group.balanced(time.monotonic_ns()) for group in recorded if group.name in names)

        wait_for(balanced, goal="a partition for each member of each group", timeout_s=PATIENCE_S, interval_s=1.0)

    def _lasts(self, seconds: float, members: Sequence[Program] = (), names: Sequence[str] = ()) -> None:
        """Wait until members have requested to join, and then for so many seconds."""
        pending = {(member.run_id, name) for member in members for name in names}
        wait_events(
            members,
            MemberDetails,
            lambda member, _, details: (member.run_id, details.group),
            pending,
            goal=f"{len(pending)} members to request to join",
            timeout_s=60,
        )
        sleep(seconds, f"{seconds:g} s of outage")


def _group(protocol: str, racks: int) -> str:
    return f"{protocol}-r{racks}"
