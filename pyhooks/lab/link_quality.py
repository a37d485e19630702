"""What slow sites add to the links of a lab; several may be slow at a time, and they share links.

Kept on the lab's own file system, since each command that slows or heals is a process of its own.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from pyhooks.core import paths
from pyhooks.core.files import evaluating, read_object, write_json
from pyhooks.lab import network
from pyhooks.lab.topology import Link, Quality, Topology

FILE = paths.LAB_HOME / "slow.json"


@contextmanager
def _alone() -> Iterator[None]:
    descriptor = os.open(FILE.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read() -> dict[str, Quality]:
    if not FILE.exists():
        return {}
    with evaluating(FILE, "a list of slow sites"):
        return {site: Quality(**raw) for site, raw in read_object(FILE, "it lists slow sites").items()}


def _write(slow: dict[str, Quality]) -> None:
    write_json(FILE, {site: asdict(added) for site, added in slow.items()})


def quality(link: Link, *, without: str = "") -> Quality:
    """What a link does to its packets now: as in the topology, and what slow sites add.

    Args:
        link: the link.
        without: a site whose own slowness is left out.
    """
    found = link.quality
    for site, added in _read().items():
        if site in (link.left, link.right) and site != without:
            found = found.plus(added)
    return found


def slow(topology: Topology, site: str, added: Quality) -> None:
    """Adds delay, jitter and loss to all links of a site, in place of what was added for it before.

    Raises:
        RackgateError: this machine cannot do it to these links.
    """
    with _alone():
        # first, so that a heal knows of it whatever becomes of us
        _write(_read() | {site: added})
        _shape(topology, site)


def restore(topology: Topology, site: str) -> None:
    """Takes ``slow`` back, and leaves what other slow sites add; doing so twice is the same as once."""
    with _alone():
        left = _read()
        left.pop(site, None)
        _write(left)
        _shape(topology, site)


def _shape(topology: Topology, site: str) -> None:
    for link in topology.links_of(site):
        network.shape(link, quality(link))
