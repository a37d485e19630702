"""``rackgate patch series-check``: every prefix of the series compiles and passes the tests that it contains.

For the first k patches: build the overlay, compile all test sources changed so far, and run the test classes that
patch k changes; after the last patch, all that the series changes, or so after each (``all_tests``). What was found of
a prefix is kept under a hash of all that goes into it, so only prefixes from a changed patch on are checked again, and
an interrupted check goes on.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyhooks import paths
from pyhooks.build import builder, maven, recipe, series
from pyhooks.build.progress import Stages, durations
from pyhooks.build.recipe import Recipe
from pyhooks.build.series import Patch
from pyhooks.build.upstream import REPEATS, methods_of, series_tests
from pyhooks.build.upstream_cases import PATCHED, STOCK, ClassResult, Runs, totals
from pyhooks.build.upstream_run import Bench, compile_changed, run_classes
from pyhooks.build.verdict import Verdict
from pyhooks.build.workspace import Workspace, home, overlay_key
from pyhooks.errors import RackgateError
from pyhooks.files import read_object, write_json

_FORMAT = 3
_KEPT_ROWS = 200
# An error of the prefix itself, and not of the machine: a place in a source, or a patch that does not fit.
_OF_THE_PREFIX = re.compile(r"\.(java|scala):\d+|does not apply|is in src/main or src/test of no|is relocated")


def series_check(
    *, start: int = 1, end: int | None = None, all_tests: bool = False, fresh: bool = False, quiet: bool = False
) -> Verdict:
    """Checks the prefixes of the series.

    Args:
        start: number of patches of the first prefix.
        end: of the last one, by default the whole series.
        all_tests: run all tests that a prefix contains, and not only those of its last patch.
        fresh: check again what is known already.
        quiet: show no progress.

    Raises:
        RackgateError: there are no such prefixes, or they could not be checked.
    """
    started = time.monotonic()
    plan = recipe.load()
    patches = series.load(plan.path.parent)
    last = len(patches) if end is None else end
    if not 1 <= start <= last <= len(patches):
        raise RackgateError(f"series-check: prefixes {start} to {last} of a series of {len(patches)} patches")
    space = Workspace.of(plan)
    kept = space.root / "series-check"
    kept.mkdir(parents=True, exist_ok=True)
    todo = range(start, last + 1)
    stages = Stages(len(todo), kept / "timings.json", quiet=quiet)
    rows: list[dict[str, Any]] = []
    for number in todo:
        prefix = patches[:number]
        whole = all_tests or number == len(patches)
        file = kept / f"{prefix_key(plan, prefix, whole=whole)[:32]}.json"
        with stages.stage(prefix[-1].path.name):
            if file.exists() and not fresh:
                row = {**read_object(file, "it is the result of a prefix; delete it"), "kept": True}
            else:
                row = {**check_prefix(plan, space, prefix, kept / f"{file.stem}-work", whole=whole), "kept": False}
                write_json(file, row)
        stages.remember()
        rows.append(row)
        left = [usual for entry in patches[number:last] if (usual := stages_usual(kept, entry)) is not None]
        about = f"; about {sum(left) / 60:.0f} min left" if left else ""
        stages.say(f"  {words(row)}{about}")
        write(rows, len(patches), time.monotonic() - started)
    _prune(kept)
    summary, path = write(rows, len(patches), time.monotonic() - started)
    return Verdict(summary, path, met=not summary["failed"])


def prefix_key(plan: Recipe, prefix: tuple[Patch, ...], *, whole: bool) -> str:
    """A hash of everything that decides what the check of a prefix finds.

    Args:
        plan: the recipe.
        prefix: the patches.
        whole: whether all tests of the prefix are run, and not only those of its last patch.
    """
    template = (maven.TEMPLATES / "upstream.xml.j2").read_text(encoding="utf-8")
    parts = [_FORMAT, overlay_key(plan, prefix), template, whole]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def check_prefix(
    plan: Recipe, space: Workspace, prefix: tuple[Patch, ...], folder: Path, *, whole: bool
) -> dict[str, Any]:
    """Builds one prefix, compiles its tests and runs those of its last patch.

    Args:
        plan: the recipe.
        space: where builds lie.
        prefix: the patches.
        folder: for compiled tests; goes afterwards.
        whole: run all tests of the prefix instead.

    Returns:
        Plain JSON: ``number``, ``patch``, ``ok``, ``error`` (what does not compile, or empty), ``classes``,
        ``failures``, ``flakes``, ``published_fail`` (what fails without the series as well, such as a test that expects
        not to be run by root), ``totals``, ``seconds``.

    Raises:
        RackgateError: it could not be checked.
    """
    row: dict[str, Any] = {
        "number": len(prefix), "patch": prefix[-1].path.name, "error": "", "classes": {}, "failures": [], "flakes": [],
        "published_fail": [],
    }  # fmt: skip
    clock = time.monotonic()
    seconds: dict[str, float] = {}

    def lap(name: str) -> None:
        nonlocal clock
        seconds[name] = round(time.monotonic() - clock, 1)
        clock = time.monotonic()

    runs = Runs()
    try:
        built = builder.build(first=len(prefix), quiet=True)
        lap("build")
        bench = Bench(plan, space, built.distribution, folder, folder / "reports")
        changed = compile_changed(bench, prefix)
        lap("compile tests")
        tests = series_tests(changed, bench)
        wanted = tests if whole else only(plan, tests, prefix[-1].files)
        for module in (m for m in plan.modules if wanted.get(m.name)):
            run_classes(bench, PATCHED, module, dict.fromkeys(wanted[module.name], ()), _teller(runs, PATCHED))
        repeat(bench, runs, wanted)
        lap("run tests")
    except RackgateError as error:
        if not _OF_THE_PREFIX.search(str(error)):
            raise
        row["error"] = str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = runs.first[PATCHED]
    bad = [case for cases in runs.bad().values() for case in cases]
    row["classes"] = {name: result.figures() for name, result in sorted(results.items())}
    always = [case for case in bad if runs.never(PATCHED, case)]
    row["published_fail"] = [case for case in always if runs.never(STOCK, case)]
    row["failures"] = [
        {"test": c, "message": runs.message(PATCHED, c)} for c in always if c not in row["published_fail"]
    ]
    row["failures"] += [{"test": r.name, "message": r.error} for r in results.values() if r.error]
    row["flakes"] = [{"test": c, "patched": str(runs.tally(PATCHED, c))} for c in bad if runs.flaky(PATCHED, c)]
    row["totals"] = totals(results.values())
    row["seconds"] = seconds
    row["ok"] = not row["error"] and not row["failures"]
    return row


def _teller(runs: Runs, arm: str) -> Callable[[ClassResult], None]:
    def tell(result: ClassResult) -> None:
        runs.add(arm, result)

    return tell


def repeat(bench: Bench, runs: Runs, wanted: Mapping[str, Sequence[str]]) -> None:
    """Runs what failed five more times, to tell a flake from a fault, and what always fails without the series."""
    bad = runs.bad()
    for _ in range(REPEATS if bad else 0):
        for module in (m for m in bench.plan.modules if wanted.get(m.name)):
            again = {name: methods_of(name, runs, PATCHED, bad[name]) for name in wanted[module.name] if name in bad}
            if again:
                run_classes(bench, PATCHED, module, again, _teller(runs, PATCHED))
    for module in (m for m in bench.plan.modules if wanted.get(m.name)):
        published = {
            name: methods_of(name, runs, PATCHED, always)
            for name in wanted[module.name]
            if (always := [case for case in bad.get(name, ()) if runs.never(PATCHED, case)])
            and (bench.classes(STOCK, module) / f"{name.replace('.', '/')}.class").exists()
        }
        if published:
            run_classes(bench, STOCK, module, published, _teller(runs, STOCK))


def only(plan: Recipe, tests: Mapping[str, Sequence[str]], files: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Those of ``tests`` (by module) whose sources are among ``files``."""
    touched = {(module.name, Path(file).stem) for file in files if (module := home(plan, file))}
    return {
        name: tuple(test for test in classes if (name, test.rpartition(".")[2]) in touched)
        for name, classes in tests.items()
    }


