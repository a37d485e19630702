"""Under what a run measures: machine, Kafka build, plan, code, settings, versions; it goes on only under the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import machine
from bench.plan import Scenario
from pyhooks import paths

# What is driven and how it is counted, and what brokers are given; texts beside it, and plans, which are compared by
# themselves, may change.
CODE = (
    "bench/**/*.py",
    "pyhooks/**/*.py",
    "pyhooks/**/*.java",
    "pyhooks/cluster/topologies/*.toml",
    "pyhooks/**/*.properties",
)
# So many differences are named, each with so many letters of a value.
NAMED, LETTERS = 4, 40
ABSENT = "nothing"


def code_hash(root: Path = paths.REPO) -> str:
    """SHA-256 of the program's files and their names."""
    found = hashlib.sha256()
    for file in sorted({path for pattern in CODE for path in root.glob(pattern)}):
        for part in (str(file.relative_to(root)).encode(), file.read_bytes()):
            found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def hidden(text: str) -> str:
    """Its SHA-256, for what is compared and must not be read."""
    return hashlib.sha256(text.encode()).hexdigest()


def now(scenario: Scenario, build: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions of a run that begins now, as plain JSON.

    Args:
        scenario: its plan.
        build: of Kafka, such as the hash of a patch series.
        given: what else the command line gave, such as the Spark master.
    """
    versions = machine.versions(None, {})
    found = {
        "machine": machine.describe(),
        "build": build,
        "plan": scenario.as_json(),
        "code": code_hash(),
        "given": dict(given),
        "versions": {name: versions[name] for name in ("python", "spark", "confluent-kafka", "librdkafka", "numpy")},
    }
    return dict(json.loads(json.dumps(found)))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs, each as ``plan.seed: 1290, now 7``, in the order of the names."""
    old, new = dict(_flat("", before)), dict(_flat("", after))
    return [
        f"{name}: {_short(old.get(name, ABSENT))}, now {_short(new.get(name, ABSENT))}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name, ABSENT) != new.get(name, ABSENT)
    ]


def told(found: list[str]) -> str:
    """Differences in one line."""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return "; ".join(found[:NAMED]) + more


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Each plain value with its way into the whole; ways through lists by the members' own ids, or numbers."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), one)
    elif isinstance(value, list) and any(isinstance(one, Mapping | list) for one in value):
        for at, one in enumerate(value):
            own = one.get("id", at) if isinstance(one, Mapping) else at
            yield from _flat(f"{name}.{own}", one)
    else:
        yield name, value


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
