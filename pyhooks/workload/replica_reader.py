"""Reader that asks every replica of topics, leaders and followers, for the records that it shows to consumers.

The events have ``ReplicaReadDetails``, one for each broker and round. SIGTERM ends the reader after its current round.
"""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.history.events import ReplicaReadDetails
from pyhooks.kafka import replica_fetch, wire_protocol
from pyhooks.kafka.cluster_metadata import MetadataClient
from pyhooks.workload import program

PROCESS = "replica-reader"
INTERVAL_S = 0.5
# An unavailable broker must not delay the reads of others longer than checkers allow for an observation.
REQUEST_S = 1.0
METADATA_S = 20.0

Offsets = dict[tuple[str, int], int]


class ReplicaReader:
    """Reader of all replicas, in rounds.

    Args:
        addresses: address of each broker by id.
        replicas: the partitions of which each broker has a replica.
        history: history to append to.
        run: name of the reader.
    """

    def __init__(
        self,
        addresses: Mapping[int, tuple[str, int]],
        replicas: Mapping[int, Sequence[tuple[str, int]]],
        history: History,
        run: str,
    ) -> None:
        self._addresses, self._history, self._run = addresses, history, run
        self._next: dict[int, Offsets] = {broker: dict.fromkeys(own, 0) for broker, own in replicas.items()}

    def read_round(self) -> None:
        """Read from each broker what it shows, and note it."""
        for broker, offsets in self._next.items():
            self._read(broker, offsets)

    def _read(self, broker: int, offsets: Offsets) -> None:
        asked_ns = time.monotonic_ns()
        found: dict[str, tuple[int, int]] = {}
        errors: dict[str, str] = {}
        try:
            fetched = replica_fetch.fetch(self._addresses[broker], offsets, REQUEST_S)
        except RackgateError as error:
            fetched, errors[""] = {}, str(error)
        for partition, one in fetched.items():
            name = f"{partition[0]}-{partition[1]}"
            if one.error:
                errors[name] = f"error code {one.error}"
            else:
                offsets[partition] = one.next
                found[name] = one.next, one.high
        details = ReplicaReadDetails(
            run=self._run,
            broker=broker,
            asked_ns=asked_ns,
            next={name: after for name, (after, _) in found.items()},
            high={name: high for name, (_, high) in found.items()},
            errors=errors or None,
        )
        complete = len(found) == len(offsets)
        self._history.add(details, "ok" if complete else "unknown", process=PROCESS)


def replicas_of(bootstrap: str, topics: Sequence[str]) -> dict[int, list[tuple[str, int]]]:
    """Return the partitions of topics by the brokers that have a replica.

    Raises:
        RackgateError: no broker responds, or a topic does not exist.
    """
    metadata = MetadataClient(bootstrap).query(topics, METADATA_S)
    found: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for partition, state in sorted(metadata.partitions.items()):
        for broker in state.replicas:
            found[broker].append(partition)
    if missing := set(topics) - {topic for topic, _ in metadata.partitions}:
        raise RackgateError(f"topic {min(missing)}: does not exist")
    return dict(found)


def addresses_of(text: str) -> dict[int, tuple[str, int]]:
    """Parse ``id=host:port,…``.

    Raises:
        RackgateError: the text is malformed.
    """
    found = {}
    for part in text.split(","):
        broker, equals, address = part.partition("=")
        if not equals or not broker.isdigit():
            raise RackgateError(f"--brokers {part!r}: must be id=host:port")
        found[int(broker)] = wire_protocol.address(address)
    return found


def read_rounds(reader: ReplicaReader, stop: threading.Event) -> None:
    """Note rounds until ``stop`` is set, at least one, and one more after the stop."""
    stopped = False
    while not stopped:
        stopped = stop.wait(INTERVAL_S)
        reader.read_round()


def main(arguments: Sequence[str] | None = None) -> int:
    """Read topics as a process."""
    parser = program.topics_parser(
        "replica_reader", "Repeatedly read every replica of topics and write up to where each shows records.",
        "--brokers 1=10.77.1.10:9092 --run replica-reader-1",
    )  # fmt: skip
    parser.add_argument("--brokers", required=True, help="id=host:port,… of all brokers")
    parser.add_argument("--run", required=True, help="the reader's name in its events")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        replicas = replicas_of(options.bootstrap, options.topics.split(","))
        reader = ReplicaReader(addresses_of(options.brokers), replicas, History(options.history), options.run)
        read_rounds(reader, ended)

    return program.run(parser, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
