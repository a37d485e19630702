"""Random steps of a soak."""

from __future__ import annotations

from itertools import islice

from ducktape_tests.soak_plan import BRIEF_S, FAULTS, LONG_S, NEEDS, SHARES, SoakStep, steps

RACKS = {"a": (1, 2), "b": (3, 4), "c": (5, 6)}
TOPICS = {"gated": (1, 2, 3), "one": (1, 3, 5), "two": (3, 4, 5)}
CHANGING = ("one", "two")


def drawn(seed: int, count: int) -> list[SoakStep]:
    return list(islice(steps(seed, RACKS, TOPICS, CHANGING), count))


def test_the_seed_determines_the_steps() -> None:
    assert drawn(1, 50) == drawn(1, 50)
    assert drawn(1, 50) != drawn(2, 50)


def test_all_kinds_of_steps_and_targets_come() -> None:
    found = drawn(3, 400)
    assert {step.kind for step in found} == set(SHARES)
    faults = [step for step in found if step.kind == "fault"]
    assert {(step.fault, bool(step.rack)) for step in faults} == {(kind, whole) for kind in FAULTS for whole in (0, 1)}
    assert {step.rack for step in faults} == {"", *RACKS}
    assert {step.broker for step in faults} == {0, 1, 2, 3, 4, 5, 6}
    assert all(bool(step.rack) != bool(step.broker) for step in faults)
    assert all(BRIEF_S[0] <= step.seconds <= LONG_S[1] for step in faults)
    assert {step.need for step in found if step.kind == "requirement"} == set(NEEDS)


def test_each_fault_comes_once_before_any_comes_again() -> None:
    faults = [(step.fault, bool(step.rack)) for step in drawn(4, 400) if step.kind == "fault"]
    for first in range(0, len(faults) - 10, 10):
        assert len(set(faults[first : first + 10])) == 10


def test_reassigned_topics_keep_their_number_of_racks() -> None:
    rack_of = {broker: rack for rack, own in RACKS.items() for broker in own}
    placed: dict[str, tuple[int, ...]] = {**TOPICS}
    for step in drawn(5, 400):
        if step.kind == "reassignment":
            assert step.topic in CHANGING
            assert len(set(step.replicas)) == 3
            assert len({rack_of[one] for one in step.replicas}) == len({rack_of[one] for one in TOPICS[step.topic]})
            assert step.replicas != placed[step.topic]
            placed[step.topic] = step.replicas


def test_no_topic_requires_more_racks_than_it_has() -> None:
    needs = [(step.topic, step.need[1]) for step in drawn(6, 400) if step.kind == "requirement"]
    assert max(racks for topic, racks in needs if topic == "one") == 3
    assert max(racks for topic, racks in needs if topic == "two") == 2


def test_steps_have_descriptions() -> None:
    assert SoakStep("fault", "kill", "a", 0, 2.0).text == "kill rack a 2.0 s"
    assert SoakStep("fault", "cut", "", 3, 12.34).text == "cut broker 3 12.3 s"
    assert SoakStep("requirement", topic="one", need=(2, 3)).text == "one: M=2, R=3"
    assert SoakStep("reassignment", topic="two", replicas=(1, 3, 6)).text == "two to [1, 3, 6]"
    assert SoakStep("rolling restart").text == "rolling restart"
