"""Placement of a partition's replicas: how many are in each rack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyhooks.core.errors import RackgateError

MAX_REPLICAS = 12
_ENTRY = re.compile(r"([A-Za-z0-9._-]+)(?::(\d{1,6}))?")


@dataclass(frozen=True)
class Placement:
    """Replicas of one partition by rack; each is on its own broker, and those in one rack are interchangeable."""

    # rack names, sorted. Every broker has a rack here; the gate would not count a broker without one
    racks: tuple[str, ...]
    counts: tuple[int, ...]  # number of replicas in each of these racks, at least 1

    @staticmethod
    def of(counts: Mapping[str, int]) -> Placement:
        """Return the placement with these numbers of replicas by rack; racks without replicas are left out."""
        used = sorted((rack, count) for rack, count in counts.items() if count)
        return Placement(tuple(rack for rack, _ in used), tuple(count for _, count in used))

    @property
    def replicas(self) -> int:
        """Replication factor."""
        return sum(self.counts)

    @property
    def unevenness(self) -> int:
        """Sum of the squared counts: the lower, the more evenly the replicas are spread over racks."""
        return sum(count * count for count in self.counts)

    def __str__(self) -> str:
        return " ".join(rack for rack, count in zip(self.racks, self.counts, strict=True) for _ in range(count))


def parse_racks(text: str, option: str) -> dict[str, int]:
    """Parse racks written as ``a,a,b`` or ``a:2,b`` and return the count of each rack.

    Raises:
        RackgateError: the text has another form, or a rack has the count 0.
    """
    counts: dict[str, int] = {}
    for entry in text.split(","):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise RackgateError(f"{option} {text}: {entry.strip()!r} is no rack: expected a:2,b:1 or a,a,b")
        count = int(match[2] or 1)
        if count < 1:
            raise RackgateError(f"{option} {text}: rack {match[1]} has none: leave it out, or give it 1 or more")
        counts[match[1]] = counts.get(match[1], 0) + count
    return counts


def parse_placement(text: str, option: str, brokers_by_rack: Mapping[str, int] | None = None) -> Placement:
    """Parse a placement written as ``a,a,b`` or ``a:2,b``; ``option`` is named in errors.

    Raises:
        RackgateError: the text has another form, has more than 12 replicas, or the racks have too few brokers for it.
    """
    placement = Placement.of(parse_racks(text, option))
    if placement.replicas > MAX_REPLICAS:
        raise RackgateError(f"{option} {text}: {placement.replicas} replicas: at most {MAX_REPLICAS}")
    for rack, count in zip(placement.racks, placement.counts, strict=True):
        if brokers_by_rack is not None and rack not in brokers_by_rack:
            raise RackgateError(
                f"{option} {text}: there is no rack {rack}: --racks has {', '.join(sorted(brokers_by_rack))}"
            )
        if brokers_by_rack is not None and count > brokers_by_rack[rack]:
            raise RackgateError(
                f"{option} {text}: {count} replicas in rack {rack}, which has {brokers_by_rack[rack]} brokers"
            )
    return placement


def distinct_placements(brokers_by_rack: Mapping[str, int], replicas: int) -> list[Placement]:
    """Return all placements that differ in their replica counts, the most even one first.

    Racks are interchangeable, so only the counts matter. Of ``a a b`` and ``a b b`` only one is returned, with the most
    replicas in the racks with the most brokers.

    Args:
        brokers_by_rack: number of brokers by rack.
        replicas: the replication factor.

    Returns:
        The placements; empty if there are too few brokers.
    """
    racks = sorted(brokers_by_rack, key=lambda rack: (-brokers_by_rack[rack], rack))
    sizes = [brokers_by_rack[rack] for rack in racks]
    placements = [
        Placement.of(dict(zip(racks, parts, strict=False))) for parts in _descending(replicas, sizes, replicas)
    ]
    return sorted(placements, key=lambda placement: (placement.unevenness, sorted(placement.counts, reverse=True)))


def _descending(replicas: int, sizes: list[int], largest: int) -> Iterator[tuple[int, ...]]:
    """Yield the partitions of the integer ``replicas`` into non-increasing parts, the nth at most ``sizes[n]``."""
    if replicas == 0:
        yield ()
        return
    if not sizes:
        return
    for part in range(min(replicas, sizes[0], largest), 0, -1):
        for smaller_parts in _descending(replicas - part, sizes[1:], part):
            yield (part, *smaller_parts)
