"""Conditions of a run: machine, Kafka build, plan, code, settings, versions. A run continues only if they are equal."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import machine
from bench.plan.scenario import Scenario
from pyhooks.core import paths, private_files
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_text
from pyhooks.core.locks import hold_lock
from pyhooks.lab import kafka_process

# Files that determine what is driven, how it is counted and how brokers are configured. Documents may change; plans are
# compared separately.
CODE = (
    "bench/**/*.py",
    "pyhooks/**/*.py",
    "pyhooks/**/*.java",
    "pyhooks/lab/topologies/*.toml",
    "pyhooks/**/*.properties",
)
# Limits of a message: differences that are named, and characters of each value.
MAX_NAMED, MAX_CHARACTERS = 4, 40
ABSENT = "nothing"
STATE_VARIABLE = "XDG_STATE_HOME"
ADVICE = f"set {STATE_VARIABLE} to a folder that only you can write"
KEY_BYTES = 32
_CREATION_S = 10.0
# result of Key.hide: the key's id and the hash
_HIDDEN = re.compile(r"hmac-sha256:([0-9a-f]{16}):[0-9a-f]{64}")


def code_hash(root: Path = paths.REPO) -> str:
    """Return the SHA-256 of the program's files and their names."""
    digest = hashlib.sha256()
    for file in sorted({path for pattern in CODE for path in root.glob(pattern)}):
        for part in (str(file.relative_to(root)).encode(), file.read_bytes()):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


@dataclass(frozen=True)
class HashKey:
    """Secret key of this user for hashing secrets before they are written into results.

    A plain hash could be checked against guesses. With this key, which is never published, a hash shows only whether
    two runs of the same user had the same secret.
    """

    value: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Identifier of the key, from which the key can't be derived."""
        return self._hash(b"id")[:16]

    def hide(self, name: str, secret: bytes) -> str:
        """Return the keyed hash of a secret; equal secrets of settings with other names have other hashes."""
        digest = self._hash(name.encode() + b"\0" + secret)
        return f"hmac-sha256:{self.id}:{digest}"

    def _hash(self, data: bytes) -> str:
        return hmac.new(self.value, data, "sha256").hexdigest()


def key_file() -> Path:
    """Return the file of this user's key."""
    folder = os.environ.get(STATE_VARIABLE)
    try:
        base = Path(folder) if folder else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise RackgateError(f"this user has no home folder for the key for hashes of secrets: {ADVICE}") from error
    return base / "rackgate" / "secrets.key"


def user_key(published: Path) -> HashKey:
    """Return this user's key; create it at the first use. The folder of results, ``published``, must not contain it.

    Raises:
        RackgateError: the key's file is damaged, in ``published``, or another user could read or create it.
    """
    path = key_file()
    file = private_files.make_folder(path.parent, ADVICE) / path.name
    if file.is_relative_to(published.resolve()):
        raise RackgateError(f"{file}: the key for hashes of secrets would be in the folder of results; {ADVICE}")
    if not file.exists():
        # of runs that start at the same time, one creates the key
        taken = f"{file}: another run creates it; try again"
        with hold_lock(file.with_suffix(".lock"), taken=taken, patience_s=_CREATION_S):
            if not file.exists():
                write_text(file, secrets.token_hex(KEY_BYTES) + "\n", mode=0o600)
    try:
        text = private_files.read_file(file, "delete it", forbidden=private_files.OTHERS_ANY)
    except FileNotFoundError as error:
        raise RackgateError(f"{file}: was deleted while it was read") from error
    if not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}\n", text):
        raise RackgateError(f"{file}: not a key; delete it, and restart interrupted runs with --fresh")
    return HashKey(bytes.fromhex(text))


def current_conditions(scenario: Scenario, build: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions of a run that begins now, as plain JSON; ``given``: further command-line values."""
    versions = machine.versions(None, {})
    conditions = {
        "machine": machine.describe_machine(),
        "build": build,
        "plan": scenario.as_json(),
        "code": code_hash(),
        "given": dict(given),
        "performance_options": " ".join(kafka_process.performance_options()),
        "versions": {name: versions[name] for name in ("python", "spark", "confluent-kafka", "librdkafka", "numpy")},
    }
    return dict(json.loads(json.dumps(conditions)))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the differences in the order of their names, each as ``plan.seed: 1290, now 7``."""
    old, new = dict(_flat("", before)), dict(_flat("", after))
    return [
        f"{name}: {_difference(old.get(name, ABSENT), new.get(name, ABSENT))}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name, ABSENT) != new.get(name, ABSENT)
    ]


def _difference(before: Any, after: Any) -> str:
    ids = [match[1] for value in (before, after) if (match := _HIDDEN.fullmatch(str(value)))]
    if len(ids) < 2:
        return f"{_short(before)}, now {_short(after)}"
    if ids[0] == ids[1]:
        return "has another value"
    return f"can't be compared: it was hashed with key {ids[0]}, and the current key is {ids[1]}"


def differences_text(texts: list[str]) -> str:
    """Return differences in one line."""
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return "; ".join(texts[:MAX_NAMED]) + more


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each plain value with its dotted path; members of lists are named by their ids or positions."""
    if isinstance(value, Mapping) and value:
        for key, member in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), member)
    elif isinstance(value, list) and any(isinstance(member, Mapping | list) for member in value):
        for position, member in enumerate(value):
            key = member.get("id", position) if isinstance(member, Mapping) else position
            yield from _flat(f"{name}.{key}", member)
    else:
        yield name, value


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
