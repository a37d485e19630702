"""Comparison of the checkers with a model that shares no code with them, here with a program that plays the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyhooks.cli import app
from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.verify import second_opinion
from pyhooks.verify.second_opinion import PLANTED, Opinion, build, compare
from written_histories import changed, is_, outage

GOOD = outage().finish()


def store(folder: Path) -> Path:
    path = folder.joinpath("results", "session", "A", "test_a", "1", "history.jsonl")
    History(path).extend(GOOD)
    return path


def model(folder: Path, *results: str) -> Path:
    """Return a program that prints these results, one for each partition, whatever the history."""
    rows = [json.dumps({"result": result, "operations": 7}) for result in results]
    program = folder / "model"
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows), encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("results", "valid"),
    [
        (("Ok", "Ok"), "true"),
        (("Ok", "Illegal"), "false"),
        (("Unknown", "Illegal"), "false"),
        (("Ok", "Unknown"), "unknown"),
        ((), "unknown"),
    ],
)
def test_the_result_is_the_worst_of_all_partitions(tmp_path: Path, results: tuple[str, ...], valid: str) -> None:
    opinions = compare([store(tmp_path)], model(tmp_path, *results), seed=1)
    assert opinions[0] == Opinion("A.test_a", "", len(results), 7 * len(results), valid, "true")
    planted = {opinion.violation: opinion.checkers for opinion in opinions[1:]}
    expected = {"drop-record", "swap-in-reads", "rotate-record", "share-offset", "acknowledge-rejection"}
    assert planted == dict.fromkeys(expected, "false")
    assert expected < set(PLANTED)


@pytest.mark.parametrize(
    ("valid", "checkers", "agrees"),
    [
        ("true", "true", True), ("false", "false", True), ("true", "false", False), ("false", "true", False),
        ("unknown", "false", True), ("true", "unknown", True),
    ],
)  # fmt: skip
def test_they_disagree_if_one_accepts_what_the_other_refutes(valid: str, checkers: str, agrees: bool) -> None:
    assert Opinion("h", "", 1, 1, valid, checkers).agrees is agrees


def test_without_go_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RackgateError, match=r"^Go is not installed: a second opinion needs the program 'go'"):
        build()
    store(tmp_path)
    error = CliRunner().invoke(app, ["system", "second-opinion", str(tmp_path)]).exception
    assert isinstance(error, RackgateError)
    assert error.exit_status == 2


@pytest.mark.parametrize(("result", "status"), [("Ok", 1), ("Illegal", 1), ("Unknown", 1)])
def test_a_model_that_is_always_wrong_once_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str, status: int
) -> None:
    store(tmp_path)
    monkeypatch.setattr(second_opinion, "build", lambda: model(tmp_path, result))
    printed = CliRunner().invoke(app, ["system", "second-opinion", str(tmp_path)])
    assert printed.exit_code == status
    assert "1 histories and 5 planted violations" in printed.output
    disagreeing = "A.test_a: the model returns false" if result == "Illegal" else "rotate-record in A.test_a: the model"
    assert disagreeing in printed.output


def test_an_agreeing_model_ends_with_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(tmp_path)
    path.unlink()
    lost = changed(GOOD, is_("produce", "ok"), 1, offset=0)
    History(path).extend(lost)
    monkeypatch.setattr(second_opinion, "build", lambda: model(tmp_path, "Illegal"))
    printed = CliRunner().invoke(app, ["system", "second-opinion", str(tmp_path), "--json"])
    assert printed.exit_code == 0
    document = json.loads(printed.stdout)
    assert document["passed"] is True
    assert document["opinions"][0] == {
        "history": "A.test_a", "violation": "", "partitions": 1, "operations": 7, "valid": "false", "checkers": "false",
        "agrees": True,
    }  # fmt: skip
