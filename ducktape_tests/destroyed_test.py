"""Destroyed racks: with two racks required no acknowledged record is lost; with one rack records are lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from ducktape_tests import feature_level
from ducktape_tests.destruction_plan import DestructionRound, behind_seed, draw, seeds
from ducktape_tests.scenario import (
    AAB,
    CRASHES,
    FAST_METADATA,
    IN_SYNC_S,
    NEEDS,
    NOT_ENOUGH_RACKS,
    SPREAD,
    LoadSpec,
    RackScenario,
    require_true,
    spec,
)
from pyhooks.checkers.delivery import Losses, losses
from pyhooks.checkers.phases import OK
from pyhooks.checkers.record_view import Records
from pyhooks.checkers.verdict import Verdict
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.events import ElectionDetails, FaultDetails, RoundDetails
from pyhooks.kafka import gate, topics
from pyhooks.kafka.cluster_metadata import Metadata, MetadataClient
from pyhooks.kafka.topics import TopicSpec
from pyhooks.workload.requirement_changes import change_topic

ROUNDS = 3
# of each producer
RATE_PER_S = 40.0
QUERY_S = 5.0
# Of a producer with acks=1 that continues while too few racks are in sync, so that other racks lack its records.
LAGGING_PER_S, LAGGING_BYTES = 10.0, 16384
# Rack b leaves with all acknowledged records, and rack a is destroyed.
HOLDER, DESTROYED = "b", "a"
RECORDS = 100
TWO_REQUIRED = {gate.MIN_INSYNC_REPLICAS: "2", gate.MIN_INSYNC_RACKS: "2"}
# Long enough for all records to be acknowledged, even on a busy machine.
PATIENT_MS = 60_000


class _DestroyedRackScenario(RackScenario):
    """Common parts of the tests on destroyed racks."""

    def elect_unclean(self, specs: Sequence[TopicSpec]) -> None:
        """Require that the topics have no leader although all replicas have returned, and elect one of the replicas."""
        for topic in specs:
            assert not topics.settle_leader(self.kafka.admin, topic, IN_SYNC_S), f"{topic.name} has a leader"
        elected = topics.elect_unclean(self.kafka.admin, [topic.name for topic in specs])
        self.history.add(ElectionDetails(leaders=elected))

    def count_losses(self, **figures: Any) -> dict[str, Losses]:
        """Record the numbers of acknowledged and lost records as figures, and return the losses by topic."""
        counted = losses(list(self.history.events()))
        counts = {topic: {"acked": loss.acked, "lost": len(loss.lost)} for topic, loss in counted.items()}
        acked, lost = (sum(count[name] for count in counts.values()) for name in ("acked", "lost"))
        self.logger.info("%d records were acknowledged, %d of them are lost: %s", acked, lost, json.dumps(counts))
        self.figures(seed=self.seed, acked=acked, lost=lost, topics=counts, **figures)
        return counted


class DestroyedTest(_DestroyedRackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; any one rack loses its disks."""

    SECONDS = 3600.0

    def test_no_acknowledged_record_is_lost(self) -> None:
        """Records that two racks had to acknowledge survive the destruction of any rack at any time.

        Each round has its own topic, because topics that share a producer delay each other. First a rack of the topic
        may be killed, cut off or paused: too briefly for any ISR to change, or long enough for every ISR to change.
        Meanwhile, or when it is in sync again, another rack or the same one is destroyed. If two racks are unavailable,
        either returns first. In the last round a producer with acks=1 continues while a rack is unavailable. That rack
        returns, but can't reach the other one, which is destroyed while the first lacks the latest records.

        The seed of the run determines the seeds of its rounds, which are logged. ducktape's globals ``rounds`` and
        ``round_seeds`` (a list) set their number or repeat them.
        """
        racks = {
            site.name: [node.node_id for node in self.kafka.brokers(site.name)] for site in self.kafka.topology.racks
        }
        settings = self.test_context.globals
        random_seeds = [*seeds(self.seed, int(settings.get("rounds", ROUNDS)), racks), behind_seed(self.seed)]
        chosen = settings.get("round_seeds") or random_seeds
        rounds = [draw(int(seed), racks) for seed in chosen]
        assert rounds, "no round"
        assert len({round_.topic for round_ in rounds}) == len(rounds), f"repeated seed: {chosen}"
        with self.under_load([spec(round_.topic, round_.replicas, round_.min_replicas, 2) for round_ in rounds], []):
            for round_ in rounds:
                self.logger.info(
                    "seed %d of a round: %s; again: --set round_seeds=[%d]", round_.seed, round_.text, round_.seed
                )
                plain = LoadSpec(round_.topic, rate_per_s=RATE_PER_S, options=FAST_METADATA)
                idempotent = LoadSpec(round_.topic, "idempotent", rate_per_s=RATE_PER_S, options=FAST_METADATA)
                # With acks=1 the leader waits for no other replica, and its records may be lost.
                options = (*FAST_METADATA, "--acks", "1", "--record-bytes", str(LAGGING_BYTES))
                lagging = LoadSpec(round_.topic, rate_per_s=LAGGING_PER_S, options=options)
                with self.producing([plain, idempotent, lagging] if round_.behind else [plain, idempotent]):
                    self.history.add(RoundDetails(seed=round_.seed, text=round_.text))
                    self._round(round_)
        self.read_final_state()
        counted = self.count_losses(rounds={str(round_.seed): round_.text for round_ in rounds})
        assert counted.keys() == {round_.topic for round_ in rounds}, "a topic had no acknowledged record"
        require_true(self.verdicts((*NEEDS, SPREAD, "faults", "recovery")))

    def _round(self, round_: DestructionRound) -> None:
        with ExitStack() as outage, ExitStack() as destruction:
            if round_.behind:
                outage.enter_context(self.fault("cut", rack=round_.leaves, peers=(round_.wiped,)))
                self._return_behind(round_)
            elif round_.leaves:
                outage.enter_context(self.fault(round_.how, rack=round_.leaves))
                self.keep_producing(round_.outage_s)
                if not round_.overlaps:
                    outage.close()
                    self.wait_recovered(self.specs)
            destruction.enter_context(self.fault("wipe", rack=round_.wiped))
            self.keep_producing(round_.down_s)
            for fault in (outage, destruction) if round_.first_back else (destruction, outage):
                fault.close()
        # The next round may destroy the only copies of records that other replicas still lack.
        self.wait_recovered(self.specs)

    def _return_behind(self, round_: DestructionRound) -> None:
        """Let a rack that is cut off from the other one leave, and return during the cut.

        The cut guarantees that it lags. A slow link or a quota would not: the high watermark stays at what both racks
        have, so the rack is in sync again after its first fetch.
        """
        own = {broker for broker in round_.replicas if self.racks[broker] == round_.leaves}
        with self.fault(round_.how, rack=round_.leaves):
            self.keep_producing(round_.outage_s)
            self.wait_isr(set(round_.replicas) - own, round_.topic)
        # A broker of this rack would report its old metadata.
        others = ",".join(node.address for node in self.kafka.brokers() if node.site != round_.leaves)
        client = MetadataClient(others, each_s=QUERY_S)

        def registered() -> Metadata | None:
            metadata = client.query([round_.topic], 2 * QUERY_S)
            return metadata if own <= metadata.racks.keys() else None

        metadata = wait_for(registered, goal=f"brokers {sorted(own)} registered again", timeout_s=self.RESULT_TIMEOUT_S)
        if own & set(metadata.partitions[round_.topic, 0].isr):
            raise RackgateError(f"rack {round_.leaves} is in sync again before {round_.wiped} is destroyed")


