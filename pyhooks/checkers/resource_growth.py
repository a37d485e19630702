"""Check that no process keeps growing: resident memory and open files of brokers and of the lab.

Reads ``ResourcesDetails``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import ResourcesDetails

# The middle and the last third of a run are compared: in the first one heaps and caches fill.
LEAST_SAMPLES = 6
# Growth from third to third that a process may have: a share, and a constant for small ones.
GROWTH, MEMORY_KIB, FILES = 0.1, 32 * 1024, 50


def check_growth(events: Sequence[Event]) -> Verdict:
    """Compare the medians of the middle and the last third of each process's samples.

    Wrong: memory or files that grew by more than ``GROWTH`` and the constant. Unknown: a process with fewer than
    ``LEAST_SAMPLES`` samples.
    """
    found = Findings()
    samples: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for _, resources in ResourcesDetails.each(events):
        samples[resources.name, "memory_kib"].append(resources.memory_kib)
        samples[resources.name, "files"].append(resources.files)
    if not samples:
        found.missing.append("no resources in the history")
    for (name, kind), values in sorted(samples.items()):
        third = len(values) // 3
        if len(values) < LEAST_SAMPLES:
            found.missing.append(f"{name}: {len(values)} samples of {kind}, {LEAST_SAMPLES} are needed")
            continue
        middle, last = median(values[third : 2 * third]), median(values[2 * third :])
        allowed = middle * (1 + GROWTH) + (MEMORY_KIB if kind == "memory_kib" else FILES)
        text = f"{name}: {kind} {middle:g} in the middle third, {last:g} in the last one"
        if last > allowed:
            found.wrong.append(f"{text}, at most {allowed:.0f} are allowed")
        else:
            found.notes.append(text)
    return found.verdict("flat")
