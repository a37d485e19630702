"""Benchmark plans, schedules of slots and the pacer."""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import pacer, schedule
from bench.load.pacer import ArmPacer, record_key
from bench.load.schedule import Slot
from bench.plan import cluster_states, lab_topology, scenarios
from bench.plan.cluster_states import STATES, StateBrokers
from bench.run import lab_run
from bench.run.run_store import RunStore
from pyhooks.core.errors import RackgateError
from pyhooks.lab import topology
from pyhooks.lab.topology import Quality
from pyhooks.workload.pacing import NS, due_ns


def existing_plan_text() -> str:
    """Return the shipped plans with only the scenario ``existing``, which overrides little of ``common``."""
    text = scenarios.SHIPPED.read_text(encoding="utf-8")
    first, own, following = (text.index(f"\n[{name}]\n") for name in ("question", "existing", "tail"))
    return text[:first] + text[own:following]


def edit_plan(tmp_path: Path, pattern: str, replacement: str) -> Path:
    text = existing_plan_text()
    changed = re.sub(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert changed != text
    path = tmp_path / "plans.toml"
    path.write_text(changed, encoding="utf-8")
    return path


def test_the_question_plan_has_the_required_arms_and_cell(tmp_path: Path) -> None:
    plan = scenarios.load("question")
    arms = {arm.topic: arm for arm in plan.arms}
    assert {arm.replicas for arm in plan.latency_arms} == {(1, 3, 5, 2, 4)}
    assert (arms["rf5-m3"].min_insync_replicas, arms["rf5-m3"].min_insync_racks) == (3, 1)
    assert (arms["rf5-m2r2"].min_insync_replicas, arms["rf5-m2r2"].min_insync_racks) == (2, 2)
    assert arms["rf3-m2r2"].replicas == arms["rf3-m2r1"].replicas == (1, 2, 3)
    control, base = plan.role("control"), plan.role("baseline")
    assert (control.min_insync_replicas, control.min_insync_racks) == (base.min_insync_replicas, base.min_insync_racks)
    assert [(arm.id, arm.latency) for arm in plan.arms if arm.acks == "1"] == [("P", "positive")]
    assert len(plan.outage_arms) == 4
    assert plan.outage is not None
    (cell,) = plan.cells
    assert len(plan.places) == 1
    assert (cell.state, cell.reached) == ("third-far", StateBrokers((1, 3, 5, 2, 4), (), (5, 2, 4)))
    assert [arm.latency for arm in cell.scenario.latency_arms] == [
        "baseline",
        "control",
        "candidate",
        "candidate",
        "positive",
    ]
    assert (cell.judged, cell.rejecting) == ((0.5,), frozenset())
    latency = cell.scenario.latency
    assert (latency.blocks, latency.min_blocks, latency.pieces, latency.piece_s) == (10, 10, 3, 0.6)
    question = cell.question
    assert question is not None
    assert (question.arm, question.round_trips) == ("B", (1, 2))
    assert {hypothesis.id: (hypothesis.awaited, hypothesis.ratio) for hypothesis in question.hypotheses} == {
        "waits-for-m": ("required", (0.01, 0.5)),
        "waits-for-isr": ("isr", (0.95, 1.05)),
    }
    # The hypotheses are part of the run's conditions, so they cannot change after the measurement.
    assert plan.as_json()["cells"][0]["question"]["hypotheses"][1]["ratio"] == (0.95, 1.05)
    assert plan.target_min == 6
    assert lab_run.estimate_s(RunStore(tmp_path), plan) < 370  # including the start of its lab
    # A target applies only to the unchanged plan.
    assert scenarios.load("question", place=plan.topology).target_min == 6
    assert scenarios.load("question", place="az3-load").target_min is None
    assert scenarios.load("tail").target_min is None
    four_tasks = scenarios.load("question", tasks=4)
    assert (four_tasks.tasks, four_tasks.cells[0].scenario.tasks, four_tasks.target_min) == (4, 4, None)


@pytest.mark.parametrize("name", ["question", "full", "existing", "tail"])
def test_every_cell_has_the_positive_control(name: str) -> None:
    for cell in scenarios.load(name).cells:
        positive = [arm.id for arm in cell.scenario.latency_arms if arm.latency == "positive"]
        assert positive == ["P"]
        assert "P" not in cell.rejecting


def test_the_full_plan_has_the_required_cells_and_meets_its_target(tmp_path: Path) -> None:
    full = scenarios.load("full")
    assert len(full.cells) == 12
    assert full.target_min == 100
    settings = [cell.setting for cell in full.cells]
    assert {setting.state for setting in settings} == set(STATES) - {"third-far"}
    assert {setting.link for setting in settings} == {"none", "az", "far"}
    assert {setting.load_percent for setting in settings} == {20, 50, 80}
    assert {setting.record_bytes for setting in settings} == {100, 1000, 10_000}
    assert {setting.linger_ms for setting in settings} == {0, 5}
    assert {setting.client for setting in settings} == {"confluent", "java"}
    arms = {arm.id: (arm.min_insync_replicas, arm.min_insync_racks) for arm in full.latency_arms}
    assert arms == {"A": (3, 1), "A'": (3, 1), "B": (2, 2), "C": (2, 1), "P": (1, 1)}
    rejecting = {cell.id: set(cell.rejecting) for cell in full.cells if cell.rejecting}
    assert rejecting == {"isr-2-in-2": {"A"}, "isr-2-in-1": {"A", "A'", "B"}}
    assert all(
        cell.scenario.latency.blocks >= full.latency.min_blocks
        for cell in full.cells
        if cell.scenario.role("baseline").id not in cell.rejecting
    )
    # Where M=3 rejects, R=2 is compared only with M=2, which has its own control.
    roles = {cell.id: {arm.id: arm.latency for arm in cell.scenario.latency_arms} for cell in full.cells}
    assert roles.pop("isr-2-in-2") == {
        "A": "candidate",
        "B": "candidate",
        "C": "baseline",
        "C'": "control",
        "P": "positive",
    }
    usual = {"A": "baseline", "A'": "control", "B": "candidate", "C": "candidate", "P": "positive"}
    # M=3 with R=2 is in one cell, which has the other instruments, too.
    assert roles.pop("healthy-20") == usual | {"F": "candidate"}
    assert list(roles.values()) == [usual] * 10
    for cell in full.cells:
        assert cell.reached.isr[0] == 1 == cell.replicas[0]
        # ten records beyond the 99th percentile, with the loads of the stored result
        judged = [cell.setting.link, cell.scenario.latency.measured_s * 200 >= 1000] if 0.99 in cell.judged else []
        assert judged in ([], ["far", True])
    far = next(cell for cell in full.cells if cell.state == "two-data-centres")
    assert len(far.replicas) == 4
    assert lab_run.estimate_s(RunStore(tmp_path), full) <= 100 * 60


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('control = "C\'"', 'control = "C"', "'C' has two roles"),
        ('control = "C\'"', 'control = "A"', "'A' has two roles"),
        ('candidates = ["B", "A"]', 'candidates = ["B", "D"]', "candidates"),
        ('baseline = "C"\n', "", "control"),
        # The positive control cannot have another role.
        ('control = "C\'"', 'control = "P"', "control: must be one of A, A', B, C, C', F, is 'P'"),
        (
            'candidates = ["B", "A"]',
            'candidates = ["B", "P"]',
            "candidates: value 2 must be one of A, A', B, C, C', F, is",
        ),
    ],
)
def test_an_invalid_role_in_a_cell_is_an_error(tmp_path: Path, old: str, new: str, error: str) -> None:
    text = scenarios.SHIPPED.read_text(encoding="utf-8")
    assert old in text
    file = tmp_path / "scenarios.toml"
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(RackgateError, match=error):
        scenarios.load("full", file)


