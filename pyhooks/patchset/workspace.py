"""Build folder of one Kafka version: its layout, a lock for one build at a time, and removal of leftovers."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import delete_stale, put_in_place
from pyhooks.core.locks import hold_lock
from pyhooks.patchset import java_helpers, maven, series, source_tree
from pyhooks.patchset.artifacts import RENEW, ArtifactStore, MavenRepository, sha256
from pyhooks.patchset.git import git
from pyhooks.patchset.recipe import Module, Recipe

# In the folder of kafka.toml: the SHA-256 of every file of Maven's local repository.
MAVEN_MANIFEST = "maven.sha256"
_WORK_PREFIX = "build-"
_KEPT_DISTRIBUTIONS = 3
_KEPT_SOURCES = 2
_KEPT_REPOSITORIES = 2
_STALE_TESTS_S = 86_400.0
_KEPT_CLASS_JARS = 150
_KEPT_HOOKS = 10
_BUILDING_POMS = frozenset({"bootstrap.xml", "fetch.xml", "reactor.xml", "module.xml"})
# Modules that determine the bytes of an overlay: ``builder`` and its imports, except those that read a build, show
# progress or build the Java helpers. A test compares this set with the imports.
_BUILDING = frozenset(
    {"artifacts", "builder", "compilation", "git", "maven", "overlay", "recipe", "series", "source_tree", "workspace"}
)


@dataclass(frozen=True)
class Workspace:
    """All files made while building one version of Kafka.

    Attributes:
        root: ``build/kafka-<version>``.
        manifest: the file with the SHA-256 of every file of Maven's local repository.
    """

    root: Path
    manifest: Path = field(default_factory=lambda: paths.patch_folder() / MAVEN_MANIFEST)

    @staticmethod
    def of(recipe: Recipe, base: Path | None = None) -> Workspace:
        """Return the workspace of a recipe below ``base``, by default ``build/``."""
        return Workspace((base or paths.BUILD) / f"kafka-{recipe.version}", recipe.path.with_name(MAVEN_MANIFEST))

    @property
    def store(self) -> ArtifactStore:
        """The pinned jars."""
        return ArtifactStore(self.root / "artifacts", self.repository)

    @property
    def repository(self) -> MavenRepository:
        """Maven's local repository. Each manifest has its own folder, so a file without a pin is foreign."""
        if not self.manifest.is_file():
            raise RackgateError(f"{self.manifest} is missing; restore it from git, or run `{RENEW}`")
        return MavenRepository(self.root / "maven" / sha256(self.manifest)[:16], self.manifest)

    @property
    def work(self) -> Path:
        """Temporary files of the running build; anything here when a build starts is a leftover."""
        return self.root / "work"

    @property
    def cache(self) -> Path:
        """Cached results of compilations."""
        return self.root / "cache"

    @property
    def tree(self) -> Path:
        """The developer's working tree: the series as commits, to edit and export."""
        return self.root / "tree"

    def link(self, label: str) -> Path:
        """Return the symbolic link to the finished distribution of a selection, given the selection's label."""
        return self.root / (f"dist-{label}" if label else "dist")

    def lock(self, on_wait: Callable[[str], None]) -> AbstractContextManager[None]:
        """Lock the workspace for this process; if another process has the lock, report it to ``on_wait`` and wait."""
        taken = f"another build works in {self.root}; waiting for it"
        return hold_lock(self.root / "lock", taken=taken, patience_s=math.inf, on_wait=lambda: on_wait(taken))

    def clear_work(self) -> Path:
        """Delete what killed builds left and return a new folder for temporary files.

        Each folder has a new name: a compiler that a killed build started may still be writing to the old one.
        """
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=self.work))

    @contextmanager
    def test_work(self) -> Iterator[Path]:
        """Create a folder for one test run, which holds no lock, and delete it at the end, and others after a day."""
        base = self.root / "tests"
        base.mkdir(parents=True, exist_ok=True)
        delete_stale(base, "*", _STALE_TESTS_S)
        work = Path(tempfile.mkdtemp(dir=base))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def sources(self, recipe: Recipe, work: Path) -> Path:
        """Return the git repository of the published sources; create it if it is missing or was modified."""
        jars = [[a.id, a.sha256] for role in ("sources", "test-sources") for a in recipe.with_role(role)]
        homes = [[m.name, m.path, m.scala] for m in recipe.modules]
        how = Path(source_tree.__file__).read_text(encoding="utf-8")
        key = hashlib.sha256(json.dumps([jars, homes, how]).encode()).hexdigest()[:16]
        folder = self.root / "sources" / key
        if folder.exists() and self._as_laid_out(folder):
            return folder
        _remove(folder)
        fresh = work / "sources"
        source_tree.lay_out(recipe, self.store, fresh)
        put_in_place(fresh, folder)
        return folder

    @staticmethod
    def _as_laid_out(folder: Path) -> bool:
        try:
            head = git(folder, "rev-parse", "HEAD", source_tree.BASELINE, task="read the state of the sources").split()
            return len(set(head)) == 1 and not git(
                folder, "status", "--porcelain", task="read the state of the sources"
            )
        except RackgateError:
            return False  # any damage: the caller creates the repository anew

    def publish(self, fresh: Path, key: str, link: Path) -> None:
        """Move a finished distribution from its work folder to its final one, and point the link to it atomically."""
        # Each build has its own folder: processes that run on an earlier build keep its jars, even for the same key.
        target = self.root / "dists" / f"{key[:16]}-{fresh.parent.name.removeprefix(_WORK_PREFIX)}"
        put_in_place(fresh, target)
        if link.exists() and not link.is_symlink():
            link.replace(fresh.with_name("replaced"))
        pointer = fresh.with_name("link")
        pointer.symlink_to(Path("dists") / target.name)
        pointer.replace(link)

    def prune(self) -> None:
        """Delete old sources, Maven repositories and compilation results, and old distributions without a link."""
        used = {link.resolve() for link in self.root.glob("dist*") if link.is_symlink()}
        used.add(self.repository.root.resolve())
        for folder, kept in (
            (self.root / "dists", _KEPT_DISTRIBUTIONS), (self.root / "sources", _KEPT_SOURCES),
            (self.root / "maven", _KEPT_REPOSITORIES - 1),
            (self.cache / "classes", _KEPT_CLASS_JARS), (self.cache / "hooks", _KEPT_HOOKS),
        ):  # fmt: skip
            for path in [path for path in self._newest_first(folder) if path.resolve() not in used][kept:]:
                _remove(path)

    @staticmethod
    def _newest_first(folder: Path) -> list[Path]:
        entries = folder.iterdir() if folder.exists() else iter(())
        return sorted(entries, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _remove(path: Path) -> None:
    """Delete a folder, file or symbolic link if it exists."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def build_key(recipe: Recipe, patches: Sequence[series.Patch]) -> str:
    """Return a hash of all inputs of a build: those of ``overlay_key``, and the Java helpers."""
    return hashlib.sha256(
        f"{overlay_key(recipe, patches)} {java_helpers.source_hash(recipe.hooks)}".encode()
    ).hexdigest()


def overlay_key(recipe: Recipe, patches: Sequence[series.Patch]) -> str:
    """Return a hash of all inputs of the overlay: recipe, pins, series, notice, poms, build code and compiler."""
    digest = hashlib.sha256(f"{series.series_hash(patches)} {series.revision()}".encode())
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
    """Return the names of the modules whose main sources the series changes.

    Raises:
        RackgateError: a file belongs to no module in the recipe, so a change to it would have no effect.
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
    """Return the module whose ``src/main`` or ``src/test`` contains ``file``, or None."""
    for module in recipe.modules:
        if file.startswith((f"{module.path}/src/main/", f"{module.path}/src/test/")):
            return module
    return None
