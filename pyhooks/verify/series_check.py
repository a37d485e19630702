"""``rackgate patch series-check``: check that every prefix of the series compiles and passes its tests.

For each prefix, the first k patches: build the overlay, compile all test sources changed so far, and run the test
classes that patch k changes. After the last patch, or after each with ``all_tests``, run all test classes that the
prefix changes. The same is done for each fix alone, after the fixes that it depends on, and for the whole series with
all opt-in fixes. Results are cached under a hash of all inputs: only prefixes that contain a changed patch are checked
again, and an interrupted check is resumed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_object, write_json
from pyhooks.patchset import builder, maven, recipe, series
from pyhooks.patchset.recipe import Recipe
from pyhooks.patchset.series import DEFAULT, FIXES, Patch, Selection, opt_ins
from pyhooks.patchset.stages import Stages, durations
from pyhooks.patchset.workspace import Workspace, home, overlay_key
from pyhooks.verify.changed_tests import compile_changed
from pyhooks.verify.check_result import CheckResult
from pyhooks.verify.upstream import REPEATS, methods_of, series_tests
from pyhooks.verify.upstream_cases import PATCHED, STOCK, Runs, totals
from pyhooks.verify.upstream_runner import KafkaTestRunner, run_classes

_FORMAT = 4
_KEPT_ROWS = 200
# An error caused by the prefix, not by the environment: a compile error, or a patch that does not apply.
_OF_THE_PREFIX = re.compile(
    r"\.(java|scala):\d+|does not apply|is in src/main or src/test of no|upstream relocates|is missing from the patched"
)


@dataclass(frozen=True)
class Check:
    """One build of the series, and the tests that it must pass.

    Attributes:
        changed: files whose test classes are run, or None for all tests of the patches.
    """

    name: str
    selection: Selection
    patches: tuple[Patch, ...]
    changed: tuple[str, ...] | None

    def key(self, plan: Recipe) -> str:
        """Return a hash of all inputs of the check."""
        template = (maven.TEMPLATES / "upstream.xml.j2").read_text(encoding="utf-8")
        parts = [_FORMAT, overlay_key(plan, self.patches), template, self.changed]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def prefix_checks(
    patches: Sequence[Patch], start: int | None = None, end: int | None = None, *, all_tests: bool = False
) -> list[Check]:
    """Return the checks of the prefixes of the default series with ``start`` (by default 1) to ``end`` patches.

    With ``all_tests``, all tests that a prefix contains are run, not only those of its last patch.

    Raises:
        RackgateError: there are no such prefixes.
    """
    chosen = DEFAULT.choose(patches)
    first, last = start or 1, len(chosen) if end is None else end
    if not 1 <= first <= last <= len(chosen):
        raise RackgateError(f"series-check: prefixes {first} to {last} of a series of {len(chosen)} patches")
    return [
        Check(
            f"prefix {number}, {chosen[number - 1].name}",
            Selection(first=number),
            chosen[:number],
            None if all_tests or number == len(chosen) else chosen[number - 1].files,
        )
        for number in range(first, last + 1)
    ]


def fix_checks(patches: Sequence[Patch]) -> list[Check]:
    """Return the checks of each fix with its dependencies, and of the whole series with all opt-in fixes."""
    checks = []
    for fix in (patch for patch in patches if patch.part == FIXES):
        alone = Selection(fix=fix.number)
        checks.append(Check(f"alone, {fix.name}", alone, alone.choose(patches), fix.files))
    if names := opt_ins(patches):
        every = Selection(opt_ins=frozenset(names))
        files = {file: None for patch in patches if patch.opt_in for file in patch.files}
        checks.append(Check(f"with {', '.join(names)}", every, every.choose(patches), tuple(files)))
    return checks


def series_check(
    *,
    start: int | None = None,
    end: int | None = None,
    fixes: bool = False,
    all_tests: bool = False,
    fresh: bool = False,
    quiet: bool = False,
) -> CheckResult:
    """Check the prefixes of the series, each fix alone, and the series with its opt-in fixes.

    Args:
        start: number of patches of the first prefix, by default 1; with ``start`` or ``end`` only prefixes are checked.
        end: number of patches of the last prefix, by default all.
        fixes: check no prefixes.
        all_tests: run all tests that a prefix contains, not only those of its last patch.
        fresh: ignore cached results.
        quiet: show no progress.

    Raises:
        RackgateError: there are no such prefixes, or a check could not be run.
    """
    started = time.monotonic()
    plan = recipe.load()
    patches = series.load_all(plan.path.parent)
    if fixes and (start or end):
        raise RackgateError("series-check: --fixes checks no prefixes; omit --from and --to")
    checks = [] if fixes else prefix_checks(patches, start, end, all_tests=all_tests)
    prefixes = len(checks)
    if start is None and end is None:
        checks += fix_checks(patches)
    space = Workspace.of(plan)
    folder = space.root / "series-check"
    folder.mkdir(parents=True, exist_ok=True)
    timings = folder / "timings.json"
    stages = Stages(len(checks), timings, quiet=quiet)
    rows: list[dict[str, Any]] = []
    for position, check in enumerate(checks, 1):
        file = folder / f"{check.key(plan)[:32]}.json"
        with stages.stage(check.name):
            if file.exists() and not fresh:
                row = {**read_object(file, "it stores the result of a prefix; delete it"), "kept": True}
            else:
                row = {**run_check(plan, space, check, folder / f"{file.stem}-work"), "kept": False}
                write_json(file, row)
        stages.remember()
        # A cached row may have been stored under another name, for the same patches.
        rows.append({"check": check.name, **row})
        usual = durations(timings)
        left = [usual[other.name] for other in checks[position:] if other.name in usual]
        about = f"; about {sum(left) / 60:.0f} min left" if left else ""
        stages.print_line(f"  {format_row(row)}{about}")
        write(rows, prefixes, len(patches), time.monotonic() - started)
    _prune(folder)
    summary, path = write(rows, prefixes, len(patches), time.monotonic() - started)
    return CheckResult(summary, path, met=not summary["failed"])


def run_check(plan: Recipe, space: Workspace, check: Check, folder: Path) -> dict[str, Any]:
    """Build the patches of a check, compile their tests and run the selected ones; ``folder`` is temporary.

    Returns:
        Plain JSON: ``patches`` (number), ``ok``, ``error`` (build or compile error, or empty), ``classes``,
        ``failures``, ``flakes``, ``published_fail`` (tests that also fail without the series, such as a test that must
        not run as root), ``totals``, ``seconds``.

    Raises:
        RackgateError: the check could not be run.
    """
    row: dict[str, Any] = {
        "patches": len(check.patches), "error": "", "classes": {}, "failures": [], "flakes": [],
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
        built = builder.build(selection=check.selection, quiet=True)
        lap("build")
        runner = KafkaTestRunner(plan, space, built.distribution, folder, folder / "reports")
        changed = compile_changed(runner, check.patches)
        lap("compile tests")
        tests = series_tests(changed, runner)
        wanted = tests if check.changed is None else only(plan, tests, check.changed)
        for module in (m for m in plan.modules if wanted.get(m.name)):
            run_classes(runner, PATCHED, module, dict.fromkeys(wanted[module.name], ()), partial(runs.add, PATCHED))
        repeat(runner, runs, wanted)
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


def repeat(runner: KafkaTestRunner, runs: Runs, wanted: Mapping[str, Sequence[str]]) -> None:
    """Repeat failed tests ``REPEATS`` times to detect flakes; run tests that never pass without the series as well."""
    bad = runs.bad()
    for _ in range(REPEATS if bad else 0):
        for module in (m for m in runner.plan.modules if wanted.get(m.name)):
            again = {name: methods_of(name, runs, PATCHED, bad[name]) for name in wanted[module.name] if name in bad}
            if again:
                run_classes(runner, PATCHED, module, again, partial(runs.add, PATCHED))
    for module in (m for m in runner.plan.modules if wanted.get(m.name)):
        published = {
            name: methods_of(name, runs, PATCHED, always)
            for name in wanted[module.name]
            if (always := [case for case in bad.get(name, ()) if runs.never(PATCHED, case)])
            and (runner.classes(STOCK, module) / f"{name.replace('.', '/')}.class").exists()
        }
        if published:
            run_classes(runner, STOCK, module, published, partial(runs.add, STOCK))


def only(plan: Recipe, tests: Mapping[str, Sequence[str]], files: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return those of ``tests`` (by module) whose sources are among ``files``."""
    touched = {(module.name, Path(file).stem) for file in files if (module := home(plan, file))}
    return {
        name: tuple(test for test in classes if (name, test.rpartition(".")[2]) in touched)
        for name, classes in tests.items()
    }


