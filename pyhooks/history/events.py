"""Process, operation and client names in history events, shared by their writers and the checkers."""

from __future__ import annotations

# Process name of the observer of leaders, ISRs and topic settings.
LOOK_PROCESS = "isr-watch"
# Operation that lists a group's committed offsets after a run.
COMMITTED = "committed"
# Operation that lists the error names that a client knows.
KNOWN_ERRORS = "known-errors"
# Kinds of producer clients. Stock Java clients are identified by their release.
PATCHED, CONFLUENT = "patched", "confluent"
