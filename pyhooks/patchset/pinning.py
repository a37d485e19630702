"""``rackgate patch pin``: resolve every role with Maven and record the artifacts with their SHA-256.

The artifacts are written to ``kafka.toml``. Maven's own plugins and their dependencies are written to
``maven.sha256``. To find them, an example in Java and Scala is compiled and tested with an empty repository.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_text
from pyhooks.patchset import compilation, maven
from pyhooks.patchset.artifacts import ArtifactStore, MavenRepository, sha256
from pyhooks.patchset.recipe import Artifact, Module, Recipe, Roots, load, render_artifacts

# Role, on the command line, of Maven's own plugins and their dependencies.
MAVEN = "maven"
MARKER = re.compile(r"^# -+ written by `rackgate patch pin`\n", re.MULTILINE)
_LISTED = re.compile(
    r"^ +(?P<group>[^:\s]+):(?P<name>[^:\s]+):jar:(?:(?P<classifier>[^:\s]+):)?(?P<version>[^:\s]+)"
    r":(?:compile|runtime|provided|test):(?P<path>/.*?\.jar)(?: -- module.*)?$"
)
_UNRESOLVED = re.compile(r"The following artifacts could not be resolved: (?P<ids>.*?): Could not find artifact")
_NOT_FOUND = re.compile(r"Could not find artifact (?P<ids>\S+) ")
_KAFKA = "org.apache.kafka"
_METADATA_VERSION = "org/apache/kafka/server/common/MetadataVersion.java"
_JAR_NAME = re.compile(r"(?P<name>.+?)-\d[^/]*\.jar")


_JAVA = "package example;\n\npublic class Java {\n}\n"
_SCALA = "package example\n\nclass Scala(val java: Java)\n"
_JAVA_TEST = "package example;\n\nclass JavaTest {\n    @org.junit.jupiter.api.Test\n    void passes() {\n    }\n}\n"
_SCALA_TEST = "package example\n\nclass ScalaTest {\n  @org.junit.jupiter.api.Test\n  def passes(): Unit = {}\n}\n"


def pin(path: Path, work: Path, only: Sequence[str] = ()) -> tuple[Artifact, ...]:
    """Resolve roles of the recipe at ``path``, rewrite its list of artifacts, and return all pinned artifacts.

    ``only`` has the roles to resolve, or is empty for all. The pins of other roles are unchanged. The version of
    Scala and the level of metadata.version at the top of the file follow what is resolved.

    Raises:
        RackgateError: an artifact can't be resolved, a role is unknown, or the file lacks the marker line.
    """
    recipe = load(path)
    wanted = dict(_roots_by_role(recipe))
    for role in only:
        if role not in wanted:
            raise RackgateError(f"{path}: no artifact is resolved for role {role!r}; the roles are {', '.join(wanted)}")
    text = path.read_text(encoding="utf-8")
    marker = MARKER.search(text)
    if not marker:
        raise RackgateError(f"{path}: no line `# --- written by `rackgate patch pin``; which precedes the list")
    todo = dict.fromkeys(only or wanted)
    repository = MavenRepository(work / "resolved", None)
    kept = {artifact: left for artifact in recipe.artifacts if (left := set(artifact.roles) - todo.keys())}
    roles = {artifact.id: left for artifact, left in kept.items()}
    hashes = {artifact.id: artifact.sha256 for artifact in kept}
    jars: dict[str, Path] = {}
    for role in todo:
        for coordinates, jar in _resolve(recipe, role, wanted[role], repository, work):
            if role == "spark" and _name(jar.name) in _pyspark_jars():
                continue
            jars[coordinates] = jar
            roles.setdefault(coordinates, set()).add(role)
            hashes[coordinates] = sha256(jar)
    artifacts = tuple(sorted(Artifact(id_, hashes[id_], tuple(sorted(roles[id_]))) for id_ in hashes))
    head = _with_facts(text[: marker.end()], _facts(recipe, jars))
    write_text(path, head + "\n" + render_artifacts(artifacts))
    return load(path).artifacts


def draft(base: Recipe, version: str) -> str:
    """Return the ``kafka.toml`` of another version of Kafka, without artifacts, given that of ``base``.

    Raises:
        RackgateError: the file of ``base`` lacks the marker line.
    """
    text = base.path.read_text(encoding="utf-8")
    marker = MARKER.search(text)
    if not marker:
        raise RackgateError(f"{base.path}: no line `# --- written by `rackgate patch pin``; which precedes the list")
    return text[: marker.end()].replace(base.version, version)


def unpublished(recipe: Recipe, work: Path) -> str:
    """Describe in one line which artifacts of the recipe's version of Kafka are not published; empty if all are.

    Raises:
        RackgateError: Maven failed for another reason.
    """
    wanted = {
        f"{_KAFKA}:{module.artifact}:{recipe.version}{classifier}"
        for module in recipe.modules
        for classifier in ("", ":sources", *((":test", ":test-sources") if module.tests else ()))
    }
    wanted.update(
        id_
        for roots in recipe.roots.values()
        for id_ in roots.artifacts
        if Artifact(id_, "", ()).version == recipe.version
    )
    roots = Roots(tuple(sorted(id_ for id_ in wanted if id_.startswith(f"{_KAFKA}:"))), transitive=False)
    try:
        _resolve(recipe, "published", roots, MavenRepository(work / "resolved", None), work)
    except RackgateError:
        log = work / "resolve-published.log"
        missing = unresolved(log.read_text(encoding="utf-8")) if log.exists() else ()
        if not missing:
            raise
        return f"Kafka {recipe.version} is not published in full yet: missing are {_by_name(missing)}"
    return ""


def module_jars(recipe: Recipe, work: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Download the jars of the modules; return them, and the names of those that are not published.

    Raises:
        RackgateError: Maven failed for another reason.
    """
    wanted = {f"{_KAFKA}:{module.artifact}:{recipe.version}" for module in recipe.modules}
    repository = MavenRepository(work / "resolved", None)
    try:
        jars = _resolve(recipe, "jars", Roots(tuple(sorted(wanted)), transitive=False), repository, work)
    except RackgateError:
        log = work / "resolve-jars.log"
        missing = {name for name, _ in unresolved(log.read_text(encoding="utf-8"))} if log.exists() else set()
        left = tuple(sorted(id_ for id_ in wanted if Artifact(id_, "", ()).name not in missing))
        if not missing or not left:
            raise
        jars = _resolve(recipe, "jars", Roots(left, transitive=False), repository, work)
        return tuple(jar for _, jar in jars), tuple(sorted(missing))
    return tuple(jar for _, jar in jars), ()


