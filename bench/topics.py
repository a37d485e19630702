"""The benchmark's topics: the settings of an arm."""

from __future__ import annotations

from bench.scenarios import Arm
from pyhooks.cluster.topics import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, TopicSpec


def spec(arm: Arm) -> TopicSpec:
    """The topic of an arm.

    ``min.insync.racks`` is left at its default where the arm does not use it, so that such an arm is what a
    topic on an unpatched Kafka is.
    """
    config = {MIN_INSYNC_REPLICAS: str(arm.min_insync_replicas)}
    if arm.min_insync_racks > 1:
        config[MIN_INSYNC_RACKS] = str(arm.min_insync_racks)
    return TopicSpec(arm.topic, tuple(arm.replicas), config)
