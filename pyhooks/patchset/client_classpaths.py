"""Class paths of Kafka clients: patched, stock of this release, and other releases."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import recipe
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.workspace import Workspace

PATCHED = "patched"
_ROLE = "client-"


def releases() -> tuple[str, ...]:
    """Return the arguments for ``client_classpath``: ``patched``, this release, and pinned others such as ``3.9``."""
    plan = recipe.load()
    others = sorted(role.removeprefix(_ROLE) for role in recipe.CLIENT_ROLES)
    return (PATCHED, plan.version, *others)


def client_classpath(release: str) -> str:
    """Return the class path of a client in ``releases()``, with the project's Java helpers; fetch it if missing.

    Raises:
        RackgateError: no such release, no distribution, or an artifact can't be downloaded or differs from its pin.
    """
    plan = recipe.load()
    role = f"{_ROLE}{release}"
    if release not in releases():
        raise RackgateError(f"no client of release {release!r} is known: {', '.join(releases())}")
    built = Distribution.load()
    if role not in recipe.CLIENT_ROLES:
        return os.pathsep.join([built.classpath(overlay=release == PATCHED), str(built.hooks)])
    space = Workspace.of(plan)
    wanted = plan.with_role(role)
    with space.lock(lambda _: None), tempfile.TemporaryDirectory(prefix="rackgate-client-") as work:
        space.store.fetch(plan, wanted, Path(work))
    return os.pathsep.join([*(str(space.store.path(artifact)) for artifact in wanted), str(built.hooks)])
