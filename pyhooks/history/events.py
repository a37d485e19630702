"""Names in events of a history, shared by the programs that write them and the checkers that read them."""

from __future__ import annotations

# Process of the observer of leaders, ISRs and settings.
LOOK_PROCESS = "isr-watch"
# Configuration names, which are also keys of ``settings`` events.
REPLICAS, RACKS = "min.insync.replicas", "min.insync.racks"
# Operation of the offsets that a group's coordinator has after a run.
COMMITTED = "committed"
# Operation of the names of errors that a client knows.
KNOWN_ERRORS = "known-errors"
# Kinds of producer clients. Stock Java clients are named by their release.
PATCHED, CONFLUENT = "patched", "confluent"
