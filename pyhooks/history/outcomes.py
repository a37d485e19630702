"""How certain it is what became of a record, by the answer that its producer got.

Only a refusal that a broker or the client makes before anything is appended counts as sure, and only of a first and
only attempt without idempotence: a producer that retries may have had a timeout before the refusal that it reports,
and what timed out may be in the log. Kafka's Java clients and librdkafka name the same answers differently.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyhooks.history.event_log import Outcome

ERRORS = "org.apache.kafka.common.errors"
# Refusals that say that the ISR is in too few racks, or too small, to append at all. Clients that do not
# know the first are told the second.
TOO_FEW_RACKS = frozenset({f"{ERRORS}.NotEnoughRacksException", "NOT_ENOUGH_RACKS"})
TOO_FEW_REPLICAS = frozenset({f"{ERRORS}.NotEnoughReplicasException", "NOT_ENOUGH_REPLICAS"})
TOO_FEW = TOO_FEW_RACKS | TOO_FEW_REPLICAS
# Answers that exclude that the record was appended. NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION and
# KAFKA_STORAGE_ERROR are not among them: a leader that steps down, or whose disk fails, gives them to appended records.
REFUSALS = TOO_FEW | {
    *(
        f"{ERRORS}.{name}"
        for name in ("InvalidTopicException", "RecordTooLargeException", "TopicAuthorizationException")
    ),
    "MSG_SIZE_TOO_LARGE",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
}
# Never left the process, however often the client would have tried.
NEVER_SENT = frozenset({"_QUEUE_FULL"})


@dataclass(frozen=True)
class Acked:
    """Where an acknowledged record is.

    Attributes:
        partition: its partition.
        offset: its offset, or -1 with acks=0.
    """

    partition: int
    offset: int


@dataclass(frozen=True)
class Refused:
    """What a client said instead of an acknowledgement.

    Attributes:
        error: full name of the Java exception's class, or librdkafka's name of the error.
        message: its text, or empty.
        retriable: whether a client with retries left would try again.
        local: the client said so when it was given the record, which never left the process.
    """

    error: str
    message: str
    retriable: bool
    local: bool = False


Answer = Acked | Refused


# Noted for a record that the client left open when it ended.
NOT_REPORTED = Refused("not-reported", "the client ended without an answer", False)


def outcome_of(answer: Answer, *, first_only: bool) -> Outcome:
    """How certain an answer is.

    Args:
        answer: what the client said of the record.
        first_only: the client sends nothing twice of its own accord, so the answer is about a first and only attempt.
    """
    if isinstance(answer, Acked):
        return "ok"
    if answer.local or answer.error in NEVER_SENT:
        return "fail"
    return "fail" if answer.error in REFUSALS and first_only else "unknown"
