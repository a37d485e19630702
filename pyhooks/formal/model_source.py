"""Parser for the commands of an Alloy model: purpose, bounds and expected result of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_text

MODEL = paths.REPO / "kip" / "formal" / "isr.als"
_COMMAND = re.compile(
    r"^(?P<name>\w+): (?P<kind>check|run)\b(?:(?!^\w+: *(?:check|run)\b).)*?\n?[ }]*\bfor (?P<bounds>[^{}]+?)"
    r" expect (?P<expect>[01])$",
    re.MULTILINE | re.DOTALL,
)
_LABEL = re.compile(r"^(\w+): *(?:check|run)\b", re.MULTILINE)
_COMMENT = re.compile(r"^-- ?", re.MULTILINE)


@dataclass(frozen=True)
class AlloyCommand:
    """Command of a model: a ``check`` or ``run``."""

    name: str
    kind: str  # ``check``, which searches for a counter-example, or ``run``, which searches for an example
    purpose: str  # the comment above it, in one line
    bounds: str  # text after ``for``: the scope of each signature, and ``steps``, the number of states
    expected: bool


def parse_commands(path: Path = MODEL) -> tuple[AlloyCommand, ...]:
    """Return all commands of a model, in the order of the file.

    Raises:
        RackgateError: the file can't be read or has no command, or a command lacks its comment, bounds or ``expect``.
    """
    text = read_text(path, "it is the model")
    parse_commands = []
    for match in _COMMAND.finditer(text):
        purpose = _comment_above(text[: match.start()])
        if not purpose:
            raise RackgateError(f"{path}: command {match['name']} has no comment above it that says what it is for")
        parse_commands.append(
            AlloyCommand(
                match["name"], match["kind"], purpose, " ".join(match["bounds"].split()), match["expect"] == "1"
            )
        )
    labels = _LABEL.findall(text)
    if labels != [command.name for command in parse_commands]:
        malformed = sorted(set(labels) ^ {command.name for command in parse_commands}) or labels
        raise RackgateError(f"{path}: command {malformed[0]} is not as `NAME: check … for … expect 0` (or run, or 1)")
    if not parse_commands:
        raise RackgateError(f"{path}: has no command")
    return tuple(parse_commands)


def select_commands(known: Sequence[AlloyCommand], names: Sequence[str]) -> tuple[AlloyCommand, ...]:
    """Return the commands with the given names, or all if there are no names.

    Raises:
        RackgateError: there is no such command.
    """
    for name in names:
        if all(command.name != name for command in known):
            raise RackgateError(f"no command {name}: there are {', '.join(command.name for command in known)}")
    return tuple(command for command in known if not names or command.name in names)


def _comment_above(text: str) -> str:
    lines: list[str] = []
    for line in reversed(text.splitlines()):
        if not line.startswith("-- "):
            break
        lines.insert(0, _COMMENT.sub("", line))
    return " ".join(lines)
