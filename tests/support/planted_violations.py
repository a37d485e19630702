"""Violations planted in generated histories."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from pyhooks.history.event_log import Event
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory

SEEDS = range(5)


def planted(name: str, events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the history with a violation, with several random victims; it must apply."""
    (violation,) = [one for one in VIOLATIONS if one.name == name]
    history = StoredHistory(events)
    for seed in SEEDS:
        found = violation.plant(history, random.Random(seed))  # noqa: S311 - a seeded plan, not a secret
        assert found is not None, f"{name} does not apply"
        assert found != list(events)
        yield found
