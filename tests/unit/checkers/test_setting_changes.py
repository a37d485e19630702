"""Reports of settings and heals: the values they allow, and incomplete changes, which excuse nothing."""

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


def possible_racks(at_s: float, *events: Event) -> set[int]:
    return {need.racks for need in RequirementTimeline(events).possible("t", round(at_s * S), round(at_s * S))}


def test_either_value_may_apply_after_a_change_that_did_not_settle() -> None:
    requested = (
        config(10, "seen", 2),
        config(20, "begin", 1),
        config(30, "settled", 1, "unknown"),
    )
    assert possible_racks(25, *requested) == possible_racks(99, *requested) == {1, 2}
    # a report is by one broker; others may apply the other value
    assert possible_racks(99, *requested, config(40, "seen", 2)) == {1, 2}
    assert possible_racks(99, *requested, config(40, "seen", 1)) == {1, 2}
    assert possible_racks(99, *requested, config(40, "begin", 1), config(50, "settled", 1)) == {1}


def test_a_change_settles_only_when_all_brokers_report_it() -> None:
    requested = (
        config(10, "seen", 2),
        config(20, "begin", 1),
        config(22, "seen", 1),
        config(30, "settled", 1),
    )
    assert possible_racks(25, *requested) == {1, 2}
    assert possible_racks(31, *requested) == {1}
    # without a result of the change, the observed value counts
    assert possible_racks(25, *requested[:3]) == {1}
    assert possible_racks(25, *requested[:2], config(22, "seen", 2)) == {1, 2}


def test_a_response_to_an_older_request_does_not_undo_a_settled_change() -> None:
    requested = (config(10, "seen", 2), config(20, "begin", 1), config(30, "settled", 1))
    assert possible_racks(50, *requested, config(31, "seen", 2, asked_s=29)) == {1}
    # nor does a response to a later query, see test_required_values.py
    assert possible_racks(50, *requested, config(31, "seen", 2, asked_s=30.5)) == {1}


def test_either_of_two_concurrent_requests_may_apply_until_both_settle() -> None:
    requested = (
        config(10, "seen", 2),
        config(20, "begin", 1),
        config(21, "begin", 3),
        config(30, "settled", 1),
    )
    assert possible_racks(35, *requested, config(40, "settled", 3)) == {1, 3}
    assert possible_racks(45, *requested, config(40, "settled", 3)) == {3}


def test_a_rejected_change_does_not_apply() -> None:
    requested = (config(10, "seen", 2), config(20, "begin", 1), config(30, "rejected", 1))
    assert possible_racks(25, *requested) == {1, 2}
    assert possible_racks(31, *requested) == possible_racks(99, *requested, config(40, "seen", 2)) == {2}
    assert RequirementTimeline(requested).unsettled_ns("t") is None


@pytest.mark.parametrize(
    ("steps", "expected", "unsettled_s"),
    [
        # one of two requests is rejected; the other is open, settled or unknown
        ((("begin", 1), ("begin", 3), ("rejected", 3)), {1, 2}, 11),
        ((("begin", 1), ("begin", 3), ("rejected", 3), ("seen", 2)), {1, 2}, 11),
        ((("begin", 1), ("begin", 3), ("rejected", 1)), {2, 3}, 12),
        ((("begin", 3), ("begin", 1), ("settled", 3), ("rejected", 1)), {3}, None),
        ((("begin", 1), ("begin", 3), ("settled", 1), ("rejected", 3), ("seen", 1)), {1}, None),
        ((("begin", 3), ("begin", 1), ("open", 3), ("rejected", 1), ("seen", 3)), {2, 3}, 11),
        ((("begin", 1), ("begin", 1), ("rejected", 1), ("settled", 1)), {1}, None),
        # another client changes the value meanwhile
        ((("begin", 1), ("seen", 5), ("rejected", 1)), {5}, None),
    ],
)
def test_possible_values_after_a_rejected_change(
    steps: tuple[tuple[str, int], ...], expected: set[int], unsettled_s: int | None
) -> None:
    events = [
        config(at_s, "settled" if step == "open" else step, value, "unknown" if step == "open" else "ok")
        for at_s, (step, value) in enumerate((("seen", 2), *steps), 10)
    ]
    assert possible_racks(99, *events) == expected
    unsettled_ns = RequirementTimeline(events).unsettled_ns("t")
    assert unsettled_ns == (None if unsettled_s is None else unsettled_s * S)


def test_periods_begin_and_end_where_settings_may_change() -> None:
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


# -- incomplete changes -----------------------------------------------------------------------------------------------


def test_an_unverified_heal_excuses_nothing() -> None:
    cluster = outage()
    cluster.end()
    events = cluster.events
    assert check_progress(events).valid == "true"
    verdict = check_progress([entry for entry in events if entry.data.get("step") != "healed"])
    assert verdict.valid == "unknown"
    assert "a heal of kill-rack was not proved, so" in "; ".join(verdict.because)


def note_settings(cluster: Simulated, step: str, racks: int, outcome: Outcome | None = "ok") -> None:
    fields: dict[str, Any] = {"topic": "t", "step": step, MIN_INSYNC_REPLICAS: 2, MIN_INSYNC_RACKS: racks}
    cluster.note("settings", "settings", outcome, **fields)


def healed_outage() -> Simulated:
    cluster = Simulated()
    busy(cluster, 6)
    cluster.lose("b")
    busy(cluster, 4)
    cluster.heal("b")
    busy(cluster, 4)
    return cluster


def test_an_unsettled_change_of_settings_excuses_nothing() -> None:
    cluster = healed_outage()
    note_settings(cluster, "begin", 1)
    note_settings(cluster, "settled", 1, "unknown")
    for _ in range(10):
        busy(cluster, 2)
        note_settings(cluster, "seen", 2)
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
    cluster = healed_outage()
    busy(cluster, 60, rejected=True)
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
    busy(cluster, 60, rejected=True)
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
    assert fault.healed_ns - fault.heal_ns > 60 * S, "recovery counts from the first heal"


def test_a_settled_value_without_earlier_reports_counts_from_its_report() -> None:
    cluster = healed_outage()
    at_ns = cluster.now
    busy(cluster, 30, rejected=True)
    fields: dict[str, Any] = {"topic": "t", "step": "settled", MIN_INSYNC_REPLICAS: 2, MIN_INSYNC_RACKS: 2}
    events = [entry for entry in cluster.finish() if entry.op != "settings"]
    events.append(event(at_ns, "settings", "settings", **fields))
    assert check_progress(sorted(events, key=lambda entry: entry.mono_ns)).valid == "false"
