"""``rackgate patch facts``: what the series touches, read from the patches and from the jars, stock beside overlay."""

from __future__ import annotations

import ast
import json
import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import class_file, recipe, series
from pyhooks.patchset.distribution import Distribution

# whose parents and versions are told; a name that is in neither jar is told as absent
ERRORS = (
    "NotEnoughReplicasException",
    "NotEnoughReplicasAfterAppendException",
    "NotEnoughRacksException",
    "NotEnoughRacksAfterAppendException",
)
_ERROR_PACKAGE = "org/apache/kafka/common/errors"
_DATA_PACKAGE = "org/apache/kafka/common/message"
REQUESTS = ("Produce", "Fetch", "AlterPartition", "BrokerHeartbeat", "BrokerRegistration", "Metadata")
_TOP = "java.lang.Object"
_VERSION = re.compile(r"field (LOWEST|HIGHEST)_SUPPORTED_VERSION S \d+ = (b.*)")
# KIPs' own words: what makes a method or class deprecated, in Java and in Scala
_DEPRECATION = re.compile(r"^\+.*(?:@Deprecated|@deprecated|\bDeprecated\b.*@since)", re.MULTILINE)


def facts(distribution: Distribution, series_: Sequence[series.Patch]) -> dict[str, Any]:
    """What can be said of the series without running any of it.

    Args:
        distribution: a build of the series.
        series_: the whole series. What it touches is reported of the patches that are built in.

    Returns:
        ``parts``: see ``sizes``; ``main``: changed files of Kafka's own code, by module; ``messages``: for each changed
        definition of a message whether fields changed, and its versions; ``parents``: superclasses of the errors,
        nearest first, by side; ``requests``: lowest and highest version by side; ``deprecations``: how many lines
        deprecate something.

    Raises:
        RackgateError: the build is of another series.
    """
    patches = series.Selection(opt_ins=distribution.opt_ins).choose(series_)
    if distribution.manifest["patch_hash"] != series.series_hash(patches):
        raise RackgateError("the built overlay is not of the present series; run `rackgate build` first")
    plan = recipe.load()
    files = sorted({file for patch in patches for file in patch.files})
    main: dict[str, list[str]] = {}
    for file in files:
        module, found, name = file.partition("/src/main/")
        if found:
            main.setdefault(module, []).append(name.rpartition("/")[2])
    stock = Jar(distribution.root / "libs" / f"kafka-clients-{plan.version}.jar")
    overlay = Jar(distribution.root / "overlay" / "clients-rackgate.jar", stock)
    return {
        "patch_hash": distribution.manifest["patch_hash"],
        "patches": len(patches),
        "parts": sizes(series_),
        "main": main,
        "main_files": sum(map(len, main.values())),
        "test_files": sum("/src/test/" in file for file in files),
        "messages": {
            name.rpartition("/")[2].removesuffix(".json"): _message(stock, overlay, name)
            for name in sorted(_definitions(files))
        },
        "parents": {
            side: {name: jar.parents(f"{_ERROR_PACKAGE}/{name}") for name in ERRORS}
            for side, jar in (("stock", stock), ("overlay", overlay))
        },
        "requests": {
            name: {
                side: jar.versions(f"{_DATA_PACKAGE}/{name}RequestData")
                for side, jar in (("stock", stock), ("overlay", overlay))
            }
            for name in REQUESTS
        },
        "deprecations": sum(len(_DEPRECATION.findall(patch.text)) for patch in patches),
    }


