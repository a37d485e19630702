"""Class paths of Kafka clients: patched, stock of this release, and other releases."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import recipe
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Artifact, Recipe
from pyhooks.patchset.workspace import Workspace

PATCHED = "patched"
STREAMS = "kafka-streams"
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
    return os.pathsep.join([*fetch_artifacts(plan, plan.with_role(role)), str(built.hooks)])


def streams_classpath() -> str:
    """Return the class path of Kafka Streams with the patched client; fetch it if missing.

    Raises:
        RackgateError: no distribution, or an artifact can't be downloaded or differs from its pin.
    """
    return os.pathsep.join([Distribution.load().classpath(), *fetch_jars([STREAMS])])


def fetch_jars(names: Iterable[str]) -> list[str]:
    """Return the paths of pinned jars that a build does not fetch, such as ``kafka-streams``; fetch missing ones.

    Raises:
        RackgateError: a jar is not pinned, can't be downloaded or differs from its pin.
    """
    plan = recipe.load()
    return fetch_artifacts(plan, [plan.find(name, recipe.TEST_ALL) for name in names])


def fetch_artifacts(plan: Recipe, artifacts: Sequence[Artifact]) -> list[str]:
    """Return the paths of pinned artifacts; fetch those that are missing.

    Raises:
        RackgateError: an artifact can't be downloaded or differs from its pin.
    """
    space = Workspace.of(plan)
    with space.lock(lambda _: None), tempfile.TemporaryDirectory(prefix="rackgate-client-") as work:
        space.store.fetch(plan, artifacts, Path(work))
    return [str(space.store.path(artifact)) for artifact in artifacts]
