"""Topology of a cell's lab, and the links between its sites."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pyhooks.core.files import write_text
from pyhooks.lab import lab_processes, memory, topology
from pyhooks.lab.cli import check_programs
from pyhooks.lab.topology import Topology

AS_IT_IS = "as it is"  # link of an existing cluster
# Added round-trip time in ms. Availability zones of one region are 0.5 to 1 ms apart.
LINKS = {"none": 0.0, "az": 1.0, "far": 20.0}


def topology_toml(lab: Topology, link: str) -> str:
    """Return the text of a topology file in which all links are equal."""
    lines = [f'name = "{lab.name}-{link}"']
    for site in lab.sites:
        lines += ["", "[[site]]", f'name = "{site.name}"', f"client = {json.dumps(site.client)}"]
        for key, role in (("brokers", "broker"), ("controllers", "controller"), ("combined", "combined")):
            if ids := [node.node_id for node in site.nodes if node.role == role]:
                lines.append(f"{key} = {json.dumps(ids)}")
    lines += ["", "[links]", f"rtt_ms = {LINKS[link]:g}"]
    for key, heap_mb, properties in (
        ("brokers", lab.broker_heap_mb, lab.broker_properties),
        ("controllers", lab.controller_heap_mb, lab.controller_properties),
    ):
        lines += ["", f"[{key}]", f"heap_mb = {heap_mb}"]
        if properties:
            lines.append(f"[{key}.properties]")
            lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in properties.items()]
    return "\n".join(lines) + "\n"


def check_machine(topologies: Sequence[str], master: str) -> None:
    """Check programs, namespaces and memory for labs that run one after the other."""
    check_programs()
    lab_processes.namespace_method()
    labs_mb = memory.concurrent_labs_memory_mb([topology.load(topology.find(name)) for name in topologies], at_once=1)
    # the Spark driver runs beside the lab, whatever the master
    purpose = f"a lab of {' or '.join(topologies)} ({labs_mb} MiB) with Spark at {master} ({memory.SPARK_MB} MiB)"
    memory.require_memory(labs_mb + memory.SPARK_MB, purpose, "use a topology with fewer nodes or a lower heap_mb")


def write_topology(name: str, link: str, folder: Path) -> Path:
    """Write the topology file of a lab to ``folder`` and return its path."""
    file = folder / f"{Path(name).stem}-{link}.toml"
    write_text(file, topology_toml(topology.load(topology.find(name)), link))
    return file
