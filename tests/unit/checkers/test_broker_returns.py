"""A broker that registers again after a kill leaves the ISR briefly, possibly between two observations."""

from __future__ import annotations

from typing import Any

import pytest

from pyhooks.checkers.broker_returns import Return, returns
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.server_log_view import log_lines
from pyhooks.history.event_log import Event
from written_histories import S, Simulated, event

HEAD = "[QuorumController id=101] Registering a new incarnation of broker"
INCARNATIONS = "Previous incarnation ID was RQS4uK86RbmhYRWhnpVE0Q; new incarnation ID is flnd3vprRKe6BLAlhfVUQQ."


def registration_line(broker: int = 3, records: int = 4) -> str:
    """Log line of the active controller on a new registration of a broker."""
    cleaned = f"Generated {records} record(s) to clean up previous incarnations."
    return f"{HEAD} {broker}. {INCARNATIONS} {cleaned} Broker epoch will become 455."


def short_outage(
    log_text: str | None,
    *,
    rejected_s: tuple[float, float] = (0.0, 0.25),
    rejected_again_s: tuple[float, float] = (0.0, 0.0),
    logged_s: float = 0.0,
    verified_s: float = 1.0,
    brokers: tuple[int, ...] = (3,),
) -> list[Event]:
    """Rack b is killed for less than a broker session and leaves the ISR only at its new registration, unobserved.

    Args:
        log_text: log line of the registration; None if it is not logged.
        rejected_s: interval of rejections, from the first record after the heal, in seconds.
        rejected_again_s: second interval of rejections.
        logged_s: time of the log line.
        verified_s: time at which the heal is verified.
        brokers: brokers in rack b.
    """
    cluster = Simulated({1: "a", 2: "a", **dict.fromkeys(brokers, "b")})

    def run_for(seconds: float, rejected: tuple[tuple[int, int], ...] = (), observed_from: int = 0) -> None:
        """Send a record every 0.1 s and observe the complete ISR every 0.5 s."""
        until, observed_ns = cluster.now + round(seconds * S), 0
        while cluster.now < until:
            cluster.down = set(brokers) if any(begin <= cluster.now < end for begin, end in rejected) else set()
            cluster.produce()
            cluster.down = set()
            if cluster.now - observed_ns >= S // 2 and cluster.now >= observed_from:
                cluster.look()
                observed_ns = cluster.now
            cluster.now += S // 10

    run_for(4)
    cluster.step("kill-rack", "b", "inject")
    cluster.step("kill-rack", "b", "proved", "ok")
    cluster.rest(4)
    cluster.step("kill-rack", "b", "heal")
    cluster.rest(1)
    at_ns = cluster.now
    rejected = tuple(
        (at_ns + round(begin * S), at_ns + round(end * S)) for begin, end in (rejected_s, rejected_again_s)
    )
    if log_text is not None:
        entries: list[list[Any]] = [[0, "INFO", "org.apache.kafka.controller.ClusterControlManager", log_text, []]]
        others = [registration_line(broker) for broker in brokers[1:]]
        entries += [[40, "INFO", "org.apache.kafka.controller.ClusterControlManager", other, []] for other in others]
        cluster.events.append(
            event(at_ns + round(logged_s * S), "server-log", "lines", None, node=101, entries=entries)
        )
    run_for(verified_s, rejected, at_ns + 3 * S // 10)
    cluster.step("kill-rack", "b", "healed", "ok")
    run_for(8, rejected)
    cluster.down = set(brokers)
    cluster.look()
    for _ in range(80):
        cluster.produce()
        cluster.now += S // 10
        cluster.look()
    cluster.end()
    return cluster.events


@pytest.mark.parametrize("brokers", [(3,), (3, 4)])
def test_a_new_registration_explains_rejections_between_observations(brokers: tuple[int, ...]) -> None:
    verdict = check_progress(short_outage(registration_line(), brokers=brokers))
    assert verdict.valid == "true", verdict.because
    assert "t-0: 3 attempts were rejected within 0.2 s while a broker that came back was out of the ISR" in "".join(
        verdict.notes
    )


@pytest.mark.parametrize(
    ("log_text", "changes"),
    [
        pytest.param(None, {}, id="not logged"),
        pytest.param(registration_line(records=0), {}, id="broker was in no ISR"),
        pytest.param(registration_line(broker=2), {}, id="ISR is sufficient without this broker"),
        pytest.param(registration_line(broker=7), {}, id="broker without a replica"),
        pytest.param(registration_line(), {"logged_s": 0.4}, id="rejections before the registration"),
        pytest.param(
            registration_line(), {"rejected_again_s": (0.5, 0.7)}, id="rejections again after the return to the ISR"
        ),
        pytest.param(
            registration_line(),
            {"rejected_s": (3.5, 3.8), "verified_s": 5.0},
            id="rejections long after an observed return",
        ),
    ],
)
def test_rejections_without_a_matching_registration_are_unknown(log_text: str | None, changes: dict[str, Any]) -> None:
    verdict = check_progress(short_outage(log_text, **changes))
    assert verdict.valid == "unknown"
    assert "contradict observations that a fault makes doubtful" in "; ".join(verdict.because)


def test_rejections_that_continue_after_the_return_are_wrong() -> None:
    """Observations show the complete ISR for longer than the settling bound."""
    verdict = check_progress(short_outage(registration_line(), rejected_s=(0.0, 6.0)))
    assert verdict.valid == "false"
    assert "enough, and record" in "; ".join(verdict.because)


def test_registrations_are_parsed_from_the_log() -> None:
    events = short_outage(registration_line())
    (at_ns,) = (entry.mono_ns for entry in events if entry.op == "lines")
    assert returns(log_lines(events)) == [Return(at_ns, 3)]
