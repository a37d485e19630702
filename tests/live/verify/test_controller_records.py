"""Without required racks, the patched controller writes the same bytes as one that has only the fixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from controller_records import (
    ControllerConfig,
    ControllerRecord,
    ScriptEvent,
    compiled_script,
    first_difference,
    parse,
)
from pyhooks.core.errors import RackgateError
from pyhooks.patchset.distribution import Distribution

FIRST_SEED, SEEDS, STEPS = 1, 20, 150
FEATURE = "FeatureLevelRecord(name='min.insync.racks.version', featureLevel=1)"
# While racks are enforced, the controller keeps an explicit cluster value, even if it is 1.
CLUSTER_VALUE = "ConfigRecord(resourceType=4, resourceName='', name='min.insync.racks', value='1')"
ELR_MEMBERS = "eligibleLeaderReplicas=["
Run = Callable[[ControllerConfig], tuple[ScriptEvent, ...]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run all scripts on an arm; cached."""
    with compiled_script(Distribution.load()) as made:
        yield cache(lambda arm: made.run(arm, first_seed=FIRST_SEED, seeds=SEEDS, steps=STEPS))


def fixes_alone(elr_level: int) -> ControllerConfig:
    """The published classes with only the fixes."""
    return ControllerConfig(overlay=False, racks_level=None, elr_level=elr_level)


def without_the_feature(steps: tuple[ScriptEvent, ...]) -> tuple[ScriptEvent, ...]:
    """Remove the feature's records from the events; they may occur only where racks begin to be enforced.

    The feature's level is written once per script, at bootstrap, and the cluster's value when ELR is enabled as well.
    The script's bootstrap omits what the controller would add there.
    """
    own = [step for step in steps for record in step.records if record.text == FEATURE]
    assert [(step.seed, step.number, step.name) for step in own] == [
        (seed, 0, "bootstrap") for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)
    ]
    values = [step for step in steps if any(record.text == CLUSTER_VALUE for record in step.records)]
    assert {step.name for step in values} <= {"enable ELR"}
    # the value stays when ELR is disabled, and is not written again
    assert len({step.seed for step in values}) == len(values)
    added = (FEATURE, CLUSTER_VALUE)
    return tuple(replace(step, records=tuple(r for r in step.records if r.text not in added)) for step in steps)


@pytest.mark.parametrize("elr_level", [0, 1])
def test_with_the_feature_at_0_the_records_are_those_of_stock(run: Run, elr_level: int) -> None:
    ours = run(ControllerConfig(overlay=True, racks_level=0, elr_level=elr_level))
    assert first_difference(run(fixes_alone(elr_level)), ours) == ""


@pytest.mark.parametrize("elr_level", [0, 1])
def test_with_one_rack_required_only_the_records_of_the_feature_are_added(run: Run, elr_level: int) -> None:
    ours = run(ControllerConfig(overlay=True, racks_level=1, elr_level=elr_level))
    assert first_difference(run(fixes_alone(elr_level)), without_the_feature(ours)) == ""


def test_with_two_racks_required_replicas_become_eligible_that_stock_forgets(run: Run) -> None:
    """Control: the comparison can fail, and fails exactly where expected."""
    theirs, ours = (
        run(fixes_alone(1)),
        without_the_feature(run(ControllerConfig(overlay=True, racks_level=1, min_insync_racks=2))),
    )
    differences = []
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        sides = [tuple(without_configs(step) for step in steps if step.seed == seed) for steps in (theirs, ours)]
        differences.append(first_difference(*sides))
    # a few scripts disable ELR early, before there is a topic that forbids this
    assert sum(map(bool, differences)) >= SEEDS // 2, differences
    sides_said = [said.partition(" against ")[::2] for said in differences]
    only_ours = [pair for pair in sides_said if [ELR_MEMBERS in side for side in pair] == [False, True]]
    assert len(only_ours) >= 3, differences


def without_configs(step: ScriptEvent) -> ScriptEvent:
    """Return the event without its config records and records that clear an ELR."""
    own = ("ConfigRecord", "ClearElrRecord")
    return replace(step, records=tuple(record for record in step.records if record.kind not in own))


def test_the_script_reaches_what_it_is_to_compare(run: Run) -> None:
    steps = run(fixes_alone(1))
    kinds = Counter(record.kind for step in steps for record in step.records)
    for kind in (
        "RegisterBrokerRecord",
        "BrokerRegistrationChangeRecord",
        "TopicRecord",
        "RemoveTopicRecord",
        "ConfigRecord",
    ):
        assert kinds[kind] >= 50, kinds
    assert kinds["PartitionChangeRecord"] >= 1000, kinds
    assert kinds["ClearElrRecord"] >= 20, kinds
    texts = [record.text for step in steps for record in step.records]
    assert sum(ELR_MEMBERS in text for text in texts) >= 100
    names = Counter(step.name.split()[0] for step in steps if step.records)
    for name in (
        "create",
        "delete",
        "add",
        "shrink",
        "expand",
        "reassign",
        "elect",
        "alter",
        "enable",
        "disable",
        "fence",
        "shut",
    ):
        assert names[name] >= 5, names
    assert any("UNCLEAN" in step.name and step.records for step in steps)
    assert any(step.name.endswith("after a clean shutdown") for step in steps)


def step(data: str = "00", *, name: str = "create", number: int = 0) -> ScriptEvent:
    return ScriptEvent(7, number, name, (ControllerRecord(data, f"TopicRecord({data})"),), "")


def test_differences_name_the_seed_and_the_records() -> None:
    assert first_difference([step()], [step()]) == ""
    assert "seed 7, event 0, 'create'" in first_difference([step()], [step("01")])
    assert "TopicRecord(01)" in first_difference([step()], [step("01")])
    assert "'delete'" in first_difference([step()], [step(name="delete")])
    assert "1 events against 2" in first_difference([step()], [step(), step(number=1)])


def test_incomplete_output_is_an_error() -> None:
    whole = "event\t7\t0\tcreate\nrecord\t00\tTopicRecord(00)\nevent\t7\t1\tgone\nrejected\tSomeException\nend\n"
    assert parse(whole) == (step(), ScriptEvent(7, 1, "gone", (), "SomeException"))
    with pytest.raises(RackgateError, match="script did not complete"):
        parse(whole.removesuffix("end\n"))
