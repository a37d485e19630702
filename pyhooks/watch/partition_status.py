"""Verdict on a partition in one line: whether it accepts writes with acks=all, and what limits its redundancy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyhooks.kafka import gate

Level = Literal["down", "unknown", "risk", "warn", "ok"]
Motion = Literal["moving", "back", "frozen", "still", "unknown"]
# Records always wait for the followers' next fetch, but never this long unless replication stalls.
STALLED_S = 2.0


@dataclass(frozen=True)
class PartitionFacts:
    """Input of a verdict; None means unknown unless stated otherwise.

    Attributes:
        leader: broker id, -1 without a leader.
        leader_state: state of that broker.
        isr: broker ids.
        replicas: broker ids.
        isr_racks: number of racks in the ISR.
        placed_racks: number of racks of all replicas.
        isr_rack_names: names of the ISR's racks.
        isr_decision: the gate's decision for the ISR with the requirements in force; it counts only known racks.
        replicas_decision: the same for all replicas; None also if the rack of a replica is unknown.
        racks_enforced: whether an R above 1 is in force.
        ignored_racks: R above 1 that is set but not in force, capped by the number of replicas; None if there is none.
        motion: motion of the high watermark.
        still_s: seconds since the high watermark last moved.
        waiting_records: number of records between high watermark and log end.
        acked_while_short: whether clients got acknowledgements between two observations of too small an ISR, and the
            ISR is still too small.
        leader_racks: number of racks in the ISR according to the leader, if it has differed for several observations;
            else None.
    """

    leader: int | None
    leader_state: str
    isr: tuple[int, ...] | None
    replicas: tuple[int, ...]
    isr_racks: int | None
    placed_racks: int | None
    isr_rack_names: tuple[str, ...]
    isr_decision: gate.GateDecision | None
    replicas_decision: gate.GateDecision | None
    racks_enforced: bool | None
    ignored_racks: int | None
    motion: Motion
    still_s: float | None
    waiting_records: int | None
    acked_while_short: bool
    leader_racks: int | None


def judge(facts: PartitionFacts) -> tuple[Level, str]:
    """Return the severity of a partition's state and its reason."""
    level, why = _judge(facts)
    if facts.ignored_racks is None or level in ("unknown", "down"):
        return level, why
    note = f"R={facts.ignored_racks} is not enforced"
    return ("warn", note) if level == "ok" else (level, f"{why}, {note}")


def _judge(facts: PartitionFacts) -> tuple[Level, str]:
    if facts.leader is None or facts.isr is None:
        return "unknown", "not observed"
    if facts.leader < 0:
        return "down", "offline: no leader"
    if facts.leader_state in ("down", "paused", "gone", "fenced"):
        return "down", f"offline: leader {facts.leader} is {facts.leader_state}"
    if facts.leader_state == "mute":
        return "unknown", f"leader {facts.leader} does not answer"
    if facts.isr_decision is None:
        return "unknown", "its min.insync settings are not known"
    refusal = _refusal(facts, facts.isr_decision)
    if refusal is not None:
        return refusal
    if facts.motion == "back":
        return "risk", "high watermark went back"
    if facts.motion == "frozen" and facts.waiting_records and (facts.still_s or 0) >= STALLED_S:
        return (
            "down",
            f"stalled: {facts.waiting_records} {'record waits' if facts.waiting_records == 1 else 'records wait'}",
        )
    return _writable(facts, facts.isr_decision)


def _refusal(facts: PartitionFacts, now: gate.GateDecision) -> tuple[Level, str] | None:
    """Return the verdict on an ISR that is too small; None if it is large enough."""
    missing: list[str] = []
    if now.need_racks > 1 and facts.isr_racks is None:
        return "unknown", "the rack of a replica is not known"
    if not now.enough_racks:
        short = f"{len(now.racks)} of {now.need_racks} racks"
        if facts.racks_enforced is None:
            if now.enough_replicas:
                return "unknown", f"{short}, not known if enforced"
        else:
            missing.append(short)
            if facts.replicas_decision is not None and not facts.replicas_decision.enough_racks:
                return "down", f"refusing: placed in {len(facts.replicas_decision.racks)} of {now.need_racks} racks"
    if not now.enough_replicas:
        missing.append(f"{now.replicas} of {now.need_replicas} replicas")
    if not missing:
        return None
    if facts.acked_while_short:
        # the gate has a bug, or the metadata is far behind
        return "risk", f"ACKED with {', '.join(missing)}"
    return "down", f"refusing: {', '.join(missing)}"


def _writable(facts: PartitionFacts, now: gate.GateDecision) -> tuple[Level, str]:
    """Return the verdict on a partition that accepts writes: what limits its redundancy, if anything."""
    copies, in_sync, racks = len(facts.replicas), now.replicas, now.need_racks
    if facts.leader_racks is not None:
        return "warn", f"leader counts {facts.leader_racks} racks"
    alone = facts.isr_racks is not None and facts.isr_racks <= 1 < (facts.placed_racks or 0)
    if racks <= 1 and alone:
        if not facts.isr_rack_names:
            return "risk", "brokers without a rack alone ack"
        return "risk", f"rack {facts.isr_rack_names[0]} alone acks"
    if in_sync < copies:
        tight = racks > 1 and facts.isr_racks == racks
        return "warn", f"{in_sync} of {copies} in sync{', no rack to spare' if tight else ''}"
    if racks > 1 and facts.isr_racks == racks:
        return "ok", "ok, no rack to spare"
    return "ok", "ok"