def words(row: Mapping[str, Any]) -> str:
    """One prefix in a line."""
    if row["error"]:
        return f"FAILED: {row['error']}"
    figures = row["totals"]
    flakes = f", {len(row['flakes'])} flakes" if row["flakes"] else ""
    ran = f"{figures['tests']} tests of {figures['classes']} classes, {len(row['failures'])} failed{flakes}"
    if row["published_fail"]:
        ran += f", {len(row['published_fail'])} fail without the series too"
    return f"{'ok' if row['ok'] else 'FAILED'}: compiles, {ran}{' (known before)' if row['kept'] else ''}"


def stages_usual(kept: Path, patch: Patch) -> float | None:
    """How long the prefix that ends with ``patch`` took the last time, in seconds, if known."""
    return durations(kept / "timings.json").get(patch.path.name)


def write(rows: Sequence[Mapping[str, Any]], count: int, seconds: float) -> tuple[dict[str, Any], Path]:
    """Writes ``summary.json`` of what is known so far; returns what it says, and where."""
    path = paths.OUT / "series-check" / "summary.json"
    summary = {
        "patches": count,
        "checked": len(rows),
        "failed": [row["number"] for row in rows if not row["ok"]],
        "seconds": round(seconds, 1),
        "prefixes": list(rows),
    }
    write_json(path, summary)
    return summary, path


def _prune(kept: Path) -> None:
    rows = [path for path in kept.glob("*.json") if path.name != "timings.json"]
    for old in sorted(rows, key=lambda path: path.stat().st_mtime_ns, reverse=True)[_KEPT_ROWS:]:
        old.unlink()
