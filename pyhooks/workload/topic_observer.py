"""Observer of leaders, ISRs and settings of topics during a workload, as history events.

The events have ``ObservationDetails``, ``ObservationFailureDetails`` and ``SettingsDetails``. If the test keeps its own
process busy, run the observer as a separate process, ``python -m pyhooks.workload.topic_observer``: late observations
leave gaps in the history. SIGTERM ends it cleanly.
"""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.history.events import (
    OBSERVER,
    ObservationDetails,
    ObservationFailureDetails,
    ObservedPartition,
    SettingsDetails,
)
from pyhooks.kafka import topics
from pyhooks.kafka.cluster_metadata import MetadataClient
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS
from pyhooks.workload import program

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Settings change rarely, and reading them costs the brokers more than an observation.
SETTINGS_EVERY = 10
# A single failed observation must not create a gap by itself: see BLIND_S in pyhooks.checkers.settling_times. It takes
# at most 1.5 s with five brokers.
OBSERVATION_S = 1.3
# A settings request is bounded by twice topics.QUERY_S, for all topics concurrently.
JOIN_S = 4 * topics.QUERY_S
SETTINGS_OBSERVATION = "settings-look"


@contextmanager
def observe_topics(
    bootstrap: str, names: Sequence[str], racks: Mapping[int, str], history: History, *, interval_s: float
) -> Iterator[None]:
    """Note leaders, ISRs, placement and settings of topics in the history during the block.

    An observation without a response has outcome ``unknown``. The first observation is made before the block, the
    last one after it. An unexpected error ends the observations with an event of outcome ``unknown`` and is raised
    after the block. If the block itself fails, its error is raised, with the observer's error attached as a note.

    Args:
        bootstrap: brokers; an observation queries one after the other until one responds.
        names: topic names.
        racks: initial broker id to rack, ``""`` for a broker without one; observations update it.
        history: history to append to.
        interval_s: pause between two observations in seconds.

    Raises:
        RackgateError: observing failed or does not end.
    """
    metadata = MetadataObserver(MetadataClient(bootstrap), names, racks, history)
    # A separate client: a request to a broker that was just lost would delay the observations.
    settings = SettingsObserver(topics.admin(bootstrap), names, history)
    loops = (
        _PeriodicThread(partial(_note_errors, metadata.observe, history, "look"), interval_s),
        _PeriodicThread(
            partial(_note_errors, settings.observe, history, SETTINGS_OBSERVATION), interval_s * SETTINGS_EVERY
        ),
    )
    for loop in loops:
        loop.once()
    for loop in loops:
        loop.start()
    try:
        yield
    except BaseException as error:
        try:
            _stop_all(loops, history)
        except Exception as second:  # noqa: BLE001 - what failed first is raised
            error.add_note(str(second))
        raise
    _stop_all(loops, history)


class _PeriodicThread:
    """Periodic task in its own thread.

    Args:
        once: the task.
        interval_s: pause between two runs in seconds.
    """

    def __init__(self, once: Callable[[], None], interval_s: float) -> None:
        self.once = once
        self.failed: BaseException | None = None  # exception that ended the loop
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=OBSERVER, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval_s):
                self.once()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for this one
            self.failed = error

    def start(self) -> None:
        """Start the thread; the first run follows after a pause."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the loop."""
        self._stop.set()

    def wait_ended(self) -> bool:
        """Wait for at most ``JOIN_S`` and return whether the loop has ended."""
        self._thread.join(timeout=JOIN_S)
        return not self._thread.is_alive()


def _stop_all(loops: Sequence[_PeriodicThread], history: History) -> None:
    """Stop the loops and make a last observation of each.

    Raises:
        RackgateError: a loop failed or does not end.
    """
    for loop in loops:
        loop.stop()
    if not all(loop.wait_ended() for loop in loops):
        error = f"still running after {JOIN_S:.0f} s"
        history.add(ObservationFailureDetails(error=error, ended=True), "unknown", op="look")
        raise RackgateError(f"observing topics: an observation still runs {JOIN_S:.0f} s after the end of the run")
    for loop in loops:
        if loop.failed is not None:
            raise RackgateError(f"observing topics ended early: {_text(loop.failed)}") from loop.failed
        loop.once()


