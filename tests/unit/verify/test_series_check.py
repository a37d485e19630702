"""Checks of series prefixes and of single fixes: which tests run, which results are kept, which failures count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import builder, recipe, series
from pyhooks.patchset.series import Selection
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import series_check
from pyhooks.verify.series_check import Check
from pyhooks.verify.upstream_cases import FAILED, PASSED, PATCHED, STOCK, CaseResult, ClassResult
from pyhooks.verify.upstream_runner import KafkaTestRunner


def passed_row(**other: Any) -> dict[str, Any]:
    """Return the result of a passed check, with these fields changed."""
    row = {
        "patches": 1, "error": "", "classes": {}, "failures": [], "flakes": [], "published_fail": [], "ok": True,
        "totals": {"tests": 1, "classes": 1}, "seconds": {},
    }  # fmt: skip
    return {**row, **other}


def patch(name: str, trailers: str = "") -> series.Patch:
    """Return a patch that changes a source and its test."""
    files = (f"core/src/main/scala/{name}.scala", f"core/src/test/scala/{name}Test.scala")
    return series.Patch(Path(name), name, name, name, "R.", series.split_trailers(trailers)[1], files)


PATCHES = (
    patch("fixes/0001-a.patch"),
    patch("fixes/0002-b.patch", "Opt-in: raft"),
    patch("fixes/0003-c.patch", "Depends: 1"),
    patch("gate/0001-d.patch"),
    patch("elr/0001-e.patch"),
)
NAMES = tuple(patch_.name for patch_ in PATCHES)


@pytest.fixture
def checked_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """Replace ``run_check`` by a fake that always passes; return the checks it ran."""
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setattr(paths, "OUT", tmp_path / "out")
    monkeypatch.setattr(series, "load_all", lambda _: PATCHES)
    checks: list[Check] = []

    def fake_run_check(_plan: object, _space: object, check: Check, _folder: Path) -> dict[str, Any]:
        checks.append(check)
        return passed_row(patches=len(check.patches))

    monkeypatch.setattr(series_check, "run_check", fake_run_check)
    return checks


def test_a_series_is_checked_by_prefix_and_by_fix() -> None:
    default_patches = tuple(patch_ for patch_ in PATCHES if not patch_.opt_in)
    prefixes = series_check.prefix_checks(PATCHES)
    assert [check.patches for check in prefixes] == [default_patches[:number] for number in (1, 2, 3, 4)]
    assert [check.selection for check in prefixes] == [Selection(first=number) for number in (1, 2, 3, 4)]
    assert [check.changed for check in prefixes] == [*(patch_.files for patch_ in default_patches[:3]), None]
    assert [check.name for check in prefixes][1] == "prefix 2, fixes/0003-c.patch"
    *single, with_opt_ins = series_check.fix_checks(PATCHES)
    assert [(check.patches, check.selection, check.changed) for check in single] == [
        (PATCHES[:1], Selection(fix=1), PATCHES[0].files),
        (PATCHES[1:2], Selection(fix=2), PATCHES[1].files),
        ((PATCHES[0], PATCHES[2]), Selection(fix=3), PATCHES[2].files),
    ]
    assert (with_opt_ins.patches, with_opt_ins.changed) == (PATCHES, PATCHES[1].files)
    assert with_opt_ins.selection == Selection(opt_ins=frozenset({"raft"}))
    assert series_check.fix_checks(PATCHES[3:]) == []
    assert len(series_check.fix_checks(PATCHES[:1])) == 1, "a series without opt-in fixes needs no check with them"


def test_each_build_is_checked_once_and_its_result_kept(checked_builds: list[Check], tmp_path: Path) -> None:
    verdict = series_check.series_check(quiet=True)
    # Fix 1 alone, and fix 3 with its dependency, are the first two prefixes, so they are not checked again.
    assert [len(check.patches) for check in checked_builds] == [1, 2, 3, 4, 1, 5]
    assert verdict.met
    assert [row["check"].partition(",")[0] for row in verdict.summary["prefixes"]] == [
        f"prefix {n}" for n in (1, 2, 3, 4)
    ]
    assert [row["check"] for row in verdict.summary["fixes"]] == [*(f"alone, {n}" for n in NAMES[:3]), "with raft"]
    count = len(checked_builds)
    again = series_check.series_check(quiet=True)
    assert len(checked_builds) == count
    assert all(row["kept"] for row in (*again.summary["prefixes"], *again.summary["fixes"]))
    series_check.series_check(start=2, end=2, fresh=True, quiet=True)
    assert checked_builds[count:] == [checked_builds[1]]
    written = json.loads((tmp_path / "out" / "series-check" / "summary.json").read_text())
    assert (written["checked"], written["patches"], written["failed"], written["fixes"]) == (1, 5, [], [])


def test_fixes_can_be_checked_without_the_prefixes(checked_builds: list[Check]) -> None:
    verdict = series_check.series_check(fixes=True, quiet=True)
    assert [check.name.partition(",")[0] for check in checked_builds] == ["alone", "alone", "alone", "with raft"]
    assert verdict.summary["prefixes"] == []
    with pytest.raises(RackgateError, match=r"--fixes .*--from and --to"):
        series_check.series_check(fixes=True, end=2, quiet=True)


def test_all_tests_can_be_run_for_each_prefix(checked_builds: list[Check]) -> None:
    series_check.series_check(end=3, quiet=True)
    series_check.series_check(end=3, all_tests=True, quiet=True)
    assert [len(check.patches) for check in checked_builds] == [1, 2, 3, 1, 2, 3], (
        "results of the changed tests are not reused for all tests"
    )
    assert [check.changed for check in checked_builds[3:]] == [None] * 3
    series_check.series_check(end=2, quiet=True)
    assert len(checked_builds) == 6, "results with and without all tests are kept"


def test_a_failed_check_fails_the_command(checked_builds: list[Check], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_check, "run_check", lambda *_: passed_row(ok=False, error="A.java:1"))
    verdict = series_check.series_check(start=1, end=1, quiet=True)
    assert not verdict.met
    assert verdict.summary["failed"] == ["prefix 1, fixes/0001-a.patch"]
    assert checked_builds == []


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (3, 2), (1, 5)])
def test_nonexistent_prefixes_are_rejected(checked_builds: list[Check], start: int, end: int) -> None:
    with pytest.raises(RackgateError, match="series-check: prefixes"):
        series_check.series_check(start=start, end=end, quiet=True)
    assert checked_builds == []


def test_the_cache_key_covers_patches_and_tests() -> None:
    plan = recipe.load()
    checks = [*series_check.prefix_checks(PATCHES, 1, 2), *series_check.prefix_checks(PATCHES, 1, 2, all_tests=True)]
    assert len({check.key(plan) for check in checks}) == 4
    assert series_check.fix_checks(PATCHES)[0].key(plan) == checks[0].key(plan)


def test_only_test_classes_changed_by_the_patch_are_run() -> None:
    tests = {"core": ("kafka.cluster.PartitionTest", "kafka.server.KafkaApisTest"), "clients": ("a.PartitionTest",)}
    files = ("core/src/test/scala/unit/kafka/cluster/PartitionTest.scala", "core/src/main/scala/kafka/X.scala")
    assert series_check.only(recipe.load(), tests, files) == {"core": ("kafka.cluster.PartitionTest",), "clients": ()}


CHECK = Check("prefix 1, a", Selection(first=1), PATCHES[:1], None)


def check_with_build_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RackgateError) -> dict[str, Any]:
    """Run a check whose build raises this error."""

    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(builder, "build", fail)
    return series_check.run_check(recipe.load(), Workspace(tmp_path), CHECK, tmp_path / "work")


def test_a_prefix_that_does_not_compile_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RackgateError("compile patched sources: core/src/main/scala/kafka/Partition.scala:12: not found")
    row = check_with_build_error(tmp_path, monkeypatch, error)
    assert row["ok"] is False
    assert "Partition.scala:12" in row["error"]
    assert series_check.format_row({**row, "kept": False}).startswith("FAILED: compile patched")


def test_an_environment_error_is_raised_and_does_not_fail_a_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RackgateError, match="mvn is not installed"):
        check_with_build_error(
            tmp_path, monkeypatch, RackgateError("compile: mvn is not installed; install the package maven")
        )


@pytest.mark.parametrize(
    ("again", "published", "ok"),
    [(PASSED, None, True), (FAILED, None, False), (FAILED, PASSED, False), (FAILED, FAILED, True)],
)
def test_only_repeatable_failures_caused_by_the_series_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str, published: str | None, ok: bool
) -> None:
    runs: list[tuple[str, dict[str, Any]]] = []

    def fake_run_classes(_runner: object, arm: str, _module: object, wanted: dict[str, Any], report: Any) -> None:
        runs.append((arm, dict(wanted)))
        status = published if arm == STOCK and published else FAILED if len(runs) == 1 else again
        report(ClassResult("a.ATest", 1.0, (CaseResult("a.ATest.b", status, 0.1, "why"),)))

    class FakeBuild:
        distribution = None

    if published:
        (tmp_path / "published" / "a").mkdir(parents=True)
        (tmp_path / "published" / "a" / "ATest.class").touch()
    monkeypatch.setattr(builder, "build", lambda **_: FakeBuild())
    monkeypatch.setattr(series_check, "compile_changed", lambda *_: {"clients": ("a.ATest",)})
    monkeypatch.setattr(series_check, "series_tests", lambda changed, _: changed)
    monkeypatch.setattr(series_check, "run_classes", fake_run_classes)
    monkeypatch.setattr(KafkaTestRunner, "classes", lambda *_: tmp_path / "published")
    row = series_check.run_check(recipe.load(), Workspace(tmp_path), CHECK, tmp_path / "work")
    patched_runs = [(PATCHED, {"a.ATest": ()}), *[(PATCHED, {"a.ATest": ("b",)})] * 5]
    assert runs == patched_runs + [(STOCK, {"a.ATest": ("b",)})] * bool(published)
    assert row["ok"] is ok
    assert bool(row["flakes"]) is (again == PASSED)
    assert row["published_fail"] == (["a.ATest.b"] if published == FAILED else [])
    assert ("also fail without the series" in series_check.format_row({**row, "kept": False})) is (published == FAILED)
    assert row["totals"]["tests"] == 1
