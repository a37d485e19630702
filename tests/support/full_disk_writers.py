"""Run each writer on a full and a read-only disk: ``python tests/support/full_disk_writers.py FOLDER``.

FOLDER has a folder for each kind of disk, with an otherwise empty file system of a few MiB for each case. Prints JSON,
by kind and case: the exit status, the text on standard error, the new files and the changed ones, or the traceback of a
failure. One process runs them all, since its imports take more time than the writers.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from bench.report import figures
from bench_results import made_up
from ducktape_tests import results
from outage_benchmark_results import result as outages_result
from pyhooks import cli
from pyhooks.core import exit_status, files, paths, run_folder
from pyhooks.evidence import artifacts, runs
from pyhooks.evidence.rules import ClaimJudgement
from pyhooks.evidence.runs import FinishedCommand
from pyhooks.history.event_log import History
from pyhooks.watch import terminal_capture
from untyped_events import event_now, note
from written_claims import read as read_claims

BALLAST = "ballast"
FULL, READ_ONLY = KINDS = ("full", "read-only")


def command(*arguments: str) -> int:
    sys.argv = ["rackgate", *arguments]
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def function(work: Callable[[], object]) -> int:
    """Run ``work`` as a program's main function does: report an exception and return the exit status."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - as programs do
        return exit_status.report_error(error, Console(stderr=True))
    return 0


def claim(folder: Path, kind: run_folder.Kind) -> None:
    with run_folder.held(folder, kind):
        pass


def report(folder: Path) -> Callable[[], int]:
    claim(folder, run_folder.BENCH)
    # Stub the drawing, which takes seconds; the call that writes the page also writes the pictures.
    names = figures.pictures
    figures.pictures = lambda result: {name: lambda _: Figure((1, 1)) for name in names(result)}
    source = paths.REPO / "kip/evidence/bench/results.json"
    return lambda: command("bench", "report", str(source), "--out", str(folder))


def bench_results(folder: Path) -> Callable[[], int]:
    return lambda: function(lambda: files.write_json(folder / "results.json", made_up()))


def outages_results(folder: Path) -> Callable[[], int]:
    return lambda: function(lambda: files.write_json(folder / "results.json", outages_result()))


def page_only(folder: Path) -> Callable[[], int]:
    claim(folder, run_folder.OUTAGES)
    files.write_json(folder / "results.json", outages_result())
    return lambda: command("bench", "outages", "--page-only", "--out", str(folder))


def picture(folder: Path) -> Callable[[], int]:
    return lambda: command("plan", "--racks", "a:1,b:1", "--picture", str(folder / "plan"))


def evidence(folder: Path) -> Callable[[], int]:
    (folder / "input").mkdir()
    (folder / "input" / "a.txt").write_text("a", encoding="utf-8")
    claims = read_claims(folder)
    done = FinishedCommand(0, json.dumps({"n": 1, "more": "x" * 5000}))
    out = Path("/dev/shm") if Path("/dev/shm").is_dir() else folder
    return lambda: function(
        lambda: runs.execute_run(
            claims, claims.runs["sum"], folder=folder, root=folder, out=out, execute=lambda *_: done
        )
    )


def index(folder: Path) -> Callable[[], int]:
    claims = read_claims(folder)
    book = artifacts.EvidenceResults(
        {}, {}, {}, {name: ClaimJudgement("not run", ("x" * 5000,)) for name in claims.claims}
    )
    return lambda: function(lambda: artifacts.write_index(claims, book, folder))


def system_page(folder: Path) -> Callable[[], int]:
    claim(folder, run_folder.SYSTEM)
    test = results.PlannedTest("x_test.py::A.test", "az3", 2, "x")
    whole = {
        "schema": results.SCHEMA, "started": "2026-01-01T00:00:00+0000", "selections": ["system"],
        "seed": 1290, "jobs": 2,
        "settings": {}, "command": "rackgate system run", "options": "", "cluster_file": "", "duration_s": 95.0,
        "versions": {"kafka": "4.0.0"}, "machine": {"kernel": "6.1", "cpus": 2}, "target_min": 40,
        "tests": [asdict(test)],
    }  # fmt: skip
    files.write_json(folder / results.RUN, whole)
    return lambda: command("system", "page", str(folder))


def history(folder: Path) -> Callable[[], int]:
    one = History(folder / "history.jsonl")
    note(one, "p", "op", "ok")
    return lambda: function(lambda: one.extend(event_now("p", "op", "ok", filler="x" * 500) for _ in range(5000)))


def captured(folder: Path) -> Callable[[], int]:
    plan = terminal_capture.CapturePlan(
        command=("sh", "-c", "while :; do seq 30; sleep 0.1; done"),
        out=folder / "watch",
        moments_s=(0.5,),
        columns=100,
        lines=30,
        title="t",
    )
    return lambda: function(lambda: terminal_capture.capture(plan))


CASES: dict[str, tuple[Callable[[Path], Callable[[], int]], Sequence[str]]] = {
    "report": (report, ("index.html", "table.md", "timeline.png", "timeline.svg")),
    "bench results": (bench_results, ("results.json",)),
    "outages results": (outages_results, ("results.json",)),
    "outages page": (page_only, ("index.html", "table.md")),
    "picture": (picture, ("plan.png", "plan.svg")),
    "evidence": (evidence, ("sum.json",)),
    "index": (index, ("claims.json",)),
    "system page": (system_page, ("index.html", "results.json")),
    "watch": (captured, ("watch.cast", "watch-0.5s.svg")),
    "history": (history, ()),
}


def fill(folder: Path) -> None:
    """Fill the file system, which must be that of the folder alone, to the last free block."""
    if not folder.is_mount():
        raise ValueError(f"{folder} has no file system of its own")
    with (folder / BALLAST).open("wb", buffering=0) as out:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while out.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


def run_case(case: str, kind: str, folder: Path) -> dict[str, Any]:
    prepare, names = CASES[case]
    act = prepare(folder)
    for name in names:
        if not (folder / name).exists():
            (folder / name).write_text(f"earlier {name}", encoding="utf-8")
    if kind == FULL:
        fill(folder)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    error = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(error):
        status = act()
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    report = {"status": status, "error": error.getvalue(), "new": sorted(after.keys() - before.keys())}
    report["changed"] = [name for name, content in before.items() if after.get(name) != content]
    if (case, kind) == ("history", FULL):
        whole = History(folder / "history.jsonl")
        report["ops"] = [event.op for event in whole.events()]
        (folder / BALLAST).unlink()
        note(whole, "p", "later", "ok")
        report["later"] = [event.op for event in whole.events()]
    return report


def main(folder: Path) -> None:
    reports: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        reports[kind] = {}
        for case in CASES:
            try:
                reports[kind][case] = run_case(case, kind, folder / kind / case)
            except Exception:  # noqa: BLE001 - fails the test of this case only
                reports[kind][case] = {"failure": traceback.format_exc()}
    sys.stdout.write(json.dumps(reports))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
