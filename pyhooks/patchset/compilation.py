"""Compilation of Kafka's modules with Maven, of the published and of the patched sources, with a cache of results.

The cache key of a result is a hash of all its inputs, including the modules it was compiled against. So a module is
compiled again only if one of its inputs changed. Results are written atomically.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.patchset import git, maven
from pyhooks.patchset.artifacts import ArtifactStore, MavenRepository
from pyhooks.patchset.recipe import Artifact, Module, Recipe

# Increase it when this module or a template changes results in a way that the keys below do not cover.
FORMAT = 1
_EPOCH = (1980, 1, 1, 0, 0, 0)
# Roles whose jars are inputs of a compilation. Others, such as clients to test with, do not affect it.
COMPILED_WITH = frozenset({"runtime", "compile", "generator", "sources"})


@dataclass(frozen=True)
class Sources:
    """One state of the sources."""

    name: str
    tree: Path
    commit: str


@dataclass(frozen=True)
class Compiler:
    """Compiler of modules, which caches the class files of each module in a jar."""

    recipe: Recipe
    store: ArtifactStore
    cache: Path

    def keys(self, sources: Sources, affected: Sequence[Module]) -> dict[str, str]:
        """Return the cache key of each affected module: a hash of all inputs of its compilation."""
        base = self._base_key()
        keys: dict[str, str] = {}
        for module in affected:
            against = [[up.name, keys.get(up.name, "published")] for up in self.recipe.upstream_of(module)]
            tree = git.tree_id(sources.tree, sources.commit, f"{module.path}/src/main")
            text = json.dumps([base, repr(module), tree, against])
            keys[module.name] = hashlib.sha256(text.encode()).hexdigest()
        return keys

    def jar(self, module: Module, key: str) -> Path:
        """Return the cache path of the result with this key, whether it exists or not."""
        return self.cache / "classes" / f"{module.name}-{key[:32]}.jar"

    def compile(
        self, sources: Sources, affected: Sequence[Module], work: Path, on_activity: Callable[[str], None]
    ) -> dict[str, Path]:
        """Compile the modules that are not in the cache; return the jar with the classes of each module.

        Raises:
            RackgateError: a compile error; the message names file and line as in Kafka's repository.
        """
        keys = self.keys(sources, affected)
        jars = {module.name: self.jar(module, keys[module.name]) for module in affected}
        missing = [module for module in affected if not jars[module.name].exists()]
        for jar in jars.values():
            if jar.exists():
                jar.touch()  # pruning deletes the least recently used results
        if not missing:
            return jars
        outputs = {module.name: work / "classes" / module.name for module in missing}
        places = {**jars, **{module.name: work / "jars" / f"{module.name}.jar" for module in missing}}
        for folder in outputs.values():
            folder.mkdir(parents=True)
        on_activity(f"generate message classes, {sources.name}")
        generated = self._generate(sources, missing, work)
        pom = maven.render("reactor.xml.j2", work / "pom.xml", names=[m.name for m in missing])
        for module in missing:
            maven.render(
                "module.xml.j2", work / module.name / "pom.xml",
                recipe=self.recipe, module=module, generated=generated.get(module.name),
                output=outputs[module.name], jar=places[module.name],
                sources=sources.tree / module.path / "src" / "main", classpath=self.classpath(module, places),
            )  # fmt: skip
        on_activity(f"compile {len(missing)} modules, {sources.name}")
        log = work / "maven.log"
        try:
            self.store.repository.maven(pom, ["compile"], task=f"compile {sources.name} sources", log=log)
        except maven.MavenError as error:
            done = [m.name for m in missing]
            done = done[: done.index(error.project)] if error.project in done else []
            for module in missing:
                if module.name in done:
                    pack(outputs[module.name], jars[module.name])
            message = str(error).replace(f"{sources.tree}/", "").replace(f"{work}/", "")
            raise RackgateError(message, detail=error.detail.replace(f"{sources.tree}/", "")) from None
        for module in missing:
            pack(outputs[module.name], jars[module.name])
        return jars

    def classpath(self, module: Module, places: Mapping[str, Path]) -> list[Path]:
        """Return the class path for compiling ``module``: its upstream modules, compiled or published, and libraries.

        The published jars of the module itself and of modules that it does not depend on are left out, so that deleted
        classes are not found there.
        """
        own = {other.artifact for other in self.recipe.modules}
        upstream = [
            places.get(up.name) or self.store.path(self.recipe.find(up.artifact, "runtime"))
            for up in self.recipe.upstream_of(module)
        ]
        roles = {"runtime", "compile"} if module.relocated else {"runtime"}
        libraries = [
            self.store.path(artifact)
            for artifact in self.recipe.artifacts
            if roles.intersection(artifact.roles) and artifact.name not in own
        ]
        return [*upstream, *libraries]

    def _base_key(self) -> str:
        recipe = self.recipe
        parts = [
            FORMAT, maven.javac_version(), recipe.version, recipe.scala, sorted(recipe.plugins.items()),
            recipe.javac_options, recipe.scalac_options,
            [[a.id, a.sha256] for a in recipe.artifacts if COMPILED_WITH.intersection(a.roles)],
            sorted(self.store.repository.pins.items()),
            [(maven.TEMPLATES / name).read_text(encoding="utf-8") for name in ("module.xml.j2", "reactor.xml.j2")],
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _generate(self, sources: Sources, modules: Sequence[Module], work: Path) -> dict[str, Path]:
        """Generate the message classes of all modules that have any, with one JVM for each in parallel."""
        with_messages = [module for module in modules if module.messages]
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            folders = pool.map(lambda module: self.generate_messages(sources, module, work), with_messages)
            return {module.name: folder for module, folder in zip(with_messages, folders, strict=True)}

    def generate_messages(self, sources: Sources, module: Module, work: Path) -> Path:
        """Generate the message classes of a module that has any below ``work``; return the folder of sources."""
        messages = module.messages
        if messages is None:
            raise ValueError(f"{module.name} has no messages")
        root = work / "generated" / module.name
        output = root / messages.package_dir
        output.mkdir(parents=True)
        own = {other.artifact for other in self.recipe.modules}
        needed = [*self.recipe.with_role("generator"), *self.recipe.with_role("runtime")]
        path = os.pathsep.join(str(self.store.path(a)) for a in needed if a.name not in own)
        types = ["-t", *messages.types] if messages.types else []
        run(
            [
                maven.java_home() / "bin" / "java", *maven.LANGUAGE, "-XX:TieredStopAtLevel=1", "-cp", path,
                "org.apache.kafka.message.MessageGenerator", "-p", messages.package, "-o", output,
                "-i", sources.tree / module.path / "src/main/resources" / messages.path,
                *types, "-m", *messages.classes,
            ],
            task=f"generate the message classes of {module.name} ({module.path}/src/main/resources/{messages.path})",
        )  # fmt: skip
        return root


def pack(folder: Path, jar: Path) -> None:
    """Pack all files below ``folder`` into ``jar``; the same files give the same bytes."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_jar(jar, files)


