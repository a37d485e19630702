"""Restarts of brokers on recorded clusters: what stops them, what does not, and what is unknown."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from pyhooks.core.errors import RackgateError
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.placement import readiness_report
from pyhooks.placement.check_cli import _report_restart, check_command, restarted_brokers
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.enforcement import LAG_OFFSETS, BrokerResponse, Enforcement
from pyhooks.placement.gate_forecast import (
    Broker,
    CheckedTopic,
    ClusterSnapshot,
    ConfigValue,
    IsrRequirements,
    ReportedPartition,
)
from pyhooks.placement.readiness import CommandWriter, ReadinessFinding, readiness_status
from pyhooks.placement.restart_judgement import restart_findings
from readiness_codes import source_codes

RACKS = {1: "a", 2: "a", 3: "b", 4: "c"}
ON = {ELR_FEATURE: 1, RACKS_FEATURE: 1}


def topic(
    name: str,
    *placements: tuple[int, ...],
    m: int = 2,
    r: int | None = 2,
    isr: tuple[int, ...] | None = None,
    leader: int | None = None,
    **more: Any,
) -> CheckedTopic:
    partitions = tuple(
        ReportedPartition(
            name,
            number,
            brokers[0] if leader is None else leader,
            brokers,
            brokers if isr is None else isr,
            **more,
        )
        for number, brokers in enumerate(placements)
    )
    requirements = IsrRequirements(ConfigValue(m, "topic"), None if r is None else ConfigValue(r, "topic"))
    return CheckedTopic(name, False, partitions, requirements)


def judged(
    topics: Sequence[CheckedTopic],
    *without: int,
    levels: dict[str, int] | None = None,
    silent: Sequence[int] = (),
    fenced: Sequence[int] = (),
    voters: tuple[int, ...] | None = (101, 102, 103),
    late: tuple[int, ...] = (),
    unanswered: dict[str, str] | None = None,
    behind: Sequence[int] = (),
    accept: bool = False,
) -> tuple[ReadinessFinding, ...]:
    response = BrokerResponse(14, 1, ON if levels is None else levels, 1, None)
    away = {**dict.fromkeys(silent, "no response"), **dict.fromkeys(fenced, "fenced")}
    newer = replace(response, epoch=response.epoch + LAG_OFFSETS + 1)
    responses = {one: newer if behind and one not in behind else response for one in RACKS if one not in away}
    enforcement = Enforcement(responses, away)
    brokers = {one: Broker(one, rack, one in fenced) for one, rack in RACKS.items()}
    cluster = ClusterSnapshot("id", brokers, tuple(topics), enforcement.enforced, voters, unanswered or {}, late)
    return restart_findings(cluster, enforcement, topics, without, CommandWriter("k1:9092"), accept_unavoidable=accept)


def codes(findings: Sequence[ReadinessFinding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in findings]


AAB = topic("orders", (1, 2, 3))
AABC = topic("orders", (1, 2, 3, 4))
NOW, ALWAYS = [("obstacle", "restart-stops-now")], [("obstacle", "restart-always-stops")]


@pytest.mark.parametrize(
    ("topics", "without", "options", "expected"),
    [
        ((AAB,), (1,), {}, []),
        # the single replica in rack b: M alone would allow it
        ((AAB,), (3,), {}, ALWAYS),
        ((AAB,), (3,), {"accept": True}, [("notice", "restart-always-stops")]),
        # R is not enforced, or not known
        ((AAB,), (3,), {"levels": {ELR_FEATURE: 1}}, []),
        ((topic("orders", (1, 2, 3), r=None),), (3,), {}, []),
        # a whole rack
        ((AABC,), (1, 2), {}, []),
        ((AABC,), (3, 4), {}, ALWAYS),
        # one rack is out of the ISR already
        ((replace(AABC, partitions=topic("orders", (1, 2, 3, 4), isr=(1, 2, 3)).partitions),), (3,), {}, NOW),
        ((replace(AABC, partitions=topic("orders", (1, 2, 3, 4), isr=(1, 2, 3)).partitions),), (1,), {}, []),
        # M
        ((topic("orders", (1, 3), r=1),), (3,), {}, ALWAYS),
        ((topic("orders", (1, 3, 4), r=1, isr=(1, 3)),), (3,), {}, NOW),
        ((topic("single", (1,), m=1, r=1),), (1,), {}, ALWAYS),
        ((topic("single", (1,), m=1, r=1),), (1,), {"accept": True}, [("notice", "restart-always-stops")]),
        ((topic("single", (1,), m=1, r=1),), (2,), {}, []),
        # it stops nothing that it takes part in, but the ISR is short without it already
        ((topic("orders", (1, 2, 3), isr=(1, 2)),), (3,), {}, ALWAYS),
        # already fenced: its restart changes nothing
        ((topic("orders", (1, 2, 3), isr=(1, 2)),), (3,), {"fenced": [3]}, []),
        ((topic("orders", (1, 2), leader=-1, isr=(), elr=(2,)),), (1,), {}, [("obstacle", "partition-offline")]),
        ((topic("orders", (1, 2), leader=-1, isr=(), elr=(2,)),), (3,), {}, []),
        # unknown
        ((AABC,), (1,), {"silent": [3]}, [("unknown", "broker-silent")]),
        ((AAB,), (3,), {"silent": [4]}, [*ALWAYS, ("unknown", "broker-silent")]),
        # the broker that hangs is the one to restart
        ((AABC,), (3,), {"silent": [3]}, []),
        # the ISR may be that of a broker with old metadata, the one to restart included
        ((AAB,), (3,), {"behind": [3]}, [*ALWAYS, ("unknown", "broker-behind")]),
        ((AABC,), (1,), {"behind": [1]}, [("unknown", "broker-behind")]),
        ((replace(AABC, requirements=None),), (1,), {}, [("unknown", "settings-unknown")]),
        ((replace(AABC, requirements=None),), (1,), {"fenced": [1]}, []),
        (
            (CheckedTopic("t", False, (), None, unanswered="not authorized"),),
            (1,),
            {},
            [("unknown", "topic-unanswered")],
        ),
        ((AABC,), (1,), {"unanswered": {"quorum": "no response"}}, [("unknown", "quorum-unanswered")]),
        # controllers
        ((AABC,), (1,), {"voters": (1, 3, 4)}, []),
        ((AABC,), (1,), {"voters": (1, 3, 4), "late": (4,)}, [("obstacle", "restart-stops-controllers-now")]),
        ((AABC,), (1,), {"voters": (1, 3, 4), "late": (1,)}, []),
        ((AABC,), (1, 2), {"voters": (1, 2, 3)}, [("obstacle", "restart-always-stops-controllers")]),
        ((AABC,), (1,), {"voters": (1,), "accept": True}, [("notice", "restart-always-stops-controllers")]),
        ((AABC,), (101,), {}, []),
        ((AABC,), (101, 102), {}, [("obstacle", "restart-always-stops-controllers")]),
        ((AABC,), (1,), {"late": (101, 102)}, []),
    ],
)
def test_findings_about_a_restart(
    topics: tuple[CheckedTopic, ...], without: tuple[int, ...], options: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    findings = judged(topics, *without, **options)
    assert codes(findings) == expected, findings
    severities = {severity for severity, _ in expected}
    assert readiness_status(findings) == (1 if "obstacle" in severities else 2 if "unknown" in severities else 0)


def test_every_code_has_a_case() -> None:
    (mark,) = test_findings_about_a_restart.pytestmark
    expected = {code for *_, findings in mark.args[1] for _, code in findings}
    assert expected == source_codes("restart_judgement")


def test_partitions_of_a_topic_share_a_finding() -> None:
    findings = judged([topic("orders", *[(1, 2, 3)] * 9)], 3)
    assert [finding.subject for finding in findings] == ["orders, partitions 0, 1, 2, 3, 4, 5 and 3 more"]
    assert findings[0].text == (
        "acks=all would be rejected: in sync in 1 rack, min.insync.racks requires 2, even with all replicas in sync"
    )
    waiting = judged([topic("orders", (1, 2, 3, 4), isr=(1, 2, 3))], 3)
    assert waiting[0].remedy == (
        "# wait, then check again: broker 4 in sync\n"
        "kafka-topics.sh --bootstrap-server k1:9092 --describe --topic orders"
    )


def test_the_strictest_report_of_a_topic_counts() -> None:
    lower = IsrRequirements(ConfigValue(2, "topic"), ConfigValue(1, "topic"))
    differing = replace(AAB, requirements=lower, by_broker={1: lower, 2: replace(lower, racks=ConfigValue(2, "topic"))})
    assert codes(judged([differing], 3)) == ALWAYS


CLUSTER = ClusterSnapshot("id", {one: Broker(one, rack) for one, rack in {**RACKS, 5: ""}.items()}, (), True, (101,))


def test_brokers_are_chosen_by_id_and_rack() -> None:
    assert restarted_brokers(CLUSTER, ["3,1", "4"], []) == (1, 3, 4)
    assert restarted_brokers(CLUSTER, ["101"], ["a"]) == (1, 2, 101)
    for ids, racks, message in (
        (["9"], [], "--without 9: no such node, there are: 1, 2, 3, 4, 5, 101"),
        (["1,"], [], "--without : no such node"),
        ([], ["z"], "--without-rack z: no broker is in it, there are: a, b, c"),
        ([], [""], "--without-rack : no broker is in it"),
    ):
        with pytest.raises(RackgateError, match=message):
            restarted_brokers(CLUSTER, ids, racks)


@pytest.mark.parametrize(("nodes", "subject"), [((1,), "broker 1: "), ((1, 101), "nodes 1, 101: ")])
def test_the_verdict_does_not_call_controllers_brokers(
    nodes: tuple[int, ...], subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    observation = ClusterObservation(CLUSTER, Enforcement({}, {}))
    _report_restart(observation, (), nodes, CommandWriter(), accept_unavoidable=False, as_json=False)
    assert capsys.readouterr().out.splitlines()[-1].startswith(subject)


def test_options_of_other_reports_are_errors() -> None:
    with pytest.raises(RackgateError, match="--without reports restarts alone"):
        check_command(bootstrap="k1:9092", without=["1"], plan=True)
    with pytest.raises(RackgateError, match="--accept-unavoidable belongs to"):
        check_command(bootstrap="k1:9092", accept_unavoidable=True)


def test_json_and_verdict() -> None:
    findings = judged([AAB], 3)
    report = json.loads(readiness_report.restart_json("id", [3], findings))
    assert {key: report[key] for key in ("cluster", "without", "ready", "status")} == {
        "cluster": "id",
        "without": [3],
        "ready": False,
        "status": 1,
    }
    assert [finding["code"] for finding in report["findings"]] == ["restart-always-stops"]
    for shown, verdict in (
        (findings, "broker 3: must not be restarted now (1 obstacle)"),
        ((), "broker 3: may be restarted now"),
        (judged([AABC], 1, silent=[3]), "broker 3: unknown whether they may be restarted (1 unknown)"),
    ):
        console = Console(file=io.StringIO(), width=100, highlight=False)
        readiness_report.print_restart(console, "broker 3", shown)
        assert isinstance(console.file, io.StringIO)
        assert console.file.getvalue().splitlines()[-1].rstrip() == verdict
