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
    classes = {(one.module, one.name): one for module, tree in trees.items() for one in _classes(module, tree)}
    imports = {module: _imports(tree) for module, tree in trees.items()}

    def bases(one: _SourceClass) -> Iterator[_SourceClass]:
        for name in one.bases:
            base = classes.get((one.module, name)) or classes.get(imports[one.module].get(name, ("", "")))
            if base is not None:
                yield base

    def ancestors(one: _SourceClass) -> Iterator[_SourceClass]:
        yield one
        for base in bases(one):
            yield from ancestors(base)

    base_classes = {base for one in classes.values() for base in bases(one)}
    found = []
    for one in classes.values():
        if one in base_classes or not (folder / f"{one.module}.py").match(PATTERN):
            continue
        line = list(ancestors(one))
        topology = next((each.topology for each in line if each.topology is not None), None)
        tests = {test for each in line for test in each.tests}
        found += [DiscoveredTest(f"{one.module}.py::{one.name}.{test}", topology) for test in tests]
    return tuple(sorted(found, key=lambda each: each.id))


def _classes(module: str, tree: ast.Module) -> Iterator[_SourceClass]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
            methods = (one.name for one in node.body if isinstance(one, ast.FunctionDef))
            tests = tuple(name for name in methods if name.startswith("test"))
            yield _SourceClass(module, node.name, bases, tests, _topology(node))


def _topology(node: ast.ClassDef) -> str | None:
    for one in node.body:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == TOPOLOGY for target in targets):
            value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
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
