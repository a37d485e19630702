"""``rackgate build``: build a distribution from pinned artifacts and the series, atomically."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import git, java_helpers, maven, overlay, recipe, series, source_tree
from pyhooks.patchset.artifacts import link, sha256
from pyhooks.patchset.compilation import COMPILED_WITH, Compiler, Sources, read_jar
from pyhooks.patchset.distribution import FOLDERS, HOOKS, MANIFEST, Distribution
from pyhooks.patchset.recipe import TEST_ALL, Module, Recipe
from pyhooks.patchset.series import DEFAULT, Selection
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace, build_key, touched_modules

STAGES = ("fetch and verify", "lay out the sources", "apply the series", "compile", "make the overlay", "assemble")


@dataclass(frozen=True)
class Built:
    """Result of a build.

    Attributes:
        distribution: the distribution, addressed by its stable link.
        fresh: whether it was built now; False if it was up to date.
    """

    distribution: Distribution
    fresh: bool
    seconds: float


def build(
    *,
    kafka_toml: Path | None = None,
    base: Path | None = None,
    selection: Selection = DEFAULT,
    force: bool = False,
    quiet: bool = False,
) -> Built:
    """Build the distribution unless an up-to-date one exists.

    Args:
        kafka_toml: the recipe, with the series in the same folder; by default the one in ``patch/``.
        base: the folder to build in, by default ``build/``.
        selection: the patches to apply; each selection has its own distribution.
        force: build even if nothing changed.
        quiet: show no progress.

    Raises:
        RackgateError: the build failed; the message names the artifact, the patch, or the file and line.
    """
    started = time.monotonic()
    plan = recipe.load(kafka_toml)
    patches = series.load(plan.path.parent, selection)
    space = Workspace.of(plan, base)
    stages = Stages(len(STAGES), space.root / "timings.json", quiet=quiet)
    target = space.link(selection.label)
    key = build_key(plan, patches)
    if not force and _is_built(target, key):
        return Built(Distribution(target), False, time.monotonic() - started)
    with space.lock(stages.print_line):
        # Check again: another build may have finished while this one waited for the lock.
        if not force and _is_built(target, key):
            return Built(Distribution(target), False, time.monotonic() - started)
        _build(plan, patches, space, stages, key, target)
        stages.remember()
        space.prune()
        shutil.rmtree(space.work, ignore_errors=True)
    return Built(Distribution(target), True, time.monotonic() - started)


def _is_built(target: Path, key: str) -> bool:
    """Return whether ``target`` has this key and is undamaged; needs no lock, since links are replaced atomically."""
    if not (target / MANIFEST).exists():
        return False
    present = Distribution.load(target)
    return present.manifest.get("key") == key and not present.damage()


def _build(
    plan: Recipe, patches: tuple[series.Patch, ...], space: Workspace, stages: Stages, key: str, target: Path
) -> None:
    work = space.clear_work()
    with stages.stage(STAGES[0]):
        space.store.fetch(plan, plan.without(TEST_ALL), work)
    with stages.stage(STAGES[1]):
        published = Sources("published", space.sources(plan, work), source_tree.BASELINE)
    with stages.stage(STAGES[2]):
        tree = work / "tree"
        source_tree.clone(published.tree, tree)
        patched = Sources("patched", tree, series.apply(tree, patches))
        files = git.changed_files(tree, source_tree.BASELINE, patched.commit)
        affected = plan.affected_by(touched_modules(plan, files, patches))
    with stages.stage(STAGES[3]) as show:
        compiler = Compiler(plan, space.store, space.cache)
        with ThreadPoolExecutor(max_workers=2) as pool:
            # In parallel: each compilation on its own leaves a core idle for much of the time.
            jobs = [
                pool.submit(compiler.compile, state, affected, work / state.name, show)
                for state in (patched, published)
            ]
            after, before = (job.result() for job in jobs)
    with stages.stage(STAGES[4]):
        fresh = work / "dist"
        jars = _overlay(plan, affected, (published, patched), (before, after), space, fresh / "overlay", patches)
    with stages.stage(STAGES[5]):
        for role, folder in (("runtime", "libs"), ("spark", "spark")):
            (fresh / folder).mkdir()
            for artifact in plan.with_role(role):
                link(space.store.path(artifact), fresh / folder / artifact.file_name)
        if plan.hooks:
            classpath = [jar for folder in ("overlay", "libs") for jar in sorted((fresh / folder).iterdir())]
            java_helpers.make_jar(
                plan, plan.hooks, classpath, cache=space.cache / "hooks", work=work, target=fresh / HOOKS
            )
        manifest = _manifest(plan, patches, patched, files, jars, key, space, fresh)
        (fresh / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        space.publish(fresh, key, target)


def _overlay(
    plan: Recipe, affected: tuple[Module, ...], states: tuple[Sources, Sources],
    classes: tuple[dict[str, Path], dict[str, Path]], space: Workspace, folder: Path, patches: tuple[series.Patch, ...],
) -> list[overlay.OverlayJar]:  # fmt: skip
    folder.mkdir(parents=True)
    manifest = (
        ("Kafka-Version", plan.version),
        ("Rackgate-Revision", series.revision()),
        ("Rackgate-Series", series.series_hash(patches)),
    )
    overlay_jars = []
    for module in affected:
        nests = overlay.changed_nests(module, *(read_jar(jars[module.name]) for jars in classes))
        resources = overlay.changed_resources(*(state.tree / module.path / "src/main/resources" for state in states))
        published = plan.find(module.artifact, "runtime")
        if nests or resources:
            resources |= overlay.version_properties(space.store.path(published), series.revision())
        jar = overlay.make_jar(
            module, nests, resources,
            published=space.store.path(published), coordinates=published.id, folder=folder, manifest=manifest,
        )  # fmt: skip
        if jar:
            overlay_jars.append(jar)
    return overlay_jars


def _manifest(
    plan: Recipe, patches: tuple[series.Patch, ...], patched: Sources, files: tuple[str, ...],
    jars: list[overlay.OverlayJar], key: str, space: Workspace, fresh: Path,
) -> dict[str, Any]:  # fmt: skip
    present = [path for folder in FOLDERS for path in (fresh / folder).rglob("*") if path.is_file()]
    return {
        "key": key,
        "kafka_version": plan.version,
        "revision": series.revision(),
        "scala_version": plan.scala,
        "javac_version": maven.javac_version(),
        "tree_commit": patched.commit,
        "patch_hash": series.series_hash(patches),
        "opt_ins": list(series.opt_ins(patches)),
        "patches": [{"name": p.name, "subject": p.subject, "sha256": p.sha256} for p in patches],
        "changed_files": list(files),
        "artifacts": {artifact.id: artifact.sha256 for artifact in plan.without(TEST_ALL)},
        "compiled_with": [a.id for a in plan.artifacts if COMPILED_WITH.intersection(a.roles)],
        "maven": dict(space.repository.pins),
        "overlay": [asdict(jar) for jar in jars],
        "files": {str(path.relative_to(fresh)): sha256(path) for path in sorted(present)},
    }


def import_tree(
    *, kafka_toml: Path | None = None, base: Path | None = None, force: bool = False, quiet: bool = False
) -> Path:
    """Create the working tree: the published sources, the whole series as commits, and a branch for each part.

    Args:
        kafka_toml: the recipe, with the series in the same folder; by default the one in ``patch/``.
        base: the folder to build in, by default ``build/``.
        force: discard commits and changes in the tree that were not exported.
        quiet: show no progress.

    Raises:
        RackgateError: the tree has changes that were not exported, or a patch does not apply.
    """
    plan = recipe.load(kafka_toml)
    patches = series.load_all(plan.path.parent)
    space = Workspace.of(plan, base)
    stages = Stages(3, space.root / "timings-import.json", quiet=quiet)
    with space.lock(stages.print_line):
        if space.tree.exists() and not force and (work_in_tree := series.unexported(space.tree)):
            raise RackgateError(
                f"{space.tree}: {work_in_tree}; `rackgate patch export` keeps them, --force discards them"
            )
        work = space.clear_work()
        with stages.stage(STAGES[0]):
            space.store.fetch(plan, plan.with_role("sources", "test-sources"), work)
        with stages.stage(STAGES[1]):
            fresh = work / "tree"
            source_tree.clone(space.sources(plan, work), fresh)
        with stages.stage(STAGES[2]):
            series.apply_parts(fresh, patches)
            if space.tree.exists():
                space.tree.replace(work / "replaced-tree")
            fresh.replace(space.tree)
        stages.remember()
        shutil.rmtree(space.work, ignore_errors=True)
    return space.tree
