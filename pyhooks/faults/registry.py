"""Registry of the faults in force in a lab, so that other commands, and the lab itself, can heal them.

Each fault has a record on the lab's own file system and a lock beside it, which is never removed. A command holds the
lock while it works on the fault. After locking it reads the record again, because another command may have healed the
fault in the meantime. If the command has died, the lab heals the fault once it expires or if it was left half done. A
record is removed only after a successful heal, so that a failed or interrupted heal can be repeated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, read_object, write_text
from pyhooks.core.locks import LockTakenError, hold_lock
from pyhooks.faults import kinds
from pyhooks.faults.injection import FaultTarget, Injection
from pyhooks.history.event_log import History
from pyhooks.lab.lab import Lab

FOLDER = paths.LAB_HOME / "faults"
# Waiting time for a lock. The lab briefly takes a lock now and then, to detect a dead command.
PATIENCE_S = 1.0
# "planned": nothing was done yet; "injecting" and "healing": a command is at work, or was killed during it
Phase = Literal["planned", "injecting", "in force", "healing"]


@dataclass(frozen=True)
class FaultRecord:
    """Fault in force."""

    kind: str
    target_kind: Literal["rack", "broker"]
    target: str  # name of the rack or of the broker's node
    settings: Mapping[str, Any]
    since_ns: int
    # monotonic time after which the lab heals it if its command has died; None if a user heals it
    until_ns: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # data that the heal needs
    failed: str = ""  # why it could not be healed, or empty
    phase: Phase = "planned"

    @property
    def path(self) -> Path:
        """File of its record."""
        return FOLDER / f"{self.target_kind}-{self.target}.json"

    @property
    def description(self) -> str:
        """Kind, target and age, for messages."""
        where = f"rack {self.target}" if self.target_kind == "rack" else self.target
        age_s = (time.monotonic_ns() - self.since_ns) / 1e9
        return f"{self.kind} {where} for {age_s:.0f} s" + (f" (can't be healed: {self.failed})" if self.failed else "")

    def resolve(self, lab: Lab) -> FaultTarget:
        """Return the target in the lab."""
        make = FaultTarget.rack if self.target_kind == "rack" else FaultTarget.broker
        return make(lab, self.target)

    def injection(self, lab: Lab, history: History | None = None) -> Injection:
        """Return the fault as an ``Injection`` that writes to ``history``, or to the lab's own history."""
        fault = kinds.create_fault(lab, self.kind, self.resolve(lab), self.settings)
        begun = self.phase != "planned"
        return Injection(fault, history or History(lab.history_path), self.facts if begun else None)

    def write(self) -> None:
        """Write the record atomically."""
        write_text(self.path, json.dumps(asdict(self)) + "\n")


def _read(path: Path) -> FaultRecord | None:
    # another command may remove it concurrently
    if not path.exists():
        return None
    with evaluating(path, "a fault of this version"):
        return FaultRecord(**read_object(path, "it describes a fault"))


def active_faults() -> tuple[FaultRecord, ...]:
    """Return all faults in force, the oldest first."""
    records = [record for record in map(_read, FOLDER.glob("*.json")) if record is not None]
    return tuple(sorted(records, key=lambda record: record.since_ns))


def _lock(path: Path, taken: str, patience_s: float) -> AbstractContextManager[None]:
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    return hold_lock(path, taken=taken, patience_s=patience_s)


def _fault_lock(record: FaultRecord, patience_s: float = PATIENCE_S) -> AbstractContextManager[None]:
    busy = f"{record.description}: another command works on it"
    return _lock(record.path.with_suffix(".lock"), busy, patience_s)


@contextmanager
def _close_record(now: list[FaultRecord], injection: Injection) -> Iterator[None]:
    """Remove the record after the body, or keep it with the reason if the fault may still be in effect."""
    try:
        yield
    except BaseException as error:
        if injection.open:
            # Ctrl-C is not a failure of the heal: the lab continues it.
            failed = "" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
            replace(now[-1], failed=failed, phase="healing").write()
        else:
            now[-1].path.unlink()
        raise
    if not injection.open:
        now[-1].path.unlink()


def _reject_overlap(lab: Lab, wanted: FaultRecord) -> None:
    target = wanted.resolve(lab)
    for other in active_faults():
        if set(other.resolve(lab).nodes) & set(target.nodes):
            raise RackgateError(f"{target}: {other.description} is in force: heal that first")
        mine, theirs = wanted.injection(lab).fault, other.injection(lab).fault
        if theirs.invalidates(mine) or mine.invalidates(theirs):
            raise RackgateError(
                f"{target}: {other.description} is in force, and one of them could not be proved, because they"
                " concern the same network paths: heal that first"
            )