class OneRackTest(_DestroyedRackScenario):
    """Control of ``DestroyedTest`` with one rack required. It passes only if records are lost."""

    def test_one_rack_that_acknowledges_alone_loses_it(self) -> None:
        """Records that two replicas of one rack acknowledged are lost with this rack.

        Rack b is cut off, then rack a is destroyed. Both return, and no replica is eligible to lead, so one is elected
        uncleanly. The checker ``delivery`` must find lost records that rack a acknowledged alone.
        """
        topic = spec("alone", AAB, 2, 1)
        with self.under_load([topic], [LoadSpec("alone", rate_per_s=50)]):
            with self.fault("cut", rack=HOLDER):
                self.wait_isr({1, 2}, topic.name)
                self.keep_producing()
                with self.fault("wipe", rack=DESTROYED):
                    self.keep_producing()
            self.elect_unclean([topic])
            self.wait_in_sync([topic])
        self.read_final_state()
        lost = require_found_losses(self.verdicts(), self.count_losses(acked_alone=len(alone := self._acked_alone())))
        assert alone & lost, "no record that one rack acknowledged alone is lost"
        assert alone, "rack a alone acknowledged nothing"

    def _acked_alone(self) -> frozenset[str]:
        """Return the records that were sent and acknowledged while rack b was certainly unavailable."""
        events = list(self.history.events())
        steps = [(event.mono_ns, fault.step) for event, fault in FaultDetails.each(events) if event.op == "cut-rack"]
        since_ns = next(at_ns for at_ns, step in steps if step == "proved")
        until_ns = next(at_ns for at_ns, step in steps if step == "heal")
        return frozenset(
            attempt.key
            for attempt in Records(events).attempts
            if attempt.outcome == "ok" and attempt.sent_ns > since_ns and attempt.done_ns < until_ns
        )


