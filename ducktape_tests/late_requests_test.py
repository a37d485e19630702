"""Requests that brokers get after their clients have given up: produce, commit and abort requests, and markers."""

from __future__ import annotations

import time
from typing import ClassVar

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from ducktape_tests.feature_level import features_tool
from ducktape_tests.scenario import (
    AAB,
    ABC,
    CRASHES,
    FAILED_RACK,
    SINGLE_PARTITIONS,
    TRANSACTIONS,
    LoadSpec,
    RackScenario,
    require_true,
    sleep,
    spec,
    transactions_topic,
)
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.events import PATCHED, AppendedDetails, ProduceDetails
from pyhooks.kafka import features, topics
from pyhooks.workload.final_reader import open_consumer

VERSION = "transaction.version"
DURATION_S = 120.0
# In addition to the proofs of a cut, some seconds each. Clients wait 1 s for a response and 4 s for a result; TCP sends
# what was lost once more after a time that doubles with each loss, so requests arrive late after a heal.
CUT_S = (0.0, 4.0)
PAUSE_S = (1.0, 5.0)
BOTH = "aab,abc"
IMPATIENT = ("--timeout-ms", "4000")
JAVA = ("--config", "request.timeout.ms=1000", "--config", "max.block.ms=8000")
LIBRDKAFKA = ("--config", "socket.timeout.ms=1000")
READ_S = 60.0
NEEDED = ("delivery", "offsets", "promise", "realtime_order", "transactions", "late")
JUDGED = (*NEEDED, "faults", "spread", CRASHES)


class _LateRequests(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; clients give up before brokers respond.

    Attributes:
        RACKS: R of all topics.
    """

    PROPERTIES: ClassVar[dict[str, str]] = {**SINGLE_PARTITIONS, "log.message.timestamp.type": "LogAppendTime"}
    RACKS: ClassVar[int | None] = 2

    def test_protocol_1(self) -> None:
        """No record leaves its transaction, although requests arrive after their clients have given up.

        Transactional producers of Java and librdkafka abort one of five transactions, with short timeouts. For two
        minutes a broker, or rack b, is cut off for some seconds, then another one. With version 1 of the transaction
        protocol a producer keeps its epoch from transaction to transaction.
        """
        self._late(1)

    def test_protocol_2(self) -> None:
        """The same with version 2, which raises the epoch with each transaction (KIP-890)."""
        self._late(2)

    def _late(self, version: int) -> None:
        self._use(version)
        topics.create(self.kafka.admin, [transactions_topic(ABC, 2)])
        self.kafka.wait_log(TRANSACTIONS, ABC)
        if self.RACKS is not None:
            self.require_racks(self.RACKS)
        specs = [spec("aab", AAB, 2, self.RACKS), spec("abc", ABC, 2, self.RACKS)]
        newest = PATCHED if self.OVERLAY else paths.kafka_version()
        aborting = ("--abort-share", "0.2", *IMPATIENT)
        loads = [
            LoadSpec(BOTH, "transactional", newest, options=(*aborting, *JAVA)),
            LoadSpec(BOTH, "transactional", "3.9", options=(*aborting, *JAVA)),
            LoadSpec(BOTH, "transactional", "confluent", options=(*aborting, *LIBRDKAFKA)),
        ]
        cuts: list[str] = []
        with self.under_load(specs, loads, also=[TRANSACTIONS]):
            until = time.monotonic() + DURATION_S
            while time.monotonic() < until:
                broker = self.rng.choice([0, *self.racks])
                target = {"broker": broker} if broker else {"rack": FAILED_RACK}
                with self.fault("cut", **target):
                    sleep(self.rng.uniform(*CUT_S), f"cut of {target}")
                cuts.append(f"broker {broker}" if broker else f"rack {FAILED_RACK}")
                sleep(self.rng.uniform(*PAUSE_S), "time without a cut")
        self._note_appended()
        self.figures(version=version, cuts=cuts)
        self.read_final_state()
        # Clients give up and cuts follow too soon for the other checkers, which can only find something false here.
        judged = [verdict for verdict in self.verdicts(NEEDED) if verdict.checker in JUDGED or verdict.valid == "false"]
        self.save(judged)
        require_true(judged)

    def _use(self, version: int) -> None:
        """Set the version of the transaction protocol, before any transaction."""
        node = self.kafka.brokers()[0]
        port = int(node.address.rpartition(":")[2])

        def current() -> int:
            return features.finalized(node.ip, port, READ_S).get(VERSION, 0)

        if current() != version:
            how = "upgrade" if current() < version else "downgrade"
            output = features_tool(self.kafka, how, "--feature", f"{VERSION}={version}")
            wait_for(lambda: current() == version, goal=f"{VERSION} {version} ({output.strip()})", timeout_s=READ_S)

    def _note_appended(self) -> None:
        """Record when the leader appended records that their clients got no acknowledgement for.

        Raises:
            RackgateError: a log could not be read to its end.
        """
        lost = {produced.key for event, produced in ProduceDetails.each(self.history.events()) if event.outcome != "ok"}
        with open_consumer(self.kafka.topology.bootstrap) as consumer:
            for topic in self.specs:
                partition = TopicPartition(topic.name, 0, OFFSET_BEGINNING)
                consumer.assign([partition])
                until, ended = time.monotonic() + READ_S, False
                while not ended:
                    if time.monotonic() > until:
                        raise RackgateError(f"{topic.name}: its log could not be read within {READ_S:g} s")
                    for message in consumer.consume(500, 0.5):
                        if message.error() is not None:
                            # only the end of the log is reported
                            ended = True
                        elif (key := (message.key() or b"").decode()) in lost:
                            append_ms = int(message.timestamp()[1])
                            self.history.add(
                                AppendedDetails(topic=topic.name, partition=0, key=key, append_ms=append_ms)
                            )


class LateRequestsTest(_LateRequests):
    """The overlay, with R=2 for all topics."""


class LateRequestsStockTest(_LateRequests):
    """Stock Kafka, to distinguish its own faults from those of the overlay."""

    OVERLAY = False
    RACKS = None
