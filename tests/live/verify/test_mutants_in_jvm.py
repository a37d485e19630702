"""Mutants of a fake Kafka of two classes, compiled and run in a JVM."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maven_toolchain import share_repository
from mutants import mutant
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import class_file, recipe
from pyhooks.patchset.compilation import pack
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Artifact, Module, Recipe
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import mutation
from pyhooks.verify.mutant_runner import JAVA, CompileServer, MutantRunner
from pyhooks.verify.mutants import Selector
from pyhooks.verify.mutation import KILLED, SURVIVED, UNKNOWN, judge, run_base

GATE = """package p;

public class Gate {
    public static final int LIMIT = 2;
    private int open = 1;

    public boolean rejects() {
        return open < 2;
    }

    public String name() {
        return "gate";
    }
}
"""
USER = "package p;\n\npublic class User {\n    public int limit() {\n        return Gate.LIMIT;\n    }\n}\n"
GATE_TEST = """package q;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class GateTest {
    @Test
    void rejects() {
        assertTrue(new p.Gate().rejects());
    }

    @Test
    void limit() {
        assertEquals(2, new p.User().limit());
    }

    @Test
    void ends() {
        if (new p.Gate().name().isEmpty())
            System.exit(0);
    }

    @Test
    void links() {
        if (new p.Gate().name().equals("odd"))
            throw new NoSuchMethodError("p.Gate.gone()");
    }
}
"""


def javac(folder: Path, target: Path, *files: Path, path: Sequence[Path] = ()) -> None:
    message = ["javac", "--release", "17", "-cp", ":".join(map(str, path)) or ".", "-d", target, *files]
    subprocess.run([str(word) for word in message], check=True, cwd=folder, timeout=120)


def test_surface_of_a_class(tmp_path: Path) -> None:
    def surface(text: str) -> frozenset[str]:
        (tmp_path / "Gate.java").write_text(text)
        javac(tmp_path, tmp_path / "out", tmp_path / "Gate.java")
        return class_file.surface((tmp_path / "out" / "p" / "Gate.class").read_bytes())

    before = surface(GATE)
    assert surface(GATE.replace("open < 2", "false")) == before
    assert surface(GATE.replace("private int open", "private long opened = 3L, open")) == before
    for old, new in (
        ("LIMIT = 2", "LIMIT = 3"),
        ("boolean rejects()", "Boolean rejects()"),
        ("public String", "String"),
        ("class Gate", "class Gate extends Exception"),
        ("class Gate", "class Gate implements Cloneable"),
        ("int LIMIT = 2", 'String LIMIT = "2"'),
    ):
        assert surface(GATE.replace(old, new)) != before, new
    with pytest.raises(ValueError, match="not a class file"):
        class_file.surface(b"text")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantRunner]:
    """Build a fake Kafka of two classes with one test class."""
    root = tmp_path_factory.mktemp("bench")
    real = recipe.load()
    running = real.with_role("testrun")
    module = Module(name="alpha", artifact="alpha", path="alpha", release=17, tests=False)
    stock = Artifact("p:alpha:1", "0" * 64, ("runtime",))
    plan: Recipe = replace(real, modules=(module,), artifacts=(*running, stock))
    space = Workspace(root / "space")
    share_repository(space)
    space.store.fetch(real, running, root / "work")

    tree = root / "tree"
    sources = tree / "alpha/src/main/java/p"
    sources.mkdir(parents=True)
    (sources / "Gate.java").write_text(GATE)
    (sources / "User.java").write_text(USER)
    javac(root, root / "classes", sources / "Gate.java", sources / "User.java")
    (root / "dist" / "overlay").mkdir(parents=True)
    pack(root / "classes", root / "dist" / "libs" / stock.file_name)

    jars = [space.store.path(artifact) for artifact in running]
    (root / "GateTest.java").write_text(GATE_TEST)
    javac(root, root / "tests", root / "GateTest.java", path=[root / "classes", *jars])
    javac(root, root / "helpers", *sorted(JAVA.glob("*.java")), path=jars)
    yield MutantRunner(
        plan=plan, space=space, distribution=Distribution(root / "dist"), tree=tree, tests=root / "tests",
        helpers=root / "helpers", scala=(), work=root / "work",
    )  # fmt: skip
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def compiler(bench: MutantRunner) -> Iterator[CompileServer]:
    with bench.compiler() as started:
        yield started


@pytest.mark.parametrize(
    ("changed", "method", "status", "reason"),
    [
        ({}, "rejects", KILLED, "AssertionFailedError"),
        ({}, "", KILLED, "AssertionFailedError"),
        ({}, "limit", SURVIVED, "pass"),
        ({"new": "opn < 2"}, "rejects", UNKNOWN, "cannot find symbol|Gate.java"),
        ({"old": "LIMIT = 2", "new": "LIMIT = 3"}, "limit", UNKNOWN, "compiled against"),
        ({"old": '"gate"', "new": '""'}, "ends", UNKNOWN, "ended before"),
        ({"old": '"gate"', "new": '"odd"'}, "links", UNKNOWN, "does not judge"),
        ({}, "absent", UNKNOWN, "no test ran"),
        ({"old": "open"}, "rejects", UNKNOWN, "occurs 2 times"),
    ],
)
def test_mutate_from_list_to_summary(
    bench: MutantRunner, compiler: CompileServer, changed: dict[str, Any], method: str, status: str, reason: str
) -> None:
    selector = Selector("q.GateTest", method)
    one = mutant(tests=(str(selector),), **changed)
    trier = mutation.JvmMutantTester(bench, compiler, bench.work / "logs")
    bases = {base.selector: base for base in run_base(trier, "q.GateTest", [method])}
    verdict = judge(trier, one, bases, "key")
    assert verdict.status == status, verdict
    assert any(message in verdict.message for message in reason.split("|")), verdict
    assert verdict.by == ("q.GateTest#rejects" if status == KILLED else "")


def test_a_changed_constant_requires_compiling_its_users(bench: MutantRunner, compiler: CompileServer) -> None:
    one = mutant(tests=("q.GateTest#limit",), old="LIMIT = 2", new="LIMIT = 3")
    trier = mutation.JvmMutantTester(bench, compiler, bench.work / "logs")
    bases = {base.selector: base for base in run_base(trier, "q.GateTest", ["limit"])}
    verdict = judge(trier, replace(one, recompile=("alpha/src/main/java/p/User.java",)), bases, "key")
    assert verdict.status == KILLED
    assert "expected: <2> but was: <3>" in verdict.message


def test_an_ended_compiler_is_a_one_line_error(bench: MutantRunner) -> None:
    with bench.compiler() as compiler:
        compiler._process.kill()
        compiler._process.wait()
        with pytest.raises(RackgateError, match="run the command again") as caught:
            compiler.compile("javac", ["-version"])
    assert "\n" not in str(caught.value)