def format_row(row: Mapping[str, Any]) -> str:
    """Format a result in one line."""
    if row["error"]:
        return f"FAILED: {row['error']}"
    figures = row["totals"]
    flakes = f", {len(row['flakes'])} flakes" if row["flakes"] else ""
    ran = f"{figures['tests']} tests of {figures['classes']} classes, {len(row['failures'])} failed{flakes}"
    if row["published_fail"]:
        ran += f", {len(row['published_fail'])} also fail without the series"
    return f"{'ok' if row['ok'] else 'FAILED'}: compiles, {ran}{' (cached)' if row['kept'] else ''}"


def write(
    rows: Sequence[Mapping[str, Any]], prefixes: int, patches: int, seconds: float
) -> tuple[dict[str, Any], Path]:
    """Write the results so far, those of ``prefixes`` prefixes first, to ``summary.json``; return content and path."""
    path = paths.OUT / "series-check" / "summary.json"
    summary = {
        "patches": patches,
        "checked": len(rows),
        "failed": [row["check"] for row in rows if not row["ok"]],
        "seconds": round(seconds, 1),
        "prefixes": list(rows[:prefixes]),
        "fixes": list(rows[prefixes:]),
    }
    write_json(path, summary)
    return summary, path


def _prune(folder: Path) -> None:
    rows = [path for path in folder.glob("*.json") if path.name != "timings.json"]
    for old in sorted(rows, key=lambda path: path.stat().st_mtime_ns, reverse=True)[_KEPT_ROWS:]:
        old.unlink()
