"""``rackgate patch compare-classes``: what differs between two versions of Kafka where the series changes Kafka.

Only the published jars are read, with ``javap``, so that it works before the sources of a version are published.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.process import run
from pyhooks.patchset.maven import java_home
from pyhooks.patchset.series import Patch, file_diffs

_MAIN = re.compile(r"[^/]+(?:/[^/]+)*?/src/main/(?:java|scala)/(?P<name>.+)\.(?:java|scala)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TYPE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")
_FULL_NAME = re.compile(r"\b(?:org\.apache\.kafka|kafka)(?:\.[a-z_]\w*)*\.[A-Z][\w$]*")
# fields and methods that compilers make: lambdas, accessors, default arguments, numbered classes
_MADE = re.compile(r"lambda\$|access\$|\$anon|\$default\$|\$deserializeLambda|\$VALUES|\$values|\$\d")


@dataclass(frozen=True)
class ClassDifference:
    """Difference of a class between two versions.

    Attributes:
        name: its full name in the first version.
        moved: full names of classes of the same simple name in the second version, if it has none of this full name.
        missing: the second version has no class of this simple name.
        removed: declarations near the series' changes that the second version lacks, types without packages.
        added: declarations in the second version with the names of those removed.
    """

    name: str
    moved: tuple[str, ...] = ()
    missing: bool = False
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Report of the difference, one line each."""
        place = "not found" if self.missing else f"now {' or '.join(self.moved)}" if self.moved else ""
        head = f"{self.name}: {place}" if place else self.name
        return [head, *(f"  - {one}" for one in self.removed), *(f"  + {one}" for one in self.added)]


def touched_classes(patches: Iterable[Patch]) -> dict[str, frozenset[str]]:
    """Return the classes of Kafka's main code that the series changes, with the words of the published lines nearby.

    A class is named after its file, so further top-level classes of a Scala file are left out.
    """
    words: dict[str, set[str]] = {}
    created: set[str] = set()
    for patch in patches:
        for diff in file_diffs(patch.text):
            if not (match := _MAIN.fullmatch(diff.file)):
                continue
            name = match["name"].replace("/", ".")
            if any(line.startswith("new file") for line in diff.header):
                created.add(name)
            lines = [line for hunk in diff.hunks for line in hunk if not line.startswith("+")]
            words.setdefault(name, set()).update(word for line in lines for word in _WORD.findall(line))
    return {name: frozenset(found) for name, found in sorted(words.items()) if name not in created}


def compare_classes(
    touched: Mapping[str, frozenset[str]], before: Sequence[Path], after: Sequence[Path]
) -> tuple[ClassDifference, ...]:
    """Compare the touched classes and the types in their declarations, given the jars of both versions.

    Classes that are the same are left out, and so are those that the first version lacks.

    Raises:
        RackgateError: ``javap`` failed.
    """
    old, new = _class_names(before), _class_names(after)
    places: dict[str, list[str]] = {}
    for name in sorted(new):
        places.setdefault(_simple(name), []).append(name)

    def place(name: str) -> tuple[str, ...]:
        return (name,) if name in new else tuple(places.get(_simple(name), ()))

    where = {name: place(name) for name in touched if name in old}
    were = _members(where, old, before)
    are = _members([found[0] for found in where.values() if len(found) == 1], new, after)
    differences, types = [], set[str]()
    for name, found in where.items():
        moved = () if name in new else found
        near = {one for one in were[name] if _name(one) in touched[name]}
        types.update(type_ for one in near for type_ in _FULL_NAME.findall(one))
        removed, added = set[str](), set[str]()
        if len(found) == 1:
            was, now = {_short(one) for one in were[name]}, {_short(one) for one in are[found[0]]}
            removed = {_short(one) for one in near} - now
            added = {one for one in now - was if _name(one) in {_name(other) for other in removed}}
        if moved or removed or not found:
            differences.append(ClassDifference(name, moved, not found, tuple(sorted(removed)), tuple(sorted(added))))
    lost = sorted((types & old) - new - touched.keys())
    return (*differences, *(ClassDifference(name, place(name), not place(name)) for name in lost))


def _class_names(jars: Iterable[Path]) -> frozenset[str]:
    names: set[str] = set()
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            entries = (one for one in archive.namelist() if one.endswith(".class"))
            names.update(one.removesuffix(".class").replace("/", ".") for one in entries)
    return frozenset(name for name in names if not _MADE.search(name))


def _members(names: Iterable[str], all_names: Iterable[str], jars: Iterable[Path]) -> dict[str, list[str]]:
    """Return the declarations of fields and methods, private ones included, of each class and its nested classes.

    Scala's companion of a class counts as nested.
    """
    wanted = set(names)
    outer = {part: part.partition("$")[0] for part in sorted(all_names) if part.partition("$")[0] in wanted}
    members: dict[str, list[str]] = {name: [] for name in wanted}
    if not outer:
        return members
    path = ":".join(map(str, jars))
    text = run([java_home() / "bin" / "javap", "-p", "-cp", path, *outer], task="list the members of classes")
    # javap prints the classes in the order of its arguments
    for name, block in zip(outer.values(), text.split('Compiled from "')[1:], strict=True):
        lines = [line.strip().rstrip(";") for line in block.splitlines() if line.startswith("  ")]
        members[name] += [line for line in lines if not _MADE.search(line)]
    return members


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _short(declaration: str) -> str:
    """Return a declaration with types without packages, so that a moved type alone is no difference."""
    return _TYPE.sub("", declaration)


def _name(declaration: str) -> str:
    """Return the name that a declaration declares, without packages."""
    words = declaration.partition("(")[0].split()
    return _simple(words[-1]) if words else ""
