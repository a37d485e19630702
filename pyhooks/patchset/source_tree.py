"""Published sources in the layout of Kafka's repository, as a git repository with one reproducible commit."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pyhooks.core.errors import RackgateError
from pyhooks.patchset.artifacts import ArtifactStore
from pyhooks.patchset.git import commit_all, git
from pyhooks.patchset.recipe import Module, Recipe

BASELINE = "published"
_GENERATED = b"THIS CODE IS AUTOMATICALLY GENERATED"
_SKIPPED = frozenset({"META-INF/MANIFEST.MF", "LICENSE", "NOTICE"})


def destination(module: Module, kind: str, name: str, head: bytes) -> str | None:
    """Return the path in Kafka's repository of an entry of a sources jar, or None for generated files.

    Args:
        module: the module of the jar.
        kind: ``main`` or ``test``.
        name: the entry's name.
        head: the first bytes of its content, enough to include a licence header.
    """
    if name.endswith("/") or name in _SKIPPED:
        return None
    suffix = PurePosixPath(name).suffix
    # Published sources mix the generated message classes with the hand-written ones.
    if suffix == ".java" and _GENERATED in head:
        return None
    beside_code = suffix in {".html", ".md"} and name.startswith(("org/", "kafka/"))
    if suffix == ".scala" or (beside_code and module.scala):
        folder = "scala"
    elif suffix == ".java" or beside_code:
        folder = "java"
    else:
        folder = "resources"
    return f"{module.path}/src/{kind}/{folder}/{name}"


def lay_out(recipe: Recipe, store: ArtifactStore, folder: Path) -> str:
    """Write the sources of all modules to the new ``folder``, commit them, and return the hash of the commit.

    Raises:
        RackgateError: two jars contain the same file, or a module's message definitions are missing.
    """
    folder.mkdir(parents=True)
    for module in recipe.modules:
        for target, content in _files(recipe, store, module):
            path = folder / target
            if path.exists():
                raise RackgateError(
                    f"lay out the tree: {target} comes from two jars, the second is {module.artifact}'s"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        messages = module.messages
        if messages and not (folder / module.path / "src/main/resources" / messages.path).is_dir():
            raise RackgateError(f"{recipe.path}: module {module.name}: no message definitions in {messages.path}")
    git(folder, "init", "--quiet", "--initial-branch=rackgate", task="lay out the tree")
    commit = commit_all(folder, f"Apache Kafka {recipe.version}, as published")
    git(folder, "tag", BASELINE, task="lay out the tree")
    return commit


def _files(recipe: Recipe, store: ArtifactStore, module: Module) -> Iterator[tuple[str, bytes]]:
    for role, kind in (("sources", "main"), ("test-sources", "test")):
        if kind == "test" and not module.tests:
            continue
        jar = store.path(recipe.find(module.artifact, role))
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(set(archive.namelist())):
                content = archive.read(name)
                target = destination(module, kind, name, content[:4096])
                if target:
                    yield target, content


def clone(source: Path, folder: Path) -> None:
    """Clone the repository of the published sources, with a work tree, to ``folder``, which must not exist."""
    git(source, "clone", "--quiet", "--local", "--no-tags", ".", str(folder), task="copy the tree")
    commit = git(source, "rev-parse", BASELINE, task="copy the tree")
    git(folder, "tag", BASELINE, commit, task="copy the tree")
    git(folder, "remote", "remove", "origin", task="copy the tree")
