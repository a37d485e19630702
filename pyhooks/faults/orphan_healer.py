"""Heals what dead commands left in a lab, in a process of its own.

A heal can take minutes and fail in every way; the lab's first process must go on to look after the lab meanwhile, and
end when it is told to. Run as ``python -m pyhooks.faults.orphan_healer SINCE_NS`` in a lab.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.faults import registry
from pyhooks.lab.lab import Lab

# A fault can be busy for an instant when its turn comes.
MOST_TRIES = 3
WORDS = (sys.executable, "-m", "pyhooks.faults.orphan_healer")


class Healer:
    """Starts that process when there is something to heal, one at a time.

    Args:
        lab: whose first process we are.

    Attributes:
        child: the process, if one was started.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.child: subprocess.Popen[bytes] | None = None
        # by the moment of the fault's begin, which names it
        self._tries: Counter[int] = Counter()

    def look(self) -> None:
        """Looks whether a fault has lost its command; returns at once and raises nothing."""
        try:
            self._look()
        except (OSError, RackgateError) as error:
            # a record that cannot be read, or no process to be had: the lab is as good as before
            sys.stderr.write(f"look for faults without a command: {error}\n")

    def _look(self) -> None:
        if self.child is not None and self.child.poll() is None:
            return
        self.child = None
        left = registry.orphans()
        for one in left:
            # A heal that fails says so itself. Its status would tell less: others collect it, too.
            if self._tries[one.since_ns] >= MOST_TRIES:
                registry.give_up(one, "the process that heals it ends before it does, see the lab's log", patience_s=0)
        tried = [(self._tries[one.since_ns], one.since_ns) for one in left]
        if tried and min(tried)[0] < MOST_TRIES:
            since_ns = min(tried)[1]
            self._tries[since_ns] += 1
            self.child = subprocess.Popen(
                [*process.DIES_WITH_PARENT, *WORDS, str(since_ns)],
                stdin=subprocess.DEVNULL,
                env=os.environ | self._lab.variables,
                # Ctrl-C is for the command that runs in the lab
                start_new_session=True,
            )


def main(argv: Sequence[str]) -> int:
    """Heals the fault that began at the moment given; what fails is kept and told."""
    told = registry.heal_orphan(Lab.attach(), int(argv[0]))
    if told:
        sys.stderr.write(f"{told}\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
