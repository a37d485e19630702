"""Consumer group members as a process: each polls, commits what it has read, and notes its group's activity.

The events have subclasses of ``MemberDetails``; a run has one member in each group. A commit begins ``COMMIT_S`` after
the previous one has ended, if anything was read since the member joined. Fetches are recorded at most every
``FETCH_S``.

SIGTERM makes all members leave and ends the process.
"""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TypedDict

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.history.events import (
    AssignmentDetails,
    CommitDetails,
    FetchDetails,
    JoinDetails,
    LeaveDetails,
    MemberPollFailureDetails,
)
from pyhooks.history.outcomes import ERRORS, REBALANCING
from pyhooks.jvm.consumer import TopicPartition
from pyhooks.jvm.group_member import PROTOCOLS, GroupMember, MemberPoll, RebalanceCallbacks
from pyhooks.jvm.java_exception import JavaError
from pyhooks.workload import program

POLL_S = 0.2
FETCH_S = 0.5
COMMIT_S = 1.0
# pause after a failed poll
PAUSE_S = 0.5
# Errors for a member that the group does not have, or not in this generation: nothing was committed.
REJECTED = REBALANCING | {f"{ERRORS}.FencedInstanceIdException", f"{ERRORS}.FencedMemberEpochException"}


@dataclass(frozen=True)
class Membership:
    """Membership in a group."""

    group: str
    protocol: str  # one of ``PROTOCOLS``


class _Identity(TypedDict):
    run: str
    group: str
    protocol: str


class MemberRun:
    """One group member, run by its own thread.

    Args:
        membership: group and protocol.
        bootstrap: value of ``bootstrap.servers``.
        topics: topics to read.
        history: history to append to.
        run: name of the run.
    """

    def __init__(
        self, membership: Membership, bootstrap: str, topics: Sequence[str], history: History, run: str
    ) -> None:
        self.stop = threading.Event()
        self._membership, self._topics, self._history, self._run = membership, topics, history, run
        self._java = GroupMember(bootstrap, membership.group, membership.protocol)
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._next: dict[TopicPartition, int] = {}
        self._count, self._since_ns = 0, time.monotonic_ns()
        # first offset received from each partition since the last ``fetch`` event
        self._first_offsets: dict[TopicPartition, int] = {}
        self._pending_commit: tuple[int, dict[TopicPartition, int]] | None = None
        self._due_s = 0.0

    @property
    def _self(self) -> _Identity:
        return {"run": self._run, "group": self._membership.group, "protocol": self._membership.protocol}

    def run(self) -> None:
        """Poll and commit until ``stop`` is set, then leave the group."""
        callbacks = RebalanceCallbacks(self._assigned, self._revoked, self._lost)
        self._history.add(JoinDetails(**self._self))
        self._java.subscribe(self._topics, callbacks)
        while not self.stop.is_set():
            try:
                self._count_received(self._java.poll(POLL_S))
                if self._pending_commit is None and time.monotonic() >= self._due_s:
                    self._commit()
            except JavaError as error:
                failure = MemberPollFailureDetails(**self._self, exception=error.java_class, message=error.text)
                self._history.add(failure, "unknown")
                self.stop.wait(PAUSE_S)
        self._note_fetched()
        self._leave()

    # -- the group --------------------------------------------------------------------------------------------------

    def _assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._assignment |= partitions
        self._changed("assigned", partitions)

    def _revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._remove("revoked", partitions)

    def _lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._remove("lost", partitions)

    def _remove(self, op: str, partitions: frozenset[TopicPartition]) -> None:
        self._note_fetched()
        self._assignment -= partitions
        self._next = {partition: offset for partition, offset in self._next.items() if partition not in partitions}
        self._changed(op, partitions)

    def _changed(self, op: str, partitions: frozenset[TopicPartition]) -> None:
        details = AssignmentDetails(**self._self, partitions=_names(partitions), now=_names(self._assignment))
        self._history.add(details, op=op)

    def _leave(self) -> None:
        begun_ns = time.monotonic_ns()
        failure: JavaError | None = None
        try:
            self._java.close()
        except JavaError as error:
            failure = error
        if self._pending_commit is not None:
            self._committed(*self._pending_commit, JavaError(["not-reported"], "the member ended"))
        details = LeaveDetails(
            **self._self,
            begun_ns=begun_ns,
            latency_ms=_ms(begun_ns),
            exception=failure.java_class if failure else None,
            message=failure.text if failure else None,
        )
        self._history.add(details, "unknown" if failure else "ok")

    # -- records and commits ----------------------------------------------------------------------------------------

    def _count_received(self, polled: dict[TopicPartition, MemberPoll]) -> None:
        for partition, received in polled.items():
            self._count += received.count
            self._next[partition] = received.next
            self._first_offsets.setdefault(partition, received.first)
        if time.monotonic_ns() - self._since_ns >= FETCH_S * 1e9:
            self._note_fetched()

    def _note_fetched(self) -> None:
        if self._first_offsets:
            owned = [partition for partition in sorted(self._first_offsets) if partition in self._next]
            after = {_name(partition): self._next[partition] for partition in owned}
            first = {_name(partition): self._first_offsets[partition] for partition in owned}
            self._history.add(
                FetchDetails(**self._self, count=self._count, next=after, from_ns=self._since_ns, first=first)
            )
        self._first_offsets, self._count, self._since_ns = {}, 0, time.monotonic_ns()

    def _commit(self) -> None:
        offsets = {partition: offset for partition, offset in self._next.items() if partition in self._assignment}
        if not offsets:
            return
        begun_ns = time.monotonic_ns()
        self._pending_commit = (begun_ns, offsets)
        try:
            self._java.commit(offsets, lambda error: self._committed(begun_ns, offsets, error))
        except JavaError as error:
            self._committed(begun_ns, offsets, error)

    def _committed(self, begun_ns: int, offsets: dict[TopicPartition, int], error: JavaError | None) -> None:
        if self._pending_commit is None or self._pending_commit[0] != begun_ns:
            return
        self._pending_commit, self._due_s = None, time.monotonic() + COMMIT_S
        details = CommitDetails(
            **self._self,
            begun_ns=begun_ns,
            latency_ms=_ms(begun_ns),
            offsets={_name(partition): offset for partition, offset in sorted(offsets.items())},
            exception=error.java_class if error else None,
            message=error.text if error else None,
            retriable=error.retriable if error else None,
        )
        rejected = error is not None and error.java_class in REJECTED
        self._history.add(details, "ok" if error is None else "fail" if rejected else "unknown")


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.number}"


