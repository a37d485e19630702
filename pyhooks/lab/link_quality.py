"""Current quality of a lab's links: those of the topology plus what slowed sites add.

Several sites may be slowed at a time, and they share links. The state is kept on the lab's own file system, because
each command that slows or heals is a separate process.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import asdict

from pyhooks.core import paths
from pyhooks.core.files import evaluating, read_object, write_json
from pyhooks.core.locks import hold_lock
from pyhooks.lab import network
from pyhooks.lab.topology import Link, Quality, Topology

FILE = paths.LAB_HOME / "slow.json"


def _lock() -> AbstractContextManager[None]:
    return hold_lock(FILE.with_suffix(".lock"), taken="another command changes links", patience_s=math.inf)


def _read() -> dict[str, Quality]:
    if not FILE.exists():
        return {}
    with evaluating(FILE, "a list of slow sites"):
        return {site: Quality(**raw) for site, raw in read_object(FILE, "it lists slow sites").items()}


def _write(slow: dict[str, Quality]) -> None:
    write_json(FILE, {site: asdict(added) for site, added in slow.items()})


def quality(link: Link, *, without: str = "") -> Quality:
    """Return the quality of a link: that of the topology plus what slowed sites, except ``without``, add."""
    total = link.quality
    for site, added in _read().items():
        if site in (link.left, link.right) and site != without:
            total = total.plus(added)
    return total


def slow(topology: Topology, site: str, added: Quality) -> None:
    """Add delay, jitter and loss to all links of a site; replaces what was added for it before.

    Raises:
        RackgateError: this machine can't emulate the quality on these links.
    """
    with _lock():
        # written first, so that a heal can undo it even if this process is killed
        _write(_read() | {site: added})
        _shape(topology, site)


def restore(topology: Topology, site: str) -> None:
    """Undo ``slow``; keep what other slowed sites add. Idempotent."""
    with _lock():
        left = _read()
        left.pop(site, None)
        _write(left)
        _shape(topology, site)


def _shape(topology: Topology, site: str) -> None:
    for link in topology.links_of(site):
        network.shape(topology, link, quality(link))
