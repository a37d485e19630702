"""Violations planted in random histories of a correct cluster: no checker trusts what contradicts its claim."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pyhooks.checkers.registry import CHECKERS
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory, Violation
from random_runs import Run, runs

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@settings(max_examples=250, deadline=None, suppress_health_check=SLOW)
@given(runs(calm=True, blurred=False), st.sampled_from(VIOLATIONS), st.integers(0, 10**6))
def test_no_checker_trusts_a_planted_violation(run: Run, violation: Violation, seed: int) -> None:
    planted = violation.plant(StoredHistory(run.events), random.Random(seed))  # noqa: S311 - a drawn seed
    assume(planted is not None)
    assert planted is not None
    judging = [name for name in violation.breaks if CHECKERS[name].check(run.events).valid == "true"]
    for name in judging:
        found = CHECKERS[name].check(planted)
        assert found.valid != "true", found
