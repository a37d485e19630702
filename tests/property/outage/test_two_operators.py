"""Two operators who lower and restore the same topic, in any interleaving, with crashes at any step.

Each operation on the cluster, the file or the topic is a step, and Hypothesis draws whose step is next. So the code of
the commands itself is interleaved, as two processes would be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from fake_outage import (
    HEALED,
    SHRUNK,
    TOPIC,
    Clock,
    FakeCluster,
    FakeStore,
    KilledError,
    contents_of,
    make_operator,
    make_terms,
)
from pyhooks.audit.audit_record import AuditRecord, make_record
from pyhooks.audit.replay import plan_topic, replay
from pyhooks.core.errors import RackgateError
from pyhooks.outage.audit_report import make_report
from pyhooks.outage.steps import Operator, TopicOutcome

STEP_S = 30.0
STEPS_MAX = 200


@dataclass
class Process:
    """An operator's process that runs one step at a time.

    Attributes:
        kill_after: number of steps after which it is killed; None if it is not.
    """

    kill_after: int | None
    outcomes: list[TopicOutcome] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    ended: bool = False

    def __post_init__(self) -> None:
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._steps = 0

    def turn(self, _: str) -> None:
        """End the current step and wait for the next."""
        self._paused.release()
        self._wait()
        self._steps += 1
        if self._steps == self.kill_after:
            raise KilledError

    def _wait(self) -> None:
        assert self._go.acquire(timeout=STEP_S)

    def start(self, work: Callable[[], Sequence[TopicOutcome]]) -> None:
        """Start the process; it waits for its first step."""

        def run() -> None:
            self._wait()
            try:
                self.outcomes += work()
            except KilledError:
                pass
            except RackgateError as error:
                # such as the lock of a process that is stopped
                self.outcomes.append(TopicOutcome(TOPIC, "rejected", str(error)))
            except BaseException as error:  # noqa: BLE001 - raised in the test's thread
                self.errors.append(error)
            self.ended = True
            self._paused.release()

        threading.Thread(target=run, daemon=True).start()

    def step(self) -> None:
        """Run to the next step."""
        self._go.release()
        assert self._paused.acquire(timeout=STEP_S)


@dataclass(frozen=True)
class Scenario:
    """What two operators do."""

    first_value: int | None
    commands: tuple[str, str]  # of each operator: lower or restore
    same_host: bool
    topics_available: bool
    kills: tuple[int | None, int | None]
    results: tuple[str, ...]  # of the changes
    schedule: tuple[tuple[int, int], ...]  # whose steps are next, and how many
    lowered_before: bool  # whether a lowering is in force when they begin


SCENARIOS = st.builds(
    Scenario,
    first_value=st.sampled_from([2, None]),
    commands=st.sampled_from([("lower", "lower"), ("lower", "restore"), ("restore", "lower"), ("restore", "restore")]),
    same_host=st.booleans(),
    topics_available=st.booleans(),
    kills=st.tuples(*[st.sampled_from([*[None] * 40, *range(1, 24)])] * 2),
    results=st.lists(st.sampled_from([*["done"] * 5, "rejected", "lost", "late"]), max_size=3).map(tuple),
    schedule=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 8)), min_size=3, max_size=12).map(tuple),
    lowered_before=st.booleans(),
)


@settings(max_examples=300)
@given(SCENARIOS)
def test_any_interleaving_is_explained_and_repaired(scenario: Scenario) -> None:
    cluster = FakeCluster(own=scenario.first_value, isr=SHRUNK)
    files = [FakeStore(), FakeStore()]
    if scenario.same_host:
        files[1] = files[0]
    topic, clock = FakeStore(available=scenario.topics_available), Clock()
    if scenario.lowered_before:
        terms = make_terms("before", old=scenario.first_value)
        before = make_operator(cluster, files[0], topic, clock)
        (outcome,) = before.lower([terms], lambda _: True)
        assert outcome.result == "lowered"
    cluster.isr = HEALED if "restore" in scenario.commands else SHRUNK
    cluster.results += scenario.results

    run_interleaved(scenario, cluster, files, topic, clock)

    # explained: a value that is not the first one is that of open lowerings, which know the first one
    topic.available = True
    everything = [record for store in (*files, topic) for record in store.records]
    plan = plan_topic(TOPIC, replay(everything), cluster.own)
    if cluster.own != scenario.first_value:
        assert plan.lowered
        assert plan.value == scenario.first_value
    report = make_report(contents_of(files[0], topic), {TOPIC: cluster.observed()}, clock.at)
    assert all(one.status != "unknown" for one in report.lowerings)

    # repaired: by each host, and by one that has the topic alone
    cluster.isr, cluster.results = HEALED, []
    clock.at += timedelta(hours=1)
    for file in (*files, FakeStore()):
        make_operator(cluster, file, topic, clock).restore(None, due_only=True)
    assert cluster.own == scenario.first_value
    everything = [record for store in (*files, topic) for record in store.records]
    assert [one for one in replay(everything) if one.open] == []


SEEN = st.builds(
    Scenario,
    first_value=st.just(2),
    commands=st.just(("lower", "lower")),
    same_host=st.booleans(),
    topics_available=st.just(True),
    kills=st.just((None, None)),
    results=st.just(()),
    schedule=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 8)), min_size=3, max_size=12).map(tuple),
    lowered_before=st.just(False),
)


@settings(max_examples=200)
@given(SEEN)
def test_operators_who_see_each_other_do_not_both_lower(scenario: Scenario) -> None:
    cluster, files = FakeCluster(isr=SHRUNK), [FakeStore(), FakeStore()]
    if scenario.same_host:
        files[1] = files[0]
    processes = run_interleaved(scenario, cluster, files, FakeStore(), Clock())
    results = sorted(one.result for process in processes for one in process.outcomes)
    assert results in (["lost", "lowered"], ["lowered", "rejected"])
    assert cluster.own == 1


def run_interleaved(
    scenario: Scenario, cluster: FakeCluster, files: Sequence[FakeStore], topic: FakeStore, clock: Clock
) -> list[Process]:
    """Run two operators' processes to their ends, in the scenario's interleaving."""
    processes = [Process(kill) for kill in scenario.kills]
    for number, (process, command) in enumerate(zip(processes, scenario.commands, strict=True)):
        by = f"operator-{number}"
        operator = make_operator(cluster, files[number], topic, clock, by=by, turn=process.turn)
        process.start(work_of(operator, command, by, scenario.first_value, cluster.own))
    for chosen, steps in (*scenario.schedule, (0, STEPS_MAX), (1, STEPS_MAX)):
        for _ in range(steps):
            if not processes[chosen].ended:
                processes[chosen].step()
    for process in processes:
        assert process.ended
        assert not process.errors, process.errors
    return processes


def work_of(
    operator: Operator, command: str, lowering: str, first_value: int | None, seen: int | None
) -> Callable[[], Sequence[TopicOutcome]]:
    """Return what a process does; one that lowers has seen the value before."""
    if command == "restore":
        return lambda: operator.restore(None, due_only=False)
    terms = make_terms(lowering, old=seen if seen != 1 else first_value, by=lowering)
    return lambda: operator.lower([terms], lambda _: True)


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from(["intended", "abandoned", "applied", "restoring", "restored"])
    ),
    max_size=4,
)


@given(RECORDS, st.sampled_from([1, 2, 3, None]))
def test_the_order_of_records_and_copies_of_them_do_not_matter(
    drawn: list[tuple[str, str]], current: int | None
) -> None:
    clock = Clock()
    records: list[AuditRecord] = [
        make_record(event, make_terms(lowering), at=clock.at, by=lowering)  # type: ignore[arg-type]
        for lowering, event in drawn
    ]
    expected = [(one.terms, one.state) for one in replay(records)]
    for order in permutations(records):
        found = replay((*order, *order[:2]))
        assert [(one.terms, one.state) for one in found] == expected
        plan = plan_topic(TOPIC, found, current)
        parts = (*plan.lowered, *plan.never_applied, *plan.restored, *plan.superseded)
        assert sorted(one.terms.lowering for one in parts) == sorted(one.terms.lowering for one in found if one.open)
