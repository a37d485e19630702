"""Asks brokers for the metrics of the gate every second, through their JMX ports, as a process beside a test.

Events are those of ``pyhooks.cluster.metrics``, one for each moment and broker; a broker that does not answer has an
unknown one. What is asked goes over the network: a broker that is cut off has no metrics.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyhooks.cluster.beans import Reading
from pyhooks.cluster.metrics import Poller
from pyhooks.errors import RackgateError
from pyhooks.history import History
from pyhooks.jvm.failure import JavaError
from pyhooks.jvm.jmx import Jmx
from pyhooks.workload import program

# Two questions go over the network for each bean, so none is asked for that nobody judges.
PATTERNS = (
    "kafka.cluster:type=Partition,name=IsrRackCount,*",
    "kafka.cluster:type=Partition,name=UnderMin*Isr,*",
    "kafka.cluster:type=Partition,name=AtMin*Isr,*",
    "kafka.server:type=ReplicaManager,name=UnderMin*IsrPartitionCount",
    "kafka.server:type=ReplicaManager,name=AtMin*IsrPartitionCount",
    "kafka.server:type=ReplicaManager,name=RackCheckFailureRate",
)
ATTRIBUTES = ("Value", "Count")
# how many intervals an answer may take
PATIENCE = 2


@dataclass
class JmxSource:
    """A broker with a JMX port, connected to again after each question that failed.

    Attributes:
        broker: node id.
        name: for people.
        rack: where it stands.
        host: of the port.
        port: its number.
    """

    broker: int
    name: str
    rack: str | None
    host: str
    port: int
    _jmx: Jmx | None = field(default=None, repr=False)

    def read(self, timeout_s: float) -> Reading:
        """See ``pyhooks.cluster.beans.Source``.

        Raises:
            RackgateError: no whole answer in time.
        """
        try:
            self._jmx = self._jmx or Jmx(self.host, self.port, timeout_s=timeout_s)
            found = [row for pattern in PATTERNS for row in self._jmx.query(pattern)]
        except (JavaError, RackgateError) as error:
            self.close()
            raise RackgateError(f"{self.name}: no metrics: {error}") from error
        rows = [(row.object_name, row.attribute, str(row.value)) for row in found if row.attribute in ATTRIBUTES]
        return Reading(tuple(rows))

    def close(self) -> None:
        """Ends the connection; one that is broken is left alone."""
        broken, self._jmx = self._jmx, None
        if broken is not None:
            # closing asks the broker once more, which may not be there
            threading.Thread(target=_close, args=(broken,), daemon=True).start()


def _close(jmx: Jmx) -> None:
    try:
        jmx.close()
    except (JavaError, RackgateError) as error:
        sys.stderr.write(f"a connection that is not needed any more could not be closed: {error}\n")


def source(text: str) -> JmxSource:
    """A broker from ``id,name,rack,host,port``.

    Raises:
        RackgateError: it is none.
    """
    words = text.split(",")
    if len(words) != 5 or not words[0].isdigit() or not words[4].isdigit():
        raise RackgateError(f"--broker {text!r}: expected id,name,rack,host,port")
    return JmxSource(int(words[0]), words[1], words[2] or None, words[3], int(words[4]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks until a SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m pyhooks.workload.meter",
        description="Asks brokers for the metrics of the gate and writes what they tell, until it is ended.",
        epilog="Example: python -m pyhooks.workload.meter --broker 1,broker-1,a,10.77.1.10,9999 --history h.jsonl",
    )
    parser.add_argument("--broker", action="append", required=True, help="id,name,rack,host,port; once for each")
    parser.add_argument("--history", required=True, type=Path, help="the file to which events are appended")
    parser.add_argument("--run", help="of no effect: events name the broker")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two questions (default 1)")
    found = parser.parse_args(arguments)
    ended = program.told_to_end()

    def work() -> None:
        sources = [source(text) for text in found.broker]
        history = History(found.history)
        # an answer that is late is one: the next question is left out then
        with Poller(sources, lambda one: history.append(one.event()), found.interval, PATIENCE * found.interval):
            ended.wait()

    return program.status_of(work)


if __name__ == "__main__":
    sys.exit(main())
