"""Discovery of system tests from their source; neither ducktape nor the test modules are imported.

A test is a method ``test…``, own or inherited, of a class without subclasses. This is ducktape's rule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TESTS = Path(__file__).parent
PATTERN = "*_test.py"
TOPOLOGY = "TOPOLOGY"


@dataclass(frozen=True)
class DiscoveredTest:
    """A test found in the source.

    Attributes:
        topology: as set in its class, or None if that can't be read from the source.
    """

    id: str
    topology: str | None


@dataclass(frozen=True)
class _SourceClass:
    """A class as written in the source."""

    module: str
    name: str
    bases: tuple[str, ...]
    tests: tuple[str, ...]
    topology: str | None


def discover(folder: Path = TESTS) -> tuple[DiscoveredTest, ...]:
    """Return all tests of a folder, sorted by id. Class names must be unique in the folder."""
    classes = {
        class_.name: class_
        for path in sorted(folder.glob("*.py"))
        for class_ in _read_classes(path, path.read_text(encoding="utf-8"))
    }

    def ancestors(name: str) -> Iterator[_SourceClass]:
        if name in classes:
            yield classes[name]
            for base in classes[name].bases:
                yield from ancestors(base)

    base_names = {base for class_ in classes.values() for base in class_.bases}
    discovered = []
    for class_ in classes.values():
        if class_.name in base_names or not (folder / f"{class_.module}.py").match(PATTERN):
            continue
        line = list(ancestors(class_.name))
        topology = next((each.topology for each in line if each.topology is not None), None)
        tests = {test for each in line for test in each.tests}
        discovered += [DiscoveredTest(f"{class_.module}.py::{class_.name}.{test}", topology) for test in tests]
    return tuple(sorted(discovered, key=lambda each: each.id))


# A command discovers the tests several times.
@lru_cache(maxsize=128)
def _read_classes(path: Path, source: str) -> tuple[_SourceClass, ...]:
    nodes = ast.parse(source, str(path)).body
    return tuple(_read_class(path.stem, node) for node in nodes if isinstance(node, ast.ClassDef))


def _read_class(module: str, node: ast.ClassDef) -> _SourceClass:
    bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
    methods = (statement.name for statement in node.body if isinstance(statement, ast.FunctionDef))
    return _SourceClass(
        module, node.name, bases, tuple(name for name in methods if name.startswith("test")), _topology(node)
    )


def _topology(node: ast.ClassDef) -> str | None:
    for statement in node.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if any(isinstance(target, ast.Name) and target.id == TOPOLOGY for target in targets):
            value = statement.value
            return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return None