@contextmanager
def fault_injected(
    lab: Lab, wanted: FaultRecord, *, stays: bool, history: History | None = None
) -> Iterator[FaultRecord]:
    """Inject a fault; after the body, heal it or, with ``stays``, leave it in force.

    It writes to ``history``, or to the lab's own.

    Raises:
        RackgateError: another fault is in force there, or this one did not take effect, last or heal.
    """
    injection = wanted.injection(lab, history)
    now = [wanted]

    def become(phase: Phase, facts: Mapping[str, Any]) -> None:
        now.append(replace(wanted, phase=phase, facts=dict(facts)))
        now[-1].write()

    with _fault_lock(wanted):
        # Two concurrent commands would not see each other's records.
        others = f"{wanted.resolve(lab)}: another command is injecting a fault: try again"
        with _lock(FOLDER / "all.lock", others, PATIENCE_S):
            _reject_overlap(lab, wanted)
            wanted.write()
        with _close_record(now, injection):
            injection.inject(lambda facts: become("injecting", facts))
            become("in force", injection.facts)
            try:
                yield now[-1]
            except BaseException as error:
                # a process that continues the heal must not try to prove that the fault lasted until then
                become("healing", injection.facts)
                injection.abandon(error)
                raise
            if not stays:
                become("healing", injection.facts)
                injection.heal()


def fault_applied(
    lab: Lab, kind: str, target: FaultTarget, history: History | None = None, **settings: Any
) -> AbstractContextManager[FaultRecord]:
    """Return a context manager for a fault; if the process dies in its body, the lab heals the fault.

    Raises:
        RackgateError: another fault is in force there, or this one did not take effect, last or heal.
    """
    now_ns = time.monotonic_ns()
    # The fault counts as expired from the start, but this process holds its lock as long as it runs.
    wanted = FaultRecord(kind, target.kind, target.name, settings, now_ns, now_ns)
    return fault_injected(lab, wanted, stays=False, history=history)


def _heal(lab: Lab, record: FaultRecord) -> FaultRecord | None:
    """Heal a fault; return None if another command has done so in the meantime, or nothing had been done yet."""
    with _fault_lock(record):
        stored = _read(record.path)
        if stored is None or stored.since_ns != record.since_ns:
            return None
        if stored.phase == "planned":
            # its command died before it did anything
            stored.path.unlink()
            return None
        injection = stored.injection(lab)
        with _close_record([stored], injection):
            if stored.phase == "in force":
                replace(stored, phase="healing").write()
                injection.heal()
            else:
                # It is unknown since when the target is affected, so the history gets no proof that the fault lasted.
                injection.restore()
        return stored


def heal(lab: Lab, nodes: Sequence[str]) -> tuple[FaultRecord, ...]:
    """Heal all faults that affect some of the nodes, the latest first; return them.

    Raises:
        RackgateError: a fault did not last or does not heal; the others are healed nevertheless.
    """
    concerned = [
        record for record in reversed(active_faults()) if {node.name for node in record.resolve(lab).nodes} & set(nodes)
    ]
    healed: list[FaultRecord] = []
    failed: list[RackgateError] = []
    for record in concerned:
        try:
            ended = _heal(lab, record)
        except RackgateError as error:
            failed.append(error)
        else:
            healed += [ended] if ended is not None else []
    if failed:
        detail = "\n".join(error.detail for error in failed if error.detail)
        raise RackgateError("; ".join(map(str, failed)), detail=detail) from failed[0]
    return tuple(healed)


def orphaned_faults() -> tuple[FaultRecord, ...]:
    """Return the faults whose command has died and that have expired or were left half done."""
    orphaned = []
    for record in active_faults():
        over = record.until_ns is not None and time.monotonic_ns() >= record.until_ns
        if not record.failed and (over or record.phase != "in force"):
            with suppress(LockTakenError), _fault_lock(record, 0):
                orphaned.append(record)
    return tuple(orphaned)


def mark_failed(record: FaultRecord, why: str, patience_s: float = PATIENCE_S) -> None:
    """Mark a fault as impossible to heal, with the reason; do nothing if it is healed already or locked."""
    with suppress(LockTakenError), _fault_lock(record, patience_s):
        stored = _read(record.path)
        if stored is not None and stored.since_ns == record.since_ns and not stored.failed:
            replace(stored, failed=why).write()


def heal_orphan(lab: Lab, since_ns: int) -> str:
    """Heal the orphaned fault with this start time; on failure keep it and return the reason."""
    for record in orphaned_faults():
        if record.since_ns == since_ns:
            try:
                _heal(lab, record)
            except LockTakenError:
                break
            except Exception as error:  # noqa: BLE001 - whatever it is: the next check must not try the same again
                why = str(error) or type(error).__name__
                mark_failed(record, why)
                return f"{record.description}: {why}"
    return ""
