"""Idempotent and transactional producers, and read_committed readers, in an outage of a rack."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ducktape_tests.scenario import (
    AAB,
    ABC,
    FAILED_RACK,
    FLOOD,
    NEEDS,
    NOT_ENOUGH_RACKS,
    OFFSETS,
    PATIENT_MS,
    SINGLE_PARTITIONS,
    TRANSACTIONS,
    LoadSpec,
    RackScenario,
    offsets_topic,
    require_true,
    sleep,
    spec,
    transactions_topic,
)
from ducktape_tests.services.clients import Program, wait_events
from pyhooks.checkers import cluster_view
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.transaction_recovery import BOUND_S, longest_stall_s, reader_progress
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event
from pyhooks.history.events import (
    FollowDetails,
    IntendDetails,
    LeaderOffsetsDetails,
    ProduceDetails,
    TransactionDetails,
)
from pyhooks.kafka import topics

OUTAGE_S = 40.0
# Shorter than the outage: a producer with this timeout gives up records, and with them transactions.
SHORT_MS = 8_000
BOTH = "aab,abc"
# The first stays writable in the outage, so that there is always something to copy; the second does not.
COPIED, COPIES = "abc", "copies"
# Longer than checkers allow, so that they judge late results.
PATIENCE_S = BOUND_S + 60


def _loads() -> list[LoadSpec]:
    aborting = ("--abort-share", "0.1")
    return [
        LoadSpec(BOTH, "idempotent", patient_ms=PATIENT_MS),
        LoadSpec(BOTH, "idempotent", "confluent", patient_ms=PATIENT_MS),
        LoadSpec(BOTH, "transactional", options=aborting, patient_ms=PATIENT_MS),
        LoadSpec(BOTH, "transactional", "confluent", options=aborting, patient_ms=PATIENT_MS),
        # Only to the topic that rejects: in the other one its records would fail with the transaction.
        LoadSpec("aab", "transactional", options=("--timeout-ms", str(SHORT_MS), *aborting)),
    ]


class TransactionsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    PROPERTIES: ClassVar[Mapping[str, str]] = SINGLE_PARTITIONS

    def test_producers_ride_out_an_outage(self) -> None:
        """No record is duplicated or reordered, and transactions and read_committed readers continue after an outage.

        Producers of Java and librdkafka, idempotent and transactional, have timeouts of 120 s, longer than the outage;
        one of Java has 8 s and gives up a transaction. A program copies a topic with its group's offsets in the same
        transactions. Only the topic of transaction coordinators stays writable.
        """
        self._outage(ABC)

    def test_the_transactions_topic_is_rejected_too(self) -> None:
        """The same, but no transaction can be completed during the outage: R=2 is the cluster's."""
        self.require_racks(2)
        self._outage(AAB)

    def _outage(self, transactions: Sequence[int]) -> None:
        topics.create(self.kafka.admin, [transactions_topic(transactions, 2), offsets_topic(AAB)])
        self.kafka.wait_log(TRANSACTIONS, transactions)
        self.kafka.wait_log(OFFSETS, AAB)
        specs = [spec("aab", AAB, 2, 2), spec("abc", ABC, 2, 2), spec(COPIES, AAB, 2, 2)]
        with (
            self.under_load(specs, _loads(), also=[TRANSACTIONS]),
            self.client("committed_reader", BOTH) as (follower,),
            self.client("copier", COPIED, "--to", COPIES, "--group", "copiers") as (copying,),
        ):
            _wait_commits([copying])
            # A client that starts in an outage may wait for a killed broker.
            wait_events(
                [follower],
                LeaderOffsetsDetails,
                lambda _, __, progress: progress.topic if progress.records > 0 else None,
                BOTH.split(","),
                goal="committed records of each topic",
                timeout_s=60,
            )
            with self.fault("kill", rack=FAILED_RACK):
                self.wait_isr({1, 2}, "aab")
                # Patient producers have no results during the outage, so single attempts are needed.
                self.phases({name: (f"one rack left of {name}", NOT_ENOUGH_RACKS) for name in ("aab", COPIES)})
                self._wait_outage(OUTAGE_S)
            transactional = zip(self.producers, _loads(), strict=True)
            _wait_commits([*(program for program, load in transactional if load.mode == "transactional"), copying])
            _wait_high_watermarks(follower)
        self.read_final_state(logs=True)
        verdicts = self.verdicts((*NEEDS, "transactions", "unstuck", "copied", FLOOD))
        events = list(self.history.events())
        self.figures(producers=_producers(events), readers=_readers(events))
        require_true(verdicts)

    def _wait_outage(self, seconds: float) -> None:
        """Wait until an outage has lasted so long, and the producer with a short timeout gave up a transaction."""
        until_s = time.monotonic() + seconds
        wait_events(
            self.producers[-1:],
            TransactionDetails,
            lambda _, event, __: event.outcome != "ok",
            [True],
            goal="an aborted transaction",
            timeout_s=seconds + 2 * SHORT_MS / 1000 + 15,
        )
        sleep(max(0.0, until_s - time.monotonic()), f"{seconds:g} s of outage")


