"""Trial of the series on a checkout of apache/kafka, in a worktree of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import series
from pyhooks.patchset.git import commit_of, git
from pyhooks.patchset.series import Patch


@dataclass(frozen=True)
class PatchOutcome:
    """Outcome of one patch.

    Attributes:
        patch: its name below the folder of the series.
        reason: why it does not apply; empty if it does.
        after: failed patches before it that change one of its files, which may be the cause.
    """

    patch: str
    reason: str
    after: tuple[str, ...] = ()


def try_series(
    checkout: Path, tag: str, patches: Sequence[Patch], keep: Path | None = None
) -> tuple[PatchOutcome, ...]:
    """Apply the patches in order to a tag with ``git am``, past those that do not apply; return the outcome of each.

    The checkout's own branches, index and files stay as they are. The worktree is removed at the end, unless ``keep``
    names a new folder for it.

    Raises:
        RackgateError: the folder is no git repository, has no such tag, or ``keep`` exists.
    """
    try:
        commit = commit_of(checkout, f"refs/tags/{tag}")
    except RackgateError as error:
        raise RackgateError(f"{checkout}: not a git repository that can be read", detail=error.detail) from None
    if not commit:
        raise RackgateError(f"{checkout} has no tag {tag}: `git fetch origin tag {tag}` in a clone of apache/kafka")
    if keep and keep.exists():
        raise RackgateError(f"{keep} exists; name a new folder")
    outcomes: list[PatchOutcome] = []
    with _worktree(checkout, tag, keep) as tree:
        for patch in patches:
            failed = {outcome.patch for outcome in outcomes if outcome.reason}
            earlier = [other for other in patches if other.name in failed]
            try:
                series.apply(tree, [patch])
            except RackgateError as error:
                reason = str(error).removeprefix(f"patch {patch.name} does not apply: ")
                after = tuple(other.name for other in earlier if set(other.files) & set(patch.files))
                outcomes.append(PatchOutcome(patch.name, reason, after))
            else:
                outcomes.append(PatchOutcome(patch.name, ""))
    return tuple(outcomes)


@contextmanager
def _worktree(checkout: Path, tag: str, keep: Path | None) -> Iterator[Path]:
    """Add a worktree at a tag, without running the hooks of the checkout; remove it at the end unless it is kept."""
    task = "make a worktree"
    with tempfile.TemporaryDirectory(prefix="rackgate-am-") as temporary:
        tree = keep.resolve() if keep else Path(temporary) / "kafka"
        git(checkout, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--quiet", "--detach", str(tree),
            f"refs/tags/{tag}", task=task)  # fmt: skip
        try:
            yield tree
        finally:
            if not keep:
                git(checkout, "worktree", "remove", "--force", str(tree), task="remove the worktree")