class _BothRacksFail(_DestroyedRackScenario):
    """Base class of tests in which rack b leaves with all acknowledged records and rack a is destroyed meanwhile."""

    def fail_both(
        self,
        specs: Sequence[TopicSpec],
        kind: str,
        *,
        holder_first: bool = False,
        attempts: bool = False,
        unclean: bool = False,
    ) -> None:
        """Write 100 records while all replicas are in sync; let rack b leave, destroy rack a, and restore both.

        Args:
            specs: topics on replicas in racks a, a, b; each gets its own records.
            kind: the fault by which rack b leaves.
            holder_first: whether rack b returns before rack a.
            attempts: whether to send records during the outages.
            unclean: whether no replica is eligible to lead afterwards, so that an unclean election is needed.
        """
        names = [topic.name for topic in specs]
        with self.under_load(specs, []):
            for name in names:
                size = ("--rate", "50", "--count", str(RECORDS), "--timeout-ms", str(PATIENT_MS))
                events = self.clients.produce(self.history, *self._arguments(name), *size)
                acked = sum(event.op == "produce" and event.outcome == "ok" for event in events)
                assert acked == RECORDS, f"{acked} of {RECORDS} records of {name} were acknowledged with all in sync"
            with ExitStack() as outage, ExitStack() as destruction:
                outage.enter_context(self.fault(kind, rack=HOLDER))
                self.wait_isr({1, 2}, *names)
                if attempts:
                    self._attempt(names)
                destruction.enter_context(self.fault("wipe", rack=DESTROYED))
                if attempts:
                    self._attempt(names)
                for fault in (outage, destruction) if holder_first else (destruction, outage):
                    fault.close()
            if unclean:
                self.elect_unclean(specs)
            self.wait_in_sync(specs)
            # Check that they are writable again; the lost offsets now have other records.
            self.probe(",".join(names))
        self.read_final_state()

    def _arguments(self, topic: str) -> tuple[str, ...]:
        return ("--bootstrap", self.kafka.topology.bootstrap, "--topics", topic, "--mode", "idempotent")

    def _attempt(self, names: Sequence[str]) -> None:
        """Send records that time out within the outage, so that the checker ``spread`` can judge it."""
        for name in names:
            size = ("--rate", "5", "--count", "5", "--timeout-ms", "3000")
            self.clients.produce(self.history, *self._arguments(name), *size)

    def require_no_loss(self, specs: Sequence[TopicSpec], kind: str, *, holder_first: bool) -> None:
        """Let both racks fail, send records meanwhile, and require that no acknowledged record is lost."""
        self.fail_both(specs, kind, holder_first=holder_first, attempts=True)
        counted = self.count_losses()
        for topic in specs:
            topic_losses = counted[topic.name]
            assert topic_losses.acked >= RECORDS, f"{topic_losses.acked} records of {topic.name} were acknowledged"
            assert topic_losses.lost == ()
        require_true(self.verdicts((*NEEDS, SPREAD, "faults")))

    def require_loss(self, topic: TopicSpec, kind: str, *, unclean: bool) -> None:
        """Let both racks fail and require that all records are lost; see ``fail_both``."""
        self.fail_both([topic], kind, unclean=unclean)
        lost = require_found_losses(self.verdicts(), self.count_losses())
        assert len(lost) == RECORDS, f"{len(lost)} of {RECORDS} records are lost, all were expected to be"


class StockTest(_BothRacksFail):
    """Control of the last known ELR: stock Kafka forgets the only replica with all acknowledged records."""

    OVERLAY = False

    def test_the_only_holder_is_forgotten(self) -> None:
        """Rack b is cut off with all acknowledged records, and yet all are lost with rack a."""
        self.require_loss(spec("forgotten", AAB, 2), "cut", unclean=False)


class LevelOffTest(_BothRacksFail):
    """Control of the feature's level: at level 0, patched controllers forget the only holder as well."""

    def test_the_only_holder_is_forgotten(self) -> None:
        """As ``StockTest``, but the controllers elect no empty replica, so an unclean election is needed."""
        feature_level.change_level(self.kafka, "downgrade", 0)
        self.require_loss(spec("forgotten", AAB, 2), "cut", unclean=True)


