"""Public interface: labs, faults, producers and checkers, for programs outside this project.

The names in ``__all__`` stay as they are; other modules of ``pyhooks`` may change. Guide: ``pyhooks/api.md``; programs
that use it: ``pyhooks/examples``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyhooks.checkers.judgement import judge
from pyhooks.checkers.verdict import Verdict
from pyhooks.core.errors import RackgateError
from pyhooks.faults.injection import FaultTarget
from pyhooks.faults.registry import fault_applied
from pyhooks.history.event_log import History
from pyhooks.history.events import ProduceDetails
from pyhooks.kafka.gate import decide
from pyhooks.kafka.topics import TopicSpec, wait_isr
from pyhooks.kafka.topics import create as create_topics
from pyhooks.lab import lab_processes, topology
from pyhooks.lab.cli import run_in_lab
from pyhooks.lab.lab import Lab, in_lab
from pyhooks.workload.final_reader import read_all
from pyhooks.workload.producer import produce
from pyhooks.workload.producer_plan import ProducerPlan
from pyhooks.workload.topic_observer import observe_topics

__all__ = [
    "FaultTarget",
    "History",
    "Lab",
    "ProduceDetails",
    "ProducerPlan",
    "RackgateError",
    "TopicSpec",
    "Verdict",
    "create_topics",
    "decide",
    "fault_applied",
    "judge",
    "observe_topics",
    "open_lab",
    "produce",
    "read_all",
    "wait_isr",
]


@contextmanager
def open_lab(topology_name: str = "az3-outside", *, run_dir: Path | None = None) -> Iterator[Lab]:
    """Run this program in a lab with Kafka; the block gets the lab.

    A lab consists of namespaces that a running process can't enter. So outside a lab this function starts one, runs the
    command line of this process again in it, takes the lab down and ends this process with the status of the second
    one. Statements before the block run twice. In a lab (``rackgate lab run``, ``rackgate lab exec``) the block gets
    that lab, which stays.

    Args:
        topology_name: topology file, or name of a shipped one.
        run_dir: folder for logs and history; by default a new one in ``out/lab``. Ignored in a lab.

    Raises:
        RackgateError: a lab can't be started, or this process runs in one with another topology.
        SystemExit: outside a lab, once the second process has ended.
    """
    if not in_lab():
        folder = run_dir or lab_processes.default_run_dir("run")
        sys.exit(run_in_lab(topology_name, folder, [sys.executable, *sys.orig_argv[1:]], bare=False, stock=False))
    lab = Lab.attach()
    if lab.topology != topology.load(topology.find(topology_name)):
        raise RackgateError(f"this process runs in lab {lab.name!r}, which has another topology than {topology_name}")
    yield lab
