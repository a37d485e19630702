"""Lowering and restoring, killed at each step: the audit explains what was left, and ``restore`` repairs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from fake_outage import (
    HEALED,
    SHRUNK,
    START,
    TOPIC,
    Clock,
    FakeCluster,
    FakeStore,
    KilledError,
    contents_of,
    make_operator,
    make_terms,
)
from pyhooks.audit.audit_record import EVENTS, Event
from pyhooks.core.errors import RackgateError
from pyhooks.outage.audit_report import AuditReport, make_report, report_json
from pyhooks.outage.steps import Operator, TopicOutcome, exit_status


def accept(_: str) -> bool:
    return True


def decline(_: str) -> bool:
    return False


@dataclass
class Scene:
    """A cluster with an outage, and the audit of one host."""

    cluster: FakeCluster = field(default_factory=lambda: FakeCluster(isr=SHRUNK))
    file: FakeStore = field(default_factory=FakeStore)
    topic: FakeStore = field(default_factory=FakeStore)
    clock: Clock = field(default_factory=Clock)

    def operator(self, kill_at: str = "", number: int = 1) -> Operator:
        """Return an operator, who is killed at the given step."""
        left = [number]

        def turn(step: str) -> None:
            if step == kill_at:
                left[0] -= 1
                if not left[0]:
                    raise KilledError

        return make_operator(self.cluster, self.file, self.topic, self.clock, turn=turn)

    def later(self, minutes: int) -> None:
        self.clock.at = START + timedelta(minutes=minutes)

    def audit(self) -> AuditReport:
        observed = {TOPIC: self.cluster.observed()}
        return make_report(contents_of(self.file, self.topic), observed, self.clock.at)

    def statuses(self) -> list[str]:
        return [one.status for one in self.audit().lowerings]

    def events(self) -> list[Event]:
        return [record.event for record in self.file.records]


def results(outcomes: tuple[TopicOutcome, ...]) -> list[str]:
    return [outcome.result for outcome in outcomes]


@pytest.mark.parametrize("old", [2, None])
def test_lowering_and_restoration(old: int | None) -> None:
    scene = Scene()
    scene.cluster.own = old
    assert results(scene.operator().lower([make_terms(old=old)], decline)) == ["lowered"]
    assert scene.cluster.own == 1
    assert scene.statuses() == ["active"]
    assert results(scene.operator().restore(None, due_only=True)) == ["active"]
    scene.later(31)
    assert scene.statuses() == ["waiting"]
    (waits,) = scene.operator().restore(None, due_only=True)
    assert (waits.result, waits.text) == ("waiting", "not restored: orders-0 has in-sync replicas in 1 of 2 racks (a)")
    scene.cluster.isr = HEALED
    assert scene.statuses() == ["due"]
    assert scene.audit().exit_status == 1
    assert results(scene.operator().restore(None, due_only=True)) == ["restored"]
    assert scene.cluster.own == old, "a topic that inherited its R inherits it again"
    assert scene.statuses() == ["restored"]
    assert scene.audit().exit_status == 0
    assert scene.events() == ["intended", "applied", "restoring", "restored"]
    assert scene.file.records == scene.topic.records
    assert scene.operator().restore(None, due_only=False) == ()


def test_until_healed_restores_before_the_time_is_up() -> None:
    scene = Scene()
    scene.operator().lower([make_terms(minutes=None, until_healed=True)], decline)
    assert results(scene.operator().restore(None, due_only=True)) == ["active"]
    assert scene.statuses() == ["active"]
    scene.cluster.isr = HEALED
    assert scene.statuses() == ["due"]
    assert results(scene.operator().restore(None, due_only=True)) == ["restored"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"leader": -1}, "orders-0 has no leader"),
        ({"isr": (3,)}, "orders-0 has in-sync replicas in 1 of 2 racks (b)"),
        ({"isr": HEALED, "current": frozenset({1, 2})}, "orders-0: broker 3 does not respond, or with old metadata"),
    ],
)
def test_restoration_waits(change: dict[str, object], text: str) -> None:
    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    for name, value in change.items():
        setattr(scene.cluster, name, value)
    (outcome,) = scene.operator().restore(None, due_only=False)
    assert (outcome.result, outcome.text) == ("waiting", f"not restored: {text}")
    assert scene.cluster.own == 1
    assert exit_status([outcome]) == 1


# step, its number, and the status and own value that it leaves
LOWER_STEPS = [
    ("before file", 1, None, 2),
    ("after file", 1, "unfinished", 2),
    ("before topic", 1, "unfinished", 2),
    ("after topic", 1, "unfinished", 2),
    ("before observe", 1, "unfinished", 2),
    ("after observe", 1, "unfinished", 2),
    ("before set", 1, "unfinished", 2),
    ("after set", 1, "unfinished", 1),
    ("before observe", 2, "unfinished", 1),
    ("after observe", 2, "unfinished", 1),
    ("before file", 2, "unfinished", 1),
    ("after file", 2, "active", 1),
    ("before topic", 2, "active", 1),
    ("after topic", 2, "active", 1),
]


@pytest.mark.parametrize("other_host", [False, True], ids=["same host", "other host"])
@pytest.mark.parametrize(("step", "number", "status", "own"), LOWER_STEPS)
def test_lower_killed_at_each_step(step: str, number: int, status: str | None, own: int, *, other_host: bool) -> None:
    scene = Scene()
    with pytest.raises(KilledError):
        scene.operator(step, number).lower([make_terms()], decline)
    assert scene.cluster.own == own
    assert scene.statuses() == ([status] if status else [])
    assert scene.audit().exit_status == (1 if status == "unfinished" else 0)
    if other_host:
        scene.file = FakeStore()
    scene.cluster.isr = HEALED
    scene.later(31)
    outcomes = scene.operator().restore(None, due_only=True)
    known = bool(scene.topic.records)
    assert scene.cluster.own == (2 if known else own)
    assert exit_status(outcomes) == 0
    if known:
        assert scene.statuses() == ["abandoned" if own == 2 else "restored"]
        assert scene.audit().exit_status == 0
        # the topic can be lowered again
        assert results(scene.operator().lower([make_terms("next", began=scene.clock.at)], decline)) == ["lowered"]


def test_an_intention_of_this_host_is_closed_at_once_and_of_another_after_its_time() -> None:
    scene = Scene()
    with pytest.raises(KilledError):
        scene.operator("before set").lower([make_terms()], decline)
    own, scene.file = scene.file, FakeStore()
    assert results(scene.operator().lower([make_terms("next")], decline)) == ["rejected"]
    assert results(scene.operator().restore(None, due_only=False)) == ["active"]
    scene.file = own
    assert results(scene.operator().lower([make_terms("next")], decline)) == ["lowered"]
    assert scene.statuses() == ["abandoned", "active"]


def test_a_lowering_without_its_last_record_is_completed() -> None:
    scene = Scene()
    with pytest.raises(KilledError):
        scene.operator("after set").lower([make_terms()], decline)
    assert results(scene.operator().restore(None, due_only=True)) == ["active"]
    assert scene.events() == ["intended", "applied"]
    assert scene.statuses() == ["active"]


RESTORE_STEPS = [
    ("before file", 1, "due", 1),
    ("after file", 1, "due", 1),
    ("after topic", 1, "due", 1),
    ("before set", 1, "due", 1),
    ("after set", 1, "unfinished", 2),
    ("before file", 2, "unfinished", 2),
    ("after file", 2, "restored", 2),
    ("after topic", 2, "restored", 2),
]


@pytest.mark.parametrize(("step", "number", "status", "own"), RESTORE_STEPS)
def test_restore_killed_at_each_step(step: str, number: int, status: str, own: int) -> None:
    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    scene.cluster.isr = HEALED
    scene.later(31)
    with pytest.raises(KilledError):
        scene.operator(step, number).restore(None, due_only=True)
    assert scene.cluster.own == own
    assert scene.statuses() == [status]
    assert exit_status(scene.operator().restore(None, due_only=True)) == 0
    assert scene.cluster.own == 2
    assert scene.statuses() == ["restored"]


def test_a_second_operator_is_rejected_while_a_topic_is_lowered() -> None:
    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    scene.file = FakeStore()
    (outcome,) = scene.operator().lower([make_terms("next", old=1, old_racks=1)], decline)
    assert outcome.result == "rejected"
    assert outcome.text.startswith("alice@one lowered it at 2026-01-01T00:00:00Z (rack b)")
    assert len(scene.audit().lowerings) == 1, "a rejection leaves no record"


def test_of_two_operators_the_second_in_the_topic_gives_up() -> None:
    scene = Scene()
    outcomes: list[TopicOutcome] = []

    def overtake(step: str) -> None:
        if step == "before file" and not outcomes:
            # alice has read the audit, and her intention is not in it yet: bob lowers the topic on another host
            bob = make_operator(scene.cluster, FakeStore(), scene.topic, scene.clock, by="bob@two")
            outcomes.extend(bob.lower([make_terms("bob", by="bob@two")], decline))
            # so that the audit alone stops her
            scene.cluster.own = 2

    alice = make_operator(scene.cluster, scene.file, scene.topic, scene.clock, turn=overtake)
    outcomes.extend(alice.lower([make_terms("alice")], decline))
    assert [outcome.result for outcome in outcomes] == ["lowered", "lost"]
    assert outcomes[1].text == "bob@two is lowering it as well, and was first; nothing was changed"
    assert scene.cluster.own == 2
    assert scene.file.records[-1].event == "abandoned"


def test_a_value_that_changed_after_it_was_shown_is_not_changed() -> None:
    scene = Scene()
    scene.cluster.own = 3
    (outcome,) = scene.operator().lower([make_terms(old=2)], decline)
    assert (outcome.result, scene.cluster.own) == ("lost", 3)
    assert "min.insync.racks changed meanwhile: it is 3, and was 2" in outcome.text
    assert scene.statuses() == ["abandoned"]


@pytest.mark.parametrize("changed", [2, 3, None])
def test_a_value_changed_by_another_client_is_not_restored(changed: int | None) -> None:
    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    scene.cluster.own, scene.cluster.isr = changed, HEALED
    assert scene.statuses() == ["changed"]
    (outcome,) = scene.operator().restore(None, due_only=True)
    assert (outcome.result, scene.cluster.own) == ("superseded", changed)
    assert exit_status([outcome]) == 1
    assert scene.statuses() == ["superseded"]


def test_a_lost_race_is_reported() -> None:
    scene = Scene()

    def overwritten(step: str) -> None:
        if step == "after set":
            scene.cluster.own = 3

    operator = make_operator(scene.cluster, scene.file, scene.topic, scene.clock, turn=overwritten)
    (outcome,) = operator.lower([make_terms()], decline)
    assert outcome.result == "lost"
    assert outcome.text == "another client changed min.insync.racks at the same time: it is 3"
    assert scene.statuses() == ["superseded"]


@pytest.mark.parametrize(
    ("result", "outcome", "status", "own"),
    [
        ("rejected", "rejected", "abandoned", 2),
        ("lost", "unknown", "unfinished", 2),
        ("late", "lowered", "active", 1),
    ],
)
def test_changes_that_fail(result: str, outcome: str, status: str, own: int) -> None:
    scene = Scene()
    scene.cluster.results.append(result)
    assert results(scene.operator().lower([make_terms()], decline)) == [outcome]
    assert (scene.statuses(), scene.cluster.own) == ([status], own)


def test_a_cluster_that_is_lost_in_the_middle_leaves_the_result_unknown() -> None:
    scene = Scene()

    def lost(step: str) -> None:
        if step == "after set":
            scene.cluster.reachable = False
            scene.topic.available = False

    operator = make_operator(scene.cluster, scene.file, scene.topic, scene.clock, turn=lost)
    outcomes = operator.lower([make_terms()], decline)
    assert exit_status(outcomes) == 2
    assert outcomes[0].text.endswith("the cluster can't be queried")
    scene.cluster.reachable = scene.topic.available = True
    assert scene.statuses() == ["unfinished"]
    scene.cluster.reachable = False
    with pytest.raises(RackgateError, match="no response"):
        scene.operator().restore(None, due_only=False)


@pytest.mark.parametrize(("unverified", "result"), [((1,), "unknown"), ((3,), "lowered")])
def test_a_leader_that_does_not_report_the_value_leaves_it_unknown(unverified: tuple[int, ...], result: str) -> None:
    scene = Scene(FakeCluster(isr=SHRUNK, leader=1, unverified=unverified))
    (outcome,) = scene.operator().lower([make_terms()], decline)
    assert (outcome.result, scene.cluster.own) == (result, 1)
    if result == "unknown":
        assert outcome.text.endswith("changed: broker 1 did not report it; it is 1")
        assert exit_status([outcome]) == 2
    else:
        assert "not verified on unavailable brokers, which apply it before they lead: 3" in outcome.text


def test_a_partition_that_lost_its_leader_meanwhile_is_not_lowered() -> None:
    scene = Scene()

    def offline(step: str) -> None:
        if step == "after topic":
            scene.cluster.leader = -1

    operator = make_operator(scene.cluster, scene.file, scene.topic, scene.clock, turn=offline)
    (outcome,) = operator.lower([make_terms()], decline)
    assert (outcome.result, scene.cluster.own) == ("rejected", 2)
    assert outcome.text == "not changed: partition 0 has no leader any more"
    assert scene.statuses() == ["abandoned"]


def test_an_audit_topic_that_can_not_be_read_again_hides_no_other_operator() -> None:
    scene = Scene()

    def lost(step: str) -> None:
        if step == "after topic":
            scene.topic.available = False

    operator = make_operator(scene.cluster, scene.file, scene.topic, scene.clock, turn=lost)
    (outcome,) = operator.lower([make_terms()], decline)
    assert (outcome.result, scene.cluster.own) == ("rejected", 2)
    assert outcome.text == "not changed: the audit topic can't be read: topic is not available"


@pytest.mark.parametrize("restoring", [False, True])
def test_a_file_that_fails_after_the_change_leaves_the_outcome_unknown(*, restoring: bool) -> None:
    scene = Scene()
    if restoring:
        scene.operator().lower([make_terms()], decline)
        scene.cluster.isr = HEALED

    def full(step: str) -> None:
        if step == "after set":
            scene.file.available = False

    operator = make_operator(scene.cluster, scene.file, scene.topic, scene.clock, turn=full)
    change = operator.restore(None, due_only=False) if restoring else operator.lower([make_terms()], decline)
    assert results(change) == ["unknown"]
    assert change[0].text == "file is not available; see 'rackgate audit' for what was changed"
    assert scene.cluster.own == (2 if restoring else 1)
    scene.file.available = True
    assert scene.statuses() == ["unfinished"]


def test_a_restoration_to_a_cluster_value_that_was_lowered_meanwhile_is_reported() -> None:
    scene = Scene(FakeCluster(own=None, isr=SHRUNK))
    scene.operator().lower([make_terms(old=None)], decline)
    scene.cluster.isr, scene.cluster.inherited = HEALED, 1
    (outcome,) = scene.operator().restore(None, due_only=False)
    assert (outcome.result, scene.cluster.own) == ("lost", None)
    assert outcome.text.endswith("not set (the cluster's value) again; but R in force is 1, and was 2 before")
    assert exit_status([outcome]) == 1
    assert scene.statuses() == ["restored"]


def test_without_the_audit_topic_the_operator_decides() -> None:
    scene = Scene()
    scene.topic.available = False
    (outcome,) = scene.operator().lower([make_terms()], decline)
    assert (outcome.result, scene.cluster.own) == ("rejected", 2)
    assert scene.events() == ["intended", "abandoned"]
    (outcome,) = scene.operator().lower([make_terms("next")], accept)
    assert (outcome.result, scene.cluster.own) == ("lowered", 1)
    assert outcome.text.endswith("; recorded in the audit file alone: topic is not available")
    # the next record takes those along that the topic lacks
    scene.topic.available = True
    scene.cluster.isr = HEALED
    assert results(scene.operator().restore(None, due_only=False)) == ["restored"]
    assert scene.topic.records == scene.file.records


def test_an_operator_who_decides_too_late_changes_nothing() -> None:
    scene = Scene()
    scene.topic.available = False

    def accept_later(_: str) -> bool:
        scene.later(3)
        return True

    (outcome,) = scene.operator().lower([make_terms()], accept_later)
    assert (outcome.result, scene.cluster.own) == ("rejected", 2)
    assert outcome.text == "not changed, since that took longer than 120 s; try again"
    assert scene.events() == ["intended", "abandoned"]


def test_the_operator_decides_once_for_all_topics() -> None:
    scene = Scene()
    scene.topic.available = False
    asked: list[str] = []

    def decline_once(error: str) -> bool:
        asked.append(error)
        return False

    outcomes = scene.operator().lower([make_terms(), make_terms("next")], decline_once)
    assert results(outcomes) == ["rejected", "rejected"]
    assert asked == ["topic is not available"]
    assert scene.events() == ["intended", "abandoned"], "of the second one nothing was begun"


def test_a_lost_file_and_a_lost_topic() -> None:
    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    kept, scene.file = scene.file, FakeStore()
    assert scene.statuses() == ["active"], "from the topic"
    scene.file, scene.topic = kept, FakeStore()
    assert scene.statuses() == ["active"], "from the file"
    scene.cluster.isr = HEALED
    assert results(scene.operator().restore([TOPIC], due_only=False)) == ["restored"]
    assert scene.topic.records == scene.file.records


def test_an_unreadable_topic_is_unknown() -> None:
    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    scene.topic.available = False
    operator = scene.operator()
    contents = operator.journal.read()
    assert contents.topic_error
    report = make_report(contents, {TOPIC: scene.cluster.observed()}, START)
    assert (report.exit_status, report.needs_action) == (2, False)
    assert report.unknown[0].startswith("the audit topic can't be read, so lowerings by other hosts are not known")
    offline = make_report(contents, "no response", START)
    assert [one.status for one in offline.lowerings] == ["unknown"]
    assert offline.exit_status == 2


def test_a_restoration_that_is_due_counts_more_than_what_is_unknown() -> None:
    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    scene.cluster.isr, scene.topic.available = HEALED, False
    scene.later(31)
    report = make_report(scene.operator().journal.read(), {TOPIC: scene.cluster.observed()}, scene.clock.at)
    assert [one.status for one in report.lowerings] == ["due"]
    assert (report.exit_status, report.needs_action, bool(report.unknown)) == (1, True, True)


def test_dismissed_lowerings_are_closed() -> None:
    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    assert results(scene.operator().dismiss([TOPIC], "stays")) == ["closed"]
    (one,) = scene.audit().lowerings
    assert (one.status, one.means, scene.cluster.own) == ("superseded", "dismissed: stays", 1)


def test_the_json_has_all_documented_keys() -> None:
    from pyhooks.outage import audit_report

    scene = Scene()
    scene.operator().lower([make_terms()], decline)
    output = report_json(scene.audit())
    described = audit_report.__doc__ or ""
    for part in (output, output["lowerings"][0], output["lowerings"][0]["records"][0]):
        assert [key for key in part if key not in described] == []
    assert [record["event"] for record in output["lowerings"][0]["records"]] == ["intended", "applied"]
    assert all(record["in_file"] and record["in_topic"] for record in output["lowerings"][0]["records"])
    assert set(EVENTS) > {"intended", "applied"}
