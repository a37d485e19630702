"""What must be the same on every version of Kafka that the series is for: error codes and versions on the wire."""

from __future__ import annotations

import re

import pytest

from pyhooks.core import paths
from pyhooks.kafka import tools
from pyhooks.patchset import porting, recipe, series, series_lint
from pyhooks.patchset.series import Patch, file_diffs
from pyhooks.placement.enforcement import PRODUCE_WITH_RACKS
from pyhooks.verify import mutants, upstream_suite

CODES = {"NOT_ENOUGH_RACKS": 137, "NOT_ENOUGH_RACKS_AFTER_APPEND": 138}


def patches(version: str) -> tuple[Patch, ...]:
    return series.load_all(paths.patch_folder(version))


def added(version: str, file_name: str) -> list[str]:
    """Return the lines that the series adds to files of this name."""
    return [
        line[1:].strip()
        for patch in patches(version)
        for diff in file_diffs(patch.text)
        if diff.file.endswith(f"/{file_name}")
        for hunk in diff.hunks
        for line in hunk
        if line.startswith("+")
    ]


@pytest.mark.parametrize("version", paths.patched_versions())
def test_error_codes(version: str) -> None:
    codes = [re.match(r"([A-Z_]+)\((\d+), ", line) for line in added(version, "Errors.java")]
    assert {found[1]: int(found[2]) for found in codes if found and "RACKS" in found[1]} == CODES


@pytest.mark.parametrize("version", paths.patched_versions())
@pytest.mark.parametrize("file_name", ["ProduceRequest.json", "ProduceResponse.json"])
def test_versions_of_produce(version: str, file_name: str) -> None:
    versions = [line for line in added(version, file_name) if line.startswith('"validVersions"')]
    assert versions == [f'"validVersions": "3-{PRODUCE_WITH_RACKS}",']


@pytest.mark.parametrize("version", paths.patched_versions())
def test_feature_levels(version: str) -> None:
    """Names and levels of the feature are in the metadata of a cluster, which may be upgraded to another base."""
    lines = added(version, "MinInSyncRacksVersion.java")
    assert 'public static final String FEATURE_NAME = "min.insync.racks.version";' in lines
    assert {found[1] for line in lines if (found := re.match(r"MIRV_\d\((\d), ", line))} == {"0", "1"}


@pytest.mark.parametrize("version", paths.patched_versions())
def test_the_folder_is_named_after_the_version(version: str) -> None:
    plan = recipe.load(paths.patch_folder(version) / "kafka.toml")
    assert plan.version == version
    for module in plan.modules:
        assert plan.find(module.artifact, "sources").version == version
        assert plan.find(module.artifact, "runtime").version == version


@pytest.mark.parametrize("version", paths.patched_versions())
def test_the_series_follows_the_rules(version: str) -> None:
    assert series_lint.lint(paths.patch_folder(version)) == ()
    assert series_lint.lint_patches(patches(version)) == ()


@pytest.mark.parametrize("version", paths.patched_versions())
def test_tools_of_kafka_are_started_by_the_classes_of_the_version(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.KAFKA_VARIABLE, version)
    others = recipe.load().tools
    assert set(others) <= set(tools.TOOLS)
    for name, tool in tools.TOOLS.items():
        assert others.get(name, tool.java_class) in tools.command("cp", name, [], "h:1")


@pytest.mark.parametrize("version", paths.patched_versions())
def test_lists_of_mutants_and_upstream_tests(version: str) -> None:
    folder = paths.patch_folder(version)
    plan = recipe.load(folder / "kafka.toml")
    default = paths.patch_folder(paths.DEFAULT_KAFKA)
    names = [mutant.name for mutant in mutants.load(folder / "mutants.toml", plan)]
    omitted = mutants.load_omitted(folder / "mutants.toml")
    everywhere = [mutant.name for mutant in mutants.load(default / "mutants.toml", recipe.load())]
    assert sorted([*names, *omitted]) == sorted(everywhere)
    assert upstream_suite.load(plan, folder / "upstream.toml")


PORTED = [version for version in paths.patched_versions() if porting.ported_from(paths.patch_folder(version))]


@pytest.mark.parametrize("version", PORTED)
def test_each_patch_is_identical_changed_or_dropped(version: str) -> None:
    """The comparison lists each patch that differs, with a reason; ``rackgate patch port --compare`` renews it."""
    folder = paths.patch_folder(version)
    old, new = patches(porting.ported_from(folder)), patches(version)
    listed = {difference.patch: difference for difference in porting.read_differences(folder)}
    states = porting.states(old, new)
    assert {name: one.state for name, one in listed.items()} == {name: state for name, state in states.items() if state}
    assert [name for name, one in listed.items() if len(one.reason) < 20] == []
    assert {(patch.part, patch.subject) for patch in new} <= {(patch.part, patch.subject) for patch in old}
    # git compares the context, too
    ranges = (folder / porting.RANGE_DIFF).read_text(encoding="utf-8").splitlines()[1:]
    marks = {name: mark for mark, name in (line.split(" ", 1) for line in ranges)}
    assert marks.keys() == {patch.name for patch in (*old, *new)}
    assert {name for name, mark in marks.items() if mark == "<"} == {
        name for name, state in states.items() if state == porting.DROPPED
    }
    assert {name for name, state in states.items() if state == porting.CHANGED} <= {
        name for name, mark in marks.items() if mark == "!"
    }
