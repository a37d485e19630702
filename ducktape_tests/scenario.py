"""Base class of system tests: cluster, load, observation of topics, faults, final reads and verdicts.

A test only arranges. Its verdict comes from checkers that read nothing but its history (``pyhooks.checkers``).
"""

from __future__ import annotations

import json
import random
import shlex
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import KafkaException
from ducktape.tests.test import Test
from ducktape.tests.test_context import TestContext

from ducktape_tests.destruction_plan import gapless_s
from ducktape_tests.matrix import expected
from ducktape_tests.results import LEFT_OUT, VERDICTS
from ducktape_tests.services.clients import Clients, Program, wait_events
from ducktape_tests.services.kafka import RackKafka
from pyhooks.checkers.cluster_view import faults
from pyhooks.checkers.crashes import check_crashes
from pyhooks.checkers.judgement import judge
from pyhooks.checkers.phases import OK
from pyhooks.checkers.recovery import ISR_S
from pyhooks.checkers.settling_times import LAG_S
from pyhooks.checkers.verdict import Verdict, join
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_json, write_text
from pyhooks.core.wait import wait_for
from pyhooks.faults import kinds
from pyhooks.faults.injection import FaultTarget, inject_all
from pyhooks.history.event_log import Event, History
from pyhooks.history.events import Edge, ObservationDetails, PhaseDetails, ProduceDetails
from pyhooks.history.outcomes import ERRORS
from pyhooks.kafka import gate, tools, topics
from pyhooks.kafka.gate import Requirement
from pyhooks.kafka.leader_agreement import wait_agreed
from pyhooks.kafka.topics import TopicSpec
from pyhooks.lab import topology
from pyhooks.lab.disks import DATA, read_disks
from pyhooks.lab.topology import Node
from pyhooks.patchset.distribution import Distribution
from pyhooks.workload.final_reader import COMMITTED, ISOLATIONS, read_all
from pyhooks.workload.requirement_changes import change_default, note_created

# Replicas in racks a, a, b: without rack b, M=2 is met and R=2 is not. And in racks a, b, c.
AAB, ABC = (1, 2, 3), (1, 3, 5)
# the rack that fails
FAILED_RACK = "b"
NOT_ENOUGH_RACKS = f"{ERRORS}.NotEnoughRacksException"
NOT_ENOUGH_REPLICAS = f"{ERRORS}.NotEnoughReplicasException"
ATTEMPTS = 5
NEEDS = ("delivery", "offsets", "promise", "progress")
# checker that every test needs
CRASHES = "crashes"
# for tests in which the ISR spans too few racks, in addition to NEEDS
FLOOD = "flood"
# for tests that kill, pause, cut off or destroy nodes while clients produce
SPREAD = "spread"
OBSERVE_S = 0.5
# longer than a change may take to become effective, so that checkers can judge the state after it
STEADY_S = 5.0
START_S = 90.0
# Longer than a checker allows: it must also judge recoveries that are late, not only those that never happen.
SETTLED_S = 2 * ISR_S
IN_SYNC_S = 120.0
# Longer than outages here, so that no record times out during one.
PATIENT_MS = 120_000
# Internal topics. Coordinators keep the number of partitions that they read at startup; tests create them with one.
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SINGLE_PARTITIONS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
# Faults under which a broker keeps its connections but does not respond.
SILENT = ("pause", "cut")
# needs the emulated links of a lab
SLOW = "slow"
# A client with these settings finds a new leader within the time that a change may take, even if brokers do not
# respond. While it connects to a broker and has no other connection, it requests no metadata. So it must not reconnect
# to a silent leader before its next metadata request (kip/found.md).
FAST_METADATA = (
    *("--timeout-ms", "3000"),
    *("--config", "metadata.max.age.ms=500"),
    *("--config", "socket.connection.setup.timeout.ms=1000"),
    *("--config", "socket.connection.setup.timeout.max.ms=1000"),
    *("--config", "reconnect.backoff.ms=500"),
    *("--config", "retry.backoff.max.ms=100"),
)