def _note_errors(once: Callable[[], None], history: History, op: str) -> None:
    """Make one observation; note and re-raise any error other than a failed request."""
    try:
        once()
    except BaseException as error:
        history.add(ObservationFailureDetails(error=_text(error), ended=True), "unknown", op=op)
        raise


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class MetadataObserver:
    """Observer of the metadata of topics.

    Args:
        client: client for metadata requests.
        names: topic names.
        racks: broker id to rack, for brokers not observed yet.
        history: history to append to.
    """

    def __init__(
        self, client: MetadataClient, names: Sequence[str], racks: Mapping[int, str], history: History
    ) -> None:
        self._client, self._history = client, history
        self._names, self._racks = tuple(names), dict(racks)

    def observe(self) -> None:
        """Note leaders, ISRs, placement and racks once; an unavailable broker keeps its last known rack."""
        asked_ns = time.monotonic_ns()
        try:
            metadata = self._client.query(self._names, OBSERVATION_S)
        except RackgateError as error:
            self._history.add(ObservationFailureDetails(error=str(error)), "unknown", op="look")
            return
        self._racks |= metadata.racks
        partitions = {
            f"{topic}-{number}": ObservedPartition(
                leader=state.leader, isr=tuple(sorted(state.isr)), replicas=tuple(state.replicas)
            )
            for (topic, number), state in sorted(metadata.partitions.items())
        }
        racks = dict(sorted(self._racks.items()))
        self._history.add(ObservationDetails(racks=racks, partitions=partitions, asked_ns=asked_ns), "ok")


class SettingsObserver:
    """Observer of the settings of topics.

    Args:
        client: admin client.
        names: topic names.
        history: history to append to.
    """

    def __init__(self, client: AdminClient, names: Sequence[str], history: History) -> None:
        self._client, self._names, self._history = client, tuple(names), history

    def observe(self) -> None:
        """Note the current settings of the topics once."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resources = [ConfigResource(ResourceType.TOPIC, name) for name in self._names]
        asked_ns = time.monotonic_ns()
        for resource, future in self._client.describe_configs(resources, request_timeout=topics.QUERY_S).items():
            try:
                found = future.result(timeout=2 * topics.QUERY_S)
            except (KafkaException, TimeoutError) as error:
                failure = ObservationFailureDetails(topic=resource.name, error=str(error))
                self._history.add(failure, "unknown", op=SETTINGS_OBSERVATION)
                continue
            # Stock Kafka lacks min.insync.racks; it effectively requires one rack, since any replica is in one.
            replicas, racks = (
                int(found[name].value) if name in found else 1 for name in (MIN_INSYNC_REPLICAS, MIN_INSYNC_RACKS)
            )
            settings = SettingsDetails(
                topic=resource.name, step="seen", min_replicas=replicas, min_racks=racks, asked_ns=asked_ns
            )
            self._history.add(settings, "ok", process=OBSERVER)


def parse_racks(text: str) -> dict[int, str]:
    """Parse ``1=a,2=a,3=b`` into broker id to rack.

    Raises:
        RackgateError: the text is malformed.
    """
    rack_by_broker: dict[int, str] = {}
    for entry in filter(None, text.split(",")):
        broker, equals, rack = entry.partition("=")
        if not equals or not broker.isdecimal():
            raise RackgateError(f"--racks {text}: {entry!r}: expected broker=rack")
        rack_by_broker[int(broker)] = rack
    return rack_by_broker


def main(arguments: Sequence[str] | None = None) -> int:
    """Observe topics until SIGTERM or SIGINT."""
    parser = program.topics_parser(
        "topic_observer", "Repeatedly note leaders, ISRs, placement and settings of topics.", "--racks 1=a,2=a,3=b"
    )
    parser.add_argument("--racks", default="", help="broker=rack,… of brokers not observed yet")
    parser.add_argument("--interval", type=float, default=0.5, help="pause between two observations in s (default 0.5)")
    parser.add_argument("--run", help="ignored: observations have no records")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        racks, names, history = parse_racks(options.racks), options.topics.split(","), History(options.history)
        with observe_topics(options.bootstrap, names, racks, history, interval_s=options.interval):
            ended.wait()

    return program.run(parser, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
