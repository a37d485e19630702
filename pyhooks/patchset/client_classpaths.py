"""Class paths of Kafka clients: the patched one, the stock one of this release, and those of other releases."""

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
    """What ``client_classpath`` knows: ``patched``, this release, and the others that kafka.toml pins, e.g. ``3.9``."""
    plan = recipe.load()
    others = sorted(role.removeprefix(_ROLE) for role in recipe.CLIENT_ROLES)
    return (PATCHED, plan.version, *others)


def client_classpath(release: str) -> str:
    """The class path of a Kafka client and of the project's own Java helpers, fetched if need be and verified.

    Args:
        release: one of ``releases()``.

    Raises:
        RackgateError: no such release, no distribution, or an artifact that cannot be had or is not the pinned one.
    """
    built = Distribution.load()
    plan = recipe.load()
    if release in {PATCHED, plan.version}:
        return os.pathsep.join([built.classpath(overlay=release == PATCHED), str(built.hooks)])
    role = f"{_ROLE}{release}"
    if role not in recipe.CLIENT_ROLES:
        raise RackgateError(f"no client of release {release!r} is known: {', '.join(releases())}")
    space = Workspace.of(plan)
    wanted = plan.with_role(role)
    with space.lock(lambda _: None), tempfile.TemporaryDirectory(prefix="rackgate-client-") as work:
        space.store.fetch(plan, wanted, Path(work))
    return os.pathsep.join([*(str(space.store.path(artifact)) for artifact in wanted), str(built.hooks)])
