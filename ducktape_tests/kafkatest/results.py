"""Results of cases: one JSON file for each case and arm, compared across arms and with the predictions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich import table as rich_table
from rich.text import Text

from ducktape_tests.kafkatest.cases import Case, KafkaSuite, SuiteCase
from ducktape_tests.kafkatest.nodes import ARMS, RACKS_CONFIG, Arm, why_unproved
from pyhooks.core import files
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table

Verdict = Literal["pass", "fail", "unknown"]
SCHEMA = 1
COLOURS = {"pass": "green", "fail": "bold red", "unknown": "yellow"}
NOT_RUN = "not run"
MAX_REASON = 300
AGAIN = "delete it to run the case again"
# in the reason of a failure in which the errors printed by clients name the racks
RACK_ERROR, RACK_ERRORS = "NotEnoughRacks", "; clients received NotEnoughRacks"
# in the reason of a failure on Kafka that has no such config
UNKNOWN_CONFIG = f"Unknown topic config name: {RACKS_CONFIG}"
# ducktape prints all attributes of the node before the command and its output
_COMMAND_ERROR = re.compile(
    r"RemoteCommandError\(\{.*\}, (['\"])(?P<command>\S+).*?\1, (?P<status>-?\d+), b(['\"])(?P<output>.*)\4\)"
)


@dataclass(frozen=True)
class ArmResult:
    """Result of a case in an arm.

    Attributes:
        case: its id.
        seconds: duration, the lab included.
        reason: why it did not pass; empty if it did.
        checkout: fingerprint of the checkout.
        kafka: what ran: Kafka's version, and the patch series unless the arm is stock.
    """

    case: str
    arm: Arm
    verdict: Verdict
    seconds: float
    reason: str
    checkout: str
    kafka: str

    def save(self, path: Path) -> None:
        """Write the file that ``load`` reads."""
        files.write_json(path, {"schema": SCHEMA, **asdict(self)})

    @staticmethod
    def load(path: Path) -> ArmResult:
        """Read a stored result.

        Raises:
            RackgateError: it can't be read or is malformed.
        """
        top = Table(files.read_object(path, AGAIN), path)
        top.choice("schema", (SCHEMA,))
        result = top.into(ArmResult)
        top.done()
        return result


def judge(folder: Path, arm: Arm, stopped: str) -> tuple[Verdict, str]:
    """Return the verdict of a case and why it did not pass, from the files of its run.

    Args:
        folder: of the case's lab.
        arm: the arm.
        stopped: why the run was stopped before its end; empty if it was not.
    """
    # ducktape's link "latest" shows the same report again
    reports = [path for path in folder.glob("results/*/report.json") if not path.parent.is_symlink()]
    rows = [row for path in reports for row in files.read_object(path, AGAIN)["results"]]
    if stopped or len(rows) != 1:
        log = folder / "session.log"
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return "unknown", (stopped or f"ducktape reported {len(rows)} results, expected 1: {last}")[:MAX_REASON]
    status, summary = str(rows[0]["test_status"]).lower(), str(rows[0]["summary"]).strip()
    if status == "fail":
        named = any(RACK_ERROR in path.read_text("utf-8", "replace") for path in folder.glob("results/**/*.stdout"))
        return "fail", _shorten(summary.partition("\n")[0])[:MAX_REASON] + (RACK_ERRORS if named else "")
    if status != "pass":
        return "unknown", f"ducktape's status is {status}"
    unproved = why_unproved(arm, folder.glob("results/**/server-start-stdout-stderr.log"))
    return ("unknown", unproved) if unproved else ("pass", "")


def _shorten(error: str) -> str:
    """Return the first line of a failed command's output with its name and exit status; other errors as they are."""
    if not (failed := _COMMAND_ERROR.fullmatch(error)):
        return error
    output = failed["output"].partition("\\n")[0]
    return f"{failed['command'].rpartition('/')[2]} ended with status {failed['status']}: {output}"


