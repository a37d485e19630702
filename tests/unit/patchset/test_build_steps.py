"""Steps of the build without Maven: recipe, source layout, pins, Maven errors and distribution."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import artifacts, maven, recipe, source_tree, workspace
from pyhooks.patchset.artifacts import sha256
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import Artifact, Messages, Module
from pyhooks.patchset.workspace import Workspace, touched_modules
from pyhooks.verify import changed_tests

JAVA = Module("clients", "kafka-clients", "clients", 11, messages=Messages("common/message", "o.m", ("T",), ("M",)))
SCALA = Module("core", "kafka_2.13", "core", 17, scala=True)
GENERATED = b"/* licence */\n\n// THIS CODE IS AUTOMATICALLY GENERATED.  DO NOT EDIT.\n"


@pytest.mark.parametrize(
    ("module", "kind", "name", "head", "expected"),
    [
        (JAVA, "main", "org/a/A.java", b"", "clients/src/main/java/org/a/A.java"),
        (JAVA, "main", "o/m/FetchRequestData.java", GENERATED, None),
        (JAVA, "main", "common/message/F.json", b"", "clients/src/main/resources/common/message/F.json"),
        (JAVA, "main", "common/message/README.md", b"", "clients/src/main/resources/common/message/README.md"),
        (JAVA, "main", "META-INF/services/x.Y", b"", "clients/src/main/resources/META-INF/services/x.Y"),
        (JAVA, "main", "META-INF/MANIFEST.MF", b"", None),
        (JAVA, "main", "LICENSE", b"", None),
        (JAVA, "main", "org/a/", b"", None),
        (JAVA, "test", "log4j2.yaml", b"", "clients/src/test/resources/log4j2.yaml"),
        (SCALA, "main", "kafka/Kafka.scala", b"", "core/src/main/scala/kafka/Kafka.scala"),
        (SCALA, "main", "kafka/log/package.html", b"", "core/src/main/scala/kafka/log/package.html"),
        (SCALA, "main", "kafka/server/QuotaFactory.java", b"", "core/src/main/java/kafka/server/QuotaFactory.java"),
        (SCALA, "test", "unit/kafka/ATest.scala", b"", "core/src/test/scala/unit/kafka/ATest.scala"),
    ],
)  # fmt: skip
def test_destination_of_a_source_file(module: Module, kind: str, name: str, head: bytes, expected: str | None) -> None:
    assert source_tree.destination(module, kind, name, head) == expected


def test_the_recipe_of_the_repository_is_consistent() -> None:
    plan = recipe.load()
    core = plan.module("core")
    default = recipe.load(paths.patch_folder(paths.DEFAULT_KAFKA) / "kafka.toml")
    upstream = [module.name for module in default.upstream_of(default.module("storage"))]
    assert upstream == ["clients", "server-common", "storage-api"]
    assert plan.module("clients") in plan.upstream_of(core)
    assert core in plan.affected_by({"clients"})
    assert plan.affected_by({"tools"}) == (plan.module("tools"),)
    assert plan.affected_by(set()) == ()
    for module in plan.modules:
        for role in ("runtime", "sources", *(("test", "test-sources") if module.tests else ())):
            assert plan.find(module.artifact, role).version == plan.version
    text = plan.path.read_text()
    assert recipe.render_artifacts(plan.artifacts) in text, (
        "the artifacts differ from the output of `rackgate patch pin`"
    )


def test_artifact_coordinates() -> None:
    artifact = Artifact("g:a:1:test", "0" * 64, ("test",))
    assert (artifact.group, artifact.name, artifact.version, artifact.classifier) == ("g", "a", "1", "test")
    assert artifact.file_name == "a-1-test.jar"
    assert Artifact("g:a:1", "0" * 64, ("test",)).file_name == "a-1.jar"


RECIPE = """
[kafka]
version = "1"
scala = "2"
metadata_version = 1
[plugins]
[compile]
javac = []
scalac = []
[resolve]
[[module]]
name = "a"
artifact = "a"
path = "a"
release = 17
"""
ARTIFACT = '[[artifact]]\nid = "{id}"\nsha256 = "{sha}"\nroles = ["{role}"]\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x = ", "kafka.toml: "),
        ("[kafka]\nversion = '1'\n", "plugins: is missing"),
        (RECIPE.replace('scala = "2"\n', ""), "kafka.scala: is missing"),
        (RECIPE + "needed = 1\n", "module a: needed: unknown key; known keys: messages, name, artifact, path"),
        (RECIPE + 'needs = "a"\n', "module a: needs: must be a valid array, is 'a'"),
        (RECIPE + 'scala = "no"\n', "module a: scala: must be a valid boolean, is 'no'"),
        (RECIPE + '[module.messages]\npath = "p"\npackage = "q"\n', "module a: messages.classes: is missing"),
        (RECIPE.replace("[resolve]", "[resolve]\nruntime = 1"), "resolve.runtime: must be an object, is 1"),
        (
            "x = 1\n" + RECIPE,
            "x: unknown key; known keys: kafka, plugins, compile, resolve, tools, module, artifact, hooks",
        ),
        (RECIPE + 'needs = ["b"]\n', "needs b, which must come before it"),
        (RECIPE + RECIPE[RECIPE.index("[[module]]") :], "module a is listed twice"),
        (RECIPE + ARTIFACT.format(id="g:a", sha="0" * 64, role="test"), "artifact g:a: id: must be group:"),
        (RECIPE + ARTIFACT.format(id="g:a:1", sha="0" * 63, role="test"), "artifact g:a:1: sha256: must be 64 hex"),
        (RECIPE + ARTIFACT.format(id="g:a:1", sha="0" * 64, role="fun"), "g:a:1: roles: value 1 must be one of"),
        (RECIPE + ARTIFACT.format(id="g:a:1", sha="0" * 64, role="test") * 1
         + ARTIFACT.format(id="h:a:1", sha="0" * 64, role="test"), "have the same file name"),
    ],
)  # fmt: skip
def test_invalid_recipes_are_rejected(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "kafka.toml").write_text(text)
    with pytest.raises(RackgateError, match=r"kafka\.toml") as caught:
        recipe.load(tmp_path / "kafka.toml")
    assert fault in str(caught.value)


def test_the_overlay_key_covers_the_imports_of_the_builder() -> None:
    folder = Path(workspace.__file__).parent
    imported: set[str] = set()
    pending = ["builder"]
    while pending:
        name = pending.pop()
        if name in imported or not (folder / f"{name}.py").exists():
            continue
        imported.add(name)
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "pyhooks.patchset":
                pending += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyhooks.patchset."):
                pending.append(str(node.module).rpartition(".")[2])
    assert imported - {"distribution", "java_helpers", "stages"} == workspace._BUILDING


LINE = "0" * 64 + "  g/a/1/a-1.jar"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"{LINE}\n{LINE}\n", ":2: g/a/1/a-1.jar is listed twice"),
        (f"{LINE}\n\n", ":2: must be a SHA-256"),
        (LINE.replace("  ", " "), ":1: must be a SHA-256"),
        (LINE[1:], ":1: must be a SHA-256"),
        ("0" * 64 + "  g/../../a-1.jar", "leaves the repository"),
        ("0" * 64 + "  /g/a/1/a-1.jar", ":1: must be a SHA-256"),
        ("\udcff", "utf-8"),
    ],
)
def test_a_malformed_manifest_is_rejected(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "maven.sha256"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(RackgateError, match=r"maven\.sha256") as caught:
        artifacts.read_pins(path)
    assert fault in str(caught.value)


def test_a_repository_must_have_exactly_the_pinned_files_unchanged(tmp_path: Path) -> None:
    repository = artifacts.MavenRepository(tmp_path / "maven", tmp_path / "maven.sha256")
    names = ["g/a/1/a-1.jar", "g/a/1/a-1.pom"]
    artifacts.write_pins(tmp_path / "maven.sha256", {name: hashlib.sha256(name.encode()).hexdigest() for name in names})
    for name in names:
        (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / name).write_text(name)
    # Maven's own records are ignored.
    (repository.root / "g/a/1/_remote.repositories").touch()
    (repository.root / "g/a/1/a-1.jar.lastUpdated").touch()
    repository.verify()

    foreign = repository.root / "g/b/1/b-1.jar"
    foreign.parent.mkdir(parents=True)
    foreign.touch()
    with pytest.raises(RackgateError, match=r"unpinned file: \S+/g/b/1/b-1\.jar"):
        repository.verify()
    foreign.unlink()
    foreign.symlink_to(tmp_path)
    with pytest.raises(RackgateError, match=r"unpinned file: \S+/g/b/1/b-1\.jar"):
        repository.verify()
    foreign.unlink()
    (repository.root / names[1]).write_text("other")
    with pytest.raises(RackgateError, match=r"wrong hash: \S+/g/a/1/a-1\.pom"):
        repository.verify()
    (repository.root / names[1]).unlink()
    with pytest.raises(RackgateError, match=r"/g/a/1/a-1\.pom is missing"):
        repository.verify()


def test_only_the_newest_repository_of_earlier_manifests_is_kept(tmp_path: Path) -> None:
    space = Workspace(tmp_path, tmp_path / "maven.sha256")
    artifacts.write_pins(space.manifest, {})
    for age, folder in enumerate([space.root / "maven/new", space.root / "maven/old", space.repository.root]):
        folder.mkdir(parents=True)
        os.utime(folder, (1_000_000 - age, 1_000_000 - age))
    space.prune()
    assert {path.name for path in (space.root / "maven").iterdir()} == {"new", space.repository.root.name}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("org/g/a-b/1.0/a-b-1.0.jar", ("org.g", "a-b", "1.0", "", "jar")),
        ("g/a_2.13/1-M2/a_2.13-1-M2-test-sources.jar", ("g", "a_2.13", "1-M2", "test-sources", "jar")),
        ("g/a/1/a-1.pom", ("g", "a", "1", "", "pom")),
        ("g/a/1/b-1.jar", None),
        ("a/1/a-1.jar", None),
        ("g/a/1/a-2.jar", None),
    ],
)
def test_artifact_coordinates_of_a_path(tmp_path: Path, path: str, expected: tuple[str, ...] | None) -> None:
    if expected is None:
        with pytest.raises(RackgateError, match="is not the path of an artifact"):
            artifacts.Download.parse(path, tmp_path)
    else:
        download = artifacts.Download.parse(path, tmp_path)
        assert (download.group, download.name, download.version, download.classifier, download.type) == expected
        assert download.path == tmp_path / path


def test_the_manifest_pins_maven_s_artifacts_and_agrees_with_the_recipe() -> None:
    plan = recipe.load()
    pins = artifacts.read_pins(plan.path.with_name(workspace.MAVEN_MANIFEST))
    files = {name.rpartition("/")[2] for name in pins}
    plugins = {"scala": "scala-maven-plugin", "build-helper": "build-helper-maven-plugin"}
    for name, version in plan.plugins.items():
        assert f"{plugins.get(name, f'maven-{name}-plugin')}-{version}.jar" in files
    assert {f"scala-compiler-{plan.scala}.jar", f"scala-reflect-{plan.scala}.jar"} <= files
    assert any(name.startswith("surefire-junit-platform-") for name in files)
    shared = {
        artifact.id: (pins[artifact.repository_path], artifact.sha256)
        for artifact in plan.artifacts
        if artifact.repository_path in pins
    }
    assert any(id_.startswith("org.junit.platform:junit-platform-launcher:") for id_ in shared)
    assert all(pin == recipe_hash for pin, recipe_hash in shared.values())


def test_maven_is_started_only_by_the_verified_repository() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in paths.REPO.glob("pyhooks/**/*.py")}
    assert {path.name for path, text in sources.items() if "maven.maven(" in text} == {"artifacts.py"}
    assert {path.name for path, text in sources.items() if re.search(r"[\"\']mvn[\"\']", text)} == {"maven.py"}


def test_tests_take_junit_from_the_store(tmp_path: Path) -> None:
    plan = recipe.load()
    store = Workspace.of(plan, tmp_path).store
    junit_artifacts = [(artifact, store.path(artifact)) for artifact in plan.with_role("testrun")]
    pom = maven.render(
        "upstream.xml.j2", tmp_path / "pom.xml", recipe=plan, classpath=[], running=junit_artifacts, work=tmp_path,
        classes=tmp_path, reports=tmp_path, methods=[], wanted=["a.B"], method_timeout_s=1,
    )  # fmt: skip
    names = {"m": "http://maven.apache.org/POM/4.0.0"}
    dependencies = ElementTree.fromstring(pom.read_text()).findall("m:dependencies/m:dependency", names)  # noqa: S314 - rendered here
    scopes_and_paths = [
        [node.findtext(f"m:{key}", "", names) for key in ("scope", "systemPath")] for node in dependencies
    ]
    assert scopes_and_paths == [["system", str(path)] for _, path in junit_artifacts]
    assert any("junit-jupiter-api" in path for _, path in scopes_and_paths)


def test_modules_touched_by_changed_files(tmp_path: Path) -> None:
    (tmp_path / "kafka.toml").write_text(RECIPE)
    plan = recipe.load(tmp_path / "kafka.toml")
    assert touched_modules(plan, ["a/src/test/java/T.java"], ()) == set()
    assert touched_modules(plan, ["a/src/main/java/T.java"], ()) == {"a"}
    with pytest.raises(RackgateError, match=r"changes build\.gradle"):
        touched_modules(plan, ["build.gradle"], ())


JAVAC = """[INFO] ---
[ERROR] COMPILATION ERROR :
[ERROR] /w/tree/clients/src/main/java/org/A.java:[12,7] cannot find symbol
  symbol:   class Missing
