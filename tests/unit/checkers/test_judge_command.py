"""``rackgate judge`` on stored histories: output and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyhooks.checkers.judgement import judge
from pyhooks.checkers.registry import CHECKERS, GENERAL
from pyhooks.cli import app
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import Event, History
from untyped_events import event_now
from written_histories import changed, outage

GOOD = outage().finish()
WRONG = changed(GOOD, lambda event: event.op == "produce" and event.outcome == "ok", outcome="fail")
UNKNOWN = [event for event in GOOD if event.op != "end"]


def store(folder: Path, events: list[Event]) -> str:
    path = folder / "history.jsonl"
    History(path).extend(events)
    return str(path)


@pytest.mark.parametrize(
    ("events", "status", "valid"), [(GOOD, 0, "true"), (WRONG, 1, "false"), (UNKNOWN, 2, "unknown")]
)
def test_the_exit_status_follows_the_verdict(tmp_path: Path, events: list[Event], status: int, valid: str) -> None:
    path = store(tmp_path, events)
    table = CliRunner().invoke(app, ["judge", path])
    assert table.exit_code == status
    assert valid in table.output
    assert "not applicable: phases, transactions" in table.output
    as_json = CliRunner().invoke(app, ["judge", path, "--json"])
    assert as_json.exit_code == status
    report = json.loads(as_json.output)
    assert (report["valid"], report["events"], report["left_out"]) == (valid, len(events), ["phases", "transactions"])
    assert {verdict["checker"] for verdict in report["verdicts"]} == set(GENERAL) - set(report["left_out"])


def test_a_single_checker_can_be_chosen(tmp_path: Path) -> None:
    path = store(tmp_path, UNKNOWN)
    assert CliRunner().invoke(app, ["judge", path, "--checker", "recovery", "--checker", "faults"]).exit_code == 0
    assert CliRunner().invoke(app, ["judge", path, "--checker", "transactions"]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        (None, (), "no such history"),
        ("nonsense\n", (), "history.jsonl:1"),
        ("", ("--checker", "misspelled"), "--checker misspelled: one of faults, phases, delivery"),
        ('{"mono_ns":1,"wall_ms":1,"process":"p","op":"read","outcome":"ok","data":{"topic":"t","keys":[]}}\n',
         ("--checker", "delivery"), "an event lacks the data its op requires"),
    ],
)  # fmt: skip
def test_a_history_that_cannot_be_judged_is_an_error(
    tmp_path: Path, text: str | None, arguments: tuple[str, ...], reason: str
) -> None:
    path = tmp_path / "history.jsonl"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    error = CliRunner().invoke(app, ["judge", str(path), *arguments]).exception
    assert isinstance(error, RackgateError)
    assert error.exit_status == 2
    assert reason in str(error)


def test_an_empty_history_has_no_verdicts() -> None:
    assert judge([]) == ([], list(GENERAL))


def test_a_history_without_checkable_events_is_unknown(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["judge", store(tmp_path, [event_now("x", "y", None)])]).exit_code == 2


def test_help_lists_every_checker() -> None:
    text = " ".join(CliRunner().invoke(app, ["judge", "--help"], terminal_width=300).output.split())
    assert all(name in text for name in CHECKERS)
    assert "0 all valid, 1 a checker found the history invalid, 2 a result is unknown" in text
