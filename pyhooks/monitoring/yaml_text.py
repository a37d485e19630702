"""Writer of YAML: mappings, lists, strings, numbers and booleans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Strings that every version of YAML reads as strings without quotes.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*([.-][A-Za-z0-9_]+)*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def yaml_text(value: Any, comment: str = "") -> str:
    """Return a value as a YAML document that ends with a newline, below the lines of a comment.

    Args:
        value: mappings, lists, strings, numbers and booleans; keys are strings.
        comment: text above it.

    Raises:
        ValueError: a string has a line break.
    """
    head = [f"# {line}".rstrip() for line in comment.splitlines()]
    return "\n".join([*head, *_lines(value)]) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{_scalar(key)}:", item)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(key: str, value: Any) -> Iterator[str]:
    lines = list(_lines(value))
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence) or not value:
        yield f"{key} {lines[0]}"
    else:
        yield key
        yield from (f"  {line}" for line in lines)


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if "\n" in value:
        raise ValueError(f"{value!r} has a line break")
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    # in single quotes, backslashes of regular expressions need no escape
    return "'" + value.replace("'", "''") + "'"
