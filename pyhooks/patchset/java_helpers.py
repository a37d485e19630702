"""Jar of the project's own Java helpers, compiled against overlay and stock jars.

The jar has two uses: it is on the class path of the JVMs that Python controls, and brokers of the lab load it as an
agent. It is not part of the overlay, so it is not installed on production brokers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.patchset import maven, overlay
from pyhooks.patchset.artifacts import sha256
from pyhooks.patchset.compilation import write_jar
from pyhooks.patchset.recipe import Hooks, Recipe

# Increase it when this module changes results in a way that the key below does not cover.
_FORMAT = 1
_ERROR = ": error: "
_LINES = 1000
# Kafka 4.3 moved the classes of records from the second package to the first.
_RECORDS, _RECORDS_UNTIL_4_2 = "org.apache.kafka.common.record.internal", "org.apache.kafka.common.record"


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


def make_jar(recipe: Recipe, hooks: Hooks, classpath: Sequence[Path], *, cache: Path, work: Path, target: Path) -> None:
    """Write the helpers' jar to ``target``; the same sources and jars give the same bytes.

    The class path is that of a broker: overlay jars, then stock jars. ``cache`` keeps results; ``work`` is a folder
    for temporary files.

    Raises:
        RackgateError: a compile error; the message names file and line.
    """
    texts = _adapt(sources(hooks), classpath)
    kept = cache / f"{_key(recipe, hooks, texts, classpath)}.jar"
    if kept.exists():
        kept.touch()  # pruning deletes the least recently used results
    else:
        _compile(recipe, hooks, texts, classpath, kept, work)
    # A copy, not a link: changes to the distribution must not affect the cache.
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(kept, target)


def _adapt(texts: Mapping[str, bytes], classpath: Sequence[Path]) -> dict[str, bytes]:
    """Return the sources with the package that Kafka's record classes have on this class path."""
    if any(_has_class(path, f"{_RECORDS_UNTIL_4_2}.FileRecords") for path in classpath if "clients" in path.name):
        return {name: text.replace(_RECORDS.encode(), _RECORDS_UNTIL_4_2.encode()) for name, text in texts.items()}
    return dict(texts)


def _has_class(jar: Path, name: str) -> bool:
    with zipfile.ZipFile(jar) as archive:
        return f"{name.replace('.', '/')}.class" in archive.NameToInfo


def _key(recipe: Recipe, hooks: Hooks, texts: dict[str, bytes], classpath: Sequence[Path]) -> str:
    parts = [
        _FORMAT, maven.javac_version(), recipe.javac_options, hooks.package, hooks.agent, hooks.release,
        {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()},
        [[path.name, sha256(path)] for path in classpath],
    ]  # fmt: skip
    return f"hooks-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def _compile(
    recipe: Recipe, hooks: Hooks, texts: dict[str, bytes], classpath: Sequence[Path], kept: Path, work: Path
) -> None:
    output, adapted = work / "hooks", work / "hooks-sources"
    output.mkdir()
    for name, text in texts.items():
        (adapted / name).parent.mkdir(parents=True, exist_ok=True)
        (adapted / name).write_bytes(text)
    path = os.pathsep.join(map(str, classpath))
    command: list[str | Path] = [maven.java_home() / "bin" / "javac", *(f"-J{option}" for option in maven.LANGUAGE)]
    command += ["-proc:none", "-encoding", "UTF-8", "--release", str(hooks.release), *recipe.javac_options]
    command += ["-cp", path, "-d", output, *texts]
    try:
        run(command, task="compile the hooks", cwd=adapted, tail_lines=_LINES)
    except RackgateError as error:
        place, _, reason = next((line for line in error.detail.splitlines() if _ERROR in line), "").partition(_ERROR)
        if not place:
            raise
        raise RackgateError(f"compile the hooks: {hooks.sources / place}: {reason}", detail=error.detail) from None
    classes = {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*.class")}
    lines = [("Manifest-Version", "1.0"), *([("Premain-Class", hooks.agent)] if hooks.agent else [])]
    write_jar(kept, {overlay.MANIFEST: overlay.manifest_text(lines), **classes})