def _wait_commits(programs: Sequence[Program]) -> None:
    """Wait until each of these programs has committed a transaction that it started from now on."""
    now_ns = time.monotonic_ns()
    wait_events(
        programs,
        TransactionDetails,
        lambda program, event, transaction: (
            program.run_id if event.outcome == "ok" and transaction.begun_ns > now_ns else None
        ),
        [program.run_id for program in programs],
        goal=f"{len(programs)} programs to commit a transaction that starts after now",
        timeout_s=PATIENCE_S,
    )


def _wait_high_watermarks(follower: Program) -> None:
    """Wait until a reader has reached the current high watermarks."""
    now_ns = time.monotonic_ns()
    ends: dict[str, int] = {}
    pending = set(BOTH.split(","))

    def caught_up() -> bool:
        for event, progress in FollowDetails.each(follower.fetch()):
            leader = LeaderOffsetsDetails.of(event)
            if leader is not None and leader.asked_ns > now_ns:
                ends.setdefault(leader.topic, leader.end)
            if progress.topic in ends and progress.position >= ends[progress.topic]:
                pending.discard(progress.topic)
        return not pending

    wait_for(
        caught_up, goal="a read_committed reader at the current high watermark", timeout_s=PATIENCE_S, interval_s=0.5
    )


def _producers(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the results of each producer's records and transactions."""
    faults = cluster_view.faults(events)
    summaries: dict[str, dict[str, Any]] = {}
    for event in events:
        if (intend := IntendDetails.of(event)) is not None:
            about = {"run": intend.run, "mode": intend.mode, "client": intend.client}
            summaries.setdefault(
                str(intend.run), {**about, "records": {}, "slowest_s": 0.0, "transactions": {}, "longest_s": 0.0}
            )
        elif (produced := ProduceDetails.of(event)) is not None:
            summary = summaries[str(produced.run)]
            summary["records"][event.outcome] = summary["records"].get(event.outcome, 0) + 1
            summary["slowest_s"] = max(summary["slowest_s"], round((produced.latency_ms or 0.0) / 1000, 1))
        elif (transaction := TransactionDetails.of(event)) is not None:
            summary = summaries[transaction.run]
            kind = f"{transaction.asked} {event.outcome}"
            summary["transactions"][kind] = summary["transactions"].get(kind, 0) + 1
            began_ns = transaction.begun_ns
            summary["longest_s"] = max(summary["longest_s"], round((event.mono_ns - began_ns) / NS, 1))
            if any(fault.proved_ns and fault.heal_ns and fault.proved_ns < began_ns and event.mono_ns < fault.heal_ns
                   for fault in faults):  # fmt: skip
                within = summary.setdefault("within_the_outage", {})
                within[kind] = within.get(kind, 0) + 1
    return list(summaries.values())


def _readers(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return for how long read_committed readers were blocked: during the fault, and from the fault to the end."""
    (fault,) = cluster_view.faults(events)
    assert fault.heal_ns is not None
    readers = reader_progress(events)
    return [
        {
            "topic": partition.topic,
            "held_up_in_the_outage_s": round(longest_stall_s(steps, fault.inject_ns, fault.heal_ns), 1),
            "held_up_at_all_s": round(longest_stall_s(steps, fault.inject_ns, steps[-1].at_ns), 1),
        }
        for (_, partition), steps in readers.items()
    ]
