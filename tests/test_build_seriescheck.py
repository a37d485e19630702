"""The check of every prefix: what is run for which, what is kept, and what counts as a prefix's own fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyhooks import paths
from pyhooks.build import builder, recipe, series, seriescheck
from pyhooks.build.upstream_cases import FAILED, PASSED, PATCHED, STOCK, Case, ClassResult
from pyhooks.build.upstream_run import Bench
from pyhooks.build.workspace import Workspace
from pyhooks.errors import RackgateError


def ok_row(number: int, **other: Any) -> dict[str, Any]:
    row = {
        "number": number, "patch": f"{number}", "error": "", "classes": {}, "failures": [], "flakes": [],
        "published_fail": [], "ok": True,
        "totals": {"tests": 1, "classes": 1}, "seconds": {},
    }  # fmt: skip
    return {**row, **other}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setattr(paths, "OUT", tmp_path / "out")
    checked: list[int] = []

    def fake(_plan: object, _space: object, prefix: tuple[Any, ...], _folder: Path, *, whole: bool) -> dict[str, Any]:
        checked.append(len(prefix))
        return ok_row(len(prefix), patch=prefix[-1].path.name, whole=whole)

    monkeypatch.setattr(seriescheck, "check_prefix", fake)
    return checked


def test_every_prefix_is_checked_once_and_kept(here: list[int], tmp_path: Path) -> None:
    count = len(series.load(recipe.load().path.parent))
    verdict = seriescheck.series_check(quiet=True)
    assert here == list(range(1, count + 1))
    assert verdict.met
    assert [row["whole"] for row in verdict.summary["prefixes"]] == [False] * (count - 1) + [True]
    again = seriescheck.series_check(quiet=True)
    assert len(here) == count
    assert all(row["kept"] for row in again.summary["prefixes"])
    seriescheck.series_check(start=2, end=2, fresh=True, quiet=True)
    assert here[-1] == 2
    written = json.loads((tmp_path / "out" / "series-check" / "summary.json").read_text())
    assert (written["checked"], written["patches"], written["failed"]) == (1, count, [])


def test_all_tests_of_each_prefix(here: list[int]) -> None:
    seriescheck.series_check(end=3, quiet=True)
    verdict = seriescheck.series_check(end=3, all_tests=True, quiet=True)
    assert here == [1, 2, 3, 1, 2, 3], "what was found with the tests of the last patch says nothing of the others"
    assert [row["whole"] for row in verdict.summary["prefixes"]] == [True] * 3
    seriescheck.series_check(end=2, quiet=True)
    assert len(here) == 6, "both are kept"


def test_a_prefix_that_fails_misses(here: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        seriescheck, "check_prefix", lambda _p, _s, prefix, _f, whole: ok_row(len(prefix), ok=False, error=f"{whole}")
    )
    verdict = seriescheck.series_check(start=1, end=1, quiet=True)
    assert not verdict.met
    assert verdict.summary["failed"] == [1]
    assert here == []


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 2), (1, 9999)])
def test_prefixes_that_do_not_exist_are_refused(here: list[int], start: int, end: int) -> None:
    with pytest.raises(RackgateError, match="series-check: prefixes"):
        seriescheck.series_check(start=start, end=end, quiet=True)
    assert here == []


def test_what_is_kept_depends_on_the_patches_and_on_what_is_run() -> None:
    plan = recipe.load()
    patches = series.load(plan.path.parent)
    keys = {
        seriescheck.prefix_key(plan, patches[:1], whole=False),
        seriescheck.prefix_key(plan, patches[:2], whole=False),
        seriescheck.prefix_key(plan, patches[:2], whole=True),
    }
    assert len(keys) == 3
    assert seriescheck.prefix_key(plan, patches[:1], whole=False) in keys


def test_only_the_classes_that_the_patch_changes_are_run() -> None:
    tests = {"core": ("kafka.cluster.PartitionTest", "kafka.server.KafkaApisTest"), "clients": ("a.PartitionTest",)}
    files = ("core/src/test/scala/unit/kafka/cluster/PartitionTest.scala", "core/src/main/scala/kafka/X.scala")
    assert seriescheck.only(recipe.load(), tests, files) == {"core": ("kafka.cluster.PartitionTest",), "clients": ()}


def prefix_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RackgateError) -> dict[str, Any]:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(builder, "build", fail)
    plan = recipe.load()
    patches = series.load(plan.path.parent, 1)
    return seriescheck.check_prefix(plan, Workspace(tmp_path), patches, tmp_path / "work", whole=False)


def test_a_prefix_that_does_not_compile_is_found_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RackgateError("compile patched sources: core/src/main/scala/kafka/Partition.scala:12: not found")
    row = prefix_of(tmp_path, monkeypatch, error)
    assert row["ok"] is False
    assert "Partition.scala:12" in row["error"]
    assert seriescheck.words({**row, "kept": False}).startswith("FAILED: compile patched")


def test_a_machine_that_cannot_build_is_no_fault_of_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RackgateError, match="mvn is not installed"):
        prefix_of(tmp_path, monkeypatch, RackgateError("compile: mvn is not installed; install the package maven"))


@pytest.mark.parametrize(
    ("again", "published", "ok"),
    [(PASSED, None, True), (FAILED, None, False), (FAILED, PASSED, False), (FAILED, FAILED, True)],
)
def test_a_failure_counts_if_it_comes_back_each_time_and_only_with_the_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str, published: str | None, ok: bool
) -> None:
    ran: list[tuple[str, dict[str, Any]]] = []

    def fake(_bench: object, arm: str, _module: object, wanted: dict[str, Any], tell: Any) -> None:
        ran.append((arm, dict(wanted)))
        status = published if arm == STOCK and published else FAILED if len(ran) == 1 else again
        tell(ClassResult("a.ATest", 1.0, (Case("a.ATest.b", status, 0.1, "why"),)))

    class Built:
        distribution = None

    if published:
        (tmp_path / "published" / "a").mkdir(parents=True)
        (tmp_path / "published" / "a" / "ATest.class").touch()
    monkeypatch.setattr(builder, "build", lambda **_: Built())
    monkeypatch.setattr(seriescheck, "compile_changed", lambda *_: {"clients": ("a.ATest",)})
    monkeypatch.setattr(seriescheck, "series_tests", lambda changed, _: changed)
    monkeypatch.setattr(seriescheck, "run_classes", fake)
    monkeypatch.setattr(Bench, "classes", lambda *_: tmp_path / "published")
    plan = recipe.load()
    patches = series.load(plan.path.parent, 1)
    row = seriescheck.check_prefix(plan, Workspace(tmp_path), patches, tmp_path / "work", whole=True)
    tried = [(PATCHED, {"a.ATest": ()}), *[(PATCHED, {"a.ATest": ("b",)})] * 5]
    assert ran == tried + [(STOCK, {"a.ATest": ("b",)})] * bool(published)
    assert row["ok"] is ok
    assert bool(row["flakes"]) is (again == PASSED)
    assert row["published_fail"] == (["a.ATest.b"] if published == FAILED else [])
    assert ("fail without the series too" in seriescheck.words({**row, "kept": False})) is (published == FAILED)
    assert row["totals"]["tests"] == 1
