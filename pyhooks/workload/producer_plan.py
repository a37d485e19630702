"""Plan of a producer process, parsed from its command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pyhooks.core.errors import RackgateError
from pyhooks.history.events import CONFLUENT, PATCHED
from pyhooks.workload.producer_clients import DEFAULT_LINGER_MS, ProducerSettings

ProducerMode = Literal["probe", "plain", "idempotent", "transactional"]
PROBE, PLAIN, IDEMPOTENT, TRANSACTIONAL = "probe", "plain", "idempotent", "transactional"
MODES: tuple[ProducerMode, ...] = ("probe", "plain", "idempotent", "transactional")
Acks = Literal["all", "1"]
# Acknowledged by the whole ISR, as the gate requires, or by the leader alone, without any rack guarantee.
ALL, LEADER = "all", "1"
ACKS: tuple[Acks, ...] = ("all", "1")
# process names in history events
PROBE_PROCESS, PRODUCER_PROCESS = "probe", "producer"


@dataclass(frozen=True)
class ProducerPlan:
    """Plan of a producer process."""

    bootstrap: str  # value of ``bootstrap.servers``
    topics: tuple[str, ...]  # topic names; each topic gets records at the same rate
    rate_per_s: float  # records per second and topic
    partitions: int | None = None  # number of partitions of every topic, or None to query the cluster
    seconds: float | None = None  # duration of sending, or None for no bound
    count: int | None = None  # records per topic, or None for no bound; ``seconds`` or ``count`` must be set
    record_bytes: int = 100  # size of a value; a value contains its key, so it is at least as long as the key
    mode: ProducerMode = "plain"  # one of ``MODES``
    client: str = PATCHED  # ``patched``, ``confluent``, or the release of a stock Java client
    retries: int = 0  # number of retries, for the mode ``plain`` only
    acks: Acks = "all"  # ``all`` or ``1``; ``1`` only in the modes ``probe`` and ``plain``
    # in the mode ``probe``: use the producer's default settings, with ``timeout_ms`` as delivery.timeout.ms
    defaults: bool = False
    timeout_ms: int = 5000  # bound for one record, retries included
    linger_ms: int = DEFAULT_LINGER_MS  # how long records wait to be batched
    txn_records: int = 50  # maximum number of records in a transaction
    txn_ms: int = 500  # maximum time that a transaction is kept open
    abort_share: float = 0.0  # share of transactions that are aborted on purpose
    seed: int = 1  # random seed for the choice of aborted transactions
    name: str = PRODUCER_PROCESS  # process name in history events
    run: str | None = None  # unique run name, part of every key; None for a random one
    # further client settings, by the client's own names
    config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the plan.

        Raises:
            RackgateError: an invalid option; the message names it.
        """
        if not self.topics or not all(self.topics) or len(set(self.topics)) < len(self.topics):
            raise RackgateError("--topics: expected distinct names separated by commas")
        if any("/" in topic for topic in self.topics):
            raise RackgateError("--topics: Kafka allows letters, digits, '.', '_' and '-' in names")
        if self.run is not None and (not self.run or "/" in self.run):
            raise RackgateError(f"--run {self.run!r}: a name without '/'")
        if self.rate_per_s <= 0:
            raise RackgateError(f"--rate {self.rate_per_s:g}: must be above 0")
        if self.seconds is None and self.count is None:
            raise RackgateError("--seconds or --count is required, so that the process ends")
        if (self.seconds is not None and self.seconds <= 0) or (self.count is not None and self.count <= 0):
            raise RackgateError("--seconds and --count must be above 0")
        if self.timeout_ms <= max(self.linger_ms, DEFAULT_LINGER_MS):
            bound = max(self.linger_ms, DEFAULT_LINGER_MS)
            raise RackgateError(f"--timeout-ms and --delivery-timeout-ms must be above {bound}")
        if self.partitions is not None and self.partitions < 1:
            raise RackgateError(f"--partitions {self.partitions}: must be above 0")
        if self.retries < 0 or (self.retries and self.mode != PLAIN):
            raise RackgateError(f"--retries {self.retries}: 0 or more, with --mode {PLAIN} alone")
        if self.acks != ALL and (self.idempotent or self.defaults):
            raise RackgateError(f"--acks {self.acks} belongs to --mode {PROBE} or {PLAIN}, without --defaults")
        if self.defaults and self.mode != PROBE:
            raise RackgateError(f"--defaults belongs to --mode {PROBE}")
        if not 0 <= self.abort_share <= 1 or self.txn_records < 1 or self.txn_ms < 1:
            raise RackgateError("--abort-share must be in 0..1, --txn-records and --txn-ms above 0")
        if self.abort_share and self.mode != TRANSACTIONAL:
            raise RackgateError(f"--abort-share belongs to --mode {TRANSACTIONAL}")

    @property
    def first_only(self) -> bool:
        """Whether each result is that of the first and only attempt, so that a rejection is certain.

        Never true for librdkafka: even without retries it resends a record after an error that requires
        fresh metadata (``rd_kafka_handle_Produce_error`` does not count that as a retry).
        """
        return self.client != CONFLUENT and self.mode in (PROBE, PLAIN) and self.retries == 0 and not self.defaults

    @property
    def idempotent(self) -> bool:
        """Whether the client is idempotent, so that it writes no record twice."""
        return self.mode in (IDEMPOTENT, TRANSACTIONAL) or self.defaults

    def settings(self, transactional_id: str) -> ProducerSettings:
        """Return the client's settings; the id is used in the mode ``transactional`` only."""
        return ProducerSettings(
            bootstrap=self.bootstrap,
            retries=None if self.idempotent else self.retries,
            idempotent=self.idempotent,
            transactional_id=transactional_id if self.mode == TRANSACTIONAL else None,
            timeout_ms=self.timeout_ms,
            linger_ms=0 if self.mode == PROBE else self.linger_ms,
            one_per_request=self.mode == PROBE,
            defaults=self.defaults,
            overrides=self.config,
            acks=self.acks,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyhooks.workload.producer",
        description="Send keyed records at their intended times and write the result of each to a history.",
        epilog="Examples: python -m pyhooks.workload.producer --bootstrap $RACKGATE_BOOTSTRAP --topics aab --mode probe"
        " --rate 2 --seconds 60 --history history.jsonl · … --mode transactional --client confluent --rate 500"
        " --abort-share 0.1 --seconds 60 …",
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add("--bootstrap", required=True, help="brokers, host:port,…")
    add("--topics", required=True, type=_names, help="names, separated by commas")
    add("--history", required=True, type=Path, help="the file to which events are appended")
    add("--mode", choices=MODES, help="probe: single attempts, one record per request; slots that pass meanwhile are"
        " left out (default plain)")  # fmt: skip
    add("--client", help=f"{PATCHED} (default), {CONFLUENT}, or the release of a stock Java client such as 3.9"
        " or 2.8")  # fmt: skip
    add("--partitions", type=int, help="of every topic (default: queried; 1 with --mode probe)")
    add("--rate", type=float, default=2.0, dest="rate_per_s", help="records per second and topic (default 2)")
    add("--seconds", type=float, help="how long records are sent")
    add("--count", type=int, help="records per topic")
    add("--record-bytes", type=int, help="size of a value (default 100)")
    add("--retries", type=int, help="with --mode plain: with 0 a rejection is certain (default 0)")
    add("--acks", choices=ACKS, help="1: the leader alone, with --mode probe and plain (default all)")
    add("--linger-ms", type=int, help=f"default {DEFAULT_LINGER_MS}")
    add("--timeout-ms", type=int, help="bound for one record, retries included (default 5000)")
    add("--defaults", action="store_true", default=False, help="with --mode probe: a producer's default settings:"
        " unlimited retries, idempotence")  # fmt: skip
    add("--delivery-timeout-ms", type=int, default=120_000, help="delivery.timeout.ms of --defaults (default 120000)")
    add("--txn-records", type=int, help="most records of a transaction (default 50)")
    add("--txn-ms", type=int, help="longest time that a transaction is open (default 500)")
    add("--abort-share", type=float, help="share of transactions aborted on purpose (default 0)")
    add("--seed", type=int, help="random seed for the choice of those (default 1)")
    add("--name", help="process name in the history (default probe or producer)")
    add("--config", action="append", default=[], metavar="NAME=VALUE", help="a further setting of the client, by its"
        " own name; repeatable")  # fmt: skip
    add("--run", help="run name, part of every key; must be unused (default: random)")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def parse(arguments: Sequence[str]) -> tuple[ProducerPlan, Path]:
    """Parse the command line into the plan and the path of the history.

    Raises:
        RackgateError: an invalid option.
        SystemExit: for --help and unknown options.
    """
    # Options are fields of the plan; one that is not given is absent, so that the field has its default.
    fields = vars(_parser().parse_args(arguments))
    history: Path = fields.pop("history")
    delivery_timeout_ms = fields.pop("delivery_timeout_ms")
    fields["config"] = dict(map(_setting, fields["config"]))
    if fields["defaults"]:
        fields["timeout_ms"] = delivery_timeout_ms
    if fields.get("mode") == PROBE:
        fields = {"partitions": 1, "name": PROBE_PROCESS, **fields, "record_bytes": 0}
    return ProducerPlan(**fields), history


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise RackgateError(f"--config {text!r}: expected NAME=VALUE")
    return name, value
