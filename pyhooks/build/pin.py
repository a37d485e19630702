"""``rackgate patch pin``: resolves every role through Maven and writes the list of artifacts with their SHA-256."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from pyhooks.build import maven
from pyhooks.build.fetch import sha256
from pyhooks.build.recipe import Artifact, Recipe, Roots, load, render_artifacts
from pyhooks.errors import RackgateError
from pyhooks.files import write_text

MARKER = re.compile(r"^# -+ written by `rackgate patch pin`\n", re.MULTILINE)
_LISTED = re.compile(
    r"^ +(?P<group>[^:\s]+):(?P<name>[^:\s]+):jar:(?:(?P<classifier>[^:\s]+):)?(?P<version>[^:\s]+)"
    r":(?:compile|runtime|provided|test):(?P<path>/.*?\.jar)(?: -- module.*)?$"
)
_JAR_NAME = re.compile(r"(?P<name>.+?)-\d[^/]*\.jar")


def pin(path: Path, work: Path, only: Sequence[str] = ()) -> tuple[Artifact, ...]:
    """Resolves the roles of the recipe at ``path`` and rewrites its list of artifacts.

    Args:
        path: a ``kafka.toml``.
        work: a folder for temporary files.
        only: these roles; the others keep what is pinned. All if empty.

    Returns:
        The artifacts as now pinned.

    Raises:
        RackgateError: something cannot be resolved, there is no such role, or the file lacks the line that the list
            goes below.
    """
    recipe = load(path)
    wanted = dict(_wanted(recipe))
    for role in only:
        if role not in wanted:
            raise RackgateError(f"{path}: nothing is resolved for a role {role!r}; there are {', '.join(wanted)}")
    text = path.read_text(encoding="utf-8")
    marker = MARKER.search(text)
    if not marker:
        raise RackgateError(f"{path}: no line `# --- written by `rackgate patch pin``; the list goes below it")
    todo = dict.fromkeys(only or wanted)
    kept = {artifact: left for artifact in recipe.artifacts if (left := set(artifact.roles) - todo.keys())}
    roles = {artifact.id: left for artifact, left in kept.items()}
    hashes = {artifact.id: artifact.sha256 for artifact in kept}
    for role in todo:
        for coordinates, jar in _resolve(recipe, role, wanted[role], work):
            if role == "spark" and _name(jar.name) in _pyspark_jars():
                continue
            roles.setdefault(coordinates, set()).add(role)
            hashes[coordinates] = sha256(jar)
    artifacts = tuple(sorted(Artifact(id_, hashes[id_], tuple(sorted(roles[id_]))) for id_ in hashes))
    write_text(path, text[: marker.end()] + "\n" + render_artifacts(artifacts))
    return load(path).artifacts


def _wanted(recipe: Recipe) -> Iterator[tuple[str, Roots]]:
    yield from recipe.roots.items()
    for role in ("sources", "test", "test-sources"):
        modules = [m for m in recipe.modules if m.tests or role == "sources"]
        ids = tuple(f"org.apache.kafka:{m.artifact}:{recipe.version}:{role}" for m in modules)
        yield role, Roots(ids, transitive=False)


def _resolve(recipe: Recipe, role: str, roots: Roots, work: Path) -> Sequence[tuple[str, Path]]:
    dependencies = [Artifact(id_, "", (role,)) for id_ in roots.artifacts]
    exclusions = [tuple(pair.split(":")) for pair in roots.exclude] if roots.transitive else [("*", "*")]
    pom = maven.render(
        "resolve.xml.j2", work / f"resolve-{role}" / "pom.xml",
        recipe=recipe, dependencies=dependencies, exclusions=exclusions,
    )  # fmt: skip
    listing = pom.parent / "list.txt"
    goal = f"org.apache.maven.plugins:maven-dependency-plugin:{recipe.plugins['dependency']}:list"
    maven.maven(
        pom,
        [goal, "-DincludeScope=runtime", "-DoutputAbsoluteArtifactFilename=true", f"-DoutputFile={listing}"],
        what=f"resolve the {role} artifacts",
        log=work / f"resolve-{role}.log",
    )
    found = []
    for line in listing.read_text(encoding="utf-8").splitlines():
        if match := _LISTED.match(line):
            words = [match["group"], match["name"], match["version"], *filter(None, [match["classifier"]])]
            found.append((":".join(words), Path(match["path"])))
    missing = set(roots.artifacts) - {coordinates for coordinates, _ in found}
    if missing:
        raise RackgateError(f"resolve the {role} artifacts: Maven did not list {sorted(missing)[0]}, see {listing}")
    return found


def _pyspark_jars() -> frozenset[str]:
    folder = resources.files("pyspark") / "jars"
    return frozenset(_name(entry.name) for entry in folder.iterdir())


def _name(jar: str) -> str:
    match = _JAR_NAME.fullmatch(jar)
    return match["name"] if match else jar
