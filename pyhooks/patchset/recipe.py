"""Parser of ``kafka.toml``, the definition of the build: versions, modules, and every artifact with its SHA-256."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pyhooks.core import paths, toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table, Text, Texts, matching

CLIENT_ROLES = frozenset({"client-2.8", "client-3.9", "client-4.4"})
# Artifacts that only a run of all of Kafka's tests needs. They are large, so only such a run fetches them.
TEST_ALL = "testall"
ROLES = CLIENT_ROLES | {
    "compile", "generator", "jmh", "runtime", "sources", "spark", "test", "test-sources", "testrun", TEST_ALL,
}  # fmt: skip
# oldest release that javac of JDK 17 can target
JavaRelease = Annotated[int, Field(ge=8)]


@dataclass(frozen=True, order=True)
class Artifact:
    """One pinned jar.

    Attributes:
        id: ``group:artifact:version`` or ``group:artifact:version:classifier``.
        roles: its uses, members of ``ROLES``.
    """

    id: Annotated[str, matching(r"[^:\s]+:[^:\s]+:[^:\s]+(:[^:\s]+)?", "group:artifact:version[:classifier]")]
    sha256: Annotated[str, matching("[0-9a-f]{64}", "64 hexadecimal digits")] = field(compare=False)
    roles: tuple[str, ...] = field(compare=False)

    @property
    def group(self) -> str:
        """The Maven groupId."""
        return self.id.split(":")[0]

    @property
    def name(self) -> str:
        """The Maven artifactId."""
        return self.id.split(":")[1]

    @property
    def version(self) -> str:
        """The Maven version."""
        return self.id.split(":")[2]

    @property
    def classifier(self) -> str:
        """The Maven classifier, or empty."""
        return [*self.id.split(":"), ""][3]

    @property
    def file_name(self) -> str:
        """The name of the jar in Maven's naming scheme."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{tail}.jar"

    @property
    def repository_path(self) -> str:
        """The path of the jar in a Maven repository."""
        return "/".join([*self.group.split("."), self.name, self.version, self.file_name])


@dataclass(frozen=True)
class Messages:
    """Generation of a module's message classes, as in upstream's build.gradle.

    Attributes:
        path: folder of the JSON files below ``src/main/resources``.
        package: Java package of the generated classes.
        classes: upstream's message class generators (``-m``).
        types: upstream's type class generators (``-t``).
    """

    path: Text
    package: Text
    classes: Texts
    types: tuple[Text, ...] = ()

    @property
    def package_dir(self) -> str:
        """The package as a path."""
        return self.package.replace(".", "/")


@dataclass(frozen=True)
class Module:
    """One module of Kafka's build that a patch may touch.

    Attributes:
        release: target Java release of its classes.
        needs: names of the modules it is compiled against; all precede it in the list.
        tests: whether a ``-test`` jar is published.
        relocated: package prefixes (as paths) that upstream relocates in the published jar; the overlay cannot
            contain classes that refer to them.
        may_vanish: classes (as paths, without ``.class``) that the series deletes on purpose.
    """

    name: Text
    artifact: Text
    path: Text
    release: JavaRelease
    needs: tuple[Text, ...] = ()
    tests: bool = True
    scala: bool = False
    messages: Messages | None = None
    relocated: tuple[Text, ...] = ()
    may_vanish: tuple[Text, ...] = ()


@dataclass(frozen=True)
class Roots:
    """Artifacts from which Maven resolves one role.

    Attributes:
        artifacts: coordinates; their runtime dependencies are included.
        exclude: ``group:artifact`` of dependencies to leave out.
    """

    artifacts: Texts
    exclude: tuple[Text, ...] = ()
    transitive: bool = True


@dataclass(frozen=True)
class Hooks:
    """The project's own Java helpers.

    Attributes:
        agent: the class with ``premain``, for a JVM that loads the jar as an agent; or empty.
    """

    sources: Path
    package: Text
    release: JavaRelease
    agent: str = ""


