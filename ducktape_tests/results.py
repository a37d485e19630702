"""What became of each test of a run, by what lies in its folder alone; what is not proved to have passed has not.

A test of the suite has a folder ``tests/NAME`` with ``ended.json`` of the runner and ducktape's ``results/SESSION``:
``expected.json`` (what it was about to run), ``report.json`` (what it says of it), and a folder of each test with
``history.jsonl``, ``verdicts.json`` and perhaps ``figures.json``. ducktape itself ends with 0 when nothing ran and when
tests were ignored; nothing here goes by that.
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
# the last: what was to run and did not
OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "unknown", "not run")
SCHEMA = 3
RUN, RESULTS, ENDED = "run.json", "results.json", "ended.json"
VERDICTS = "verdicts.json"
# What a control needs as any other test does: else nothing that it finds tells what it seems to.
STRICT = ("faults", "crashes")
# how ducktape tells of a test that found by itself that something is not as it must be
ASSERTED = "AssertionError("
# what of a test can't be done on the cluster that it ran on
LEFT_OUT = "left-out.json"
# of a lab that left no report
LAST_LINES = 8
REASONS = 20


@dataclass(frozen=True)
class Planned:
    """A test as the run that is judged was to run it.

    Attributes:
        id: of the suite.
        topology: of its cluster.
        minutes: what it was expected to take.
        folder: name of its folder below ``tests``.
        finds: checkers that must find something wrong: it is a control.
    """

    id: str
    topology: str
    minutes: float
    folder: str
    finds: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """What became of a test, with one set of its parameters.

    Attributes:
        id: of the suite, with the parameters if it has any: it can be run again by that.
        topology: of its cluster.
        outcome: ``pass`` only if all is proved.
        seconds: what it took; None if it did not run.
        reasons: what was wrong or is not known, or why it did not run.
        about: the first line of its description.
        verdicts: checker to verdict.
        finds: checkers that must find something wrong: it is a control.
        figures: what it measured.
        left_out: what of it can't be done on that cluster, and was not.
        folder: its results, relative to the run, or empty.
        report: ducktape's page, relative to the run, or empty.
        log: what the lab and ducktape wrote, relative to the run, or empty.
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

    @property
    def name(self) -> str:
        """For files of it."""
        return Path(self.folder).as_posix().replace("/", ".") if self.folder else ""


def read_json(path: Path) -> Any:
    """What a file of a run holds.

    Raises:
        RackgateError: it can't be read, or is not JSON.
    """
    # what is not a number stays a word, so that it can be written again
    return files.read_json(path, "'rackgate system run' writes it", constants=str)


def planned(run: Mapping[str, Any]) -> tuple[Planned, ...]:
    """The tests of ``run.json``.

    Raises:
        TypeError: one is not as a run writes it.
    """
    found = tuple(Planned(**one) for one in run["tests"])
    for one in found:
        texts = (one.id, one.topology, one.folder, *one.finds)
        if not all(isinstance(text, str) for text in texts) or type(one.minutes) not in (int, float):
            raise TypeError(f"test {one.id!r:.60}: must have texts and a number of minutes")
    return found


def judge(run_dir: Path, tests: Sequence[Planned]) -> tuple[Result, ...]:
    """What became of the tests of a run, at least one result for each."""
    return tuple(result for one in tests for result in judge_one(run_dir, one))


def judge_one(run_dir: Path, test: Planned) -> tuple[Result, ...]:
    """What became of one test of the suite: a result for each set of its parameters.

    Args:
        run_dir: folder of the run.
        test: as it was planned.
    """
    own = run_dir / "tests" / test.folder
    if not own.is_dir():
        return (Result(test.id, test.topology, "not run", reasons=("it was not begun",)),)
    log = own / "session.log"
    told: dict[str, Any] = {"log": _relative(run_dir, log) if log.is_file() else ""}
    try:
        ended = read_json(own / ENDED) if (own / ENDED).is_file() else None
        sessions = sorted(path for path in own.glob("results/*") if path.is_dir() and not path.is_symlink())
        if len(sessions) != 1 or ended is None:
            return (Result(test.id, test.topology, *_no_session(own, ended, len(sessions)), **told),)
        return _session(run_dir, test, sessions[0], ended, told)
    except (RackgateError, *files.MALFORMED) as error:
        why = str(error) if isinstance(error, RackgateError) else f"{type(error).__name__}: {error}"
        reason = f"its results are not as they should be: {why}"
        return (Result(test.id, test.topology, "unknown", None, (reason,), **told),)


def _no_session(
    own: Path, ended: Mapping[str, Any] | None, sessions: int
) -> tuple[Outcome, float | None, tuple[str, ...]]:
    """How a test is told of that has not exactly one session with an end."""
    if ended is None:
        return "unknown", None, ("it was begun, and nothing tells how it ended",)
    why = ended["why"] or f"the lab ended with status {ended['status']}"
    return "unknown", ended["seconds"], (f"{why}; there are {sessions} sessions of ducktape", *_last_lines(own))


def _last_lines(own: Path) -> tuple[str, ...]:
    log = own / "session.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    return tuple(line for line in lines if line.strip())[-LAST_LINES:]