def test_the_tail_plan_measures_long_enough_for_p99() -> None:
    tail = scenarios.load("tail")
    # bench/scenarios.toml: with the observed spread, p99 of two comparisons needs 26 blocks of about 20 s.
    assert tail.latency.measured_s >= 20
    assert tail.latency.blocks >= 26
    assert tail.cells[0].judged == (0.5, 0.99)


@pytest.mark.parametrize(
    ("pattern", "replacement", "error"),
    [
        (r"^seed = .*$", "", "existing.seed: is missing"),
        (r"^state = .*$", 'state = "ill"', "existing.cells healthy: state: must be one of healthy, slow-follower"),
        (r"^state = .*$", 'state = "two-data-centres"', "needs [existing.two_data_centres]"),
        (r"^state = .*$", 'state = "isr-3-in-2-racks"\nspeed = 3', "existing.cells healthy: speed: unknown key"),
        (r"^link = .*$", 'link = "moon"', "existing.cells healthy: link: must be one of none, az, far, is 'moon'"),
        (r"^record_bytes = .*$", "record_bytes = 5", "cells healthy: record_bytes: must be one of 100, 1000, 10000"),
        (r"^linger_ms = .*$", "linger_ms = true", "existing.cells healthy: linger_ms: must be one of 0, 5, is True"),
        (r"^client = .*$", 'client = "other"', "existing.cells healthy: client: must be one of confluent, java"),
        (r"^rate_per_s = 250$", "load_percent = 20", "existing.ramp: is missing, and a cell has load_percent"),
        (r"^rate_per_s = 250$", "load_percent = 30", "load_percent: must be one of 20, 50, 80"),
        (r"^rate_per_s = 250$", "rate_per_s = 250\nload_percent = 20", "exactly one of load_percent and rate_per_s"),
        (r'^id = "healthy"$', 'id = "Healthy one"', "id: must "),
        (r'^id = "healthy"$', 'id = "healthy"\njudged = ["p90"]', "judged: value 1 must be one of p50, p99"),
        (r"^uses = .*$", 'uses = ["A", "A", "B"]', "existing.uses: contains a duplicate"),
        (r"^uses = .*$", 'uses = ["A", "X"]', "existing.uses: value 2 must be one of A, A', B, C, C', F, P, D, E"),
        (
            r"^opening_s = .*$",
            "opening_s = 0",
            "existing.latency.opening_s: must be greater than or equal to 0.05, is 0",
        ),
        (r"^seed = .*$", 'seed = "x"', "existing.seed: must be a valid integer, is 'x'"),
        (r"^blocks = .*$", "blocks = 1", "existing.latency.blocks: must be greater than or equal to 2, is 1"),
        (r"^blocks = .*$", "blocks = 2.5", "existing.latency.blocks: must be a valid integer"),
        (r"^blocks = .*$", "blocks = 12\nblock = 3", "existing.latency.block: unknown key"),
        (r"^p50 = .*$", "p50 = 0", "existing.latency.bands.p50: must be greater than or equal to 0.001, is 0"),
        (r"^discard_s = .*$", "discard_s = 9", "existing.latency.discard_s: must be below piece_s"),
        (r'^latency = "control"$', 'latency = "none"', "exactly one arm must be the control"),
        (
            r'^latency = "control"$',
            'latency = "other"',
            "existing.arms A': latency: must be one of",
        ),
        (r"^replicas = .*$", "replicas = [1, 1]", "existing.arms A: replicas: contains a duplicate"),
        (r"^replicas = .*$", "replicas = [1, 2, 3]", "must have the same replicas"),
        (r"^min_insync_replicas = .*$", "min_insync_replicas = 6", "min_insync_replicas: is above the 5 replicas"),
        (r'^"enable.idempotence"', '"acks" = 1\n"enable.idempotence"', "existing.client.acks: is set by the benchmark"),
        (r'^topic = "rf5-m2r2"$', 'topic = "rf5-m3"', "two arms have the same topic"),
    ],
)
def test_an_invalid_plan_is_an_error_that_names_file_and_key(
    tmp_path: Path, pattern: str, replacement: str, error: str
) -> None:
    path = edit_plan(tmp_path, pattern, replacement)
    with pytest.raises(RackgateError) as caught:
        scenarios.load("existing", path)
    assert str(path) in str(caught.value)
    assert error in str(caught.value)