def unresolved(log: str) -> tuple[tuple[str, str], ...]:
    """Return artifactId and classifier, or ``jar``, of each artifact that Maven did not find, given its log."""
    match = _UNRESOLVED.search(log) or _NOT_FOUND.search(log)
    parts = [id_.split(":") for id_ in match["ids"].split(", ")] if match else []
    # group:artifact:jar:version or group:artifact:jar:classifier:version
    return tuple((words[1], words[3] if len(words) > 4 else "jar") for words in parts)


def _by_name(missing: Sequence[tuple[str, str]]) -> str:
    """Format artifacts with the same missing jars together."""
    kinds: dict[str, list[str]] = {}
    for name, kind in missing:
        kinds.setdefault(name, []).append(kind)
    names: dict[tuple[str, ...], list[str]] = {}
    for name, listed in sorted(kinds.items()):
        names.setdefault(tuple(sorted(listed)), []).append(name)
    return "; ".join(f"{', '.join(listed)} ({', '.join(kind)})" for kind, listed in sorted(names.items()))


def _facts(recipe: Recipe, jars: Mapping[str, Path]) -> dict[str, str]:
    """Return the values at the top of ``kafka.toml`` that follow from resolved jars, as TOML."""
    facts: dict[str, str] = {}
    for coordinates in jars:
        if coordinates.startswith("org.scala-lang:scala-library:"):
            facts["scala"] = f'"{coordinates.split(":")[2]}"'
    sources = jars.get(f"{_KAFKA}:kafka-server-common:{recipe.version}:sources")
    if sources:
        with zipfile.ZipFile(sources) as archive:
            text = archive.read(_METADATA_VERSION).decode()
        newest = re.search(r"LATEST_PRODUCTION = (\w+);", text)
        level = newest and re.search(rf"\b{newest[1]}\((\d+),", text)
        if not level:
            raise RackgateError(f"{sources.name}: {_METADATA_VERSION} has no level of LATEST_PRODUCTION")
        facts["metadata_version"] = level[1]
    return facts


def _with_facts(head: str, facts: Mapping[str, str]) -> str:
    """Replace values in the table ``kafka``; a comment beside a value that changes goes with it."""
    for name, value in facts.items():
        line = re.compile(
            rf"^(?P<before>\[kafka\]\n(?:[^\[\n].*\n)*?{name} = )(?P<value>\S+)(?P<comment>.*)$", re.MULTILINE
        )
        found = line.search(head)
        if found and found["value"] != value:
            head = f"{head[: found.end('before')]}{value}{head[found.end() :]}"
    return head


def _roots_by_role(recipe: Recipe) -> Iterator[tuple[str, Roots]]:
    yield from recipe.roots.items()
    for role in ("sources", "test", "test-sources"):
        modules = [m for m in recipe.modules if m.tests or role == "sources"]
        ids = tuple(f"org.apache.kafka:{m.artifact}:{recipe.version}:{role}" for m in modules)
        yield role, Roots(ids, transitive=False)


