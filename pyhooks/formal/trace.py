"""Description of a trace in Kafka's terms: brokers by number and rack, and a short text for each step."""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyhooks.core.errors import RackgateError
from pyhooks.formal.instance import ModelState

# Text of each event of the model; {affected} are the affected brokers.
_EVENT_TEXTS: Mapping[str, str] = {
    "Append": "{affected} appends {records}",
    "Fetch": "{affected} fetches",
    "AskToAdd": "leader asks to\nadd {affected}",
    "Add": "controller\nadds {affected}",
    "Reject": "adding {affected}\nfails",
    "Shrink": "{affected} lags, out\nof the ISR",
    "Answer": "{affected} learns of\nthe new ISR",
    "Learn": "{affected} applies\nthe metadata",
    "Begin": "{affected} applies\nthe partition",
    "Kill": "{affected} is killed",
    "Destroy": "{affected} destroyed",
    "Stop": "{affected} stops",
    "Fence": "{affected} is fenced",
    "Register": "{affected} is back",
    "Assign": "new directory\nof {affected} known",
    "Unfence": "{affected} unfenced",
    "Prefer": "{affected} preferred",
    "Alter": "{configs}",
    "Stutter": "nothing",
}
_LEVELS = {"One": "1", "Two": "2", "Three": "3"}


@dataclass(frozen=True)
class TraceReplica:
    """State of a broker and its replica at one step."""

    name: str  # its number and rack, as in ``1a``; ``1?`` if it has no ``broker.rack``
    rack: str  # letter of its physical rack, whether Kafka knows it or not
    log: tuple[int, ...]  # numbers of the records on its disk, from 1, in order
    hw: int  # number of these records below the high watermark known to it
    up: bool
    lost: bool  # whether its disk was destroyed, and it has not registered since
    in_isr: bool
    in_elr: bool
    leads: bool
    thinks_it_leads: bool  # whether it leads according to its own view


@dataclass(frozen=True)
class TraceStep:
    """State of the trace and the event before it."""

    event: str
    kind: str  # name of the event in the model
    affected: tuple[str, ...]
    replicas: tuple[TraceReplica, ...]
    acked: tuple[int, ...]  # numbers of the records acknowledged to a producer with acks=all
    seen: tuple[int, ...]  # numbers of the records that were below the high watermark of a leader at any time
    missing: tuple[int, ...]  # records of ``seen`` that the leader does not have although it runs
    last_known: tuple[str, ...]
    min_racks: str
    min_replicas: str


def steps(states: Sequence[ModelState]) -> tuple[TraceStep, ...]:
    """Return the steps of a trace without those in which nothing happens.

    Raises:
        RackgateError: the trace is of another model.
    """
    racks = _racks(states[0])
    names = _names(states[0], racks)
    steps_made: list[TraceStep] = []
    for number, state in enumerate(states):
        before = states[number - 1] if number else None
        kind = _plain(before.one("Now")) if before else ""
        if kind == "Stutter":
            continue
        steps_made.append(_step(before, state, kind, names, racks))
    return tuple(steps_made)


def _racks(first: ModelState) -> dict[str, str]:
    """Return a letter for each rack with a broker; the rack of the first leader is a."""
    leader = first.lone(first.one("Current"), "leads")
    leader_rack = first.lone(leader, "rack") if leader else None
    atoms = sorted(first.atoms("Rack"), key=lambda atom: (atom != leader_rack, atom))
    used = [atom for atom in atoms if any(first.lone(broker, "rack") == atom for broker in first.atoms("Broker"))]
    return dict(zip(used, string.ascii_lowercase, strict=False))


def _names(first: ModelState, racks: Mapping[str, str]) -> dict[str, str]:
    """Return a name for each broker, numbered by rack, in a rack the first leader first, then ISR members."""
    leader = first.lone(first.one("Current"), "leads")
    isr = first.atoms("Isr")
    letters = {broker: racks[str(first.lone(broker, "rack"))] for broker in first.atoms("Broker")}
    order = sorted(letters, key=lambda broker: (letters[broker], broker != leader, broker not in isr, broker))
    with_rack = first.atoms("Named")
    return {
        broker: f"{number}{letters[broker] if broker in with_rack else '?'}" for number, broker in enumerate(order, 1)
    }


def _step(
    before: ModelState | None, state: ModelState, kind: str, names: Mapping[str, str], racks: Mapping[str, str]
) -> TraceStep:
    leader = state.lone(state.one("Current"), "leads")
    seen = _numbers(state.atoms("Committed"))
    leader_log = _numbers(state.join(leader, "log")) if leader else ()
    runs = leader is not None and leader in state.atoms("Up")
    affected = tuple(sorted(names[broker] for broker in before.atoms("Whom"))) if before else ()
    return TraceStep(
        event=_event(before, state, kind, affected) if before else "",
        kind=kind,
        affected=affected,
        replicas=tuple(_replica(state, broker, names, racks) for broker in names),
        acked=_numbers(state.atoms("Acked")),
        seen=seen,
        missing=tuple(number for number in seen if number not in leader_log) if runs else (),
        last_known=tuple(name for broker, name in names.items() if broker in state.atoms("LastKnown")),
        min_racks=_LEVELS[_plain(state.one("R"))],
        min_replicas=_LEVELS[_plain(state.one("M"))],
    )


def _replica(state: ModelState, broker: str, names: Mapping[str, str], racks: Mapping[str, str]) -> TraceReplica:
    log = _numbers(state.join(broker, "log"))
    view = state.lone(broker, "view")
    up = broker in state.atoms("Up")
    return TraceReplica(
        name=names[broker],
        rack=racks[str(state.lone(broker, "rack"))],
        log=log,
        hw=len(state.join(broker, "hw")),
        up=up,
        lost=broker in state.atoms("Unclean") and not log,
        in_isr=broker in state.atoms("Isr"),
        in_elr=broker in state.atoms("Elr"),
        leads=state.lone(state.one("Current"), "leads") == broker,
        thinks_it_leads=up and view is not None and state.lone(view, "leads") == broker,
    )


def _event(before: ModelState, state: ModelState, kind: str, affected: Collection[str]) -> str:
    if kind not in _EVENT_TEXTS:
        raise RackgateError(f"the instance has an event {kind!r} that pyhooks/formal/trace.py does not know")
    new = sorted(state.atoms("Appended") - before.atoms("Appended"))
    acks = "acks=all" if any(record in state.atoms("AcksAll") for record in new) else "acks=1"
    configs = [
        f"{letter} {_LEVELS[_plain(before.one(letter))]} → {_LEVELS[_plain(state.one(letter))]}"
        for letter in ("R", "M")
        if before.one(letter) != state.one(letter)
    ]
    records = ", ".join(f"r{number}" for number in _numbers(new)) + f"\n({acks})"
    text = _EVENT_TEXTS[kind].format(affected=", ".join(affected), records=records, configs=", ".join(configs))
    return text.replace("fetches", "fetch") if kind == "Fetch" and len(affected) > 1 else text


def _numbers(records: Collection[str]) -> tuple[int, ...]:
    return tuple(sorted(int(record.removeprefix("Record")) + 1 for record in records))


def _plain(atom: str) -> str:
    return atom.rstrip(string.digits)
