"""Healer of faults whose command has died, in a process of its own.

A heal can take minutes and fail in many ways. Meanwhile the lab's init process must keep monitoring the lab and end
when it is signalled. Run as ``python -m pyhooks.faults.orphan_healer SINCE_NS`` in a lab.
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

# A fault may be locked briefly when its heal starts.
TRIES_MAX = 3
COMMAND = (sys.executable, "-m", "pyhooks.faults.orphan_healer")


class OrphanHealer:
    """Starter of healing processes, one at a time, when there is something to heal.

    Attributes:
        child: the healing process started last, or None.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.child: subprocess.Popen[bytes] | None = None
        # by start time of the fault, which identifies it
        self._tries: Counter[int] = Counter()

    def check(self) -> None:
        """Check for orphaned faults and start a heal; return at once and raise no expected error."""
        try:
            self._check()
        except (OSError, RackgateError) as error:
            # an unreadable record, or no new process possible: the lab itself is unaffected
            sys.stderr.write(f"checking for faults without a command: {error}\n")

    def _check(self) -> None:
        if self.child is not None and self.child.poll() is None:
            return
        self.child = None
        left = registry.orphaned_faults()
        for record in left:
            # A failed heal records its own reason. The exit status is unreliable: _collect may reap the child first.
            if self._tries[record.since_ns] >= TRIES_MAX:
                registry.mark_failed(
                    record, "the process that heals it ends before it does, see the lab's log", patience_s=0
                )
        tried = [(self._tries[record.since_ns], record.since_ns) for record in left]
        if tried and min(tried)[0] < TRIES_MAX:
            since_ns = min(tried)[1]
            self._tries[since_ns] += 1
            # Ctrl-C is meant for the command that runs in the lab
            self.child = process.start(
                [*COMMAND, str(since_ns)], env=os.environ | self._lab.variables, start_new_session=True
            )


def main(argv: Sequence[str]) -> int:
    """Heal the fault with the given start time; on failure keep it and print the reason."""
    failure = registry.heal_orphan(Lab.attach(), int(argv[0]))
    if failure:
        sys.stderr.write(f"{failure}\n")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
