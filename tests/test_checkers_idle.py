"""Where nobody produces, no attempt is missed; where somebody should have, it is."""

from __future__ import annotations

import pytest
from histories import Simulated

from pyhooks.checker.progress import check_progress


@pytest.mark.parametrize("ended", [True, False], ids=["nobody produces", "a producer that sends nothing"])
def test_attempts_are_missed_where_a_producer_runs(*, ended: bool) -> None:
    made = Simulated()
    made.rest(4)
    made.send(5)
    # with two of three racks it is enough all the time
    made.lose("b")
    made.send(5)
    if ended:
        made.end()
    made.rest(10)
    made.heal("b")
    if ended:
        made.run, made.seq, made.announced = "producer-2", 0, 0
    made.rest(1)
    made.send(5)
    made.rest(3)
    found = check_progress(made.finish(), attempts_min=6)
    assert any("attempts in" in reason for reason in found.because) is not ended, found
    assert found.valid == ("true" if ended else "unknown"), found
