"""Where the replicas of a partition stand: in which racks, and how many in each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyhooks.core.errors import RackgateError

MAX_REPLICAS = 12
_ENTRY = re.compile(r"([A-Za-z0-9._-]+)(?::(\d{1,6}))?")


@dataclass(frozen=True)
class Placement:
    """The replicas of one partition; each is on a broker of its own, and those of one rack are alike.

    Attributes:
        racks: names, sorted. All brokers have one: the gate counts a broker without a rack for none.
        counts: how many replicas each of them has, at least 1.
    """

    racks: tuple[str, ...]
    counts: tuple[int, ...]

    @staticmethod
    def of(counts: Mapping[str, int]) -> Placement:
        """From how many replicas each rack has; a rack without one is left out."""
        used = sorted((rack, count) for rack, count in counts.items() if count)
        return Placement(tuple(rack for rack, _ in used), tuple(count for _, count in used))

    @property
    def replicas(self) -> int:
        """The replication factor."""
        return sum(self.counts)

    def __str__(self) -> str:
        return " ".join(rack for rack, count in zip(self.racks, self.counts, strict=True) for _ in range(count))


def parse(text: str, option: str) -> dict[str, int]:
    """Racks as a person writes them: ``a,a,b`` or ``a:2,b``.

    Args:
        text: as written.
        option: by which it was given, for the error.

    Raises:
        RackgateError: not of that form, or a rack with none.
    """
    found: dict[str, int] = {}
    for entry in text.split(","):
        written = _ENTRY.fullmatch(entry.strip())
        if written is None:
            raise RackgateError(f"{option} {text}: {entry.strip()!r} is no rack: expected a:2,b:1 or a,a,b")
        count = int(written[2] or 1)
        if count < 1:
            raise RackgateError(f"{option} {text}: rack {written[1]} has none: leave it out, or give it 1 or more")
        found[written[1]] = found.get(written[1], 0) + count
    return found


def placement(text: str, option: str, room: Mapping[str, int] | None = None) -> Placement:
    """A placement as a person writes it.

    Args:
        text: ``a,a,b`` or ``a:2,b``.
        option: by which it was given, for errors.
        room: how many brokers each rack has; None if that is not known.

    Raises:
        RackgateError: not of that form, more than 12 replicas, or no room for it.
    """
    made = Placement.of(parse(text, option))
    if made.replicas > MAX_REPLICAS:
        raise RackgateError(f"{option} {text}: {made.replicas} replicas: at most {MAX_REPLICAS}")
    for rack, count in zip(made.racks, made.counts, strict=True):
        if room is not None and rack not in room:
            raise RackgateError(f"{option} {text}: there is no rack {rack}: --racks has {', '.join(sorted(room))}")
        if room is not None and count > room[rack]:
            raise RackgateError(
                f"{option} {text}: {count} replicas in rack {rack}, which has {room[rack]} brokers: a broker takes one"
            )
    return made


def shapes(room: Mapping[str, int], replicas: int) -> list[Placement]:
    """The placements that differ in how many racks have how many replicas, the evenest first.

    Racks are alike, so only the numbers matter: of ``a a b`` and ``a b b`` there is one, which fills the racks with the
    most brokers first.

    Args:
        room: how many brokers each rack has.
        replicas: the replication factor.

    Returns:
        None where there are too few brokers.
    """
    racks = sorted(room, key=lambda rack: (-room[rack], rack))
    sizes = [room[rack] for rack in racks]
    made = [Placement.of(dict(zip(racks, parts, strict=False))) for parts in _descending(replicas, sizes, replicas)]
    return sorted(made, key=lambda one: (sum(count * count for count in one.counts), sorted(one.counts, reverse=True)))


def _descending(replicas: int, sizes: list[int], most: int) -> Iterator[tuple[int, ...]]:
    """All ways to write ``replicas`` as a sum of parts that do not grow, the nth of which is at most ``sizes[n]``."""
    if replicas == 0:
        yield ()
        return
    if not sizes:
        return
    for part in range(min(replicas, sizes[0], most), 0, -1):
        for rest in _descending(replicas - part, sizes[1:], part):
            yield (part, *rest)