def record(recipe: Recipe, artifacts: Path, work: Path) -> dict[str, str]:
    """Download all that Maven needs to compile and test into an empty repository; return the SHA-256 by path.

    Raises:
        RackgateError: a file can't be downloaded, the example fails, or a file differs from its pin in ``kafka.toml``.
    """
    store = ArtifactStore(artifacts, MavenRepository(work / "resolved", None))
    libraries = [recipe.find("scala-library", "runtime")]
    running = recipe.with_role("testrun")
    store.fetch(recipe, [*libraries, *running], work)
    repository = MavenRepository(work / "recorded", None)
    # Each fetch starts with this step, so its downloads must be pinned as well.
    repository.bootstrap(recipe, work)
    _exercise(recipe, store, repository, work / "example")
    pins = repository.files()
    for artifact in recipe.artifacts:
        found = pins.get(artifact.repository_path, artifact.sha256)
        if found != artifact.sha256:
            raise RackgateError(
                f"{artifact.id}: {recipe.path.name} pins SHA-256 {artifact.sha256}, but Maven got {found}; "
                "run `rackgate patch pin`"
            )
    return pins


def _exercise(recipe: Recipe, store: ArtifactStore, repository: MavenRepository, work: Path) -> None:
    """Run every Maven goal that the project uses on an example of two classes and two tests."""
    for name, text in (
        ("main/java/example/Java.java", _JAVA), ("main/scala/example/Scala.scala", _SCALA),
        ("test/java/example/JavaTest.java", _JAVA_TEST), ("test/scala/example/ScalaTest.scala", _SCALA_TEST),
    ):  # fmt: skip
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    compilation.scala_compiler(recipe, repository, work)
    library = store.path(recipe.find("scala-library", "runtime"))
    module = Module("example", "example", "", 17, scala=True)
    maven.render(
        "module.xml.j2", work / "compile" / "example" / "pom.xml",
        recipe=recipe, module=module, generated=None, output=work / "classes", jar=work / "jars" / "example.jar",
        sources=work / "main", classpath=[library],
    )  # fmt: skip
    pom = maven.render("reactor.xml.j2", work / "compile" / "pom.xml", names=["example"])
    repository.maven(pom, ["compile"], task="compile the example", log=work / "compile.log")
    running = [(artifact, store.path(artifact)) for artifact in recipe.with_role("testrun")]
    tests = work / "test-classes"
    for name in ("compile", "run"):
        maven.render(
            "jvmtest.xml.j2", work / "test-run" / name / "pom.xml",
            recipe=recipe, name=name, classpath=[library, work / "jars" / "example.jar"], running=running,
            classes=["example.JavaTest", "example.ScalaTest"], output=tests, sources=work / "test",
            reports=work / "reports", scala=True,
        )  # fmt: skip
    pom = maven.render("reactor.xml.j2", work / "test-run" / "pom.xml", names=["compile", "run"])
    repository.maven(pom, ["test"], task="test the example", log=work / "test.log")
    (work / "upstream" / "tmp").mkdir(parents=True)
    pom = maven.render(
        "upstream.xml.j2", work / "upstream" / "pom.xml",
        recipe=recipe, work=work / "upstream", classes=tests, reports=work / "upstream" / "reports",
        classpath=[library], running=running, wanted=["example.JavaTest"], methods=["example/JavaTest#passes"],
        method_timeout_s=60,
    )  # fmt: skip
    repository.maven(pom, ["test"], task="test a method of the example", log=work / "upstream.log")
    for folder in (work / "reports", work / "upstream" / "reports"):
        if not (folder / "TEST-example.JavaTest.xml").exists():
            raise RackgateError(f"test the example: no test ran; no report in {folder}")


def _resolve(
    recipe: Recipe, role: str, roots: Roots, repository: MavenRepository, work: Path
) -> Sequence[tuple[str, Path]]:
    dependencies = [Artifact(id_, "", (role,)) for id_ in roots.artifacts]
    exclusions = [tuple(pair.split(":")) for pair in roots.exclude] if roots.transitive else [("*", "*")]
    pom = maven.render(
        "resolve.xml.j2", work / f"resolve-{role}" / "pom.xml",
        recipe=recipe, dependencies=dependencies, exclusions=exclusions,
    )  # fmt: skip
    listing = pom.parent / "list.txt"
    goal = f"org.apache.maven.plugins:maven-dependency-plugin:{recipe.plugins['dependency']}:list"
    repository.maven(
        pom,
        [goal, "-DincludeScope=runtime", "-DoutputAbsoluteArtifactFilename=true", f"-DoutputFile={listing}"],
        task=f"resolve the {role} artifacts",
        log=work / f"resolve-{role}.log",
    )
    resolved = []
    for line in listing.read_text(encoding="utf-8").splitlines():
        if match := _LISTED.match(line):
            parts = [match["group"], match["name"], match["version"], *filter(None, [match["classifier"]])]
            resolved.append((":".join(parts), Path(match["path"])))
    missing = set(roots.artifacts) - {coordinates for coordinates, _ in resolved}
    if missing:
        raise RackgateError(f"resolve the {role} artifacts: Maven did not list {sorted(missing)[0]}, see {listing}")
    return resolved


def _pyspark_jars() -> frozenset[str]:
    folder = resources.files("pyspark") / "jars"
    return frozenset(_name(entry.name) for entry in folder.iterdir())


def _name(jar: str) -> str:
    match = _JAR_NAME.fullmatch(jar)
    return match["name"] if match else jar