class KilledTest(_BothRacksFail):
    """A killed rack keeps its disks, so no acknowledged record is lost with another rack.

    One topic has its own M and R. Another one inherits those of the cluster, which the controller took from its
    properties when the cluster was formatted.
    """

    PROPERTIES: ClassVar[Mapping[str, str]] = TWO_REQUIRED
    CONTROLLER_PROPERTIES: ClassVar[Mapping[str, str]] = TWO_REQUIRED
    SPECS = (spec("killed", AAB, 2, 2), TopicSpec("inherited", AAB, {}))

    def test_the_destroyed_rack_returns_first(self) -> None:
        """With R=2 the destruction of one rack loses no record, although the other rack was killed.

        The broker of rack b leaves the ELR when it registers after its unclean shutdown. The controller keeps it in the
        last known ELR, and detects by the directory ids that the logs of rack a are lost.
        """
        self.require_no_loss(self.SPECS, "kill", holder_first=False)

    def test_the_killed_rack_returns_first(self) -> None:
        """No record is lost if the killed rack returns before the destroyed one, which had the last leader."""
        self.require_no_loss(self.SPECS, "kill", holder_first=True)


class BrokerPropertiesTest(_BothRacksFail):
    """Control of the inherited values of ``KilledTest``: R=2 only in the properties of brokers has no effect."""

    PROPERTIES: ClassVar[Mapping[str, str]] = {gate.MIN_INSYNC_RACKS: "2"}

    def test_one_rack_acknowledges(self) -> None:
        """The controller has no R, so leaders require one rack, and records that rack a acknowledged alone are lost."""
        self.fail_both([spec("ignored", AAB, 2)], "kill", attempts=True, unclean=True)
        counted = self.count_losses()
        assert counted["ignored"].acked > RECORDS, "rack a alone acknowledged nothing: R is enforced"
        require_found_losses(self.verdicts(), counted)


class UnknownRackTest(_DestroyedRackScenario):
    """A broker that restarts without ``broker.rack`` counts for no rack."""

    def test_a_broker_without_a_rack_is_no_second_rack(self) -> None:
        """With rack b killed, one broker in rack a and one without a rack acknowledge nothing.

        Broker 2 restarts without a rack; then rack b is killed. Records with R=2 are rejected until R is lowered to 1.
        A second topic with R=1 is the control: it is always acknowledged.
        """
        specs = [spec("gated", AAB, 2, 2), spec("free", AAB, 2, 1)]
        with self.under_load(specs, [LoadSpec("gated"), LoadSpec("free")]):
            self._phase("all racks", OK)
            self.restart_broker(2, "")
            self.elect_preferred(specs)
            self._phase("broker 2 without a rack", OK)
            with self.fault("kill", rack=HOLDER):
                self.wait_isr({1, 2})
                self._phase("one rack left", NOT_ENOUGH_RACKS)
                self.keep_producing()
                change_topic(self.kafka.admin, "gated", self.history, min_racks=1)
                self._phase("R lowered", OK)
            self.wait_in_sync(specs)
            self.restart_broker(2, DESTROYED)
            self.elect_preferred(specs)
            self._phase("broker 2 in rack a again", OK)
        self.judge((*NEEDS, SPREAD))

    def _phase(self, name: str, gated: str) -> None:
        self.phases({"gated": (f"{name}: gated", gated), "free": (f"{name}: free", OK)})


class KilledLevelOffTest(_BothRacksFail):
    """Control of ``KilledTest``: at feature level 0 the same faults lose all records."""

    def test_a_killed_rack_is_forgotten(self) -> None:
        """As ``KilledTest``, but all 100 records are lost in an unclean election, because no replica is eligible."""
        feature_level.change_level(self.kafka, "downgrade", 0)
        self.require_loss(spec("killed", AAB, 2), "kill", unclean=True)


def require_found_losses(judged: Sequence[Verdict], counted: Mapping[str, Losses]) -> frozenset[str]:
    """Return the keys of the records that a control has lost, which the checker ``delivery`` must have found.

    Raises:
        AssertionError: a fault is not proved, a node has crashed, or the checker found other losses than were counted.
    """
    verdicts = {verdict.checker: verdict for verdict in judged}
    require_true([verdicts["faults"], verdicts[CRASHES]])
    delivery = verdicts["delivery"]
    lost = {(topic, key) for topic, loss in counted.items() for key in loss.lost}
    assert delivery.valid == "false", f"control found no loss: {delivery}"
    assert lost, f"control found no loss: {delivery.because[:3]}"
    reasons = {f"{topic}: acknowledged record {key} is lost" for topic, key in lost}
    missing = reasons - set(delivery.because)
    assert not missing, f"the checker does not report {len(missing)} lost records"
    return frozenset(key for _, key in lost)
