"""Looks at leaders, ISRs and settings of topics while a workload runs, as events of a history.

The events are described in ``pyhooks.checker.cluster``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pyhooks.checker.cluster import LOOK_PROCESS, RACKS, REPLICAS
from pyhooks.cluster import topics
from pyhooks.errors import RackgateError
from pyhooks.history import History

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Settings change seldom, and asking for them costs the brokers more than a look.
SETTINGS_EVERY = 10
# One look that gets no answer must not be a blind stretch by itself, see pyhooks.checker.settling.
LOOK_S = 1.5
# Less than that: else the look after one that a cut has silenced would be put to the same broker, and two are blind.
SILENCE_MS = 1000
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
        bootstrap: brokers that stay.
        names: topics.
        racks: broker id to rack; ``""`` for a broker without one.
        history: where the events go.
        interval_s: pause between two looks in seconds.

    Raises:
        RackgateError: looking failed, or does not come to an end.
    """
    # Two clients, since a question to a broker that is just lost would hold up the looks.
    see = Watch(topics.admin(bootstrap, SILENCE_MS), names, racks, history)
    ask = Watch(topics.admin(bootstrap), names, racks, history)
    loops = (
        _Loop(partial(_noted, see.look, history, "look"), interval_s),
        _Loop(partial(_noted, ask.ask, history, SETTINGS_LOOK), interval_s * SETTINGS_EVERY),
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
        client: an admin client.
        names: topics.
        racks: broker id to rack.
        history: where the events go.
    """

    def __init__(self, client: AdminClient, names: Sequence[str], racks: Mapping[int, str], history: History) -> None:
        self._client = client
        self._names = tuple(names)
        self._racks = {str(broker): rack for broker, rack in sorted(racks.items())}
        self._history = history

    def look(self) -> None:
        """Looks once at leaders, ISRs and placement."""
        from confluent_kafka import KafkaException

        asked_ns = time.monotonic_ns()
        try:
            found = self._client.list_topics(timeout=LOOK_S).topics
        except KafkaException as error:
            self._history.note(LOOK_PROCESS, "look", "unknown", error=str(error.args[0].name()))
            return
        partitions: dict[str, dict[str, Any]] = {}
        for name in self._names:
            if name not in found or found[name].error is not None:
                continue
            for number, state in sorted(found[name].partitions.items()):
                partitions[f"{name}-{number}"] = {
                    "leader": int(state.leader),
                    "isr": sorted(map(int, state.isrs)),
                    "replicas": [int(broker) for broker in state.replicas],
                }
        self._history.note(LOOK_PROCESS, "look", "ok", racks=self._racks, partitions=partitions, asked_ns=asked_ns)

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
