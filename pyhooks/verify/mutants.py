"""Parser of ``mutants.toml``: changes that each disable a piece of the series, and the tests that must detect them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pyhooks.core import toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table, Text, matching
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.workspace import home

_Test = Annotated[str, matching(r"[A-Za-z_][\w.]*(#\w+)?", "package.Class or package.Class#method")]
_Tests = Annotated[tuple[_Test, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Selector:
    """A test class of Kafka, or one method of it, named without parameters."""

    class_name: str
    method: str = ""

    @staticmethod
    def of(text: str) -> Selector:
        """Parse ``package.Class`` or ``package.Class#method``."""
        class_name, _, method = text.partition("#")
        return Selector(class_name, method)

    def __str__(self) -> str:
        return f"{self.class_name}#{self.method}" if self.method else self.class_name


@dataclass(frozen=True)
class Mutant:
    """One change that must make a test fail.

    Attributes:
        what: description of the resulting fault in Kafka.
        stands_for: the behaviour, code location or pitfall that it represents.
        old: text that occurs in the patched file exactly once.
        tests: at least one of these must fail.
        recompile: further files to compile with the changed one. Needed if the change alters what other classes were
            compiled against, such as a constant.
        opt_ins: names of the opt-in fixes that introduce the old text or the tests; the mutant is run on a build with
            them.
    """

    name: Annotated[str, matching("[a-z0-9]+(-[a-z0-9]+)*", "lower-case words with hyphens between")]
    what: Text
    stands_for: Text
    file: Text
    old: Text
    new: str
    tests: tuple[Selector, ...]
    recompile: tuple[Text, ...] = ()
    opt_ins: frozenset[str] = frozenset()

    def key(self, context: str) -> str:
        """Return a hash of all inputs of the mutant's result; ``context`` is the hash of those that mutants share."""
        parts = [context, self.file, self.old, self.new, [str(test) for test in self.tests], list(self.recompile)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def apply(self, text: str) -> str:
        """Return the text of the file with the change.

        Raises:
            RackgateError: the old text does not occur exactly once.
        """
        count = text.count(self.old)
        if count != 1:
            raise RackgateError(f"mutant {self.name}: its old text occurs {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def load(path: Path, recipe: Recipe) -> tuple[Mutant, ...]:
    """Parse and validate a ``mutants.toml``.

    Raises:
        RackgateError: the file is missing or not TOML, or an entry is invalid; the message names the entry.
    """
    top = Table(toml_config.read(path, "it lists the mutants"), path)
    mutants = tuple(map(_mutant, top.tables("mutant")))
    _omitted(top)
    top.done()
    names = [mutant.name for mutant in mutants]
    for mutant in mutants:
        if names.count(mutant.name) > 1:
            raise RackgateError(f"{path}: mutant {mutant.name} is listed twice")
        for file in (mutant.file, *mutant.recompile):
            module = home(recipe, file)
            if module is None or not file.startswith(f"{module.path}/src/main/"):
                raise RackgateError(f"{path}: mutant {mutant.name}: {file} is in src/main of no [[module]]")
    return mutants


def load_omitted(path: Path) -> dict[str, str]:
    """Return mutants of other versions of Kafka that can't exist on this one, by name, with the reason.

    Raises:
        RackgateError: as for ``load``.
    """
    return _omitted(Table(toml_config.read(path, "it lists the mutants"), path))


def _omitted(top: Table) -> dict[str, str]:
    return {table.text("name"): table.text("reason") for table in top.tables("omitted", ())}


def _mutant(table: Table) -> Mutant:
    tests: tuple[str, ...] = table.get("tests", _Tests)
    mutant = table.into(Mutant, tests=tuple(map(Selector.of, tests)), opt_ins=frozenset(table.texts("with", ())))
    if mutant.old == mutant.new:
        raise table.wrong("new", "is the same as old")
    return mutant


def choose(mutants: tuple[Mutant, ...], names: Iterable[str]) -> tuple[Mutant, ...]:
    """Return the mutants with these names in the list's order, or all if there are no names.

    Raises:
        RackgateError: an unknown name.
    """
    wanted = list(names)
    known = {mutant.name for mutant in mutants}
    for name in wanted:
        if name not in known:
            raise RackgateError(f"no mutant is named {name}; `rackgate patch mutate --list` lists them")
    return tuple(mutant for mutant in mutants if not wanted or mutant.name in wanted)
