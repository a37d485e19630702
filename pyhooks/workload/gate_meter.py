"""Poller of the gate's metrics on this host's brokers, once per second by default, as a process beside a test.

Each broker is queried through the socket of its metrics agent (``pyhooks.lab.mbeans``). Events are those of
``pyhooks.lab.metrics``, one per poll and broker; for a broker that does not respond the event is ``unknown``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.lab.mbeans import MetricsReading, SocketSource
from pyhooks.lab.metrics import Poller
from pyhooks.workload import program

# gauges and meter that pyhooks.checkers.gauges checks
BEANS = (
    ("kafka.cluster:type=Partition,name=IsrRackCount,*", "Value"),
    ("kafka.cluster:type=Partition,name=UnderMin*Isr,*", "Value"),
    ("kafka.cluster:type=Partition,name=AtMin*Isr,*", "Value"),
    ("kafka.server:type=ReplicaManager,name=UnderMin*IsrPartitionCount", "Value"),
    ("kafka.server:type=ReplicaManager,name=AtMin*IsrPartitionCount", "Value"),
    ("kafka.server:type=ReplicaManager,name=RackCheckFailureRate", "Count"),
)
# bound for a response, in intervals
PATIENCE = 2


class GateSource(SocketSource):
    """Metrics source of a broker, limited to the gate's metrics."""

    def read(self, timeout_s: float) -> MetricsReading:
        """See ``pyhooks.lab.mbeans.MetricsSource``."""
        return self.query(BEANS, timeout_s)


def parse_source(text: str) -> GateSource:
    """Parse ``id,name,rack,socket`` into a broker's metrics source.

    Raises:
        RackgateError: the text is malformed.
    """
    fields = text.split(",", 3)
    if len(fields) != 4 or not fields[0].isdigit() or not fields[3]:
        raise RackgateError(f"--broker {text!r}: expected id,name,rack,socket")
    return GateSource(int(fields[0]), fields[1], fields[2] or None, Path(fields[3]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Poll until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m pyhooks.workload.gate_meter",
        description="Poll brokers on this host for the metrics of the gate until a SIGTERM.",
        epilog="Example: python -m pyhooks.workload.gate_meter --broker 1,broker-1,a,metrics.sock --history h.jsonl",
    )
    parser.add_argument("--broker", action="append", required=True, help="id,name,rack,socket of its agent; repeatable")
    parser.add_argument("--history", required=True, type=Path, help="the file to which events are appended")
    parser.add_argument("--run", help="ignored: events name the broker")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two polls (default 1)")

    def work(options: argparse.Namespace, ended: program.StopEvent) -> None:
        sources = [parse_source(text) for text in options.broker]
        history, interval_s = History(options.history), options.interval
        # a late response still counts; the next poll is skipped then
        with Poller(sources, lambda poll: history.append(poll.event()), interval_s, PATIENCE * interval_s):
            ended.wait()

    return program.run(parser, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
