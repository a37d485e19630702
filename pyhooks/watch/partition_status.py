"""Verdict on a partition in one line: whether it accepts writes with acks=all, and what limits its redundancy."""

from __future__ import annotations

from dataclasses import dataclass

from pyhooks.kafka.gate import GateDecision
from pyhooks.watch.states import Level, PartitionSummary

# Records always wait for the followers' next fetch, but never this long unless replication stalls.
STALLED_S = 2.0
# Metadata and metrics are sampled at different times, so they differ while the ISR changes; only this many
# successive differences count.
MISMATCHES_MIN = 3


@dataclass(frozen=True)
class VerdictInput:
    """Input of a verdict; None means unknown unless stated otherwise."""

    partition: PartitionSummary  # its state, without level and verdict
    leader_state: str  # state of the leader's broker
    # the gate's decision for the ISR with the requirements in force; it counts only known racks
    isr_decision: GateDecision | None
    replicas_decision: GateDecision | None  # the same for all replicas; None also if the rack of a replica is unknown
    racks_enforced: bool | None  # whether an R above 1 is in force
    # R above 1 that is set but not in force, capped by the number of replicas; None if there is none
    ignored_racks: int | None
    # whether clients got acknowledgements between two observations of too small an ISR, and the ISR is still too small
    acked_while_short: bool


def judge(state: VerdictInput) -> tuple[Level, str]:
    """Return the severity of a partition's state and its reason."""
    level, reason = _judge(state)
    if state.ignored_racks is None or level in ("unknown", "down"):
        return level, reason
    note = f"R={state.ignored_racks} is not enforced"
    return ("warn", note) if level == "ok" else (level, f"{reason}, {note}")


def _judge(state: VerdictInput) -> tuple[Level, str]:
    observed, watermark = state.partition.observed, state.partition.watermark
    if observed.leader is None or observed.isr is None:
        return "unknown", "not observed"
    if observed.leader < 0:
        return "down", "offline: no leader"
    if state.leader_state in ("down", "paused", "gone", "fenced"):
        return "down", f"offline: leader {observed.leader} is {state.leader_state}"
    if state.leader_state == "mute":
        return "unknown", f"leader {observed.leader} does not respond"
    if state.isr_decision is None:
        return "unknown", "its min.insync settings are not known"
    if rejection := _rejection(state, state.isr_decision):
        return rejection
    if watermark.motion == "back":
        return "risk", "high watermark went back"
    if watermark.motion == "frozen" and (watermark.still_s or 0) >= STALLED_S:
        waiting = (state.partition.log_end or 0) - (observed.high_watermark or 0)
        if None not in (state.partition.log_end, observed.high_watermark) and waiting:
            return "down", f"stalled: {waiting} {'record waits' if waiting == 1 else 'records wait'}"
    return _redundancy(state, state.isr_decision)


def _rejection(state: VerdictInput, decision: GateDecision) -> tuple[Level, str] | None:
    """Return the verdict on an ISR that is too small; None if it is large enough."""
    if decision.need_racks > 1 and state.partition.isr_racks is None:
        return "unknown", "the rack of a replica is not known"
    missing: list[str] = []
    if not decision.enough_racks:
        racks_missing = f"{len(decision.racks)} of {decision.need_racks} racks"
        if state.racks_enforced is None:
            if decision.enough_replicas:
                return "unknown", f"{racks_missing}, not known if enforced"
        else:
            missing.append(racks_missing)
            if state.replicas_decision is not None and not state.replicas_decision.enough_racks:
                placed_racks = len(state.replicas_decision.racks)
                return "down", f"rejects: placed in {placed_racks} of {decision.need_racks} racks"
    if not decision.enough_replicas:
        missing.append(f"{decision.replicas} of {decision.need_replicas} replicas")
    if not missing:
        return None
    if state.acked_while_short:
        # the gate has a bug, or the metadata is far behind
        return "risk", f"ACKED with {', '.join(missing)}"
    return "down", f"rejects: {', '.join(missing)}"


def _redundancy(state: VerdictInput, decision: GateDecision) -> tuple[Level, str]:
    """Return the verdict on a partition that accepts writes: what limits its redundancy, if anything."""
    partition, replicas = state.partition, len(state.partition.observed.replicas)
    if partition.mismatches >= MISMATCHES_MIN:
        return "warn", f"leader counts {partition.leader_isr_racks} racks"
    if decision.need_racks <= 1 and partition.isr_racks is not None:
        placed_racks = len(state.replicas_decision.racks) if state.replicas_decision is not None else 0
        if partition.isr_racks <= 1 < placed_racks:
            return (
                "risk",
                f"rack {min(decision.racks)} alone acks" if decision.racks else "brokers without a rack alone ack",
            )
    tight = ", no rack to spare" * (decision.need_racks > 1 and partition.isr_racks == decision.need_racks)
    if decision.replicas < replicas:
        return "warn", f"{decision.replicas} of {replicas} in sync{tight}"
    return "ok", f"ok{tight}"
