"""Error names of clients, and the certainty of a record's outcome by the producer's result.

A rejection is certain only if the broker or the client makes it before anything is appended. It must also be the
result of the first and only attempt of a producer without idempotence. With retries, an earlier attempt may have timed
out, and its record may be in the log. Kafka's Java clients and librdkafka use different names for the same errors.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyhooks.history.event_log import Outcome

ERRORS = "org.apache.kafka.common.errors"
# Errors for an ISR with too few racks, or too few replicas, to append. Clients without the first receive the second.
TOO_FEW_RACKS = frozenset({f"{ERRORS}.NotEnoughRacksException", "NOT_ENOUGH_RACKS"})
TOO_FEW_REPLICAS = frozenset({f"{ERRORS}.NotEnoughReplicasException", "NOT_ENOUGH_REPLICAS"})
TOO_FEW = TOO_FEW_RACKS | TOO_FEW_REPLICAS
# The same errors, if the ISR had enough when the record was appended.
TOO_FEW_AFTER_APPEND = frozenset(
    {
        f"{ERRORS}.NotEnoughRacksAfterAppendException",
        f"{ERRORS}.NotEnoughReplicasAfterAppendException",
        "NOT_ENOUGH_RACKS_AFTER_APPEND",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    }
)
# Errors that prove that the record was not appended. NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION and
# KAFKA_STORAGE_ERROR do not: a leader that steps down, or whose disk fails, returns them for appended records, too.
REJECTIONS = TOO_FEW | {
    *(
        f"{ERRORS}.{name}"
        for name in ("InvalidTopicException", "RecordTooLargeException", "TopicAuthorizationException")
    ),
    "MSG_SIZE_TOO_LARGE",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
}
CONSUMER = "org.apache.kafka.clients.consumer"
# Errors of a group member that a rebalance has overtaken: nothing was committed, and the member joins again.
REBALANCING = frozenset(
    {
        f"{CONSUMER}.CommitFailedException",
        *(
            f"{ERRORS}.{name}"
            for name in (
                "RebalanceInProgressException",
                "IllegalGenerationException",
                "UnknownMemberIdException",
                "StaleMemberEpochException",
            )
        ),
    }
)
# Local errors: the record was never sent, whatever the number of retries.
NEVER_SENT = frozenset({"_QUEUE_FULL"})


@dataclass(frozen=True)
class Acked:
    """Position of an acknowledged record."""

    partition: int  # partition number
    offset: int  # offset, or -1 with acks=0


@dataclass(frozen=True)
class Rejected:
    """Error that a client returned instead of an acknowledgement."""

    error: str  # full name of the Java exception's class, or librdkafka's name of the error
    message: str  # error message, or empty
    retriable: bool  # whether a client with retries left would try again
    local: bool = False  # the client rejected the record when it was handed over; the record was never sent


Answer = Acked | Rejected


# Result noted for a record that was still open when its client ended.
NOT_REPORTED = Rejected("not-reported", "the client ended without a result", False)


def outcome_of(answer: Answer, *, first_only: bool) -> Outcome:
    """Return how certain a producer's result is.

    Args:
        answer: result that the client reported for the record.
        first_only: whether the client never resends on its own, so that the result is that of the first
            and only attempt.
    """
    if isinstance(answer, Acked):
        return "ok"
    if answer.local or answer.error in NEVER_SENT:
        return "fail"
    return "fail" if answer.error in REJECTIONS and first_only else "unknown"
