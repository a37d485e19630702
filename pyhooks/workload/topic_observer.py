"""Looks at leaders, ISRs and settings of topics while a workload runs, as events of a history.

The events are described in ``pyhooks.checkers.cluster_view``. Run it as a process, ``python -m
pyhooks.workload.topic_observer``, beside what keeps a process busy: looks that come late leave a history blind. A
SIGTERM ends it in good order.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.history.events import LOOK_PROCESS, RACKS, REPLICAS
from pyhooks.kafka import topics
from pyhooks.kafka.cluster_metadata import Asker
from pyhooks.workload import program

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Settings change seldom, and asking for them costs the brokers more than a look.
SETTINGS_EVERY = 10
# One look that gets no answer must not be a blind stretch by itself, see pyhooks.checkers.settling_times: of five
# brokers it takes 1.5 s at most.
LOOK_S = 1.3
# A question for settings is bounded by twice topics.LOOK_S, of all topics at the same time.
JOIN_S = 4 * topics.LOOK_S
SETTINGS_LOOK = "settings-look"


@contextmanager
def watched(
    bootstrap: str, names: Sequence[str], racks: Mapping[int, str], history: History, *, interval_s: float
) -> Iterator[None]:
    """Notes leaders, ISRs, placement and settings of topics in the history during the block.

    A look that got no answer has outcome ``unknown``. The first look is made before the block begins, and a last one
    after it has ended. Whatever ends the looks early is an event of outcome ``unknown`` at once, and is raised after
    the block; if the block fails, its own error is raised, and that of the looks is a note of it.

    Args:
        bootstrap: brokers; a look asks one after the other until one answers.
        names: topics.
        racks: broker id to rack, ``""`` for a broker without one, as they are until a look tells otherwise.
        history: where the events go.
        interval_s: pause between two looks in seconds.

    Raises:
        RackgateError: looking failed, or does not come to an end.
    """
    see = Watch(Asker(bootstrap), names, racks, history)
    # a client of its own: a question to a broker that is just lost would hold up the looks
    rules = SettingsWatch(topics.admin(bootstrap), names, history)
    loops = (
        _Loop(partial(_noted, see.look, history, "look"), interval_s),
        _Loop(partial(_noted, rules.ask, history, SETTINGS_LOOK), interval_s * SETTINGS_EVERY),
    )
    for loop in loops:
        loop.once()
    for loop in loops:
        loop.start()
    try:
        yield
    except BaseException as error:
        try:
            _end(loops, history)
        except Exception as second:  # noqa: BLE001 - what failed first is raised
            error.add_note(str(second))
        raise
    _end(loops, history)


class _Loop:
    """Does something at an interval, in a thread of its own.

    Args:
        once: what to do.
        interval_s: pause in between in seconds.

    Attributes:
        failed: what has ended it, if anything has.
    """

    def __init__(self, once: Callable[[], None], interval_s: float) -> None:
        self.once = once
        self.failed: BaseException | None = None
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=LOOK_PROCESS, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval_s):
                self.once()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for this one
            self.failed = error

    def start(self) -> None:
        """Begins, after a pause."""
        self._thread.start()

    def stop(self) -> None:
        """Asks it to end."""
        self._stop.set()

    def ended(self) -> bool:
        """Whether it has ended, or does so within ``JOIN_S``."""
        self._thread.join(timeout=JOIN_S)
        return not self._thread.is_alive()


def _end(loops: Sequence[_Loop], history: History) -> None:
    """Ends the looks with last ones.

    Raises:
        RackgateError: they failed, or don't come to an end.
    """
    for loop in loops:
        loop.stop()
    if not all(loop.ended() for loop in loops):
        history.note(LOOK_PROCESS, "look", "unknown", error=f"still under way after {JOIN_S:.0f} s", ended=True)
        raise RackgateError(f"looks at topics: one is still under way {JOIN_S:.0f} s after the end of the run")
    for loop in loops:
        if loop.failed is not None:
            raise RackgateError(f"looks at topics ended early: {_words(loop.failed)}") from loop.failed
        loop.once()


def _noted(once: Callable[[], None], history: History, op: str) -> None:
    """Looks or asks once; what ends that otherwise than an answer, or want of one, is noted and raised."""
    try:
        once()
    except BaseException as error:
        history.note(LOOK_PROCESS, op, "unknown", error=_words(error), ended=True)
        raise


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Watch:
    """Looks at topics and notes what it sees.

    Args:
        asker: who asks for metadata.
        names: topics.
        racks: broker id to rack, of brokers that no look has told of yet.
        history: where the events go.
    """

    def __init__(self, asker: Asker, names: Sequence[str], racks: Mapping[int, str], history: History) -> None:
        self._asker = asker
        self._names = tuple(names)
        self._racks = dict(racks)
        self._history = history

    def look(self) -> None:
        """Looks once at leaders, ISRs, placement and racks; a broker that is away has the rack that it had."""
        asked_ns = time.monotonic_ns()
        try:
            found = self._asker.ask(self._names, LOOK_S)
        except RackgateError as error:
            self._history.note(LOOK_PROCESS, "look", "unknown", error=str(error))
            return
        self._racks |= found.racks
        racks = {str(broker): rack for broker, rack in sorted(self._racks.items())}
        partitions: dict[str, dict[str, Any]] = {
            f"{topic}-{number}": {
                "leader": state.leader,
                "isr": sorted(state.isr),
                "replicas": list(state.replicas),
            }
            for (topic, number), state in sorted(found.partitions.items())
        }
        self._history.note(LOOK_PROCESS, "look", "ok", racks=racks, partitions=partitions, asked_ns=asked_ns)


class SettingsWatch:
    """Asks what topics require and notes what it is told.

    Args:
        client: an admin client.
        names: topics.
        history: where the events go.
    """

    def __init__(self, client: AdminClient, names: Sequence[str], history: History) -> None:
        self._client = client
        self._names = tuple(names)
        self._history = history

    def ask(self) -> None:
        """Asks once what the topics require."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resources = [ConfigResource(ResourceType.TOPIC, name) for name in self._names]
        asked_ns = time.monotonic_ns()
        for resource, future in self._client.describe_configs(resources, request_timeout=topics.LOOK_S).items():
            try:
                found = future.result(timeout=2 * topics.LOOK_S)
            except (KafkaException, TimeoutError) as error:
                self._history.note(LOOK_PROCESS, SETTINGS_LOOK, "unknown", topic=resource.name, error=str(error))
                continue
            # A stock Kafka does not know the second: it requires one rack, since one replica is in one.
            told: dict[str, Any] = {name: int(found[name].value) if name in found else 1 for name in (REPLICAS, RACKS)}
            told |= {"topic": resource.name, "step": "seen", "asked_ns": asked_ns}
            self._history.note(LOOK_PROCESS, "settings", "ok", **told)


