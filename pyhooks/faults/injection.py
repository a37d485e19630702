"""Faults that prove themselves: inject, proof, heal, proof.

A fault is a context manager. It is *injected* on entry, *proved* by probes that succeeded before and fail now, and
*healed* on exit, also when the body fails; the heal is proved too. Every step is an event of the history (process
``fault``, op such as ``kill-rack``, ``data.target`` and ``data.step``). A proof in which a probe answers otherwise
than it should is an event with outcome ``fail``: the fault did not take hold, last or heal, or things were not as usual
before it. One of which a probe could not be asked, and no other contradicts, is ``unknown``. Both raise, so that
nothing measured under it can count. ``data.probes`` has the answers, null for a probe that could not be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.lab.running_cluster import RunningCluster
from pyhooks.lab.topology import Node

PROCESS = "fault"
HEAL_TIMEOUT_S = 120.0
PORT_TIMEOUT_S = 30.0

Question = Callable[[], bool]
# from a node (None: from the clients) to a node
Way = tuple[Node | None, Node]


@dataclass(frozen=True)
class Target:
    """What a fault takes away.

    Attributes:
        kind: a whole rack, or one broker.
        name: of the rack, or of the broker's node.
        site: the rack, or where the broker stands.
        nodes: its nodes, controllers included.
    """

    kind: Literal["rack", "broker"]
    name: str
    site: str
    nodes: tuple[Node, ...]

    @staticmethod
    def rack(cluster: RunningCluster, name: str) -> Target:
        """A rack with all its nodes.

        Raises:
            RackgateError: there is no such rack.
        """
        racks = [site.name for site in cluster.topology.racks]
        if name not in racks:
            raise RackgateError(f"topology {cluster.topology.name}: no rack {name!r}; it has {', '.join(racks)}")
        return Target("rack", name, name, tuple(cluster.members(name)))

    @staticmethod
    def broker(cluster: RunningCluster, name: str) -> Target:
        """One broker, by its id or by the name of its node.

        Raises:
            RackgateError: there is no such broker.
        """
        brokers = cluster.topology.brokers
        for node in brokers:
            if name in (node.name, str(node.node_id)):
                return Target("broker", node.name, node.site, (node,))
        known = ", ".join(str(node.node_id) for node in brokers)
        raise RackgateError(f"topology {cluster.topology.name}: no broker {name!r}; it has {known}")

    @property
    def brokers(self) -> tuple[Node, ...]:
        """Its brokers."""
        return tuple(node for node in self.nodes if node.is_broker)

    def __str__(self) -> str:
        return f"rack {self.name}" if self.kind == "rack" else self.name


def site_of(cluster: RunningCluster, place: Node | None) -> str:
    """The site of one end of a way."""
    return place.site if place is not None else cluster.topology.client_site.name


class Fault(Protocol):
    """What an ``Injection`` needs to know of a kind of fault."""

    @property
    def kind(self) -> str:
        """Its name, as in ``rackgate rack kill``."""

    @property
    def cluster(self) -> RunningCluster:
        """Where."""

    @property
    def target(self) -> Target:
        """What it takes away."""

    def probes(self) -> dict[str, Question]:
        """Questions about how things are right now, by what they ask."""

    def expects(self, probe: str, *, during: bool) -> bool:
        """The answer of a probe under the fault, or without it, if all is as it should be."""

    def ways(self) -> tuple[Way, ...]:
        """The ways over which its probes ask."""

    def told(self) -> Mapping[str, Any]:
        """What each of its steps tells of it in the history, beside what those of all faults do; plain JSON."""

    def spoils(self, other: Fault) -> bool:
        """Whether the probes of another fault could not tell any more what they tell, under this one."""

    def prepare(self) -> Mapping[str, Any]:
        """Looks at what there is while nothing is done yet; returns what ``heal`` will have to know, plain JSON.

        Raises:
            RackgateError: as things are, it could not be healed or not be proved.
        """

    def inject(self) -> None:
        """Takes the target away."""

    def heal(self, facts: Mapping[str, Any]) -> None:
        """Gives it back; doing so twice is the same as once, also if the first time was interrupted anywhere."""


def _all_at_once(questions: dict[str, Question]) -> dict[str, bool | RackgateError]:
    """The answers, or why a question could not be asked."""
    with ThreadPoolExecutor(max(1, len(questions))) as pool:
        futures = {name: pool.submit(_answer, ask) for name, ask in questions.items()}
        return {name: future.result() for name, future in futures.items()}


def _answer(ask: Question) -> bool | RackgateError:
    try:
        return ask()
    except RackgateError as error:
        return error


class Injection:
    """One use of a fault, from the first proof to the last.

    Args:
        fault: the fault.
        history: where its steps go.
        facts: of an injection that another process has begun, to be healed here.

    Attributes:
        open: whether something may be away: from just before it is taken until it is proved to be back.
    """

    def __init__(self, fault: Fault, history: History, facts: Mapping[str, Any] | None = None) -> None:
        self.fault = fault
        self.history = history
        self.facts: Mapping[str, Any] = facts or {}
        self.open = facts is not None

    @property
    def op(self) -> str:
        """Its name in the history."""
        return f"{self.fault.kind}-{self.fault.target.kind}"

    def _note(self, step: str, outcome: Literal["info", "ok", "fail", "unknown"] = "info", **more: Any) -> None:
        target = self.fault.target
        if target.kind == "broker":
            hit: dict[str, Any] = {"broker": target.nodes[0].node_id}
        else:
            hit = {"brokers": [node.node_id for node in target.brokers]}
        told = {"target": str(target), **hit, **self.fault.told(), "step": step, **more}
        self.history.note(PROCESS, self.op, outcome, rack=target.site, **told)

    def _prove(self, step: str, *, during: bool) -> None:
        try:
            found = _all_at_once(self.fault.probes())
        except RackgateError as error:
            self._note(step, "unknown", probes={}, errors={"all": str(error)})
            raise RackgateError(
                f"{self.op} {self.fault.target}: {step!r} is not proved, so results are unknown: {error}"
            ) from error
        silent = {name: str(answer) for name, answer in found.items() if isinstance(answer, RackgateError)}
        told = {name: None if name in silent else answer for name, answer in found.items()}
        wrong = [
            f"{name} = {answer}"
            for name, answer in told.items()
            if answer is not None and answer is not self.fault.expects(name, during=during)
        ]
        good = bool(found) and not wrong and not silent
        more = {"errors": silent} if silent else {}
        self._note(step, "fail" if wrong else "ok" if good else "unknown", probes=told, **more)
        if wrong:
            why = f"; contrary to what was expected: {'; '.join(wrong)}"
        else:
            why = f": {next(iter(silent.values()), 'nothing could be probed')}"
        if not good:
            raise RackgateError(f"{self.op} {self.fault.target}: {step!r} is not proved, so results are unknown{why}")

    def inject(self, record: Callable[[Mapping[str, Any]], None] = lambda _: None) -> None:
        """Takes the target away, with proof; heals at once what does not take hold.

        Args:
            record: is told what ``heal`` will have to know, after all looks and before anything is done.

        Raises:
            RackgateError: it is refused, a probe failed before the fault, or the fault did not take hold.
        """
        if not any(self.fault.expects(name, during=True) is not self.fault.expects(name, during=False)
                   for name in self.fault.probes()):  # fmt: skip
            raise RackgateError(f"{self.op} {self.fault.target}: nothing could be probed that would change under it")
        facts = self.fault.prepare()
        self._prove("before", during=False)
        record(facts)
        self.facts, self.open = facts, True
        try:
            self._note("inject")
            self.fault.inject()
            self._prove("proved", during=True)
        except BaseException as error:
            self.abandon(error)
            raise

    def contrary(self) -> str:
        """What speaks against it that the fault is in force at this moment; empty if nothing does.

        A probe that could not be asked speaks against it too. Nothing is written into the history, and nothing healed.
        """
        try:
            found = _all_at_once(self.fault.probes())
        except RackgateError as error:
            return f"{self.op} {self.fault.target}: {error}"
        told = [
            f"{name}: {answer}" if isinstance(answer, RackgateError) else f"{name} = {answer}"
            for name, answer in found.items()
            if answer is not self.fault.expects(name, during=True)
        ]
        told += [] if found else ["nothing could be probed"]
        return f"{self.op} {self.fault.target}: {'; '.join(told)}" if told else ""

    def heal(self) -> None:
        """Gives the target back, with proof that it was away until now and is back afterwards.

        Raises:
            RackgateError: it was not, or is not; it is healed in any case as far as that goes.
        """
        try:
            # A rack that came back by itself would void the whole outage.
            self._prove("held", during=True)
        except BaseException as error:
            self.abandon(error)
            raise
        self.give_back()

    def abandon(self, error: BaseException) -> None:
        """Heals after ``error``; a person who interrupts does not want to wait for the cluster.

        Raises:
            RackgateError: it does not heal; the message has both.
        """
        if isinstance(error, KeyboardInterrupt):
            self._note("heal")
            self.fault.heal(self.facts)
            self.open = False
            return
        try:
            self.give_back()
        except RackgateError as second:
            raise RackgateError(f"{error}; and then it does not heal: {second}", detail=second.detail) from error

    def give_back(self) -> None:
        """Heals without proof that it was away until now, waits for the brokers, and proves that all is back.

        Raises:
            RackgateError: it does not heal; it can be tried again.
        """
        fault = self.fault
        self._note("heal")
        fault.heal(self.facts)
        fault.cluster.wait_unfenced(fault.target.brokers, HEAL_TIMEOUT_S)
        # A broker is unfenced a moment before its port serves; what stays wrong is told by the proof that follows.
        with suppress(RackgateError):
            wait_for(
                lambda: all(
                    answer is fault.expects(name, during=False) for name, answer in _all_at_once(fault.probes()).items()
                ),
                what=f"{fault.target} to answer as before",
                timeout_s=PORT_TIMEOUT_S,
            )
        self._prove("healed", during=False)
        self.open = False


@contextmanager
def applied(faults: Fault | Sequence[Fault], history: History) -> Iterator[None]:
    """Runs the body under a fault, or under several at a time, injected in order and healed in the opposite one.

    Raises:
        RackgateError: a probe failed before the fault, or the fault did not take hold, last or heal.
    """
    first, *others = faults if isinstance(faults, Sequence) else (faults,)
    injection = Injection(first, history)
    injection.inject()
    try:
        if others:
            with applied(others, history):
                yield
        else:
            yield
    except BaseException as error:
        injection.abandon(error)
        raise
    injection.heal()
