"""Pinned files: the artifact store and Maven's local repository, both verified by SHA-256."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import put_in_place, write_text
from pyhooks.patchset import maven
from pyhooks.patchset.recipe import Artifact, Module, Recipe

# Maven's own records. They are not pinned: Maven treats a file without a record as installed locally.
_RECORDS = frozenset({"_remote.repositories", "resolver-status.properties"})
_RECORD_SUFFIXES = frozenset({".lastUpdated", ".sha1", ".md5"})
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64})  (?P<path>[^\s/]+(?:/[^\s/]+){3,})")
# Coordinates of a missing dependency in bootstrap.xml, which keeps Maven from loading the plugin.
_ABSENT = "rackgate:absent"
# Advice for a file whose hash differs from its pin: one in the repository, and one that was just downloaded.
_KEPT = "delete it and run `rackgate build`, which fetches it again"
_SERVED = "Maven's registry serves a different file; find the reason before you continue"
RENEW = "rackgate patch pin --role maven"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class Download:
    """One file that Maven downloads."""

    group: str
    name: str
    version: str
    classifier: str
    type: str
    path: Path

    @staticmethod
    def parse(path: str, root: Path) -> Download:
        """Return the download of a file to ``root``, given its path in a Maven repository.

        Raises:
            RackgateError: the path is not of the form ``group/as/folders/name/version/name-version[-classifier].type``.
        """
        *group, name, version, file = PurePosixPath(path).parts
        tail = re.fullmatch(re.escape(f"{name}-{version}") + r"(?:-(?P<classifier>[^/]+))?\.(?P<type>[a-z0-9]+)", file)
        if not group or not tail:
            raise RackgateError(f"{path}: is not the path of an artifact in a Maven repository")
        return Download(".".join(group), name, version, tail["classifier"] or "", tail["type"], root / path)


def read_pins(path: Path) -> dict[str, str]:
    """Read a file in the format of ``sha256sum``; return the SHA-256 by path in the Maven repository.

    Raises:
        RackgateError: the file is missing, or a line is malformed, repeats a path or leaves the repository.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RackgateError(f"{path}: {error}; restore it from git, or run `{RENEW}`") from error
    pins: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if not match:
            raise RackgateError(f"{path}:{number}: must be a SHA-256, two spaces and the path of a file")
        if ".." in match["path"].split("/") or match["path"] in pins:
            raise RackgateError(f"{path}:{number}: {match['path']} is listed twice or leaves the repository")
        pins[match["path"]] = match["sha256"]
    return pins


def write_pins(path: Path, pins: Mapping[str, str]) -> None:
    """Write a manifest that ``read_pins`` reads, sorted by path."""
    write_text(path, "".join(f"{digest}  {name}\n" for name, digest in sorted(pins.items())))


