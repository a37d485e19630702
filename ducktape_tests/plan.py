"""List of system tests in ``suite.toml``: selections, topologies and expected times; and the order to run them.

Every listed test must exist and every existing test must be listed, so that none is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ducktape_tests.discovery import TESTS, DiscoveredTest, discover
from pyhooks.checkers.registry import CHECKERS
from pyhooks.core import toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table, Text, matching
from pyhooks.lab import topology

SUITE = Path(__file__).parent / "suite.toml"
# of a folder; file systems allow 255
MAX_NAME = 120
SELECTIONS = ("smoke", "system", "long", "load", "soak", "soak-long")
# Target time of a selection in minutes, on 2 cores with two labs at a time; a run reports whether it met the target.
TARGETS_MIN: Mapping[str, float] = {"smoke": 8, "system": 40}
TARGET_JOBS = 2
_ID = re.compile(r"(?P<name>\w+_test\.py::\w+\.\w+)(?:@(?P<args>\{.*\}))?")
_PART = re.compile(r"\w+_test\.py(::\w+)?")


@dataclass(frozen=True)
class SuiteTest:
    """A test of the suite.

    Attributes:
        id: ``file.py::Class.method``, followed by ``@{"name": value}`` to select one set of parameters.
        minutes: expected time of all sets of its parameters together.
        alone: whether no other test may run on the machine at the same time.
        finds: checkers that must return false, because the test is a control.
        settings: ducktape's globals for it.
        jars: names of pinned jars that it needs and a build does not fetch.
    """

    id: Annotated[str, matching(_ID.pattern, "file_test.py::Class.method")]
    topology: Text
    minutes: Annotated[float, Field(ge=0.01)]
    selections: tuple[str, ...]
    alone: bool = False
    finds: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    jars: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Id without parameters."""
        return self.id.partition("@")[0]

    @property
    def file(self) -> str:
        """File name of its module."""
        return self.id.partition("::")[0]

    @property
    def folder(self) -> str:
        """Folder name for its files, unique within a run."""
        name = re.sub(r"[^\w=.-]+", ".", self.id.replace("_test.py::", ".").replace('"', "")).strip(".")
        if len(name) <= MAX_NAME:
            return name
        return f"{name[:MAX_NAME]}.{hashlib.sha256(self.id.encode()).hexdigest()[:8]}"


def read(path: Path = SUITE) -> tuple[SuiteTest, ...]:
    """Read the tests of a suite, in the order of the file.

    Raises:
        RackgateError: names the invalid table and the reason.
    """
    top = Table(toml_config.read(path, "it lists the system tests"), path)
    suite = tuple(map(_parse, top.tables("test")))
    top.done()
    entries = Counter((test.id, selection) for test in suite for selection in test.selections)
    for (test_id, selection), count in entries.items():
        if count > 1:
            raise RackgateError(f"{path}: {test_id} is listed {count} times in {selection}")
    return suite


def _parse(table: Table) -> SuiteTest:
    test = table.into(
        SuiteTest,
        selections=table.choices("selections", SELECTIONS),
        finds=table.choices("finds", tuple(CHECKERS), ()),
    )
    _check_parameters(test.id)
    try:
        topology.find(test.topology)
    except RackgateError as error:
        raise table.wrong("topology", str(error)) from error
    return test


def _check_parameters(test_id: str) -> None:
    """Check that the parameters of a test id are JSON."""
    _, _, text = test_id.partition("@")
    try:
        if text:
            json.loads(text)
    except ValueError as error:
        raise RackgateError(f"{test_id}: the parameters after @ are not JSON: {error}") from error


