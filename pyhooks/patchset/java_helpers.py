"""Jar of the project's own Java helpers, compiled with Maven against overlay and stock jars.

The jar has two uses: it is on the class path of the JVMs that Python controls, and brokers of the lab load it as an
agent. It is not part of the overlay, so it is not installed on production brokers.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import maven
from pyhooks.patchset.artifacts import MavenRepository, sha256
from pyhooks.patchset.compilation import write_jar
from pyhooks.patchset.recipe import Hooks, Module, Recipe

# Increase it when this module changes results in a way that the key below does not cover.
_FORMAT = 1
_MANIFEST = "META-INF/MANIFEST.MF"


def sources(hooks: Hooks) -> dict[str, bytes]:
    """Return the helpers' source files, by path below their folder.

    Raises:
        RackgateError: there are none.
    """
    # Only the package: the same folder contains programs that are compiled elsewhere.
    found = sorted((hooks.sources / hooks.package.replace(".", "/")).rglob("*.java"))
    if not found:
        raise RackgateError(
            f"{hooks.sources}: no source of {hooks.package}, the package that [hooks] in kafka.toml names"
        )
    return {str(path.relative_to(hooks.sources)): path.read_bytes() for path in found}


def source_hash(hooks: Hooks | None) -> str:
    """Return a hash of the helpers' sources and of this module; the empty hash if the recipe has no helpers."""
    digest = hashlib.sha256()
    if hooks is None:
        return digest.hexdigest()
    for name, content in {"": Path(__file__).read_bytes(), **sources(hooks)}.items():
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()


def make_jar(
    recipe: Recipe, hooks: Hooks, *, repository: MavenRepository,
    overlay: Sequence[Path], libs: Sequence[Path], cache: Path, work: Path, target: Path,
) -> None:  # fmt: skip
    """Write the helpers' jar to ``target``; the same sources and jars give the same bytes.

    The class path is ``overlay``, then the stock jars ``libs``. ``cache`` keeps results; ``work`` is an empty folder.

    Raises:
        RackgateError: a compile error; the message names file and line.
    """
    texts = sources(hooks)
    kept = cache / f"{_key(recipe, hooks, repository, texts, [*overlay, *libs])}.jar"
    if kept.exists():
        kept.touch()  # pruning deletes the least recently used results
    else:
        _compile(recipe, hooks, repository, texts, [*overlay, *libs], kept, work)
    # A copy, not a link: changes to the distribution must not affect the cache.
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(kept, target)


def _key(
    recipe: Recipe, hooks: Hooks, repository: MavenRepository, texts: dict[str, bytes], classpath: Sequence[Path]
) -> str:
    parts = [
        _FORMAT, maven.javac_version(), sorted(recipe.plugins.items()), recipe.javac_options,
        hooks.package, hooks.agent, hooks.release,
        {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()},
        [[path.name, sha256(path)] for path in classpath],
        sorted(repository.pins.items()),
        [(maven.TEMPLATES / name).read_text(encoding="utf-8") for name in ("module.xml.j2", "reactor.xml.j2")],
    ]  # fmt: skip
    return f"hooks-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def _compile(
    recipe: Recipe, hooks: Hooks, repository: MavenRepository, texts: dict[str, bytes], classpath: Sequence[Path],
    kept: Path, work: Path,
) -> None:  # fmt: skip
    copied = work / "sources"
    for name, text in texts.items():
        (copied / "java" / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / "java" / name).write_bytes(text)
    output = work / "classes"
    output.mkdir()
    pom = maven.render("reactor.xml.j2", work / "pom.xml", names=["hooks"])
    maven.render(
        "module.xml.j2", work / "hooks" / "pom.xml",
        recipe=recipe, module=Module("hooks", "", "", hooks.release), generated=None,
        output=output, jar=work / "jars" / "hooks.jar", sources=copied, classpath=classpath,
    )  # fmt: skip
    try:
        repository.maven(pom, ["compile"], task="compile the hooks", log=work / "maven.log")
    except maven.MavenError as error:
        prefixes = f"{copied}/java/", f"{hooks.sources}/"
        raise RackgateError(str(error).replace(*prefixes), detail=error.detail.replace(*prefixes)) from None
    classes = {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*.class")}
    lines = {"Manifest-Version": "1.0", **({"Premain-Class": hooks.agent} if hooks.agent else {})}
    head = "".join(f"{key}: {value}\r\n" for key, value in lines.items()) + "\r\n"
    write_jar(kept, {_MANIFEST: head.encode(), **classes})