def sizes(patches: Sequence[series.Patch]) -> list[dict[str, Any]]:
    """How many patches each part of a series has, and how many lines they add to Kafka's main code and to its tests.

    Opt-in fixes have rows of their own. The last row is the sum of all others.

    Returns:
        Rows of ``part``, ``opt_in``, ``patches``, ``main_added`` and ``test_added``.
    """
    counts: dict[tuple[str, str], Counter[str]] = {(part, ""): Counter() for part in series.PARTS}
    counts |= {(series.FIXES, name): Counter() for name in series.opt_ins(patches)}
    total: Counter[str] = Counter()
    for patch in patches:
        main, test = patch.added_lines()
        row = Counter(patches=1, main_added=main, test_added=test)
        counts[patch.part, patch.opt_in] += row
        total += row
    ordered = sorted(counts, key=lambda key: (series.PARTS.index(key[0]), key[1]))
    rows = [(part, opt_in, counts[part, opt_in]) for part, opt_in in ordered]
    return [
        {"part": part, "opt_in": opt_in, **{key: row[key] for key in ("patches", "main_added", "test_added")}}
        for part, opt_in, row in [*rows, ("all", "", total)]
    ]


class Jar:
    """A jar, and what stands behind it on the class path.

    Args:
        path: of the jar.
        behind: asked for what this one has not.

    Raises:
        RackgateError: it can't be read.
    """

    def __init__(self, path: Path, behind: Jar | None = None) -> None:
        self._behind = behind
        try:
            with zipfile.ZipFile(path) as archive:
                self._content = {name: archive.read(name) for name in archive.namelist() if _wanted(name)}
        except (OSError, zipfile.BadZipFile) as error:
            raise RackgateError(f"{path}: can't be read: {error}; run `rackgate build --force`") from error

    def read(self, name: str) -> bytes | None:
        """An entry, or None."""
        if name in self._content:
            return self._content[name]
        return self._behind.read(name) if self._behind else None

    def parents(self, name: str) -> list[str]:
        """The superclasses that the jar has, nearest first, without packages; empty if it has not the class."""
        found: list[str] = []
        content = self.read(f"{name}.class")
        while content is not None and (above := class_file.parent(content)) not in ("", _TOP):
            found.append(above.rpartition(".")[2])
            content = self.read(f"{above.replace('.', '/')}.class")
        return found

    def versions(self, name: str) -> list[int]:
        """The lowest and the highest version of a message class; empty if the jar has not the class."""
        content = self.read(f"{name}.class")
        found = {
            match[1]: int.from_bytes(ast.literal_eval(match[2]), signed=True)
            for line in (class_file.surface(content) if content is not None else ())
            if (match := _VERSION.fullmatch(line))
        }
        return [found[side] for side in ("LOWEST", "HIGHEST") if side in found]


def _wanted(name: str) -> bool:
    if name.startswith("common/message/"):
        return name.endswith(".json")
    return name.endswith(".class") and name.startswith((_ERROR_PACKAGE, _DATA_PACKAGE))


def _definitions(files: Sequence[str]) -> set[str]:
    """Changed message definitions, of whatever module: records of the metadata log are some, too."""
    return {file for file in files if "/src/main/resources/" in file and file.endswith(".json")}


def _message(stock: Jar, overlay: Jar, file: str) -> dict[str, Any]:
    name = file.partition("/src/main/resources/")[2]
    before, after = stock.read(name), overlay.read(name)
    if before is None or after is None:
        return {"fields_changed": True, "versions": [], "was": []}
    old, new = _definition(before), _definition(after)
    return {
        "fields_changed": _fields(old) != _fields(new),
        "versions": str(new.get("validVersions")),
        "was": str(old.get("validVersions")),
    }


def _definition(content: bytes) -> Mapping[str, Any]:
    """Kafka's definitions are JSON with comments of whole lines."""
    lines = (line for line in content.decode("utf-8").splitlines() if not line.lstrip().startswith("//"))
    told: Mapping[str, Any] = json.loads("\n".join(lines))
    return told


def _fields(definition: Mapping[str, Any]) -> Any:
    """All that decides what is on the wire, without words for people."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(one) for key, one in value.items() if key != "about"}
        return [plain(one) for one in value] if isinstance(value, list) else value

    return {key: plain(value) for key, value in definition.items() if key in ("fields", "commonStructs", "apiKey")}
