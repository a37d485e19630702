"""Discovery of system tests from their source; neither ducktape nor the test modules are imported.

A test is a method ``test…``, own or inherited, of a class without subclasses. This is ducktape's rule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    """Return all tests of a folder, sorted by id."""
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in sorted(folder.glob("*.py"))}
    classes = {
        (class_.module, class_.name): class_ for module, tree in trees.items() for class_ in _classes(module, tree)
    }
    imports = {module: _imports(tree) for module, tree in trees.items()}

    def bases(class_: _SourceClass) -> Iterator[_SourceClass]:
        for name in class_.bases:
            base = classes.get((class_.module, name)) or classes.get(imports[class_.module].get(name, ("", "")))
            if base is not None:
                yield base

    def ancestors(class_: _SourceClass) -> Iterator[_SourceClass]:
        yield class_
        for base in bases(class_):
            yield from ancestors(base)

    base_classes = {base for class_ in classes.values() for base in bases(class_)}
    found = []
    for class_ in classes.values():
        if class_ in base_classes or not (folder / f"{class_.module}.py").match(PATTERN):
            continue
        line = list(ancestors(class_))
        topology = next((each.topology for each in line if each.topology is not None), None)
        tests = {test for each in line for test in each.tests}
        found += [DiscoveredTest(f"{class_.module}.py::{class_.name}.{test}", topology) for test in tests]
    return tuple(sorted(found, key=lambda each: each.id))


def _classes(module: str, tree: ast.Module) -> Iterator[_SourceClass]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
            methods = (statement.name for statement in node.body if isinstance(statement, ast.FunctionDef))
            tests = tuple(name for name in methods if name.startswith("test"))
            yield _SourceClass(module, node.name, bases, tests, _topology(node))


def _topology(node: ast.ClassDef) -> str | None:
    for statement in node.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if any(isinstance(target, ast.Name) and target.id == TOPOLOGY for target in targets):
            value = statement.value
            return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return None


def _imports(tree: ast.Module) -> Mapping[str, tuple[str, str]]:
    """Return the names that a module imports: local name to module and name there."""
    return {
        alias.asname or alias.name: (str(node.module).rpartition(".")[2], alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
