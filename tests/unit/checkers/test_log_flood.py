"""An outage must not flood the logs of brokers and controllers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pytest

from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.judgement import judge
from pyhooks.checkers.log_flood import REPEATS, check_flood, mask_numbers, shortages
from pyhooks.checkers.record_view import PartitionName
from pyhooks.history.event_log import Event
from written_histories import MS, REFUSED, TOO_FEW, S, Simulated, event

PARTITION, MANAGER, STATE = "kafka.cluster.Partition", "kafka.server.ReplicaManager", "state.change.logger"
COORDINATOR = "kafka.coordinator.transaction.TransactionCoordinator"
HEAD = "[Partition t-0 broker=1] "
SHRINKS = (
    "[Broker id=1] Skipped the become-leader state change for t-0 with topic id Some(TvtxPDiLTA-fD1_TE4y7Bw), partition"
    " registration PartitionRegistration(replicas=[1, 2, 3], isr=[1, 2])"
)
BEGINS = (
    f"{HEAD}Rejecting writes with acks=all and holding the high watermark at 42. The current ISR of partition t-0 spans"
    " 1 rack(s), which is insufficient to satisfy the min.insync.racks requirement of 2"
)
GROWS = f"{HEAD}ISR updated to 1,2,3  and version updated to 7"
ENDS = f"{HEAD}Accepting writes with acks=all again. The current ISR spans 2 rack(s) and min.insync.racks requires 2"
STILL = (
    f"{HEAD}Still rejecting writes with acks=all: the ISR spans enough racks but has too few replicas. The current ISR"
    " spans 2 rack(s) and min.insync.racks requires 2"
)
FOLLOWS = "[Broker id=1] Follower t-0 starts at leader epoch 3 from offset 42 with partition epoch 4. Previous leader 1"


@dataclass
class Logged:
    """An outage of rack b, and what node 1 logged in it; other nodes log that they were there."""

    need_replicas: int = 2
    need_racks: int = 2
    entries: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.made = Simulated(need_replicas=self.need_replicas, need_racks=self.need_racks)
        self.made.rest(4)
        self.made.lose("b")
        self.from_ns = self.made.now
        self.made.rest(20)
        self.made.heal("b")
        self.heal_ns = self.made.now
        self.made.rest(4)
        self.change(2, SHRINKS, BEGINS)

    def log(
        self, at_s: float, text: str, logger: str = PARTITION, level: str = "INFO", traced: tuple[str, ...] = ()
    ) -> Logged:
        """A line so long after the begin of the outage."""
        self.entries.append([self.from_ns + round(at_s * S), level, logger, text, list(traced)])
        return self

    def change(self, at_s: float, why: str, text: str) -> Logged:
        """A line of the leader, and why it is there."""
        self.log(at_s, why, STATE if why.startswith("[Broker") else PARTITION)
        return self.log(at_s, text)

    def refusals(self, count: int, text: str, *more: Any) -> Logged:
        """A line that is there for each refusal; its numbers differ."""
        for number in range(count):
            self.log(3 + 15 * number / count, text.replace("{}", str(number)), *more)
        return self

    def events(self, nodes: tuple[int, ...] = (1, 2, 3, 101)) -> list[Event]:
        found = [*self.made.events, event(self.made.now, "server-log", "logs", None, nodes=[1, 2, 3, 101])]
        for node in nodes:
            own: list[list[Any]] = [[self.from_ns, "INFO", "kafka.log.LogManager", "hello", []]]
            if node == 1:
                own = sorted(self.entries, key=itemgetter(0))
            for at_ns, *rest in own:
                found.append(event(at_ns, "server-log", "lines", None, node=node, entries=[[0, *rest]]))
            found.append(event(own[-1][0], "server-log", "log-end", node=node, entries=len(own), error_ns=0))
        return found

    def whole(self) -> Logged:
        """With the end of the shortage."""
        return self.change((self.heal_ns - self.from_ns) / S, GROWS, ENDS)


def test_one_line_at_the_start_and_one_at_the_end_are_valid() -> None:
    verdict = check_flood(Logged().whole().events())
    assert verdict.valid == "true", verdict.because
    assert [re.findall(r"\d+", note) for note in verdict.notes] == [["1", "22", "7"]], "partitions, seconds, lines"


@pytest.mark.parametrize("ends", [ENDS, STILL])
def test_the_next_outage_has_its_own_lines(ends: str) -> None:
    logged = Logged().change(4, GROWS, ends).change(5, SHRINKS, BEGINS).whole()
    assert check_flood(logged.events()).valid == "true"


def test_an_end_by_missing_replicas_that_is_logged_twice_is_a_flood() -> None:
    logged = Logged().change(4, GROWS, STILL).log(5, STILL, PARTITION).change(6, SHRINKS, BEGINS).whole()
    verdict = check_flood(logged.events())
    assert verdict.valid == "false"
    assert "logged twice" in verdict.because[0]


@pytest.mark.parametrize(("why", "valid"), [(FOLLOWS, "true"), (SHRINKS, "false")])
def test_a_new_leader_may_log_its_first_refusal(why: str, valid: str) -> None:
    verdict = check_flood(Logged().change(6, why, BEGINS).whole().events())
    assert verdict.valid == valid
    assert valid == "true" or "logged twice" in verdict.because[0]


def test_a_restarted_broker_may_log_its_first_refusal() -> None:
    logged = Logged().log(6, "[BrokerServer id=1] Transition from SHUTDOWN to STARTING", "kafka.server.BrokerServer")
    assert check_flood(logged.change(7, SHRINKS, BEGINS).whole().events()).valid == "true"


def test_a_start_and_an_end_for_each_refusal_are_a_flood() -> None:
    logged = Logged()
    for number in range(5):
        logged.log(3 + number, ENDS).log(3.5 + number, BEGINS)
    verdict = check_flood(logged.whole().events())
    assert verdict.valid == "false"
    assert "though nothing has changed" in verdict.because[0]


@pytest.mark.parametrize(
    ("text", "logger", "level"),
    [
        ("[ReplicaManager broker=1] Error processing append operation on partition {}:t-0", MANAGER, "ERROR"),
        ("[TransactionCoordinator id=1] Rollback of ongoing transaction {} failed", COORDINATOR, "WARN"),
    ],
)  # fmt: skip
def test_a_line_for_each_refusal_is_a_flood(text: str, logger: str, level: str) -> None:
    verdict = check_flood(Logged().refusals(30, text, logger, level).whole().events())
    assert verdict.valid == "false"
    assert "30 times in 22 s" in verdict.because[0]


def test_a_line_for_each_change_is_no_flood() -> None:
    """A marker that is refused, for each partition and error, for instance."""
    text = "[Transaction Marker Request Completion Handler 1]: Sending txn's marker for partition t-0 failed"
    assert check_flood(Logged().log(4, text, COORDINATOR).whole().events()).valid == "true"
    # one of the two lines stands for the change of the ISR in the shortage
    logged = Logged().log(3, SHRINKS, STATE).log(4, text, COORDINATOR).log(5, text, COORDINATOR)
    assert check_flood(logged.whole().events()).valid == "true"
    assert check_flood(logged.log(6, text, COORDINATOR).whole().events()).valid == "false"


def test_lines_about_an_unresponsive_broker_are_allowed() -> None:
    logged = Logged().refusals(
        90, "Connection to node 3 could not be established", "org.apache.kafka.clients.NetworkClient"
    )
    assert check_flood(logged.whole().events()).valid == "true"


def test_few_lines_about_no_partition_are_no_flood() -> None:
    text = "[GroupCoordinator id=1] Member {} joins"
    assert check_flood(Logged().refusals(REPEATS, text, COORDINATOR).whole().events()).valid == "true"
    assert check_flood(Logged().refusals(REPEATS + 1, text, COORDINATOR).whole().events()).valid == "false"


def test_a_log_that_is_loaded_after_a_kill_is_not_written_to() -> None:
    loads, storage = "partition=t-0, dir=d] Loading producer state till offset {}", "org.apache.kafka.storage.X"
    assert check_flood(Logged().refusals(REPEATS, f"[LogLoader {loads}", storage).whole().events()).valid == "true"
    assert check_flood(Logged().refusals(REPEATS, f"[Other {loads}", storage).whole().events()).valid == "false"


@pytest.mark.parametrize(
    ("exception", "text", "valid"),
    [
        (REFUSED, "Error processing append operation on partition t-0", "false"),
        (REFUSED.replace("Racks", "RacksAfterAppend"), "whatever", "false"),
        (TOO_FEW, "Error processing append operation on partition t-0", "false"),
        # of one that has racks enough: Kafka's own matter, as it is without racks
        (TOO_FEW, "Error processing append operation on partition other-0", "true"),
        ("org.apache.kafka.common.errors.OutOfOrderSequenceException", "on partition t-0", "true"),
    ],
)
def test_a_stack_trace_of_a_refusal_is_wrong(exception: str, text: str, valid: str) -> None:
    verdict = check_flood(Logged().log(5, text, MANAGER, "ERROR", (exception,)).whole().events())
    assert verdict.valid == valid
    assert valid == "true" or "1 stack traces of" in verdict.because[0]


def test_missing_evidence_is_unknown() -> None:
    whole = Logged().whole()
    for broken, why in (
        (whole.events(nodes=(1, 2, 3)), "the log of node 101 was not read"),
        ([entry for entry in whole.events() if entry.process != "server-log"], "no log was to be read"),
        (
            [entry for entry in whole.events() if "Rejecting" not in entry.line()],
            "t-0 had too few racks, and its leader logged no refusal",
        ),
        (Logged(need_racks=1, need_replicas=1).whole().events(), "no partition was seen to have too few racks"),
        ([*whole.events(), event(whole.made.now, "server-log", "log-end", "unknown", node=2, error="gone")], "gone"),
    ):
        verdict = check_flood(broken)
        assert verdict.valid == "unknown"
        assert why in verdict.because[0]


def test_the_checker_applies_where_logs_were_read() -> None:
    whole = Logged().whole().events()
    assert "flood" in [entry.checker for entry in judge(whole)[0]]
    without, left_out = judge([entry for entry in whole if entry.process != "server-log"])
    assert "flood" not in [entry.checker for entry in without] + left_out


def test_variable_parts_of_lines_are_masked() -> None:
    places = [PartitionName("t", 0), PartitionName("t-0", 1), PartitionName("tt", 0)]
    assert mask_numbers("TvtxPDiLTA-fD1_TE4y7Bw:t-0 at 17, epoch 3", places) == "#:t-0 at #, epoch #"
    assert mask_numbers("t-0-1, tt-0; t-12; 3f2504e0-4f89-41d3-9a0c-0305e82c3301", places) == "t-0-1, tt-0; t-#; #"
    assert mask_numbers("took 3 ms", []) == "took # ms"
    # words of 22 letters and of more, and no ids
    assert mask_numbers("[TransactionCoordinator id=1]", []) == "[TransactionCoordinator id=#]"
    assert mask_numbers("AfterAppendExceptionOfRack", []) == "AfterAppendExceptionOfRack"


def test_a_shortage_that_new_settings_end_is_one_shortage() -> None:
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
    ((own,),) = shortages(ClusterView.of(cluster.events)).values()
    assert from_ns - 3 * S < own.from_ns < own.to_ns <= lowered_ns


def test_times_count_and_not_the_order_of_events() -> None:
    """A line from before the outage does not belong to it."""
    logged = Logged()
    for number in range(30):
        at_s = -(logged.from_ns / S) + 0.01 * number
        logged.log(at_s, "[TransactionCoordinator id=1] begun", COORDINATOR)
    assert min(one[0] for one in logged.entries) < logged.from_ns - MS
    assert check_flood(logged.whole().events()).valid == "true"
