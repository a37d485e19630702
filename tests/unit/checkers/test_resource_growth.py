"""Memory and open files of processes in a long run."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pyhooks.checkers.registry import CHECKERS
from pyhooks.checkers.resource_growth import check_growth
from pyhooks.history.event_log import Event
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory
from written_histories import S, event


def history(memory: Sequence[int], files: Sequence[int] | None = None) -> list[Event]:
    counts = files or [200] * len(memory)
    return [
        event(number * S, "test", "resources", None, name="broker-1", memory_kib=kib, files=count)
        for number, (kib, count) in enumerate(zip(memory, counts, strict=True))
    ]


FLAT = [100_000, 300_000, 500_000, 500_000, 510_000, 505_000, 512_000, 500_000, 511_000]


def test_a_process_that_fills_its_heap_first_is_flat() -> None:
    verdict = check_growth(history(FLAT, [200] * 9))
    assert verdict.valid == "true", verdict
    assert verdict.notes == (
        "broker-1: files 200 in the middle third, 200 in the last one",
        "broker-1: memory_kib 505000 in the middle third, 511000 in the last one",
    )


@pytest.mark.parametrize(
    ("memory", "files", "name"),
    [([*FLAT[:6], 700_000, 700_000, 700_000], [200] * 9, "memory_kib"), (FLAT, [*[200] * 6, 300, 300, 300], "files")],
)
def test_growth_is_wrong(memory: list[int], files: list[int], name: str) -> None:
    verdict = check_growth(history(memory, files))
    assert verdict.valid == "false"
    assert verdict.because[0].startswith(f"broker-1: {name} ")


def test_missing_evidence_is_unknown() -> None:
    assert check_growth([]).valid == "unknown"
    assert check_growth(history(FLAT[:5])).because[0] == "broker-1: 5 samples of files, 6 are needed"


def test_the_checker_applies_to_resources() -> None:
    assert all(map(CHECKERS["flat"].applies, history(FLAT)))
    assert not CHECKERS["flat"].applies(event(1, "test", "phase", None))


def test_a_planted_violation_is_found() -> None:
    (violation,) = [one for one in VIOLATIONS if one.name == "grow"]
    for seed in range(5):
        planted = violation.plant(StoredHistory(history(FLAT, [200] * 9)), random.Random(seed))  # noqa: S311 - a seeded test
        assert planted is not None
        assert check_growth(planted).valid == "false"
