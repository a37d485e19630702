"""The benchmark's topics: the settings of an arm, and a watch over leaders and ISRs while a fault runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from confluent_kafka import KafkaException

from bench.scenarios import Arm
from pyhooks.cluster import topics
from pyhooks.cluster.topics import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, TopicSpec
from pyhooks.history import History


def spec(arm: Arm) -> TopicSpec:
    """The topic of an arm.

    ``min.insync.racks`` is left at its default where the arm does not use it, so that such an arm is what a
    topic on an unpatched Kafka is.
    """
    config = {MIN_INSYNC_REPLICAS: str(arm.min_insync_replicas)}
    if arm.min_insync_racks > 1:
        config[MIN_INSYNC_RACKS] = str(arm.min_insync_racks)
    return TopicSpec(arm.topic, tuple(arm.replicas), config)


@contextmanager
def watched(
    bootstrap: str, names: Sequence[str], racks: Mapping[int, str], history: History, *, interval_s: float
) -> Iterator[None]:
    """Notes leader, ISR and the ISR's racks of topics in the history, every ``interval_s`` seconds, during the block.

    Each look is an event of process ``isr-watch``; a look that got no answer has outcome ``unknown``.

    Args:
        bootstrap: brokers that stay.
        names: topics.
        racks: broker id to rack; ``""`` for a broker without one.
        history: where the events go.
        interval_s: pause between two looks in seconds.
    """
    stop = threading.Event()
    client = topics.admin(bootstrap)

    def look() -> None:
        while not stop.wait(interval_s):
            try:
                now = topics.states(client, names, timeout_s=topics.LOOK_S)
            except KafkaException as error:
                history.note("isr-watch", "look", "unknown", error=str(error.args[0].name()))
                continue
            seen = {
                name: asdict(state) | {"racks": sorted({racks.get(broker, "") for broker in state.isr})}
                for name, state in now.items()
            }
            history.note("isr-watch", "look", "ok", topics=seen)

    thread = threading.Thread(target=look, name="isr-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=2 * topics.LOOK_S)
