"""Rejections as counted by the brokers' own metrics, polled during an outage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from bench.analysis.availability import NS
from pyhooks.checkers.cluster_view import RecordedFault
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import MetricsDetails
from pyhooks.lab.lab import Lab
from pyhooks.lab.mbeans import MetricsReading, SocketSource, lab_sources
from pyhooks.lab.metrics import Poller

# Counts per topic what a broker rejects before appending it. Kafka counts neither errors caused by clients nor requests
# for partitions that another broker leads by now.
REJECTED = "FailedProduceRequestsPerSec.Count"
BEANS = (("kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec,*", "Count"),)
RESPONSE_S = 1.0


class RejectionMetrics(SocketSource):
    """Rejection metrics of one broker; its other metrics are not requested."""

    def read(self, timeout_s: float) -> MetricsReading:
        """Read the metrics; see ``pyhooks.lab.mbeans.MetricsSource``."""
        return self.query(BEANS, timeout_s)


def rejection_poller(lab: Lab, history: History, interval_s: float) -> Poller:
    """Return a poller that queries all brokers of a lab while a block runs; each response is an event."""
    brokers = {node.node_id for node in lab.brokers()}
    sources = [RejectionMetrics(**vars(source)) for source in lab_sources(lab) if source.broker in brokers]
    return Poller(sources, lambda poll: history.append(poll.event()), interval_s, RESPONSE_S)


def first_rejection(
    events: Iterable[Event], topic: str, fault: RecordedFault | None, unavailable: Collection[int], until_ns: int
) -> dict[str, Any]:
    """Return when brokers that remained available first counted a rejection for a topic, from a fault to ``until_ns``.

    Returns:
        ``after_s``: seconds from the fault to the first response with a higher count than before the fault, None
        without one; ``at_most_early_s``: the rejection was at most this much earlier, by the previous response;
        ``counted``: number of rejections until the end; ``answers``: number of responses under the fault, without which
        nothing is known.
    """
    rejection: dict[str, Any] = {"after_s": None, "at_most_early_s": None, "counted": 0, "answers": 0}
    if fault is None or fault.heal_ns is None:
        return rejection
    by_broker: dict[int, list[tuple[int, float]]] = {}
    for event, response in MetricsDetails.each(events):
        if response.broker not in unavailable:
            own = response.topics.get(topic, {})
            # a metric appears with the first rejection that it counts
            by_broker.setdefault(response.broker, []).append((event.mono_ns, own.get(REJECTED) or 0))
    for responses in by_broker.values():
        _add_broker(sorted(responses), fault.inject_ns, fault.heal_ns, until_ns, rejection)
    return rejection


def _add_broker(
    responses: Sequence[tuple[int, float]], inject_ns: int, heal_ns: int, until_ns: int, rejection: dict[str, Any]
) -> None:
    before = [response for response in responses if response[0] <= inject_ns]
    if not before:
        return
    last_ns, base = before[-1]
    after = [response for response in responses if inject_ns < response[0] <= until_ns]
    rejection["answers"] += sum(at_ns < heal_ns for at_ns, _ in after)
    rejection["counted"] += int(max((count for _, count in after), default=base) - base)
    for at_ns, count in after:
        if count > base:
            after_s = (at_ns - inject_ns) / NS
            if rejection["after_s"] is None or after_s < rejection["after_s"]:
                rejection["after_s"], rejection["at_most_early_s"] = after_s, (at_ns - max(last_ns, inject_ns)) / NS
            return
        last_ns = at_ns
