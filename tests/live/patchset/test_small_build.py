"""The complete build, with Maven, of a fake Kafka with two tiny modules, and its failures."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from maven_toolchain import real_repository, replace_file, share_repository
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.patchset import builder, git, maven, recipe, series, series_lint, source_tree
from pyhooks.patchset.archive import make_archive
from pyhooks.patchset.artifacts import ArtifactStore, read_pins, sha256, write_pins
from pyhooks.patchset.compilation import read_jar, write_jar
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.series import DEFAULT, Selection
from pyhooks.patchset.workspace import Workspace

VERSION = "0.1"
SOURCES = {
    "alpha": {
        "p/Limits.java": "package p;\n\npublic class Limits {\n    public static final int MAX = 1;\n}\n",
        "p/Still.java": "package p;\n\npublic class Still {\n    Runnable r = () -> { };\n}\n",
    },
    "beta": {
        "q/Uses.java": "package q;\n\npublic class Uses {\n    int max = p.Limits.MAX;\n}\n",
        "q/Other.java": "package q;\n\npublic class Other {\n    p.Still still;\n}\n",
    },
}
RAFT = frozenset({"raft"})
LIMITS = "alpha/src/main/java/p/Limits.java"


@dataclass(frozen=True)
class Fake:
    """Fake recipe with its series, and a workspace with a filled artifact store."""

    toml: Path
    base: Path

    @property
    def root(self) -> Path:
        return self.base / f"kafka-{VERSION}"

    @property
    def space(self) -> Workspace:
        return Workspace.of(recipe.load(self.toml), self.base)

    def build(self, selection: Selection = DEFAULT) -> builder.Built:
        return builder.build(kafka_toml=self.toml, base=self.base, selection=selection, quiet=True)

    def load(self) -> Distribution:
        return Distribution.load(self.root / "dist")

    def patch(self, name: str, text: str, subject: str, part: str = "gate") -> None:
        """Append a patch that sets the content of file ``name``; ``part`` must not precede the last patch's part."""
        plan = recipe.load(self.toml)
        tree = self.base / "author"
        if not tree.exists():
            source_tree.lay_out(plan, self.space.store, tree)
            series.apply_parts(tree, ())
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        message = subject if "\n" in subject else f"{subject}\n\nReason."
        git.git(tree, "add", "--all", task="add")
        git.git(tree, "commit", "--quiet", "--message", message, task="commit")
        for later in series.PARTS[series.PARTS.index(part) : -1]:
            git.git(tree, "branch", "--force", later, task="move the branch")
        series.export(tree, self.toml.parent)

    def command(self) -> list[str]:
        code = (
            "from pathlib import Path; from pyhooks.patchset import builder;"
            f"b = builder.build(kafka_toml=Path({str(self.toml)!r}), base=Path({str(self.base)!r}), quiet=True);"
            "print(b.fresh)"
        )
        return [sys.executable, "-c", code]


def make_fake(folder: Path) -> Fake:
    fake = Fake(folder / "patch" / "kafka.toml", folder / "build")
    store = fake.root / "artifacts"
    tables, artifacts = [], []
    published = {"published": b"", "LICENSE": b"licence", "NOTICE": b"notice"}
    for module, sources in SOURCES.items():
        needs = '["alpha"]' if module == "beta" else "[]"
        tables.append(
            f'[[module]]\nname = "{module}"\nartifact = "fake-{module}"\npath = "{module}"\nrelease = 17\n'
            f"needs = {needs}\ntests = false\n"
        )
        for role, files in (("runtime", published), ("sources", {n: t.encode() for n, t in sources.items()})):
            tail = f":{role}" if role != "runtime" else ""
            jar = store / f"fake-{module}-{VERSION}{tail.replace(':', '-')}.jar"
            write_jar(jar, files)
            artifacts.append(
                f'[[artifact]]\nid = "fake:fake-{module}:{VERSION}{tail}"\nsha256 = "{sha256(jar)}"\n'
                f'roles = ["{role}"]\n'
            )
    (folder / "helpers/h/deep").mkdir(parents=True)
    (folder / "helpers/h/Helper.java").write_text("package h;\n\nclass Helper { }\n")
    (folder / "helpers/h/deep/Agent.java").write_text("package h.deep;\n\npublic class Agent { }\n")
    # class outside the package, compiled where it is used
    (folder / "helpers/Loose.java").write_text("class Loose { Missing m; }\n")
    real = recipe.load()
    plugins = "".join(f'{name} = "{version}"\n' for name, version in real.plugins.items())
    fake.toml.parent.mkdir(parents=True)
    fake.toml.write_text(
        f'[kafka]\nversion = "{VERSION}"\nscala = "{real.scala}"\nmetadata_version = 1\n\n[plugins]\n{plugins}\n'
        f'[compile]\njavac = ["-g"]\nscalac = []\n\n[resolve]\n\n'
        f'[hooks]\nsources = "{folder / "helpers"}"\npackage = "h"\nrelease = 17\nagent = "h.deep.Agent"\n\n'
        + "\n".join([*tables, *artifacts])
    )
    share_repository(fake.space)
    return fake


