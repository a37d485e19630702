"""Runs ducktape and believes only its report: something ran, everything passed, nothing was ignored or flaky.

Usage inside a bare lab: ``python -m ducktape_tests.run ducktape_tests/rack_outage_test.py``. Further words go to
ducktape. ducktape itself ends with 0 when no test ran and when tests were ignored.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pyhooks.cluster.lab import RUN_DIR_VARIABLE

CLUSTER = "ducktape_tests.cluster.LabCluster"


def judge(report: Path) -> list[str]:
    """What is wrong with a session, by ducktape's ``report.json``; nothing if all of its tests passed.

    Raises:
        OSError: there is no report.
        ValueError: it is not JSON.
    """
    results = json.loads(report.read_text(encoding="utf-8"))["results"]
    if not results:
        return ["no test ran"]
    return [
        f"{result['test_id']}: {result['test_status']}: {str(result['summary']).splitlines()[:1]}"
        for result in results
        if str(result["test_status"]).lower() != "pass"
    ]


def _reports(results: Path) -> set[Path]:
    # "latest" is a link to one of the others
    return {report for report in results.glob("*/report.json") if not report.parent.is_symlink()}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tests named in ``argv``; 0 when all passed, 1 when not, 2 when there is no result."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        sys.stderr.write("usage: python -m ducktape_tests.run TEST… [ducktape options]\n")
        return 2
    results = Path(os.environ.get(RUN_DIR_VARIABLE, "out/ducktape")) / "results"
    before = _reports(results)
    command = [str(Path(sys.executable).with_name("ducktape")), "--cluster", CLUSTER]
    command += ["--results-root", str(results), "--debug", *words]
    status = subprocess.run(command, check=False).returncode
    new = sorted(_reports(results) - before)
    if len(new) != 1:
        sys.stderr.write(f"error: ducktape ended with status {status} and left {len(new)} reports in {results}\n")
        return 2
    wrong = judge(new[0])
    for line in wrong:
        sys.stderr.write(f"error: {line}\n")
    sys.stdout.write(f"ducktape: report in {new[0].with_name('report.html')}\n")
    return 1 if wrong or status != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
