"""Port of the series from one version of Kafka to another, by three-way merges, and comparison of the two series."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core import paths, toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_text
from pyhooks.core.toml_config import Table
from pyhooks.patchset import recipe, series, source_tree
from pyhooks.patchset.git import commit_of, git
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.series import PARTS, TOP, Patch
from pyhooks.patchset.source_tree import BASELINE
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace

# In the folder of the ported series: the reason of each difference, and `git range-diff` in short form.
DIFFERENCES, RANGE_DIFF = "port.toml", "range-diff.txt"
CHANGED, DROPPED = "changed", "dropped"
# Refs in the tree: sources and parts of the version that is ported, and the commit whose merge was begun last.
_FROM = "refs/rackgate/from"
_BEGUN = "refs/rackgate/port"
_RANGE = re.compile(r"\s*(?P<old>\d+|-):\s+\S+ (?P<mark>[=!<>])\s+(?P<new>\d+|-):\s+\S+ .*")


@dataclass(frozen=True)
class Difference:
    """A patch that is not the same on both versions.

    Attributes:
        state: ``changed`` or ``dropped``.
        reason: why; empty if it is not written yet.
    """

    patch: str
    state: str
    reason: str


@dataclass(frozen=True)
class Ported:
    """Result of a port.

    Attributes:
        names: all patches of the ported series.
        differences: patches that are changed or dropped.
    """

    folder: Path
    names: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Names of the patches whose difference has no reason."""
        return tuple(difference.patch for difference in self.differences if not difference.reason)


def port(
    source: Recipe, target: Recipe, *, base: Path | None = None, force: bool = False, quiet: bool = False
) -> Ported:
    """Port the series of ``source`` to ``target``: merge each patch, write the series and compare the two.

    The tree of ``target`` receives one commit for each patch. A call after a conflict continues where the last one
    stopped.

    Args:
        source: the version whose series is ported.
        target: the version to port it to; its folder receives the series.
        base: the folder to work in, by default ``build/``.
        force: replace an existing series and tree of ``target``.
        quiet: show no progress.

    Raises:
        RackgateError: a patch conflicts, the message says what to do; or ``target`` has a series or a tree already.
    """
    space, folder = Workspace.of(target, base), target.path.parent
    stages = Stages(4, None, quiet=quiet)
    with space.lock(stages.print_line):
        if force or not (space.tree.exists() and commit_of(space.tree, _BEGUN)):
            if not force and (folder / "series").exists():
                raise RackgateError(f"{folder} has a series; --force ports it anew and replaces it")
            if not force and space.tree.exists() and (found := series.unexported(space.tree)):
                raise RackgateError(f"{space.tree}: {found}; export it, or discard it with --force")
            with stages.stage("lay out the sources"):
                _begin(source, target, space, base, stages)
        with stages.stage("merge the patches"):
            _merge(space.tree)
        with stages.stage("write the series"):
            names = _write(source, space.tree, folder)
        with stages.stage("compare"):
            differences = _compare(source, target, space.tree)
    return Ported(folder, names, differences)


def compare(source: Recipe, target: Recipe, *, base: Path | None = None, quiet: bool = False) -> Ported:
    """Compare the series of two versions as they are; renew the files that describe the differences.

    Raises:
        RackgateError: a patch does not apply.
    """
    space = Workspace.of(target, base)
    stages = Stages(2, None, quiet=quiet)
    with space.lock(stages.print_line):
        work = space.clear_work()
        with stages.stage("lay out the sources"):
            tree = _parts(target, space, work)
            _fetch_parts(source, tree, base, stages)
        with stages.stage("compare"):
            differences = _compare(source, target, tree)
        shutil.rmtree(space.work, ignore_errors=True)
    return Ported(target.path.parent, series.names(target.path.parent), differences)


def _sources(plan: Recipe, space: Workspace, work: Path) -> Path:
    """Clone the published sources to a new tree below ``work``."""
    space.store.fetch(plan, plan.with_role("sources", "test-sources"), work)
    tree = work / "tree"
    source_tree.clone(space.sources(plan, work), tree)
    return tree


def _parts(plan: Recipe, space: Workspace, work: Path) -> Path:
    """Return a new tree with the series as commits, and a branch for each part."""
    tree = _sources(plan, space, work)
    series.apply_parts(tree, series.load_all(plan.path.parent))
    return tree


