"""Options of ``rackgate lower`` and ``restore``: combinations that can't work are rejected in one line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fake_outage import CLUSTER, HEALED, SHRUNK, Clock, FakeCluster, FakeStore, make_operator, make_terms
from pyhooks.cli import app
from pyhooks.core.errors import RackgateError
from pyhooks.outage.cli import _value_before, _wait_and_restore, lower_command, restore_command
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
def test_restore_rejects_options_that_do_not_fit(options: dict[str, Any]) -> None:
    with pytest.raises(RackgateError, match=r"--dismiss|--within"):
        restore_command(**options)


@pytest.mark.parametrize("verb", ["lower", "restore", "audit"])
def test_the_help_has_examples(verb: str) -> None:
    done = CliRunner().invoke(app, [verb, "--help"])
    assert f"Examples: rackgate {verb}" in done.stdout
    assert "Exit status:" in done.stdout


def test_what_can_not_be_lowered_is_rejected() -> None:
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
    assert (cost.rejecting, cost.short, cost.one_rack, cost.racks) == (1, 1, 1, ("a",))
    assert (cost.acknowledged, cost.hidden) == (1200, 3)
    assert cost_lines(cost) == (
        "orders: min.insync.racks 2 -> 1; of 1 partition, 1 reject acks=all now and would accept it again",
        "  one rack alone (a) would acknowledge in 1: at once 3 records that only it has, and everything from then on",
        "  in 1 the controller forgets which other replicas have what was acknowledged before: 1,200 records",
    )
    unknown = lowering_cost(FakeCluster(isr=SHRUNK).observed(), 2, 1, {})
    assert (unknown.acknowledged, unknown.hidden) == (None, None)
    healed = lowering_cost(FakeCluster(isr=HEALED).observed(), 2, 1, records)
    assert cost_lines(healed)[1:] == (
        "  no partition rejects acks=all now, so lowering R has no benefit at the moment",
    )
    alone = lowering_cost(FakeCluster(isr=(1,)).observed(), 2, 1, records)
    assert (alone.rejecting, alone.still_rejecting, alone.one_rack) == (0, 1, 0)


@pytest.mark.parametrize("no_wait", [False, True])
def test_json_of_a_lowering_is_alone_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, no_wait: bool
) -> None:
    cluster, clock = FakeCluster(isr=SHRUNK), Clock()

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        view = SimpleNamespace(observe=lambda _: {"orders": cluster.observed()}, count_records=lambda _: {})
        operator = make_operator(cluster, FakeStore(), FakeStore(), clock)
        yield SimpleNamespace(
            bootstrap="k1:9092",
            cluster=view,
            journal=SimpleNamespace(cluster=CLUSTER),
            operator=operator,
            status=nullcontext(),
        )

    def pause(_: float) -> None:
        cluster.isr = HEALED

    monkeypatch.setattr("pyhooks.outage.cli._session", session)
    monkeypatch.setattr("pyhooks.outage.cli.time.sleep", pause)
    options: dict[str, Any] = {"until_healed": True, "yes": True, "no_wait": no_wait, "as_json": True}
    with pytest.raises(typer.Exit) as ended:
        lower_command(["orders"], 1, "drill", **options)
    printed = capsys.readouterr()
    assert ended.value.exit_code == 0
    results = [one["result"] for one in json.loads(printed.out)]
    assert results == (["lowered"] if no_wait else ["lowered", "restored"])
    assert printed.err.startswith("cluster cluster-id at k1:9092\norders: min.insync.racks 2 -> 1")
    assert "orders: lowered: min.insync.racks is 1 (before: 2)" in printed.err


def test_the_foreground_reports_what_it_waits_for_once_and_restores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, clock = FakeCluster(isr=SHRUNK), Clock()
    operator = make_operator(cluster, FakeStore(), FakeStore(), clock)
    operator.lower([make_terms("id")], lambda _: True)
    polls = 0

    def pause(_: float) -> None:
        nonlocal polls
        polls += 1
        clock.at += timedelta(minutes=20)
        cluster.reachable = polls != 3
        if polls == 4:
            cluster.isr = HEALED

    monkeypatch.setattr("pyhooks.outage.cli.time.sleep", pause)
    outcomes = _wait_and_restore(operator, ["orders"], lowering="id", due_only=True, deadline=None)
    assert [outcome.result for outcome in outcomes] == ["restored"]
    assert (polls, cluster.own) == (4, 2)
    printed = capsys.readouterr()
    assert printed.out == "orders: restored: min.insync.racks is 2 again\n"
    assert printed.err.splitlines() == [
        "orders: not due: lowered until 2026-01-01T00:30:00Z",
        "orders: not restored: orders-0 has in-sync replicas in 1 of 2 racks (a)",
        "orders: no response",
    ]


def test_the_foreground_ends_when_another_command_restored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, file, topic, clock = FakeCluster(isr=SHRUNK), FakeStore(), FakeStore(), Clock()
    operator = make_operator(cluster, file, topic, clock)
    operator.lower([make_terms("id")], lambda _: True)

    def pause(_: float) -> None:
        cluster.isr = HEALED
        make_operator(cluster, FakeStore(), topic, clock).restore(None, due_only=False)

    monkeypatch.setattr("pyhooks.outage.cli.time.sleep", pause)
    assert _wait_and_restore(operator, ["orders"], lowering="id", due_only=True, deadline=None) == ()
    assert capsys.readouterr().err.splitlines()[-1].startswith("orders: another command has restored or closed it")


def test_waiting_ends_at_its_limit() -> None:
    operator = make_operator(FakeCluster(isr=SHRUNK), FakeStore(), FakeStore(), Clock())
    operator.lower([make_terms("id")], lambda _: True)
    (outcome,) = _wait_and_restore(operator, ["orders"], lowering=None, due_only=False, deadline=time.monotonic())
    assert outcome.result == "waiting"
