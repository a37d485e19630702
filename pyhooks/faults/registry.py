"""The faults that are in force in a lab, so that another command can heal them, and the lab what a dead command left.

A record for each, on the lab's own file system, with a lock beside it that is never removed. A command holds the lock
as long as it works on the fault; a record is read again under it, since another command may have healed meanwhile. The
lab heals what has lost its command and is over, or was left half done. A record goes when its heal went through, so
that a heal that failed or was interrupted can be repeated.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, read_object, write_text
from pyhooks.core.wait import wait_for
from pyhooks.faults import kinds
from pyhooks.faults.injection import Injection, Target
from pyhooks.history.event_log import History
from pyhooks.lab.lab import Lab

FOLDER = paths.LAB_HOME / "faults"
# The lab looks at the locks now and then, for an instant.
PATIENCE_S = 1.0
# "planned": nothing is done yet; "injecting" and "healing": somebody is about it, and may have been killed in between
Phase = Literal["planned", "injecting", "in force", "healing"]


@dataclass(frozen=True)
class Active:
    """A fault in force.

    Attributes:
        kind: as in ``rackgate rack KIND``.
        target_kind: rack or broker.
        target: name of the rack or of the broker's node.
        settings: of the kind.
        since_ns: monotonic.
        until_ns: monotonic time from which on the lab heals it if its command is gone, or None if a person says when.
        facts: what its heal has to know.
        failed: why it could not be healed, or empty.
        phase: how far it is.
    """

    kind: str
    target_kind: Literal["rack", "broker"]
    target: str
    settings: Mapping[str, Any]
    since_ns: int
    until_ns: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""
    phase: Phase = "planned"

    @property
    def path(self) -> Path:
        """Its file."""
        return FOLDER / f"{self.target_kind}-{self.target}.json"

    @property
    def text(self) -> str:
        """For people: what, where and since when."""
        where = f"rack {self.target}" if self.target_kind == "rack" else self.target
        age_s = (time.monotonic_ns() - self.since_ns) / 1e9
        return f"{self.kind} {where} for {age_s:.0f} s" + (f" (can't be healed: {self.failed})" if self.failed else "")

    def resolve(self, lab: Lab) -> Target:
        """The target in the lab."""
        make = Target.rack if self.target_kind == "rack" else Target.broker
        return make(lab, self.target)

    def injection(self, lab: Lab, history: History | None = None) -> Injection:
        """The fault as something that can be injected and healed; told in ``history``, or in the lab's own."""
        fault = kinds.build(lab, self.kind, self.resolve(lab), self.settings)
        begun = self.phase != "planned"
        return Injection(fault, history or History(lab.history_path), self.facts if begun else None)

    def write(self) -> None:
        """Puts it into its file, all at once."""
        write_text(self.path, json.dumps(asdict(self)) + "\n")


def _read(path: Path) -> Active | None:
    # another command may remove it meanwhile
    if not path.exists():
        return None
    with evaluating(path, "a fault of this version"):
        return Active(**read_object(path, "it describes a fault"))


def active() -> tuple[Active, ...]:
    """All faults in force, the oldest first."""
    found = [one for one in map(_read, FOLDER.glob("*.json")) if one is not None]
    return tuple(sorted(found, key=lambda one: one.since_ns))


class _BusyError(RackgateError):
    """Another command has the lock of a fault."""


@contextmanager
def _locked(path: Path, busy: str, patience_s: float) -> Iterator[None]:
    """Holds a lock; no child of ours inherits it.

    Raises:
        RackgateError: another command has it.
    """
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def taken() -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        if not taken():
            try:
                wait_for(taken, what="the lock", timeout_s=patience_s, interval_s=0.05)
            except RackgateError as error:
                raise _BusyError(busy) from error
        yield
    finally:
        os.close(descriptor)


def _owned(one: Active, patience_s: float = PATIENCE_S) -> AbstractContextManager[None]:
    busy = f"{one.text}: another command injects, holds or heals it just now"
    return _locked(one.path.with_suffix(".lock"), busy, patience_s)


@contextmanager
def _closed_at_the_end(now: list[Active], injection: Injection) -> Iterator[None]:
    """Removes the record after the body, or keeps it with the reason if something may still be away.

    Args:
        now: the record, the latest last.
        injection: tells whether something is away.
    """
    try:
        yield
    except BaseException as error:
        if injection.open:
            # A person's Ctrl-C is no failure: the lab goes on with the heal.
            failed = "" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
            replace(now[-1], failed=failed, phase="healing").write()
        else:
            now[-1].path.unlink()
        raise
    if not injection.open:
        now[-1].path.unlink()


def _refuse_overlap(lab: Lab, wanted: Active) -> None:
    target = wanted.resolve(lab)
    for other in active():
        if set(other.resolve(lab).nodes) & set(target.nodes):
            raise RackgateError(f"{target}: {other.text} is in force: heal that first")
        mine, theirs = wanted.injection(lab).fault, other.injection(lab).fault
        if theirs.spoils(mine) or mine.spoils(theirs):
            raise RackgateError(
                f"{target}: {other.text} is in force, and with both of them one could not be proved, since they"
                " concern the same ways through the network: heal that first"
            )


