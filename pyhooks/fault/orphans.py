"""Heals what dead commands left in a lab, in a process of its own.

A heal can take minutes and fail in every way; the lab's first process must go on to look after the lab meanwhile, and
end when it is told to. Run as ``python -m pyhooks.fault.orphans`` in a lab.
"""

from __future__ import annotations

import os
import subprocess
import sys

from pyhooks import process
from pyhooks.cluster.lab import Lab
from pyhooks.fault import registry
from pyhooks.fault.registry import Active

WORDS = (sys.executable, "-m", "pyhooks.fault.orphans")


class Healer:
    """Starts that process when there is something to heal, one at a time.

    Args:
        lab: whose first process we are.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._child: subprocess.Popen[bytes] | None = None
        self._tried: tuple[Active, ...] = ()

    def look(self) -> None:
        """Looks whether a fault has lost its command; returns at once and raises nothing."""
        try:
            self._look()
        except (OSError, ValueError, TypeError) as error:
            # a record that cannot be read, or no process to be had: the lab is as good as before
            sys.stderr.write(f"look for faults without a command: {error}\n")

    def _look(self) -> None:
        if self._child is not None:
            if self._child.poll() is None:
                return
            self._child = None
            tried = {one.since_ns for one in self._tried}
            for one in registry.orphans():
                # It came to its end without a word on this one, so it would do so again.
                if one.since_ns in tried:
                    registry.give_up(one, "the process that heals it ended, see the lab's log")
        self._tried = registry.orphans()
        if self._tried:
            self._child = subprocess.Popen(
                [*process.DIES_WITH_PARENT, *WORDS],
                stdin=subprocess.DEVNULL,
                env=os.environ | self._lab.variables,
                # Ctrl-C is for the command that runs in the lab
                start_new_session=True,
            )


def main() -> int:
    """Heals all there are; what fails is kept and told."""
    told = registry.heal_orphans(Lab.attach())
    for line in told:
        sys.stderr.write(f"{line}\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