def compare(
    cases: Sequence[Case], suite: KafkaSuite, results_by_arm: Mapping[tuple[str, Arm], ArmResult], arms: Sequence[Arm]
) -> dict[str, Any]:
    """Return the comparison of all arms as JSON, with the exit status.

    The status is 1 if a case that passes on stock fails on the overlay, a case that a patch adds passes on stock or
    fails on the overlay, or a case differs from its prediction for the arm ``gate``; else 2 if a case has no verdict in
    one of ``arms``; else 0. A failure was predicted only if clients received errors that name the racks, and a case
    that a patch adds must fail on stock because the config is unknown.
    """
    rows = []
    for case in cases:
        entry = suite.planned(case)
        results = {arm: results_by_arm.get((case.id, arm)) for arm in ARMS}
        verdicts = {arm: result.verdict if result else NOT_RUN for arm, result in results.items()}
        rows.append(
            {
                "case": case.id,
                **{str(arm): verdict for arm, verdict in verdicts.items()},
                "seconds": {arm: result.seconds for arm, result in results.items() if result},
                "reasons": {arm: result.reason for arm, result in results.items() if result and result.reason},
                "predicted": {"gate": entry.gate, "because": entry.because} if entry else None,
                "problems": list(_problems(entry, results)),
            }
        )
    missing = sum(row[arm] not in ("pass", "fail") for row in rows for arm in arms)
    status = 1 if any(row["problems"] for row in rows) else 2 if missing or not rows else 0
    return {"schema": SCHEMA, "exit_status": status, "without_verdict": missing, "cases": rows}


def _problems(entry: SuiteCase | None, results: Mapping[Arm, ArmResult | None]) -> Iterator[str]:
    """Yield what is not as it must be in the results of a case."""
    stock, overlay, gate = (result.verdict if (result := results[arm]) else NOT_RUN for arm in ARMS)
    if stock == "pass" and overlay == "fail":
        yield "passes on stock and fails on the overlay"
    if entry is None:
        return
    if entry.patched and stock == "pass":
        yield f"passes on stock, which has no {RACKS_CONFIG}"
    elif entry.patched and (failed := results["stock"]) and stock == "fail" and UNKNOWN_CONFIG not in failed.reason:
        yield f"fails on stock for another reason than the missing {RACKS_CONFIG}"
    if entry.patched and overlay == "fail":
        yield "fails on the overlay"
    if gate in ("pass", "fail") and gate != entry.gate:
        yield f"was predicted to {entry.gate} on gate: {entry.because}"
    elif (failed := results["gate"]) and gate == "fail" and RACK_ERRORS not in failed.reason:
        yield f"fails on gate for another reason than predicted: {entry.because}"


def table(document: Mapping[str, Any]) -> rich_table.Table:
    """Return the table of a comparison."""
    grid = rich_table.Table(box=None, pad_edge=False)
    grid.add_column("case", overflow="fold", ratio=3)
    for head in (*ARMS, "predicted"):
        grid.add_column(head, no_wrap=True)
    grid.add_column("reason", overflow="fold", ratio=2)
    for row in document["cases"]:
        predicted = row["predicted"]["gate"] if row["predicted"] else ""
        reasons = [*row["problems"], *(f"{arm}: {reason}" for arm, reason in row["reasons"].items())]
        verdicts = [Text(row[arm], COLOURS.get(row[arm], "dim")) for arm in ARMS]
        grid.add_row(Text(short(row["case"])), *verdicts, predicted, Text("\n".join(reasons)))
    return grid


def short(case_id: str) -> str:
    """Return the name of a case for people: class, test and the values of its parameters."""
    test, _, parameters = case_id.partition("@")
    values = json.loads(parameters) if parameters else {}
    shown = [f"{key}={value}" for key, value in values.items() if (key, value) != ("metadata_quorum", "ISOLATED_KRAFT")]
    return f"{test.partition('::')[2]} {' '.join(shown)}".strip()


def load_all(folder: Path, cases: Sequence[Case]) -> dict[tuple[str, Arm], ArmResult]:
    """Return the stored results of cases by id and arm; results of other cases are not read.

    Raises:
        RackgateError: see ``ArmResult.load``; or a file has the result of another case.
    """
    stored = {}
    for arm in ARMS:
        for case in cases:
            path = result_path(folder, arm, case)
            if path.is_file():
                result = ArmResult.load(path)
                if (result.case, result.arm) != (case.id, arm):
                    raise RackgateError(f"{path}: has a result of {result.case} in {result.arm}; {AGAIN}")
                stored[case.id, arm] = result
    return stored


def result_path(folder: Path, arm: Arm, case: Case) -> Path:
    """Return the file for the result of a case in an arm."""
    return folder / arm / f"{case.name}.json"