@contextmanager
def injected(lab: Lab, wanted: Active, *, stays: bool, history: History | None = None) -> Iterator[Active]:
    """Injects a fault; after the body it is healed, or stays for somebody else to heal.

    Args:
        lab: where.
        wanted: which.
        stays: whether it is somebody else's to heal it.
        history: where it is told, if not in the lab's own.

    Raises:
        RackgateError: another one is in force there, or it did not take hold, last or heal.
    """
    injection = wanted.injection(lab, history)
    now = [wanted]

    def become(phase: Phase, facts: Mapping[str, Any]) -> None:
        now.append(replace(wanted, phase=phase, facts=dict(facts)))
        now[-1].write()

    with _owned(wanted):
        # Two commands at a time would not see each other's records.
        others = f"{wanted.resolve(lab)}: another command begins a fault just now: try again"
        with _locked(FOLDER / "all.lock", others, PATIENCE_S):
            _refuse_overlap(lab, wanted)
            wanted.write()
        with _closed_at_the_end(now, injection):
            injection.inject(lambda facts: become("injecting", facts))
            become("in force", injection.facts)
            try:
                yield now[-1]
            except BaseException as error:
                # whoever goes on with it must not say that it did not last
                become("healing", injection.facts)
                injection.abandon(error)
                raise
            if not stays:
                become("healing", injection.facts)
                injection.heal()


def applied(
    lab: Lab, kind: str, target: Target, history: History | None = None, **settings: Any
) -> AbstractContextManager[Active]:
    """A fault for as long as a block runs; should the process die in it, the lab heals it.

    Args:
        lab: in which this process runs.
        kind: as in ``rackgate rack KIND``.
        target: of it.
        history: where it is told, if not in the lab's own; should the process die, it lacks the end of the fault.
        **settings: of the kind, see ``pyhooks.faults.kinds.build``.

    Raises:
        RackgateError: another fault is in force there, or it did not take hold, last or heal.
    """
    now_ns = time.monotonic_ns()
    # over from the beginning, as far as others are concerned: while it lasts this process has its lock
    wanted = Active(kind, target.kind, target.name, settings, now_ns, now_ns)
    return injected(lab, wanted, stays=False, history=history)


def _heal(lab: Lab, one: Active) -> Active | None:
    """Heals a fault; None if somebody else has done so meanwhile.

    Raises:
        RackgateError: it had not lasted, or does not heal, or another command has it.
    """
    with _owned(one):
        found = _read(one.path)
        if found is None or found.since_ns != one.since_ns:
            return None
        if found.phase == "planned":
            # its command is gone, and has done nothing
            found.path.unlink()
            return None
        injection = found.injection(lab)
        with _closed_at_the_end([found], injection):
            if found.phase == "in force":
                replace(found, phase="healing").write()
                injection.heal()
            else:
                # Nobody knows since when what is away, so nothing is claimed of it: the history lacks a proof.
                injection.give_back()
        return found


def heal(lab: Lab, nodes: Sequence[str]) -> tuple[Active, ...]:
    """Heals all faults that concern some of the nodes, the latest first; returns them.

    Raises:
        RackgateError: one had not lasted, or does not heal; the others are healed nevertheless.
    """
    concerned = [one for one in reversed(active()) if {node.name for node in one.resolve(lab).nodes} & set(nodes)]
    healed: list[Active] = []
    failed: list[RackgateError] = []
    for one in concerned:
        try:
            found = _heal(lab, one)
        except RackgateError as error:
            failed.append(error)
        else:
            healed += [found] if found is not None else []
    if failed:
        detail = "\n".join(error.detail for error in failed if error.detail)
        raise RackgateError("; ".join(map(str, failed)), detail=detail) from failed[0]
    return tuple(healed)


def orphans() -> tuple[Active, ...]:
    """The faults whose command is gone and whose time is over, or that were left half done."""
    found = []
    for one in active():
        over = one.until_ns is not None and time.monotonic_ns() >= one.until_ns
        if not one.failed and (over or one.phase != "in force"):
            with suppress(_BusyError), _owned(one, 0):
                found.append(one)
    return tuple(found)


def give_up(one: Active, why: str, patience_s: float = PATIENCE_S) -> None:
    """Keeps a fault that could not be healed, with the reason; does nothing if it is gone or busy."""
    with suppress(_BusyError), _owned(one, patience_s):
        found = _read(one.path)
        if found is not None and found.since_ns == one.since_ns and not found.failed:
            replace(found, failed=why).write()


def heal_orphan(lab: Lab, since_ns: int) -> str:
    """Heals the orphan that began at a moment; if that fails it is kept, and the reason is told."""
    for one in orphans():
        if one.since_ns == since_ns:
            try:
                _heal(lab, one)
            except _BusyError:
                break
            except Exception as error:  # noqa: BLE001 - whatever it is: the next look must not try the same again
                why = str(error) or type(error).__name__
                give_up(one, why)
                return f"{one.text}: {why}"
    return ""
