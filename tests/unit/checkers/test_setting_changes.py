"""Reports of settings and heals: values they allow; a missing report or proof excuses nothing."""

from __future__ import annotations

from typing import Any

import pytest

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import RequirementTimeline
from pyhooks.checkers.progress import check_progress
from pyhooks.history.event_log import Event, Outcome
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS, Requirement
from written_histories import Log, S, Simulated, busy, config, event, outage

# -- reports of settings ----------------------------------------------------------------------------------------------


def racks(at_s: float, *events: Event) -> set[int]:
    return {one.racks for one in RequirementTimeline(events).possible("t", round(at_s * S), round(at_s * S))}


def test_a_change_that_did_not_settle_may_or_may_not_apply() -> None:
    asked = (
        config(10, "seen", 2),
        config(20, "begin", 1),
        config(30, "settled", 1, "unknown"),
    )
    assert racks(25, *asked) == racks(99, *asked) == {1, 2}
    # what one broker says of it is one value, and another may know better
    assert racks(99, *asked, config(40, "seen", 2)) == {1, 2}
    assert racks(99, *asked, config(40, "seen", 1)) == {1, 2}
    assert racks(99, *asked, config(40, "begin", 1), config(50, "settled", 1)) == {1}


def test_a_change_settles_only_when_all_brokers_report_it() -> None:
    asked = (
        config(10, "seen", 2),
        config(20, "begin", 1),
        config(22, "seen", 1),
        config(30, "settled", 1),
    )
    assert racks(25, *asked) == {1, 2}
    assert racks(31, *asked) == {1}
    # of a change without a result, the observed value counts
    assert racks(25, *asked[:3]) == {1}
    assert racks(25, *asked[:2], config(22, "seen", 2)) == {1, 2}


def test_a_response_to_an_older_request_does_not_undo_a_settled_change() -> None:
    asked = (config(10, "seen", 2), config(20, "begin", 1), config(30, "settled", 1))
    assert racks(50, *asked, config(31, "seen", 2, asked_s=29)) == {1}
    # nor does one to a later question: see test_required_values.py
    assert racks(50, *asked, config(31, "seen", 2, asked_s=30.5)) == {1}


def test_the_later_of_two_requests_may_apply_when_the_first_has_settled() -> None:
    asked = (
        config(10, "seen", 2),
        config(20, "begin", 1),
        config(21, "begin", 3),
        config(30, "settled", 1),
    )
    assert racks(35, *asked, config(40, "settled", 3)) == {1, 3}
    assert racks(45, *asked, config(40, "settled", 3)) == {3}


def test_a_refused_change_never_applies() -> None:
    asked = (config(10, "seen", 2), config(20, "begin", 1), config(30, "refused", 1))
    assert racks(25, *asked) == {1, 2}
    assert racks(31, *asked) == racks(99, *asked, config(40, "seen", 2)) == {2}
    assert RequirementTimeline(asked).unsettled_ns("t") is None


@pytest.mark.parametrize(
    ("steps", "holds", "unsettled_s"),
    [
        # of two requests the other one may still hold, or has settled, or has not for good
        ((("begin", 1), ("begin", 3), ("refused", 3)), {1, 2}, 11),
        ((("begin", 1), ("begin", 3), ("refused", 3), ("seen", 2)), {1, 2}, 11),
        ((("begin", 1), ("begin", 3), ("refused", 1)), {2, 3}, 12),
        ((("begin", 3), ("begin", 1), ("settled", 3), ("refused", 1)), {3}, None),
        ((("begin", 1), ("begin", 3), ("settled", 1), ("refused", 3), ("seen", 1)), {1}, None),
        ((("begin", 3), ("begin", 1), ("open", 3), ("refused", 1), ("seen", 3)), {2, 3}, 11),
        ((("begin", 1), ("begin", 1), ("refused", 1), ("settled", 1)), {1}, None),
        # changed by others meanwhile
        ((("begin", 1), ("seen", 5), ("refused", 1)), {5}, None),
    ],
)
def test_a_refusal_among_other_reports(
    steps: tuple[tuple[str, int], ...], holds: set[int], unsettled_s: int | None
) -> None:
    events = [
        config(at_s, "settled" if step == "open" else step, value, "unknown" if step == "open" else "ok")
        for at_s, (step, value) in enumerate((("seen", 2), *steps), 10)
    ]
    assert racks(99, *events) == holds
    unsettled_ns = RequirementTimeline(events).unsettled_ns("t")
    assert unsettled_ns == (None if unsettled_s is None else unsettled_s * S)


