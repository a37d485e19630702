"""Recorded histories of real brokers against the rule by which the simulation says what acks=all meets.

A history is cut into stretches in which looks showed the same leader and ISR, the same was required, and no fault of a
replica began or ended. Of each the rule (``pyhooks.simulation.machine_script.met``) says what acks=all meets; the
outcomes of the producers that began and ended within it say what it met. Those of the first ``SETTLE_S`` and the last
``LAG_S`` of a stretch are left out, since leaders know of a change earlier or later than who looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pyhooks.checkers import cluster_view
from pyhooks.checkers.cluster_view import Fault, Look, Settings
from pyhooks.checkers.record_view import Attempt, Place, Records
from pyhooks.checkers.settling_times import LAG_S, NS, SETTLE_S, attempts_of, stretches
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import TOO_FEW
from pyhooks.kafka import gate
from pyhooks.placement.replica_placement import MAX_REPLICAS
from pyhooks.simulation.machine_script import Status, met, racks_of_sets, tables

AGREES, CONTRADICTS, UNKNOWN = "agrees", "contradicts", "unknown"
ONE_RACK_ALONE = "taken by one rack alone"
WORDS = {
    Status.TAKEN: "taken",
    Status.WAITS: "waits",
    Status.NOBODY: "nobody is there",
    Status.HOLDER: "nobody may lead",
    Status.REPLICAS: "refused for want of replicas",
    Status.RACKS: "refused for want of racks",
}
REFUSED = (WORDS[Status.REPLICAS], WORDS[Status.RACKS])
# Faults under which a broker does not answer; under others, such as slow links, nobody knows.
_AWAY = ("kill", "stop", "pause", "cut", "wipe")
_RACKS_ERROR = "NotEnoughRacks"


@dataclass(frozen=True)
class Stretch:
    """A stretch of time in which a partition was the same.

    Attributes:
        topic: of the partition.
        partition: its number.
        from_s: when it began, in seconds from the history's first event.
        to_s: when it ended.
        isr_racks: the racks of the ISR's members.
        says: what the rule says acks=all meets, one of ``WORDS`` or ``ONE_RACK_ALONE``; empty if it cannot say.
        acked: records that were sent and acknowledged within it.
        refused: records that were sent and refused within it, for want of replicas or racks.
        refused_for_racks: those of them whose error says that racks are missing.
        verdict: ``agrees``, ``contradicts`` or ``unknown``.
        because: why it is not ``agrees``.
    """

    topic: str
    partition: int
    from_s: float
    to_s: float
    isr_racks: tuple[str, ...]
    says: str
    acked: int = 0
    refused: int = 0
    refused_for_racks: int = 0
    verdict: str = UNKNOWN
    because: str = ""


def replay(events: Sequence[Event]) -> tuple[Stretch, ...]:
    """All stretches of a history, by partition, in the order of time.

    Raises:
        RackgateError: nobody looked at a partition, or one has more replicas than the model takes.
    """
    looks = cluster_view.looks(events)
    if not looks:
        raise RackgateError("the history has no look at a partition, so there is nothing to replay")
    settings, faults, attempts = Settings(events), cluster_view.faults(events), attempts_of(Records(events))
    start_ns = min(event.mono_ns for event in events if event.mono_ns > 0)
    return tuple(
        _judged(place, piece, attempts.get(place, ()), start_ns)
        for place, seen in sorted(looks.items())
        for piece in _pieces(place, seen, settings, faults)
    )


def counts(found: Iterable[Stretch]) -> dict[str, dict[str, int]]:
    """How many stretches agree, contradict and are unknown, for each word of the rule; ``""`` where it cannot say."""
    told: dict[str, dict[str, int]] = {}
    for one in found:
        row = told.setdefault(one.says, dict.fromkeys((AGREES, CONTRADICTS, UNKNOWN), 0))
        row[one.verdict] += 1
    return told


@dataclass(frozen=True)
class _Piece:
    from_ns: int
    to_ns: int
    look: Look
    says: str
    because: str = ""


def _pieces(place: Place, seen: Sequence[Look], settings: Settings, faults: Sequence[Fault]) -> Iterator[_Piece]:
    steps = {
        at_ns
        for fault in faults
        for at_ns in (fault.inject_ns, fault.proved_ns, fault.heal_ns, fault.healed_ns)
        if at_ns is not None
    }
    for stretch in stretches(seen, faults):
        look, from_ns, to_ns = stretch[0], stretch[0].at_ns, stretch[-1].since_ns
        edges = {at_ns for at_ns in {*settings.edges(place[0]), *steps} if from_ns < at_ns < to_ns}
        for begin_ns, end_ns in pairwise(sorted({from_ns, to_ns} | edges)):
            yield _said(place, _Piece(begin_ns, end_ns, look, ""), settings, faults)


def _said(place: Place, piece: _Piece, settings: Settings, faults: Sequence[Fault]) -> _Piece:
    """With what the rule says of the state, or why it cannot say anything."""
    look, size = piece.look, len(piece.look.replicas)
    wanted = settings.possible(place[0], piece.from_ns + 1, piece.to_ns - 1)
    there = [_there(broker, piece, faults) for broker in look.replicas]
    if not size or any(broker not in look.racks for broker in look.replicas):
        return replace(piece, because="its replicas and their racks are not known")
    if size > MAX_REPLICAS:
        raise RackgateError(f"{place[0]}-{place[1]}: {size} replicas, the model takes up to {MAX_REPLICAS}")
    if len(wanted) != 1:
        return replace(piece, because="M and R are not known, or are being changed")
    if None in there:
        return replace(
            piece, because="a fault of a replica takes hold or is healed, or is of a kind that tells nothing"
        )
    (need,) = (one.effective(look) for one in wanted)
    names = sorted({look.racks[broker] for broker in look.replicas})
    pattern = [names.index(look.racks[broker]) for broker in look.replicas]
    slots = {broker: slot for slot, broker in enumerate(look.replicas)}

    def bits(brokers: Iterable[int]) -> int:
        return sum(1 << slots[broker] for broker in brokers)

    isr = bits(look.isr)
    racks = racks_of_sets([pattern])
    (status,) = met(
        leader=np.array([slots.get(look.leader, -1)]),
        isr=np.array([isr]),
        up=np.array([bits(broker for broker, up in zip(look.replicas, there, strict=True) if up)]),
        slow=np.zeros(1, dtype=np.int64),
        pattern=np.zeros(1, dtype=np.int64),
        need_m=np.array([need.replicas]),
        need_r=np.array([need.racks]),
        count=tables(size)[1],
        racks=racks,
    )
    alone = status == Status.TAKEN and racks[0, isr] == 1
    return replace(piece, says=ONE_RACK_ALONE if alone else WORDS[Status(status)])


def _there(broker: int, piece: _Piece, faults: Sequence[Fault]) -> bool | None:
    """Whether a broker was there all through a piece; None if nobody knows."""
    for fault in faults:
        over_ns = fault.healed_ns
        if not fault.hits(broker, piece.look.racks) or fault.inject_ns >= piece.to_ns:
            continue
        if over_ns is not None and over_ns <= piece.from_ns:
            continue
        # cut off from some alone, it is there for others
        proved = not fault.peers and fault.proved_ns is not None and fault.proved_ns <= piece.from_ns
        if not proved or not fault.op.startswith(_AWAY):
            return None
        return False if fault.heal_ns is None or piece.to_ns <= fault.heal_ns else None
    return True


def _judged(place: Place, piece: _Piece, attempts: Sequence[Attempt], start_ns: int) -> Stretch:
    begin_ns, end_ns = piece.from_ns + round(SETTLE_S * NS), piece.to_ns - round(LAG_S * NS)
    inside = [one for one in attempts if one.sent_ns >= begin_ns and one.done_ns <= end_ns]
    sent = any(begin_ns <= one.sent_ns <= end_ns for one in attempts)
    refused = [one for one in inside if one.exception in TOO_FEW]
    found = Stretch(
        *place,
        from_s=(piece.from_ns - start_ns) / NS,
        to_s=(piece.to_ns - start_ns) / NS,
        isr_racks=tuple(sorted(gate.racks_of(piece.look.isr, piece.look.racks))),
        says=piece.says,
        acked=sum(one.outcome == "ok" for one in inside),
        refused=len(refused),
        refused_for_racks=sum(_RACKS_ERROR in (one.exception or "") for one in refused),
    )
    verdict, because = _verdict(found, sent=sent) if piece.says else (UNKNOWN, piece.because)
    return replace(found, verdict=verdict, because=because)


def _verdict(found: Stretch, *, sent: bool) -> tuple[str, str]:
    if found.says in REFUSED:
        if found.acked:
            return CONTRADICTS, f"{found.acked} records were acknowledged"
        # for want of replicas clients are told, too, that do not know the other error
        if found.says == WORDS[Status.REPLICAS] and found.refused_for_racks:
            return CONTRADICTS, f"{found.refused_for_racks} records were refused for want of racks"
        return (AGREES, "") if found.refused else (UNKNOWN, "nobody was refused in it, and nobody acknowledged")
    if found.says in (WORDS[Status.TAKEN], ONE_RACK_ALONE):
        if found.refused:
            return CONTRADICTS, f"{found.refused} records were refused for want of replicas or racks"
        return (AGREES, "") if found.acked else (UNKNOWN, "nobody was acknowledged in it, and nobody refused")
    if found.acked:
        return CONTRADICTS, f"{found.acked} records were acknowledged"
    return (AGREES, "") if sent else (UNKNOWN, "nobody sent anything in it")
