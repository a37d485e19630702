"""Selection of Kafka's test classes to run: the list in ``upstream.toml``, or all classes in the modules' test jars."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyhooks.core import paths, toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import class_file
from pyhooks.patchset.artifacts import ArtifactStore
from pyhooks.patchset.recipe import Module, Recipe
from pyhooks.patchset.workspace import home

# Descriptors of the annotations that mark a method as a test.
_MARKS = frozenset(
    f"L{name};".encode()
    for name in (
        "org/junit/jupiter/api/Test",
        "org/junit/jupiter/api/RepeatedTest",
        "org/junit/jupiter/api/TestFactory",
        "org/junit/jupiter/api/TestTemplate",
        "org/junit/jupiter/params/ParameterizedTest",
        "org/apache/kafka/common/test/api/ClusterTest",
        "org/apache/kafka/common/test/api/ClusterTests",
        "org/apache/kafka/common/test/api/ClusterTemplate",
    )
)
_ABSTRACT_OR_INTERFACE = 0x0400 | 0x0200


@dataclass(frozen=True)
class Suite:
    """The test classes to run, and the permitted differences.

    Attributes:
        classes: full class names by module name.
        allowed: reason by ``class.method``, for published tests that may fail on the overlay.
        alone: classes that run in their own JVM with no other in parallel: they leave threads that keep cores busy.
        apart: classes that run in their own JVM: they leave objects that fill its memory.
    """

    name: str
    classes: Mapping[str, tuple[str, ...]]
    allowed: Mapping[str, str]
    alone: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()


def load(plan: Recipe, path: Path | None = None) -> Suite:
    """Parse ``upstream.toml``, by default the one in ``patch/``.

    Raises:
        RackgateError: the file is missing or not TOML, a module is unknown or has no test jar, a class is listed
            twice, or an allowed failure lacks a method or a reason.
    """
    path = path or paths.patch_folder() / "upstream.toml"
    top = toml_config.Table(toml_config.read(path, "it lists the tests to run"), path)
    classes = {table.text("name"): table.texts("classes", empty=True) for table in top.tables("module")}
    allowed = {table.text("test"): table.text("reason").strip() for table in top.tables("allowed", ())}
    alone, apart = (frozenset(top.texts(key, ())) for key in ("alone", "apart"))
    top.done()
    for name in classes:
        if name not in {module.name for module in plan.modules}:
            raise RackgateError(f"{path}: module {name}: not defined in {plan.path.name}")
        if not plan.module(name).tests:
            raise RackgateError(f"{path}: no test jar of module {name} is published")
    every = [name for names in classes.values() for name in names]
    twice = sorted({name for name in every if every.count(name) > 1})
    if twice:
        raise RackgateError(f"{path}: {twice[0]} is listed twice")
    incomplete = sorted(test for test in allowed if "." not in test)
    if incomplete:
        raise RackgateError(f"{path}: {incomplete[0]!r} needs a class and a method")
    return Suite("list", classes, allowed, alone, apart)


def everything(plan: Recipe, store: ArtifactStore, modules: Sequence[Module], listed: Suite) -> Suite:
    """Return a suite of all test classes in the published test jars of ``modules``.

    ``listed``, the suite from ``load``, is the source of ``allowed``, ``alone`` and ``apart``.

    Raises:
        RackgateError: a class in ``alone`` or ``apart`` is in no test jar.
    """
    known: dict[str, TestClassFile] = {}
    owned: dict[str, list[str]] = {}
    for module in (m for m in plan.modules if m.tests):
        test_files = read_classes(store.path(plan.find(module.artifact, "test")))
        known.update(test_files)
        owned[module.name] = list(test_files)
    tests = {name: test_classes(test_files, known) for name, test_files in owned.items()}
    unknown = sorted((listed.alone | listed.apart).difference(*tests.values()))
    if unknown:
        raise RackgateError(f"upstream.toml: no test jar has {unknown[0]}, which alone or apart lists")
    classes = {module.name: tests[module.name] for module in modules if module.tests}
    return replace(listed, name="all", classes={name: test_files for name, test_files in classes.items() if test_files})


def touched(plan: Recipe, files: Sequence[str]) -> tuple[Module, ...]:
    """Return the modules that have one of ``files`` in their main or test sources, in the recipe's order."""
    names = {module.name for file in files if (module := home(plan, file))}
    return tuple(module for module in plan.modules if module.name in names)


@dataclass(frozen=True)
class TestClassFile:
    """Parts of a class file: name and superclass as paths, whether it has test methods, and whether it is concrete."""

    __test__ = False  # pytest must not collect it
    name: str
    parent: str
    marked: bool
    concrete: bool


def read_classes(jar: Path) -> dict[str, TestClassFile]:
    """Parse the class files of a jar; return the classes by name (as a path)."""
    with zipfile.ZipFile(jar) as archive:
        files = (archive.read(name) for name in archive.namelist() if name.endswith(".class"))
        parsed = (parse_class(content) for content in files)
        return {entry.name: entry for entry in parsed}


def parse_class(content: bytes) -> TestClassFile:
    """Parse name, superclass, flags and test annotations of a class file.

    Raises:
        RackgateError: not a class file.
    """
    try:
        header = class_file.header(content)
    except ValueError as error:
        raise RackgateError(str(error)) from error
    marked = not header.texts.isdisjoint(_MARKS)
    return TestClassFile(header.name, header.parent, marked, not header.flags & _ABSTRACT_OR_INTERFACE)


def test_classes(names: Sequence[str], known: Mapping[str, TestClassFile]) -> tuple[str, ...]:
    """Return the test classes among ``names`` (paths): top-level, not abstract, with own, inherited or nested tests.

    ``known`` has the classes of all test jars, because a superclass may be in another module. The result has full names
    with dots, sorted.
    """

    def has_tests(name: str) -> bool:
        visited: set[str] = set()
        while name in known and name not in visited:
            visited.add(name)
            if known[name].marked:
                return True
            name = known[name].parent
        return False

    nesting = {name.split("$")[0] for name in names if "$" in name and has_tests(name)}
    return tuple(
        sorted(
            name.replace("/", ".")
            for name in names
            if "$" not in name and known[name].concrete and (has_tests(name) or name in nesting)
        )
    )


test_classes.__test__ = False  # type: ignore[attr-defined]  # its name is no test's
