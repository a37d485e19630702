"""One line in words on a partition: who can write to it with acks=all, and what stands between it and a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyhooks.watch.observation import Rules

Level = Literal["down", "unknown", "risk", "warn", "ok"]
Motion = Literal["moving", "back", "frozen", "still", "unknown"]
# Records wait for a fetch of the followers all the time; that long they don't.
STALLED_S = 2.0


@dataclass(frozen=True)
class Facts:
    """What a verdict is made from.

    Attributes:
        leader: broker id, -1 without one, None if not known.
        leader_state: of that broker.
        isr: broker ids, None if not known.
        replicas: broker ids.
        isr_racks: how many racks the ISR spans, None if not known.
        placed_racks: how many racks the replicas span, None if not known.
        isr_rack_names: names of the ISR's racks.
        rules: what is required of the ISR as it is in force, None if not known.
        racks_enforced: an R above 1 is in force, None if not known.
        ignored_racks: the R above 1 that is set and not in force, capped by the number of replicas; else None.
        motion: of the high watermark.
        still_s: for how long it has not moved.
        waiting: records between high watermark and log end, None if not known.
        acked_while_short: clients had acknowledgements between two looks at an ISR that was too small at both, and is
            now.
        leader_racks: racks in the ISR by the leader's own count if it has differed for a while, else None.
    """

    leader: int | None
    leader_state: str
    isr: tuple[int, ...] | None
    replicas: tuple[int, ...]
    isr_racks: int | None
    placed_racks: int | None
    isr_rack_names: tuple[str, ...]
    rules: Rules | None
    racks_enforced: bool | None
    ignored_racks: int | None
    motion: Motion
    still_s: float | None
    waiting: int | None
    acked_while_short: bool
    leader_racks: int | None


def judge(facts: Facts) -> tuple[Level, str]:
    """How bad it is, and why."""
    level, why = _judge(facts)
    if facts.ignored_racks is None or level in ("unknown", "down"):
        return level, why
    note = f"R={facts.ignored_racks} is not enforced"
    return ("warn", note) if level == "ok" else (level, f"{why}, {note}")


def _judge(facts: Facts) -> tuple[Level, str]:
    if facts.leader is None or facts.isr is None:
        return "unknown", "not observed"
    if facts.leader < 0:
        return "down", "offline: no leader"
    if facts.leader_state in ("down", "paused", "gone", "fenced"):
        return "down", f"offline: leader {facts.leader} is {facts.leader_state}"
    if facts.leader_state == "mute":
        return "unknown", f"leader {facts.leader} does not answer"
    if facts.rules is None:
        return "unknown", "its min.insync settings are not known"
    refusal = _refusal(facts, facts.rules)
    if refusal is not None:
        return refusal
    if facts.motion == "back":
        return "risk", "high watermark went back"
    if facts.motion == "frozen" and facts.waiting and (facts.still_s or 0) >= STALLED_S:
        return "down", f"stalled: {facts.waiting} {'record waits' if facts.waiting == 1 else 'records wait'}"
    return _writable(facts, facts.rules)


def _refusal(facts: Facts, rules: Rules) -> tuple[Level, str] | None:
    """What an ISR that is too small means, None if it is large enough."""
    copies = len(facts.replicas)
    missing: list[str] = []
    replicas = min(rules.min_replicas, copies)
    too_few = len(facts.isr or ()) < replicas
    racks = min(rules.min_racks, copies) if rules.min_racks is not None else 1
    if racks > 1:
        if facts.isr_racks is None:
            return "unknown", "the rack of a replica is not known"
        if facts.isr_racks < racks and facts.racks_enforced is None:
            if not too_few:
                return "unknown", f"{facts.isr_racks} of {racks} racks, not known if enforced"
        elif facts.isr_racks < racks:
            missing.append(f"{facts.isr_racks} of {racks} racks")
            if facts.placed_racks is not None and facts.placed_racks < racks:
                return "down", f"refusing: placed in {facts.placed_racks} of {racks} racks"
    if too_few:
        missing.append(f"{len(facts.isr or ())} of {replicas} replicas")
    if not missing:
        return None
    if facts.acked_while_short:
        # The gate has a hole, or the metadata is far behind.
        return "risk", f"ACKED with {', '.join(missing)}"
    return "down", f"refusing: {', '.join(missing)}"


def _writable(facts: Facts, rules: Rules) -> tuple[Level, str]:
    """What stands between a partition that takes writes and one that does not, or takes them in one rack."""
    copies, in_sync = len(facts.replicas), len(facts.isr or ())
    racks = min(rules.min_racks, copies) if rules.min_racks is not None else 1
    if facts.leader_racks is not None:
        return "warn", f"leader counts {facts.leader_racks} racks"
    alone = facts.isr_racks == 1 and (facts.placed_racks or 0) > 1
    if racks <= 1 and alone:
        name = facts.isr_rack_names[0] if facts.isr_rack_names else ""
        return "risk", f"rack {name or 'without a name'} alone acks"
    if in_sync < copies:
        tight = racks > 1 and facts.isr_racks == racks
        return "warn", f"{in_sync} of {copies} in sync{', no rack to spare' if tight else ''}"
    if racks > 1 and facts.isr_racks == racks:
        return "ok", "ok, no rack to spare"
    return "ok", "ok"