def write_jar(jar: Path, files: Mapping[str, bytes]) -> None:
    """Write a jar atomically; its bytes depend only on names and contents of the files."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    temporary = jar.with_suffix(f".{os.getpid()}.tmp")
    first = "META-INF/MANIFEST.MF"
    with zipfile.ZipFile(temporary, "w") as archive:
        for name in sorted(files, key=lambda name: (name != first, name)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            # Stored, not deflated: the output of zlib differs between its versions.
            archive.writestr(entry, files[name], zipfile.ZIP_STORED)
    temporary.replace(jar)


def read_jar(jar: Path) -> dict[str, bytes]:
    """Return the content of all files of a jar by name."""
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def scala_compiler(plan: Recipe, repository: MavenRepository, work: Path) -> tuple[Path, ...]:
    """Return the jars of scalac in the recipe's version, from the verified repository that the Scala plugin uses."""
    compiler = Artifact(f"org.scala-lang:scala-compiler:{plan.scala}", "", ("compile",))
    pom = maven.render(
        "resolve.xml.j2", work / "scalac" / "pom.xml", recipe=plan, dependencies=[compiler], exclusions=[]
    )
    listing = pom.parent / "classpath.txt"
    goal = f"org.apache.maven.plugins:maven-dependency-plugin:{plan.plugins['dependency']}:build-classpath"
    repository.maven(
        pom, [goal, f"-Dmdep.outputFile={listing}", "-Dmdep.includeScope=runtime"],
        task="find the Scala compiler", log=work / "scalac.log",
    )  # fmt: skip
    return tuple(Path(entry) for entry in listing.read_text(encoding="utf-8").strip().split(os.pathsep))