POSITIVE = 'acks = "1"\nlatency = "positive"'
ACKS_1_ERROR = "existing.arms: acks = '1'"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('latency = "control"', 'acks = "1"\nlatency = "control"', ACKS_1_ERROR),
        ('latency = "candidate"', 'acks = "1"\nlatency = "candidate"', ACKS_1_ERROR),
        # An arm of only the outage, or with a role from a cell, cannot have it either.
        (POSITIVE, 'acks = "1"\nlatency = "none"', ACKS_1_ERROR),
        (POSITIVE, 'latency = "positive"', ACKS_1_ERROR),
        (POSITIVE, 'acks = "all"\nlatency = "positive"', ACKS_1_ERROR),
        ('latency = "candidate"', POSITIVE, "existing.arms: at most one arm can be the positive control"),
        (POSITIVE, 'acks = "0"\nlatency = "positive"', "existing.arms P: acks: must be one of all, 1, is '0'"),
        (POSITIVE, 'acks = 1\nlatency = "positive"', "existing.arms P: acks: must be"),
    ],
)
def test_only_a_single_positive_control_has_acks_1(tmp_path: Path, old: str, new: str, error: str) -> None:
    text = existing_plan_text()
    assert old in text
    path = tmp_path / "plans.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(RackgateError) as caught:
        scenarios.load("existing", path)
    assert str(caught.value).startswith(f"{path}: ")
    assert error in str(caught.value)


