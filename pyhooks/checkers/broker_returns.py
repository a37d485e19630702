"""Brokers that ended without notice and came back, which can change ISRs between two observations.

When such a broker registers again, the controller removes it from every ISR
(ReplicationControlManager.handleBrokerShutdown). If it was not fenced by then, it was in the ISRs all the time. It may
be in them again a quarter of a second later, before the next observation. The active controller logs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RecordedPartition, RequirementTimeline
from pyhooks.checkers.record_view import Attempt
from pyhooks.checkers.server_log_view import LogLine
from pyhooks.checkers.settling_times import LAG_NS
from pyhooks.history.outcomes import TOO_FEW

_REGISTERS = re.compile(r"Registering a new incarnation of broker (\d+)\..* Generated [1-9]\d* record\(s\) to clean up")


@dataclass(frozen=True)
class Return:
    """A broker registered again, and the controller had to clean up after its previous incarnation."""

    at_ns: int  # time of the registration, monotonic
    broker: int


def returns(lines: Iterable[LogLine]) -> list[Return]:
    """Return all logged returns, in the order of the lines."""
    return [
        Return(line.at_ns, int(registration[1])) for line in lines if (registration := _REGISTERS.search(line.text))
    ]


def rejected_after_returns(
    topic: str,
    observed: Sequence[RecordedPartition],
    attempts: Sequence[Attempt],
    returned: Sequence[Return],
    settings: RequirementTimeline,
) -> list[Attempt]:
    """Return the attempts that were rejected because brokers were removed from the ISR when they came back.

    That is so if the ISR of the last observation before is insufficient without the brokers that came back by the next
    observation requested afterwards. It applies from the registration until ``LAG_S`` after that observation, or until
    an attempt that was sent after a rejection is acknowledged.

    Args:
        topic: topic of the partition.
        observed: observations of the partition, in order of time.
        attempts: attempts on the partition.
        returned: all brokers that came back.
        settings: requirements of all topics over time.

    Returns:
        The attempts in the order of their ends.
    """
    ended = sorted(attempts, key=lambda attempt: attempt.done_ns)
    rejected = {
        attempt.key: attempt
        for from_ns, to_ns in _insufficient_times(topic, observed, returned, settings)
        for attempt in _first_rejected(
            [attempt for attempt in ended if attempt.done_ns >= from_ns and attempt.sent_ns <= to_ns]
        )
    }
    return sorted(rejected.values(), key=lambda attempt: attempt.done_ns)


def _insufficient_times(
    topic: str, observed: Sequence[RecordedPartition], returned: Sequence[Return], settings: RequirementTimeline
) -> Iterator[tuple[int, int]]:
    """Yield intervals in which an ISR may have been insufficient due to returning brokers; none if not observed."""
    for registration in returned:
        before = cluster_view.observation_at(observed, registration.at_ns)
        after = next((observation for observation in observed if observation.since_ns > registration.at_ns), None)
        if before is None or after is None or registration.broker not in before.isr:
            continue
        removed = {other.broker for other in returned if before.at_ns <= other.at_ns < after.since_ns}
        remaining = replace(before, isr=tuple(member for member in before.isr if member not in removed))
        required = settings.possible(topic, registration.at_ns, after.at_ns)
        if required and not any(requirement.met_by(remaining) for requirement in required):
            yield registration.at_ns, after.at_ns + LAG_NS


def _first_rejected(ended: Sequence[Attempt]) -> list[Attempt]:
    """Return the first rejections, by end, until an attempt sent after the first of them is acknowledged."""
    rejected: list[Attempt] = []
    for attempt in ended:
        if attempt.exception in TOO_FEW:
            rejected.append(attempt)
        elif rejected and attempt.outcome == "ok" and attempt.sent_ns > rejected[0].done_ns:
            break
    return rejected