@dataclass(frozen=True)
class Recipe:
    """The content of ``kafka.toml``.

    Attributes:
        metadata_version: level of metadata.version that the feature's level 1 is enabled with in a new cluster; the
            highest in production of this version of Kafka.
        ignored_repositories: ids of repositories in third-party poms that are never queried.
        roots: by role, the artifacts from which it is resolved.
        modules: in compilation order.
        tools: tools of Kafka whose class differs from that in ``pyhooks/kafka/tools.py``, with that class.
    """

    path: Path
    version: str
    scala: str
    metadata_version: int
    plugins: Mapping[str, str]
    javac_options: tuple[str, ...]
    scalac_options: tuple[str, ...]
    ignored_repositories: tuple[str, ...]
    roots: Mapping[str, Roots]
    modules: tuple[Module, ...]
    artifacts: tuple[Artifact, ...]
    hooks: Hooks | None = None
    tools: Mapping[str, str] = field(default_factory=dict)

    def module(self, name: str) -> Module:
        """Return the module with this name.

        Raises:
            RackgateError: no such module.
        """
        for module in self.modules:
            if module.name == name:
                return module
        raise RackgateError(f"{self.path}: no [[module]] named {name!r}")

    def with_role(self, *roles: str) -> tuple[Artifact, ...]:
        """Return the artifacts with one of the roles."""
        return tuple(artifact for artifact in self.artifacts if not set(roles).isdisjoint(artifact.roles))

    def only_for(self, role: str) -> tuple[Artifact, ...]:
        """Return the artifacts whose only role is ``role``."""
        return tuple(artifact for artifact in self.artifacts if artifact.roles == (role,))

    def without(self, role: str) -> tuple[Artifact, ...]:
        """Return all artifacts except those whose only role is ``role``."""
        return tuple(artifact for artifact in self.artifacts if artifact.roles != (role,))

    def find(self, name: str, role: str) -> Artifact:
        """Return the artifact with this artifactId and role.

        Raises:
            RackgateError: no such artifact is pinned.
        """
        for artifact in self.with_role(role):
            if artifact.name == name:
                return artifact
        raise RackgateError(f"{self.path}: no {role} artifact {name} is pinned; run `rackgate patch pin`")

    def upstream_of(self, module: Module) -> tuple[Module, ...]:
        """Return all modules that ``module`` depends on, directly or indirectly, in list order."""
        names: set[str] = set()
        for other in reversed(self.modules):
            if other.name in module.needs or other.name in names:
                names.add(other.name)
                names.update(other.needs)
        return tuple(other for other in self.modules if other.name in names)

    def affected_by(self, touched: set[str]) -> tuple[Module, ...]:
        """Return the touched modules and all modules that depend on one of them, in list order."""
        return tuple(
            module
            for module in self.modules
            if module.name in touched or any(up.name in touched for up in self.upstream_of(module))
        )


def load(path: Path | None = None) -> Recipe:
    """Parse and validate ``kafka.toml``.

    Raises:
        RackgateError: the file is missing or not TOML, or a value is invalid; the message names the place.
    """
    path = path or paths.patch_folder() / "kafka.toml"
    top = Table(toml_config.read(path, "it defines the build"), path)
    kafka, plugins, options, resolve = map(top.table, ("kafka", "plugins", "compile", "resolve"))
    tools = top.table("tools", {})
    recipe = Recipe(
        path=path,
        version=kafka.text("version"),
        scala=kafka.text("scala"),
        metadata_version=kafka.whole("metadata_version", 1),
        plugins={name: plugins.text(name) for name in plugins.left()},
        javac_options=options.texts("javac", empty=True),
        scalac_options=options.texts("scalac", empty=True),
        ignored_repositories=resolve.texts("ignored_repositories", ()),
        roots={role: resolve.table(role).into(Roots) for role in resolve.left()},
        modules=tuple(map(_module, top.tables("module"))),
        artifacts=tuple(t.into(Artifact, roles=t.choices("roles", sorted(ROLES))) for t in top.tables("artifact", ())),
        hooks=_hooks(top.table("hooks")) if top.has("hooks") else None,
        tools={name: tools.text(name) for name in tools.left()},
    )
    top.done()
    _check(recipe)
    return recipe


def _module(table: Table) -> Module:
    return table.into(Module, messages=table.table("messages").into(Messages) if table.has("messages") else None)


def _hooks(table: Table) -> Hooks:
    return table.into(Hooks, sources=paths.REPO / table.text("sources"))


def _check(recipe: Recipe) -> None:
    seen: list[str] = []
    for module in recipe.modules:
        late = [need for need in module.needs if need not in seen]
        if late:
            raise RackgateError(f"{recipe.path}: module {module.name} needs {late[0]}, which must come before it")
        if module.name in seen:
            raise RackgateError(f"{recipe.path}: module {module.name} is listed twice")
        seen.append(module.name)
    files: dict[str, str] = {}
    for artifact in recipe.artifacts:
        other = files.setdefault(artifact.file_name, artifact.id)
        if other != artifact.id:
            raise RackgateError(f"{recipe.path}: {other} and {artifact.id} have the same file name")


def render_artifacts(artifacts: Sequence[Artifact]) -> str:
    """Return the artifact list as TOML: sorted, one table for each jar."""
    blocks = [
        f'[[artifact]]\nid = "{a.id}"\nsha256 = "{a.sha256}"\nroles = [{", ".join(f"{r!r}" for r in a.roles)}]\n'
        for a in sorted(artifacts)
    ]
    return "\n".join(blocks).replace("'", '"')