[ERROR] Failed to execute goal org.x:maven-compiler-plugin:3.13.0:compile (java) on project clients: Compilation failure
"""
SCALAC = """[INFO] compiling
[ERROR] /w/tree/core/src/main/scala/kafka/P.scala:40: error: not found: value x
[ERROR] Failed to execute goal net.y:scala-maven-plugin:4.9.5:compile (scala) on project core: scala compilation failed
"""
UNPINNED = (
    "[ERROR] x: Cannot access central in offline mode and the artifact g:a:jar:1 has not been downloaded from it\n"
)
CORRUPT = (
    "[ERROR] x: Could not transfer artifact g:a:jar:1 from/to central (…): Checksum validation failed, expected 1\n"
)
MISSING = "[ERROR] Failed to execute goal on project x: Could not find artifact g:a:jar:1 in central (…) -> [Help 1]\n"


@pytest.mark.parametrize(
    ("output", "message", "project"),
    [
        (JAVAC, "compile: /w/tree/clients/src/main/java/org/A.java:12: cannot find symbol", "clients"),
        (SCALAC, "compile: /w/tree/core/src/main/scala/kafka/P.scala:40: not found: value x", "core"),
        (MISSING, "compile: artifact g:a:jar:1 can't be downloaded; is the network available?", ""),
        (
            UNPINNED,
            "compile: Maven needs g:a:jar:1, which has no pin in maven.sha256; run `rackgate patch pin --role maven`",
            "",
        ),
        (CORRUPT, "compile: artifact g:a:jar:1 does not have the checksum that its repository states", ""),
        ("[ERROR] something else\n", "compile: Maven failed, see log", ""),
    ],
)
def test_maven_errors_become_one_line(output: str, message: str, project: str) -> None:
    error = maven.explain("compile", output, Path("log"))
    assert str(error) == message
    assert error.project == project


def test_a_timeout_of_maven_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    with pytest.raises(RackgateError, match=r"^compile: mvn did not end within 0 s$"):
        maven.maven(
            tmp_path / "pom.xml", ["test"],
            repository=tmp_path, online=False, task="compile", log=tmp_path / "log", timeout_s=0.2,
        )  # fmt: skip


def test_a_missing_template_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="'names' is undefined"):
        maven.render("reactor.xml.j2", tmp_path / "pom.xml")
    pom = maven.render("reactor.xml.j2", tmp_path / "pom.xml", names=["a&b"])
    assert "<module>a&amp;b</module>" in pom.read_text()


def test_damage_of_a_distribution_is_detected(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="run `rackgate build`"):
        Distribution.load(tmp_path)
    for folder, name in (("libs", "l.jar"), ("overlay", "o.jar"), ("spark", "s.jar"), ("hooks", "rackgate-hooks.jar")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(name)
    files = {str(jar.relative_to(tmp_path)): sha256(jar) for jar in tmp_path.rglob("*.jar")}
    manifest = {"files": files, "kafka_version": "4.0.0", "patch_hash": "0", "overlay": [], "patches": []}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    distribution = Distribution.load(tmp_path)
    assert distribution.damage() == ""
    assert distribution.classpath() == f"{tmp_path}/overlay/*:{tmp_path}/libs/*"
    assert distribution.hooks == tmp_path / "hooks/rackgate-hooks.jar"
    assert distribution.spark_jars == (tmp_path / "spark/s.jar",)
    (tmp_path / "libs/l.jar").write_text("other")
    assert distribution.damage() == "libs/l.jar has changed"
    (tmp_path / "libs/l.jar").write_text("l.jar")
    (tmp_path / "hooks/other.jar").write_text("")
    assert distribution.damage() == "hooks/other.jar does not belong to this build"


def test_subclasses_of_changed_abstract_tests_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "core/src/test/scala"
    folder.mkdir(parents=True)
    (folder / "AbstractATest.scala").write_text("abstract class AbstractATest\n")
    (folder / "ATest.scala").write_text("class ATest extends AbstractATest {\n")
    (folder / "BTest.scala").write_text("class BTest(x: Int)\n  extends AbstractATest(x) {\n")
    (folder / "OtherTest.scala").write_text("class OtherTest extends AbstractATestBase // AbstractATest\n")
    where = "core/src/test/scala"
    files = [f"{where}/AbstractATest.scala", f"{where}/BTest.scala", "core/src/main/scala/AbstractA.scala"]
    assert changed_tests._subclasses(tmp_path, files) == [f"{where}/ATest.scala"]
