from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ducktape_tests import results
from ducktape_tests.results import PlannedTest, Result
from pyhooks.core import files, targets

TEST = PlannedTest("x_test.py::A.test_one", "az3", 2, "x.A.test_one")
NAME = "ducktape_tests.x_test.A.test_one"


class Left:
    """What a test leaves, as ducktape and the runner write it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.own = run_dir / "tests" / TEST.folder
        self.session = self.own / "results" / "2026-01-01--001"
        self.session.mkdir(parents=True)
        (self.own / "results" / "latest").symlink_to(self.session)
        (self.own / "session.log").write_text("one\n\nthe last line\n", encoding="utf-8")
        (self.session / "report.html").touch()
        self.rows: list[dict[str, Any]] = []
        self.expected: list[dict[str, Any]] = []
        self.ended()

    def ended(self, status: int = 0, why: str = "") -> None:
        files.write_json(self.own / "ended.json", {"status": status, "seconds": 61.0, "why": why})

    def expects(self, name: str = NAME, **parameters: Any) -> None:
        self.expected.append({"test_id": name, "injected_args": parameters or None})
        files.write_json(self.session / "expected.json", self.expected)

    def reports(self, status: str = "PASS", valid: str | None = "true", name: str = NAME, summary: str = "") -> Path:
        folder = self.session / f"{len(self.rows)}"
        folder.mkdir()
        row = {"test_id": name, "test_status": status, "summary": summary, "run_time_seconds": 60.0}
        self.rows.append(row | {"relative_results_dir": f"{folder.name}/", "description": "\n  It is so.\n  setup: x"})
        files.write_json(self.session / "report.json", {"results": self.rows})
        if valid is not None:
            because = [] if valid == "true" else ["it was not"]
            told = [{"checker": "faults", "valid": "true", "because": [], "notes": []}]
            told.append({"checker": "delivery", "valid": valid, "because": because, "notes": []})
            (folder / "verdicts.json").write_text(json.dumps(told), encoding="utf-8")
        return folder

    def judged(self, *finds: str) -> tuple[Result, ...]:
        return results.judge(self.run_dir, [replace(TEST, finds=finds)])


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_a_test_has_passed_if_ducktape_and_all_checkers_say_so(left: Left) -> None:
    left.expects()
    folder = left.reports()
    (folder / "figures.json").write_text('{"p99_ms": 7.5, "none": NaN}', encoding="utf-8")
    (found,) = left.judged()
    assert found == Result(
        TEST.id,
        "az3",
        "pass",
        60.0,
        about="It is so.",
        verdicts={"faults": "true", "delivery": "true"},
        figures={"p99_ms": 7.5, "none": "NaN"},
        folder="tests/x.A.test_one/results/2026-01-01--001/0",
        report="tests/x.A.test_one/results/2026-01-01--001/report.html",
        log="tests/x.A.test_one/session.log",
    )
    assert results.exit_status([found]) == 0


@pytest.mark.parametrize(
    ("status", "valid", "outcome", "says"),
    [
        ("PASS", "false", "fail", "delivery is false: it was not"),
        ("PASS", "unknown", "unknown", "delivery is unknown: it was not"),
        ("PASS", None, "unknown", "no checker has said anything"),
        ("FAIL", "true", "fail", "AssertionError('odd')"),
        ("FAIL", None, "fail", "AssertionError('odd')"),
        ("FAIL", "unknown", "unknown", "delivery is unknown"),
        ("FAIL", "false", "fail", "delivery is false"),
        ("IGNORE", None, "unknown", "ducktape says ignore"),
        ("FLAKY", "true", "unknown", "ducktape says flaky"),
    ],
)
def test_whatever_else_is_no_pass(left: Left, status: str, valid: str | None, outcome: str, says: str) -> None:
    left.expects()
    left.reports(status, valid, summary="AssertionError('odd')\nTraceback")
    (found,) = left.judged()
    assert found.outcome == outcome
    assert says in "; ".join(found.reasons)
    assert results.exit_status([found]) == 1


@pytest.mark.parametrize(
    ("valid", "outcome"), [(None, "unknown"), ("true", "fail"), ("unknown", "unknown"), ("false", "fail")]
)
def test_an_error_without_verdicts_is_unknown(left: Left, valid: str | None, outcome: str) -> None:
    left.expects()
    left.reports("FAIL", valid, summary="RackgateError('waited 60 s in vain for: leaders')\nTraceback")
    (found,) = left.judged()
    assert found.outcome == outcome
    assert valid in ("false", "unknown") or found.reasons[0].startswith("RackgateError('waited 60 s in vain")
    assert results.exit_status([found]) == 1


def test_what_a_test_waited_for_in_vain_is_told_beside_what_checkers_found(left: Left) -> None:
    left.expects()
    left.reports("FAIL", "false", summary="RackgateError('waited 120 s in vain for: an ISR')\nTraceback")
    (found,) = left.judged()
    assert found.outcome == "fail"
    assert found.reasons == ("RackgateError('waited 120 s in vain for: an ISR')", "delivery is false: it was not")


@pytest.mark.parametrize(
    ("finds", "status", "valid", "outcome", "says"),
    [
        (("delivery",), "PASS", "false", "pass", ""),
        (("delivery",), "PASS", "true", "fail", "delivery is true"),
        (("delivery",), "PASS", "unknown", "unknown", "delivery is unknown"),
        (("delivery",), "PASS", None, "unknown", "no checker has said anything"),
        (("delivery",), "FAIL", "false", "fail", "AssertionError('odd')"),
        (("delivery", "offsets"), "PASS", "false", "unknown", "offsets has said nothing"),
        (("faults",), "PASS", "false", "fail", "faults is true"),
    ],
)
def test_a_control_passes_if_what_is_wrong_is_found(
    left: Left, finds: tuple[str, ...], status: str, valid: str | None, outcome: str, says: str
) -> None:
    left.expects()
    left.reports(status, valid, summary="AssertionError('odd')")
    (found,) = left.judged(*finds)
    assert (found.outcome, found.finds) == (outcome, finds)
    assert says in "; ".join(found.reasons)


@pytest.mark.parametrize(
    ("checker", "valid", "outcome"),
    [
        ("refusals", "unknown", "pass"),
        ("refusals", "false", "fail"),
        ("faults", "unknown", "unknown"),
        ("delivery", "unknown", "unknown"),
    ],
)
def test_other_checkers_may_have_nothing_to_say_of_a_control(
    left: Left, checker: str, valid: str, outcome: str
) -> None:
    left.expects()
    file = left.reports("PASS", "false") / "verdicts.json"
    told = {one["checker"]: one for one in json.loads(file.read_text(encoding="utf-8"))}
    told[checker] = {"checker": checker, "valid": valid, "because": ["nothing was seen"], "notes": []}
    file.write_text(json.dumps(list(told.values())), encoding="utf-8")
    (found,) = left.judged("delivery")
    assert found.outcome == outcome


def test_each_set_of_parameters_has_its_own_result(left: Left) -> None:
    for fault in ("kill", "cut"):
        left.expects(f"{NAME}.{fault}", fault=fault)
        left.reports("PASS" if fault == "kill" else "FAIL", name=f"{NAME}.{fault}", summary="no")
    found = left.judged()
    assert {one.id: one.outcome for one in found} == {
        'x_test.py::A.test_one@{"fault": "kill"}': "pass",
        'x_test.py::A.test_one@{"fault": "cut"}': "fail",
    }


def test_a_test_without_its_one_result_is_unknown(left: Left) -> None:
    left.expects()
    left.expects(f"{NAME}.2", k=2)
    left.reports(name=f"{NAME}.2")
    left.reports(name=f"{NAME}.2")
    left.ended(137, "given up after 11 minutes, 2 were expected")
    first, second = left.judged()
    assert (first.outcome, second.outcome) == ("unknown", "unknown")
    assert first.reasons == ("0 results of it, and there must be one: given up after 11 minutes, 2 were expected",)
    assert second.reasons[0].startswith("2 results of it")


def test_what_ran_without_being_asked_for_is_told(left: Left) -> None:
    left.expects()
    left.reports()
    left.reports(name="ducktape_tests.x_test.A.test_other")
    passed, stranger = left.judged()
    assert passed.outcome == "pass"
    assert stranger.outcome == "unknown"
    assert "nobody asked for it" in stranger.reasons[0]
    assert results.exit_status([passed, stranger]) == 1


def test_nothing_ran(left: Left) -> None:
    (found,) = left.judged()
    assert found.outcome == "unknown"
    assert found.reasons == ("ducktape found no test", "one", "the last line")
    assert results.exit_status([]) == 1


def test_no_report_at_all(left: Left) -> None:
    left.expects()
    left.ended(1)
    (found,) = left.judged()
    assert (found.outcome, found.seconds) == ("unknown", 61.0)
    assert "ducktape ended with status 1" in found.reasons[0]


def test_a_lab_that_did_not_come_up(tmp_path: Path) -> None:
    own = tmp_path / "tests" / TEST.folder
    own.mkdir(parents=True)
    (own / "session.log").write_text("error: no\n", encoding="utf-8")
    (found,) = results.judge(tmp_path, [TEST])
    assert (found.outcome, found.reasons) == ("unknown", ("it was begun, and nothing tells how it ended",))
    files.write_json(own / "ended.json", {"status": 2, "seconds": 1.0, "why": ""})
    (found,) = results.judge(tmp_path, [TEST])
    assert found.reasons == ("the lab ended with status 2; there are 0 sessions of ducktape", "error: no")


def test_broken_files_are_unknown(left: Left) -> None:
    left.expects()
    left.reports()
    (left.session / "report.json").write_text("{", encoding="utf-8")
    (found,) = left.judged()
    assert found.outcome == "unknown"
    assert "report.json: not JSON" in found.reasons[0]
    files.write_json(left.session / "report.json", {"results": [{"test_id": NAME}]})
    (found,) = left.judged()
    assert "KeyError: 'relative_results_dir'" in found.reasons[0]


def test_what_was_not_begun_has_not_run(tmp_path: Path) -> None:
    (missed,) = results.judge(tmp_path, [TEST])
    assert (missed.outcome, missed.reasons) == ("not run", ("it was not begun",))
    passed = Result("a", "az3", "pass")
    assert results.exit_status([passed]) == 0
    assert results.exit_status([passed, missed]) == 1
    # a run in which nothing ran has proved nothing
    assert results.exit_status([]) == 1


def test_what_a_test_left_out_is_told(left: Left) -> None:
    left.expects()
    folder = left.reports()
    assert left.judged()[0].left_out == ()
    files.write_json(folder / results.LEFT_OUT, ["slow rack b"])
    (found,) = left.judged()
    assert (found.outcome, found.left_out) == ("pass", ("slow rack b",))


@pytest.mark.parametrize(
    ("bar_min", "took_s", "text"),
    [
        (40, 2340.0, "bar of 40 minutes: met, it took 39.0"),
        (40, 2400.0, "bar of 40 minutes: met, it took 40.0"),
        (8, 486.0, "bar of 8 minutes: missed, it took 8.1"),
        (None, 486.0, None),
        # broken off
        (40, None, None),
    ],
)
def test_a_run_tells_whether_it_met_its_bar(bar_min: float | None, took_s: float | None, text: str | None) -> None:
    told = results.bar({"bar_min": bar_min, "took_s": took_s})
    assert (told and targets.of_run_text(told)) == text
