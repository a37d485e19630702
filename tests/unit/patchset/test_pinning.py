"""``rackgate patch pin``: the pins it writes, without Maven."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import pinning, recipe
from pyhooks.patchset.artifacts import ArtifactStore, MavenRepository, read_pins, sha256, write_pins
from pyhooks.patchset.recipe import Recipe, Roots
from pyhooks.verify import cli

NEW = "x.y:z:1"


@pytest.fixture
def recipe_copy(tmp_path: Path) -> Path:
    path = tmp_path / "kafka.toml"
    path.write_text((paths.patch_folder() / "kafka.toml").read_text(encoding="utf-8"), encoding="utf-8")
    return path


def test_roles_that_are_not_resolved_keep_their_pins(
    recipe_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "z-1.jar"
    jar.write_bytes(b"z")
    requested: list[str] = []

    def resolve(_plan: Recipe, role: str, _roots: Roots, *_: object) -> Sequence[tuple[str, Path]]:
        requested.append(role)
        return [(NEW, jar)]

    monkeypatch.setattr(pinning, "_resolve", resolve)
    before = {artifact.id: artifact for artifact in recipe.load(recipe_copy).artifacts}
    after = {artifact.id: artifact for artifact in pinning.pin(recipe_copy, tmp_path, ["client-4.4"])}
    assert requested == ["client-4.4"]
    assert after[NEW].roles == ("client-4.4",)
    assert after[NEW].sha256 == sha256(jar)
    only_resolved = {name for name, artifact in before.items() if artifact.roles == ("client-4.4",)}
    assert before.keys() - after.keys() == only_resolved != set()
    assert all("client-4.4" not in artifact.roles for name, artifact in after.items() if name != NEW)
    for name in after.keys() - {NEW}:
        assert after[name].sha256 == before[name].sha256
        assert set(after[name].roles) == set(before[name].roles) - {"client-4.4"}


def test_all_roles_are_resolved_unless_some_are_named(
    recipe_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "z-1.jar"
    jar.write_bytes(b"z")
    monkeypatch.setattr(pinning, "_resolve", lambda *_: [(NEW, jar)])
    (only,) = pinning.pin(recipe_copy, tmp_path)
    assert set(only.roles) == recipe.ROLES


def test_an_unknown_role_is_an_error_before_any_download(recipe_copy: Path, tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="role 'tests'"):
        pinning.pin(recipe_copy, tmp_path, ["tests"])
    assert recipe_copy.read_text(encoding="utf-8") == (paths.patch_folder() / "kafka.toml").read_text(encoding="utf-8")


def test_maven_files_are_pinned_in_a_separate_manifest(
    recipe_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, changed, new = "g/a/1/a-1.jar", "g/b/1/b-1.pom", "g/c/1/c-1.jar"
    manifest = tmp_path / "maven.sha256"
    write_pins(manifest, {kept: "0" * 64, changed: "0" * 64, "g/d/1/d-1.jar": "0" * 64})
    pins = {new: "2" * 64, kept: "0" * 64, changed: "1" * 64}
    monkeypatch.setattr(paths, "patch_folder", lambda: tmp_path)
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setattr(cli, "record", lambda *_: pins)
    before = recipe_copy.read_bytes()
    cli.pin_command(role=["maven"])
    assert recipe_copy.read_bytes() == before
    assert read_pins(manifest) == pins
    lines = capsys.readouterr().out.splitlines()
    assert "3 files, 1 new, 1 removed" in lines[-2]
    assert lines[-1].endswith(f"DIFFERENT CONTENT than the previous pin: {changed}")


def test_downloads_must_match_the_pins_of_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = recipe.load()
    launcher = plan.find("junit-platform-launcher", "testrun")
    monkeypatch.setattr(ArtifactStore, "fetch", lambda *_: 0)
    monkeypatch.setattr(MavenRepository, "bootstrap", lambda *_: None)
    monkeypatch.setattr(pinning, "_exercise", lambda *_: None)
    monkeypatch.setattr(MavenRepository, "files", lambda _: {launcher.repository_path: launcher.sha256})
    assert pinning.record(plan, tmp_path, tmp_path) == {launcher.repository_path: launcher.sha256}
    monkeypatch.setattr(MavenRepository, "files", lambda _: {launcher.repository_path: "0" * 64})
    with pytest.raises(RackgateError, match=f"{launcher.id}: kafka.toml pins SHA-256 {launcher.sha256}"):
        pinning.record(plan, tmp_path, tmp_path)


NOT_FOUND = (
    "[ERROR] Failed to execute goal on project resolve: Could not resolve dependencies for project r:resolve:pom:1: {} "
    "Could not find artifact org.apache.kafka:kafka-clients:jar:sources:9.9.9 in central (x) -> [Help 1]"
)
SEVERAL = (
    "The following artifacts could not be resolved: org.apache.kafka:kafka-clients:jar:sources:9.9.9, "
    "org.apache.kafka:kafka-raft:jar:sources:9.9.9, org.apache.kafka:kafka-clients:jar:test:9.9.9, "
    "org.apache.kafka:kafka_2.13:jar:9.9.9:"
)


@pytest.mark.parametrize(
    ("listed", "missing"),
    [
        ("", "kafka-clients (sources)"),
        (SEVERAL, "kafka_2.13 (jar); kafka-raft (sources); kafka-clients (sources, test)"),
    ],
)
def test_artifacts_that_are_not_published_are_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, missing: str
) -> None:
    requested: list[str] = []

    def resolve(_plan: Recipe, role: str, roots: Roots, _repository: object, work: Path) -> Sequence[tuple[str, Path]]:
        requested.extend(roots.artifacts)
        (work / f"resolve-{role}.log").write_text(NOT_FOUND.format(listed))
        raise RackgateError("failed")

    monkeypatch.setattr(pinning, "_resolve", resolve)
    path = tmp_path / "kafka.toml"
    path.write_text(pinning.draft(recipe.load(), "9.9.9"))
    plan = recipe.load(path)
    assert (plan.version, plan.artifacts) == ("9.9.9", ())
    assert pinning.unpublished(plan, tmp_path) == f"Kafka 9.9.9 is not published in full yet: missing are {missing}"
    assert {"org.apache.kafka:kafka_2.13:9.9.9", "org.apache.kafka:kafka-raft:9.9.9:test-sources"} <= set(requested)
    assert all(id_.split(":")[2] == "9.9.9" for id_ in requested)
    monkeypatch.setattr(pinning, "_resolve", lambda *_: [])
    assert pinning.unpublished(plan, tmp_path) == ""


def test_another_failure_is_no_missing_publication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object) -> Sequence[tuple[str, Path]]:
        (tmp_path / "resolve-published.log").write_text("[ERROR] Unknown host")
        raise RackgateError("no network")

    monkeypatch.setattr(pinning, "_resolve", resolve)
    with pytest.raises(RackgateError, match="no network"):
        pinning.unpublished(recipe.load(), tmp_path)


def test_the_top_of_the_recipe_follows_what_is_resolved(
    recipe_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = recipe.load(recipe_copy)
    sources = tmp_path / "sources.jar"
    text = "IBP_7_0_IV0(70, ), IBP_7_1_IV0(71, ); static MetadataVersion LATEST_PRODUCTION = IBP_7_0_IV0;"
    with zipfile.ZipFile(sources, "w") as archive:
        archive.writestr(pinning._METADATA_VERSION, text)
    resolved = {
        "runtime": ("org.scala-lang:scala-library:2.13.99", sources),
        # pyspark has this one
        "spark": ("org.scala-lang:scala-library:2.13.1", tmp_path / "scala-library-2.13.1.jar"),
        "sources": (f"org.apache.kafka:kafka-server-common:{plan.version}:sources", sources),
    }
    monkeypatch.setattr(pinning, "_resolve", lambda _plan, role, *_: [resolved[role]])
    pinning.pin(recipe_copy, tmp_path, ["runtime", "spark", "sources"])
    after = recipe.load(recipe_copy)
    assert (after.scala, after.metadata_version) == ("2.13.99", 70)
    assert replace(after, scala=plan.scala, metadata_version=plan.metadata_version, artifacts=plan.artifacts) == plan
    # a second run changes nothing
    before = recipe_copy.read_bytes()
    pinning.pin(recipe_copy, tmp_path, ["runtime", "spark", "sources"])
    assert recipe_copy.read_bytes() == before


def test_a_version_that_is_not_published_gets_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "unpublished", lambda *_: "Kafka 9.9.9 is not published in full yet")
    folder = paths.patch_folder("9.9.9")
    with pytest.raises(RackgateError, match=r"^Kafka 9\.9\.9 is not published in full yet$") as rejected:
        cli.pin_command("9.9.9")
    assert rejected.value.exit_status == 1
    assert not folder.exists()
