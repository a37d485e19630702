"""Table of the runs of ``claims.toml`` in ``kip/results.md``, written by ``rackgate evidence`` and ``make results``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_text, write_text
from pyhooks.evidence import artifacts
from pyhooks.evidence.artifacts import EvidenceResults
from pyhooks.evidence.claims import ClaimRun, Claims, load
from pyhooks.evidence.rules import NOT_RUN

RESULTS = paths.REPO / "kip" / "results.md"
BEGIN, END = "<!-- begin: written by `make results` -->\n", "<!-- end: written by `make results` -->\n"
# the state is the last column, so that a test can compare the others: it changes with every change of a dependency
COLUMNS = ("run", "date", "duration", "patches", "tests", "claims as expected", "state")


def rows(claims: Claims, results: EvidenceResults) -> list[tuple[str, ...]]:
    """Return the cells of each run, in the order of ``COLUMNS``."""
    return [_row(run, claims, results) for run in claims.runs.values()]


def _row(run: ClaimRun, claims: Claims, results: EvidenceResults) -> tuple[str, ...]:
    artifact = results.artifacts.get(run.id)
    if artifact is None:
        return run.id, "", "", "", "", "", NOT_RUN
    seconds = artifact["seconds"]
    return (
        f"[{run.id}](evidence/{run.id}.json)",
        artifact["date"][:10],
        f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min",
        artifact["versions"]["patches"],
        _outcomes(run, artifact),
        _verdicts(run, claims, results),
        "stale" if run.id in results.stale else "current",
    )


def _outcomes(run: ClaimRun, artifact: Mapping[str, Any]) -> str:
    """Return the number of tests by outcome; empty if the run has no tests."""
    counts = {"junit": "totals", "system": "counts"}.get(run.kind)
    outcomes = artifact["result"][counts] if counts else {}
    return ", ".join(f"{outcomes[name]} {name}" for name in sorted(outcomes, reverse=True) if outcomes[name])


def _verdicts(run: ClaimRun, claims: Claims, results: EvidenceResults) -> str:
    """Return how many claims that use the run have the expected verdict by the stored artifacts, and the others."""
    states = {name: results.judged[name].was or results.judged[name].state for name in claims.claims}
    users = [claim for claim in claims.claims.values() if run.id in claim.runs]
    others = [f"`{claim.id}` {states[claim.id]}" for claim in users if states[claim.id] != claim.verdict]
    return ", ".join([f"{len(users) - len(others)} of {len(users)}", *others])


def write(claims: Claims, results: EvidenceResults, path: Path = RESULTS) -> None:
    """Replace the table in the document.

    Raises:
        RackgateError: the document can't be read or lacks one of the two comments around the table.
    """
    text = read_text(path, "it holds the results of the runs")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise RackgateError(f"{path}: the comments around the table are missing")
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows(claims, results)]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    write_text(path, f"{before}{begin}\n{table}\n{end}{after}")


if __name__ == "__main__":
    every_claim = load()
    write(every_claim, artifacts.read_results(every_claim))