def _session(
    run_dir: Path, test: Planned, session: Path, ended: Mapping[str, Any], told: Mapping[str, Any]
) -> tuple[Result, ...]:
    page = session / "report.html"
    told = {**told, "report": _relative(run_dir, page) if page.is_file() else ""}
    expected_file, report_file = session / "expected.json", session / "report.json"
    expected: list[dict[str, Any]] = read_json(expected_file) if expected_file.is_file() else []
    report: dict[str, Any] = read_json(report_file) if report_file.is_file() else {"results": []}
    rows: list[dict[str, Any]] = report["results"]
    if not expected:
        lines = _last_lines(session.parent.parent)
        return (
            Result(test.id, test.topology, "unknown", ended["seconds"], ("ducktape found no test", *lines), **told),
        )
    count = Counter(str(row["test_id"]) for row in rows)
    by_id = {str(row["test_id"]): row for row in rows}
    found = []
    for one in expected:
        name, own = str(one["test_id"]), _with_parameters(test.id, one["injected_args"])
        if count[name] == 1:
            found.append(_result(run_dir, test, own, session, by_id[name], told))
        else:
            why = ended["why"] or f"ducktape ended with status {ended['status']}"
            reason = f"{count[name]} results of it, and there must be one: {why}"
            found.append(Result(own, test.topology, "unknown", ended["seconds"], (reason,), **told))
    # whatever ran and was not to run makes the rest doubtful, too
    strangers = sorted(set(by_id) - {str(one["test_id"]) for one in expected})
    found += [
        Result(f"{test.id} ({name})", test.topology, "unknown", None, ("it ran, and nobody asked for it",), **told)
        for name in strangers
    ]
    return tuple(found)


def _as_wanted(checker: str, valid: str, finds: Sequence[str]) -> bool:
    """Whether a verdict is what a test, or a control that is to find something wrong, needs of a checker."""
    if checker in finds:
        return valid == "false"
    # a control shows that loss is found, whether or not it lasted long enough for each of the others to say something
    return valid == "true" or (valid == "unknown" and bool(finds) and checker not in STRICT)


def _with_parameters(test_id: str, parameters: Mapping[str, Any] | None) -> str:
    name = test_id.partition("@")[0]
    return f"{name}@{json.dumps(parameters, sort_keys=True)}" if parameters else name


def _result(
    run_dir: Path, test: Planned, test_id: str, session: Path, row: Mapping[str, Any], told: Mapping[str, Any]
) -> Result:
    folder = session / str(row["relative_results_dir"])
    verdicts: list[dict[str, Any]] = []
    if (folder / VERDICTS).is_file():
        verdicts = read_json(folder / VERDICTS)
    status, summary = str(row["test_status"]).lower(), _first_line(str(row["summary"]))
    others = [one for one in verdicts if not _as_wanted(str(one["checker"]), str(one["valid"]), test.finds)]
    said = {str(one["checker"]) for one in verdicts}
    reasons = [
        f"{one['checker']} is {one['valid']}: {reason}"
        for one in others
        for reason in list(one["because"])[:REASONS] or ["without a reason"]
    ]
    reasons += [f"{name} has said nothing, and was to find something wrong" for name in test.finds if name not in said]
    sure = any(one["valid"] != "unknown" for one in others)
    outcome: Outcome = "unknown"
    if status == "pass" and verdicts and not reasons:
        outcome = "pass"
    elif status == "pass" and not verdicts:
        reasons.append("ducktape says pass, and no checker has said anything")
    elif sure or (status == "fail" and not reasons and (verdicts or summary.startswith(ASSERTED))):
        # an error without any verdict says that something could not be tried, and not what is wrong
        outcome = "fail"
    elif status not in ("pass", "fail"):
        reasons.append(f"ducktape says {status}")
    # an assertion's summary is what the verdicts say anyway
    if status == "fail" and not (others and summary.startswith(ASSERTED)):
        reasons.insert(0, summary)
    return Result(
        id=test_id,
        topology=test.topology,
        outcome=outcome,
        seconds=float(row["run_time_seconds"]),
        reasons=tuple(reasons),
        about=_first_line(str(row.get("description") or "")),
        verdicts={str(one["checker"]): str(one["valid"]) for one in verdicts},
        finds=tuple(test.finds),
        figures=read_json(folder / "figures.json") if (folder / "figures.json").is_file() else {},
        left_out=tuple(read_json(folder / LEFT_OUT)) if (folder / LEFT_OUT).is_file() else (),
        folder=_relative(run_dir, folder),
        **told,
    )


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else ""


def _relative(run_dir: Path, path: Path) -> str:
    return path.resolve().relative_to(run_dir.resolve()).as_posix()


def exit_status(found: Iterable[Result]) -> int:
    """0 if something ran and all that was to run has passed."""
    counts = Counter(one.outcome for one in found)
    bad = counts["fail"] + counts["unknown"] + counts["not run"]
    return 1 if bad or not counts["pass"] else 0


def bar(run: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a run may take, what it took, and whether that is met; None if there is no bar, or it was broken off.

    Args:
        run: ``run.json``.
    """
    return None if run["took_s"] is None else targets.of_run(run.get("bar_min"), run["took_s"])


def document(run: Mapping[str, Any], found: Sequence[Result]) -> dict[str, Any]:
    """All of a run as plain JSON, for ``results.json``."""
    counts = Counter(one.outcome for one in found)
    return {
        "schema": SCHEMA,
        **{key: value for key, value in run.items() if key not in ("schema", "tests")},
        "counts": {outcome: counts[outcome] for outcome in OUTCOMES},
        "exit_status": exit_status(found),
        "bar": bar(run),
        "results": [asdict(one) for one in found],
    }
