"""Share groups (KIP-932) in an outage of a rack, with two racks required by the cluster and with one."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import ClassVar

from ducktape_tests.scenario import (
    AAB,
    ABC,
    FAILED_RACK,
    NEEDS,
    OFFSETS,
    SINGLE_PARTITIONS,
    LoadSpec,
    RackScenario,
    offsets_topic,
    require_true,
    sleep,
    spec,
)
from ducktape_tests.services.clients import Program, wait_events
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.share_groups import BOUND_S, STATE, ShareGroup, share_groups, unconfirmed
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.events import AcknowledgementDetails
from pyhooks.kafka import gate, tools, topics
from pyhooks.kafka.topics import TopicSpec

# in racks a, a, c: always in two racks
DATA, PLACED = "orders", (1, 2, 5)
OUTAGE_S = 20.0
REQUIRED = (2, 1)
# The least that brokers accept: a record whose acknowledgement failed is delivered again after so long.
LOCK_MS = 15_000
AGAIN_S = 45.0


class ShareGroupsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    PROPERTIES: ClassVar[Mapping[str, str]] = {
        **SINGLE_PARTITIONS,
        "share.coordinator.state.topic.num.partitions": "1",
        "group.share.record.lock.duration.ms": str(LOCK_MS),
    }

    def test_share_groups_in_an_outage(self) -> None:
        """Acknowledgements wait for the racks that the topic of the groups' state requires, and the group continues.

        The records and the group's members are in topics that stay writable; the state is in racks a, a, b. In an
        outage of rack b no acknowledgement is confirmed with R=2, and they are with R=1, the control. No record is
        skipped, and none is delivered again after its acknowledgement was confirmed.
        """
        # as the share coordinator creates it, on chosen replicas; R is inherited
        config = {"cleanup.policy": "delete", "retention.ms": "-1", gate.MIN_INSYNC_REPLICAS: "2"}
        state = TopicSpec(STATE.topic, AAB, config)
        topics.create(self.kafka.admin, [state, offsets_topic(ABC)])
        self.kafka.wait_log(STATE.topic, AAB)
        self.kafka.wait_log(OFFSETS, ABC)
        with self.under_load([spec(DATA, PLACED, 2, 2)], [LoadSpec(DATA, "idempotent")], also=[STATE.topic]):
            for racks in REQUIRED:
                self.require_racks(racks)
                self._outage(racks)
        self.read_final_state()
        found = self.verdicts((*NEEDS, "shares"))
        groups = share_groups(list(self.history.events()))
        pauses = {name: _longest_pause_s(group) for name, group in groups.items()}
        self.figures(
            groups={
                name: {
                    "confirmed": sum(ack.exception is None for ack in group.acknowledgements),
                    "failed": sum(ack.exception is not None for ack in group.acknowledgements),
                    "delivered again": group.again,
                    "never confirmed": len(unconfirmed(group)),
                    "longest pause between confirmed acknowledgements, s": pauses[name],
                }
                for name, group in groups.items()
            },
        )
        require_true(found)
        if not pauses["share-2"] > OUTAGE_S > pauses["share-1"]:
            raise RackgateError(f"acknowledgements must pause for the outage with R=2, and not with R=1: {pauses} s")

    def _outage(self, racks: int) -> None:
        group = f"share-{racks}"
        self._read_from_the_beginning(group)
        with self.client("share_members", DATA, "--groups", group) as (member,):
            self._confirmed(member)
            with self.fault("kill", rack=FAILED_RACK):
                topics.wait_isrs(self.kafka.admin, {STATE.topic: frozenset({1, 2}), DATA: frozenset(PLACED)})
                sleep(OUTAGE_S, f"{OUTAGE_S:g} s of outage")
            self._confirmed(member)
            # The final state of the others is a figure, not a requirement.
            with suppress(RackgateError):
                self._all_confirmed(group, member)
            topics.wait_isrs(self.kafka.admin, {STATE.topic: frozenset(AAB)})

    def _read_from_the_beginning(self, group: str) -> None:
        broker = self.kafka.brokers()[0]
        arguments = ["--alter", "--entity-type", "groups", "--entity-name", group]
        arguments += ["--add-config", "share.auto.offset.reset=earliest"]
        command = tools.command(self.kafka.classpath, "configs", arguments, broker.address)
        self.kafka.run_on(broker, shlex.join(command))

    def _confirmed(self, member: Program) -> None:
        """Wait until an acknowledgement that begins from now on is confirmed."""
        now_ns = time.monotonic_ns()
        wait_events(
            [member],
            AcknowledgementDetails,
            lambda _, event, ack: event.outcome == "ok" and ack.begun_ns > now_ns,
            [True],
            goal="a confirmed acknowledgement",
            timeout_s=2 * BOUND_S,
        )

    def _all_confirmed(self, group: str, member: Program) -> None:
        """Wait until no record that was delivered by now is without a confirmed acknowledgement."""
        member.fetch()
        waiting = unconfirmed(share_groups(list(self.history.events()))[group])

        def confirmed() -> bool:
            member.fetch()
            return not waiting & unconfirmed(share_groups(list(self.history.events()))[group])

        wait_for(confirmed, goal=f"{len(waiting)} acknowledgements", timeout_s=AGAIN_S, interval_s=2.0)


def _longest_pause_s(group: ShareGroup) -> float:
    ends_ns = sorted(ack.ended_ns for ack in group.acknowledgements if ack.exception is None)
    return round(max((later - earlier for earlier, later in pairwise(ends_ns)), default=0) / NS, 1)
