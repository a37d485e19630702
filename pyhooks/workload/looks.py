"""Looks at leaders, ISRs and settings of topics while a workload runs, as events of a history.

The events are described in ``pyhooks.checker.cluster``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyhooks.checker.cluster import LOOK_PROCESS, RACKS, REPLICAS
from pyhooks.cluster import topics
from pyhooks.errors import RackgateError
from pyhooks.history import History

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Settings change seldom, and asking for them costs the brokers more than a look.
SETTINGS_EVERY = 10
# A look is bounded by LOOK_S, and by twice that for each topic's settings, which are asked for at the same time.
JOIN_S = 4 * topics.LOOK_S


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
    stop = threading.Event()
    watch = Watch(topics.admin(bootstrap), names, racks, history)
    failed: list[BaseException] = []

    def run() -> None:
        number = 1
        try:
            while not stop.wait(interval_s):
                _look(watch, history, settings=number % SETTINGS_EVERY == 0)
                number += 1
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for this one
            failed.append(error)

    _look(watch, history, settings=True)
    thread = threading.Thread(target=run, name=LOOK_PROCESS, daemon=True)
    thread.start()
    try:
        yield
    except BaseException as error:
        try:
            _end(stop, thread, watch, history, failed)
        except Exception as second:  # noqa: BLE001 - what failed first is raised
            error.add_note(str(second))
        raise
    _end(stop, thread, watch, history, failed)


def _end(
    stop: threading.Event, thread: threading.Thread, watch: Watch, history: History, failed: Sequence[BaseException]
) -> None:
    """Ends the looks with a last one.

    Raises:
        RackgateError: they failed, or don't come to an end.
    """
    stop.set()
    thread.join(timeout=JOIN_S)
    if thread.is_alive():
        history.note(LOOK_PROCESS, "look", "unknown", error=f"still under way after {JOIN_S:.0f} s", ended=True)
        raise RackgateError(f"looks at topics: one is still under way {JOIN_S:.0f} s after the end of the run")
    if failed:
        raise RackgateError(f"looks at topics ended early: {_words(failed[0])}") from failed[0]
    _look(watch, history, settings=True)


def _look(watch: Watch, history: History, *, settings: bool) -> None:
    """Looks once; what ends that otherwise than an answer, or want of one, is noted and raised."""
    try:
        watch.look(settings=settings)
    except BaseException as error:
        history.note(LOOK_PROCESS, "look", "unknown", error=_words(error), ended=True)
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

    def look(self, *, settings: bool) -> None:
        """Looks once, and asks for the settings too if wanted."""
        from confluent_kafka import KafkaException

        asked_ns = time.monotonic_ns()
        try:
            found = self._client.list_topics(timeout=topics.LOOK_S).topics
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
        if settings:
            self._ask()

    def _ask(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resources = [ConfigResource(ResourceType.TOPIC, name) for name in self._names]
        asked_ns = time.monotonic_ns()
        for resource, future in self._client.describe_configs(resources, request_timeout=topics.LOOK_S).items():
            try:
                found = future.result(timeout=2 * topics.LOOK_S)
            except (KafkaException, TimeoutError) as error:
                self._history.note(LOOK_PROCESS, "settings-look", "unknown", topic=resource.name, error=str(error))
                continue
            # A stock Kafka does not know the second: it requires one rack, since one replica is in one.
            told: dict[str, Any] = {name: int(found[name].value) if name in found else 1 for name in (REPLICAS, RACKS)}
            told |= {"topic": resource.name, "step": "seen", "asked_ns": asked_ns}
            self._history.note(LOOK_PROCESS, "settings", "ok", **told)
