"""Cases of kafkatest: a test with one set of parameters; which of them run here, and the suite with its predictions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pyhooks.core import toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table, Text

SUITE = Path(__file__).parent / "suite.toml"
DEFAULT_MINUTES = 2.0
_OLD_VERSION = re.compile(r"\d+(\.\d+)+")

Prediction = Literal["pass", "fail"]


@dataclass(frozen=True)
class Case:
    """A test with one set of parameters.

    Attributes:
        file: path below ``tests/kafkatest``.
        nodes: number of nodes that it needs; None if it does not say.
        ignored: whether the checkout marks it as not to be run.
    """

    file: str
    class_name: str
    function: str
    args: Mapping[str, Any] = field(hash=False)
    nodes: int | None = None
    ignored: bool = False

    @property
    def test(self) -> str:
        """``file::Class.function``."""
        return f"{self.file}::{self.class_name}.{self.function}"

    @property
    def id(self) -> str:
        """The test, followed by ``@{"name": value}`` if it has parameters; ducktape selects the case by it."""
        return f"{self.test}@{json.dumps(self.args, sort_keys=True)}" if self.args else self.test

    @property
    def name(self) -> str:
        """File name for its results, unique within a run."""
        digest = hashlib.sha256(self.id.encode()).hexdigest()[:8]
        return f"{Path(self.file).stem}.{self.function}.{digest}"


@dataclass(frozen=True)
class SuiteCase:
    """A case of the suite.

    Attributes:
        minutes: expected time.
        gate: expected verdict where every topic requires two racks and the brokers are in racks a, b, c.
        because: why.
        patched: whether a patch of this project adds it, so that it must fail on stock and pass on the overlay.
    """

    test: Text
    minutes: Annotated[float, Field(gt=0)]
    gate: Prediction
    because: Text
    args: Mapping[str, Any] = field(default_factory=dict, hash=False)
    patched: bool = False

    def matches(self, case: Case) -> bool:
        """Return whether it is this case."""
        return self.test == case.test and dict(self.args) == dict(case.args)


@dataclass(frozen=True)
class KafkaSuite:
    """Content of ``suite.toml``.

    Attributes:
        skipped: patterns of files whose cases can't run here, with the reasons.
    """

    cases: tuple[SuiteCase, ...]
    skipped: tuple[tuple[str, str], ...]

    @staticmethod
    def read(path: Path = SUITE) -> KafkaSuite:
        """Read the suite.

        Raises:
            RackgateError: names the invalid table and the reason.
        """
        top = Table(toml_config.read(path, "it lists the suite of Kafka's system tests"), path)
        cases = tuple(table.into(SuiteCase, args=table.table("args", {}).rest()) for table in top.tables("case"))
        skipped = []
        for table in top.tables("skip", ()):
            because = table.text("because")
            skipped += [(pattern, because) for pattern in table.texts("files")]
        top.done()
        return KafkaSuite(cases, tuple(skipped))

    def planned(self, case: Case) -> SuiteCase | None:
        """Return the suite's entry of a case, or None."""
        return next((entry for entry in self.cases if entry.matches(case)), None)

    def minutes(self, case: Case) -> float:
        """Return the expected time of a case."""
        entry = self.planned(case)
        return entry.minutes if entry else DEFAULT_MINUTES

    def why_skipped(self, case: Case) -> str:
        """Return why a case can't run here; empty if it can."""
        values = [str(value) for value in case.args.values()]
        if case.ignored:
            return "the checkout ignores it"
        if case.args.get("metadata_quorum", "ZK") == "ZK":
            return "needs ZooKeeper"
        if any("SASL" in value or "GSSAPI" in value for value in values):
            return "needs SASL"
        if any(_OLD_VERSION.fullmatch(value) for value in values):
            return "needs an older version of Kafka"
        return next((because for pattern, because in self.skipped if fnmatchcase(case.file, pattern)), "")


def select(
    cases: Sequence[Case],
    suite: KafkaSuite,
    names: Sequence[str],
    *,
    everything: bool = False,
    patched: bool = False,
) -> tuple[Case, ...]:
    """Return the selected cases, in the order of the suite or of the checkout.

    Args:
        cases: all cases of the checkout.
        suite: the suite.
        names: tests as paths, ``path::Class``, ``path::Class.test`` or ids; the path may begin anywhere. Without names
            the suite's cases.
        everything: without names all cases that can run here.
        patched: otherwise, without names the suite's cases that patches add instead of the others.

    Raises:
        RackgateError: a name or an entry of the suite matches no case, or only cases that can't run here.
    """
    if not names and not everything:
        return tuple(_suite_case(cases, entry) for entry in suite.cases if entry.patched == patched)
    chosen = [case for case in cases if not suite.why_skipped(case)]
    if not names:
        return tuple(chosen)
    matching = [frozenset(_matching(cases, name)) for name in names]
    for name, named in zip(names, matching, strict=True):
        if not named:
            raise RackgateError(f"{name}: no such test in the checkout")
        if named.isdisjoint(chosen):
            raise RackgateError(f"{name}: {suite.why_skipped(min(named, key=lambda case: case.id))}")
    return tuple(case for case in chosen if any(case in named for named in matching))


def _suite_case(cases: Sequence[Case], entry: SuiteCase) -> Case:
    for case in cases:
        if entry.matches(case):
            return case
    parameters = json.dumps(entry.args, sort_keys=True)
    raise RackgateError(f"the checkout has no {entry.test} with {parameters}; name the tests to run")


def _matching(cases: Sequence[Case], name: str) -> Iterator[Case]:
    path, _, rest = name.partition("::")
    for case in cases:
        if not f"/{case.file}".endswith(f"/{path}"):
            continue
        own = case.id.partition("::")[2]
        if not rest or own == rest or own.startswith((f"{rest}.", f"{rest}@")):
            yield case
