"""The store of pinned jars: Maven brings them, SHA-256 lets them in, and everything else reads them from here."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from pyhooks.build import maven
from pyhooks.build.recipe import Artifact, Recipe
from pyhooks.errors import RackgateError


def sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Store:
    """A folder of verified jars under their Maven file names.

    Attributes:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, artifact: Artifact) -> Path:
        """Where the jar is, once fetched."""
        return self.root / artifact.file_name

    def fetch(self, recipe: Recipe, artifacts: Iterable[Artifact], work: Path) -> int:
        """Makes sure that every artifact is here with the pinned SHA-256.

        Args:
            recipe: for the plugin versions.
            artifacts: what is wanted.
            work: a folder for temporary files.

        Returns:
            How many jars Maven had to bring.

        Raises:
            RackgateError: an artifact cannot be had, or its SHA-256 is not the pinned one; names it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        wanted = tuple(artifacts)
        missing = tuple(artifact for artifact in wanted if not self.path(artifact).exists())
        if missing:
            target = work / "fetched"
            pom = maven.render(
                "fetch.xml.j2", work / "fetch" / "pom.xml", recipe=recipe, artifacts=missing, target=target
            )
            maven.maven(pom, ["initialize"], what="fetch artifacts", log=work / "fetch.log")
            for artifact in missing:
                self._check(artifact, target / artifact.file_name, recipe)
            for artifact in missing:
                (target / artifact.file_name).replace(self.path(artifact))
        fresh = set(missing)
        for artifact in wanted:
            if artifact not in fresh:
                self._check(artifact, self.path(artifact), recipe)
        return len(missing)

    @staticmethod
    def _check(artifact: Artifact, path: Path, recipe: Recipe) -> None:
        found = sha256(path)
        if found != artifact.sha256:
            raise RackgateError(
                f"wrong hash: artifact {artifact.id} has SHA-256 {found}, but {recipe.path.name} pins "
                f"{artifact.sha256}; it is not used ({path})"
            )


def link(source: Path, target: Path) -> None:
    """Makes ``target`` the same file as ``source``, or a copy of it where the file system cannot link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