@dataclass(frozen=True)
class LoadSpec:
    """A producer that runs beside a test.

    Attributes:
        topic: the topic, or several separated by commas.
        mode: as in ``pyhooks.workload.producer``.
        client: patched, confluent, or a release.
        patient_ms: timeout of a record if it is to outlast outages; tests do not wait for its results during one.
    """

    topic: str
    mode: str = "plain"
    client: str = "patched"
    rate_per_s: float = 20
    options: tuple[str, ...] = ()
    patient_ms: int | None = None

    def arguments(self, bootstrap: str, seconds: float) -> list[str]:
        """Return the arguments of the program."""
        arguments = ["--bootstrap", bootstrap, "--topics", self.topic, "--mode", self.mode, "--client", self.client]
        arguments += ["--rate", str(self.rate_per_s), "--seconds", str(seconds)]
        if self.patient_ms is not None:
            arguments += ["--timeout-ms", str(self.patient_ms)]
        return [*arguments, *self.options]


class RackScenario(Test):
    """A test on a cluster with racks.

    Attributes:
        OVERLAY: whether brokers run patched Kafka; otherwise stock Kafka.
        CONTROLLER_PROPERTIES: additional properties of all controllers. M and R in them become the initial values of
            the cluster.
        DIRECTORIES: names of each broker's log directories.
        SECONDS: maximum duration of the load.
        RESULT_TIMEOUT_S: time limit for the results of producers.
        left_out: steps that are not possible on this cluster.
    """

    TOPOLOGY = "az3-outside"
    OVERLAY = True
    PROPERTIES: ClassVar[Mapping[str, str]] = {}
    CONTROLLER_PROPERTIES: ClassVar[Mapping[str, str]] = {}
    DIRECTORIES: ClassVar[Sequence[str]] = (DATA,)
    SECONDS = 600.0
    RESULT_TIMEOUT_S = 60.0

    def __init__(self, test_context: Any) -> None:
        super().__init__(test_context)
        # The same seed repeats a test's random choices, whichever tests run beside it.
        self.seed = int(test_context.globals.get("seed", 1))
        self.rng = random.Random(f"{self.seed} {type(self).__name__} {test_context.test_name}")  # noqa: S311 - no secret
        layout = topology.load(topology.find(self.TOPOLOGY))
        layout = replace(
            layout,
            broker_properties={**layout.broker_properties, **self.PROPERTIES},
            controller_properties={**layout.controller_properties, **self.CONTROLLER_PROPERTIES},
        )
        classpath = Distribution.load().classpath(overlay=self.OVERLAY)
        self.kafka = RackKafka(test_context, layout, classpath, self.DIRECTORIES)
        self.clients = Clients(test_context)
        self.producers: list[Program] = []
        self.observer: Program | None = None
        self.patient_ids: frozenset[str] = frozenset()
        self.specs: list[TopicSpec] = []
        self.extra_topics: tuple[str, ...] = ()
        # The metadata are the only source of both, with initial values from the active controller.
        initial = layout.properties_of(layout.controllers[0])
        self.default_racks = int(initial.get(gate.MIN_INSYNC_RACKS, 1))
        self.default_replicas = int(initial.get(gate.MIN_INSYNC_REPLICAS, 1))
        self.unresponsive: frozenset[str] = frozenset()
        self.left_out: list[str] = []
        # Both are possible only once.
        self.final_state_read = self.ended = False
        # A failure before the cluster has started proves nothing.
        self.started = False

    def setUp(self) -> None:
        """Start the cluster."""
        self.results = Path(TestContext.results_dir(self.test_context, self.test_context.test_index))
        self.history = self.kafka.process_history = History(self.results / "history.jsonl")
        self.kafka.start()
        self.started = True
        self.clients.start()

    def tearDown(self) -> None:
        """After a failure before any verdict, judge what was recorded and keep the false verdicts.

        Verdicts that are true or unknown are dropped: an incomplete test proves nothing.
        """
        if not self.started or (self.results / VERDICTS).exists():
            return
        if wrong := [verdict for verdict in self._verdicts_after_failure() if verdict.valid == "false"]:
            self.save(wrong)

    def _verdicts_after_failure(self) -> list[Verdict]:
        events = list(self.history.events())
        # While a rack is unavailable, the lost records can't be determined.
        if not self.final_state_read and self.specs and all(fault.healed_ns is not None for fault in faults(events)):
            try:
                self.read_final_state()
                return judge(list(self.history.events()))[0]
            # After a client's own error the behaviour of the nodes can still be judged.
            except (RackgateError, KafkaException) as error:
                self.logger.warning("final reads after the failure failed: %s", error)
        nodes = self.kafka.topology.nodes
        if not self.ended:
            self.kafka.note_states(nodes, self.history)
            self.kafka.note_faults(nodes, self.history)
        return [check_crashes(list(self.history.events()))]

    # -- load and observations --------------------------------------------------------------------------------------

    @property
    def racks(self) -> dict[int, str]:
        """Rack of each broker."""
        return {node.node_id: node.site for node in self.kafka.brokers()}

    @contextmanager
    def under_load(
        self, specs: Sequence[TopicSpec], loads: Sequence[LoadSpec], *, also: Sequence[str] = ()
    ) -> Iterator[None]:
        """Produce to topics and observe them during the block; before the load ends, all replicas are in sync.

        Args:
            specs: the topics; new ones are created.
            loads: producers that run all the time; see ``producing`` for others.
            also: further topics to observe, for instance Kafka's internal ones.
        """
        if new := [topic for topic in specs if topic not in self.specs]:
            self.create_topics(new)
        previous, self.extra_topics = (self.observer, self.extra_topics), tuple(also)
        names = ",".join([*(topic.name for topic in specs), *also])
        racks = ",".join(f"{broker}={rack}" for broker, rack in self.racks.items())
        # A separate process, because this one is busy with the events of producers.
        with self.client("topic_observer", names, "--racks", racks, "--interval", str(OBSERVE_S)) as (self.observer,):
            wait_for(lambda: bool(self._observations()), goal="an observation of the topics", timeout_s=START_S)
            with self.producing(loads):
                yield
                topics.wait_settled(self.kafka.admin, specs, SETTLED_S)
        self.observer, self.extra_topics = previous

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics of the test, wait until their replicas have logs, and record what they require."""
        topics.create(self.kafka.admin, specs)
        for topic in specs:
            self.kafka.wait_log(topic.name, topic.replicas)
            note_created(self.history, topic.name, self._requirement(topic))
        self.specs += specs

    def _requirement(self, topic: TopicSpec) -> Requirement:
        """Return what a new topic must require; brokers are not queried, because they are under test."""
        return Requirement(
            int(topic.config.get(gate.MIN_INSYNC_REPLICAS, self.default_replicas)),
            int(topic.config.get(gate.MIN_INSYNC_RACKS, self.default_racks)),
        )

    def require_racks(self, racks: int) -> None:
        """Set ``min.insync.racks`` of the cluster, and wait until it applies to topics without their own value.

        Raises:
            RackgateError: the cluster rejected the change, or does not report the value in time.
        """
        inheriting = [topic.name for topic in self.specs if gate.MIN_INSYNC_RACKS not in topic.config]
        broker = self.kafka.brokers()[0]
        arguments = ["--alter", "--entity-type", "brokers", "--entity-default"]
        arguments += ["--add-config", f"{gate.MIN_INSYNC_RACKS}={racks}"]
        command = shlex.join(tools.command(self.kafka.classpath, "configs", arguments, broker.address))

        def request() -> None:
            self.kafka.run_on(broker, command)

        change_default(self.kafka.admin, [*inheriting, *self.extra_topics], self.history, request, min_racks=racks)
        self.default_racks = racks

    @contextmanager
    def producing(self, loads: Sequence[LoadSpec]) -> Iterator[None]:
        """Produce during the block, and some seconds longer, to topics that are observed."""
        previous = self.producers, self.patient_ids
        programs = [load.arguments(self.kafka.topology.bootstrap, self.SECONDS) for load in loads]
        with self.clients.running("producer", programs, self.history) as self.producers:
            pairs = zip(self.producers, loads, strict=True)
            self.patient_ids = frozenset(producer.run_id for producer, load in pairs if load.patient_ms is not None)
            self.keep_producing(STEADY_S, START_S, patient=True)
            yield
            self.keep_producing(STEADY_S, patient=True)
        self.producers, self.patient_ids = previous

    def keep_producing(self, seconds: float = STEADY_S, timeout_s: float = 0.0, *, patient: bool = False) -> None:
        """Wait until each producer has a result of a record sent after a delay, and for an observation after that.

        Checkers do not judge results after the last observation of a state, and callers usually end the state next.

        Args:
            seconds: the delay.
            timeout_s: additional time limit, at least ``RESULT_TIMEOUT_S``.
            patient: whether to wait for patient producers, too, which get no result in an outage.

        Raises:
            RackgateError: a result or the observation is missing, or all producers are patient.
        """
        timeout_s = max(timeout_s, self.RESULT_TIMEOUT_S)
        since_ns = time.monotonic_ns() + round(seconds * 1e9)
        producers = [producer for producer in self.producers if patient or producer.run_id not in self.patient_ids]
        if self.producers and not producers:
            raise RackgateError(f"no producer to wait for: all {len(self.producers)} are patient")
        run_ids = sorted(producer.run_id for producer in producers)
        wait_events(
            producers,
            ProduceDetails,
            lambda producer, _, produced: producer.run_id if (produced.sent_ns or 0) >= since_ns else None,
            run_ids,
            goal=f"results of records that {', '.join(run_ids)} sent after {seconds:g} s",
            timeout_s=seconds + timeout_s,
        )
        if producers and self.observer is not None:
            ended_ns = time.monotonic_ns()

            def observed() -> bool:
                observations = ObservationDetails.each(self._observations())
                return any((state.asked_ns or 0) >= ended_ns for _, state in observations)

            wait_for(observed, goal="an observation of the topics after that", timeout_s=timeout_s, interval_s=0.2)

    def _observations(self) -> list[Event]:
        """Return the observations of topics since the last call."""
        return [event for event in self.observer.fetch() if event.op == "look"] if self.observer is not None else []

    def client(self, workload: str, topic_names: str, *options: str) -> AbstractContextManager[list[Program]]:
        """Run one program of ``pyhooks.workload`` on topics, separated by commas, during a block."""
        arguments = ["--bootstrap", self.kafka.topology.bootstrap, "--topics", topic_names, *options]
        return self.clients.running(workload, [arguments], self.history)

    # -- phases -------------------------------------------------------------------------------------------------------

    def probe(self, topic: str, *options: str, attempts: int = ATTEMPTS) -> None:
        """Send single attempts to topics, separated by commas, without retries or with the options in ``options``."""
        # Brokers that do not respond would use up the client's timeout.
        bootstrap = ",".join(node.address for node in self._responsive())
        arguments = ["--mode", "probe", "--bootstrap", bootstrap, "--topics", topic, "--rate", "2"]
        self.clients.produce(self.history, *arguments, "--count", str(attempts), *options)

    def _responsive(self) -> list[Node]:
        """Return the brokers that run and are under no fault that keeps them from responding."""
        brokers = [node for node in self.kafka.brokers() if node.name not in self.unresponsive]
        return [node for node in brokers if self.kafka.kafka_pid(node) is not None]

    def phase(self, name: str, topic: str, expect: str = OK) -> None:
        """Run a phase: single attempts with one expected result; rejected ones leave nothing in the leader's log."""
        self.phases({topic: (name, expect)})

    def phases(self, by_topic: Mapping[str, tuple[str, str]]) -> None:
        """Run phases at the same time; ``by_topic`` has the name of the phase and the expected result by topic."""
        self._note_phases("begin", by_topic)
        self.probe(",".join(by_topic))
        self._note_phases("end", by_topic)

    def phases_by_isr(
        self,
        name: str,
        isrs: Mapping[str, Collection[int]],
        *,
        replicas: int | None = None,
        racks: Mapping[int, str] | None = None,
    ) -> bool:
        """Run a phase of each topic with the result that M, R and its ISR require.

        Args:
            name: of the phases, to which the name of the topic is added.
            isrs: topic to its ISR.
            replicas: number of replicas of each topic; that of its creation by default.
            racks: broker id to rack; the racks of the topology by default.

        Returns:
            Whether all topics are expected to acknowledge.
        """
        results = {}
        for topic in self.specs:
            need, count = self._requirement(topic), replicas or len(topic.replicas)
            result = expected(isrs[topic.name], racks or self.racks, need=(need.replicas, need.racks), replicas=count)
            results[topic.name] = (f"{name}: {topic.name}", result)
        self.phases(results)
        return all(result == OK for _, result in results.values())

    def _note_phases(self, edge: Edge, by_topic: Mapping[str, tuple[str, str]]) -> None:
        rejected = [topic for topic, (_, expect) in by_topic.items() if expect != OK]
        leaders: dict[str, int] = {}
        if rejected and edge == "begin":
            # A leader accepts records until it knows of the smaller ISR that other brokers already report.
            brokers = {node.node_id: node.address for node in self._responsive()}
            leaders = wait_agreed(brokers, rejected, steady_s=LAG_S)
        elif rejected:
            leaders = topics.leaders(self.kafka.admin, rejected)
        nodes = {node.node_id: node for node in self.kafka.brokers()}
        for topic, (name, expect) in by_topic.items():
            log_bytes = self.kafka.log_bytes(nodes[leaders[topic]], topic) if topic in leaders else None
            self.history.add(PhaseDetails(name=name, topic=topic, edge=edge, expect=expect, log_bytes=log_bytes))

    # -- ISRs and brokers ---------------------------------------------------------------------------------------------

    def wait_isr(self, isr: Iterable[int], *topic_names: str) -> None:
        """Wait until the ISR of topics is exactly ``isr``; of all topics of the test by default."""
        names = topic_names or [topic.name for topic in self.specs]
        topics.wait_isrs(self.kafka.admin, dict.fromkeys(names, frozenset(isr)))

    def restart_broker(
        self, broker: int, rack: str, *, absent: frozenset[int] = frozenset(), empty: bool = False
    ) -> None:
        """Restart a broker cleanly in a rack, or without one, and wait until it is in sync again.

        Args:
            broker: its id.
            rack: its rack from now on.
            absent: brokers that are out of all ISRs meanwhile.
            empty: whether it returns on an empty disk.
        """
        node = self.kafka.broker(broker)
        self.kafka.stop_kafka(node)
        for topic in self.specs:
            self.wait_isr(set(topic.replicas) - {broker} - absent, topic.name)
        self.kafka.configure(node, {"broker.rack": rack})
        if empty:
            self.kafka.wipe(node)
            self.kafka.format([node])
        self.kafka.start_kafka(node)
        for topic in self.specs:
            self.wait_isr(set(topic.replicas) - absent, topic.name)

    def wait_in_sync(self, specs: Sequence[TopicSpec]) -> None:
        """Wait until all replicas are in sync, and elect the preferred leaders."""
        wanted = {topic.name: set(topic.replicas) for topic in specs}

        def in_sync() -> bool:
            now = topics.try_states(self.kafka.admin, list(wanted))
            return all(set(now[name].isr) == wanted[name] for name in now) and now.keys() == wanted.keys()

        wait_for(in_sync, goal=f"all replicas of {', '.join(wanted)} in sync", timeout_s=IN_SYNC_S, interval_s=0.5)
        self.elect_preferred(specs)

    def elect_preferred(self, specs: Sequence[TopicSpec]) -> None:
        """Elect the preferred leaders, and wait until they lead with all replicas in sync."""
        topics.elect_preferred(self.kafka.admin)
        topics.wait_settled(self.kafka.admin, specs)

    def wait_recovered(self, specs: Sequence[TopicSpec]) -> None:
        """Wait until all replicas are in sync and each producer has then had acknowledgements for 5 s without a gap.

        If the next fault came earlier, checkers could not judge the recovery from the previous one.
        """
        self.wait_in_sync(specs)
        since_ns = time.monotonic_ns()
        acks: defaultdict[str, list[int]] = defaultdict(list)

        def acknowledging() -> bool:
            for producer in self.producers:
                acks[producer.run_id] += [
                    event.mono_ns
                    for event, produced in ProduceDetails.each(producer.fetch())
                    if event.outcome == "ok" and (produced.sent_ns or 0) > since_ns
                ]
            return all(gapless_s(acks[producer.run_id]) >= STEADY_S for producer in self.producers)

        goal = f"acknowledgements to each producer for {STEADY_S:g} s without a gap, after a heal"
        wait_for(acknowledging, goal=goal, timeout_s=STEADY_S + self.RESULT_TIMEOUT_S, interval_s=0.5)

    # -- faults -------------------------------------------------------------------------------------------------------

    @contextmanager
    def fault(self, kind: str, *, rack: str = "", broker: int = 0, **settings: Any) -> Iterator[None]:
        """Inject a fault of a rack or a broker, with its proofs, for the duration of a block."""
        target = FaultTarget.rack(self.kafka, rack) if rack else FaultTarget.broker(self.kafka, str(broker))
        previous = self.unresponsive
        with inject_all(kinds.create_fault(self.kafka, kind, target, settings), self.history):
            # A broker that is cut off only from some racks responds to clients.
            if kind in SILENT and not settings.get("peers"):
                self.unresponsive |= {node.name for node in target.nodes}
            try:
                yield
            finally:
                self.unresponsive = previous

    @contextmanager
    def rack_outage(self, *topic_names: str, seconds: float = STEADY_S) -> Iterator[None]:
        """Kill the rack ``FAILED_RACK`` for a block that begins when the ISRs lack it; then heal until all are in sync.

        Args:
            topic_names: topics whose ISRs must have shrunk to the replicas in rack a; all of the test by default.
            seconds: how long the outage continues after the block.
        """
        with self.fault("kill", rack=FAILED_RACK):
            self.wait_isr({1, 2}, *topic_names)
            yield
            self.keep_producing(seconds)
        topics.wait_settled(self.kafka.admin, self.specs)

    def supports(self, kind: str, step: str) -> bool:
        """Return whether this cluster supports a kind of fault; if not, add the step to ``left-out.json``."""
        if kind != SLOW or self.kafka.network.slows:
            return True
        self.left_out.append(step)
        write_json(self.results / LEFT_OUT, self.left_out)
        return False

    # -- the end ------------------------------------------------------------------------------------------------------

    def read_final_state(self, *, logs: bool = False, outputs: Collection[str] = ()) -> None:
        """Read all records, end all processes, read the disks and, for the checker ``flood``, the server logs.

        Of ``outputs``, topics that applications write, only committed records are read, with their values: checkers of
        producers do not judge these topics.
        """
        self.final_state_read = True
        names = [topic.name for topic in self.specs if topic.name not in outputs]
        read_all(self.kafka.topology.bootstrap, names, self.history, isolations=ISOLATIONS)
        if outputs:
            committed = (COMMITTED,)
            read_all(self.kafka.topology.bootstrap, [*outputs], self.history, isolations=committed, values=True)
        self.kill_all()
        copies = [self.kafka.copy_disk(node, self.results / "disks" / node.name) for node in self.kafka.brokers()]
        read_disks(copies, self.history, topics=names)
        if logs:
            self.kafka.server_logs(self.kafka.topology.nodes, self.history)

    def kill_all(self) -> None:
        """Record which nodes run, kill all of them, and record the faults in their server logs."""
        nodes = self.kafka.topology.nodes
        self.kafka.note_states(nodes, self.history)
        self.ended = True
        for node in nodes:
            self.kafka.kill_kafka(node)
        self.kafka.note_faults(nodes, self.history)

    def verdicts(self, needs: Sequence[str] = NEEDS) -> list[Verdict]:
        """Judge the history, save the verdicts and return them; checkers in ``needs`` and ``CRASHES`` must apply."""
        verdicts, _ = judge(list(self.history.events()))
        self.save(verdicts)
        missing = {CRASHES, *needs} - {verdict.checker for verdict in verdicts}
        assert not missing, f"no verdict of {sorted(missing)}"
        return verdicts

    def save(self, verdicts: Sequence[Verdict]) -> None:
        """Log verdicts, and write them to ``verdicts.json`` beside the history."""
        for verdict in verdicts:
            reasons = "; ".join([*verdict.because, *verdict.notes])
            self.logger.info("verdict of %s: %s %s", verdict.checker, verdict.valid, reasons)
        write_json(self.results / VERDICTS, [asdict(verdict) for verdict in verdicts])

    def judge(self, needs: Sequence[str] = NEEDS) -> None:
        """Drain the cluster and require that all checkers that apply return true; see ``verdicts``."""
        self.read_final_state(logs=FLOOD in needs)
        require_true(self.verdicts(needs))

    def figures(self, **values: Any) -> None:
        """Write what a test measured to ``figures.json`` beside the history."""
        write_text(self.results / "figures.json", json.dumps(values, indent=1) + "\n")


