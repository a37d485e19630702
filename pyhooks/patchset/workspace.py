"""The folder a build works in: where its parts lie, one build at a time, and what was left by one that was killed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import java_helpers, maven, series, source_tree
from pyhooks.patchset.artifacts import RENEW, MavenRepository, Store, sha256
from pyhooks.patchset.git import git
from pyhooks.patchset.recipe import Module, Recipe

# Beside kafka.toml: the SHA-256 of everything that Maven runs.
MAVEN_MANIFEST = "maven.sha256"
_WORK_PREFIX = "build-"
_KEPT_DISTRIBUTIONS = 3
_KEPT_SOURCES = 2
_KEPT_REPOSITORIES = 2
_STALE_TESTS_S = 86_400.0
_KEPT_CLASS_JARS = 150
_KEPT_HOOKS = 10
_BUILDING_POMS = frozenset({"bootstrap.xml", "fetch.xml", "reactor.xml", "module.xml"})
# What decides the bytes of an overlay: ``builder`` and all that it imports, but for what reads a build, tells of
# progress or makes helpers. A test holds this against the imports.
_BUILDING = frozenset(
    {"artifacts", "builder", "compilation", "git", "maven", "overlay", "recipe", "series", "source_tree", "workspace"}
)


@dataclass(frozen=True)
class Workspace:
    """Everything that is made while building one version of Kafka.

    Attributes:
        root: ``build/kafka-<version>``.
        manifest: the SHA-256 of every file of Maven's local repository.
    """

    root: Path
    manifest: Path = paths.PATCH / MAVEN_MANIFEST

    @staticmethod
    def of(recipe: Recipe, base: Path | None = None) -> Workspace:
        """The workspace of that recipe below ``base``, by default ``build/``."""
        return Workspace((base or paths.BUILD) / f"kafka-{recipe.version}", recipe.path.with_name(MAVEN_MANIFEST))

    @property
    def store(self) -> Store:
        """The pinned jars."""
        return Store(self.root / "artifacts", self.repository)

    @property
    def repository(self) -> MavenRepository:
        """Maven's local repository; another manifest has another folder, so a file that no line names is foreign."""
        if not self.manifest.is_file():
            raise RackgateError(f"{self.manifest} is missing; restore it from git, or run `{RENEW}`")
        return MavenRepository(self.root / "maven" / sha256(self.manifest)[:16], self.manifest)

    @property
    def work(self) -> Path:
        """Temporary files of the one running build; whatever is here when a build starts is rubbish."""
        return self.root / "work"

    @property
    def cache(self) -> Path:
        """Kept results of compilations."""
        return self.root / "cache"

    @property
    def tree(self) -> Path:
        """The person's own tree: the series as commits, to change and export."""
        return self.root / "tree"

    def link(self, label: str) -> Path:
        """The symbolic link to the finished distribution of a selection of the series, by its label."""
        return self.root / (f"dist-{label}" if label else "dist")

    @contextmanager
    def lock(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Holds the workspace for this process; waits, and says so, while another one has it.

        The kernel lets the lock go when the process ends, however it ends.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell(f"another build works in {self.root}; waiting for it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def clear_work(self) -> Path:
        """Takes away what killed builds left and returns a new folder of temporary files.

        Its name is new each time: a compiler that a killed build started may go on for a while, and what it still
        writes must not get among our files.
        """
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=self.work))

    def test_work(self) -> Path:
        """A new folder for one run of tests, which holds no lock; takes away what killed runs left days ago."""
        base = self.root / "tests"
        base.mkdir(parents=True, exist_ok=True)
        for old in base.iterdir():
            if time.time() - old.stat().st_mtime > _STALE_TESTS_S:
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=base))

    def sources(self, recipe: Recipe, work: Path) -> Path:
        """The published sources as a git repository, laid out if that was not done yet or was tampered with."""
        jars = [[a.id, a.sha256] for role in ("sources", "test-sources") for a in recipe.with_role(role)]
        homes = [[m.name, m.path, m.scala] for m in recipe.modules]
        how = Path(source_tree.__file__).read_text(encoding="utf-8")
        key = hashlib.sha256(json.dumps([jars, homes, how]).encode()).hexdigest()[:16]
        folder = self.root / "sources" / key
        if folder.exists() and self._as_laid_out(folder):
            return folder
        source_tree.remove(folder)
        fresh = work / "sources"
        source_tree.lay_out(recipe, self.store, fresh)
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh.replace(folder)
        return folder

    @staticmethod
    def _as_laid_out(folder: Path) -> bool:
        try:
            head = git(folder, "rev-parse", "HEAD", source_tree.BASELINE, what="look at the sources").split()
            return len(set(head)) == 1 and not git(folder, "status", "--porcelain", what="look at the sources")
        except RackgateError:
            return False  # whatever is wrong with it, it is laid out again

    def publish(self, fresh: Path, key: str, link: Path) -> Path:
        """Puts a finished distribution in its place; before this nobody sees it, after it everybody does.

        Args:
            fresh: the finished folder, in a folder of temporary files.
            key: the build's key.
            link: the symbolic link that shall lead to it.

        Returns:
            The folder it now is.
        """
        # A name of its own for each build: what runs on an earlier one keeps its jars, even for the same key.
        target = self.root / "dists" / f"{key[:16]}-{fresh.parent.name.removeprefix(_WORK_PREFIX)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.replace(target)
        if link.exists() and not link.is_symlink():
            link.replace(fresh.with_name("replaced"))
        pointer = fresh.with_name("link")
        pointer.symlink_to(Path("dists") / target.name)
        pointer.replace(link)
        return target

    def prune(self) -> None:
        """Deletes old distributions that no link leads to, old sources and old compilation results."""
        used = {link.resolve() for link in self.root.glob("dist*") if link.is_symlink()}
        dists = self._newest_first(self.root / "dists")
        for folder in [d for d in dists if d.resolve() not in used][_KEPT_DISTRIBUTIONS:]:
            source_tree.remove(folder)
        for folder in self._newest_first(self.root / "sources")[_KEPT_SOURCES:]:
            source_tree.remove(folder)
        current = self.repository.root
        repositories = [path for path in self._newest_first(self.root / "maven") if path != current]
        for folder in repositories[_KEPT_REPOSITORIES - 1 :]:
            source_tree.remove(folder)
        for name, kept in (("classes", _KEPT_CLASS_JARS), ("hooks", _KEPT_HOOKS)):
            for jar in self._newest_first(self.cache / name)[kept:]:
                source_tree.remove(jar)

    @staticmethod
    def _newest_first(folder: Path) -> list[Path]:
        entries = folder.iterdir() if folder.exists() else iter(())
        return sorted(entries, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def build_key(recipe: Recipe, patches: Sequence[series.Patch]) -> str:
    """A hash of everything that decides what a build makes: what ``overlay_key`` covers, and the Java helpers."""
    return hashlib.sha256(
        f"{overlay_key(recipe, patches)} {java_helpers.source_hash(recipe.hooks)}".encode()
    ).hexdigest()


def overlay_key(recipe: Recipe, patches: Sequence[series.Patch]) -> str:
    """A hash of everything that decides what the overlay is: recipe, pins, patches, poms, the code, the compiler."""
    digest = hashlib.sha256(series.series_hash(patches).encode())
    digest.update(recipe.path.read_bytes())
    digest.update(recipe.path.with_name(MAVEN_MANIFEST).read_bytes())
    digest.update(paths.NOTICE.read_bytes())
    poms = [path for path in maven.TEMPLATES.glob("*.j2") if path.stem in _BUILDING_POMS]
    code = [path for path in Path(__file__).parent.glob("*.py") if path.stem in _BUILDING]
    for path in sorted([*poms, *code]):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    digest.update(maven.javac_version().encode())
    return digest.hexdigest()


def touched_modules(recipe: Recipe, files: Sequence[str], patches: Sequence[series.Patch]) -> set[str]:
    """Names of the modules whose main sources the series changes.

    Args:
        recipe: knows the modules' folders.
        files: all files that differ from the baseline.
        patches: to tell which one changes a file that no module has.

    Raises:
        RackgateError: a file lies in no module that is built, so a change to it would have no effect.
    """
    touched = set()
    for file in files:
        module = home(recipe, file)
        if module is None:
            culprit = next((p.name for p in patches if file in p.files), "the series")
            raise RackgateError(
                f"patch {culprit} changes {file}, which is in src/main or src/test of no [[module]] in "
                f"{recipe.path.name}; add its module there"
            )
        if file.startswith(f"{module.path}/src/main/"):
            touched.add(module.name)
    return touched


def home(recipe: Recipe, file: str) -> Module | None:
    """The module whose ``src/main`` or ``src/test`` holds ``file``."""
    for module in recipe.modules:
        if file.startswith((f"{module.path}/src/main/", f"{module.path}/src/test/")):
            return module
    return None
