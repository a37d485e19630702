"""Entry point of ducktape for ``rackgate kafkatest``, inside a bare lab.

Usage: ``python -m ducktape_tests.kafkatest.driver TREE MOUNTS FOLDER ARGUMENTS…``, with the folder that
``nodes.write_tree`` wrote, the mounts as JSON, and the arguments of ``ducktape_tests.driver``.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from pathlib import Path

from ducktape_tests import driver
from ducktape_tests.kafkatest import nodes
from pyhooks.core import paths
from pyhooks.lab.lab import Lab
from pyhooks.patchset.distribution import Distribution


def main() -> None:
    """Prepare the nodes of the lab, then run ducktape."""
    tree, sources = Path(sys.argv.pop(1)), json.loads(sys.argv.pop(1))
    lab = Lab.attach()
    # on the lab's own file system, because a node hides /tmp, /mnt and /opt
    shared = paths.LAB_HOME / "kafka-dev"
    shutil.copytree(tree, shared, symlinks=True)
    for node in lab.nodes:
        lab.machine(node).run(["bash", "-c", nodes.MOUNT, "mount", str(shared), *sources])
    os.environ["PATH"] = f"{nodes.PROGRAMS}:{os.environ['PATH']}"
    # Tests compare it with the version in the names of the jars.
    importlib.import_module("kafkatest").__version__ = Distribution.load().manifest["kafka_version"]  # type: ignore[attr-defined]
    driver.main()


if __name__ == "__main__":
    main()