def _fetch_parts(source: Recipe, tree: Path, base: Path | None, stages: Stages) -> None:
    """Bring the branches of the parts on the ``source`` version, and its sources, to ``tree``."""
    origin = Workspace.of(source, base)
    with origin.lock(stages.print_line):
        ported = _parts(source, origin, origin.clear_work())
        refs = [f"+refs/heads/{part}:{_FROM}/{part}" for part in PARTS]
        git(tree, "fetch", "--quiet", "--no-tags", str(ported), *refs, f"+refs/tags/{BASELINE}:{_FROM}/{BASELINE}",
            task="fetch the series")  # fmt: skip
        shutil.rmtree(origin.work, ignore_errors=True)


def _begin(source: Recipe, target: Recipe, space: Workspace, base: Path | None, stages: Stages) -> None:
    work = space.clear_work()
    fresh = _sources(target, space, work)
    _fetch_parts(source, fresh, base, stages)
    task = "make the branches of the parts"
    former = git(fresh, "symbolic-ref", "--short", "HEAD", task=task)
    git(fresh, "checkout", "--quiet", "-B", TOP, BASELINE, task=task)
    git(fresh, "branch", "--quiet", "-D", former, task=task)
    git(fresh, "config", "rebase.updateRefs", "true", task=task)
    # A conflict shows the text of the version that is ported, too.
    git(fresh, "config", "merge.conflictStyle", "zdiff3", task=task)
    git(fresh, "update-ref", _BEGUN, BASELINE, task=task)
    if space.tree.exists():
        space.tree.replace(work / "replaced-tree")
    fresh.replace(space.tree)
    shutil.rmtree(space.work, ignore_errors=True)


def _merge(tree: Path) -> None:
    """Merge all patches that are not merged yet.

    Raises:
        RackgateError: a patch conflicts, now or since the last call.
    """
    task = "merge the patches"
    _finish_merge(tree)
    begun = commit_of(tree, _BEGUN)
    below, waiting = BASELINE, begun == commit_of(tree, f"refs/tags/{BASELINE}")
    for part in PARTS:
        commits = git(tree, "rev-list", "--reverse", f"{_FROM}/{below}..{_FROM}/{part}", task=task).split()
        below = part
        ends_here = waiting or begun in commits
        for commit in commits:
            if waiting:
                _merge_one(tree, commit)
            waiting = waiting or commit == begun
        if ends_here and part != TOP:
            git(tree, "branch", "--quiet", "--force", part, "HEAD", task=task)
    git(tree, "update-ref", "-d", _BEGUN, task=task)


def _merge_one(tree: Path, commit: str) -> None:
    git(tree, "update-ref", _BEGUN, commit, task="merge the patches")
    try:
        git(tree, "cherry-pick", "--no-gpg-sign", commit, task="merge a patch")
    except RackgateError:
        if not _merging(tree).exists():
            raise
        _finish_merge(tree)


def _merging(tree: Path) -> Path:
    return tree / ".git" / "CHERRY_PICK_HEAD"


