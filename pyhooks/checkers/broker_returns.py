"""Brokers that ended without notice and came back: what that does to ISRs, which no look need show.

When such a broker registers anew, the controller puts it out of every ISR (Kafka 4.3.1,
ReplicationControlManager.handleBrokerShutdown). If it has not been fenced until then it was in them all the time, and
it may be in them again a quarter of a second later: sooner than anybody looks again. The active controller logs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import Look, Settings
from pyhooks.checkers.record_view import Attempt
from pyhooks.checkers.server_log_view import Line
from pyhooks.checkers.settling_times import LAG_NS
from pyhooks.history.outcomes import TOO_FEW

_REGISTERS = re.compile(r"Registering a new incarnation of broker (\d+)\..* Generated [1-9]\d* record\(s\) to clean up")


@dataclass(frozen=True)
class Return:
    """A broker registered anew, and there was something to clean up behind it.

    Attributes:
        at_ns: when, monotonic.
        broker: its id.
    """

    at_ns: int
    broker: int


def returns(lines: Iterable[Line]) -> list[Return]:
    """All that were logged, in the order of the lines."""
    return [Return(line.at_ns, int(found[1])) for line in lines if (found := _REGISTERS.search(line.text))]


def put_out(
    topic: str, seen: Sequence[Look], attempts: Sequence[Attempt], returned: Sequence[Return], settings: Settings
) -> list[Attempt]:
    """The attempts that were refused for the sake of brokers that were put out of the ISR as they came back.

    So it is if the ISR in the last look before is too few without those that came back until the next look that was
    asked for after it; from the moment of the registration until ``LAG_S`` after that look, or until an attempt is
    acknowledged that was sent after one had been refused.

    Args:
        topic: of the partition.
        seen: looks at it, in the order of time.
        attempts: at it.
        returned: all brokers that came back.
        settings: what topics required.

    Returns:
        In the order of their ends.
    """
    ended = sorted(attempts, key=lambda one: one.done_ns)
    found = {
        one.key: one
        for from_ns, to_ns in _outs(topic, seen, returned, settings)
        for one in _first_refused([one for one in ended if one.done_ns >= from_ns and one.sent_ns <= to_ns])
    }
    return sorted(found.values(), key=lambda one: one.done_ns)


def _outs(
    topic: str, seen: Sequence[Look], returned: Sequence[Return], settings: Settings
) -> Iterator[tuple[int, int]]:
    """From when until when a partition may have had too few for the sake of who came back; not if nobody looked."""
    for one in returned:
        before = cluster_view.at(seen, one.at_ns)
        after = next((look for look in seen if look.since_ns > one.at_ns), None)
        if before is None or after is None or one.broker not in before.isr:
            continue
        gone = {two.broker for two in returned if before.at_ns <= two.at_ns < after.since_ns}
        without = replace(before, isr=tuple(member for member in before.isr if member not in gone))
        wanted = settings.possible(topic, one.at_ns, after.at_ns)
        if wanted and not any(need.met_by(without) for need in wanted):
            yield one.at_ns, after.at_ns + LAG_NS


def _first_refused(ended: Sequence[Attempt]) -> list[Attempt]:
    """The first refusals in a row, by their ends: until one is acknowledged that was sent after the first of them."""
    refused: list[Attempt] = []
    for one in ended:
        if one.exception in TOO_FEW:
            refused.append(one)
        elif refused and one.outcome == "ok" and one.sent_ns > refused[0].done_ns:
            break
    return refused
