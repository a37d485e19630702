"""Comparison of the classes that the series changes between two versions, on small jars."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from patch_files import PATCH
from pyhooks.core.process import run
from pyhooks.patchset import series
from pyhooks.patchset.class_comparison import ClassDifference, compare_classes, touched_classes
from pyhooks.patchset.maven import java_home

BEFORE = {
    "kafka.a.Changed": "private int near(Type one) { Runnable r = () -> near(null); return 0; } void far(int one) { }",
    "kafka.a.Same": "void near(Type one) { } static class Part { void near(int one) { } }",
    "kafka.a.Type": "",
    "kafka.a.Moved": "void near(int one) { }",
    "kafka.a.Gone": "void near(int one) { }",
}
AFTER = {
    "kafka.a.Changed": "private int near(kafka.b.Type one, long two) { return 0; } void far(long one) { }",
    "kafka.a.Same": "void near(kafka.b.Type one) { } static class Part { void near(int one) { } }",
    "kafka.b.Type": "",
    "kafka.b.Moved": "void near(int one) { }",
}
TOUCHED = {name: frozenset({"near"}) for name in ("kafka.a.Changed", "kafka.a.Same", "kafka.a.Moved", "kafka.a.Gone")}


def jar(folder: Path, classes: Mapping[str, str]) -> Path:
    """Compile public classes, given their bodies by full name, into a jar."""
    sources = []
    for name, body in classes.items():
        package, _, simple = name.rpartition(".")
        source = folder / f"{name.replace('.', '/')}.java"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f"package {package}; public class {simple} {{ {body} }}")
        sources.append(source)
    run([java_home() / "bin" / "javac", "-d", folder / "classes", *sources], task="compile")
    target = folder / "all.jar"
    with zipfile.ZipFile(target, "w") as archive:
        for path in (folder / "classes").rglob("*.class"):
            archive.write(path, path.relative_to(folder / "classes"))
    return target


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    before, after = (tmp_path_factory.mktemp(name) for name in ("before", "after"))
    return jar(before, BEFORE), jar(after, AFTER)


def test_differences_near_the_changes_are_listed(jars: tuple[Path, Path]) -> None:
    before, after = jars
    assert compare_classes(TOUCHED, [before], [after]) == (
        ClassDifference(
            "kafka.a.Changed", removed=("private int near(Type)",), added=("private int near(Type, long)",)
        ),
        ClassDifference("kafka.a.Moved", moved=("kafka.b.Moved",)),
        ClassDifference("kafka.a.Gone", missing=True),
        ClassDifference("kafka.a.Type", moved=("kafka.b.Type",)),
    )


def test_a_version_does_not_differ_from_itself(jars: tuple[Path, Path]) -> None:
    assert compare_classes(TOUCHED, [jars[0]], [jars[0]]) == ()


def test_unknown_classes_are_left_out(jars: tuple[Path, Path]) -> None:
    """Classes of modules without a jar are unknown."""
    assert compare_classes({"kafka.a.Other": frozenset({"near"})}, [jars[0]], [jars[1]]) == ()


def test_a_difference_is_reported_in_lines() -> None:
    moved = ClassDifference("a.B", moved=("c.B",), removed=("int x()",), added=("long x()",))
    assert moved.lines == ["a.B: now c.B", "  - int x()", "  + long x()"]
    assert ClassDifference("a.B", missing=True).lines == ["a.B: not found"]


def test_classes_and_words_come_from_the_patches(tmp_path: Path) -> None:
    text = PATCH.format(subject="One", reason="Reason.").replace("-a\n+b", "-int near;\n+int added;")
    path = tmp_path / "gate" / "0001-One.patch"
    path.parent.mkdir()
    path.write_text(text)
    (name, words), *others = touched_classes([series.parse(tmp_path, "gate/0001-One.patch")]).items()
    assert (name, others) == ("A", [])
    assert "near" in words
    assert "added" not in words
