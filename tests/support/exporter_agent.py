"""Agent of the Prometheus JMX exporter: the pinned jar, and topologies whose nodes run it."""

from __future__ import annotations

from pathlib import Path

from pyhooks.lab import topology
from pyhooks.monitoring.export import PORT
from pyhooks.patchset import recipe
from pyhooks.patchset.client_classpaths import fetch_artifacts
from pyhooks.patchset.recipe import Artifact

# The newest version that is published under this name.
EXPORTER_AGENT = Artifact(
    "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1",
    "7d61f737fd661610ccc14aea79764faa1ea94a340cbc8f0029b3d2edea3d80c1",
    ("runtime",),
)


def exporter_jar() -> Path:
    """Return the agent's jar from the store of pinned artifacts; download it if it is missing."""
    (path,) = fetch_artifacts(recipe.load(), [EXPORTER_AGENT])
    return Path(path)


def exporter_option(configuration: Path) -> str:
    """Return the JVM option that starts the agent."""
    return f"-javaagent:{exporter_jar()}={PORT}:{configuration}"


def topology_with_exporter(name: str, configuration: Path, path: Path, *, heap_mb: int | None = None) -> Path:
    """Write a shipped topology with the agent on all nodes, and brokers with another heap, to ``path``; return that."""
    text = topology.find(name).read_text(encoding="utf-8")
    if heap_mb is not None:
        text = text.partition("[brokers]")[0] + f"[brokers]\nheap_mb = {heap_mb}\n"
    path.write_text(f'{text}\n[jvm]\noptions = ["{exporter_option(configuration)}"]\n', encoding="utf-8")
    return path
