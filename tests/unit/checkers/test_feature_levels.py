"""Feature levels, request versions and warnings of moves: the checkers accept correct ones and find wrong ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from pyhooks.checkers.feature_levels import CASES, check_levels
from pyhooks.checkers.placement_reports import check_placement_reports
from pyhooks.checkers.request_versions import check_versions
from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from written_histories import S, event

# ---------------------------------------------------------------------------------------------------------- levels


def level(at_s: float, how: str, before: int, after: int, lack: int = 0) -> Event:
    to = 1 if how == "upgrade" else 0
    fields: dict[str, Any] = {"how": how, "to": to, "before": before, "after": after, "lack": lack, "said": "words"}
    return event(round(at_s * S), "test", "level", None, **fields)


def settings(at_s: float, racks: int, step: str, topic: str = "t") -> Event:
    fields: dict[str, Any] = {"topic": topic, "step": step, "min.insync.replicas": 2, "min.insync.racks": racks}
    return event(round(at_s * S), "settings", "settings", **fields)


def changed(at_s: float, before: int, racks: int, end: str) -> list[Event]:
    return [settings(at_s - 0.1, before, "seen"), settings(at_s, racks, "begin"), settings(at_s + 0.1, racks, end)]


def upgraded() -> dict[str, list[Event]]:
    """A cluster on its way to the feature and back."""
    return {
        "made": [settings(1, 1, "made")],
        "up, in vain": [level(2, "upgrade", 0, 0, lack=3)],
        "R, in vain": changed(3, 1, 2, "refused"),
        "up": [level(4, "upgrade", 0, 1)],
        "R": changed(5, 1, 2, "settled"),
        "down, in vain": [level(6, "downgrade", 1, 1)],
        "R=1": changed(7, 2, 1, "settled"),
        "down": [level(8, "downgrade", 1, 0)],
    }


def of_levels(steps: dict[str, list[Event]]) -> Verdict:
    return check_levels([event for step in steps.values() for event in step])


def test_a_feature_that_follows_its_rules_is_valid() -> None:
    found = of_levels(upgraded())
    assert (found.valid, found.because) == ("true", ())
    notes = zip(found.notes, sorted(CASES), strict=True)
    assert all(note.startswith("1 ") and note.endswith(case) for note, case in notes)


@pytest.mark.parametrize(
    ("step", "instead", "reason"),
    [
        (
            "up, in vain",
            [level(2, "upgrade", 0, 1, lack=3)],
            "3 nodes lacking the overlay (words) was carried out",
        ),
        ("up", [level(4, "upgrade", 0, 0)], "with 0 nodes lacking the overlay (words) was refused"),
        ("down, in vain", [level(6, "downgrade", 1, 0)], "with racks required by 1 topics (words) was carried out"),
        ("down", [level(8, "downgrade", 1, 1)], "with racks required by 0 topics (words) was refused"),
        ("R, in vain", changed(3, 1, 2, "settled"), "R=2 for topic t at level 0 was carried out"),
        ("R", changed(5, 1, 2, "refused"), "R=2 for topic t at level 1 was refused"),
        # it took hold after it had been refused
        ("up", [level(4, "upgrade", 1, 1)], "the level went from 0 to 1 without a request"),
    ],
)
def test_a_broken_rule_of_the_feature_is_found(step: str, instead: list[Event], reason: str) -> None:
    found = of_levels(upgraded() | {step: instead})
    assert found.valid == "false"
    assert any(reason in one for one in found.because), found.because


WITHOUT_LEVELS: dict[str, list[Event]] = {step: [] for step in ("up, in vain", "up", "down, in vain", "down")}
NO_LEVEL = "R=2 for topic t: the level then is unknown"


@pytest.mark.parametrize(
    ("instead", "reasons"),
    [
        ({"up, in vain": []}, ["no case of: upgrade refused"]),
        ({"down": []}, ["no case of: downgrade carried out"]),
        ({"down, in vain": []}, ["no case of: downgrade refused"]),
        ({"R, in vain": []}, ["no case of: racks refused"]),
        ({"R": [], "down, in vain": []}, ["no case of: downgrade refused", "no case of: racks carried out"]),
        ({"up": [level(4, "upgrade", 0, 1, lack=0)], "R": changed(5, 1, 2, "settled")[:2]},
         ["R=2 for topic t at level 1: its result is unknown", "no case of: racks carried out"]),
        (WITHOUT_LEVELS, [NO_LEVEL, *map("no case of: {}".format, CASES)]),
    ],
)  # fmt: skip
def test_a_case_that_was_not_tried_is_unknown(instead: dict[str, list[Event]], reasons: list[str]) -> None:
    found = of_levels(upgraded() | instead)
    assert found.valid == "unknown"
    assert set(reasons) <= set(found.because), found.because


def test_a_hanging_request_makes_a_downgrade_unknown() -> None:
    found = of_levels(upgraded() | {"R=1": changed(7, 2, 1, "settled")[:2]})
    assert (found.valid, len(found.because)) == ("unknown", 2)
    assert "downgrade from level 1 to 0" in found.because[0]
    assert found.because[1].endswith("downgrade carried out")


# -------------------------------------------------------------------------------------------------------- versions


def uses(brokers: str, versions: dict[str, str], client: str = "stock") -> Event:
    data: dict[str, Any] = {"client": client, "brokers": brokers, "baseline": brokers == "stock", "versions": versions}
    return event(S, "test", "versions", None, **data)


SAME = {"Produce": "13", "Fetch": "18"}


@pytest.mark.parametrize(
    ("others", "valid", "reason"),
    [
        ([uses("stock", SAME), uses("patched", SAME)], "true", ""),
        ([uses("stock", SAME), uses("patched", SAME | {"Produce": "12"})], "false",
         "client stock uses version 13 of Produce with stock, and 12 with patched"),
        ([uses("stock", SAME), uses("patched", {"Produce": "13"})], "false", "and none with patched"),
        ([uses("stock", SAME), uses("patched", SAME | {"New": "0"})], "false", "uses version none of New with stock"),
        ([uses("stock", SAME), uses("patched", SAME), uses("another", {"Fetch": "18"})], "false", "another"),
        ([uses("stock", SAME)], "unknown", "client stock was not queried with other brokers"),
        ([uses("patched", SAME)], "unknown", "client stock was not queried with baseline brokers"),
        ([uses("stock", {}), uses("patched", {})], "unknown", "client stock reported no versions with stock"),
        ([uses("stock", SAME), uses("patched", {})], "unknown", "client stock reported no versions with patched"),
        ([uses("stock", SAME), uses("patched", SAME), uses("stock", SAME, "2.8.2")], "unknown", "client 2.8.2 was not"),
        ([], "unknown", "no versions of a client were queried"),
    ],
)  # fmt: skip
def test_versions_are_compared_with_the_baseline(others: list[Event], valid: str, reason: str) -> None:
    found = check_versions(others)
    assert found.valid == valid
    assert reason in "; ".join(found.because)
    assert bool(found.because) is bool(reason)


# ---------------------------------------------------------------------------------------------------------- warned


def moved(at_s: float, before: Sequence[int], after: Sequence[int], topic: str = "t") -> Event:
    racks = {"1": "a", "2": "a", "3": "b", "5": "c"}
    data: dict[str, Any] = {"topic": topic, "before": list(before), "after": list(after), "racks": racks}
    return event(round(at_s * S), "test", "moved", None, **data)


def logs(at_s: float, *counts: list[int]) -> Event:
    """Partitions that each controller has logged."""
    return event(round(at_s * S), "test", "warnings", None, counts=dict(zip("123", counts, strict=False)))


# out of rack b, where nothing is added; to rack a's other broker and one more of it; and back
MOVES = [settings(1, 2, "made"), moved(2, [1, 2, 3], [1, 2]), moved(3, [1, 2], [1, 3]), moved(4, [1, 3], [2, 1])]


def warned(*more: Event) -> Verdict:
    return check_placement_reports([*MOVES, *more])


def test_moves_into_too_few_racks_are_reported() -> None:
    found = warned(logs(5, [1, 0, 1], [1, 0, 1]))
    assert (found.valid, found.because) == ("true", ())
    counts = [re.findall(r"\d+", note) for note in found.notes]
    assert counts == [["2", "1", "0", "1", "3"]], "controllers, partitions of each report, moves"


def test_two_partitions_may_be_reported_together() -> None:
    both = [
        settings(1, 2, "made"),
        settings(1, 2, "made", topic="u"),
        moved(2, [1, 3], [1, 2]),
        moved(2, [1, 3], [1, 2], "u"),
    ]
    back = [moved(3, [1, 2], [1, 3]), moved(3, [1, 2], [1, 3], "u")]
    for counts in ([2, 0], [1, 2, 1, 0], [2, 1, 0]):
        assert check_placement_reports([*both, *back, logs(5, counts)]).valid == "true"
    assert check_placement_reports([*both, *back, logs(5, [1, 0])]).valid == "false"


def test_a_single_replica_requires_one_rack() -> None:
    alone = [settings(1, 2, "made"), moved(2, [1, 3], [1, 2]), moved(3, [1, 2], [1]), logs(5, [1, 0])]
    assert check_placement_reports(alone).valid == "true"


@pytest.mark.parametrize(
    ("more", "valid", "reason"),
    [
        (logs(5, [1, 0, 1], [1]), "false", "controller 2 logged 1 partitions"),
        (logs(5, [1, 0, 1, 0]), "false", "controller 1 logged 1, 0, 1, 0 partitions"),
        (logs(5, []), "false", "controller 1 logged no partitions"),
        (logs(5), "unknown", "read after the moves"),
        (logs(3.5, [1, 0, 1]), "unknown", "read after the moves"),
    ],
)  # fmt: skip
def test_a_report_too_many_or_too_few_is_wrong(more: Event, valid: str, reason: str) -> None:
    found = warned(more)
    assert (found.valid, len(found.because)) == (valid, 1)
    assert reason in found.because[0]


def test_moves_that_show_nothing_are_unknown() -> None:
    only_too_few, only_enough = [*MOVES[:2], logs(5, [1])], [MOVES[0], MOVES[2], logs(5, [])]
    for events, missing in ((only_too_few, "enough racks"), (only_enough, "too few")):
        found = check_placement_reports(events)
        assert (found.valid, len(found.because)) == ("unknown", 1)
        assert missing in found.because[0]
    unknown = check_placement_reports([*MOVES[1:], logs(5, [1, 0, 1])])
    assert unknown.valid == "unknown"
    assert any("topic t" in reason and "[1, 2]" in reason for reason in unknown.because)