def test_where_settings_can_change() -> None:
    events = (
        config(10, "seen", 2),
        config(15, "seen", 2),
        config(18, "seen", 2),
        config(20, "begin", 1),
        config(30, "settled", 1),
    )
    assert RequirementTimeline(events).edges("t") == (10 * S, 18 * S, 20 * S, 30 * S)
    assert RequirementTimeline(events).possible("t", 31 * S, 32 * S) == {Requirement(1, 1)}


def test_the_value_before_a_change_with_only_an_end_is_unknown() -> None:
    fields: dict[str, Any] = {"topic": "t", "step": "settled", MIN_INSYNC_REPLICAS: 2, MIN_INSYNC_RACKS: 2}
    settings = RequirementTimeline([event(5 * S, "settings", "settings", **fields)])
    assert settings.possible("t", 0, 4 * S) == frozenset()
    assert settings.possible("t", 6 * S, 7 * S) == {Requirement(2, 2)}


# -- what excuses nothing ---------------------------------------------------------------------------------------------


def test_a_heal_that_is_not_proved_excuses_nothing() -> None:
    cluster = outage()
    cluster.end()
    events = cluster.events
    assert check_progress(events).valid == "true"
    verdict = check_progress([entry for entry in events if entry.data.get("step") != "healed"])
    assert verdict.valid == "unknown"
    assert "a heal of kill-rack was not proved, so" in "; ".join(verdict.because)


def settings_event(cluster: Simulated, step: str, racks: int, outcome: Outcome | None = "ok") -> None:
    fields: dict[str, Any] = {"topic": "t", "step": step, MIN_INSYNC_REPLICAS: 2, MIN_INSYNC_RACKS: racks}
    cluster.note("settings", "settings", outcome, **fields)


def lost_and_back() -> Simulated:
    cluster = Simulated()
    busy(cluster, 6)
    cluster.lose("b")
    busy(cluster, 4)
    cluster.heal("b")
    busy(cluster, 4)
    return cluster


def test_a_change_of_settings_that_never_settled_excuses_nothing() -> None:
    cluster = lost_and_back()
    settings_event(cluster, "begin", 1)
    settings_event(cluster, "settled", 1, "unknown")
    for _ in range(10):
        busy(cluster, 2)
        settings_event(cluster, "seen", 2)
    cluster.lose("b")
    cluster.need_racks = 1
    busy(cluster, 30)
    cluster.need_racks = 2
    cluster.heal("b")
    busy(cluster, 6)
    verdict = check_progress(cluster.finish())
    assert verdict.valid == "unknown"
    assert "no evidence that a change of settings settled, so" in "; ".join(verdict.because)


def test_a_heal_without_a_fault_does_not_end_an_older_fault() -> None:
    cluster = lost_and_back()
    busy(cluster, 60, refused=True)
    cluster.step("kill-rack", "b", "before", "ok")
    cluster.step("kill-rack", "b", "heal")
    cluster.rest(1)
    cluster.step("kill-rack", "b", "healed", "ok")
    busy(cluster, 6)
    assert check_progress(cluster.finish()).valid == "false"


def test_a_heal_that_starts_again_excuses_nothing() -> None:
    cluster = Simulated()
    busy(cluster, 4)
    cluster.lose("b")
    busy(cluster, 4)
    cluster.step("kill-rack", "b", "held", "ok")
    cluster.step("kill-rack", "b", "heal")
    cluster.logs[3] = Log(list(cluster.logs[1].keys))
    cluster.down.discard(3)
    busy(cluster, 4)
    cluster.step("kill-rack", "b", "healed", "unknown")
    busy(cluster, 60, refused=True)
    cluster.step("kill-rack", "b", "heal")
    cluster.rest(1)
    cluster.step("kill-rack", "b", "healed", "ok")
    busy(cluster, 6)
    events = cluster.finish()
    assert check_progress(events).valid == "unknown"
    (fault,) = cluster_view.faults(events)
    assert fault.doubted
    assert fault.healed_ns is not None
    assert fault.heal_ns is not None
    assert fault.healed_ns - fault.heal_ns > 60 * S, "recovery counts from the first one"


def test_a_first_report_of_a_settled_change_counts_from_then_on() -> None:
    cluster = lost_and_back()
    at_ns = cluster.now
    busy(cluster, 30, refused=True)
    fields: dict[str, Any] = {"topic": "t", "step": "settled", MIN_INSYNC_REPLICAS: 2, MIN_INSYNC_RACKS: 2}
    events = [entry for entry in cluster.finish() if entry.op != "settings"]
    events.append(event(at_ns, "settings", "settings", **fields))
    assert check_progress(sorted(events, key=lambda entry: entry.mono_ns)).valid == "false"
