"""Consumer group members as a process: each polls, commits what it has read, and notes its group's activity.

Events of process ``member``, ``data`` always with ``{run, group, protocol}``; a run has one member in each group:

* ``join``, ``info``: it has started to join the group.
* ``assigned``, ``revoked`` and ``lost``, ``info``: ``{partitions, now}``, the partitions of the event and
  the whole assignment after it, as ``topic-number``.
* ``fetch``, ``info``, at most every ``FETCH_S``: ``{count, next, from_ns, first}``, the number of records received
  since ``from_ns``, and for each of their partitions the offset of the next record and that of the first of them.
* ``commit``, when a commit has ended: ``{begun_ns, latency_ms, offsets}`` and, if it failed, ``{exception, message,
  retriable}``. ``ok``: committed; ``fail``: certainly not, the coordinator rejected a member of an old generation;
  ``unknown``: neither is certain. A commit begins ``COMMIT_S`` after the previous one has ended, if anything was
  read since the member joined. One without a response is ``unknown`` with the exception ``not-reported``.
* ``poll``, ``unknown``: ``{exception, message}``, a poll that failed; the member continues.
* ``leave``: ``{begun_ns, latency_ms}``, it has left; ``unknown`` with an exception if it could not leave cleanly.

SIGTERM makes all members leave and ends the process.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History, Outcome
from pyhooks.history.outcomes import ERRORS, REBALANCING
from pyhooks.jvm.consumer import Partition
from pyhooks.jvm.group_member import PROTOCOLS, GroupMember, Heard, Polled
from pyhooks.jvm.java_exception import JavaError
from pyhooks.workload import program

PROCESS = "member"
POLL_S = 0.2
FETCH_S = 0.5
COMMIT_S = 1.0
# pause after a failed poll
PAUSE_S = 0.5
# Errors for a member that the group does not have, or not in this generation: nothing was committed.
REFUSED = REBALANCING | {f"{ERRORS}.FencedInstanceIdException", f"{ERRORS}.FencedMemberEpochException"}


@dataclass(frozen=True)
class Seat:
    """Membership in a group.

    Attributes:
        group: group id.
        protocol: one of ``PROTOCOLS``.
    """

    group: str
    protocol: str


class Member:
    """One group member, run by its own thread.

    Args:
        seat: group and protocol.
        bootstrap: value of ``bootstrap.servers``.
        topics: topics to read.
        history: history to append to.
        run: name of the run.
    """

    def __init__(self, seat: Seat, bootstrap: str, topics: Sequence[str], history: History, run: str) -> None:
        self.stop = threading.Event()
        self._seat, self._topics, self._history, self._run = seat, topics, history, run
        self._java = GroupMember(bootstrap, seat.group, seat.protocol)
        self._has: frozenset[Partition] = frozenset()
        self._next: dict[Partition, int] = {}
        self._count, self._since_ns = 0, time.monotonic_ns()
        # first offset received from each partition since the last ``fetch`` event
        self._news: dict[Partition, int] = {}
        self._open: tuple[int, dict[Partition, int]] | None = None
        self._due_s = 0.0

    def _note(self, op: str, outcome: Outcome = "info", **more: Any) -> None:
        about = {"run": self._run, "group": self._seat.group, "protocol": self._seat.protocol}
        self._history.append(Event.now(PROCESS, op, outcome, **about, **more))

    def run(self) -> None:
        """Poll and commit until ``stop`` is set, then leave the group."""
        heard = Heard(self._assigned, self._revoked, self._lost)
        self._note("join")
        self._java.subscribe(self._topics, heard)
        while not self.stop.is_set():
            try:
                self._took(self._java.poll(POLL_S))
                if self._open is None and time.monotonic() >= self._due_s:
                    self._commit()
            except JavaError as error:
                self._note("poll", "unknown", exception=error.java_class, message=error.text)
                self.stop.wait(PAUSE_S)
        self._tell_fetched()
        self._leave()

    # -- the group --------------------------------------------------------------------------------------------------

    def _assigned(self, partitions: frozenset[Partition]) -> None:
        self._has |= partitions
        self._changed("assigned", partitions)

    def _revoked(self, partitions: frozenset[Partition]) -> None:
        self._gone("revoked", partitions)

    def _lost(self, partitions: frozenset[Partition]) -> None:
        self._gone("lost", partitions)

    def _gone(self, op: str, partitions: frozenset[Partition]) -> None:
        self._tell_fetched()
        self._has -= partitions
        self._next = {place: offset for place, offset in self._next.items() if place not in partitions}
        self._changed(op, partitions)

    def _changed(self, op: str, partitions: frozenset[Partition]) -> None:
        self._note(op, partitions=_names(partitions), now=_names(self._has))

    def _leave(self) -> None:
        begun_ns = time.monotonic_ns()
        outcome: Outcome = "ok"
        told: dict[str, Any] = {}
        try:
            self._java.close()
        except JavaError as error:
            outcome, told = "unknown", {"exception": error.java_class, "message": error.text}
        if self._open is not None:
            self._committed(*self._open, JavaError("not-reported", "the member ended", retriable=False))
        self._note("leave", outcome, begun_ns=begun_ns, latency_ms=_ms(begun_ns), **told)

    # -- records and commits ----------------------------------------------------------------------------------------

    def _took(self, polled: dict[Partition, Polled]) -> None:
        for place, one in polled.items():
            self._count += one.count
            self._next[place] = one.next
            self._news.setdefault(place, one.first)
        if time.monotonic_ns() - self._since_ns >= FETCH_S * 1e9:
            self._tell_fetched()

    def _tell_fetched(self) -> None:
        if self._news:
            own = [one for one in sorted(self._news) if one in self._next]
            after = {f"{one.topic}-{one.number}": self._next[one] for one in own}
            first = {f"{one.topic}-{one.number}": self._news[one] for one in own}
            self._note("fetch", count=self._count, next=after, from_ns=self._since_ns, first=first)
        self._news, self._count, self._since_ns = {}, 0, time.monotonic_ns()

    def _commit(self) -> None:
        offsets = {place: offset for place, offset in self._next.items() if place in self._has}
        if not offsets:
            return
        begun_ns = time.monotonic_ns()
        self._open = (begun_ns, offsets)
        try:
            self._java.commit(offsets, lambda error: self._committed(begun_ns, offsets, error))
        except JavaError as error:
            self._committed(begun_ns, offsets, error)

    def _committed(self, begun_ns: int, offsets: dict[Partition, int], error: JavaError | None) -> None:
        if self._open is None or self._open[0] != begun_ns:
            return
        self._open, self._due_s = None, time.monotonic() + COMMIT_S
        told: dict[str, Any] = {"begun_ns": begun_ns, "latency_ms": _ms(begun_ns)}
        told["offsets"] = {f"{place.topic}-{place.number}": offset for place, offset in sorted(offsets.items())}
        if error is None:
            self._note("commit", "ok", **told)
            return
        told |= {"exception": error.java_class, "message": error.text, "retriable": error.retriable}
        self._note("commit", "fail" if error.java_class in REFUSED else "unknown", **told)


def _names(partitions: frozenset[Partition]) -> list[str]:
    return [f"{place.topic}-{place.number}" for place in sorted(partitions)]


def _ms(begun_ns: int) -> float:
    return round((time.monotonic_ns() - begun_ns) / 1e6, 3)


def seats(text: str) -> list[Seat]:
    """Parse ``name:protocol,…``.

    Raises:
        RackgateError: the text is malformed, a protocol is unknown, or a group is repeated.
    """
    found = []
    for part in text.split(","):
        group, _, protocol = part.partition(":")
        if not group or protocol not in PROTOCOLS:
            raise RackgateError(f"--groups {part!r}: name:protocol, protocols are {', '.join(PROTOCOLS)}")
        found.append(Seat(group, protocol))
    if len({one.group for one in found}) < len(found):
        raise RackgateError(f"--groups {text}: each group once, a process has one member in it")
    return found


def _run(members: Sequence[Member]) -> None:
    """Run all members to their ends.

    Raises:
        Exception: first error of a member; the others were stopped.
    """
    errors: list[BaseException] = []

    def guarded(one: Member) -> None:
        try:
            one.run()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            errors.append(error)
            for other in members:
                other.stop.set()

    threads = [threading.Thread(target=guarded, args=(one,)) for one in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run members as a process; SIGTERM or SIGINT makes them leave."""
    what = "Members of consumer groups, one in each, that poll, commit and write down what their group does."
    parser = program.on_topics("group_members", what, "--groups eager:classic,g:consumer --run member-1")
    parser.add_argument("--groups", required=True, help=f"name:protocol,… with protocols {', '.join(PROTOCOLS)}")
    parser.add_argument("--run", required=True, help="by which its events are known")
    found = parser.parse_args(arguments)
    ended = program.told_to_end()

    def work() -> None:
        history, topics = History(found.history), found.topics.split(",")
        members = [Member(seat, found.bootstrap, topics, history, found.run) for seat in seats(found.groups)]
        with ended.sets(*(one.stop for one in members)):
            _run(members)

    return program.status_of(work, JavaError)


if __name__ == "__main__":
    sys.exit(main())
