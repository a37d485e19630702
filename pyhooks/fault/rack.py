"""Rack outages: every broker of a rack killed, or the rack cut off from all other sites.

A fault is a context manager. It is *injected* on entry, *proved* by probes that succeeded before and fail now, and
*healed* on exit, also when the body fails; the heal is proved too. Every step is an event of the history (process
``fault``, op ``kill-rack`` or ``cut-rack``, ``data.step``). A fault that did not take hold is an event with
outcome ``unknown`` and raises, so that nothing measured under it can count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

from pyhooks.cluster.running import RunningCluster, reachable
from pyhooks.errors import RackgateError
from pyhooks.history import History
from pyhooks.wait import wait_for

PROCESS = "fault"
HEAL_TIMEOUT_S = 120.0
PORT_TIMEOUT_S = 30.0
INSIDE = "inside the rack: "

Question = Callable[[], bool]


class Fault(Protocol):
    """What ``applied`` needs to know of a kind of fault."""

    @property
    def op(self) -> str:
        """Its name in the history."""

    @property
    def cluster(self) -> RunningCluster:
        """Where."""

    @property
    def rack(self) -> str:
        """The rack that it takes away."""

    def probes(self) -> dict[str, Question]:
        """Questions about what can be reached right now, by what they ask."""

    def expects(self, probe: str, *, during: bool) -> bool:
        """The answer of a probe under the fault, or without it, if all is as it should be."""

    def inject(self) -> None:
        """Takes the rack away."""

    def heal(self) -> None:
        """Gives it back; doing so twice is the same as once."""


def _all_at_once(questions: dict[str, Question]) -> dict[str, bool]:
    with ThreadPoolExecutor(max(1, len(questions))) as pool:
        futures = {name: pool.submit(ask) for name, ask in questions.items()}
        return {name: future.result() for name, future in futures.items()}


@dataclass(frozen=True)
class KillRack:
    """SIGKILL to every Kafka process of the rack; healed by starting them again on the same disks."""

    cluster: RunningCluster
    rack: str
    op: str = "kill-rack"

    def probes(self) -> dict[str, Question]:
        """Can a client connect to each broker of the rack?"""
        return {f"connect {node.name}": partial(reachable, node) for node in self.cluster.brokers(self.rack)}

    def expects(self, probe: str, *, during: bool) -> bool:  # noqa: ARG002 - the same for every probe
        """Connects without the fault, never under it."""
        return not during

    def inject(self) -> None:
        """Kills all at the same time."""
        nodes = self.cluster.brokers(self.rack)
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(self.cluster.kill_kafka, nodes))

    def heal(self) -> None:
        """Starts what does not run."""
        for node in self.cluster.brokers(self.rack):
            self.cluster.start_kafka(node)


@dataclass(frozen=True)
class CutRack:
    """Silent loss of every packet between the rack and all other sites; its brokers run on and see each other."""

    cluster: RunningCluster
    rack: str
    op: str = "cut-rack"

    def probes(self) -> dict[str, Question]:
        """Do echoes pass from the clients and from another rack, back from the rack, and between its own brokers?"""
        answers, members = self.cluster.answers, self.cluster.brokers(self.rack)
        elsewhere = (self.rack, self.cluster.topology.client_site.name)
        outsider = next(node for node in self.cluster.topology.nodes if node.site not in elsewhere)
        questions: dict[str, Question] = {}
        for node in members:
            questions[f"clients to {node.name}"] = partial(answers, node)
            questions[f"{outsider.name} to {node.name}"] = partial(answers, node, outsider)
            questions[f"{node.name} to {outsider.name}"] = partial(answers, outsider, node)
        for left, right in pairwise(members):
            questions[f"{INSIDE}{left.name} to {right.name}"] = partial(answers, right, left)
        return questions

    def expects(self, probe: str, *, during: bool) -> bool:
        """Everything answers without the fault; under it only what stays inside the rack."""
        return not during or probe.startswith(INSIDE)

    def inject(self) -> None:
        """Cuts."""
        self.cluster.cut(self.rack)

    def heal(self) -> None:
        """Joins."""
        self.cluster.join(self.rack)


@contextmanager
def applied(fault: Fault, history: History) -> Iterator[None]:
    """Runs the body under the fault.

    Raises:
        RackgateError: a probe failed before the fault, or the fault did not take hold, last or heal.
    """

    def note(step: str) -> None:
        history.note(PROCESS, fault.op, "info", rack=fault.rack, step=step)

    def prove(step: str, *, during: bool) -> None:
        found = _all_at_once(fault.probes())
        wrong = [name for name, answer in found.items() if answer is not fault.expects(name, during=during)]
        good = bool(found) and not wrong
        history.note(PROCESS, fault.op, "ok" if good else "unknown", rack=fault.rack, step=step, probes=found)
        if not good:
            raise RackgateError(
                f"{fault.op} {fault.rack}: {step!r} is not proved, so results are unknown; contrary to what was"
                f" expected: {'; '.join(f'{name} = {found[name]}' for name in wrong) or 'nothing could be probed'}"
            )

    prove("before", during=False)
    note("inject")
    try:
        fault.inject()
        prove("proved", during=True)
        yield
        # A rack that came back by itself would void the whole outage.
        prove("held", during=True)
    except KeyboardInterrupt:
        fault.heal()
        raise
    except BaseException:
        _heal(fault, note)
        raise
    _heal(fault, note)
    prove("healed", during=False)


def _heal(fault: Fault, note: Callable[[str], None]) -> None:
    note("heal")
    fault.heal()
    fault.cluster.wait_unfenced(fault.cluster.brokers(fault.rack), HEAL_TIMEOUT_S)
    # A broker is unfenced a moment before its port serves; what stays wrong is told by the proof that follows.
    with suppress(RackgateError):
        wait_for(
            lambda: all(
                answer is fault.expects(name, during=False) for name, answer in _all_at_once(fault.probes()).items()
            ),
            what=f"rack {fault.rack} to answer as before",
            timeout_s=PORT_TIMEOUT_S,
        )


def kill_rack(cluster: RunningCluster, rack: str, history: History) -> AbstractContextManager[None]:
    """All brokers of ``rack`` are dead within the context; see ``applied``."""
    return applied(KillRack(cluster, rack), history)


def cut_rack(cluster: RunningCluster, rack: str, history: History) -> AbstractContextManager[None]:
    """``rack`` is cut off from all other sites within the context; see ``applied``."""
    return applied(CutRack(cluster, rack), history)
