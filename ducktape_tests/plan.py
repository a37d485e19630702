"""Which system tests there are, by ``suite.toml``: what belongs to a selection, on which topology, for how long.

The list and the tests must agree: what is listed exists, and what exists is listed, so that no test is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ducktape_tests.finding import TESTS, Found, find
from pyhooks.checkers.registry import CHECKERS
from pyhooks.core import toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table
from pyhooks.lab import topology

SUITE = Path(__file__).parent / "suite.toml"
# of a folder; file systems take 255
LONGEST_NAME = 120
SELECTIONS = ("smoke", "system", "long", "load")
# what a selection may take on 2 cores with two labs at a time, in minutes; a run tells whether it did
BARS_MIN: Mapping[str, float] = {"smoke": 8, "system": 40}
JOBS_OF_BARS = 2
_ID = re.compile(r"(?P<name>\w+_test\.py::\w+\.\w+)(?:@(?P<args>\{.*\}))?")
_PART = re.compile(r"\w+_test\.py(::\w+)?")


@dataclass(frozen=True)
class Listed:
    """A test of the suite.

    Attributes:
        id: ``file.py::Class.method``, with ``@{"name": value}`` behind it if it is about one set of parameters.
        topology: of its cluster.
        minutes: what it is expected to take, all sets of its parameters together.
        selections: where it belongs to.
        alone: no other test may run on the machine beside it.
        finds: checkers that must find something wrong: it is a control.
        settings: ducktape's globals for it.
    """

    id: str
    topology: str
    minutes: float
    selections: tuple[str, ...]
    alone: bool = False
    finds: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """Its id without parameters."""
        return self.id.partition("@")[0]

    @property
    def file(self) -> str:
        """The module that it is in."""
        return self.id.partition("::")[0]

    @property
    def folder(self) -> str:
        """A name for its files, which no other test of a run has."""
        name = re.sub(r"[^\w=.-]+", ".", self.id.replace("_test.py::", ".").replace('"', "")).strip(".")
        if len(name) <= LONGEST_NAME:
            return name
        return f"{name[:LONGEST_NAME]}.{hashlib.sha256(self.id.encode()).hexdigest()[:8]}"


def read(path: Path = SUITE) -> tuple[Listed, ...]:
    """The tests of a suite, in the order of the file.

    Raises:
        RackgateError: says which table is wrong, and why.
    """
    top = Table(toml_config.read(path, "it lists the system tests"), path)
    found = tuple(map(_listed, top.tables("test")))
    top.done()
    taken: set[tuple[str, str]] = set()
    for one in found:
        for selection in one.selections:
            if (one.id, selection) in taken:
                raise RackgateError(f"{path}: {one.id} is listed twice in {selection}")
            taken.add((one.id, selection))
    return found


def _listed(table: Table) -> Listed:
    one = Listed(
        id=table.text("id"),
        topology=table.text("topology"),
        minutes=table.number("minutes", 0.01),
        selections=table.words("selections", SELECTIONS),
        alone=table.flag("alone", False),
        finds=table.words("finds", tuple(CHECKERS), ()),
        settings=table.table("settings", {}).rest(),
    )
    if not _ID.fullmatch(one.id):
        raise table.wrong("id", "must be file_test.py::Class.method")
    _parameters(one.id)
    try:
        topology.find(one.topology)
    except RackgateError as error:
        raise table.wrong("topology", str(error)) from error
    return one


def _parameters(test_id: str) -> None:
    """Refuses parameters that are not JSON.

    Raises:
        RackgateError: they are not.
    """
    _, _, text = test_id.partition("@")
    try:
        if text:
            json.loads(text)
    except ValueError as error:
        raise RackgateError(f"{test_id}: what follows @ is not JSON: {error}") from error


def check(suite: Sequence[Listed], found: Sequence[Found], path: Path = SUITE) -> None:
    """List and tests must agree.

    Raises:
        RackgateError: a listed test does not exist or is on another topology, or one that exists is not listed.
    """
    by_name = {one.id: one for one in found}
    for listed in suite:
        own = by_name.get(listed.name)
        if own is None:
            raise RackgateError(f"{path}: {listed.name}: there is no such test")
        if own.topology is not None and own.topology != listed.topology:
            raise RackgateError(f"{path}: {listed.name}: runs on {own.topology}, and not on {listed.topology}")
    if unlisted := sorted(set(by_name) - {one.name for one in suite}):
        raise RackgateError(f"{path}: {unlisted[0]} is not listed; add a [[test]] for it")


def load(path: Path = SUITE, tests: Path = TESTS) -> tuple[Listed, ...]:
    """The suite, checked against the tests that there are.

    Raises:
        RackgateError: they do not agree, or the list is wrong.
    """
    suite, found = read(path), find(tests)
    check(suite, found, path)
    return suite


def select(suite: Sequence[Listed], words: Sequence[str]) -> tuple[Listed, ...]:
    """The tests that are meant, each once, in the order of the suite.

    Args:
        suite: all tests.
        words: selections, files, ``file.py::Class``, or ids of tests, also with parameters. Of a test that is listed
            more than once, the first counts, unless it is a selection that names it.

    Raises:
        RackgateError: nothing is called like that.
    """
    chosen: dict[str, Listed] = {}
    for word in words:
        meant = {one.id: one for one in reversed(list(_meant(suite, word)))}
        if not meant and word in SELECTIONS:
            raise RackgateError(f"selection {word!r}: no test belongs to it")
        if not meant:
            raise RackgateError(
                f"{word!r}: neither a selection ({', '.join(SELECTIONS)}) nor a test; 'rackgate system list' shows all"
            )
        chosen = {**meant, **chosen}
    places = {one.name: place for place, one in reversed(list(enumerate(suite)))}
    return tuple(sorted(chosen.values(), key=lambda one: (places[one.name], one.id)))


def _meant(suite: Sequence[Listed], word: str) -> Iterator[Listed]:
    part = _PART.fullmatch(word) is not None
    whole = _ID.fullmatch(word)
    for one in suite:
        if (
            word in one.selections
            or word == one.id
            or (part and (one.file == word or one.name.startswith(f"{word}.")))
            or (whole and not whole["args"] and one.name == word)
        ):
            yield one
        elif whole and whole["args"] and one.id == whole["name"]:
            _parameters(word)
            yield replace(one, id=word)


def bar_min(words: Sequence[str], jobs: int) -> float | None:
    """The minutes that a run may take; None if there is no bar for it.

    Args:
        words: what was asked for.
        jobs: how many at a time.
    """
    return BARS_MIN.get(words[0]) if len(words) == 1 and jobs == JOBS_OF_BARS else None


def next_up(waiting: Sequence[Listed], running: Sequence[Listed], jobs: int) -> Listed | None:
    """The test that may begin now: the longest; those that must be alone come last, one by one."""
    if len(running) >= jobs or any(one.alone for one in running):
        return None
    together = [one for one in waiting if not one.alone]
    if together:
        return max(together, key=lambda one: one.minutes)
    alone = [one for one in waiting if one.alone]
    return max(alone, key=lambda one: one.minutes) if alone and not running else None


def estimate(tests: Sequence[Listed], jobs: int, running: Mapping[Listed, float] | None = None) -> float:
    """Minutes that tests will take with so many at a time.

    Args:
        tests: those that wait.
        jobs: how many run at a time.
        running: those that run, with the minutes that each has still to go.
    """
    waiting = list(tests)
    ends = [(minutes, one) for one, minutes in (running or {}).items()]
    now = 0.0
    while waiting or ends:
        while (one := next_up(waiting, [other for _, other in ends], jobs)) is not None:
            waiting.remove(one)
            ends.append((now + one.minutes, one))
        first = min(ends, key=lambda end: end[0])
        ends.remove(first)
        now = max(now, first[0])
    return now
