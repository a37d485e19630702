"""Check that an application writes exactly while the ISR of its output's topic is sufficient.

For programs that read, process and write by themselves, such as Kafka Streams applications and Connect workers. All
topics that such a program writes must have the same requirement and racks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.progress import SettledWindow, windows
from pyhooks.checkers.record_view import PartitionName
from pyhooks.checkers.settling_times import NS, SETTLE_S
from pyhooks.checkers.verdict import Findings

# Bounds from a settled sufficient ISR to the next output: of an application that was not interrupted, and of one that
# was. In the latter a transaction ends after a minute at most, and tasks or threads start again.
BOUND_S, RESUME_S = 20.0, 120.0


@dataclass(frozen=True)
class Arrival:
    """New output that a reader received between two moments."""

    begun_ns: int
    ended_ns: int


@dataclass(frozen=True)
class Output:
    """Output of an application."""

    name: str
    topic: str  # it has one partition
    arrivals: tuple[Arrival, ...]  # in order of time
    until_ns: int  # until when a reader would have recorded output

    @property
    def longest_pause_s(self) -> float:
        """Longest time between two arrivals, in seconds."""
        pairs = pairwise(arrival.ended_ns for arrival in self.arrivals)
        return round(max((later - earlier for earlier, later in pairs), default=0) / NS, 1)


def check_outputs(outputs: Sequence[Output], cluster: ClusterView, findings: Findings) -> None:
    """Check when output arrived, from the first arrival of each application on.

    Wrong:

    * an arrival within a settled interval with an insufficient ISR of the topic;
    * a settled interval with a sufficient ISR without an arrival for ``BOUND_S``; for ``RESUME_S`` if the ISR was
      insufficient and nothing has arrived since.

    Unknown:

    * an application without output, or without output after the last interval with an insufficient ISR;
    * a history in which no application was observed while the ISR was insufficient, or, as the control, none wrote in
      an outage in which the ISR was sufficient.
    """
    stopped = wrote = False
    for output in outputs:
        if not output.arrivals:
            findings.missing.append(f"{output.name}: no output")
            continue
        interrupted_ns: int | None = None
        for window in windows(PartitionName(output.topic, 0), cluster, round(SETTLE_S * NS)):
            from_ns = max(window.from_ns, output.arrivals[0].ended_ns)
            to_ns = min(window.to_ns, window.ahead.from_ns, output.until_ns)
            if to_ns <= from_ns:
                continue
            inside = [one for one in output.arrivals if from_ns <= one.begun_ns and one.ended_ns <= to_ns]
            if not window.enough:
                stopped, interrupted_ns = True, to_ns
                if inside:
                    findings.wrong.append(
                        f"{output.name}: output arrived {len(inside)} times while {output.topic} had"
                        f" {window.isr_text}: too few"
                    )
                continue
            if interrupted_ns is not None and _arrived(output, interrupted_ns, from_ns):
                interrupted_ns = None
            bound_s = BOUND_S if interrupted_ns is None else RESUME_S
            bound_ns = from_ns + round(bound_s * NS)
            if to_ns > bound_ns and not any(
                one.ended_ns > from_ns and one.begun_ns < bound_ns for one in output.arrivals
            ):
                findings.wrong.append(
                    f"{output.name}: no output arrived within {bound_s:g} s while {output.topic} had"
                    f" {window.isr_text}: enough"
                )
            if inside:
                interrupted_ns = None
                wrote |= _in_outage(window, cluster)
        if interrupted_ns is not None:
            findings.missing.append(f"{output.name}: no output is known after its topic had too few replicas or racks")
    if not stopped:
        findings.missing.append("no application was observed while the ISR of its topic was insufficient")
    if not wrote:
        findings.missing.append("no output in an outage with a sufficient ISR, the control")


def _arrived(output: Output, from_ns: int, to_ns: int) -> bool:
    return any(from_ns <= arrival.begun_ns and arrival.ended_ns <= to_ns for arrival in output.arrivals)


def _in_outage(window: SettledWindow, cluster: ClusterView) -> bool:
    return any(
        fault.proved_ns is not None
        and fault.proved_ns <= window.from_ns
        and (fault.heal_ns is None or window.to_ns <= fault.heal_ns)
        for fault in cluster.faults
    )