def with_patch(folder: Path) -> Fake:
    """Return a fake with a patch that raises the limit."""
    made = make_fake(folder)
    made.patch(LIMITS, SOURCES["alpha"]["p/Limits.java"].replace("MAX = 1", "MAX = 2"), "Raise the limit")
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Fake:
    """Return a built fake, for tests that do not change it."""
    made = with_patch(tmp_path_factory.mktemp("built"))
    assert made.build().fresh
    return made


@pytest.fixture
def fake(tmp_path: Path, built: Fake) -> Fake:
    """Return a fake that has the classes of ``built`` in its cache, so that a build compiles what a test changes."""
    made = with_patch(tmp_path)
    shutil.copytree(built.root / "cache" / "classes", made.root / "cache" / "classes")
    return made


@pytest.fixture
def cold(tmp_path: Path) -> Fake:
    """Return a fake whose build has to start Maven."""
    return with_patch(tmp_path)


def overlay_of(distribution: Distribution) -> dict[str, list[str]]:
    return {jar["jar"]: jar["classes"] for jar in distribution.manifest["overlay"]}


def test_overlay_has_only_changed_and_affected_classes(built: Fake) -> None:
    # The constant is inlined in Uses, so its class changed although its source did not.
    assert overlay_of(built.load()) == {"alpha-rackgate.jar": ["p/Limits"], "beta-rackgate.jar": ["q/Uses"]}
    manifest = built.load().manifest
    assert manifest["changed_files"] == [LIMITS]
    assert manifest["artifacts"][f"fake:fake-alpha:{VERSION}"] == sha256(built.root / "dist/libs/fake-alpha-0.1.jar")
    assert Distribution.load(built.root / "dist").classpath().endswith("/libs/*")
    assert built.load().classpath(overlay=False) == f"{built.load().root}/libs/*"
    assert not (built.root / "work").exists()


@pytest.mark.alone
def test_an_unchanged_build_takes_less_than_two_seconds(built: Fake) -> None:
    again = built.build()
    assert not again.fresh
    assert again.seconds < 2


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        fake = make_fake(tmp_path / name)
        fake.patch(LIMITS, SOURCES["alpha"]["p/Limits.java"].replace("1", "2"), "Raise the limit")
        # The commit date is part of the patch, so set the same date for both.
        patch = fake.toml.parent / "gate/0001-Raise-the-limit.patch"
        lines = patch.read_text().splitlines(keepends=True)
        patch.write_text(
            "".join("Date: Fri, 20 Nov 2026 00:00:00 +0000\n" if w.startswith("Date:") else w for w in lines)
        )
        fake.build()
        jars = [*(fake.root / "dist/overlay").iterdir(), fake.load().hooks]
        contents.append({p.name: p.read_bytes() for p in jars})
    assert len(contents[0]) == 3
    assert contents[0] == contents[1]


def test_first_patches_have_their_own_distribution(fake: Fake) -> None:
    fake.patch("beta/src/main/java/q/New.java", "package q;\n\nclass New { }\n", "Add a class")
    fake.build()
    assert overlay_of(fake.build(Selection(first=1)).distribution)["beta-rackgate.jar"] == ["q/Uses"]
    assert overlay_of(fake.build(Selection(first=0)).distribution) == {}
    assert overlay_of(fake.load())["beta-rackgate.jar"] == ["q/New", "q/Uses"]