@dataclass(frozen=True)
class MavenRepository:
    """Maven's local repository of this project: compilers, plugins and test providers, each file pinned by SHA-256.

    Attributes:
        manifest: the file with the SHA-256 of every file. None while ``rackgate patch pin`` records the hashes: Maven
            is then online, and nothing is verified.
    """

    root: Path
    manifest: Path | None

    @cached_property
    def pins(self) -> Mapping[str, str]:
        """SHA-256 by path below ``root``."""
        return read_pins(self.manifest) if self.manifest else {}

    def maven(
        self, pom: Path, goals: Sequence[str], *, task: str, log: Path, timeout_s: float = maven.TIMEOUT_S
    ) -> None:
        """Verify all files of the repository, then run Maven offline; without a manifest, run it online and unverified.

        See ``maven.maven`` for the arguments.

        Raises:
            RackgateError: a file differs from its pin, or Maven failed.
        """
        online = self.manifest is None
        if not online:
            self.verify()
        maven.maven(pom, goals, repository=self.root, online=online, task=task, log=log, timeout_s=timeout_s)

    def verify(self) -> None:
        """Check that the repository has every pinned file, unmodified, and no other file.

        Raises:
            RackgateError: a file is missing, modified or not pinned. The message names the file and the remedy.
        """
        present = self._present()
        self._check(present)
        if missing := sorted(self.pins.keys() - present.keys()):
            raise RackgateError(f"{self.root / missing[0]} is missing: run `rackgate build --force`, which fetches it")

    def fill(self, recipe: Recipe, work: Path) -> int:
        """Download the missing pinned files, verify all files, and return the number of downloads.

        No downloaded code runs before its hash is verified: Maven first downloads the plugin that copies artifacts,
        without loading it. The verified plugin then downloads everything else. ``work`` is for temporary files.

        Raises:
            RackgateError: a file can't be downloaded or differs from its pin; the message names the file.
        """
        if self.manifest is None:
            return 0
        self._check(self._present())
        if not (missing := self._missing()):
            return 0
        staging = MavenRepository(work / "repository", self.manifest)
        for name in self.pins.keys() - missing:
            link(self.root / name, staging.root / name)
        staging.bootstrap(recipe, work)
        staging._check(staging._present(), advice=_SERVED)
        downloaded = MavenRepository(work / "downloaded", self.manifest)
        downloads = [Download.parse(name, downloaded.root) for name in staging._missing()]
        if downloads:
            _download(recipe, downloads, staging.root, work)
            downloaded._check(downloaded._present(), advice=_SERVED)
        fetched = {download.path for download in downloads}
        for name in missing:
            source = downloaded.root / name
            put_in_place(source if source in fetched else staging.root / name, self.root / name)
        self.verify()
        return len(missing)

    def download(self, recipe: Recipe, downloads: Sequence[Download], work: Path) -> None:
        """Download files with the verified plugin; the caller verifies them. ``work`` is for temporary files.

        Raises:
            RackgateError: a file can't be downloaded.
        """
        staging = MavenRepository(work / "repository", self.manifest)
        for name in self.pins:
            if not (staging.root / name).exists():
                link(self.root / name, staging.root / name)
        if self.manifest is None:
            staging.bootstrap(recipe, work)
        _download(recipe, downloads, staging.root, work)

    def bootstrap(self, recipe: Recipe, work: Path) -> None:
        """Download the plugin that copies artifacts, and its dependencies, without loading any of them.

        The pom adds a dependency that does not exist. Maven downloads all others and fails before it loads one.

        Raises:
            RackgateError: a file can't be downloaded, or Maven loaded the plugin.
        """
        absent = _ABSENT.split(":")
        pom = maven.render("bootstrap.xml.j2", work / "bootstrap" / "pom.xml", recipe=recipe, absent=absent)
        log, task = work / "bootstrap.log", "fetch Maven's plugins"
        try:
            maven.maven(pom, ["validate"], repository=self.root, online=True, task=task, log=log)
        except RackgateError:
            if not log.exists() or f"Could not find artifact {_ABSENT}:" not in log.read_text(encoding="utf-8"):
                raise
            return
        raise RackgateError(f"{task}: Maven loaded a plugin whose dependency {_ABSENT} does not exist")

    def files(self) -> dict[str, str]:
        """Return the SHA-256 of every file in the repository, by path."""
        return {name: sha256(path) for name, path in self._present().items()}

    def _present(self) -> dict[str, Path]:
        return {
            path.relative_to(self.root).as_posix(): path
            for path in self.root.rglob("*")
            # rglob does not descend into a link to a folder, so the link itself is listed and fails verification.
            if path.is_symlink() or not (path.is_dir() or path.name in _RECORDS or path.suffix in _RECORD_SUFFIXES)
        }

    def _missing(self) -> list[str]:
        return sorted(name for name in self.pins if not (self.root / name).exists())

    def _check(self, present: Mapping[str, Path], advice: str = _KEPT) -> None:
        manifest = self.manifest.name if self.manifest else "no manifest"
        for name, path in sorted(present.items()):
            found, expected = sha256(path) if path.is_file() else "of no file", self.pins.get(name)
            if expected is None:
                raise RackgateError(
                    f"unpinned file: {path} (SHA-256 {found}) is not in {manifest}; it is not used: delete it, or "
                    f"run `{RENEW}` if the build needs it"
                )
            if found != expected:
                raise RackgateError(
                    f"wrong hash: {path} has SHA-256 {found}, but {manifest} pins {expected}; it is not used: {advice}"
                )


def _download(recipe: Recipe, downloads: Sequence[Download], repository: Path, work: Path) -> None:
    pom = maven.render("fetch.xml.j2", work / "fetch" / "pom.xml", recipe=recipe, downloads=downloads)
    log = work / "fetch.log"
    maven.maven(pom, ["initialize"], repository=repository, online=True, task="fetch artifacts", log=log)


class ArtifactStore:
    """A folder of verified jars under their Maven file names.

    Attributes:
        repository: the Maven repository whose plugin downloads what is missing.
    """

    def __init__(self, root: Path, repository: MavenRepository) -> None:
        self.root = root
        self.repository = repository

    def path(self, artifact: Artifact) -> Path:
        """Return the path of the jar, whether fetched or not."""
        return self.root / artifact.file_name

    def test_jars(self, recipe: Recipe, first: Module | None = None) -> list[Path]:
        """Return the published test jars of all modules; the one of module ``first`` leads."""
        modules = sorted((module for module in recipe.modules if module.tests), key=lambda module: module != first)
        return [self.path(recipe.find(module.artifact, "test")) for module in modules]

    def fetch(self, recipe: Recipe, artifacts: Iterable[Artifact], work: Path) -> int:
        """Download missing artifacts and Maven files, verify all of them, and return the number of downloaded jars.

        Raises:
            RackgateError: an artifact can't be downloaded or differs from its pin; the message names the artifact.
        """
        self.repository.fill(recipe, work)
        wanted = tuple(artifacts)
        missing = tuple(artifact for artifact in wanted if not self.path(artifact).exists())
        if missing:
            target = work / "fetched"
            downloads = [
                Download(a.group, a.name, a.version, a.classifier, "jar", target / a.file_name) for a in missing
            ]
            self.repository.download(recipe, downloads, work)
            for artifact in missing:
                self._check(artifact, target / artifact.file_name, recipe)
            for artifact in missing:
                put_in_place(target / artifact.file_name, self.path(artifact))
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
    """Make ``target`` a hard link to ``source``, or a copy if the file system does not allow a link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
