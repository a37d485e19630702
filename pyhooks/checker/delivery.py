"""Is every acknowledged record there after the heal, and no surely refused one?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pyhooks.checker.verdict import Verdict
from pyhooks.history import Event


def check_delivery(events: Sequence[Event]) -> Verdict:
    """Compares produce events with the final read.

    A produce event (op ``produce``) names its record by ``data`` ``{topic, key}``; the final read is one event of
    op ``read`` for each topic, with all keys in the order of offsets in ``data`` ``{topic, keys}``. Outcome
    ``fail`` is a sure refusal; ``unknown`` records may be there or not. Where the produce event tells the ``value`` of
    an acknowledged record and the read has ``values`` beside its keys, they must be equal.

    Without a final read of a topic that has acknowledged records, or without any acknowledged record, the verdict
    is unknown.
    """
    wrong: list[str] = []
    read: dict[str, Counter[str]] = {}
    values: dict[tuple[str, str], object] = {}
    for event in events:
        if event.op == "read":
            topic, keys = str(event.data["topic"]), list(map(str, event.data["keys"]))
            read[topic] = Counter(keys)
            values |= {(topic, key): value for key, value in zip(keys, event.data.get("values", ()), strict=False)}
    produced = [event for event in events if event.op == "produce"]
    acked = _keys(produced, "ok")
    missing = [f"{topic}: no final read" for topic in sorted({topic for topic, _ in acked} - set(read))]
    if not acked:
        missing.append("no acknowledged record in the history")
    present = {(topic, key) for topic, keys in read.items() for key in keys}
    lost = sorted(pair for pair in acked - present if pair[0] in read)
    wrong += [f"{topic}: acknowledged record {key} is lost" for topic, key in lost]
    for event in produced:
        name = (str(event.data["topic"]), str(event.data["key"]))
        if (
            event.outcome == "ok"
            and "value" in event.data
            and values.get(name, event.data["value"]) != event.data["value"]
        ):
            wrong.append(f"{name[0]}: record {name[1]} was read with another value")
    ghosts = sorted(_keys(produced, "fail") & present)
    wrong += [f"{topic}: refused record {key} was read" for topic, key in ghosts]
    known = _keys(produced, "ok") | _keys(produced, "fail") | _keys(produced, "unknown")
    wrong += [f"{topic}: record {key} was read but never produced" for topic, key in sorted(present - known)]
    wrong += [
        f"{topic}: record {key} was read {count} times"
        for topic, keys in sorted(read.items())
        for key, count in sorted(keys.items())
        if count > 1
    ]
    return Verdict.of("delivery", wrong=wrong, missing=missing)


def _keys(events: Iterable[Event], outcome: str) -> set[tuple[str, str]]:
    return {(str(event.data["topic"]), str(event.data["key"])) for event in events if event.outcome == outcome}