def _finish_merge(tree: Path) -> None:
    """Commit the merge that stopped at a conflict; leave the patch out if nothing remains of it.

    Raises:
        RackgateError: it is not resolved.
    """
    if not _merging(tree).exists():
        return
    task = "continue the port"
    commit = _merging(tree).read_text(encoding="ascii").strip()
    subject = git(tree, "log", "-1", "--format=%s", commit, task=task)
    unmerged = git(tree, "diff", "--name-only", "--diff-filter=U", task=task).split()
    if unmerged:
        raise RackgateError(
            f"{subject!r} conflicts in {', '.join(unmerged)}. In {tree}: edit them, `git add` them, and run the same "
            "command again; or leave the patch out with `git cherry-pick --skip`",
            exit_status=1,
        )
    changes = git(tree, "diff", "--cached", "--unified=0", task=task)
    if re.search(r"^\+(<{7}|\|{7}|>{7})( |$)", changes, re.MULTILINE):
        raise RackgateError(f"{subject!r}: a file that was added in {tree} has conflict markers", exit_status=1)
    if changes:
        git(tree, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--reuse-message", commit, task=task)
    else:
        git(tree, "cherry-pick", "--skip", task=task)


def _write(source: Recipe, tree: Path, folder: Path) -> tuple[str, ...]:
    """Export the tree; a patch keeps the file name that it has on the ``source`` version."""
    series.part_commits(tree)
    if not (folder / "series").exists():
        for patch in series.load_all(source.path.parent):
            (folder / patch.name).parent.mkdir(exist_ok=True)
            shutil.copyfile(patch.path, folder / patch.name)
        shutil.copyfile(source.path.with_name("series"), folder / "series")
    names = series.export(tree, folder)
    series.mark_saved(tree)
    return names


def _compare(source: Recipe, target: Recipe, tree: Path) -> tuple[Difference, ...]:
    folder = target.path.parent
    old, new = series.load_all(source.path.parent), series.load_all(folder)
    ranges = (f"{_FROM}/{BASELINE}..{_FROM}/{TOP}", f"{BASELINE}..{TOP}")
    listed = git(tree, "range-diff", "--no-color", "--no-patch", *ranges, task="compare the series")
    write_text(
        folder / RANGE_DIFF,
        f"# git range-diff of the series, {source.version} and {target.version}: = the same patch and context, ! other,"
        f" < only {source.version}, > only {target.version}\n" + short_range_diff(listed, old, new),
    )
    known = {difference.patch: difference for difference in read_differences(folder)}
    found = tuple(
        Difference(name, state, known[name].reason if name in known else "")
        for name, state in states(old, new).items()
        if state
    )
    write_differences(folder, source.version, found)
    return found


def states(old: Sequence[Patch], new: Sequence[Patch]) -> dict[str, str]:
    """Return ``changed``, ``dropped`` or an empty text for each patch of ``old``, by its name.

    A patch is the same if its message and all lines that it adds and removes are; line numbers and context may differ.
    """
    present = {(patch.part, patch.subject): patch for patch in new}
    by_name = {}
    for patch in old:
        other = present.get((patch.part, patch.subject))
        by_name[patch.name] = DROPPED if other is None else CHANGED if _content(patch) != _content(other) else ""
    return by_name


def _content(patch: Patch) -> object:
    files = [
        (diff.file, diff.header, [line for hunk in diff.hunks for line in hunk if line[:1] in ("+", "-")])
        for diff in series.file_diffs(patch.text)
    ]
    return patch.reason, patch.trailers, files


def short_range_diff(listed: str, old: Sequence[Patch], new: Sequence[Patch]) -> str:
    """Return the output of ``git range-diff --no-patch`` with file names in place of numbers and commits.

    Raises:
        RackgateError: a line has another form.
    """
    lines = []
    for line in listed.splitlines():
        match = _RANGE.fullmatch(line)
        if not match:
            raise RackgateError(f"compare the series: git range-diff printed {line!r}")
        patch = new[int(match["new"]) - 1] if match["new"] != "-" else old[int(match["old"]) - 1]
        lines.append(f"{match['mark']} {patch.name}\n")
    return "".join(lines)


def read_differences(folder: Path) -> tuple[Difference, ...]:
    """Read the patches that differ from those of the version that was ported; none if there is no such file.

    Raises:
        RackgateError: the file is malformed.
    """
    path = folder / DIFFERENCES
    if not path.exists():
        return ()
    top = Table(toml_config.read(path, "it explains the differences"), path)
    top.text("base")
    return tuple(
        Difference(table.text("patch"), table.choice("state", (CHANGED, DROPPED)), table.text("reason", empty=True))
        for table in top.tables("difference", ())
    )


def ported_from(folder: Path) -> str:
    """Return the version of Kafka whose series was ported to this folder, or empty.

    Raises:
        RackgateError: the file is malformed.
    """
    path = folder / DIFFERENCES
    return Table(toml_config.read(path, "it explains the differences"), path).text("base") if path.exists() else ""


def write_differences(folder: Path, base: str, differences: Sequence[Difference]) -> None:
    """Write the file that ``read_differences`` reads."""
    text = (
        f"# How this series differs from that of Kafka {base}. `rackgate patch port` lists the patches; reasons are\n"
        f'# written by hand.\nbase = "{base}"\n'
    )
    for difference in differences:
        reason = difference.reason.replace("\\", "\\\\").replace('"', '\\"')
        text += f'\n[[difference]]\npatch = "{difference.patch}"\nstate = "{difference.state}"\nreason = "{reason}"\n'
    write_text(folder / DIFFERENCES, text)


def recipe_of(version: str) -> Recipe:
    """Return the recipe of a version.

    Raises:
        RackgateError: ``patch/`` has none; the message says how to make one.
    """
    path = paths.patch_folder(version) / "kafka.toml"
    if not path.is_file():
        raise RackgateError(f"{path} is missing: copy that of another version and change the versions at its top")
    return recipe.load(path)


def counts(names: Sequence[str], differences: Sequence[Difference]) -> Mapping[str, int]:
    """Return the number of identical, changed and dropped patches."""
    changed, dropped = (sum(one.state == state for one in differences) for state in (CHANGED, DROPPED))
    return {"identical": len(names) - changed, CHANGED: changed, DROPPED: dropped}
