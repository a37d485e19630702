"""Results of the tests of a run, derived from the files in its folder only; a test passes only if that is proved.

Each test of the suite has a folder ``tests/NAME`` with ``ended.json`` of the runner and ducktape's ``results/SESSION``.
The session has ``expected.json`` (the tests that it was about to run), ``report.json`` (their results), and a folder
for each test with ``history.jsonl``, ``verdicts.json`` and optionally ``figures.json``. ducktape's exit status is not
used: it is 0 even if no test ran or tests were ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pyhooks.core import files, targets
from pyhooks.core.errors import RackgateError

Outcome = Literal["pass", "fail", "unknown", "not run"]
# "not run": planned, but it did not run
OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "unknown", "not run")
SCHEMA = 3
RUN, RESULTS, ENDED = "run.json", "results.json", "ended.json"
VERDICTS = "verdicts.json"
# Checkers that must return true even for a control; otherwise its other verdicts prove nothing.
REQUIRED = ("faults", "crashes")
# start of ducktape's summary of a failed assertion
ASSERTION = "AssertionError("
# steps of a test that are not possible on its cluster
LEFT_OUT = "left-out.json"
# log lines to show of a lab that left no report
LOG_LINES = 8
MAX_REASONS = 20


@dataclass(frozen=True)
class PlannedTest:
    """Test of a run as listed in ``run.json``.

    Attributes:
        folder: name of its folder below ``tests``.
    """

    id: str
    topology: str
    minutes: float
    folder: str
    finds: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """Result of a test with one set of parameters.

    Attributes:
        id: of the suite, with parameters if there are any; the test can be run again by it.
        outcome: ``pass`` only if everything is proved.
        left_out: steps that were skipped because they are not possible on that cluster.
        folder: its results, relative to the run, or empty.
    """

    id: str
    topology: str
    outcome: Outcome
    seconds: float | None = None
    reasons: tuple[str, ...] = ()
    about: str = ""
    verdicts: Mapping[str, str] = field(default_factory=dict)
    finds: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    folder: str = ""
    report: str = ""
    log: str = ""


def read_json(path: Path) -> Any:
    """Read a JSON file of a run."""
    # NaN and infinities stay strings, so that they can be written again.
    return files.read_json(path, "'rackgate system run' writes it", constants=str)


def planned(run: Mapping[str, Any]) -> tuple[PlannedTest, ...]:
    """Return the tests of ``run.json``.

    Raises:
        TypeError: an entry does not have the format of a run.
    """
    tests = tuple(PlannedTest(**entry) for entry in run["tests"])
    for test in tests:
        texts = (test.id, test.topology, test.folder, *test.finds)
        if not all(isinstance(text, str) for text in texts) or type(test.minutes) not in (int, float):
            raise TypeError(f"test {test.id!r:.60}: must have texts and a number of minutes")
    return tests


def judge(run_dir: Path, tests: Sequence[PlannedTest]) -> tuple[Result, ...]:
    """Return the results of the tests of a run, at least one for each."""
    return tuple(result for test in tests for result in judge_one(run_dir, test))


def judge_one(run_dir: Path, test: PlannedTest) -> tuple[Result, ...]:
    """Return the results of one test of the suite: one for each set of its parameters."""
    folder = run_dir / "tests" / test.folder
    if not folder.is_dir():
        return (Result(test.id, test.topology, "not run", reasons=("not started",)),)
    log = folder / "session.log"
    links: dict[str, Any] = {"log": _relative(run_dir, log) if log.is_file() else ""}
    try:
        ended = read_json(folder / ENDED) if (folder / ENDED).is_file() else None
        sessions = sorted(path for path in folder.glob("results/*") if path.is_dir() and not path.is_symlink())
        if len(sessions) == 1 and ended is not None:
            return _session_results(run_dir, test, sessions[0], ended, links)
        seconds: float | None = None
        reasons: tuple[str, ...] = ("started, but there is no record of its end",)
        if ended is not None:
            why = ended["why"] or f"the lab ended with status {ended['status']}"
            seconds, reasons = ended["seconds"], (f"{why}; ducktape sessions: {len(sessions)}", *_last_lines(folder))
    except (RackgateError, *files.MALFORMED) as error:
        why = str(error) if isinstance(error, RackgateError) else f"{type(error).__name__}: {error}"
        seconds, reasons = None, (f"malformed results: {why}",)
    return (Result(test.id, test.topology, "unknown", seconds, reasons, **links),)


def _last_lines(folder: Path) -> tuple[str, ...]:
    log = folder / "session.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    return tuple(line for line in lines if line.strip())[-LOG_LINES:]


def _session_results(
    run_dir: Path, test: PlannedTest, session: Path, ended: Mapping[str, Any], links: Mapping[str, Any]
) -> tuple[Result, ...]:
    page = session / "report.html"
    links = {**links, "report": _relative(run_dir, page) if page.is_file() else ""}
    expected_file, report_file = session / "expected.json", session / "report.json"
    expected: list[dict[str, Any]] = read_json(expected_file) if expected_file.is_file() else []
    report: dict[str, Any] = read_json(report_file) if report_file.is_file() else {"results": []}
    rows: list[dict[str, Any]] = report["results"]

    def unknown(test_id: str, seconds: float | None, *reasons: str) -> Result:
        return Result(test_id, test.topology, "unknown", seconds, reasons, **links)

    if not expected:
        return (unknown(test.id, ended["seconds"], "ducktape found no test", *_last_lines(session.parent.parent)),)
    counts = Counter(str(row["test_id"]) for row in rows)
    by_id = {str(row["test_id"]): row for row in rows}
    judged = []
    for entry in expected:
        name, test_id = str(entry["test_id"]), _with_parameters(test.id, entry["injected_args"])
        if counts[name] == 1:
            judged.append(_result(run_dir, test, test_id, session, by_id[name], links))
        else:
            why = ended["why"] or f"ducktape ended with status {ended['status']}"
            judged.append(unknown(test_id, ended["seconds"], f"{counts[name]} results instead of one: {why}"))
    # An unplanned test makes the other results doubtful, too.
    unplanned = sorted(set(by_id) - {str(entry["test_id"]) for entry in expected})
    return (*judged, *(unknown(f"{test.id} ({name})", None, "it ran, but was not selected") for name in unplanned))


def _as_required(checker: str, valid: str, finds: Sequence[str]) -> bool:
    """Return whether a verdict is the required one, for a test or for a control that must find something wrong."""
    if checker in finds:
        return valid == "false"
    # A control shows that loss is detected; its faults may be too short for other checkers to reach a verdict.
    return valid == "true" or (valid == "unknown" and bool(finds) and checker not in REQUIRED)


def _with_parameters(test_id: str, parameters: Mapping[str, Any] | None) -> str:
    name = test_id.partition("@")[0]
    return f"{name}@{json.dumps(parameters, sort_keys=True)}" if parameters else name


def _result(
    run_dir: Path, test: PlannedTest, test_id: str, session: Path, row: Mapping[str, Any], links: Mapping[str, Any]
) -> Result:
    folder = session / str(row["relative_results_dir"])
    verdicts: list[dict[str, Any]] = read_json(folder / VERDICTS) if (folder / VERDICTS).is_file() else []
    status, summary = str(row["test_status"]).lower(), _first_line(str(row["summary"]))
    wrong = [
        verdict for verdict in verdicts if not _as_required(str(verdict["checker"]), str(verdict["valid"]), test.finds)
    ]
    checkers = {str(verdict["checker"]) for verdict in verdicts}
    reasons = [
        f"{verdict['checker']} is {verdict['valid']}: {reason}"
        for verdict in wrong
        for reason in list(verdict["because"])[:MAX_REASONS] or ["no reason given"]
    ]
    reasons += [f"{name}: no verdict, false is required" for name in test.finds if name not in checkers]
    outcome: Outcome = "unknown"
    if status == "pass" and verdicts and not reasons:
        outcome = "pass"
    elif status == "pass" and not verdicts:
        reasons.append("passed in ducktape without any verdict")
    elif any(verdict["valid"] != "unknown" for verdict in wrong) or (
        status == "fail" and not reasons and (verdicts or summary.startswith(ASSERTION))
    ):
        # An error without any verdict means that the test could not be completed, not that something is wrong.
        outcome = "fail"
    elif status not in ("pass", "fail"):
        reasons.append(f"status in ducktape: {status}")
    # The summary of an assertion repeats the verdicts.
    if status == "fail" and not (wrong and summary.startswith(ASSERTION)):
        reasons.insert(0, summary)
    return Result(
        id=test_id,
        topology=test.topology,
        outcome=outcome,
        seconds=float(row["run_time_seconds"]),
        reasons=tuple(reasons),
        about=_first_line(str(row.get("description") or "")),
        verdicts={str(verdict["checker"]): str(verdict["valid"]) for verdict in verdicts},
        finds=tuple(test.finds),
        figures=read_json(folder / "figures.json") if (folder / "figures.json").is_file() else {},
        left_out=tuple(read_json(folder / LEFT_OUT)) if (folder / LEFT_OUT).is_file() else (),
        folder=_relative(run_dir, folder),
        **links,
    )


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _relative(run_dir: Path, path: Path) -> str:
    return path.resolve().relative_to(run_dir.resolve()).as_posix()


def exit_status(judged: Iterable[Result]) -> int:
    """Return 0 if at least one test passed and every planned test did, else 1."""
    return 0 if {result.outcome for result in judged} == {"pass"} else 1


def document(run: Mapping[str, Any], judged: Sequence[Result]) -> dict[str, Any]:
    """Return the content of ``results.json``: all of a run as plain JSON."""
    counts = Counter(result.outcome for result in judged)
    return {
        "schema": SCHEMA,
        **{key: value for key, value in run.items() if key not in ("schema", "tests")},
        "counts": {outcome: counts[outcome] for outcome in OUTCOMES},
        "exit_status": exit_status(judged),
        # No target is judged for an interrupted run.
        "target": None if run["duration_s"] is None else targets.of_run(run.get("target_min"), run["duration_s"]),
        "results": [asdict(result) for result in judged],
    }
