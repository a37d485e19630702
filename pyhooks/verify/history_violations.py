"""Violations that can be planted in a recorded history: each contradicts what certain checkers claim.

A violation is a function from a history and a random generator to the changed events. It changes all events that would
differ in a run with this violation, and no others, as far as the checkers in ``breaks`` are concerned.
"""

from __future__ import annotations

from pyhooks.verify import cluster_violations, consumer_violations, feature_violations, record_violations
from pyhooks.verify.stored_history import Violation

VIOLATIONS = tuple(
    value
    for module in (record_violations, consumer_violations, cluster_violations, feature_violations)
    for value in vars(module).values()
    if isinstance(value, Violation)
)