def _names(partitions: frozenset[TopicPartition]) -> tuple[str, ...]:
    return tuple(map(_name, sorted(partitions)))


def _ms(begun_ns: int) -> float:
    return round((time.monotonic_ns() - begun_ns) / 1e6, 3)


def parse_memberships(text: str) -> list[Membership]:
    """Parse ``name:protocol,…``.

    Raises:
        RackgateError: the text is malformed, a protocol is unknown, or a group is repeated.
    """
    memberships = []
    for part in text.split(","):
        group, _, protocol = part.partition(":")
        if not group or protocol not in PROTOCOLS:
            raise RackgateError(f"--groups {part!r}: name:protocol, protocols are {', '.join(PROTOCOLS)}")
        memberships.append(Membership(group, protocol))
    if len({membership.group for membership in memberships}) < len(memberships):
        raise RackgateError(f"--groups {text}: duplicate group: a process has one member in a group")
    return memberships


def _run(members: Sequence[MemberRun]) -> None:
    """Run all members to their ends.

    Raises:
        Exception: first error of a member; the others were stopped.
    """
    with ThreadPoolExecutor(len(members)) as pool:
        runs = [pool.submit(member.run) for member in members]
        for run in as_completed(runs):
            if run.exception() is not None:
                for member in members:
                    member.stop.set()
                run.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run members as a process; SIGTERM or SIGINT makes them leave."""
    parser = program.topics_parser(
        "group_members",
        "Run one member in each of several consumer groups and write their groups' activity.",
        "--groups eager:classic,g:consumer --run member-1",
    )
    parser.add_argument("--groups", required=True, help=f"name:protocol,… with protocols {', '.join(PROTOCOLS)}")
    parser.add_argument("--run", required=True, help="run name in its events")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        history, topics = History(options.history), options.topics.split(",")
        members = [
            MemberRun(membership, options.bootstrap, topics, history, options.run)
            for membership in parse_memberships(options.groups)
        ]
        with ended.linked(*(member.stop for member in members)):
            _run(members)

    return program.run(parser, work, arguments, JavaError)


if __name__ == "__main__":
    sys.exit(main())