def check(suite: Sequence[SuiteTest], discovered: Sequence[DiscoveredTest], path: Path = SUITE) -> None:
    """Check that the list and the existing tests agree.

    Raises:
        RackgateError: a listed test does not exist or has another topology, or an existing test is not listed.
    """
    by_name = {test.id: test for test in discovered}
    for listed in suite:
        test = by_name.get(listed.name)
        if test is None:
            raise RackgateError(f"{path}: {listed.name}: no such test")
        if test.topology is not None and test.topology != listed.topology:
            raise RackgateError(f"{path}: {listed.name}: runs on {test.topology}, not on {listed.topology}")
    if unlisted := sorted(set(by_name) - {test.name for test in suite}):
        raise RackgateError(f"{path}: {unlisted[0]} is not listed; add a [[test]] for it")


def load(path: Path = SUITE, tests: Path = TESTS) -> tuple[SuiteTest, ...]:
    """Read the suite and check it against the existing tests; see ``read`` and ``check``."""
    suite = read(path)
    check(suite, discover(tests), path)
    return suite


def select(suite: Sequence[SuiteTest], names: Sequence[str]) -> tuple[SuiteTest, ...]:
    """Return the selected tests, each once, in the order of the suite.

    Args:
        suite: all tests.
        names: selections, files, ``file.py::Class``, or test ids with or without parameters. If a test is listed more
            than once, its first entry counts, unless a selection names another one.

    Raises:
        RackgateError: a word matches neither a selection nor a test.
    """
    chosen: dict[str, SuiteTest] = {}
    for name in names:
        matching = {test.id: test for test in reversed(list(_matching(suite, name)))}
        if not matching and name in SELECTIONS:
            raise RackgateError(f"selection {name!r}: contains no test")
        if not matching:
            raise RackgateError(
                f"{name!r}: neither a selection ({', '.join(SELECTIONS)}) nor a test; 'rackgate system list' shows all"
            )
        chosen = {**matching, **chosen}
    positions = {test.name: position for position, test in reversed(list(enumerate(suite)))}
    return tuple(sorted(chosen.values(), key=lambda test: (positions[test.name], test.id)))


def _matching(suite: Sequence[SuiteTest], name: str) -> Iterator[SuiteTest]:
    file_or_class = _PART.fullmatch(name) is not None
    test_id = _ID.fullmatch(name)
    for test in suite:
        if (
            name in test.selections
            or name == test.id
            or (file_or_class and (test.file == name or test.name.startswith(f"{name}.")))
            or (test_id and not test_id["args"] and test.name == name)
        ):
            yield test
        elif test_id and test_id["args"] and test.id == test_id["name"]:
            _check_parameters(name)
            yield replace(test, id=name)


def target_min(names: Sequence[str], jobs: int) -> float | None:
    """Return the target of a run of these selections in minutes; None if it has no target."""
    return TARGETS_MIN.get(names[0]) if len(names) == 1 and jobs == TARGET_JOBS else None


def next_up(waiting: Sequence[SuiteTest], running: Sequence[SuiteTest], jobs: int) -> SuiteTest | None:
    """Return the test to start now: the longest one. Tests that must run alone come last, one by one."""
    if len(running) >= jobs or any(test.alone for test in running):
        return None
    together = [test for test in waiting if not test.alone]
    if together:
        return max(together, key=lambda test: test.minutes)
    alone = [test for test in waiting if test.alone]
    return max(alone, key=lambda test: test.minutes) if alone and not running else None


def estimate(tests: Sequence[SuiteTest], jobs: int, running: Mapping[SuiteTest, float] | None = None) -> float:
    """Estimate the time that tests will take, in minutes.

    Args:
        tests: the waiting tests.
        jobs: tests at a time.
        running: the running tests, with the remaining minutes of each.
    """
    waiting = list(tests)
    ends = [(minutes, test) for test, minutes in (running or {}).items()]
    now = 0.0
    while waiting or ends:
        while (test := next_up(waiting, [other for _, other in ends], jobs)) is not None:
            waiting.remove(test)
            ends.append((now + test.minutes, test))
        first = min(ends, key=lambda end: end[0])
        ends.remove(first)
        now = max(now, first[0])
    return now
