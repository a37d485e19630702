"""Violations that can be planted in a recorded history: each contradicts what certain checkers claim.

A violation is a function from a history and a random generator to the changed events, or to None where the history has
nothing to which it applies. It changes all events that would differ in a run with this violation, and no others, as far
as the checkers in ``breaks`` are concerned.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pyhooks.history.event_log import Event
from pyhooks.verify import cluster_violations as cluster
from pyhooks.verify import consumer_violations as consumers
from pyhooks.verify import feature_violations as features
from pyhooks.verify import record_violations as records
from pyhooks.verify.stored_history import StoredHistory

Plant = Callable[[StoredHistory, random.Random], list[Event] | None]


@dataclass(frozen=True)
class Violation:
    """A violation, by name."""

    name: str
    about: str  # what it changes, for output
    # checkers whose claim it contradicts: where they judge the history, none of them may return true
    breaks: frozenset[str]
    plant: Plant
    anomaly: str = ""  # Jepsen's name of the anomaly, if it has one


VIOLATIONS: tuple[Violation, ...] = tuple(
    Violation(plant.__name__.replace("_", "-"), about, frozenset(breaks.split()), plant, anomaly)
    for plant, breaks, about, anomaly in (
        (records.drop_record, "delivery offsets promise",
         "an acknowledged record is in no read and on no disk", "lost-write"),
        (records.confine_record, "promise", "a record is on the disks of one rack, two are required", ""),
        (records.lose_in_one_read, "offsets", "a record is missing in an earlier read", "poll-skip"),
        (records.duplicate_record, "delivery", "a record is in the log twice", "duplicate"),
        (records.add_unsent, "delivery", "the log has a record that was never sent", ""),
        (records.swap_in_reads, "offsets", "two records have exchanged offsets in all reads", "inconsistent-offsets"),
        (records.swap_on_disk, "offsets", "two records have exchanged offsets on one disk", "inconsistent-offsets"),
        (records.damage_value, "delivery", "a record is read with another value", ""),
        (records.shorten_value, "delivery", "a record is read with a shorter value", ""),
        (records.rotate_record, "realtime_order",
         "a record is behind all later ones: in acknowledgements, reads and disks", "nonmonotonic-send, G0-realtime"),
        (records.rotate_transaction, "realtime_order",
         "a transaction is behind one begun after its end, likewise", "G0-realtime"),
        (records.share_offset, "offsets", "two records are acknowledged at one offset", "inconsistent-offsets"),
        (records.acknowledge_rejection, "delivery offsets promise",
         "a rejection becomes an acknowledgement, of a record in no log", "lost-write"),
        (records.acknowledge_against_gate, "progress",
         "a rejected record is accepted in all logs, with an insufficient ISR", ""),
        (records.acknowledge_in_outage, "spread",
         "a rejected record is accepted in all logs, in a fault that leaves too few racks", ""),
        (records.reject_acknowledged, "delivery progress",
         "an acknowledgement becomes a rejection, with a sufficient ISR", "G1a"),
        (records.reject_in_phase, "delivery phases", "an attempt of a phase of acknowledgements is rejected", "G1a"),
        (records.misname_cause, "rejections", "a rejection for racks is reported as one for replicas", ""),
        (records.read_aborted, "transactions", "a committed read has a record of an aborted transaction", "G1a"),
        (records.read_in_part, "transactions",
         "a committed read lacks a record of a committed transaction", "lost-write"),
        (records.report_commit, "transactions", "an aborted transaction is reported as committed", "lost-write"),
        (consumers.read_ahead_of_commit, "polls",
         "a committed read is beyond the last stable offset", "precommitted-read"),
        (consumers.read_ahead_of_watermark, "polls", "a reader is beyond the high watermark", "precommitted-read"),
        (consumers.skip_in_polls, "polls", "a consumer skips a record", "poll-skip"),
        (consumers.repeat_poll, "polls", "a group member receives a record twice", "nonmonotonic-poll"),
        (consumers.go_back_in_polls, "polls", "a reader's position goes back", "nonmonotonic-poll"),
        (consumers.show_hidden, "visibility", "a record with acks=1 is readable with an insufficient ISR", ""),
        (consumers.lose_commit, "groups", "a coordinator has a lower offset than was committed", ""),
        (consumers.copy_twice, "copied", "a copier takes a record twice", "int-nonmonotonic-poll"),
        (cluster.move_isr_change, "progress",
         "an ISR shrinks earlier or grows later than acknowledgements allow", ""),
        (cluster.stay_out_of_sync, "recovery", "a replica never returns to the ISR", ""),
        (cluster.report_other_racks, "progress promise", "a broker reports another R than was set", ""),
        (cluster.fail_fault_probe, "faults", "a probe contradicts that a fault held or was healed", ""),
        (cluster.crash_node, "crashes", "a node is down although the test did not end it", ""),
        (cluster.log_fault, "crashes", "a node logs a fatal error", ""),
        (cluster.log_twice, "flood", "a leader logs the beginning of a shortage twice", ""),
        (cluster.show_cause_to_default, "defaults", "a default producer reports the cause of a rejection", ""),
        (cluster.report_unknown_error, "known", "a client reports an error that it does not know", ""),
        (cluster.give_up_in_outage, "rides", "a client that retries gives up a record", ""),
        (cluster.change_level, "levels", "a request for a feature level has another result", ""),
        (cluster.change_version, "versions", "a client uses another version of a request", ""),
        (cluster.miss_warning, "warned", "a controller does not log partitions in too few racks", ""),
        (cluster.change_gauge, "metrics", "a broker reports a wrong number of partitions", ""),
        (cluster.count_rejections, "meter", "a meter counts more rejections than clients received", ""),
        (cluster.slow_commits, "alike", "a group's commits take longer because more racks are required", ""),
        (cluster.slow_others, "slowdown", "other topics are slower while records are rejected", ""),
        (cluster.accept_probe, "stops", "patched Kafka accepts a probe in an outage of many partitions", ""),
        (cluster.keep_hidden, "idle", "waiting records of an idle topic stay hidden after R was lowered", ""),
        (cluster.stick_reader, "unstuck", "a reader of committed records stays where it was at the heal", ""),
        (features.commit_late, "late transactions",
         "a late record of an aborted transaction is read as committed", "G1a"),
        (features.show_at_replica, "replicas", "a replica shows more than is committed", "precommitted-read"),
        (features.copy_uncommitted, "remote", "remote storage has a segment that is not committed", ""),
        (features.deliver_again, "shares", "a share group delivers a record again though it was confirmed", ""),
    )
)  # fmt: skip
