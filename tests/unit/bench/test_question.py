"""Question of a cell: validation, and the followers that the leader awaits under each hypothesis."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.plan import scenarios
from bench.plan.cluster_states import StateBrokers
from bench.plan.question import AwaitedReplicas, awaited_followers
from pyhooks.core.errors import RackgateError

RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
# Round trip in ms to each follower of leader 1; 2 is in the leader's rack.
ROUND_TRIPS_MS = {3: 1.0, 2: 2.0, 5: 3.0, 4: 4.0}
FULL_ISR = (1, 3, 5, 2, 4)


@pytest.mark.parametrize(
    ("isr", "replicas", "racks", "followers"),
    [
        (FULL_ISR, 1, 1, set()),
        # A second rack requires a follower even with M=1.
        (FULL_ISR, 1, 2, {3}),
        (FULL_ISR, 2, 1, {3}),
        (FULL_ISR, 2, 2, {3}),
        (FULL_ISR, 3, 1, {3, 2}),
        (FULL_ISR, 3, 2, {3, 2}),
        # The only follower in the third rack is the second slowest.
        (FULL_ISR, 3, 3, {3, 5}),
        (FULL_ISR, 2, 3, {3, 5}),
        (FULL_ISR, 4, 3, {3, 2, 5}),
        (FULL_ISR, 5, 3, {3, 2, 5, 4}),
        # ISRs without the nearest follower
        ((1, 5, 2, 4), 2, 1, {2}),
        ((1, 5, 2, 4), 2, 2, {5}),
        ((1, 4, 2), 2, 2, {4}),
        ((1,), 1, 1, set()),
    ],
)
def test_required_followers_are_the_fastest_that_satisfy_m_and_r(
    isr: tuple[int, ...], replicas: int, racks: int, followers: set[int]
) -> None:
    state = StateBrokers(isr)
    required = awaited_followers(
        "required", state, RACKS, ROUND_TRIPS_MS, min_insync_replicas=replicas, min_insync_racks=racks
    )
    assert set(required) == followers
    # The other hypothesis awaits the whole ISR, regardless of M and R.
    all_followers = awaited_followers(
        "isr", state, RACKS, ROUND_TRIPS_MS, min_insync_replicas=replicas, min_insync_racks=racks
    )
    assert all_followers == isr[1:]


@pytest.mark.parametrize(
    ("isr", "replicas", "racks"), [((1, 3), 3, 1), ((1, 2), 2, 2), ((1, 3, 2, 4), 2, 3), ((1,), 1, 2)]
)
def test_an_isr_that_does_not_satisfy_m_and_r_is_an_error(isr: tuple[int, ...], replicas: int, racks: int) -> None:
    awaited: AwaitedReplicas = "required"
    with pytest.raises(ValueError, match=rf"ISR of \[{', '.join(map(str, isr))}\] .* M={replicas}, R={racks}"):
        awaited_followers(
            awaited, StateBrokers(isr), RACKS, ROUND_TRIPS_MS, min_insync_replicas=replicas, min_insync_racks=racks
        )


ISR_TABLE = '[[question.cells.question.hypotheses]]\nid = "waits-for-isr"'


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("ratio = [0.01, 0.5]", "ratio = [0.01, 0.96]", "hypotheses: needs two with"),
        # Adjacent ranges share an end.
        ("ratio = [0.01, 0.5]", "ratio = [0.01, 0.95]", "hypotheses: needs two with"),
        ("ratio = [0.95, 1.05]", "ratio = [0.001, 2]", "hypotheses: needs two with"),
        ('id = "waits-for-isr"', 'id = "waits-for-m"', "hypotheses: needs two with"),
        ('arm = "B"', 'arm = "X"', "arm: must be one of B, C, is 'X'"),
        # A hypothesis cannot compare the baseline or a control with the baseline.
        ('arm = "B"', 'arm = "A"', "arm: must be one of B, C, is 'A'"),
        ('arm = "B"', 'arm = "P"', "arm: must be one of B, C, is 'P'"),
        ("ratio = [0.01, 0.5]", "ratio = [0.5, 0.01]", "waits-for-m: ratio: must be a lower and an upper end"),
        ("round_trips = [1, 2]", "round_trips = [2, 1]", "round_trips: must be a lower and an upper end"),
        ("round_trips = [1, 2]", "round_trips = [1]", "round_trips: must be a lower and an upper end"),
        ("round_trips = [1, 2]", "round_trips = [1, 2, 3]", "round_trips: must be a lower and an upper end"),
        ('awaited = "isr"', 'awaited = "all"', "waits-for-isr: awaited: must be one of required, isr, is 'all'"),
        ('awaited = "isr"\n', "", "waits-for-isr: awaited: is missing"),
        ("round_trips = [1, 2]", "round_trips = [1, 2]\nspeed = 3", "speed: unknown key"),
    ],
)
def test_an_invalid_question_is_an_error_that_names_file_and_key(
    tmp_path: Path, old: str, new: str, error: str
) -> None:
    text = scenarios.SHIPPED.read_text(encoding="utf-8")
    begin = text.index("[question.cells.question]")
    assert old in text[begin:]
    path = tmp_path / "plans.toml"
    path.write_text(text[:begin] + text[begin:].replace(old, new, 1), encoding="utf-8")
    with pytest.raises(RackgateError) as caught:
        scenarios.load("question", path)
    assert str(caught.value).startswith(f"{path}: question.cells far-followers")
    assert error in str(caught.value)


@pytest.mark.parametrize("number", [1, 3])
def test_a_question_needs_exactly_two_hypotheses(tmp_path: Path, number: int) -> None:
    text = scenarios.SHIPPED.read_text(encoding="utf-8")
    begin, end = text.index(ISR_TABLE), text.index("[question.outage]")
    isr_table = text[begin:end] if number == 3 else ""
    third = isr_table.replace("waits-for-isr", "third").replace("[0.95, 1.05]", "[2, 3]")
    path = tmp_path / "plans.toml"
    path.write_text(text[:begin] + isr_table + third + text[end:], encoding="utf-8")
    with pytest.raises(RackgateError, match=r"question\.cells far-followers: question\.hypotheses: needs two with"):
        scenarios.load("question", path)
