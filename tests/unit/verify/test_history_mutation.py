"""Violations planted in histories: their effect on checkers, the matrix of results, and the command."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyhooks.checkers.record_view import PartitionName
from pyhooks.checkers.registry import CHECKERS
from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from pyhooks.history.record_format import key_of
from pyhooks.verify import history_mutation
from pyhooks.verify.history_mutation import FOUND, MISSED, TRUSTED, MutationMatrix, find_histories, history_name, mutate
from pyhooks.verify.history_violations import VIOLATIONS
from pyhooks.verify.stored_history import StoredHistory, Violation
from pyhooks.verify.stored_logs import LogName, StoredRecord, edit_logs, stored_logs
from written_histories import MS, S, Simulated, changed, event, is_, key, outage

BY_NAME = {violation.name: violation for violation in VIOLATIONS}
GENERAL_ONES = {
    "drop-record", "confine-record", "lose-in-one-read", "duplicate-record", "add-unsent", "swap-in-reads",
    "swap-on-disk", "damage-value", "rotate-record", "share-offset", "report-other-racks", "fail-fault-probe",
}  # fmt: skip


def store(folder: Path, events: Sequence[Event], name: str = "A.test_a") -> Path:
    """Write a history as a system test does, and return its path."""
    path = folder.joinpath("tests", "x", "results", "2026-01-01--001", *name.split("."), "1", "history.jsonl")
    History(path).extend(events)
    return path


def planted(events: Sequence[Event], name: str, seed: int = 1) -> list[Event]:
    found = BY_NAME[name].plant(StoredHistory(events), random.Random(seed))  # noqa: S311 - a seeded test
    assert found is not None, f"{name} does not apply"
    return found


def run(tmp_path: Path, events: Sequence[Event], violations: Sequence[Violation] = VIOLATIONS) -> MutationMatrix:
    return mutate([store(tmp_path, events)], seed=1, rounds=3, violations=violations)


def settled_outage(mode: str) -> list[Event]:
    """Return an outage with attempts and observations long before, during and after it."""
    made = Simulated(mode=mode)
    made.rest(6)
    for _ in range(8):
        made.send(1)
        made.rest(1)
    made.lose("b")
    for _ in range(8):
        made.send(1)
        made.rest(1)
    made.heal("b")
    for _ in range(8):
        made.send(1)
        made.rest(1)
    for number in range(3):
        made.settings("seen")
        made.rest(number)
    return [replace(one, data={**one.data, "step": "made"}) if at == 0 else one for at, one in enumerate(made.finish())]


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        ("plain", {"acknowledge-rejection", "acknowledge-against-gate", "acknowledge-in-outage", "reject-acknowledged",
                   "misname-cause", "move-isr-change"}),
        ("idempotent", {"move-isr-change"}),
        ("transactional", {"rotate-transaction", "read-in-part", "move-isr-change"}),
    ],
)  # fmt: skip
def test_each_violation_of_an_outage_is_found(tmp_path: Path, mode: str, more: set[str]) -> None:
    matrix = run(tmp_path, settled_outage(mode))
    assert [(one.violation, one.trusted) for one in matrix.plantings if one.status != FOUND] == []
    assert {one.violation for one in matrix.plantings} == GENERAL_ONES | more
    assert matrix.passed
    assert set(matrix.histories[0].verdicts.values()) == {"true"}


def test_a_rotated_record_is_found_by_the_order_in_real_time_alone(tmp_path: Path) -> None:
    matrix = run(tmp_path, settled_outage("plain"), [BY_NAME["rotate-record"]])
    cells = matrix.cells("rotate-record")
    assert {name for name, counts in cells.items() if "false" in counts} == {"realtime_order"}
    assert cells["realtime_order"] == {"false": 3}
    assert cells["offsets"] == cells["promise"] == cells["delivery"] == {"true": 3}


def test_an_aborted_transaction_read_or_reported_as_committed_is_found(tmp_path: Path) -> None:
    violations = [BY_NAME[name] for name in ("read-aborted", "report-commit", "read-in-part", "rotate-transaction")]
    matrix = run(tmp_path, outage("transactional").finish(), violations)
    assert [(one.violation, one.status) for one in matrix.plantings[::3]] == [
        ("read-aborted", FOUND), ("report-commit", FOUND), ("read-in-part", FOUND), ("rotate-transaction", FOUND)
    ]  # fmt: skip
    assert matrix.cells("read-aborted")["transactions"] == {"false": 3}
    assert matrix.cells("rotate-transaction")["realtime_order"] == {"false": 3}


def polled() -> list[Event]:
    """Return a history with a reader of committed records, one in rounds, a group member and arrivals."""
    made = Simulated()
    made.rest(4)
    about: dict[str, Any] = {"run": "f", "topic": "t", "partition": 0, "isolation": "read_committed"}
    group: dict[str, Any] = {"run": "m", "group": "g", "protocol": "classic"}
    made.note("member", "join", None, **group)
    made.note("member", "assigned", None, **group, partitions=["t-0"], now=["t-0"])
    for count in range(2, 12, 2):
        made.send(2)
        made.note(
            "follower", "follow", **about, position=count, records=count, asked_ns=made.now, stable=count, end=count
        )
        made.note("viewer", "visible", run="v", asked_ns=made.now, next={"t-0": count}, high={"t-0": count})
        part: dict[str, Any] = {
            "count": 2,
            "from_ns": made.now - MS,
            "next": {"t-0": count},
            "first": {"t-0": count - 2},
        }
        made.note("member", "fetch", None, **group, **part)
        made.look()
    return made.finish()


def test_a_replica_that_stays_out_of_sync_is_found(tmp_path: Path) -> None:
    made = outage()
    made.rest(75)
    made.send(3)
    made.look()
    matrix = run(tmp_path, made.finish(), [BY_NAME["stay-out-of-sync"]])
    assert matrix.histories[0].verdicts["recovery"] == "true"
    assert matrix.cells("stay-out-of-sync")["recovery"] == {"false": 3}


@pytest.mark.parametrize(
    "name",
    ["read-ahead-of-commit", "read-ahead-of-watermark", "skip-in-polls", "repeat-poll", "go-back-in-polls"],
)
def test_each_violation_of_polls_is_found(tmp_path: Path, name: str) -> None:
    matrix = run(tmp_path, polled(), [BY_NAME[name]])
    assert [one.status for one in matrix.plantings] == [FOUND] * 3
    assert matrix.cells(name)["polls"] == {"false": 3}
    assert matrix.histories[0].verdicts["polls"] == "true"


def test_a_skipped_arrival_is_found(tmp_path: Path) -> None:
    made = Simulated()
    made.rest(4)
    made.send(5)
    made.note("follower", "fetched", topic="t", keys=[key(seq) for seq in range(5)], ago_ms=[0.0] * 5)
    matrix = run(tmp_path, made.finish(), [BY_NAME["skip-in-polls"]])
    assert matrix.cells("skip-in-polls")["polls"] == {"false": 3}


NODES = [
    event(S, "node", "start", None, node=1),
    event(2 * S, "node", "state", "ok", node=1, state="up"),
    event(3 * S, "node", "faults-logged", "ok", node=1, entries=5, found=[]),
]
ABOUT: dict[str, Any] = {
    "run": "r",
    "topic": "t",
    "client": "3.9.1",
    "first_only": True,
    "idempotent": False,
    "to": {"0": 1},
}
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
CLIENTS = [
    event(0, "test", "known-errors", None, client="3.9.1", names=[TIMEOUT]),
    event(S, "producer", "intend", None, **ABOUT),
    event(2 * S, "producer", "produce", "unknown", run="r", topic="t", key="r/t/0/0", sent_ns=S, exception=TIMEOUT),
]
VERSIONS = [
    event(S, "test", "versions", None, client="c", brokers=name, baseline=name == "stock", versions={"Produce": "12"})
    for name in ("stock", "patched")
]


@pytest.mark.parametrize(
    ("name", "events", "checker"),
    [
        ("crash-node", NODES, "crashes"),
        ("log-fault", NODES, "crashes"),
        ("report-unknown-error", CLIENTS, "known"),
        ("change-version", VERSIONS, "versions"),
    ],
)
def test_each_violation_of_nodes_and_clients_is_found(
    tmp_path: Path, name: str, events: list[Event], checker: str
) -> None:
    matrix = run(tmp_path, events, [BY_NAME[name]])
    assert matrix.histories[0].verdicts[checker] == "true"
    assert matrix.cells(name)[checker] == {"false": 3}
    assert matrix.passed


# -- what a violation changes ------------------------------------------------------------------------------------------


def test_a_rotated_record_has_one_new_offset_everywhere() -> None:
    events = settled_outage("plain")
    moved = planted(events, "rotate-record")
    logs, before = stored_logs(moved), stored_logs(events)
    final = LogName("p2", PartitionName("t", 0), "read_uncommitted")
    order = [record.key for _, record in sorted(logs[final].items())]
    victim = order[-1]
    assert sorted(map(str, order)) == sorted(str(record.key) for record in before[final].values())
    assert all(log[max(log)].key == victim for log in logs.values() if len(log) == len(order))
    offsets = {one.data["key"]: one.data["offset"] for one in moved if is_("produce", "ok")(one)}
    assert offsets == {record.key: offset for offset, record in logs[final].items()}


def test_an_accepted_record_is_where_its_leader_would_have_appended_it() -> None:
    events = settled_outage("plain")
    accepted = planted(events, "acknowledge-against-gate")
    new = [
        one for one, old in zip(accepted, events, strict=True)
        if is_("produce", "ok")(one) and old.outcome == "fail"
    ]  # fmt: skip
    assert len(new) == 1
    assert "exception" not in new[0].data
    before = [one for one in accepted if is_("produce", "ok")(one) and one.mono_ns < new[0].mono_ns]
    assert new[0].data["offset"] == len(before)
    holding = [name for name, log in stored_logs(accepted).items() if log[len(before)].key == new[0].data["key"]]
    assert len(holding) == len(stored_logs(events)) == 7


def test_logs_are_encoded_as_they_were() -> None:
    events = [
        replace(one, data={**one.data, "sizes": [[10, len(one.data["keys"])]]}) if one.op == "read" else one
        for one in outage("transactional").finish()
    ]

    def marked_first(_: LogName, log: dict[int, StoredRecord]) -> dict[int, StoredRecord]:
        first = min(log)
        return {**log, first: replace(log[first], damaged=True)}

    marked = edit_logs(events, marked_first)
    assert [one.data.get("damaged") for one in marked if one.op == "read" and one.data["begin"] == 0] == [[0]] * 4
    plain = edit_logs(marked, lambda _, log: {at: replace(record, damaged=False) for at, record in log.items()})
    assert [{**one.data, "damaged": one.data.get("damaged") or []} for one in plain] == [
        {**one.data, "damaged": []} for one in events
    ]


def test_victims_do_not_depend_on_other_violations(tmp_path: Path) -> None:
    path = store(tmp_path, settled_outage("plain"))
    alone = mutate([path], seed=5, violations=[BY_NAME["drop-record"]])
    together = mutate([path], seed=5)
    assert alone.plantings == together.of("drop-record")


# -- the matrix --------------------------------------------------------------------------------------------------------

HARMLESS = Violation("harmless", "nothing", frozenset({"delivery"}), lambda history, _: list(history.events))
REJECTED = Violation(
    "other", "an offset", frozenset({"delivery", "offsets"}),
    lambda history, _: changed(history.events, is_("produce", "ok"), 1, offset=0),
)  # fmt: skip


def test_a_violation_that_no_checker_finds_is_missed(tmp_path: Path) -> None:
    matrix = run(tmp_path, settled_outage("plain"), [replace(HARMLESS, breaks=frozenset())])
    assert [one.status for one in matrix.plantings] == [MISSED] * 3
    assert not matrix.passed
    row = matrix.summary()["matrix"]["harmless"]
    assert (row["planted"], row["found"], row["missed"]) == (3, 0, ["A.test_a"])


@pytest.mark.parametrize(("violation", "trusted"), [(HARMLESS, ("delivery",)), (REJECTED, ("delivery",))])
def test_a_checker_that_trusts_what_contradicts_it_is_reported(
    tmp_path: Path, violation: Violation, trusted: tuple[str, ...]
) -> None:
    matrix = run(tmp_path, settled_outage("plain"), [violation])
    assert {(one.status, one.trusted) for one in matrix.plantings} == {(TRUSTED, trusted)}
    assert not matrix.passed
    assert matrix.summary()["matrix"][violation.name]["wrongly_true"] == ["A.test_a"]


def test_a_history_must_keep_its_stored_verdicts(tmp_path: Path) -> None:
    path = store(tmp_path, settled_outage("plain"))
    verdicts = path.with_name("verdicts.json")
    verdicts.write_text(json.dumps([{"checker": "delivery", "valid": "true"}]), encoding="utf-8")
    assert mutate([path], seed=1).passed
    verdicts.write_text(json.dumps([{"checker": "delivery", "valid": "unknown"}]), encoding="utf-8")
    matrix = mutate([path], seed=1)
    assert (matrix.histories[0].differing, matrix.passed) == (("delivery",), False)
    verdicts.write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(RackgateError, match=r"verdicts\.json: has no verdicts"):
        mutate([path], seed=1)


def test_a_refuted_history_is_not_mutated(tmp_path: Path) -> None:
    lost = changed(settled_outage("plain"), is_("produce", "ok"), offset=3)
    matrix = run(tmp_path, lost)
    assert "offsets" in matrix.histories[0].refuted
    assert (matrix.plantings, matrix.passed) == ([], False)
    assert "offsets" in matrix.summary()["histories"]["A.test_a"]["refuted"]


def test_the_summary_names_what_is_not_covered(tmp_path: Path) -> None:
    summary = run(tmp_path, settled_outage("plain")).summary()
    assert summary["without_violation"] == []
    assert "copy-twice" in summary["not_applicable"]
    assert "copied" in summary["finding_nothing"]
    assert "realtime_order" not in summary["finding_nothing"]


def test_violations_have_distinct_names_and_known_checkers() -> None:
    assert len(BY_NAME) == len(VIOLATIONS)
    assert frozenset().union(*(violation.breaks for violation in VIOLATIONS)) <= CHECKERS.keys()
    assert all(violation.breaks for violation in VIOLATIONS)


def test_histories_are_found_below_a_run_once(tmp_path: Path) -> None:
    one = store(tmp_path, [], "A.test_a")
    two = store(tmp_path, [], "B.test_b")
    for path in (one, two):
        path.touch()
    results = tmp_path / "tests" / "x" / "results"
    (results / "latest").symlink_to("2026-01-01--001")
    (tmp_path / "history.jsonl").touch()
    assert find_histories([tmp_path]) == [one, two]
    assert find_histories([tmp_path / "history.jsonl"]) == [tmp_path / "history.jsonl"]
    assert [history_name(path) for path in (one, two)] == ["A.test_a", "B.test_b"]
    assert history_name(tmp_path / "history.jsonl") == str(tmp_path / "history.jsonl")
    with pytest.raises(RackgateError, match="no such file or folder"):
        find_histories([tmp_path / "absent"])


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_matrix_and_ends_with_0_if_all_is_found(tmp_path: Path) -> None:
    store(tmp_path, settled_outage("plain"))
    out = tmp_path / "matrix.json"
    result = CliRunner().invoke(app, ["system", "mutate", str(tmp_path), "--out", str(out), "--rounds", "2"])
    assert result.exit_code == 0, result.output
    assert f"A.test_a: 18 of {len(VIOLATIONS)} violations apply" in result.output
    (row,) = [line.split() for line in result.output.splitlines() if line.startswith("rotate-record")]
    assert row == ["rotate-record", "2", "2", "realtime_order", "2"]
    assert json.loads(out.read_text(encoding="utf-8"))["passed"] is True
    printed = CliRunner().invoke(app, ["system", "mutate", str(tmp_path), "--json", "--only", "rotate-record"])
    matrix = json.loads(printed.stdout)["matrix"]
    assert matrix.keys() == {"rotate-record"}
    assert matrix["rotate-record"] == {
        "about": "a record is behind all later ones: in acknowledgements, reads and disks",
        "anomaly": "nonmonotonic-send, G0-realtime",
        "breaks": ["realtime_order"],
        "planted": 1,
        "found": 1,
        "false": {"realtime_order": 1},
        "unknown": {},
    }


def test_the_command_ends_with_1_if_a_violation_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_mutation, "VIOLATIONS", (HARMLESS,))
    store(tmp_path, settled_outage("plain"))
    result = CliRunner().invoke(app, ["system", "mutate", str(tmp_path)])
    assert result.exit_code == 1
    assert "harmless in A.test_a: wrongly true: delivery" in result.output


def test_the_command_needs_a_history_and_known_violations(tmp_path: Path) -> None:
    for arguments, reason in (
        ([str(tmp_path)], "no history of a system test"),
        ([str(tmp_path), "--only", "misspelled"], "--only misspelled: one of drop-record"),
    ):
        error = CliRunner().invoke(app, ["system", "mutate", *arguments]).exception
        assert isinstance(error, RackgateError)
        assert (error.exit_status, reason in str(error)) == (2, True)


def test_the_key_of_an_unsent_record_is_beyond_what_was_announced() -> None:
    logs = stored_logs(planted(settled_outage("plain"), "add-unsent"))
    keys = {record.key for log in logs.values() for record in log.values()}
    assert key_of("producer-1", "t", 0, 10**6) in keys


def test_the_table_of_anomalies_names_violations_and_checkers_as_they_are() -> None:
    text = (paths.REPO / "pyhooks" / "README.md").read_text(encoding="utf-8")
    table = text.partition("### Anomalies")[2].partition("Not judged")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    listed: set[str] = set()
    for anomalies, checkers, violations in rows[2:]:
        names = re.findall("`([^`]+)`", violations)
        listed.update(names)
        found = set(re.findall("`([^`]+)`", checkers))
        assert bool(names) is bool(found) is (violations != "none"), anomalies
        assert found <= CHECKERS.keys()
        assert all(BY_NAME[name].breaks & found for name in names), anomalies
        for name in names:
            own = set(BY_NAME[name].anomaly.split(", "))
            assert own & set(re.findall(r"[\w-]+", anomalies)), (name, anomalies)
    assert {violation.name for violation in VIOLATIONS if violation.anomaly} - listed == {
        "read-in-part", "report-commit", "reject-in-phase"
    }  # fmt: skip
