"""Test sources that the series changes: selection, and compilation with Maven against the overlay."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, put_in_place, read_object, write_json
from pyhooks.patchset import git, maven, series, source_tree
from pyhooks.patchset.compilation import read_jar, write_jar
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Module, Recipe
from pyhooks.patchset.workspace import home
from pyhooks.verify.upstream_runner import KafkaTestRunner, scratch


def compile_changed(runner: KafkaTestRunner, patches: Sequence[series.Patch]) -> dict[str, tuple[str, ...]]:
    """Compile changed test sources to ``runner.patched`` if needed; return the classes that name them, by module.

    Raises:
        RackgateError: a test source does not compile; the message names file and line as in Kafka's repository.
    """
    plan, space, target = runner.plan, runner.space, runner.patched
    listing = target.with_suffix(".json")
    if listing.exists() and target.exists():
        listed = read_object(listing, "it lists the series' test classes; delete it")
        with evaluating(listing, "a list of test classes, delete it"):
            return {name: tuple(classes) for name, classes in listed.items()}
    with scratch(target.parent) as work:
        with space.lock(lambda _: None):
            sources = space.sources(plan, work)
        changed = _copy_changed(plan, sources, patches, work)
        output = work / "classes"
        output.mkdir()
        code = [file for files in changed.values() for file in files]
        if code:
            maven.render(
                "jvmtest.xml.j2", work / "compile" / "pom.xml",
                recipe=plan, name="compile", running=runner.running, output=output,
                classpath=[*_merged(plan, runner.distribution, work / "merged"), *space.store.test_jars(plan)],
                classes=(), reports=work, sources=work / "sources",
                scala=any(file.suffix == ".scala" for file in code),
            )  # fmt: skip
            pom = maven.render("reactor.xml.j2", work / "pom.xml", names=["compile"])
            log = work / "compile.log"
            try:
                space.repository.maven(pom, ["test-compile"], task="compile the series' tests", log=log)
            except RackgateError as error:
                message, detail = (text.replace(f"{work}/sources/", "src/test/") for text in (str(error), error.detail))
                raise RackgateError(message, detail=detail) from None
        classes = {name: tuple(sorted(map(class_of, files))) for name, files in changed.items()}
        shutil.rmtree(target, ignore_errors=True)
        put_in_place(output, target)
    write_json(listing, classes)
    return classes


def _copy_changed(plan: Recipe, sources: Path, patches: Sequence[series.Patch], work: Path) -> dict[str, list[Path]]:
    """Copy test sources that the series changes, or whose parents it changes, to ``work``; return them by module."""
    tree = work / "tree"
    source_tree.clone(sources, tree)
    files = git.changed_files(tree, source_tree.BASELINE, series.apply(tree, patches))
    changed: dict[str, list[Path]] = {}
    for module, kind, name in test_files(plan, tree, [*files, *_subclasses(tree, files)]):
        target = work / "sources" / kind / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / module.path / "src/test" / kind / name, target)
        if is_code(target):
            changed.setdefault(module.name, []).append(target)
    return changed


def test_files(plan: Recipe, tree: Path, files: Iterable[str]) -> Iterator[tuple[Module, str, str]]:
    """Yield the existing test files among ``files``: module, folder below its ``src/test``, path below that."""
    for file in files:
        module = home(plan, file)
        prefix = f"{module.path}/src/test/" if module else ""
        if module and file.startswith(prefix) and (tree / file).exists():
            kind, _, name = file.removeprefix(prefix).partition("/")
            yield module, kind, name


def _subclasses(tree: Path, files: Sequence[str]) -> list[str]:
    """Return unchanged test sources that extend a changed abstract test class in the same folder."""
    subclasses: set[str] = set()
    for file in files:
        parent = Path(file)
        if "/src/test/" not in file or not parent.stem.startswith("Abstract") or not is_code(parent):
            continue
        if not (tree / parent).exists():
            continue
        child = re.compile(rf"\bextends\s+{parent.stem}\b")
        for source in (tree / parent).parent.glob(f"*{parent.suffix}"):
            if child.search(source.read_text(encoding="utf-8")):
                subclasses.add(str(source.relative_to(tree)))
    return sorted(subclasses.difference(files))


test_files.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it


def is_code(file: Path) -> bool:
    """Return whether a test file is a source to compile, not a resource."""
    return file.suffix in {".java", ".scala"}


def class_of(source: Path) -> str:
    """Return the full name of the class after which a source file is named."""
    for line in source.read_text(encoding="utf-8").splitlines():
        parts = line.strip().rstrip(";").split()
        if len(parts) == 2 and parts[0] == "package":
            return f"{parts[1]}.{source.stem}"
    return source.stem


def _merged(plan: Recipe, distribution: Distribution, folder: Path) -> list[Path]:
    """Return the jars of ``libs``; those that the overlay changes are copied to ``folder`` with its files merged in.

    The Scala plugin does not preserve the order of its class path, so no class may be on it twice.
    """
    patched = {
        plan.find(plan.module(jar["module"]).artifact, "runtime").file_name: jar["jar"]
        for jar in distribution.manifest["overlay"]
    }
    jars = []
    for jar in sorted((distribution.root / "libs").glob("*.jar")):
        if jar.name in patched:
            files = {**read_jar(jar), **read_jar(distribution.root / "overlay" / patched[jar.name])}
            write_jar(folder / jar.name, files)
            jars.append(folder / jar.name)
        else:
            jars.append(jar)
    return jars
