"""Checker that unpatched clients receive only error codes they know."""

from __future__ import annotations

import pytest

from pyhooks.checkers.judgement import judge
from pyhooks.checkers.known_errors import check_known_errors
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event
from pyhooks.workload.known_errors import error_names
from written_histories import REJECTED, TIMEOUT, TOO_FEW, Simulated, changed, event, is_, without

KNOWN = [TOO_FEW, TIMEOUT]


def outage(client: str | None, exception: str | None) -> list[Event]:
    """Two records of a client: one acknowledged, one failed with an error."""
    cluster = Simulated(need_replicas=2)
    cluster.note("test", "known-errors", None, client="3.9", names=KNOWN)
    cluster.produce()
    cluster.lose("b")
    cluster.produce()
    cluster.end()
    return changed(changed(cluster.events, is_("intend"), client=client), is_("produce", "fail"), exception=exception)


@pytest.mark.parametrize(
    ("client", "exception", "valid"),
    [
        ("3.9", TOO_FEW, "true"),
        ("3.9", TIMEOUT, "true"),
        ("3.9", REJECTED, "false"),
        ("3.9", "org.apache.kafka.common.errors.UnknownServerException", "false"),
        ("3.9", "not-reported", "unknown"),
        # the known errors of this client are not recorded
        ("confluent", "NOT_ENOUGH_REPLICAS", "unknown"),
        (None, TOO_FEW, "unknown"),
        # the history records known errors of client 3.9 only
        ("patched", REJECTED, "unknown"),
    ],
)
def test_known_errors_are_valid_and_unknown_errors_wrong(client: str | None, exception: str, valid: str) -> None:
    assert check_known_errors(outage(client, exception)).valid == valid


def test_a_client_without_an_attempt_is_unknown() -> None:
    events = outage("3.9", TOO_FEW)
    other_client = event(events[-1].mono_ns, "test", "known-errors", None, client="confluent", names=["_TIMED_OUT"])
    verdict = check_known_errors([*events, other_client])
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert "confluent" in verdict.because[0]


def test_the_checker_applies_where_known_errors_are_recorded() -> None:
    events = outage("3.9", TOO_FEW)
    assert "known" in {verdict.checker for verdict in judge(events)[0]}
    assert "known" not in {verdict.checker for verdict in judge(without(events, is_("known-errors")))[0]}


def test_errors_of_transactions_are_judged_too() -> None:
    events = outage("3.9", TOO_FEW)
    failed = event(
        events[-1].mono_ns, "producer", "txn", "fail", run="producer-1", txn=0, records=1, begun_ns=1, asked="commit",
        exception=REJECTED,
    )  # fmt: skip
    assert check_known_errors([*events, failed]).valid == "false"


def test_error_names_of_librdkafka() -> None:
    names = error_names("confluent")
    assert {"NOT_ENOUGH_REPLICAS", "_MSG_TIMED_OUT", "NOT_LEADER_FOR_PARTITION"} <= names
    assert not names & {"UNKNOWN", "ERR_137?", "NOT_ENOUGH_RACKS"}


def test_the_patched_client_has_no_list_of_known_errors() -> None:
    with pytest.raises(RackgateError, match="patched"):
        error_names("patched")
