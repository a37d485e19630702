"""The faults that are in force in a lab, so that another command can heal them, and the lab what a dead command left.

A file for each, on the lab's own file system. A command that will heal its fault itself holds a lock on the file as
long as it lives; the lab's first process heals what has lost its command and is over.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pyhooks import paths
from pyhooks.cluster.lab import Lab
from pyhooks.errors import RackgateError
from pyhooks.fault import kinds
from pyhooks.fault.injection import Injection, Target
from pyhooks.history import History

FOLDER = paths.LAB_HOME / "faults"


@dataclass(frozen=True)
class Active:
    """A fault in force.

    Attributes:
        kind: as in ``rackgate rack KIND``.
        target_kind: rack or broker.
        target: name of the rack or of the broker's node.
        settings: of the kind.
        since_ns: monotonic.
        until_ns: monotonic time at which it shall be healed, or None if a person says when.
        facts: what its heal has to know.
        failed: why the lab could not heal it, or empty.
    """

    kind: str
    target_kind: Literal["rack", "broker"]
    target: str
    settings: Mapping[str, Any]
    since_ns: int
    until_ns: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""

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

    def injection(self, lab: Lab) -> Injection:
        """The fault as something that can be injected and healed."""
        fault = kinds.build(lab, self.kind, self.resolve(lab), self.settings)
        return Injection(fault, History(lab.history_path), self.facts)

    def write(self) -> None:
        """Puts it into its file, which keeps its lock."""
        text = json.dumps(asdict(self)) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, text.encode())
            os.ftruncate(descriptor, len(text.encode()))
        finally:
            os.close(descriptor)


def active() -> tuple[Active, ...]:
    """All faults in force, the oldest first."""
    found = []
    for file in FOLDER.glob("*.json"):
        # gone meanwhile, or just made and still empty
        with suppress(FileNotFoundError, ValueError):
            found.append(Active(**json.loads(file.read_text(encoding="utf-8"))))
    return tuple(sorted(found, key=lambda one: one.since_ns))


class _BusyError(RackgateError):
    """Another command has the lock of a fault."""


@contextmanager
def _owned(one: Active) -> Iterator[None]:
    """Holds the lock of a fault.

    Raises:
        RackgateError: another command has it.
    """
    FOLDER.mkdir(exist_ok=True)
    descriptor = os.open(one.path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _BusyError(f"{one.text}: another command injects, holds or heals it just now") from error
        yield
    finally:
        os.close(descriptor)


def _refuse_overlap(lab: Lab, target: Target) -> None:
    for other in active():
        if set(other.resolve(lab).nodes) & set(target.nodes):
            raise RackgateError(f"{target}: {other.text} is in force: heal that first")


@contextmanager
def injected(lab: Lab, wanted: Active, *, stays: bool) -> Iterator[Active]:
    """Injects a fault; after the body it is healed, or stays for somebody else to heal.

    Raises:
        RackgateError: another one is in force there, or it did not take hold, last or heal.
    """
    _refuse_overlap(lab, wanted.resolve(lab))
    injection = wanted.injection(lab)
    with _owned(wanted):
        # Written first: whatever becomes of us from here on, it will be healed.
        wanted.write()
        try:
            injection.inject()
        except BaseException:
            wanted.path.unlink()
            raise
        now = replace(wanted, facts=dict(injection.facts))
        now.write()
        try:
            yield now
        except BaseException as error:
            injection.abandon(error)
            now.path.unlink()
            raise
        if not stays:
            try:
                injection.heal()
            finally:
                now.path.unlink()


def heal(lab: Lab, nodes: Sequence[str]) -> tuple[Active, ...]:
    """Heals all faults that concern some of the nodes, the latest first; returns them.

    Raises:
        RackgateError: one had not lasted, or does not heal.
    """
    healed = []
    for one in reversed(active()):
        if {node.name for node in one.resolve(lab).nodes} & set(nodes):
            with _owned(one):
                try:
                    one.injection(lab).heal()
                finally:
                    one.path.unlink()
            healed.append(one)
    return tuple(healed)


def heal_orphans(lab: Lab) -> None:
    """Heals the faults whose time is over and whose command is gone; what fails is kept, with the reason."""
    for one in active():
        if one.failed or one.until_ns is None or time.monotonic_ns() < one.until_ns:
            continue
        try:
            with _owned(one):
                one.injection(lab).heal()
                one.path.unlink()
        except _BusyError:
            continue
        except RackgateError as error:
            replace(one, failed=str(error)).write()
            sys.stderr.write(f"{one.text}: {error}\n")
