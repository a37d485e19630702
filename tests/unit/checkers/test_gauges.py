"""Checkers of the gate's metrics: gauges against the metadata log, the meter against rejections of clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.expected_gauges import Truth
from pyhooks.checkers.gauges import BEHIND_S, CREATED_S, METER, QUICK_S, check_meter, check_metrics, figures
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.record_format import key_of
from pyhooks.lab import metadata_records
from written_histories import REJECTED, TIMEOUT, S, changed, event, is_

RACKS = {1: "a", 2: "a", 3: "b", 4: "c"}
LOST_NS, BACK_NS = 20 * S, 30 * S
COLUMNS = ["AtMinIsr", "AtMinRackIsr", "IsrRackCount", "UnderMinIsr", "UnderMinRackIsr"]
# Values of all columns. Broker 1 leads both: t on brokers 1, 2, 3 with M=2, R=2, and u on 1, 3, 4 with M=1, R=2.
Row = list[int | None]
COMPLETE_ISR: dict[str, Row] = {"t-0": [0, 1, 2, 0, 0], "u-0": [0, 0, 3, 0, 0]}
WITHOUT_RACK_B: dict[str, Row] = {"t-0": [1, 0, 1, 0, 1], "u-0": [0, 1, 2, 0, 0]}
# Row of a follower, which has no rack gauges.
FOLLOWER_ROW: Row = [0, None, None, 0, None]


def record(at_ns: int, *records: tuple[str, dict[str, Any]]) -> Event:
    return event(at_ns, "metadata-log", "metadata", offset=at_ns // S, records=[list(item) for item in records])


def metadata_log() -> list[Event]:
    """Metadata log: broker 3, all of rack b, leaves the ISRs and returns."""
    brokers = [("REGISTER_BROKER_RECORD", {"brokerId": broker, "rack": rack}) for broker, rack in RACKS.items()]
    up = [("BROKER_REGISTRATION_CHANGE_RECORD", {"brokerId": broker, "fenced": -1}) for broker in RACKS]
    feature = ("FEATURE_LEVEL_RECORD", {"name": "min.insync.racks.version", "featureLevel": 1})
    topics: list[tuple[str, dict[str, Any]]] = []
    for name, isr, wanted in (("t", [1, 2, 3], 2), ("u", [1, 3, 4], 1)):
        topics.append(("TOPIC_RECORD", {"name": name, "topicId": f"id-{name}"}))
        for config, value in (("min.insync.replicas", wanted), ("min.insync.racks", 2)):
            config_record = {"resourceType": 2, "resourceName": name, "name": config, "value": str(value)}
            topics.append(("CONFIG_RECORD", config_record))
        state = {"partitionId": 0, "topicId": f"id-{name}", "replicas": isr, "isr": isr, "leader": 1}
        topics.append(("PARTITION_RECORD", state))

    def isrs(t: Sequence[int], u: Sequence[int], fenced: int) -> list[tuple[str, dict[str, Any]]]:
        return [
            ("BROKER_REGISTRATION_CHANGE_RECORD", {"brokerId": 3, "fenced": fenced}),
            ("PARTITION_CHANGE_RECORD", {"partitionId": 0, "topicId": "id-t", "isr": list(t)}),
            ("PARTITION_CHANGE_RECORD", {"partitionId": 0, "topicId": "id-u", "isr": list(u)}),
        ]

    return [
        record(1 * S, *brokers, feature),
        record(2 * S, *up, *topics),
        record(LOST_NS, *isrs([1, 2], [1, 4], 1)),
        record(BACK_NS, *isrs([1, 2, 3], [1, 3, 4], -1)),
        event(50 * S, "metadata-log", "metadata-end", controller=101, low=0, next=99),
    ]


def poll(broker: int, at_ns: int, rows: dict[str, Row], count: int = 0, **more: int) -> Event:
    values: dict[str, Any] = {METER: count}
    for column, gauge in zip(COLUMNS, zip(*rows.values(), strict=True), strict=True):
        values |= {} if column == "IsrRackCount" else {f"{column}PartitionCount": sum(value or 0 for value in gauge)}
    about: dict[str, Any] = {
        "broker": broker,
        "latency_ms": 10.0,
        "columns": COLUMNS,
        "partitions": rows,
        "values": values | more,
    }
    return event(at_ns, "metrics", "metric", **about)


def polls(late_ns: int = S // 2) -> list[Event]:
    """Polls of brokers every second, with a delay."""
    found = []
    for second in range(5, 45):
        at_ns = second * S
        lost = LOST_NS + late_ns <= at_ns < BACK_NS + late_ns
        found.append(poll(1, at_ns, WITHOUT_RACK_B if lost else COMPLETE_ISR, count=2 if at_ns > 22 * S else 0))
        found.append(poll(2, at_ns, {"t-0": FOLLOWER_ROW}))
        found.append(poll(4, at_ns, {"u-0": FOLLOWER_ROW}))
        if not LOST_NS - S < at_ns < BACK_NS:
            found.append(poll(3, at_ns, {"t-0": FOLLOWER_ROW, "u-0": FOLLOWER_ROW}))
    return found


def fault_steps() -> list[Event]:
    moments = {"before": -3, "inject": -2, "proved": -1, "held": 7, "heal": 8, "healed": 12}
    return [event(LOST_NS + at * S, "fault", "kill", rack="b", step=step) for step, at in moments.items()]


def client_run(rejected: int = 2, lost: int = 0) -> list[Event]:
    """Events of a client that sends one record per request and does not retry."""
    about: dict[str, Any] = {"run": "r", "topic": "t", "mode": "probe"}
    events = [
        event(6 * S, "probe", "intend", **about, client="patched", first_only=True, idempotent=False, to={"0": 9})
    ]
    outcomes: list[tuple[int, dict[str, Any]]] = [(7 * S, {})]
    outcomes += [(23 * S + at, {"exception": REJECTED}) for at in range(rejected)]
    outcomes += [(24 * S + at, {"exception": TIMEOUT}) for at in range(lost)]
    for seq, (at_ns, fields) in enumerate(outcomes):
        outcome: Any = "ok" if not fields else "fail" if fields["exception"] == REJECTED else "unknown"
        key = key_of("r", "t", 0, seq)
        events.append(event(at_ns, "probe", "produce", outcome, **about, key=key, seq=seq, partition=0, **fields))
    return events


def complete_history(**more: Any) -> list[Event]:
    return [*metadata_log(), *fault_steps(), *polls(**more), *client_run()]


def test_gauges_that_are_correct_within_the_bound_are_valid() -> None:
    for late_ns in (0, S // 2, 3 * S // 2):
        verdict = check_metrics(complete_history(late_ns=late_ns))
        assert (verdict.valid, verdict.because) == ("true", ())
    assert any("IsrRackCount was up to 1.01 s late" in note for note in verdict.notes), verdict.notes


def test_figures_include_the_delay_of_each_gauge() -> None:
    delays = figures(complete_history(late_ns=3 * S // 2))
    # until the end of the response
    assert delays["late_s"]["IsrRackCount"] == 1.01
    assert set(COLUMNS) <= set(delays["late_s"])
    judged = f"{delays['polls']} polls judged, 0 responses took longer than 0.5 s"
    assert any(note.startswith(judged) for note in check_metrics(complete_history(late_ns=3 * S // 2)).notes)
    assert set(figures(complete_history(late_ns=0))["late_s"].values()) == {0.0}
    # wrong values are excluded, and without evidence there are no figures
    assert max(figures(complete_history(late_ns=4 * S))["late_s"].values()) <= BEHIND_S + QUICK_S
    assert figures(client_run()) == figures([]) == {"polls": 0, "late_s": {}}


def test_a_gauge_more_than_two_seconds_late_is_wrong() -> None:
    verdict = check_metrics(complete_history(late_ns=4 * S))
    assert verdict.valid == "false"
    assert any("UnderMinRackIsr of t-0 is 0" in reason for reason in verdict.because)


@pytest.mark.parametrize(("latency_ms", "valid"), [(499.0, "true"), (501.0, "true"), (4500.0, "unknown")])
def test_a_slow_response_counts_only_where_nothing_changed(latency_ms: float, valid: str) -> None:
    """A slow response may show any moment of its duration; near a change it would extend the bound."""

    def slow(entry: Event) -> Event:
        late = entry.op == "metric" and entry.data["broker"] == 1 and entry.mono_ns > LOST_NS
        return replace(entry, data={**entry.data, "latency_ms": latency_ms}) if late else entry

    assert check_metrics([slow(entry) for entry in complete_history(late_ns=4 * S)]).valid == "false"
    verdict = check_metrics([slow(entry) for entry in complete_history()])
    assert verdict.valid == valid, verdict.because
    assert any("broker 1 did not respond for" in reason for reason in verdict.because) is (valid == "unknown")
    (unused,) = [int(found[1]) for note in verdict.notes if (found := re.search(r"of which (\d+) are ignored", note))]
    assert (unused > 0) is (latency_ms > 500)
    # counts of the meter are not affected
    assert check_meter([slow(entry) for entry in complete_history()]).valid == "true"
    assert max(figures([slow(entry) for entry in complete_history()])["late_s"].values()) <= BEHIND_S + QUICK_S


def test_the_delay_of_a_gauge_includes_the_duration_of_the_response() -> None:
    late = [replace(entry, data={**entry.data, "latency_ms": 400.0}) if entry.op == "metric" else entry
            for entry in complete_history(late_ns=3 * S // 2)]  # fmt: skip
    assert figures(late)["late_s"]["IsrRackCount"] == 1.4


def test_the_measured_clock_error_of_the_controller_is_granted() -> None:
    early = [poll(1, 10 * S, COMPLETE_ISR), poll(1, LOST_NS - S // 20, WITHOUT_RACK_B)]
    assert check_metrics([*metadata_log(), *fault_steps(), *early]).valid == "false"
    uncertain = changed([*metadata_log(), *fault_steps(), *early], is_("metadata-end"), error_ns=S // 10)
    assert check_metrics(uncertain).valid == "unknown"


@pytest.mark.parametrize("column", range(5))
def test_each_gauge_is_judged(column: int) -> None:
    rows = {place: list(row) for place, row in WITHOUT_RACK_B.items()}
    rows["t-0"][column] = (rows["t-0"][column] or 0) + 1
    bad = [poll(1, 25 * S, rows) if entry.op == "metric" and entry.mono_ns == 25 * S else entry for entry in polls()]
    verdict = check_metrics([*metadata_log(), *fault_steps(), *bad])
    assert verdict.valid == "false"
    assert any(f"{COLUMNS[column]} of t-0" in reason for reason in verdict.because), verdict.because


@pytest.mark.parametrize(
    "name", ["UnderMinRackIsrPartitionCount", "AtMinRackIsrPartitionCount", "AtMinIsrPartitionCount"]
)
def test_each_count_is_judged(name: str) -> None:
    bad = [
        poll(1, 25 * S, WITHOUT_RACK_B, **{name: 7})
        if entry.data.get("broker") == 1 and entry.mono_ns == 25 * S
        else entry
        for entry in polls()
    ]
    verdict = check_metrics([*metadata_log(), *fault_steps(), *bad])
    assert verdict.valid == "false"
    assert any(f"{name} is 7" in reason for reason in verdict.because)


def test_a_missing_gauge_is_wrong() -> None:
    bad = [
        poll(1, 25 * S, {"u-0": WITHOUT_RACK_B["u-0"]})
        if entry.data.get("broker") == 1 and entry.mono_ns == 25 * S
        else entry
        for entry in polls()
    ]
    verdict = check_metrics([*metadata_log(), *fault_steps(), *bad])
    assert verdict.valid == "false"
    assert any("IsrRackCount of t-0 is missing" in reason for reason in verdict.because)


@pytest.mark.parametrize("column", ["AtMinRackIsr", "IsrRackCount", "UnderMinRackIsr"])
def test_a_rack_gauge_on_a_follower_is_wrong(column: str) -> None:
    """Even with the value 0, since each additional gauge makes every scrape larger."""
    rows = list(FOLLOWER_ROW)
    rows[COLUMNS.index(column)] = 0
    verdict = check_metrics([*complete_history(), poll(2, 25 * S, {"t-0": rows})])
    assert (verdict.valid, len(verdict.because)) == ("false", 1)
    assert f"broker 2: {column} of t-0 is 0" in verdict.because[0]
    # broker 3 is fenced then and may be outdated
    assert check_metrics([*complete_history(), poll(3, 25 * S, {"t-0": rows, "u-0": rows})]).valid == "true"


@pytest.mark.parametrize(("after_s", "valid"), [(BEHIND_S - 0.5, "true"), (BEHIND_S + 0.5, "false")])
def test_a_new_leader_must_have_rack_gauges_within_the_bound(after_s: float, valid: str) -> None:
    leads = record(35 * S, ("PARTITION_CHANGE_RECORD", {"partitionId": 0, "topicId": "id-t", "leader": 2}))
    before = [entry for entry in complete_history() if entry.op != "metric" or entry.mono_ns < 35 * S]
    late = poll(2, round((35 + after_s) * S), {"t-0": FOLLOWER_ROW}, AtMinRackIsrPartitionCount=1)
    verdict = check_metrics([*before, leads, late])
    assert verdict.valid == valid, verdict.because
    assert any("IsrRackCount of t-0 is missing" in reason for reason in verdict.because) is (valid == "false")


def test_replicas_that_a_reassignment_adds_do_not_raise_r() -> None:
    """A partition with R=2 is reduced to one replica, and a second one is added in another rack."""
    reduced = {"partitionId": 0, "topicId": "id-t", "replicas": [1], "isr": [1]}
    adding = {"partitionId": 0, "topicId": "id-t", "replicas": [1, 3], "addingReplicas": [3]}
    done = {"partitionId": 0, "topicId": "id-t", "isr": [1], "addingReplicas": []}
    moves = [
        record((35 + at) * S, ("PARTITION_CHANGE_RECORD", change)) for at, change in enumerate((reduced, adding, done))
    ]
    truth = Truth([*metadata_log(), *moves])
    rows = [truth.within((1, "t", 0, "UnderMinRackIsr"), at, at) for at in (35 * S, 36 * S, 37 * S)]
    assert rows == [{0}, {0}, {1}]


@pytest.mark.parametrize(("since_s", "valid"), [(CREATED_S - 1, "true"), (CREATED_S + 1, "false")])
def test_a_new_partition_must_have_its_gauges_within_the_bound(since_s: float, valid: str) -> None:
    """Both partitions were created at 2 s; one has no gauges yet."""
    late = poll(1, round((2 + since_s) * S), {"u-0": COMPLETE_ISR["u-0"]}, AtMinRackIsrPartitionCount=1)
    verdict = check_metrics([*complete_history(), late])
    assert verdict.valid == valid
    assert any("of t-0 is missing" in reason for reason in verdict.because) is (valid == "false")


def test_a_starting_broker_may_respond_without_gauges() -> None:
    empty_response = event(
        BACK_NS - S // 2, "metrics", "metric", broker=3, latency_ms=1.0, columns=[], partitions={}, values={}
    )
    assert check_metrics([*complete_history(), empty_response]).valid == "true"
    assert check_meter([*complete_history(), empty_response]).valid == "true"
    later = event(BACK_NS + 5 * S, "metrics", "metric", **empty_response.data)
    verdict = check_metrics([*complete_history(), later])
    assert verdict.valid == "false"
    assert any("broker 3: UnderMinRackIsrPartitionCount is missing" in reason for reason in verdict.because)


def test_gauges_follow_config_changes_and_the_feature_level() -> None:
    config = {"resourceType": 2, "resourceName": "t", "name": "min.insync.racks", "value": "1"}
    events = [*metadata_log(), record(25 * S, ("CONFIG_RECORD", config))]
    truth = Truth(events)
    assert truth.within((1, "t", 0, "UnderMinRackIsr"), 24 * S, 24 * S) == {1}
    assert truth.within((1, "t", 0, "UnderMinRackIsr"), 24 * S, 26 * S) == {1, 0}
    assert truth.within((1, "t", 0, "UnderMinRackIsr"), 26 * S, 27 * S) == {0}
    assert truth.within((1, "t", 0, "IsrRackCount"), 26 * S, 27 * S) == {1}
    disabled = {"name": "min.insync.racks.version", "featureLevel": 0}
    truth = Truth([*metadata_log(), record(24 * S, ("FEATURE_LEVEL_RECORD", disabled))])
    assert truth.within((1, "t", 0, "UnderMinRackIsr"), 25 * S, 26 * S) == {0}
    cluster_default = {**config, "resourceType": 4, "resourceName": "", "value": "3"}
    deleted = {key: value for key, value in config.items() if key != "value"}
    truth = Truth([*metadata_log(), record(24 * S, ("CONFIG_RECORD", cluster_default), ("CONFIG_RECORD", deleted))])
    assert truth.within((1, "t", 0, "UnderMinRackIsr"), 35 * S, 36 * S) == {1}
    assert truth.within((1, "t", 0, "AtMinRackIsr"), 15 * S, 16 * S) == {1}


def test_deleted_topics_and_unregistered_brokers_have_no_gauges() -> None:
    removed = record(
        35 * S, ("REMOVE_TOPIC_RECORD", {"topicId": "id-t"}), ("UNREGISTER_BROKER_RECORD", {"brokerId": 3})
    )
    truth = Truth([*metadata_log(), removed])
    assert truth.within((1, "t", 0, "IsrRackCount"), 36 * S, 36 * S) == {None}
    assert truth.within((1, None, None, "UnderMinRackIsrPartitionCount"), 36 * S, 36 * S) == {0}
    assert truth.within((3, None, None, "AtMinIsrPartitionCount"), 36 * S, 36 * S) == {None}
    assert not truth.unfenced(3, 36 * S, 37 * S)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (polls() + fault_steps(), "the metadata log was read 0 times"),
        (changed(complete_history(), is_("metadata-end"), outcome="unknown", error="gone"), "the metadata log: gone"),
        ([*metadata_log(), *polls()], "no fault"),
        ([*metadata_log(), *fault_steps()], "no poll of a broker"),
        ([entry for entry in complete_history() if entry.op != "metric" or not 22 * S < entry.mono_ns < 26 * S],
         "did not respond"),
        ([*metadata_log()[:2], metadata_log()[-1], *fault_steps(),
          *[poll(1, s * S, COMPLETE_ISR) for s in range(5, 45)],
          *[entry for entry in polls() if entry.data["broker"] in (2, 4)]], "UnderMinRackIsr showed nothing but 0"),
    ],
)  # fmt: skip
def test_missing_evidence_is_unknown(events: list[Event], reason: str) -> None:
    verdict = check_metrics(events)
    assert verdict.valid == "unknown", verdict.because
    assert any(reason in because for because in verdict.because), verdict.because


def test_the_meter_must_equal_the_rejections_that_clients_received() -> None:
    verdict = check_meter(complete_history())
    assert (verdict.valid, re.findall(r"\d+", verdict.notes[0])) == ("true", ["2", "2"]), (
        "counted and received rejections"
    )
    assert check_meter([*metadata_log(), *polls(), *client_run(rejected=1)]).valid == "false"
    assert check_meter([*metadata_log(), *polls(), *client_run(rejected=3)]).valid == "false"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([*polls(), *client_run(rejected=1, lost=1)], "1 results were lost"),
        ([*polls(), *client_run(rejected=0)], "no record was rejected"),
        (changed([*polls(), *client_run()], is_("intend"), client="2.8"), "does not count rejections"),
        (changed([*polls(), *client_run()], is_("intend"), mode="plain"), "does not count rejections"),
        (client_run(), "no poll of a broker"),
        ([entry for entry in [*polls(), *client_run()] if entry.mono_ns > 8 * S or entry.op != "metric"],
         "not polled before"),
        ([*polls(), *client_run(rejected=3), poll(1, 46 * S, COMPLETE_ISR, count=0)], "1 meters were reset"),
    ],
)  # fmt: skip
def test_rejections_that_cannot_be_compared_with_the_meter_are_unknown(events: list[Event], reason: str) -> None:
    verdict = check_meter(events)
    assert verdict.valid == "unknown", verdict.because
    assert any(reason in because for because in verdict.because), verdict.because


DUMP = """Dumping /mnt/kafka/data/__cluster_metadata-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 CreateTime: 1000 size: 91 magic: 2 isvalid: true
| offset: 0 CreateTime: 1000 keySize: 4 valueSize: 19 sequence: -1 headerKeys: [] LeaderChange: {"version":0}
| offset: 1 CreateTime: 1500 keySize: -1 valueSize: 4 sequence: -1 headerKeys: [] payload: {"type":"NO_OP_RECORD","version":0,"data":{}}
| offset: 2 CreateTime: 2000 keySize: -1 valueSize: 4 sequence: -1 headerKeys: [] payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"x"}}
"""  # noqa: E501 - output of kafka-dump-log.sh


def test_a_metadata_log_dump_is_written_as_events(tmp_path: Any) -> None:
    history = History(tmp_path / "h.jsonl")
    metadata_records.write_events(
        metadata_records.parse_dump(DUMP), history, controller=101, ahead_ns=500_000_000, error_ns=7
    )
    batch, end = history.events()
    assert (batch.mono_ns, batch.wall_ms) == (1_500_000_000, 2000)
    assert batch.data == {"offset": 2, "records": [["TOPIC_RECORD", {"name": "t", "topicId": "x"}]]}
    assert (end.op, end.outcome, end.mono_ns) == ("metadata-end", "ok", 1_500_000_000)
    assert end.data == {"controller": 101, "low": 0, "next": 3, "error_ns": 7}


@pytest.mark.parametrize("line", ["| offset: 0 ", "| offset: 1 CreateTime: 1500 "])
def test_an_incomplete_metadata_log_is_unknown(tmp_path: Any, line: str) -> None:
    history = History(tmp_path / "h.jsonl")
    text = "\n".join(row for row in DUMP.splitlines() if not row.startswith(line))
    metadata_records.write_events(metadata_records.parse_dump(text), history, controller=101, ahead_ns=0, error_ns=0)
    *_, end = history.events()
    assert end.outcome == "unknown"
    assert "records are missing" in end.data["error"]


def test_an_empty_dump_is_unknown_and_an_invalid_one_an_error(tmp_path: Any) -> None:
    history = History(tmp_path / "h.jsonl")
    metadata_records.write_events([], history, controller=101, ahead_ns=0, error_ns=0)
    assert [entry.outcome for entry in history.events()] == ["unknown"]
    with pytest.raises(RackgateError, match="can't read a line"):
        list(metadata_records.parse_dump('| offset: 2 CreateTime: 2000 payload: {"type":}'))


def test_the_planted_violation_count_rejections_is_found() -> None:
    for events in planted("count-rejections", complete_history()):
        assert check_meter(events).valid == "false"


def test_the_planted_violation_change_gauge_is_found() -> None:
    for events in planted("change-gauge", complete_history()):
        assert check_metrics(events).valid == "false"
