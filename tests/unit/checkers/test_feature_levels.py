"""Checkers of feature levels, request versions and placement reports of reassignments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.feature_levels import CASES, check_levels
from pyhooks.checkers.placement_reports import check_placement_reports
from pyhooks.checkers.request_versions import check_versions
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from written_histories import S, event

# ---------------------------------------------------------------------------------------------------------- levels


def level(at_s: float, direction: str, before: int, after: int, lacking: int = 0) -> Event:
    """Level before and after a request to change it; ``lacking`` nodes do not have the overlay."""
    to = 1 if direction == "upgrade" else 0
    fields: dict[str, Any] = {
        "how": direction,
        "to": to,
        "before": before,
        "after": after,
        "lack": lacking,
        "said": "output",
    }
    return event(round(at_s * S), "test", "level", None, **fields)


def settings(at_s: float, racks: int, step: str, topic: str = "t") -> Event:
    fields: dict[str, Any] = {"topic": topic, "step": step, "min.insync.replicas": 2, "min.insync.racks": racks}
    return event(round(at_s * S), "settings", "settings", **fields)


def config_change(at_s: float, before: int, racks: int, end: str) -> list[Event]:
    """Request to change R from ``before`` to ``racks``; ``end``: ``settled`` or ``rejected``."""
    return [settings(at_s - 0.1, before, "seen"), settings(at_s, racks, "begin"), settings(at_s + 0.1, racks, end)]


def upgrade_and_downgrade() -> dict[str, list[Event]]:
    """Upgrade and downgrade of the feature, with requests that must be rejected and accepted."""
    return {
        "created": [settings(1, 1, "made")],
        "upgrade rejected": [level(2, "upgrade", 0, 0, lacking=3)],
        "R=2 rejected": config_change(3, 1, 2, "rejected"),
        "upgrade to 1": [level(4, "upgrade", 0, 1)],
        "R=2": config_change(5, 1, 2, "settled"),
        "downgrade rejected": [level(6, "downgrade", 1, 1)],
        "R=1": config_change(7, 2, 1, "settled"),
        "downgrade to 0": [level(8, "downgrade", 1, 0)],
    }


def judge_steps(steps: dict[str, list[Event]]) -> Verdict:
    return check_levels([event for step in steps.values() for event in step])


def test_correct_level_changes_are_valid() -> None:
    verdict = judge_steps(upgrade_and_downgrade())
    assert (verdict.valid, verdict.because) == ("true", ())
    notes = zip(verdict.notes, sorted(CASES), strict=True)
    assert all(note.startswith("1 ") and note.endswith(case) for note, case in notes)


@pytest.mark.parametrize(
    ("step", "instead", "reason"),
    [
        (
            "upgrade rejected",
            [level(2, "upgrade", 0, 1, lacking=3)],
            "3 nodes lacking the overlay (output) was carried out",
        ),
        ("upgrade to 1", [level(4, "upgrade", 0, 0)], "with 0 nodes lacking the overlay (output) was rejected"),
        (
            "downgrade rejected",
            [level(6, "downgrade", 1, 0)],
            "with racks required by 1 topics (output) was carried out",
        ),
        ("downgrade to 0", [level(8, "downgrade", 1, 1)], "with racks required by 0 topics (output) was rejected"),
        ("R=2 rejected", config_change(3, 1, 2, "settled"), "R=2 for topic t at level 0 was carried out"),
        ("R=2", config_change(5, 1, 2, "rejected"), "R=2 for topic t at level 1 was rejected"),
        # the rejected upgrade took effect later
        ("upgrade to 1", [level(4, "upgrade", 1, 1)], "the level went from 0 to 1 without a request"),
    ],
)
def test_an_incorrect_level_change_is_wrong(step: str, instead: list[Event], reason: str) -> None:
    verdict = judge_steps(upgrade_and_downgrade() | {step: instead})
    assert verdict.valid == "false"
    assert any(reason in because for because in verdict.because), verdict.because


WITHOUT_LEVELS: dict[str, list[Event]] = {
    step: [] for step in ("upgrade rejected", "upgrade to 1", "downgrade rejected", "downgrade to 0")
}
NO_LEVEL = "R=2 for topic t: the level then is unknown"


@pytest.mark.parametrize(
    ("instead", "reasons"),
    [
        ({"upgrade rejected": []}, ["no case of: upgrade rejected"]),
        ({"downgrade to 0": []}, ["no case of: downgrade carried out"]),
        ({"downgrade rejected": []}, ["no case of: downgrade rejected"]),
        ({"R=2 rejected": []}, ["no case of: racks rejected"]),
        ({"R=2": [], "downgrade rejected": []}, ["no case of: downgrade rejected", "no case of: racks carried out"]),
        ({"upgrade to 1": [level(4, "upgrade", 0, 1, lacking=0)], "R=2": config_change(5, 1, 2, "settled")[:2]},
         ["R=2 for topic t at level 1: its result is unknown", "no case of: racks carried out"]),
        (WITHOUT_LEVELS, [NO_LEVEL, *map("no case of: {}".format, CASES)]),
    ],
)  # fmt: skip
def test_a_missing_case_is_unknown(instead: dict[str, list[Event]], reasons: list[str]) -> None:
    verdict = judge_steps(upgrade_and_downgrade() | instead)
    assert verdict.valid == "unknown"
    assert set(reasons) <= set(verdict.because), verdict.because


def test_a_downgrade_with_an_unsettled_config_change_is_unknown() -> None:
    verdict = judge_steps(upgrade_and_downgrade() | {"R=1": config_change(7, 2, 1, "settled")[:2]})
    assert (verdict.valid, len(verdict.because)) == ("unknown", 2)
    assert "downgrade from level 1 to 0" in verdict.because[0]
    assert verdict.because[1].endswith("downgrade carried out")


# -------------------------------------------------------------------------------------------------------- versions


def used(brokers: str, versions: dict[str, str], client: str = "stock") -> Event:
    data: dict[str, Any] = {"client": client, "brokers": brokers, "baseline": brokers == "stock", "versions": versions}
    return event(S, "test", "versions", None, **data)


SAME = {"Produce": "13", "Fetch": "18"}


@pytest.mark.parametrize(
    ("events", "valid", "reason"),
    [
        ([used("stock", SAME), used("patched", SAME)], "true", ""),
        ([used("stock", SAME), used("patched", SAME | {"Produce": "12"})], "false",
         "client stock uses version 13 of Produce with stock, and 12 with patched"),
        ([used("stock", SAME), used("patched", {"Produce": "13"})], "false", "and none with patched"),
        ([used("stock", SAME), used("patched", SAME | {"New": "0"})], "false", "uses version none of New with stock"),
        ([used("stock", SAME), used("patched", SAME), used("another", {"Fetch": "18"})], "false", "another"),
        ([used("stock", SAME)], "unknown", "client stock was not queried with other brokers"),
        ([used("patched", SAME)], "unknown", "client stock was not queried with baseline brokers"),
        ([used("stock", {}), used("patched", {})], "unknown", "client stock reported no versions with stock"),
        ([used("stock", SAME), used("patched", {})], "unknown", "client stock reported no versions with patched"),
        ([used("stock", SAME), used("patched", SAME), used("stock", SAME, "2.8.2")], "unknown", "client 2.8.2 was not"),
        ([], "unknown", "no versions of a client were queried"),
    ],
)  # fmt: skip
def test_versions_are_compared_with_the_baseline(events: list[Event], valid: str, reason: str) -> None:
    verdict = check_versions(events)
    assert verdict.valid == valid
    assert reason in "; ".join(verdict.because)
    assert bool(verdict.because) is bool(reason)


# ------------------------------------------------------------------------------------------------ placement reports


def reassigned(at_s: float, before: Sequence[int], after: Sequence[int], topic: str = "t") -> Event:
    racks = {"1": "a", "2": "a", "3": "b", "5": "c"}
    data: dict[str, Any] = {"topic": topic, "before": list(before), "after": list(after), "racks": racks}
    return event(round(at_s * S), "test", "moved", None, **data)


def reported(at_s: float, *counts: list[int]) -> Event:
    """Numbers of partitions in the reports that each controller logged."""
    return event(round(at_s * S), "test", "warnings", None, counts=dict(zip("123", counts, strict=False)))


# Remove the replica in rack b; move back to two racks; move to two brokers of rack a.
REASSIGNMENTS = [
    settings(1, 2, "made"),
    reassigned(2, [1, 2, 3], [1, 2]),
    reassigned(3, [1, 2], [1, 3]),
    reassigned(4, [1, 3], [2, 1]),
]


def judge_reports(*more: Event) -> Verdict:
    return check_placement_reports([*REASSIGNMENTS, *more])


def test_reports_of_reassignments_into_too_few_racks_are_valid() -> None:
    verdict = judge_reports(reported(5, [1, 0, 1], [1, 0, 1]))
    assert (verdict.valid, verdict.because) == ("true", ())
    counts = [re.findall(r"\d+", note) for note in verdict.notes]
    assert counts == [["2", "1", "0", "1", "3"]], "controllers, partitions of each report, moves"


def test_two_partitions_may_be_reported_together() -> None:
    two_topics = [
        settings(1, 2, "made"),
        settings(1, 2, "made", topic="u"),
        reassigned(2, [1, 3], [1, 2]),
        reassigned(2, [1, 3], [1, 2], "u"),
    ]
    back = [reassigned(3, [1, 2], [1, 3]), reassigned(3, [1, 2], [1, 3], "u")]
    for counts in ([2, 0], [1, 2, 1, 0], [2, 1, 0]):
        assert check_placement_reports([*two_topics, *back, reported(5, counts)]).valid == "true"
    assert check_placement_reports([*two_topics, *back, reported(5, [1, 0])]).valid == "false"


def test_a_single_replica_requires_one_rack() -> None:
    single_replica = [
        settings(1, 2, "made"),
        reassigned(2, [1, 3], [1, 2]),
        reassigned(3, [1, 2], [1]),
        reported(5, [1, 0]),
    ]
    assert check_placement_reports(single_replica).valid == "true"


@pytest.mark.parametrize(
    ("more", "valid", "reason"),
    [
        (reported(5, [1, 0, 1], [1]), "false", "controller 2 logged 1 partitions"),
        (reported(5, [1, 0, 1, 0]), "false", "controller 1 logged 1, 0, 1, 0 partitions"),
        (reported(5, []), "false", "controller 1 logged no partitions"),
        (reported(5), "unknown", "read after the moves"),
        (reported(3.5, [1, 0, 1]), "unknown", "read after the moves"),
    ],
)  # fmt: skip
def test_an_additional_or_missing_report_is_wrong(more: Event, valid: str, reason: str) -> None:
    verdict = judge_reports(more)
    assert (verdict.valid, len(verdict.because)) == (valid, 1)
    assert reason in verdict.because[0]


def test_reassignments_of_only_one_kind_are_unknown() -> None:
    only_too_few, only_enough = (
        [*REASSIGNMENTS[:2], reported(5, [1])],
        [REASSIGNMENTS[0], REASSIGNMENTS[2], reported(5, [])],
    )
    for events, missing in ((only_too_few, "enough racks"), (only_enough, "too few")):
        verdict = check_placement_reports(events)
        assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
        assert missing in verdict.because[0]
    unknown = check_placement_reports([*REASSIGNMENTS[1:], reported(5, [1, 0, 1])])
    assert unknown.valid == "unknown"
    assert any("topic t" in reason and "[1, 2]" in reason for reason in unknown.because)


def test_the_planted_violation_change_level_is_found() -> None:
    for events in planted("change-level", [entry for step in upgrade_and_downgrade().values() for entry in step]):
        assert check_levels(events).valid == "false"


def test_the_planted_violation_miss_warning_is_found() -> None:
    for events in planted("miss-warning", [*REASSIGNMENTS, reported(5, [1, 0, 1], [1, 0, 1])]):
        assert check_placement_reports(events).valid == "false"


def test_the_planted_violation_change_version_is_found() -> None:
    for events in planted("change-version", [used("stock", SAME), used("patched", SAME)]):
        assert check_versions(events).valid == "false"