def racks_of(text: str) -> dict[int, str]:
    """Broker id to rack, of ``1=a,2=a,3=b``.

    Raises:
        RackgateError: it is not like that.
    """
    found: dict[int, str] = {}
    for word in filter(None, text.split(",")):
        broker, equals, rack = word.partition("=")
        if not equals or not broker.isdecimal():
            raise RackgateError(f"--racks {text}: {word!r} is no broker=rack")
        found[int(broker)] = rack
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Looks until a SIGTERM or SIGINT comes."""
    what = "Notes leaders, ISRs, placement and settings of topics again and again."
    parser = program.on_topics("looks", what, "--racks 1=a,2=a,3=b")
    parser.add_argument("--racks", default="", help="broker=rack,… of brokers that no look has told of yet")
    parser.add_argument("--interval", type=float, default=0.5, help="pause between two looks in s (default 0.5)")
    parser.add_argument("--run", help="of no effect: looks have no records of their own")
    found = parser.parse_args(arguments)
    ended = program.told_to_end()

    def work() -> None:
        racks, names, history = racks_of(found.racks), found.topics.split(","), History(found.history)
        with watched(found.bootstrap, names, racks, history, interval_s=found.interval):
            ended.wait()

    return program.status_of(work)


if __name__ == "__main__":
    sys.exit(main())
