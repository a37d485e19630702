"""Checker that rejections carry the error of the missing requirement: racks or replicas."""

from __future__ import annotations

import pytest

from pyhooks.checkers.rejections import check_rejections
from pyhooks.history.event_log import Event
from written_histories import REJECTED, TOO_FEW, Simulated, changed, event, is_


def rejected(need_replicas: int, need_racks: int, client: str | None = "patched") -> list[Event]:
    """Outage of rack b; the two replicas in rack a are too few, or in too few racks."""
    cluster = Simulated(need_replicas=need_replicas, need_racks=need_racks)
    cluster.rest(4)
    cluster.produce()
    cluster.lose("b")
    for _ in range(3):
        cluster.produce()
        cluster.look()
    cluster.rest(2)
    cluster.heal("b")
    cluster.end()
    return changed(cluster.events, is_("intend"), client=client)


def with_exception(events: list[Event], exception: str) -> list[Event]:
    for number in range(3):
        events = changed(events, is_("produce", "fail"), number, exception=exception)
    return events


@pytest.mark.parametrize(
    ("need", "exception", "client", "valid"),
    [
        ((2, 2), REJECTED, "patched", "true"),
        ((2, 2), TOO_FEW, "patched", "false"),
        ((3, 1), TOO_FEW, "patched", "true"),
        ((3, 1), REJECTED, "patched", "false"),
        # too few replicas takes precedence
        ((3, 2), TOO_FEW, "patched", "true"),
        ((3, 2), REJECTED, "patched", "false"),
        # an older client knows only NotEnoughReplicas
        ((2, 2), TOO_FEW, "3.9", "true"),
        ((2, 2), "NOT_ENOUGH_REPLICAS", "confluent", "true"),
        ((2, 2), REJECTED, "3.9", "false"),
        ((2, 2), REJECTED, None, "unknown"),
        ((2, 2), TOO_FEW, None, "unknown"),
    ],
)
def test_a_rejection_has_the_error_of_the_missing_requirement(
    need: tuple[int, int], exception: str, client: str | None, valid: str
) -> None:
    verdict = check_rejections(with_exception(rejected(*need, client), exception))
    assert verdict.valid == valid, verdict.because


def test_a_settled_period_without_rejections_is_unknown() -> None:
    events = [entry for entry in rejected(2, 2) if entry.outcome != "fail"]
    assert check_rejections(events).valid == "unknown"


@pytest.mark.parametrize(("retrying", "unjudged"), [(["2.8"], []), (["2.8", "3.9"], ["3.9"])])
def test_each_client_that_retries_through_an_outage_needs_a_rejection(retrying: list[str], unjudged: list[str]) -> None:
    clients = event(1, "test", "ride", None, clients=retrying)
    verdict = check_rejections([clients, *with_exception(rejected(2, 2, "2.8"), TOO_FEW)])
    assert [reason.partition(":")[0] for reason in verdict.because] == unjudged
    assert verdict.valid == ("unknown" if unjudged else "true")
