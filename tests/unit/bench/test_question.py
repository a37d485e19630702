"""Question of a cell: errors in its table, and the followers that each hypothesis awaits."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.plan import scenarios
from bench.plan.cluster_states import StateBrokers
from bench.plan.question import AwaitedReplicas, awaited_followers
from pyhooks.core.errors import RackgateError

RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
# 3 is the nearest, then 2 in the leader's rack, 5 in a third rack, and 4 in the second
FAR = {3: 1.0, 2: 2.0, 5: 3.0, 4: 4.0}
WHOLE = (1, 3, 5, 2, 4)


@pytest.mark.parametrize(
    ("isr", "replicas", "racks", "followers"),
    [
        (WHOLE, 1, 1, set()),
        # one rack more than the leader's needs a follower, whatever M is
        (WHOLE, 1, 2, {3}),
        (WHOLE, 2, 1, {3}),
        (WHOLE, 2, 2, {3}),
        (WHOLE, 3, 1, {3, 2}),
        (WHOLE, 3, 2, {3, 2}),
        # the third rack has the slowest but one
        (WHOLE, 3, 3, {3, 5}),
        (WHOLE, 2, 3, {3, 5}),
        (WHOLE, 4, 3, {3, 2, 5}),
        (WHOLE, 5, 3, {3, 2, 5, 4}),
        # an ISR without the nearest
        ((1, 5, 2, 4), 2, 1, {2}),
        ((1, 5, 2, 4), 2, 2, {5}),
        ((1, 4, 2), 2, 2, {4}),
        ((1,), 1, 1, set()),
    ],
)
def test_the_required_followers_are_the_fastest_that_fulfil_m_and_r(
    isr: tuple[int, ...], replicas: int, racks: int, followers: set[int]
) -> None:
    reached = StateBrokers(isr)
    found = awaited_followers("required", reached, RACKS, FAR, min_insync_replicas=replicas, min_insync_racks=racks)
    assert set(found) == followers
    # the whole ISR is awaited whatever M and R are
    everyone = awaited_followers("isr", reached, RACKS, FAR, min_insync_replicas=replicas, min_insync_racks=racks)
    assert everyone == isr[1:]


@pytest.mark.parametrize(
    ("isr", "replicas", "racks"), [((1, 3), 3, 1), ((1, 2), 2, 2), ((1, 3, 2, 4), 2, 3), ((1,), 1, 2)]
)
def test_an_isr_that_does_not_fulfil_m_and_r_is_an_error(isr: tuple[int, ...], replicas: int, racks: int) -> None:
    awaited: AwaitedReplicas = "required"
    with pytest.raises(ValueError, match=rf"ISR of \[{', '.join(map(str, isr))}\] .* M={replicas}, R={racks}"):
        awaited_followers(awaited, StateBrokers(isr), RACKS, FAR, min_insync_replicas=replicas, min_insync_racks=racks)


ISR_TABLE = '[[question.cells.question.hypotheses]]\nid = "waits-for-isr"'


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("ratio = [0.01, 0.5]", "ratio = [0.01, 0.96]", "hypotheses: needs two with"),
        # ranges that touch have a ratio in common
        ("ratio = [0.01, 0.5]", "ratio = [0.01, 0.95]", "hypotheses: needs two with"),
        ("ratio = [0.95, 1.05]", "ratio = [0.001, 2]", "hypotheses: needs two with"),
        ('id = "waits-for-isr"', 'id = "waits-for-m"', "hypotheses: needs two with"),
        ('arm = "B"', 'arm = "X"', "arm: must be one of B, C, is 'X'"),
        # neither the baseline nor a control is compared with the baseline by a hypothesis
        ('arm = "B"', 'arm = "A"', "arm: must be one of B, C, is 'A'"),
        ('arm = "B"', 'arm = "P"', "arm: must be one of B, C, is 'P'"),
        ("ratio = [0.01, 0.5]", "ratio = [0.5, 0.01]", "waits-for-m: ratio: must be a lower and an upper end"),
        ("round_trips = [1, 2]", "round_trips = [2, 1]", "round_trips: must be a lower and an upper end"),
        ("round_trips = [1, 2]", "round_trips = [1]", "round_trips: must be a lower and an upper end"),
        ("round_trips = [1, 2]", "round_trips = [1, 2, 3]", "round_trips: must be a lower and an upper end"),
        ('awaited = "isr"', 'awaited = "all"', "waits-for-isr: awaited: must be one of required, isr, is 'all'"),
        ('awaited = "isr"\n', "", "waits-for-isr: awaited: is missing"),
        ("round_trips = [1, 2]", "round_trips = [1, 2]\nspeed = 3", "speed: is not known"),
    ],
)
def test_an_error_in_a_question_names_file_and_key(tmp_path: Path, old: str, new: str, error: str) -> None:
    text = scenarios.SHIPPED.read_text(encoding="utf-8")
    begin = text.index("[question.cells.question]")
    assert old in text[begin:]
    path = tmp_path / "plans.toml"
    path.write_text(text[:begin] + text[begin:].replace(old, new, 1), encoding="utf-8")
    with pytest.raises(RackgateError) as caught:
        scenarios.load("question", path)
    assert str(caught.value).startswith(f"{path}: question.cells third-far")
    assert error in str(caught.value)


@pytest.mark.parametrize("number", [1, 3])
def test_one_hypothesis_and_a_third_one_are_errors(tmp_path: Path, number: int) -> None:
    text = scenarios.SHIPPED.read_text(encoding="utf-8")
    begin, end = text.index(ISR_TABLE), text.index("[question.outage]")
    own = text[begin:end] if number == 3 else ""
    third = own.replace("waits-for-isr", "third").replace("[0.95, 1.05]", "[2, 3]")
    path = tmp_path / "plans.toml"
    path.write_text(text[:begin] + own + third + text[end:], encoding="utf-8")
    with pytest.raises(RackgateError, match=r"question\.cells third-far: question\.hypotheses: needs two with"):
        scenarios.load("question", path)
