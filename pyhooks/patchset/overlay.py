"""Overlay jars: the classes and resources that the series changed, and nothing else.

A JDK other than upstream's produces other bytes for the same source (numbering of the constant pool, switch tables of
enums). Patched classes are therefore compared with a compilation of the published sources by the same compiler, not
with the published jar. The unit is a *nest*: a top-level class with all classes nested in it. Compilers number the
synthetic members of a nest arbitrarily, so its classes must come from the same compilation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset.artifacts import sha256
from pyhooks.patchset.compilation import read_jar, write_jar
from pyhooks.patchset.recipe import Module

_CLASS = ".class"
MANIFEST = "META-INF/MANIFEST.MF"
LICENSE = "META-INF/LICENSE"
NOTICE = "META-INF/NOTICE"
VERSION_PROPERTIES = "kafka/kafka-version.properties"
# Longest line of a jar's manifest without the line end; a continuation line starts with a space.
_LINE_BYTES = 70


@dataclass(frozen=True)
class OverlayJar:
    """One jar of the overlay.

    Attributes:
        classes: all classes in it, as paths without ``.class``.
        resources: all other files in it except manifest, licence and notice.
        left_behind: nested classes of the published jar that the patched nest no longer has. They stay on the class
            path unused: nothing in the nest refers to them.
        published: coordinates of the published jar whose classes it replaces.
    """

    module: str
    jar: str
    sha256: str
    classes: tuple[str, ...]
    resources: tuple[str, ...]
    left_behind: tuple[str, ...]
    published: str


def nest(name: str) -> str:
    """Return the top-level class of a class file, as a path; a Scala object belongs to the nest of its class."""
    folder, _, simple = name.removesuffix(_CLASS).rpartition("/")
    head = simple.split("$")[0] or simple
    return f"{folder}/{head}" if folder else head


def classes_of(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Group class files by nest."""
    nests: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        if name.endswith(_CLASS):
            nests.setdefault(nest(name), {})[name] = content
    return nests


def changed_nests(
    module: Module, before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> dict[str, dict[str, bytes]]:
    """Return the nests that the series added or changed.

    Args:
        module: defines which packages are relocated and which classes may vanish.
        before: class files of the published sources, by path.
        after: class files of the patched sources, by path, from the same compiler.

    Raises:
        RackgateError: a class vanished that is not in ``may_vanish``, or a changed class refers to a relocated
            package, so the overlay cannot contain it.
    """
    old, new = classes_of(before), classes_of(after)
    missing = sorted(set(old) - set(new) - set(module.may_vanish))
    if missing:
        raise RackgateError(
            f"{module.name}: class {missing[0]} is missing from the patched module, but is in the published jar; "
            f"restore it, or list it in may_vanish of [[module]] {module.name} in kafka.toml"
        )
    changed = {name: files for name, files in new.items() if files != old.get(name)}
    for name, files in changed.items():
        for content in files.values():
            for prefix in module.relocated:
                if prefix.encode() in content:
                    raise RackgateError(
                        f"{module.name}: class {name} changed, but it uses {prefix}, which upstream relocates in the "
                        f"published jar; the overlay cannot contain it"
                    )
    return changed


def changed_resources(before: Path, after: Path) -> dict[str, bytes]:
    """Return the files below ``after`` that are missing below ``before`` or differ there."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    old = read(before)
    return {name: content for name, content in read(after).items() if old.get(name) != content}


def version_properties(published: Path, revision: str) -> dict[str, bytes]:
    """Return the properties of Kafka's version with the revision of the series in the commit id, if there are any.

    Each broker and client logs them at its start, and the tools print them. The version itself stays as it is.
    """
    content = read_jar(published).get(VERSION_PROPERTIES)
    if content is None:
        return {}
    text, count = re.subn(rb"(?m)^(commitId=\S+)", rb"\1-" + revision.encode(), content)
    if count != 1:
        raise RackgateError(f"{published}: {VERSION_PROPERTIES} has no commitId")
    return {VERSION_PROPERTIES: text}


def make_jar(
    module: Module, nests: Mapping[str, Mapping[str, bytes]], resources: Mapping[str, bytes], *,
    published: Path, coordinates: str, folder: Path, manifest: Sequence[tuple[str, str]],
) -> OverlayJar | None:  # fmt: skip
    """Write ``<module>-rackgate.jar`` to ``folder``, unless it would be empty.

    Args:
        module: the module.
        nests: result of ``changed_nests``.
        resources: result of ``changed_resources``.
        published: the module's published jar, the source of licence and notice.
        coordinates: coordinates of the published jar.
        folder: target folder.
        manifest: further lines for the jar's manifest.

    Raises:
        RackgateError: the published jar has no licence or notice.
    """
    files = {name: content for files in nests.values() for name, content in files.items()}
    if not files and not resources:
        return None
    original = read_jar(published)
    stock = classes_of(original)
    left_behind = [name for key in nests for name in stock.get(key, {}) if name not in files]
    changes = f"classes of {coordinates}, changed by the patches of kafka-rackgate; see {NOTICE}"
    lines = [("Manifest-Version", "1.0"), ("Rackgate-Changes", changes), *manifest]
    head = {MANIFEST: manifest_text(lines), **_legal(original, published)}
    jar = folder / f"{module.name}-rackgate.jar"
    write_jar(jar, {**head, **files, **resources})
    return OverlayJar(
        module=module.name,
        jar=jar.name,
        sha256=sha256(jar),
        classes=tuple(sorted(name.removesuffix(_CLASS) for name in files)),
        resources=tuple(sorted(resources)),
        left_behind=tuple(sorted(name.removesuffix(_CLASS) for name in left_behind)),
        published=coordinates,
    )


def manifest_text(lines: Sequence[tuple[str, str]]) -> bytes:
    """Return the main section of a jar's manifest, with long lines wrapped as in the JAR specification."""
    text = b""
    for key, value in lines:
        rest = f"{key}: {value}".encode()
        while len(rest) > _LINE_BYTES:
            text += rest[:_LINE_BYTES] + b"\r\n"
            rest = b" " + rest[_LINE_BYTES:]
        text += rest + b"\r\n"
    return text + b"\r\n"


def _legal(original: Mapping[str, bytes], published: Path) -> dict[str, bytes]:
    """Return licence and notice of an overlay jar: the project's notice, which states the changes, then Kafka's."""
    files = {}
    for name, target in (("LICENSE", LICENSE), ("NOTICE", NOTICE)):
        content = original.get(target, original.get(name))
        if content is None:
            raise RackgateError(f"{published}: has no {name}; an overlay jar must include it")
        files[target] = content
    files[NOTICE] = paths.NOTICE.read_bytes() + b"\n" + b"=" * 80 + b"\n\n" + files[NOTICE]
    return files
