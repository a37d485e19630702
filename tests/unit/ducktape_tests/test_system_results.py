"""Results of system tests, judged from the files of ducktape and of the runner."""

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


class RunFiles:
    """Write the files of a test like ducktape and the runner."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.folder = run_dir / "tests" / TEST.folder
        self.session = self.folder / "results" / "2026-01-01--001"
        self.session.mkdir(parents=True)
        (self.folder / "results" / "latest").symlink_to(self.session)
        (self.folder / "session.log").write_text("one\n\nthe last line\n", encoding="utf-8")
        (self.session / "report.html").touch()
        self.rows: list[dict[str, Any]] = []
        self.expected: list[dict[str, Any]] = []
        self.end()

    def end(self, status: int = 0, why: str = "") -> None:
        files.write_json(self.folder / "ended.json", {"status": status, "seconds": 61.0, "why": why})

    def expect(self, name: str = NAME, **parameters: Any) -> None:
        self.expected.append({"test_id": name, "injected_args": parameters or None})
        files.write_json(self.session / "expected.json", self.expected)

    def report(self, status: str = "PASS", valid: str | None = "true", name: str = NAME, summary: str = "") -> Path:
        folder = self.session / f"{len(self.rows)}"
        folder.mkdir()
        row = {"test_id": name, "test_status": status, "summary": summary, "run_time_seconds": 60.0}
        self.rows.append(row | {"relative_results_dir": f"{folder.name}/", "description": "\n  It is so.\n  setup: x"})
        files.write_json(self.session / "report.json", {"results": self.rows})
        if valid is not None:
            because = [] if valid == "true" else ["reason"]
            verdicts = [{"checker": "faults", "valid": "true", "because": [], "notes": []}]
            verdicts.append({"checker": "delivery", "valid": valid, "because": because, "notes": []})
            (folder / "verdicts.json").write_text(json.dumps(verdicts), encoding="utf-8")
        return folder

    def judge(self, *finds: str) -> tuple[Result, ...]:
        return results.judge(self.run_dir, [replace(TEST, finds=finds)])


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path)


def test_pass_requires_a_pass_of_ducktape_and_true_verdicts(run: RunFiles) -> None:
    run.expect()
    folder = run.report()
    (folder / "figures.json").write_text('{"p99_ms": 7.5, "none": NaN}', encoding="utf-8")
    (result,) = run.judge()
    assert result == Result(
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
    assert results.exit_status([result]) == 0


@pytest.mark.parametrize(
    ("status", "valid", "outcome", "message"),
    [
        ("PASS", "false", "fail", "delivery is false: reason"),
        ("PASS", "unknown", "unknown", "delivery is unknown: reason"),
        ("PASS", None, "unknown", "without any verdict"),
        ("FAIL", "true", "fail", "AssertionError('odd')"),
        ("FAIL", None, "fail", "AssertionError('odd')"),
        ("FAIL", "unknown", "unknown", "delivery is unknown"),
        ("FAIL", "false", "fail", "delivery is false"),
        ("IGNORE", None, "unknown", "status in ducktape: ignore"),
        ("FLAKY", "true", "unknown", "status in ducktape: flaky"),
    ],
)
def test_any_other_status_or_verdict_is_no_pass(
    run: RunFiles, status: str, valid: str | None, outcome: str, message: str
) -> None:
    run.expect()
    run.report(status, valid, summary="AssertionError('odd')\nTraceback")
    (result,) = run.judge()
    assert result.outcome == outcome
    assert message in "; ".join(result.reasons)
    assert results.exit_status([result]) == 1


@pytest.mark.parametrize(
    ("valid", "outcome"), [(None, "unknown"), ("true", "fail"), ("unknown", "unknown"), ("false", "fail")]
)
def test_error_without_a_verdict_is_unknown(run: RunFiles, valid: str | None, outcome: str) -> None:
    run.expect()
    run.report("FAIL", valid, summary="RackgateError('timed out after 60 s waiting for: leaders')\nTraceback")
    (result,) = run.judge()
    assert result.outcome == outcome
    assert valid in ("false", "unknown") or result.reasons[0].startswith("RackgateError('timed out after 60 s")
    assert results.exit_status([result]) == 1


def test_error_is_reported_beside_false_verdicts(run: RunFiles) -> None:
    run.expect()
    run.report("FAIL", "false", summary="RackgateError('timed out after 120 s waiting for: an ISR')\nTraceback")
    (result,) = run.judge()
    assert result.outcome == "fail"
    assert result.reasons == ("RackgateError('timed out after 120 s waiting for: an ISR')", "delivery is false: reason")


@pytest.mark.parametrize(
    ("finds", "status", "valid", "outcome", "message"),
    [
        (("delivery",), "PASS", "false", "pass", ""),
        (("delivery",), "PASS", "true", "fail", "delivery is true"),
        (("delivery",), "PASS", "unknown", "unknown", "delivery is unknown"),
        (("delivery",), "PASS", None, "unknown", "without any verdict"),
        (("delivery",), "FAIL", "false", "fail", "AssertionError('odd')"),
        (("delivery", "offsets"), "PASS", "false", "unknown", "offsets: no verdict"),
        (("faults",), "PASS", "false", "fail", "faults is true"),
    ],
)
def test_control_passes_if_the_required_verdicts_are_false(
    run: RunFiles, finds: tuple[str, ...], status: str, valid: str | None, outcome: str, message: str
) -> None:
    run.expect()
    run.report(status, valid, summary="AssertionError('odd')")
    (result,) = run.judge(*finds)
    assert (result.outcome, result.finds) == (outcome, finds)
    assert message in "; ".join(result.reasons)


@pytest.mark.parametrize(
    ("checker", "valid", "outcome"),
    [
        ("rejections", "unknown", "pass"),
        ("rejections", "false", "fail"),
        ("faults", "unknown", "unknown"),
        ("delivery", "unknown", "unknown"),
    ],
)
def test_other_verdicts_of_a_control_may_be_unknown(run: RunFiles, checker: str, valid: str, outcome: str) -> None:
    run.expect()
    file = run.report("PASS", "false") / "verdicts.json"
    verdicts = {verdict["checker"]: verdict for verdict in json.loads(file.read_text(encoding="utf-8"))}
    verdicts[checker] = {"checker": checker, "valid": valid, "because": ["no sample"], "notes": []}
    file.write_text(json.dumps(list(verdicts.values())), encoding="utf-8")
    (result,) = run.judge("delivery")
    assert result.outcome == outcome


def test_each_set_of_parameters_has_its_own_result(run: RunFiles) -> None:
    for fault in ("kill", "cut"):
        run.expect(f"{NAME}.{fault}", fault=fault)
        run.report("PASS" if fault == "kill" else "FAIL", name=f"{NAME}.{fault}", summary="no")
    parametrized = run.judge()
    assert {result.id: result.outcome for result in parametrized} == {
        'x_test.py::A.test_one@{"fault": "kill"}': "pass",
        'x_test.py::A.test_one@{"fault": "cut"}': "fail",
    }


def test_planned_test_without_exactly_one_result_is_unknown(run: RunFiles) -> None:
    run.expect()
    run.expect(f"{NAME}.2", k=2)
    run.report(name=f"{NAME}.2")
    run.report(name=f"{NAME}.2")
    run.end(137, "stopped after 11 minutes, expected were 2")
    first, second = run.judge()
    assert (first.outcome, second.outcome) == ("unknown", "unknown")
    assert first.reasons == ("0 results instead of one: stopped after 11 minutes, expected were 2",)
    assert second.reasons[0].startswith("2 results instead of one")


def test_unplanned_test_is_unknown(run: RunFiles) -> None:
    run.expect()
    run.report()
    run.report(name="ducktape_tests.x_test.A.test_other")
    passed, unplanned = run.judge()
    assert passed.outcome == "pass"
    assert unplanned.outcome == "unknown"
    assert "was not selected" in unplanned.reasons[0]
    assert results.exit_status([passed, unplanned]) == 1


def test_no_discovered_test_is_unknown(run: RunFiles) -> None:
    (result,) = run.judge()
    assert result.outcome == "unknown"
    assert result.reasons == ("ducktape found no test", "one", "the last line")
    assert results.exit_status([]) == 1


def test_missing_report_is_unknown(run: RunFiles) -> None:
    run.expect()
    run.end(1)
    (result,) = run.judge()
    assert (result.outcome, result.seconds) == ("unknown", 61.0)
    assert "ducktape ended with status 1" in result.reasons[0]


def test_failed_lab_start_is_unknown(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / TEST.folder
    folder.mkdir(parents=True)
    (folder / "session.log").write_text("error: no\n", encoding="utf-8")
    (result,) = results.judge(tmp_path, [TEST])
    assert (result.outcome, result.reasons) == ("unknown", ("started, but there is no record of its end",))
    files.write_json(folder / "ended.json", {"status": 2, "seconds": 1.0, "why": ""})
    (result,) = results.judge(tmp_path, [TEST])
    assert result.reasons == ("the lab ended with status 2; ducktape sessions: 0", "error: no")


def test_malformed_files_are_unknown(run: RunFiles) -> None:
    run.expect()
    run.report()
    (run.session / "report.json").write_text("{", encoding="utf-8")
    (result,) = run.judge()
    assert result.outcome == "unknown"
    assert "report.json: not JSON" in result.reasons[0]
    files.write_json(run.session / "report.json", {"results": [{"test_id": NAME}]})
    (result,) = run.judge()
    assert "KeyError: 'relative_results_dir'" in result.reasons[0]


def test_planned_test_that_did_not_start_is_not_run(tmp_path: Path) -> None:
    (not_run,) = results.judge(tmp_path, [TEST])
    assert (not_run.outcome, not_run.reasons) == ("not run", ("not started",))
    passed = Result("a", "az3", "pass")
    assert results.exit_status([passed]) == 0
    assert results.exit_status([passed, not_run]) == 1
    assert results.exit_status([]) == 1


def test_skipped_steps_are_listed(run: RunFiles) -> None:
    run.expect()
    folder = run.report()
    assert run.judge()[0].left_out == ()
    files.write_json(folder / results.LEFT_OUT, ["slow rack b"])
    (result,) = run.judge()
    assert (result.outcome, result.left_out) == ("pass", ("slow rack b",))


@pytest.mark.parametrize(
    ("target_min", "duration_s", "text"),
    [
        (40, 2340.0, "target of 40 minutes: met, it took 39.0"),
        (40, 2400.0, "target of 40 minutes: met, it took 40.0"),
        (8, 486.0, "target of 8 minutes: missed, it took 8.1"),
        (None, 486.0, None),
        # interrupted
        (40, None, None),
    ],
)
def test_target_of_a_run(target_min: float | None, duration_s: float | None, text: str | None) -> None:
    target = results.document({"target_min": target_min, "duration_s": duration_s}, [])["target"]
    assert (target and targets.of_run_text(target)) == text
