"""Fault injection with proof: inject, prove, heal, prove.

A fault is a context manager. It is *injected* on entry and *proved* by probes that succeeded before and fail now. It is
*healed* on exit, even if the body fails, and the heal is proved too. Every step is an event of the history
(``FaultDetails``, op such as ``kill-rack``). If a probe contradicts the expectation, the event has outcome ``fail``:
the fault did not take effect, last or heal, or the cluster was not healthy before it. If a probe could not be run and
no other one contradicts, the outcome is ``unknown``. Both raise an error, so that nothing measured under the fault
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History, Outcome
from pyhooks.history.events import FaultDetails, FaultStep
from pyhooks.lab.cluster_control import RunningCluster
from pyhooks.lab.topology import Node

HEAL_TIMEOUT_S = 120.0
PORT_TIMEOUT_S = 30.0

Probe = Callable[[], bool]
# path from a node (None: from the clients) to a node
NetworkPath = tuple[Node | None, Node]


@dataclass(frozen=True)
class FaultTarget:
    """Rack or broker that a fault affects; or several brokers, for ``slow`` alone."""

    kind: Literal["rack", "broker"]
    name: str  # name of the rack, or of the nodes of the brokers, separated by commas
    site: str  # the rack, or the site of the first broker
    nodes: tuple[Node, ...]

    @staticmethod
    def rack(cluster: RunningCluster, name: str) -> FaultTarget:
        """Return a rack with all its nodes.

        Raises:
            RackgateError: no such rack.
        """
        racks = [site.name for site in cluster.topology.racks]
        if name not in racks:
            raise RackgateError(f"topology {cluster.topology.name}: no rack {name!r}; it has {', '.join(racks)}")
        return FaultTarget("rack", name, name, cluster.topology.site(name).nodes)

    @staticmethod
    def broker(cluster: RunningCluster, name: str) -> FaultTarget:
        """Return one broker, by its id or by the name of its node; or several, separated by commas.

        Raises:
            RackgateError: no such broker, or one is named twice.
        """
        brokers = {key: node for node in cluster.topology.brokers for key in (node.name, str(node.node_id))}
        names = name.split(",")
        if unknown := [broker_name for broker_name in names if broker_name not in brokers]:
            known = ", ".join(str(node.node_id) for node in cluster.topology.brokers)
            raise RackgateError(f"topology {cluster.topology.name}: no broker {unknown[0]!r}; it has {known}")
        nodes = tuple(brokers[broker_name] for broker_name in names)
        if len(set(nodes)) < len(nodes):
            raise RackgateError(f"{name}: contains a duplicate broker")
        return FaultTarget("broker", ",".join(node.name for node in nodes), nodes[0].site, nodes)

    @property
    def brokers(self) -> tuple[Node, ...]:
        """Its brokers."""
        return tuple(node for node in self.nodes if node.is_broker)

    def __str__(self) -> str:
        return f"rack {self.name}" if self.kind == "rack" else self.name


def site_of(cluster: RunningCluster, place: Node | None) -> str:
    """Return the site of one end of a path."""
    return place.site if place is not None else cluster.topology.client_site.name


class Fault(Protocol):
    """Kind of fault, as used by ``Injection``."""

    @property
    def kind(self) -> str:
        """Name, as in ``rackgate rack kill``."""

    @property
    def cluster(self) -> RunningCluster:
        """Cluster of the fault."""

    @property
    def target(self) -> FaultTarget:
        """Rack or broker that it affects."""

    def probes(self) -> dict[str, Probe]:
        """Return probes of the current state, by name."""

    def expects(self, probe: str, *, during: bool) -> bool:
        """Return the expected result of a probe, under the fault or without it."""

    def paths(self) -> tuple[NetworkPath, ...]:
        """Return the network paths that its probes use."""

    def event_data(self) -> Mapping[str, Any]:
        """Return additional fields of ``FaultDetails`` for its events."""

    def invalidates(self, other: Fault) -> bool:
        """Return whether this fault would invalidate the probes of another one."""

    def prepare(self) -> Mapping[str, Any]:
        """Inspect the cluster before the fault is injected; return the facts that ``heal`` will need, as plain JSON.

        Raises:
            RackgateError: in the current state it could not be healed or proved.
        """

    def inject(self) -> None:
        """Apply the fault to the target."""

    def heal(self, facts: Mapping[str, Any]) -> None:
        """Undo the fault; idempotent, even after an interrupted heal."""


@dataclass(frozen=True)
class BaseFault:
    """What kinds of faults have in common: no facts that the heal needs, and no additional fields of events."""

    cluster: RunningCluster
    target: FaultTarget

    def event_data(self) -> Mapping[str, Any]:
        """Return no additional data."""
        return {}

    def prepare(self) -> Mapping[str, Any]:
        """Return nothing: the heal needs no facts."""
        return {}


def _run_probes(probes: dict[str, Probe]) -> dict[str, bool | RackgateError]:
    """Run all probes concurrently; return the result of each, or the error if it could not be run."""
    with ThreadPoolExecutor(max(1, len(probes))) as pool:
        futures = {name: pool.submit(_run_probe, probe) for name, probe in probes.items()}
        return {name: future.result() for name, future in futures.items()}


def _run_probe(probe: Probe) -> bool | RackgateError:
    try:
        return probe()
    except RackgateError as error:
        return error


class Injection:
    """One use of a fault, from the first proof to the last.

    Args:
        facts: facts of an injection that another process began, to be healed here.

    Attributes:
        open: whether the fault may be in effect: from just before it is injected until its heal is proved.
    """

    def __init__(self, fault: Fault, history: History, facts: Mapping[str, Any] | None = None) -> None:
        self.fault = fault
        self.history = history
        self.facts: Mapping[str, Any] = facts or {}
        self.open = facts is not None

    @property
    def op(self) -> str:
        """Name of the fault in the history."""
        return f"{self.fault.kind}-{self.fault.target.kind}"

    def _record(
        self,
        step: FaultStep,
        outcome: Outcome | None = None,
        *,
        probes: Mapping[str, bool | None] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        target = self.fault.target
        single = target.kind == "broker" and len(target.nodes) == 1
        details = FaultDetails(
            target=str(target),
            broker=target.nodes[0].node_id if single else None,
            brokers=None if single else tuple(node.node_id for node in target.brokers),
            **self.fault.event_data(),
            step=step,
            probes=probes,
            errors=errors,
        )
        self.history.add(details, outcome, op=self.op, rack=target.site)

    def _prove(self, step: FaultStep, *, during: bool) -> None:
        try:
            probed = _run_probes(self.fault.probes())
        except RackgateError as error:
            self._record(step, "unknown", probes={}, errors={"all": str(error)})
            raise RackgateError(
                f"{self.op} {self.fault.target}: {step!r} is not verified, so results are unknown: {error}"
            ) from error
        silent = {name: str(result) for name, result in probed.items() if isinstance(result, RackgateError)}
        results = {name: None if isinstance(result, RackgateError) else result for name, result in probed.items()}
        wrong = [
            f"{name} = {result}"
            for name, result in results.items()
            if result is not None and result is not self.fault.expects(name, during=during)
        ]
        good = bool(probed) and not wrong and not silent
        outcome: Outcome = "fail" if wrong else "ok" if good else "unknown"
        self._record(step, outcome, probes=results, errors=silent or None)
        if wrong:
            why = f"; contrary to expectation: {'; '.join(wrong)}"
        else:
            why = f": {next(iter(silent.values()), 'nothing could be probed')}"
        if not good:
            raise RackgateError(f"{self.op} {self.fault.target}: {step!r} is not verified, so results are unknown{why}")

    def inject(self, record: Callable[[Mapping[str, Any]], None] = lambda _: None) -> None:
        """Inject the fault, with proof; heal at once if it does not take effect.

        Args:
            record: called with the facts that ``heal`` will need, after all checks and before anything is done.

        Raises:
            RackgateError: it is rejected, a probe failed before the fault, or the fault did not take effect.
        """
        if not any(self.fault.expects(name, during=True) is not self.fault.expects(name, during=False)
                   for name in self.fault.probes()):  # fmt: skip
            raise RackgateError(f"{self.op} {self.fault.target}: nothing could be probed that would change under it")
        facts = self.fault.prepare()
        self._prove("before", during=False)
        record(facts)
        self.facts, self.open = facts, True
        try:
            self._record("inject")
            self.fault.inject()
            self._prove("proved", during=True)
        except BaseException as error:
            self.abandon(error)
            raise

    def contradiction(self) -> str:
        """Return the evidence that the fault is not in force now; empty if there is none.

        A probe that could not be run counts as evidence. Nothing is written to the history, and nothing is healed.
        """
        try:
            probed = _run_probes(self.fault.probes())
        except RackgateError as error:
            return f"{self.op} {self.fault.target}: {error}"
        contradictions = [
            f"{name}: {result}" if isinstance(result, RackgateError) else f"{name} = {result}"
            for name, result in probed.items()
            if result is not self.fault.expects(name, during=True)
        ]
        contradictions += [] if probed else ["no probe could be run"]
        return f"{self.op} {self.fault.target}: {'; '.join(contradictions)}" if contradictions else ""

    def heal(self) -> None:
        """Heal the fault, with proof that it lasted until now and that the target is back.

        Raises:
            RackgateError: it did not last, or does not heal; it is healed as far as possible in any case.
        """
        try:
            # A rack that came back by itself would invalidate the whole outage.
            self._prove("held", during=True)
        except BaseException as error:
            self.abandon(error)
            raise
        self.restore()

    def abandon(self, error: BaseException) -> None:
        """Heal after ``error``; after Ctrl-C without waiting for the cluster and without proof.

        Raises:
            RackgateError: it does not heal; the message has both errors.
        """
        if isinstance(error, KeyboardInterrupt):
            self._record("heal")
            self.fault.heal(self.facts)
            self.open = False
            return
        try:
            self.restore()
        except RackgateError as second:
            raise RackgateError(f"{error}; and then it does not heal: {second}", detail=second.detail) from error

    def restore(self) -> None:
        """Heal without proof that the fault lasted, wait for the brokers, and prove that the target is back.

        Raises:
            RackgateError: it does not heal; it can be tried again.
        """
        fault = self.fault
        self._record("heal")
        fault.heal(self.facts)
        fault.cluster.wait_unfenced(fault.target.brokers, HEAL_TIMEOUT_S)
        # A broker is unfenced shortly before its port serves. Remaining problems are reported by the following proof.
        with suppress(RackgateError):
            wait_for(
                lambda: all(
                    result is fault.expects(name, during=False) for name, result in _run_probes(fault.probes()).items()
                ),
                goal=f"{fault.target} to respond as before",
                timeout_s=PORT_TIMEOUT_S,
            )
        self._prove("healed", during=False)
        self.open = False


@contextmanager
def inject_all(faults: Fault | Sequence[Fault], history: History) -> Iterator[None]:
    """Run the body under one or several faults, injected in order and healed in reverse order.

    Raises:
        RackgateError: a probe failed before the fault, or the fault did not take effect, last or heal.
    """
    first, *others = faults if isinstance(faults, Sequence) else (faults,)
    injection = Injection(first, history)
    injection.inject()
    try:
        if others:
            with inject_all(others, history):
                yield
        else:
            yield
    except BaseException as error:
        injection.abandon(error)
        raise
    injection.heal()
