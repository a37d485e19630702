"""Question that a cell decides: hypotheses about the replicas a leader waits for, and what each predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

from bench.plan.cluster_states import StateBrokers
from pyhooks.core.toml_config import Table, Text

# The replicas that acks=all waits for: as many as M and R require, or the whole ISR.
AwaitedReplicas = Literal["required", "isr"]
AWAITED: tuple[AwaitedReplicas, ...] = ("required", "isr")


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis about acks=all."""

    id: Text  # short name
    label: Text  # display name, which completes "a leader …"
    awaited: AwaitedReplicas  # the replicas that a leader waits for
    ratio: tuple[float, float]  # lowest and highest ratio of the arm's median to the baseline's that it predicts


@dataclass(frozen=True)
class Question:
    """A question with hypotheses that exclude each other."""

    text: Text
    arm: str  # id of the arm that is compared with the baseline at p50
    # lowest and highest number of round trips to the slowest awaited follower in which a record is replicated: one if
    # the follower's fetch waits at the leader when the record arrives, two if it has just left
    round_trips: tuple[float, float]
    hypotheses: tuple[Hypothesis, ...]


def read_question(table: Table, arms: Sequence[str]) -> Question:
    """Read the question of a cell from its table; ``arms`` are the ids of the candidates.

    Raises:
        RackgateError: a key is missing or unknown, a range is not a lower and an upper end, or there are not two
            hypotheses that predict different ratios.
    """
    hypotheses = tuple(
        row.into(Hypothesis, awaited=row.choice("awaited", AWAITED), ratio=_range(row, "ratio"))
        for row in table.tables("hypotheses")
    )
    ordered = sorted(hypothesis.ratio for hypothesis in hypotheses)
    overlapping = any(low[1] >= high[0] for low, high in pairwise(ordered))
    # the figure has a shape for each of two
    if overlapping or len({hypothesis.id for hypothesis in hypotheses}) != 2 or len(hypotheses) != 2:
        raise table.wrong("hypotheses", "needs two with different ids, and with ratios that don't overlap")
    arm, round_trips = table.choice("arm", tuple(arms)), _range(table, "round_trips")
    return table.into(Question, arm=arm, round_trips=round_trips, hypotheses=hypotheses)


def _range(table: Table, key: str) -> tuple[float, float]:
    ends = table.numbers(key, 0, 1000)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise table.wrong(key, "must be a lower and an upper end")
    return ends[0], ends[1]


def awaited_followers(
    awaited: AwaitedReplicas,
    reached: StateBrokers,
    racks: Mapping[int, str],
    round_trip_ms: Mapping[int, float],
    *,
    min_insync_replicas: int,
    min_insync_racks: int,
) -> tuple[int, ...]:
    """Return the followers that a leader waits for.

    These are all of the ISR ``reached``, whose first broker leads, or the fastest of it that M and R require.
    ``round_trip_ms`` has the round-trip time of each follower to the leader.

    Raises:
        ValueError: the ISR does not fulfil M and R.
    """
    leader, *followers = reached.isr
    if awaited == "isr":
        return tuple(followers)
    for size in range(max(0, min_insync_replicas - 1), len(followers) + 1):
        enough = [
            chosen
            for chosen in combinations(followers, size)
            if len({racks[broker] for broker in (leader, *chosen)}) >= min_insync_racks
        ]
        if enough:
            return min(enough, key=lambda chosen: max((round_trip_ms[broker] for broker in chosen), default=0.0))
    raise ValueError(f"an ISR of {list(reached.isr)} does not fulfil M={min_insync_replicas}, R={min_insync_racks}")