def test_an_unknown_scenario_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="no scenario 'fast'; it has question, full, existing, tail"):
        scenarios.load("fast")
    with pytest.raises(RackgateError, match="can't be read"):
        scenarios.load("question", tmp_path / "none.toml")


def test_more_than_twelve_cells_are_an_error(tmp_path: Path) -> None:
    text = scenarios.SHIPPED.read_text(encoding="utf-8")
    path = tmp_path / "plans.toml"
    begin, end = text.index("[[tail.cells]]"), len(text)
    more_cells = "".join(text[begin:end].replace('"healthy"\nstate', f'"cell-{n}"\nstate') for n in range(12))
    path.write_text(text + more_cells, encoding="utf-8")
    with pytest.raises(RackgateError, match=r"tail\.cells: 13 .*12"):
        scenarios.load("tail", path)
    path.write_text(text + text[begin:end], encoding="utf-8")
    with pytest.raises(RackgateError, match="two cells have the same id"):
        scenarios.load("tail", path)


def test_a_state_that_is_impossible_with_the_racks_is_an_error(tmp_path: Path) -> None:
    text = existing_plan_text().replace("[1, 3, 5, 2, 4]", "[1, 3, 5]")
    path = tmp_path / "plans.toml"
    path.write_text(text.replace('state = "healthy"', 'state = "isr-2-in-1-rack"', 1), encoding="utf-8")
    error = r"existing\.cells healthy: state: ISR of 2 in 1 rack: impossible with replicas 1 in a, 3 in b, 5 in c"
    with pytest.raises(RackgateError, match=error):
        scenarios.load("existing", path)
    with pytest.raises(RackgateError, match=r"single .*broker 3"):
        scenarios.load("existing", place="single")


