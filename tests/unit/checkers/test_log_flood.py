"""Checker that an outage does not flood the logs of brokers and controllers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pytest

from planted_violations import planted
from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.judgement import judge
from pyhooks.checkers.log_flood import REPEATS, check_flood, mask_numbers, shortages
from pyhooks.checkers.record_view import PartitionName
from pyhooks.history.event_log import Event
from written_histories import MS, REJECTED, TOO_FEW, S, Simulated, event

PARTITION, REPLICA_MANAGER, STATE_CHANGE = (
    "kafka.cluster.Partition",
    "kafka.server.ReplicaManager",
    "state.change.logger",
)
COORDINATOR = "kafka.coordinator.transaction.TransactionCoordinator"
HEAD = "[Partition t-0 broker=1] "
ISR_SHRINKS = (
    "[Broker id=1] Skipped the become-leader state change for t-0 with topic id Some(TvtxPDiLTA-fD1_TE4y7Bw), partition"
    " registration PartitionRegistration(replicas=[1, 2, 3], isr=[1, 2])"
)
REJECTING = (
    f"{HEAD}Rejecting writes with acks=all and holding the high watermark at 42. The current ISR of partition t-0 spans"
    " 1 rack(s), which is insufficient to satisfy the min.insync.racks requirement of 2"
)
ISR_GROWS = f"{HEAD}ISR updated to 1,2,3  and version updated to 7"
ACCEPTING = (
    f"{HEAD}Accepting writes with acks=all again. The current ISR spans 2 rack(s) and min.insync.racks requires 2"
)
STILL_REJECTING = (
    f"{HEAD}Still rejecting writes with acks=all: the ISR spans enough racks but has too few replicas. The current ISR"
    " spans 2 rack(s) and min.insync.racks requires 2"
)
SETTING = "[DynamicConfigPublisher broker id=1] Updating topic t with new configuration : min.insync.racks -> 1"
BECOMES_FOLLOWER = (
    "[Broker id=1] Follower t-0 starts at leader epoch 3 from offset 42 with partition epoch 4. Previous leader 1"
)


@dataclass
class LoggedOutage:
    """Outage of rack b and the lines that node 1 logged in it; the other nodes log one unrelated line each."""

    need_replicas: int = 2
    need_racks: int = 2
    entries: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = Simulated(need_replicas=self.need_replicas, need_racks=self.need_racks)
        self.cluster.rest(4)
        self.cluster.lose("b")
        self.from_ns = self.cluster.now
        self.cluster.rest(20)
        self.cluster.heal("b")
        self.heal_ns = self.cluster.now
        self.cluster.rest(4)
        self.change(2, ISR_SHRINKS, REJECTING)

    def log(
        self, at_s: float, text: str, logger: str = PARTITION, level: str = "INFO", traced: tuple[str, ...] = ()
    ) -> LoggedOutage:
        """Log a line at a time after the verified loss of the rack; ``traced`` are exceptions of a stack trace."""
        self.entries.append([self.from_ns + round(at_s * S), level, logger, text, list(traced)])
        return self

    def change(self, at_s: float, cause: str, text: str) -> LoggedOutage:
        """Log a line of the leader, preceded by its cause."""
        self.log(at_s, cause, STATE_CHANGE if cause.startswith("[Broker") else PARTITION)
        return self.log(at_s, text)

    def for_each_rejection(self, count: int, text: str, *more: Any) -> LoggedOutage:
        """Log a line for each of ``count`` rejections, with its number in place of ``{}``."""
        for number in range(count):
            self.log(3 + 15 * number / count, text.replace("{}", str(number)), *more)
        return self

    def events(self, nodes: tuple[int, ...] = (1, 2, 3, 101)) -> list[Event]:
        events = [*self.cluster.events, event(self.cluster.now, "server-log", "logs", None, nodes=[1, 2, 3, 101])]
        for node in nodes:
            lines: list[list[Any]] = [[self.from_ns, "INFO", "kafka.log.LogManager", "hello", []]]
            if node == 1:
                lines = sorted(self.entries, key=itemgetter(0))
            for at_ns, *rest in lines:
                events.append(event(at_ns, "server-log", "lines", None, node=node, entries=[[0, *rest]]))
            events.append(event(lines[-1][0], "server-log", "log-end", node=node, entries=len(lines), error_ns=0))
        return events

    def end(self) -> LoggedOutage:
        """Log the end of the shortage."""
        return self.change((self.heal_ns - self.from_ns) / S, ISR_GROWS, ACCEPTING)


def test_one_line_at_the_start_and_one_at_the_end_are_valid() -> None:
    verdict = check_flood(LoggedOutage().end().events())
    assert verdict.valid == "true", verdict.because
    assert [re.findall(r"\d+", note) for note in verdict.notes] == [["1", "22", "7"]], "partitions, seconds, lines"


@pytest.mark.parametrize("end_text", [ACCEPTING, STILL_REJECTING])
def test_each_outage_may_log_its_own_lines(end_text: str) -> None:
    logged = LoggedOutage().change(4, ISR_GROWS, end_text).change(5, ISR_SHRINKS, REJECTING).end()
    assert check_flood(logged.events()).valid == "true"


def test_an_end_of_the_rack_shortage_logged_twice_is_a_flood() -> None:
    logged = (
        LoggedOutage()
        .change(4, ISR_GROWS, STILL_REJECTING)
        .log(5, STILL_REJECTING, PARTITION)
        .change(6, ISR_SHRINKS, REJECTING)
        .end()
    )
    verdict = check_flood(logged.events())
    assert verdict.valid == "false"
    assert "logged twice" in verdict.because[0]


@pytest.mark.parametrize(("after_s", "valid"), [(0.0, "true"), (0.5, "true"), (1.5, "false")])
def test_a_new_setting_may_be_logged_after_its_effect(after_s: float, valid: str) -> None:
    logged = LoggedOutage().log(4, ACCEPTING).log(4 + after_s, SETTING, "kafka.server.metadata.DynamicConfigPublisher")
    verdict = check_flood(logged.change(8, ISR_SHRINKS, REJECTING).end().events())
    assert verdict.valid == valid
    assert valid == "true" or "nothing has changed" in verdict.because[0]


@pytest.mark.parametrize(("cause", "valid"), [(BECOMES_FOLLOWER, "true"), (ISR_SHRINKS, "false")])
def test_a_new_leader_may_log_its_first_rejection(cause: str, valid: str) -> None:
    verdict = check_flood(LoggedOutage().change(6, cause, REJECTING).end().events())
    assert verdict.valid == valid
    assert valid == "true" or "logged twice" in verdict.because[0]


def test_a_restarted_broker_may_log_its_first_rejection() -> None:
    logged = LoggedOutage().log(
        6, "[BrokerServer id=1] Transition from SHUTDOWN to STARTING", "kafka.server.BrokerServer"
    )
    assert check_flood(logged.change(7, ISR_SHRINKS, REJECTING).end().events()).valid == "true"


def test_a_start_and_an_end_for_each_rejection_are_a_flood() -> None:
    logged = LoggedOutage()
    for number in range(5):
        logged.log(3 + number, ACCEPTING).log(3.5 + number, REJECTING)
    verdict = check_flood(logged.end().events())
    assert verdict.valid == "false"
    assert "though nothing has changed" in verdict.because[0]


@pytest.mark.parametrize(
    ("text", "logger", "level"),
    [
        ("[ReplicaManager broker=1] Error processing append operation on partition {}:t-0", REPLICA_MANAGER, "ERROR"),
        ("[TransactionCoordinator id=1] Rollback of ongoing transaction {} failed", COORDINATOR, "WARN"),
    ],
)  # fmt: skip
def test_a_line_for_each_rejection_is_a_flood(text: str, logger: str, level: str) -> None:
    verdict = check_flood(LoggedOutage().for_each_rejection(30, text, logger, level).end().events())
    assert verdict.valid == "false"
    assert "30 times in 22 s" in verdict.because[0]


def test_a_line_for_each_change_is_no_flood() -> None:
    """For example a rejected transaction marker, logged once per partition and error."""
    text = "[Transaction Marker Request Completion Handler 1]: Sending txn's marker for partition t-0 failed"
    assert check_flood(LoggedOutage().log(4, text, COORDINATOR).end().events()).valid == "true"
    # the second line is allowed by the change of the ISR during the shortage
    logged = LoggedOutage().log(3, ISR_SHRINKS, STATE_CHANGE).log(4, text, COORDINATOR).log(5, text, COORDINATOR)
    assert check_flood(logged.end().events()).valid == "true"
    assert check_flood(logged.log(6, text, COORDINATOR).end().events()).valid == "false"


def test_lines_about_an_unresponsive_broker_are_allowed() -> None:
    logged = LoggedOutage().for_each_rejection(
        90, "Connection to node 3 could not be established", "org.apache.kafka.clients.NetworkClient"
    )
    assert check_flood(logged.end().events()).valid == "true"


def test_a_few_lines_that_name_no_partition_are_no_flood() -> None:
    text = "[GroupCoordinator id=1] Member {} joins"
    assert check_flood(LoggedOutage().for_each_rejection(REPEATS, text, COORDINATOR).end().events()).valid == "true"
    assert (
        check_flood(LoggedOutage().for_each_rejection(REPEATS + 1, text, COORDINATOR).end().events()).valid == "false"
    )


def test_log_recovery_lines_after_an_unclean_shutdown_are_no_flood() -> None:
    loads, storage = "partition=t-0, dir=d] Loading producer state till offset {}", "org.apache.kafka.storage.X"
    assert (
        check_flood(LoggedOutage().for_each_rejection(REPEATS, f"[LogLoader {loads}", storage).end().events()).valid
        == "true"
    )
    assert (
        check_flood(LoggedOutage().for_each_rejection(REPEATS, f"[Other {loads}", storage).end().events()).valid
        == "false"
    )


@pytest.mark.parametrize(
    ("exception", "text", "valid"),
    [
        (REJECTED, "Error processing append operation on partition t-0", "false"),
        (REJECTED.replace("Racks", "RacksAfterAppend"), "Append failed", "false"),
        (TOO_FEW, "Error processing append operation on partition t-0", "false"),
        # a partition with enough racks: stock Kafka logs the same
        (TOO_FEW, "Error processing append operation on partition other-0", "true"),
        ("org.apache.kafka.common.errors.OutOfOrderSequenceException", "on partition t-0", "true"),
    ],
)
def test_a_stack_trace_of_a_rejection_is_wrong(exception: str, text: str, valid: str) -> None:
    verdict = check_flood(LoggedOutage().log(5, text, REPLICA_MANAGER, "ERROR", (exception,)).end().events())
    assert verdict.valid == valid
    assert valid == "true" or "1 stack traces of" in verdict.because[0]


def test_missing_evidence_is_unknown() -> None:
    outage = LoggedOutage().end()
    for incomplete, reason in (
        (outage.events(nodes=(1, 2, 3)), "the log of node 101 was not read"),
        ([entry for entry in outage.events() if entry.process != "server-log"], "no server logs were collected"),
        (
            [entry for entry in outage.events() if "Rejecting" not in entry.line()],
            "t-0 had too few racks, and its leader logged no rejection",
        ),
        (LoggedOutage(need_racks=1, need_replicas=1).end().events(), "no partition was seen to have too few racks"),
        (
            [*outage.events(), event(outage.cluster.now, "server-log", "log-end", "unknown", node=2, error="gone")],
            "gone",
        ),
    ):
        verdict = check_flood(incomplete)
        assert verdict.valid == "unknown"
        assert reason in verdict.because[0]


def test_the_checker_applies_to_histories_with_server_logs() -> None:
    events = LoggedOutage().end().events()
    assert "flood" in [verdict.checker for verdict in judge(events)[0]]
    verdicts, left_out = judge([entry for entry in events if entry.process != "server-log"])
    assert "flood" not in [verdict.checker for verdict in verdicts] + left_out


def test_ids_and_numbers_are_masked() -> None:
    partitions = [PartitionName("t", 0), PartitionName("t-0", 1), PartitionName("tt", 0)]
    assert mask_numbers("TvtxPDiLTA-fD1_TE4y7Bw:t-0 at 17, epoch 3", partitions) == "#:t-0 at #, epoch #"
    assert mask_numbers("t-0-1, tt-0; t-12; 3f2504e0-4f89-41d3-9a0c-0305e82c3301", partitions) == "t-0-1, tt-0; t-#; #"
    assert mask_numbers("took 3 ms", []) == "took # ms"
    # words with as many letters as a topic ID has
    assert mask_numbers("[TransactionCoordinator id=1]", []) == "[TransactionCoordinator id=#]"
    assert mask_numbers("AfterAppendExceptionOfRack", []) == "AfterAppendExceptionOfRack"


def test_a_shortage_ends_when_r_is_lowered() -> None:
    cluster = Simulated()
    cluster.rest(4)
    cluster.lose("b")
    from_ns = cluster.now
    cluster.rest(6)
    cluster.settings("seen")
    cluster.need_racks = 1
    for step in ("begin", "settled"):
        cluster.settings(step)
    lowered_ns = cluster.now
    cluster.rest(6)
    cluster.heal("b")
    ((shortage,),) = shortages(ClusterView.of(cluster.events)).values()
    assert from_ns - 3 * S < shortage.from_ns < shortage.to_ns <= lowered_ns


def test_lines_from_before_the_outage_are_not_counted() -> None:
    """The time of a line decides, not its position in the history."""
    logged = LoggedOutage()
    for number in range(30):
        at_s = -(logged.from_ns / S) + 0.01 * number
        logged.log(at_s, "[TransactionCoordinator id=1] begun", COORDINATOR)
    assert min(entry[0] for entry in logged.entries) < logged.from_ns - MS
    assert check_flood(logged.end().events()).valid == "true"


def test_the_planted_violation_log_twice_is_found() -> None:
    for events in planted("log-twice", LoggedOutage().end().events()):
        assert check_flood(events).valid == "false"
