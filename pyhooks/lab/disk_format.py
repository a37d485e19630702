"""Format the disks of many nodes with Kafka's storage tool in a single JVM, to avoid a JVM start for each node.

Run as ``python -m pyhooks.lab.disk_format CLASSPATH`` with a JSON list of argument lists on standard input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from pyhooks.core import process
from pyhooks.lab.kafka_process import LOG4J


def format_disks(classpath: str, calls: Sequence[Sequence[str]]) -> None:
    """Format disks; each element of ``calls`` has the arguments of one call of the storage tool.

    Raises:
        RackgateError: the tool failed for a disk.
    """
    process.run(
        [sys.executable, "-m", "pyhooks.lab.disk_format", classpath],
        task="format the disks",
        stdin=json.dumps(list(map(list, calls))),
        timeout_s=120,
    )


def main() -> int:
    """Run the calls from standard input; stop at the first nonzero status and return it."""
    import jpype

    jpype.startJVM(
        "-Xmx128m",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={LOG4J}",
        classpath=sys.argv[1].split(":"),
    )
    tool = jpype.JClass("kafka.tools.StorageTool")
    out = jpype.java.lang.System.out
    for call in json.load(sys.stdin):
        status = int(tool.execute(jpype.JArray(jpype.JString)(call), out))
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