def test_parts_and_opt_in_fixes_have_their_own_distributions(tmp_path: Path) -> None:
    fake = make_fake(tmp_path)
    for name, part, trailer in (
        ("Fix", "fixes", ""),
        ("Raft", "fixes", "\n\nOpt-in: raft"),
        ("Gate", "gate", ""),
        ("Elr", "elr", ""),
    ):
        text = f"package p;\n\nclass {name} {{ }}\n"
        fake.patch(f"alpha/src/main/java/p/{name}.java", text, f"{name}\n\nReason.{trailer}", part)
        selections = (
            DEFAULT,
            Selection(RAFT),
            Selection(last_part="fixes"),
            Selection(RAFT, last_part="fixes"),
            Selection(fix=2),
        )
    built = {selection.label: fake.build(selection).distribution for selection in selections}
    assert {label: overlay_of(made)["alpha-rackgate.jar"] for label, made in built.items()} == {
        "": ["p/Elr", "p/Fix", "p/Gate"],
        "with-raft": ["p/Elr", "p/Fix", "p/Gate", "p/Raft"],
        "fixes": ["p/Fix"],
        "fixes-with-raft": ["p/Fix", "p/Raft"],
        "fix-0002": ["p/Raft"],
    }
    assert {label for label, made in built.items() if made.opt_ins == RAFT} == {
        "with-raft", "fixes-with-raft", "fix-0002",
    }  # fmt: skip
    assert len({made.manifest["key"] for made in built.values()}) == 5
    links = {path.name for path in fake.root.glob("dist*") if path.is_symlink()}
    assert links == {"dist", *(f"dist-{label}" for label in built if label)}
    assert not fake.build(Selection(RAFT)).fresh
    assert not fake.build().fresh
    # the tree contains the complete series
    tree = builder.import_tree(kafka_toml=fake.toml, base=fake.base, quiet=True)
    assert (tree / "alpha/src/main/java/p/Raft.java").exists()
    counts = [git.git(tree, "rev-list", "--count", f"published..{part}", task="count") for part in series.PARTS]
    assert counts == ["2", "3", "4", "4"]


def test_a_wrong_hash_names_the_artifact_and_stores_nothing(fake: Fake) -> None:
    jar = fake.root / "artifacts" / f"fake-beta-{VERSION}-sources.jar"
    jar.write_bytes(jar.read_bytes() + b"x")
    with pytest.raises(RackgateError, match=f"wrong hash: artifact fake:fake-beta:{VERSION}:sources") as caught:
        fake.build()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status != 0
    with pytest.raises(RackgateError, match="run `rackgate build`"):
        fake.load()


def test_a_download_with_a_wrong_hash_is_rejected(tmp_path: Path) -> None:
    plan = recipe.load()
    good = plan.find("jopt-simple", "runtime")
    bad = recipe.Artifact(good.id, "0" * 64, good.roles)
    store = ArtifactStore(tmp_path / "store", real_repository())
    with pytest.raises(RackgateError, match=f"wrong hash: artifact {good.id}"):
        store.fetch(plan, [bad], tmp_path / "work")
    assert not store.path(bad).exists()
    assert store.fetch(plan, [good], tmp_path / "work2") == 1
    assert store.fetch(plan, [good], tmp_path / "work3") == 0


