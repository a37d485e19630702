"""Maven's verified repository for builds of tests: the files of the real one, under a workspace of the test's own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyhooks.patchset import recipe
from pyhooks.patchset.artifacts import MavenRepository, link
from pyhooks.patchset.workspace import Workspace


def real_repository() -> MavenRepository:
    """The repository of the project's own builds, complete."""
    plan = recipe.load()
    space = Workspace.of(plan)
    with space.lock(lambda _: None), tempfile.TemporaryDirectory(dir=space.root) as work:
        space.repository.fill(plan, Path(work))
    return space.repository


def share_repository(space: Workspace) -> MavenRepository:
    """Give a workspace the real manifest, unless it has one, and the real files, each the same file as there."""
    real = real_repository()
    assert real.manifest is not None
    if not space.manifest.exists():
        shutil.copyfile(real.manifest, space.manifest)
    for name in real.pins:
        link(real.root / name, space.repository.root / name)
    return space.repository


def replace_file(path: Path, content: bytes) -> None:
    """Give a shared file another content here alone."""
    path.unlink()
    path.write_bytes(content)