def sleep(seconds: float, goal: str) -> None:
    """Wait for some seconds; ``goal`` describes the time for logs."""
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until, goal=goal, timeout_s=seconds + 5)


def require_true(verdicts: Sequence[Verdict]) -> None:
    """Fail with the reasons unless all verdicts are true."""
    joined = join(verdicts)
    assert joined.valid == "true", f"{joined.valid}: {'; '.join(joined.because)}"


def spec(name: str, replicas: Sequence[int], m: int, r: int | None = None) -> TopicSpec:
    """Return a topic with M and R; without ``r``, R is not set."""
    racks = {} if r is None else {gate.MIN_INSYNC_RACKS: str(r)}
    return TopicSpec(name, tuple(replicas), {gate.MIN_INSYNC_REPLICAS: str(m), **racks})


def offsets_topic(replicas: Sequence[int]) -> TopicSpec:
    """Return the topic of group coordinators as they create it, on chosen replicas; M and R are inherited."""
    return TopicSpec(OFFSETS, tuple(replicas), {"cleanup.policy": "compact", "compression.type": "producer"})


def transactions_topic(replicas: Sequence[int], m: int) -> TopicSpec:
    """Return the topic of transaction coordinators as they create it, on chosen replicas; R is inherited."""
    return TopicSpec(TRANSACTIONS, tuple(replicas), {"cleanup.policy": "compact", gate.MIN_INSYNC_REPLICAS: str(m)})
