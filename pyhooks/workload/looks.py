"""Looks at leaders, ISRs and settings of topics while a workload runs, as events of a history.

The events are described in ``pyhooks.checker.cluster``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyhooks.checker.cluster import LOOK_PROCESS, RACKS, REPLICAS
from pyhooks.cluster import topics
from pyhooks.history import History

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Settings change seldom, and asking for them costs the brokers more than a look.
SETTINGS_EVERY = 10


@contextmanager
def watched(
    bootstrap: str, names: Sequence[str], racks: Mapping[int, str], history: History, *, interval_s: float
) -> Iterator[None]:
    """Notes leaders, ISRs, placement and settings of topics in the history during the block.

    A look that got no answer has outcome ``unknown``. The first look is made before the block begins, and a last one
    after it has ended.

    Args:
        bootstrap: brokers that stay.
        names: topics.
        racks: broker id to rack; ``""`` for a broker without one.
        history: where the events go.
        interval_s: pause between two looks in seconds.
    """
    stop = threading.Event()
    watch = Watch(topics.admin(bootstrap), names, racks, history)

    def run() -> None:
        number = 1
        while not stop.wait(interval_s):
            watch.look(settings=number % SETTINGS_EVERY == 0)
            number += 1

    watch.look(settings=True)
    thread = threading.Thread(target=run, name=LOOK_PROCESS, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=2 * topics.LOOK_S)
        watch.look(settings=True)


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
        self._history.note(LOOK_PROCESS, "look", "ok", racks=self._racks, partitions=partitions)
        if settings:
            self._ask()

    def _ask(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resources = [ConfigResource(ResourceType.TOPIC, name) for name in self._names]
        for resource, future in self._client.describe_configs(resources, request_timeout=topics.LOOK_S).items():
            try:
                found = future.result(timeout=2 * topics.LOOK_S)
            except (KafkaException, TimeoutError) as error:
                self._history.note(LOOK_PROCESS, "settings-look", "unknown", topic=resource.name, error=str(error))
                continue
            # A stock Kafka does not know the second: it requires one rack, since one replica is in one.
            told: dict[str, Any] = {name: int(found[name].value) if name in found else 1 for name in (REPLICAS, RACKS)}
            self._history.note(LOOK_PROCESS, "settings", "ok", topic=resource.name, step="seen", **told)