def test_a_state_keeps_the_leader_and_the_first_replicas() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    replicas = (1, 3, 5, 2, 4)
    states = {
        name: cluster_states.brokers_in_state(name, replicas, racks) for name in STATES if name != "two-data-centres"
    }
    assert states["healthy"] == StateBrokers(replicas)
    assert states["slow-follower"] == StateBrokers(replicas, (), (4,))
    assert states["third-far"] == StateBrokers(replicas, (), (5, 2, 4))
    assert states["broker-gone"] == StateBrokers((1, 3, 5, 2), (4,))
    assert states["isr-3-in-2-racks"] == StateBrokers((1, 3, 2), (5, 4))
    assert states["isr-2-in-2-racks"] == StateBrokers((1, 3), (5, 2, 4))
    assert states["isr-2-in-1-rack"] == StateBrokers((1, 2), (3, 5, 4))
    # The first follower, the near one, must be in another rack than the leader.
    assert cluster_states.brokers_in_state("third-far", (1, 4, 2), racks) == StateBrokers((1, 4, 2), (), (2,))
    for same_rack in ((1, 2, 5, 3, 4), (3, 4, 1), (1, 2)):
        with pytest.raises(ValueError, match=f"in two racks; .* impossible with replicas {same_rack[0]} in"):
            cluster_states.brokers_in_state("third-far", same_rack, racks)
    with pytest.raises(ValueError, match="two data centres"):
        cluster_states.brokers_in_state("two-data-centres", replicas, racks)


def test_the_topology_of_a_cell_differs_only_in_its_links() -> None:
    for name in ("az3-outside", "stretch2-outside", "az3-load", "single"):
        shipped = topology.load(topology.find(name))
        text = lab_topology.topology_toml(shipped, "far")
        made = topology.parse(tomllib.loads(text), source=name)
        assert [site.nodes for site in made.sites] == [site.nodes for site in shipped.sites]
        assert made.client_site.name == shipped.client_site.name
        assert (made.broker_heap_mb, made.controller_heap_mb) == (shipped.broker_heap_mb, shipped.controller_heap_mb)
        assert {link.quality for link in made.links} <= {Quality(20.0)}
    assert list(lab_topology.LINKS.values()) == [0, 1, 20]


PLAN = scenarios.load("full").latency
TOPICS = ["t1", "t2", "t3", "t4", "t5"]


def slots_of_block(block: int, seed: str = "s") -> tuple[Slot, ...]:
    arms = scenarios.load("full").latency_arms
    return schedule.block_slots(PLAN, schedule.topics_of_block(arms, TOPICS, block), [block], rate_per_s=200, seed=seed)


def test_arms_alternate_in_a_new_order_each_round_without_gaps() -> None:
    slots = slots_of_block(3)
    assert slots == slots_of_block(3)
    assert slots != slots_of_block(3, "other")
    rounds = [slots[index : index + 5] for index in range(0, len(slots), 5)]
    assert len(rounds) == PLAN.pieces + 1
    assert all({slot.arm for slot in round_slots} == {"A", "A'", "B", "C", "P"} for round_slots in rounds)
    assert len({tuple(slot.arm for slot in round_slots) for round_slots in rounds}) > 2
    assert all(a.start_ns + a.duration_ns == b.start_ns for a, b in pairwise(slots))
    assert schedule.length_ns(slots) == round(PLAN.block_s(5) * NS)
    for arm_slots in schedule.by_arm(slots).values():
        numbers = [seq for slot in arm_slots for seq in range(slot.first_seq, slot.first_seq + slot.count)]
        assert numbers == list(range(len(numbers)))


def test_warm_up_and_the_start_of_each_slot_are_not_measured() -> None:
    slots = slots_of_block(3)
    assert not any(slot.counts.any() for slot in slots[:5])
    measured = sum(slot.counts.sum() for slot in slots if slot.arm == "B")
    assert measured == pytest.approx(PLAN.measured_s * 200, abs=PLAN.pieces)
    assert not any(slot.counts.any() for slot in slots_of_block(-1))


