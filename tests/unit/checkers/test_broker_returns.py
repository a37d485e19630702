"""A broker that is killed and registers again leaves the ISR briefly, which no observation needs to show."""

from __future__ import annotations

from typing import Any

import pytest

from pyhooks.checkers.broker_returns import Return, returns
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.server_log_view import log_lines
from pyhooks.history.event_log import Event
from written_histories import S, Simulated, event

HEAD = "[QuorumController id=101] Registering a new incarnation of broker"
ANEW = "Previous incarnation ID was RQS4uK86RbmhYRWhnpVE0Q; new incarnation ID is flnd3vprRKe6BLAlhfVUQQ."


def line(broker: int = 3, records: int = 4) -> str:
    """Log line of the active controller."""
    cleaned = f"Generated {records} record(s) to clean up previous incarnations."
    return f"{HEAD} {broker}. {ANEW} {cleaned} Broker epoch will become 455."


def short_outage(
    text: str | None,
    *,
    refused_s: tuple[float, float] = (0.0, 0.25),
    again_s: tuple[float, float] = (0.0, 0.0),
    logged_s: float = 0.0,
    proved_s: float = 1.0,
    brokers: tuple[int, ...] = (3,),
) -> list[Event]:
    """Rack b is killed for less than a session, and leaves the ISR only when it registers again, unobserved.

    Args:
        text: what is logged at the registration, if anything is.
        refused_s: between when records are refused, counted from when somebody sends again.
        again_s: between when they are once more.
        logged_s: when that is logged.
        proved_s: when the heal is proved.
        brokers: those in rack b.
    """
    made = Simulated({1: "a", 2: "a", **dict.fromkeys(brokers, "b")})

    def go_on(seconds: float, refused: tuple[tuple[int, int], ...] = (), looks_from: int = 0) -> None:
        """Records each tenth of a second, and looks each half, which show the whole ISR."""
        until, asked = made.now + round(seconds * S), 0
        while made.now < until:
            made.down = set(brokers) if any(one <= made.now < two for one, two in refused) else set()
            made.produce()
            made.down = set()
            if made.now - asked >= S // 2 and made.now >= looks_from:
                made.look()
                asked = made.now
            made.now += S // 10

    go_on(4)
    made.step("kill-rack", "b", "inject")
    made.step("kill-rack", "b", "proved", "ok")
    made.rest(4)
    made.step("kill-rack", "b", "heal")
    made.rest(1)
    at_ns = made.now
    refused = tuple((at_ns + round(one * S), at_ns + round(two * S)) for one, two in (refused_s, again_s))
    if text is not None:
        entries: list[list[Any]] = [[0, "INFO", "org.apache.kafka.controller.ClusterControlManager", text, []]]
        others = [line(broker) for broker in brokers[1:]]
        entries += [[40, "INFO", "org.apache.kafka.controller.ClusterControlManager", other, []] for other in others]
        made.events.append(event(at_ns + round(logged_s * S), "server-log", "lines", None, node=101, entries=entries))
    go_on(proved_s, refused, at_ns + 3 * S // 10)
    made.step("kill-rack", "b", "healed", "ok")
    go_on(8, refused)
    made.down = set(brokers)
    made.look()
    for _ in range(80):
        made.produce()
        made.now += S // 10
        made.look()
    made.end()
    return made.events


@pytest.mark.parametrize("brokers", [(3,), (3, 4)])
def test_a_new_registration_explains_refusals_between_observations(brokers: tuple[int, ...]) -> None:
    found = check_progress(short_outage(line(), brokers=brokers))
    assert found.valid == "true", found.because
    assert "t-0: 3 attempts were refused within 0.2 s while a broker that came back was out of the ISR" in "".join(
        found.notes
    )


@pytest.mark.parametrize(
    ("text", "more"),
    [
        pytest.param(None, {}, id="not logged"),
        pytest.param(line(records=0), {}, id="it was in no ISR"),
        pytest.param(line(broker=2), {}, id="the others are enough"),
        pytest.param(line(broker=7), {}, id="it has no replica"),
        pytest.param(line(), {"logged_s": 0.4}, id="before it registers"),
        pytest.param(line(), {"again_s": (0.5, 0.7)}, id="refused once more after it is in again"),
        pytest.param(line(), {"refused_s": (3.5, 3.8), "proved_s": 5.0}, id="long after a look shows it again"),
    ],
)
def test_nothing_else_explains_them(text: str | None, more: dict[str, Any]) -> None:
    found = check_progress(short_outage(text, **more))
    assert found.valid == "unknown"
    assert "contradict observations that a fault makes doubtful" in "; ".join(found.because)


def test_refusals_that_continue_are_wrong() -> None:
    """After looks have shown the ISR whole for longer than a change may take."""
    found = check_progress(short_outage(line(), refused_s=(0.0, 6.0)))
    assert found.valid == "false"
    assert "enough, and record" in "; ".join(found.because)


def test_registrations_are_found_in_the_log() -> None:
    events = short_outage(line())
    (at_ns,) = (one.mono_ns for one in events if one.op == "lines")
    assert returns(log_lines(events)) == [Return(at_ns, 3)]
