"""Options of ``rackgate lower`` and ``restore``: combinations that can't work are refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from fake_outage import HEALED, SHRUNK, FakeCluster
from pyhooks.cli import app
from pyhooks.core.errors import RackgateError
from pyhooks.outage.cli import _value_before, lower_command, restore_command
from pyhooks.outage.lowering_cost import RecordCounts, cost_lines, lowering_cost


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"reason": "x"}, "needs --for or --until-healed"),
        ({"reason": " ", "until_healed": True}, "--reason must not be empty"),
        ({"reason": "x", "for_": "30"}, "--for 30: expected a duration"),
        ({"reason": "x", "for_": "169h"}, "at most 168h"),
    ],
)
def test_lower_needs_a_reason_and_an_end(options: dict[str, Any], why: str) -> None:
    with pytest.raises(RackgateError, match=why):
        lower_command(["orders"], 1, **options)


@pytest.mark.parametrize(
    "options",
    [{"dismiss": "x"}, {"dismiss": " ", "topics": ["orders"]}, {"within": "1m"}, {"within": "x", "until_healed": True}],
)
def test_restore_refuses_options_that_do_not_fit(options: dict[str, Any]) -> None:
    with pytest.raises(RackgateError, match=r"--dismiss|--within"):
        restore_command(**options)


@pytest.mark.parametrize("verb", ["lower", "restore", "audit"])
def test_the_help_has_examples(verb: str) -> None:
    done = CliRunner().invoke(app, [verb, "--help"])
    assert f"Examples: rackgate {verb}" in done.stdout
    assert "Exit status:" in done.stdout


def test_what_can_not_be_lowered_is_refused() -> None:
    assert _value_before("orders", FakeCluster(own=None).observed(), 1) == (None, 2)
    for cluster, why in (
        (FakeCluster(own=1), "min.insync.racks is 1, so --to 1 does not lower it"),
        (FakeCluster(leader=-1), "partition 0 has no leader"),
    ):
        with pytest.raises(RackgateError, match=why) as caught:
            _value_before("orders", cluster.observed(), 1)
        assert caught.value.exit_status == 1
    with pytest.raises(RackgateError, match="there is no such topic") as caught:
        _value_before("orders", None, 1)
    assert caught.value.exit_status == 2


def test_the_cost_counts_what_one_rack_alone_has() -> None:
    records = {("orders", 0): RecordCounts(1200, 3)}
    cost = lowering_cost(FakeCluster(isr=SHRUNK).observed(), 2, 1, records)
    assert (cost.refusing, cost.short, cost.one_rack, cost.racks) == (1, 1, 1, ("a",))
    assert (cost.acknowledged, cost.hidden) == (1200, 3)
    assert cost_lines(cost) == (
        "orders: min.insync.racks 2 -> 1; of 1 partition, 1 refuse acks=all now and would accept it again",
        "  one rack alone (a) would acknowledge in 1: at once 3 records that only it has, and everything from then on",
        "  in 1 the controller forgets which other replicas have what was acknowledged before: 1,200 records",
    )
    unknown = lowering_cost(FakeCluster(isr=SHRUNK).observed(), 2, 1, {})
    assert (unknown.acknowledged, unknown.hidden) == (None, None)
    healed = lowering_cost(FakeCluster(isr=HEALED).observed(), 2, 1, records)
    assert cost_lines(healed)[1:] == (
        "  no partition refuses acks=all now, so lowering R has no benefit at the moment",
    )
    alone = lowering_cost(FakeCluster(isr=(1,)).observed(), 2, 1, records)
    assert (alone.refusing, alone.still_refusing, alone.one_rack) == (0, 1, 0)
