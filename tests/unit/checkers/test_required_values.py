"""Required values of a topic are the requested ones; brokers that report others are wrong."""

from __future__ import annotations

import pytest

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.rack_spread import check_spread
from pyhooks.history.event_log import Event
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, Requirement
from written_histories import S, Simulated, config, event

SETTLE_NS = 2 * S


def step(at_s: float, name: str, op: str = "cut-rack") -> Event:
    return event(round(at_s * S), "fault", op, None if name in ("inject", "heal") else "ok", "b", step=name)


def strays(*events: Event) -> list[str]:
    return RequirementTimeline(events).strays("t", cluster_view.faults(events), SETTLE_NS)


def unrequested_change(cluster: Simulated, *, request_recorded: bool) -> list[Event]:
    """R=2, but brokers report R=1 without a request, and one rack acknowledges for 10 s in an outage."""
    if request_recorded:
        cluster.events[0] = event(
            cluster.events[0].mono_ns, "settings", "settings", **{**cluster.events[0].data, "step": "made"}
        )

    def run_for(seconds: int) -> None:
        for _ in range(2 * seconds):
            cluster.produce()
            cluster.look()
            cluster.now += S // 2

    run_for(8)
    cluster.need_racks, cluster.need_replicas = 1, 2
    for _ in range(3):
        cluster.settings("seen")
        run_for(3)
    cluster.lose("b")
    run_for(10)
    cluster.settings("seen")
    cluster.heal("b")
    run_for(6)
    cluster.settings("seen")
    return cluster.finish()


def test_brokers_that_report_another_number_of_racks_are_wrong() -> None:
    events = unrequested_change(Simulated(), request_recorded=True)
    for check in (check_promise, check_progress):
        verdict = check(events)
        assert verdict.valid == "false"
        (report,) = [reason for reason in verdict.because if "M=2 and R=1" in reason]
        assert "M=2 and R=2" in report
        assert any("4 times more" in reason for reason in verdict.because)
    # acknowledgements that follow the wrong value are wrong, too
    assert any("too few, and record" in reason for reason in check_progress(events).because)
    assert check_spread(events).valid == "false"


def test_without_recorded_requests_the_reports_of_brokers_count() -> None:
    events = unrequested_change(Simulated(), request_recorded=False)
    assert [check(events).valid for check in (check_promise, check_progress, check_spread)] == ["true"] * 3


@pytest.mark.parametrize(
    "reports",
    [
        (config(10, "made", 2), config(15, "seen", 2)),
        (config(10, "made", 2), config(15, "begin", 1), config(16, "seen", 2), config(17, "seen", 1),
         config(18, "settled", 1), config(25, "seen", 1)),
        # a response to a query from before the change settled
        (config(10, "made", 2), config(15, "begin", 1), config(18, "settled", 1),
         config(20.5, "seen", 2, asked_s=19.5)),
        (config(10, "made", 2), config(15, "begin", 1), config(18, "rejected", 1), config(30, "seen", 2)),
        # whether the change settled is unknown
        (config(10, "made", 2), config(15, "begin", 1), config(18, "settled", 1, "unknown"), config(30, "seen", 2),
         config(31, "seen", 1)),
        (config(10, "made", 2), config(15, "begin", 1), config(30, "seen", 1), config(40, "seen", 1)),
        # a value changes without a recorded request
        (config(10, "seen", 2), config(15, "seen", 1)),
        (config(10, "seen", 2), config(15, "begin", 1), config(18, "rejected", 1), config(30, "seen", 3)),
    ],
)  # fmt: skip
def test_a_requested_value_may_be_reported(reports: tuple[Event, ...]) -> None:
    assert strays(*reports) == []


@pytest.mark.parametrize(
    "reports",
    [
        (config(10, "made", 2), config(10.1, "seen", 1)),
        (config(10, "made", 2), config(15, "begin", 1), config(16, "seen", 3)),
        (config(10, "made", 2), config(15, "begin", 1), config(18, "settled", 1), config(18.1, "seen", 3)),
        (config(10, "made", 2), config(15, "begin", 1), config(18, "settled", 1), config(22, "seen", 2, asked_s=21)),
        (config(10, "made", 2), config(15, "begin", 1), config(18, "rejected", 1), config(30, "seen", 1)),
        (config(10, "seen", 2), config(15, "begin", 1), config(18, "settled", 1), config(30, "seen", 2)),
        (config(10, "made", 2), config(15, "begin", 1), config(18, "settled", 1, "unknown"), config(30, "seen", 3)),
    ],
)
def test_a_value_that_was_not_requested_is_reported_as_a_stray(reports: tuple[Event, ...]) -> None:
    (stray,) = strays(*reports)
    assert stray.startswith("t: a broker reports M=1 and R=")
    assert reports[-1].data[MIN_INSYNC_RACKS] not in {
        need.racks for need in RequirementTimeline(reports).possible("t", 40 * S, 40 * S)
    }


def test_a_broker_that_missed_a_change_may_report_the_previous_value() -> None:
    change = [config(10, "made", 2), config(30, "begin", 1), config(31, "settled", 1)]
    faults = [step(20, "inject"), step(21, "proved"), step(39, "held"), step(40, "heal"), step(44, "healed")]

    def late(at_s: float, racks: int = 2, fault: list[Event] = faults) -> list[str]:
        return strays(*sorted([*change, *fault, config(at_s, "seen", racks)], key=lambda entry: entry.mono_ns))

    assert late(41) == late(45) == []
    assert late(47)
    assert late(41, 3)
    # a fault that began after the change, or was healed before it, is no excuse
    assert late(55, fault=[step(50, "inject"), step(51, "proved")])
    assert late(35, fault=[step(20, "inject"), step(21, "proved"), step(24, "heal"), step(29, "healed")])


def test_a_stray_value_is_in_no_period() -> None:
    timeline = RequirementTimeline([config(10, "made", 2), config(15, "seen", 1), config(20, "seen", 2)])
    assert timeline.possible("t", 0, 1 << 62) == {Requirement(1, 2)}
    assert timeline.edges("t") == (10 * S, 20 * S)