PLUGIN = "org/apache/maven/plugins/maven-compiler-plugin/"
SCALAC = "org/scala-lang/scala-compiler/"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Record the goals of each Maven run instead of starting it."""
    runs: list[tuple[str, ...]] = []

    def start(_pom: Path, goals: tuple[str, ...], **_: object) -> None:
        runs.append(tuple(goals))
        raise RackgateError("Maven was started")

    monkeypatch.setattr(maven, "maven", start)
    return runs


@pytest.mark.parametrize("folder", [PLUGIN, SCALAC, "org/apache/maven/surefire/surefire-booter/"])
def test_a_changed_jar_of_maven_s_stops_the_build_before_maven_starts(
    cold: Fake, folder: str, started: list[tuple[str, ...]]
) -> None:
    repository = cold.space.repository
    name = next(name for name in repository.pins if name.startswith(folder) and name.endswith(".jar"))
    content = bytearray((repository.root / name).read_bytes())
    content[len(content) // 2] ^= 1
    replace_file(repository.root / name, bytes(content))
    with pytest.raises(RackgateError, match="wrong hash: ") as caught:
        cold.build()
    for part in (str(repository.root / name), repository.pins[name], hashlib.sha256(content).hexdigest()):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert started == []
    assert not (cold.root / "cache").exists()
    # the remedy that the error recommends
    (repository.root / name).unlink()
    with pytest.raises(RackgateError, match="Maven was started"):
        cold.build()
    assert started == [("validate",)]


def test_a_jar_that_changes_between_two_runs_of_maven_is_rejected(fake: Fake) -> None:
    fake.build()
    repository = fake.space.repository
    pom = maven.render("reactor.xml.j2", fake.base / "empty" / "pom.xml", names=[])
    log = fake.base / "maven.log"
    repository.maven(pom, ["validate"], task="validate", log=log)
    log.unlink()
    name = next(name for name in repository.pins if name.startswith(SCALAC) and name.endswith(".pom"))
    replace_file(repository.root / name, b"<project/>")
    with pytest.raises(RackgateError, match="wrong hash: "):
        repository.maven(pom, ["validate"], task="validate", log=log)
    assert not log.exists()


def test_a_file_without_a_pin_stops_the_build_before_maven_starts(cold: Fake, started: list[tuple[str, ...]]) -> None:
    manifest = cold.space.manifest
    dropped = next(name for name in read_pins(manifest) if name.startswith(PLUGIN) and name.endswith(".jar"))
    write_pins(manifest, {name: digest for name, digest in read_pins(manifest).items() if name != dropped})
    # another manifest has its own folder
    repository = share_repository(cold.space)
    with pytest.raises(RackgateError, match="unpinned file: ") as caught:
        cold.build()
    assert str(repository.root / dropped) in str(caught.value)
    assert "rackgate patch pin" in str(caught.value)
    assert started == []


def test_an_artifact_without_a_pin_is_not_downloaded(cold: Fake) -> None:
    manifest = cold.space.manifest
    dropped = next(name for name in read_pins(manifest) if name.startswith(PLUGIN) and name.endswith(".jar"))
    write_pins(manifest, {name: digest for name, digest in read_pins(manifest).items() if name != dropped})
    (share_repository(cold.space).root / dropped).unlink()
    with pytest.raises(RackgateError, match=r"maven-compiler-plugin:jar:\S+, which has no pin") as caught:
        cold.build()
    assert caught.value.exit_status == 2


def test_missing_files_of_the_repository_are_fetched(fake: Fake) -> None:
    repository = fake.space.repository
    scalac = next(name for name in repository.pins if name.startswith(SCALAC) and name.endswith(".jar"))
    copier = "org/apache/maven/plugins/maven-dependency-plugin/"
    plugin = [name for name in repository.pins if name.startswith(copier)]
    for name in (scalac, *plugin):
        (repository.root / name).unlink()
    with pytest.raises(RackgateError, match="is missing"):
        repository.verify()
    assert repository.fill(recipe.load(fake.toml), fake.base / "work") == 1 + len(plugin)
    repository.verify()


def test_a_plugin_with_wrong_content_is_never_loaded(fake: Fake) -> None:
    manifest = fake.space.manifest
    pins = read_pins(manifest)
    copier = "org/apache/maven/plugins/maven-dependency-plugin/"
    name = next(name for name in pins if name.startswith(copier) and name.endswith(".jar"))
    write_pins(manifest, {**pins, name: "0" * 64})
    repository = share_repository(fake.space)
    (repository.root / name).unlink()
    work = fake.base / "work"
    with pytest.raises(RackgateError, match=r"wrong hash: \S+maven-dependency-plugin-\S+\.jar .*Maven's registry"):
        repository.fill(recipe.load(fake.toml), work)
    assert (work / "bootstrap.log").exists()
    assert not (work / "fetch.log").exists()
    assert not (repository.root / name).exists()


def test_a_patch_that_does_not_apply_keeps_the_previous_build(fake: Fake) -> None:
    fake.build()
    before = fake.load().root
    patch = fake.toml.parent / "gate/0001-Raise-the-limit.patch"
    patch.write_text(patch.read_text().replace("MAX = 1", "MAX = 7"))
    with pytest.raises(RackgateError, match=f"patch gate/0001-Raise-the-limit.patch does not apply: {LIMITS}:1"):
        fake.build()
    assert fake.load().root == before
    assert not fake.load().damage()


def test_a_compile_error_names_file_and_line(fake: Fake) -> None:
    fake.patch("beta/src/main/java/q/Bad.java", "package q;\n\nclass Bad {\n    Missing m;\n}\n", "Break it")
    with pytest.raises(RackgateError, match=r": beta/src/main/java/q/Bad\.java:4: cannot find symbol") as caught:
        fake.build()
    assert "\n" not in str(caught.value)
    with pytest.raises(RackgateError, match="no built Kafka"):
        fake.load()


def test_a_change_outside_the_modules_is_rejected(fake: Fake) -> None:
    fake.patch("streams/src/main/java/S.java", "class S { }\n", "Touch streams")
    with pytest.raises(
        RackgateError, match=r"patch gate/0002-Touch-streams\.patch changes streams/src/main/java/S\.java"
    ):
        fake.build()


def test_a_damaged_distribution_is_built_again(fake: Fake) -> None:
    fake.build()
    jar = fake.root / "dist/overlay/alpha-rackgate.jar"
    good = read_jar(jar)
    jar.write_bytes(b"half a jar")
    assert "has changed" in fake.load().damage()
    assert fake.build().fresh
    assert read_jar(jar) == good
    (fake.root / "dist/overlay/stray.jar").write_bytes(b"")
    assert "does not belong to this build" in fake.load().damage()
    assert fake.build().fresh
    assert not (fake.root / "dist/overlay/stray.jar").exists()
    jar.unlink()
    assert "missing" in fake.load().damage()
    assert fake.build().fresh


def test_helpers_are_compiled_against_the_overlay_into_a_separate_jar(fake: Fake) -> None:
    # only the overlay has this class: this fake Kafka's published jars are empty
    helper = fake.toml.parent.parent / "helpers/h/Helper.java"
    helper.write_text("package h;\n\nclass Helper {\n    int max = p.Limits.MAX;\n}\n")
    fake.build()
    jar = fake.load().hooks
    files = read_jar(jar)
    assert sorted(files) == ["META-INF/MANIFEST.MF", "h/Helper.class", "h/deep/Agent.class"]
    assert b"Premain-Class: h.deep.Agent\r\n" in files["META-INF/MANIFEST.MF"]
    assert jar.name not in {
        path.name for folder in ("overlay", "libs") for path in (fake.root / "dist" / folder).iterdir()
    }
    assert not any("hooks" in name for name in make_archive(fake.load(), fake.base / "packed").names)
    jar.write_bytes(b"half a jar")
    assert fake.load().damage() == "hooks/rackgate-hooks.jar has changed"
    assert fake.build().fresh
    assert read_jar(fake.load().hooks) == files


def test_a_changed_helper_is_compiled_again_and_nothing_else(fake: Fake) -> None:
    fake.build()
    before = {path: path.stat().st_mtime_ns for path in (fake.root / "cache/classes").iterdir()}
    overlay = {path.name: path.read_bytes() for path in (fake.root / "dist/overlay").iterdir()}
    helper = fake.toml.parent.parent / "helpers/h/Helper.java"
    helper.write_text("package h;\n\nclass Helper {\n    Missing m;\n}\n")
    with pytest.raises(RackgateError, match=r"compile the hooks: .*helpers/h/Helper\.java:4: cannot find symbol"):
        fake.build()
    helper.write_text("package h;\n\nclass Helper { int other; }\n")
    assert fake.build().fresh
    assert set(before) == set((fake.root / "cache/classes").iterdir())
    assert overlay == {path.name: path.read_bytes() for path in (fake.root / "dist/overlay").iterdir()}
    assert not fake.build().fresh


def test_a_recipe_without_helpers_has_none(fake: Fake) -> None:
    text = fake.toml.read_text()
    start = text.index("[hooks]")
    fake.toml.write_text(text[:start] + text[text.index("[[module]]", start) :])
    built = fake.build().distribution
    assert not built.damage()
    with pytest.raises(RackgateError, match="is missing: run `rackgate build`"):
        _ = built.hooks


def test_a_package_without_sources_is_named(fake: Fake) -> None:
    fake.toml.write_text(fake.toml.read_text().replace('package = "h"', 'package = "i"'))
    with pytest.raises(RackgateError, match=r"no source of i, the package that \[hooks\]"):
        fake.build()


def test_cached_jars_are_complete_or_absent(built: Fake) -> None:
    names = [p.name for p in (built.root / "cache/classes").iterdir()]
    assert len(names) == 4, names
    assert all(name.endswith(".jar") for name in names)
    for jar in (built.root / "cache/classes").iterdir():
        with zipfile.ZipFile(jar) as archive:
            assert archive.testzip() is None


@pytest.mark.parametrize("moment", ["work/build-*/tree", "work/build-*/patched/pom.xml", "work/build-*/dist"])
def test_sigkill_leaves_no_partial_build(cold: Fake, moment: str) -> None:
    # A short phase can be missed; only a build killed during it is conclusive.
    for _ in range(10):
        if (cold.root / "cache").exists():
            shutil.rmtree(cold.root / "cache")
        (cold.root / "dist").unlink(missing_ok=True)
        process = subprocess.Popen(cold.command(), cwd=paths.REPO, start_new_session=True, stdout=subprocess.DEVNULL)
        wait_for(
            lambda process=process: any(cold.root.glob(moment)) or process.poll() is not None,  # type: ignore[misc]
            goal=moment,
            timeout_s=120,
            interval_s=0.001,
        )
        process.kill()
        if process.wait() == -signal.SIGKILL:
            break
    else:
        pytest.fail(f"ten builds ended before they could be killed at {moment}")
    if (cold.root / "dist" / "manifest.json").exists():
        assert not cold.load().damage()
    assert cold.build()
    assert not cold.load().damage()


def test_two_builds_at_once_give_one_result(cold: Fake) -> None:
    running = [subprocess.Popen(cold.command(), cwd=paths.REPO, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = sorted(process.communicate(timeout=240)[0].strip() for process in running)
    assert [process.returncode for process in running] == [0, 0]
    assert outputs == ["False", "True"], "the second one must find what the first one made"
    assert not cold.load().damage()


def test_import_keeps_unexported_changes(fake: Fake) -> None:
    tree = builder.import_tree(kafka_toml=fake.toml, base=fake.base, quiet=True)
    assert "MAX = 2" in (tree / LIMITS).read_text()
    again = builder.import_tree(kafka_toml=fake.toml, base=fake.base, quiet=True)
    assert again == tree
    (tree / LIMITS).write_text("class Mine { }\n")
    with pytest.raises(RackgateError, match="uncommitted changes"):
        builder.import_tree(kafka_toml=fake.toml, base=fake.base, quiet=True)
    git.git(tree, "commit", "--quiet", "--all", "--message", "Mine", task="commit")
    with pytest.raises(RackgateError, match="commits that were not exported"):
        builder.import_tree(kafka_toml=fake.toml, base=fake.base, quiet=True)
    builder.import_tree(kafka_toml=fake.toml, base=fake.base, quiet=True, force=True)
    assert "MAX = 2" in (tree / LIMITS).read_text()


def test_check_reports_that_it_could_not_apply_patches(fake: Fake) -> None:
    plan = recipe.load(fake.toml)
    assert series_lint.lint_application(plan, fake.toml.parent, fake.base) is None
    fake.build()
    assert series_lint.lint_application(plan, fake.toml.parent, fake.base) == ()
    assert not Workspace.of(plan, fake.base).work.exists()


def test_the_manifest_is_plain_json(built: Fake) -> None:
    manifest = json.loads((built.root / "dist/manifest.json").read_text())
    assert [patch["subject"] for patch in manifest["patches"]] == ["Raise the limit"]
    assert manifest["patch_hash"] == series.series_hash(series.load(built.toml.parent))
    started = time.process_time()
    assert not built.load().damage()
    assert time.process_time() - started < 1
