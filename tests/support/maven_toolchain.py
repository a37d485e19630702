"""Maven's verified repository for builds in tests: hard links to the real one's files, in the test's workspace."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyhooks.patchset import recipe
from pyhooks.patchset.artifacts import MavenRepository, link
from pyhooks.patchset.workspace import Workspace


def real_repository() -> MavenRepository:
    """Return the repository of the project's own builds, filled."""
    plan = recipe.load()
    space = Workspace.of(plan)
    with space.lock(lambda _: None), tempfile.TemporaryDirectory(dir=space.root) as work:
        space.repository.fill(plan, Path(work))
    return space.repository


def share_repository(space: Workspace) -> MavenRepository:
    """Link the real repository's files into a workspace, and copy the real manifest unless the workspace has one."""
    real = real_repository()
    assert real.manifest is not None
    if not space.manifest.exists():
        shutil.copyfile(real.manifest, space.manifest)
    for name in real.pins:
        link(real.root / name, space.repository.root / name)
    return space.repository


def replace_file(path: Path, content: bytes) -> None:
    """Replace a linked file by a copy with other content; the real repository's file stays unchanged."""
    path.unlink()
    path.write_bytes(content)