def test_all_arms_of_a_block_have_the_same_jittered_times() -> None:
    slots = slots_of_block(5)
    for at in range(0, len(slots), 5):
        times = [slot.intended - slot.start_ns for slot in slots[at : at + 5]]
        assert all((arm_times == times[0]).all() for arm_times in times)
        steps = np.diff(times[0])
        assert (steps >= 0).all()
        assert 0.2 < np.std(steps) / np.mean(steps) < 0.7  # 0.41 for uniform jitter
    first, second = slots[5], slots[10]
    assert not (first.intended - first.start_ns == second.intended - second.start_ns).all()
    assert not (slots_of_block(6)[5].intended == first.intended).all()


def test_each_arm_uses_each_topic_in_equally_many_blocks() -> None:
    arms = scenarios.load("full").latency_arms
    assignments = [schedule.topics_of_block(arms, TOPICS, block) for block in range(20)]
    for arm in arms:
        assert {
            topic: sum(assignment[arm.id] == topic for assignment in assignments) for topic in TOPICS
        } == dict.fromkeys(TOPICS, 4)
    assert all(len(set(assignment.values())) == 5 for assignment in assignments)
    assert all(a[arm.id] != b[arm.id] for a, b in pairwise(assignments) for arm in arms)


def test_rate_and_partitions_replace_those_of_every_cell() -> None:
    plan = scenarios.load("existing", tasks=8, rate_per_s=10_000, partitions=64)
    (cell,) = plan.cells
    assert (cell.setting.rate_per_s, cell.setting.load_percent, cell.setting.partitions) == (10_000, None, 64)
    assert cell.label.endswith("10000 records/s, 1 kB, linger 0 ms, confluent-kafka, 64 partitions")
    assert plan.as_json()["cells"][0] | {"rate_per_s": 10_000, "partitions": 64} == plan.as_json()["cells"][0]
    full = scenarios.load("tail", rate_per_s=1)
    assert {(one.setting.rate_per_s, one.setting.load_percent) for one in full.cells} == {(1, None)}
    assert full.target_min is None
    # the plan, and with it the conditions of a run, are those of earlier versions without the options
    assert "partitions" not in scenarios.load("existing").as_json()["cells"][0]
    assert scenarios.load("existing", partitions=1).as_json() == scenarios.load("existing").as_json()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"rate_per_s": 0.0}, "--rate 0: must be from 1 to 40000 records/s with 2 tasks"),
        ({"rate_per_s": float("nan")}, "--rate nan: must be from 1"),
        ({"rate_per_s": 40_001.0}, "--rate 40001: .* raise --tasks"),
        ({"partitions": 0}, "--partitions 0: must be from 1 to 1000"),
        ({"partitions": 1001}, "--partitions 1001: must be from 1 to 1000"),
    ],
)
def test_an_impossible_rate_or_number_of_partitions_is_a_one_line_error(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(RackgateError, match=line) as caught:
        scenarios.load("existing", **changes)
    assert "\n" not in str(caught.value)


def slot(rate: float = 100.0, seconds: float = 1.0, discard_s: float = 0.0) -> Slot:
    return Slot("latency", 0, "A", "t", 5 * NS, round(seconds * NS), round(discard_s * NS), rate, 0)


@given(st.floats(0.5, 50_000), st.floats(0.1, 3), st.integers(1, 5))
def test_the_schedule_keeps_its_rate_and_tasks_share_it_without_overlap(rate: float, s: float, tasks: int) -> None:
    paced = slot(rate, s)
    last = paced.count - 1
    assert paced.intended[0] == paced.start_ns
    assert abs(paced.intended[last] - paced.start_ns - last / rate * NS) <= 1
    shared = sorted(index for task in range(tasks) for index in paced.share(task, tasks))
    assert shared == list(range(paced.count))


@given(st.floats(0.5, 1e6), st.integers(1, 2000), st.integers(0, 2**62))
def test_the_schedule_is_that_of_the_pacing_rule(rate: float, number: int, jitter: int) -> None:
    steps = [due_ns(index, rate) for index in range(number)]
    assert schedule._due(number, rate, -1).tolist() == steps
    shifts = (schedule._due(number, rate, jitter) - np.array(steps)) * rate / NS
    assert (shifts >= 0).all()
    assert (shifts <= 1).all()


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_the_order_of_arms_is_balanced(size: int) -> None:
    """Equal arms; the last position in a round costs 10 %, and so does following the second arm."""
    arms = [f"arm-{number}" for number in range(size)]
    rounds = [schedule.round_order(arms, number, "seed") for number in range(60)]
    cost = dict.fromkeys(arms, 0.0)
    for order in rounds:
        assert sorted(order) == arms
        for position, arm in enumerate(order):
            cost[arm] += 0.1 * position / (size - 1) + (0.1 if position and order[position - 1] == arms[1] else 0)
    # No arm follows itself, so the second arm has no cost from following it.
    other_costs = [cost[arm] for arm in arms if arm != arms[1]]
    assert other_costs == pytest.approx([other_costs[0]] * len(other_costs))
    assert len({tuple(order) for order in rounds}) > size // 2
    assert rounds != [schedule.round_order(arms, number, "another") for number in range(60)]


def test_the_start_of_a_slot_is_not_measured() -> None:
    discarding = slot(rate=10, seconds=1, discard_s=0.5)
    assert discarding.counts.tolist() == [False] * 5 + [True] * 5


@dataclass
class FakeMessage:
    position: int

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.position

    def latency(self) -> float:
        return 0.002


class FakeError:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


@dataclass
class FakeClient:
    """Fake producer with its own clock; produce() of record ``stalls_at`` takes ``stall_ns``."""

    now: int = 0
    stalls_at: int = -1
    stall_ns: int = 0
    full_at: int = -1
    errors: dict[int, str] = field(default_factory=dict)
    pending: list[Callable[[], None]] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    silent: bool = False
    purged: bool = False

    def clock(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(1, round(seconds * NS))
        self.serve()

    def produce(
        self,
        topic: str,  # noqa: ARG002 - as the real one
        value: bytes,  # noqa: ARG002
        key: bytes,
        partition: int,
        *,
        on_delivery: Callable[..., None],
    ) -> None:
        number = len(self.keys)
        self.partitions.append(partition)
        self.keys.append(key)
        if number == self.full_at:
            raise BufferError
        if number == self.stalls_at:
            self.now += self.stall_ns
        if number in self.errors:
            self.pending.append(lambda: on_delivery(FakeError(self.errors[number]), FakeMessage(number)))
        elif not self.silent:
            self.pending.append(lambda: on_delivery(None, FakeMessage(number)))

    def serve(self) -> None:
        served, self.pending = self.pending, []
        for report in served:
            report()

    def flush(self, timeout: float) -> int:  # noqa: ARG002
        self.serve()
        return 1 if self.silent and not self.purged else 0

    def purge(self) -> None:
        self.purged = True


def drive(client: FakeClient, *slots: Slot) -> list[pacer.Observations]:
    arm_pacer = ArmPacer("r", "latency", slots, 0, b"v", 0, 1, 1.0, clock=client.clock, sleep=client.sleep)
    return arm_pacer.drive(client)


def test_records_are_sent_at_their_intended_times() -> None:
    (observed,) = drive(FakeClient(), slot())
    intended = observed.slot.intended[observed.index]
    lateness_ns = observed.sent_ns - intended
    assert lateness_ns.min() >= 0
    assert lateness_ns.max() <= 200_000
    assert set(observed.outcome) == {"acked"}


def test_records_go_to_the_partitions_in_turn_by_their_sequence_numbers() -> None:
    sent = []
    for task in (0, 1):
        client = FakeClient()
        two = (slot(), replace(slot(), start_ns=6 * NS, first_seq=100))
        ArmPacer("r", "l", two, 0, b"v", task, 2, 1.0, 6, clock=client.clock, sleep=client.sleep).drive(client)
        sent += list(zip(client.keys, client.partitions, strict=True))
    assert sorted(sent) == sorted((record_key("r", "l", "A", seq), seq % 6) for seq in range(200))
    one = FakeClient()
    drive(one, slot())
    assert set(one.partitions) == {0}


def test_a_stall_delays_records_but_not_their_intended_times() -> None:
    client = FakeClient(stalls_at=10, stall_ns=NS // 5)
    (observed,) = drive(client, slot())
    intended = observed.slot.intended[observed.index]
    late_ms = (observed.sent_ns - intended) / 1e6
    # Record 11 was due 10 ms after record 10 and is sent 190 ms late; the backlog is sent without pauses.
    assert late_ms[11] == pytest.approx(190, abs=1)
    assert late_ms[20] == pytest.approx(100, abs=1)
    assert late_ms[35:].max() < 1
    assert len(observed.index) == 100
    columns: dict[str, Any] = dict(pacer.columns(observed, 0, {"run_id": "r"}, 0))
    assert (columns["intended_ns"] == intended).all()


def test_uncertain_outcomes_are_unknown() -> None:
    client = FakeClient(full_at=3, errors={1: "_MSG_TIMED_OUT", 2: "NOT_ENOUGH_REPLICAS"})
    (observed,) = drive(client, slot())
    assert observed.outcome[:5] == ["acked", "unknown", "unknown", "failed", "acked"]
    assert observed.error[:5] == [None, "_MSG_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "_QUEUE_FULL", None]


def test_a_record_without_delivery_report_is_unknown_after_a_timeout() -> None:
    client = FakeClient(silent=True)
    (observed,) = drive(client, slot())
    assert set(observed.outcome) == {"unknown"}
    assert set(observed.error) == {"not-reported"}
    assert client.purged


def test_the_time_recorded_by_the_client_is_used() -> None:
    observed = pacer.Observations(slot(rate=3), np.arange(3, dtype=np.int64))
    observed.report(lambda: 99, 0, None, pacer.TimedAck(0, 7, done_ns=42, own_ns=5_000))
    observed.report(lambda: 99, 1, pacer.ProduceFailure("TimeoutException"), None)
    assert (observed.outcome[0], observed.done_ns[0], observed.client_us[0], observed.offset[0]) == ("acked", 42, 5, 7)
    assert (observed.outcome[1], observed.error[1], observed.done_ns[1]) == ("unknown", "TimeoutException", 99)


def test_an_acknowledgement_may_have_no_offset_and_no_latency() -> None:
    seen = pacer.Observations(slot(rate=2), np.arange(2, dtype=np.int64))
    whole = SimpleNamespace(partition=lambda: 0, offset=lambda: 7, latency=lambda: 0.002)
    partial = SimpleNamespace(partition=lambda: 0, offset=lambda: None, latency=lambda: None)
    for at, message in enumerate((whole, partial)):
        seen.report(lambda: 99, at, None, message)
    assert seen.outcome == ["acked", "acked"]
    assert seen.error == [None, None]
    assert (seen.partition.tolist(), seen.offset.tolist(), seen.client_us.tolist()) == ([0, 0], [7, -1], [2000, -1])


def test_keys_contain_run_load_arm_and_sequence() -> None:
    client = FakeClient()
    drive(client, slot(rate=2))
    assert client.keys == [record_key("r", "latency", "A", 0), b"r/latency/A/1"]


def test_delivery_reports_are_served_until_the_block_ends() -> None:
    served = threading.Event()
    threads: list[threading.Thread] = []

    def poll(timeout: float) -> int:
        threads.append(threading.current_thread())
        served.set()
        return int(timeout)

    with pacer.serving_reports(poll):
        assert served.wait(5)
    assert threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()
