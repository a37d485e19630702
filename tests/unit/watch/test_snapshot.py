"""Snapshots computed from two successive observations."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.lab.cluster_control import ProcessState
from pyhooks.watch.document import as_json, document
from pyhooks.watch.observation import (
    ANY_PARTITION,
    BrokerMetrics,
    FaultObservation,
    Observation,
    ProduceCounts,
    TopicRequirements,
)
from pyhooks.watch.snapshot import take_snapshot
from pyhooks.watch.states import OutcomeRates, PartitionSummary, Snapshot
from watch_observations import SECOND, at, blind


def chain(*observations: Observation) -> Snapshot:
    """Return the snapshot after these observations."""
    last: Snapshot | None = None
    for observed in observations:
        last = take_snapshot(observed, last)
    assert last is not None
    return last


def partition_of(shown: Snapshot, topic: str) -> PartitionSummary:
    return next(partition for partition in shown.partitions if partition.observed.topic == topic)


def test_the_first_snapshot_has_no_rates() -> None:
    shown = take_snapshot(at(5))
    orders = partition_of(shown, "orders")
    assert (orders.watermark.motion, orders.watermark.per_s, orders.watermark.still_s, orders.produce) == (
        "unknown",
        None,
        None,
        None,
    )
    assert shown.interval_s is None
    assert shown.gate.rack_check_failures_per_s is None
    assert (orders.level, orders.verdict) == ("ok", "ok, no rack to spare")


def test_a_healthy_cluster() -> None:
    shown = chain(at(5), at(7))
    orders = partition_of(shown, "orders")
    assert orders.watermark.motion == "moving"
    assert orders.watermark.per_s == pytest.approx(100)
    assert (orders.isr_racks, orders.min_racks, orders.min_replicas) == (2, 2, 1)
    assert orders.produce is not None
    assert orders.produce.ok_per_s == pytest.approx(3)
    assert {partition.level for partition in shown.partitions} == {"ok"}
    assert [broker.state for broker in shown.brokers] == ["up"] * 5
    # internal topics come last
    assert shown.partitions[-1].observed.topic == "__consumer_offsets"


def test_a_lost_rack() -> None:
    shown = chain(at(9), at(10), *(at(second, lost=True) for second in (11, 12, 13, 14)))
    orders, ungated, payments = (
        partition_of(shown, "orders"),
        partition_of(shown, "orders-ungated"),
        partition_of(shown, "payments"),
    )
    assert (orders.level, orders.verdict) == ("down", "rejects: 1 of 2 racks")
    assert orders.watermark.motion == "frozen"
    assert orders.watermark.still_s == pytest.approx(4)
    assert orders.produce is not None
    assert orders.produce.ok_per_s == 0
    assert orders.produce.rejected_per_s == pytest.approx(3)
    assert orders.failed_produce_per_s == pytest.approx(3)
    assert (ungated.level, ungated.verdict, ungated.watermark.motion) == ("risk", "rack a alone acks", "moving")
    assert (payments.level, payments.verdict) == ("warn", "2 of 3 in sync, no rack to spare")
    assert {broker.id: broker.state for broker in shown.brokers if broker.state != "up"} == {3: "down", 4: "down"}
    assert shown.gate.rack_check_failures_per_s == pytest.approx(3)
    assert shown.gate.produce_errors_per_s == {"NOT_ENOUGH_RACKS": pytest.approx(3)}
    assert (shown.gate.under_min_rack_isr, shown.gate.offline, shown.gate.brokers_known) == (2, 0, 3)
    assert [(fault.op, fault.rack, fault.state, fault.for_s) for fault in shown.faults] == [
        ("kill-rack", "b", "active", 4.0)
    ]
    assert [partition.level for partition in shown.partitions] == ["down", "down", "risk", "warn", "warn"]


def test_unobserved_parts_are_unknown_and_remembered() -> None:
    shown = chain(at(5), at(6), blind(12))
    assert {partition.level for partition in shown.partitions} == {"unknown"}
    assert {broker.state for broker in shown.brokers} == {"unknown"}
    assert partition_of(shown, "orders").isr_racks is None
    observed_again = chain(at(5), at(6), blind(12), at(16))
    # the rate includes the unobserved time
    assert partition_of(observed_again, "orders").watermark.per_s == pytest.approx(100)


def test_a_frozen_partition_stays_frozen_without_responses() -> None:
    frozen = [at(second, lost=True) for second in (12, 13)]
    unobserved = replace(blind(16), mono_ns=16 * SECOND)
    shown = chain(*frozen, unobserved, at(20, lost=True))
    assert partition_of(shown, "orders").watermark.still_s == pytest.approx(8)


def test_a_repeated_response_changes_no_rate() -> None:
    first, second = at(5), at(6)
    again = replace(second, mono_ns=second.mono_ns + SECOND // 2)
    shown = chain(first, second, again)
    assert partition_of(shown, "orders").watermark.per_s == pytest.approx(100)
    assert partition_of(shown, "orders").watermark.motion == "moving"
    assert shown.brokers[0].messages_in_per_s == pytest.approx(100)
    assert partition_of(shown, "orders").produce == partition_of(chain(first, second), "orders").produce


def test_records_that_wait_for_two_intervals_are_a_stall() -> None:
    def stalled(second: float) -> Observation:
        observed = at(second)
        metrics = {
            1: BrokerMetrics(observed.mono_ns, {}, {}, {("orders", 0): {"LogEndOffset": 507, "IsrRackCount": 2}})
        }
        partitions = tuple(replace(partition, high_watermark=500) for partition in observed.partitions)
        return replace(observed, metrics=metrics, partitions=partitions)

    orders = partition_of(chain(stalled(1), stalled(2)), "orders")
    # an append is briefly ahead of the high watermark, so one interval is not a stall
    assert (orders.watermark.motion, orders.level) == ("frozen", "ok")
    orders = partition_of(chain(stalled(1), stalled(2), stalled(3)), "orders")
    assert (orders.level, orders.verdict) == ("down", "stalled: 7 records wait")
    assert partition_of(chain(stalled(1), stalled(2)), "payments").watermark.motion == "still"


def test_a_high_watermark_that_goes_back_is_reported() -> None:
    later = at(6)
    later = replace(later, partitions=tuple(replace(partition, high_watermark=10) for partition in later.partitions))
    orders = partition_of(chain(at(5), later), "orders")
    assert (orders.watermark.motion, orders.level, orders.verdict) == ("back", "risk", "high watermark went back")


def test_acks_with_too_few_racks_are_reported_if_the_isr_is_unchanged() -> None:
    def acked(second: float, ok: int) -> Observation:
        return replace(at(second, lost=True), produced={("orders", 0): ProduceCounts(ok)})

    once = chain(acked(11, 0), acked(12, 9))
    assert partition_of(once, "orders").verdict == "rejects: 1 of 2 racks", (
        "the ISR may have been larger at that moment"
    )
    shown = chain(acked(11, 0), acked(12, 9), acked(13, 9))
    assert (partition_of(shown, "orders").level, partition_of(shown, "orders").verdict) == (
        "risk",
        "ACKED with 1 of 2 racks",
    )
    assert partition_of(chain(acked(11, 0), acked(12, 9), at(13)), "orders").level == "ok"


@pytest.mark.parametrize(
    ("requirements", "replicas", "isr", "expected"),
    [
        (TopicRequirements(2, 2), (1, 2, 3), (1,), ("down", "rejects: 1 of 2 racks, 1 of 2 replicas")),
        (TopicRequirements(2, 1), (1, 2, 3), (1,), ("down", "rejects: 1 of 2 replicas")),
        (TopicRequirements(1, 2), (1, 2), (1, 2), ("down", "rejects: placed in 1 of 2 racks")),
        (TopicRequirements(3, 3), (1,), (1,), ("ok", "ok")),
        (TopicRequirements(1, None), (1, 3), (1,), ("risk", "rack a alone acks")),
        (TopicRequirements(1, None), (1, 2), (1,), ("warn", "1 of 2 in sync")),
        (TopicRequirements(1, 2), (1, 3, 5), (1, 3, 5), ("ok", "ok")),
        (TopicRequirements(1, 2), (1, 9), (1, 9), ("unknown", "the rack of a replica is not known")),
    ],
)
def test_verdicts_of_a_partition(
    requirements: TopicRequirements, replicas: tuple[int, ...], isr: tuple[int, ...], expected: tuple[str, str]
) -> None:
    observed = at(5)
    partition = replace(observed.partitions[0], replicas=replicas, isr=isr, leader=1)
    shown = take_snapshot(
        replace(observed, partitions=(partition,), requirements={partition.topic: requirements}, metrics={})
    )
    assert (shown.partitions[0].level, shown.partitions[0].verdict) == expected


@pytest.mark.parametrize(
    ("requirements", "isr", "expected", "isr_racks"),
    [
        # brokers 1 and 2 have no rack, 3 is in b, 5 in c
        (TopicRequirements(1, 2), (1, 3), ("down", "rejects: 1 of 2 racks"), 1),
        (TopicRequirements(1, 2), (1, 2), ("down", "rejects: 0 of 2 racks"), 0),
        (TopicRequirements(1, 2), (1, 3, 5), ("warn", "3 of 4 in sync, no rack to spare"), 2),
        (TopicRequirements(2, 1), (1, 2), ("risk", "brokers without a rack alone ack"), 0),
        (TopicRequirements(2, 1), (1, 3), ("risk", "rack b alone acks"), 1),
    ],
)
def test_brokers_without_a_rack_count_for_no_rack(
    requirements: TopicRequirements, isr: tuple[int, ...], expected: tuple[str, str], isr_racks: int
) -> None:
    observed = at(5)
    brokers = tuple(replace(broker, rack="" if broker.broker in (1, 2) else broker.rack) for broker in observed.brokers)
    partition = replace(observed.partitions[0], replicas=(1, 2, 3, 5), isr=isr, leader=1)
    shown = take_snapshot(
        replace(
            observed, brokers=brokers, partitions=(partition,), requirements={partition.topic: requirements}, metrics={}
        )
    ).partitions[0]
    assert (shown.level, shown.verdict, shown.isr_racks) == (*expected, isr_racks)


@pytest.mark.parametrize(
    ("enforced", "requirements", "isr", "expected"),
    [
        (False, TopicRequirements(1, 2), (1, 3), ("warn", "R=2 is not enforced")),
        (False, TopicRequirements(1, 2), (1,), ("risk", "rack a alone acks, R=2 is not enforced")),
        (False, TopicRequirements(2, 2), (1,), ("down", "rejects: 1 of 2 replicas")),
        (False, TopicRequirements(1, 1), (1, 3), ("ok", "ok")),
        (False, TopicRequirements(1, None), (1, 3), ("ok", "ok")),
        (None, TopicRequirements(1, 2), (1, 3), ("ok", "ok, no rack to spare")),
        (None, TopicRequirements(1, 2), (1,), ("unknown", "1 of 2 racks, not known if enforced")),
        (None, TopicRequirements(2, 2), (1,), ("down", "rejects: 1 of 2 replicas")),
        (None, TopicRequirements(1, None), (1,), ("risk", "rack a alone acks")),
        (True, TopicRequirements(1, 2), (1,), ("down", "rejects: 1 of 2 racks")),
    ],
)
def test_the_required_racks_apply_only_if_enforced(
    enforced: bool | None, requirements: TopicRequirements, isr: tuple[int, ...], expected: tuple[str, str]
) -> None:
    observed = at(5)
    partition = replace(observed.partitions[0], replicas=(1, 3), isr=isr, leader=1)
    changed = replace(observed, partitions=(partition,), requirements={partition.topic: requirements}, metrics={})
    shown = take_snapshot(replace(changed, racks_enforced=enforced))
    assert (shown.partitions[0].level, shown.partitions[0].verdict) == expected
    if enforced is False and requirements.min_racks is not None:
        assert shown.partitions[0].min_racks == 1
        assert shown.partitions[0].short_observations == int(len(isr) < requirements.min_replicas), (
            "an acknowledgement contradicts no requirement"
        )
    assert document(shown)["racks_enforced"] is enforced


def test_without_the_feature_an_ack_in_one_rack_is_reported_as_such() -> None:
    def acked(second: float, ok: int) -> Observation:
        return replace(at(second, lost=True), produced={("orders", 0): ProduceCounts(ok)}, racks_enforced=False)

    shown = chain(*(acked(second, second) for second in (11, 12, 13, 14)))
    assert (partition_of(shown, "orders").level, partition_of(shown, "orders").verdict) == (
        "risk",
        "rack a alone acks, R=2 is not enforced",
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"listed": True, "responds": True}, "up"),
        ({"listed": True, "responds": None}, "up"),
        ({"listed": True, "responds": False}, "mute"),
        ({"listed": False, "process": "up"}, "fenced"),
        ({"listed": False, "process": None}, "gone"),
        ({"listed": True, "process": "paused"}, "paused"),
        ({"listed": True, "process": "down"}, "down"),
        ({"listed": None, "process": "up"}, "unknown"),
    ],
)
def test_states_of_a_broker(changes: dict[str, bool | str | None], expected: str) -> None:
    observed = at(5)
    first = replace(observed.brokers[0], **changes)  # type: ignore[arg-type]
    shown = take_snapshot(replace(observed, brokers=(first, *observed.brokers[1:])))
    assert next(broker.state for broker in shown.brokers if broker.id == 1) == expected


def test_an_unavailable_leader_takes_precedence_over_the_isr() -> None:
    observed = at(5)
    states: tuple[ProcessState, ...] = ("down", "paused")
    for state in states:
        first = replace(observed.brokers[0], process=state)
        shown = take_snapshot(replace(observed, brokers=(first, *observed.brokers[1:])))
        assert (partition_of(shown, "orders").level, partition_of(shown, "orders").verdict) == (
            "down",
            f"offline: leader 1 is {state}",
        )
    unresponsive = replace(observed.brokers[0], responds=False)
    assert (
        partition_of(take_snapshot(replace(observed, brokers=(unresponsive, *observed.brokers[1:]))), "orders").level
        == "unknown"
    )
    leaderless = tuple(replace(partition, leader=-1) for partition in observed.partitions)
    assert (
        partition_of(take_snapshot(replace(observed, partitions=leaderless)), "orders").verdict == "offline: no leader"
    )


def test_a_wrong_rack_count_of_the_leader_is_reported_after_three_observations() -> None:
    def miscounted(second: float) -> Observation:
        observed = at(second)
        metrics = {1: BrokerMetrics(observed.mono_ns, {}, {}, {("orders", 0): {"IsrRackCount": 1}})}
        return replace(observed, metrics=metrics)

    orders = partition_of(chain(miscounted(5), miscounted(6)), "orders")
    assert (orders.leader_isr_racks, orders.level) == (1, "ok"), (
        "metrics and metadata may differ briefly while the ISR changes"
    )
    orders = partition_of(chain(miscounted(5), miscounted(6), miscounted(7)), "orders")
    assert (orders.level, orders.verdict) == ("warn", "leader counts 1 racks")
    assert partition_of(chain(miscounted(5), miscounted(6), at(7), miscounted(8)), "orders").level == "ok"


def test_rejections_without_a_partition_count_for_all_partitions_of_the_topic() -> None:
    def two_partitions(second: float) -> Observation:
        observed = at(second)
        other = replace(observed.partitions[0], partition=1)
        counts = {
            ("orders", 0): ProduceCounts(int(second)),
            ("orders", ANY_PARTITION): ProduceCounts(0, int(second * 2)),
        }
        return replace(observed, partitions=(*observed.partitions, other), produced=counts)

    found = [
        partition.produce
        for partition in chain(two_partitions(5), two_partitions(6)).partitions
        if partition.observed.topic == "orders"
    ]
    assert found == [OutcomeRates(1, 2, 0, whole_topic=True), OutcomeRates(0, 2, 0, whole_topic=True)]


@pytest.mark.parametrize(
    ("step", "proved", "expected"),
    [
        ("before", True, []),
        ("inject", None, ["injecting"]),
        ("proved", True, ["active"]),
        ("proved", False, ["unproved"]),
        ("held", True, ["active"]),
        ("heal", None, ["healing"]),
        ("healed", True, ["healed"]),
        ("healed", False, ["unproved"]),
    ],
)
def test_states_of_a_fault(step: str, proved: bool | None, expected: list[str]) -> None:
    observed = at(20)
    fault = FaultObservation("cut-rack", "b", "", step, proved, 10 * SECOND, 15 * SECOND)
    assert [shown.state for shown in take_snapshot(replace(observed, faults=(fault,))).faults] == expected


def test_faults_that_ended_long_ago_are_not_shown() -> None:
    observed = at(400)
    healed = FaultObservation("cut-rack", "b", "", "healed", True, 10 * SECOND, 15 * SECOND)
    interrupted = FaultObservation("kill-rack", "a", "", "heal", None, 10 * SECOND, 15 * SECOND)
    assert take_snapshot(replace(observed, faults=(healed, interrupted))).faults == ()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), min_size=2, max_size=20))
def test_rates_are_not_negative_after_a_counter_restart(steps: list[tuple[int, int]]) -> None:
    shown: Snapshot | None = None
    now_ns = 0
    for elapsed_s, value in steps:
        now_ns += elapsed_s * SECOND
        observed = replace(at(1), mono_ns=now_ns)
        metrics = {1: BrokerMetrics(now_ns, {"MessagesInPerSec.Count": value, "RackCheckFailureRate.Count": value})}
        partitions = tuple(
            replace(partition, high_watermark=value, requested_ns=now_ns) for partition in observed.partitions
        )
        shown = take_snapshot(replace(observed, metrics=metrics, partitions=partitions), shown)
        rates = [
            shown.brokers[0].messages_in_per_s,
            shown.gate.rack_check_failures_per_s,
            partition_of(shown, "orders").watermark.per_s,
        ]
        assert all(rate is None or rate >= 0 for rate in rates)
        still_s = partition_of(shown, "orders").watermark.still_s
        assert still_s is None or 0 <= still_s <= now_ns / SECOND
    assert shown is not None


def test_json_has_the_documented_keys() -> None:
    shown = chain(at(9), at(10), at(11, lost=True), at(12, lost=True))
    output = json.loads(as_json(shown))
    assert output == json.loads(json.dumps(document(shown)))
    assert set(output) == {
        "schema", "wall_ms", "mono_ns", "interval_s", "cluster", "racks", "racks_enforced", "counts", "faults",
        "gate", "brokers", "partitions", "problems",
    }  # fmt: skip
    assert output["counts"] == {"down": 2, "unknown": 0, "risk": 1, "warn": 2, "ok": 0}
    assert set(output["partitions"][0]) == {
        "topic", "partition", "level", "verdict", "leader", "replicas", "isr", "isr_racks", "leader_isr_racks",
        "min_racks", "min_replicas", "high_watermark", "log_end", "hw", "hw_per_s", "hw_still_s", "produce",
        "failed_produce_per_s",
    }  # fmt: skip
    assert set(output["brokers"][0]) == {
        "id", "rack", "state", "leads", "messages_in_per_s", "rack_check_failures", "rack_check_failures_per_s",
        "under_min_rack_isr", "at_min_rack_isr", "under_replicated", "produce_errors_per_s",
    }  # fmt: skip
    assert output["partitions"][1]["verdict"] == "rejects: 1 of 2 racks"
    assert json.loads(as_json(chain(at(5), blind(9))))["partitions"][0]["isr"] is None
