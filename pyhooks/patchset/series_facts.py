"""``rackgate patch facts``: size and effects of the series, from the patches and from the stock and overlay jars."""

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

# Exception classes whose superclasses are reported; a class that is in neither jar is reported as absent.
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
# Markers of a deprecation in an added line, in Java and in Scala.
_DEPRECATION = re.compile(r"^\+.*(?:@Deprecated|@deprecated|\bDeprecated\b.*@since)", re.MULTILINE)


def facts(distribution: Distribution, series_: Sequence[series.Patch]) -> dict[str, Any]:
    """Return facts about the series that need no running Kafka; all but ``parts`` cover only the patches in the build.

    Returns:
        ``patch_hash``, ``patches``, ``main_files`` and ``test_files``: hash of the series, and numbers of patches and
        changed files; ``parts``: see ``sizes``; ``main``: changed files of Kafka's main code, by module;
        ``messages``: for each changed message definition, whether fields changed, and its versions; ``parents``:
        superclasses of the exceptions, nearest first, by side (stock, overlay); ``requests``: lowest and highest
        version, by side; ``deprecations``: number of added lines that deprecate something.

    Raises:
        RackgateError: the build is of another series.
    """
    patches = series.Selection(opt_ins=distribution.opt_ins).choose(series_)
    series.check_build(distribution.manifest, patches)
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
    """Count the patches of each part, and the lines they add to Kafka's main code and tests.

    Each opt-in name has its own row of ``part``, ``opt_in``, ``patches``, ``main_added`` and ``test_added``; the last
    row is the total.
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
    """The error and message classes of a jar, with a fallback jar later on the class path.

    Raises:
        RackgateError: the jar can't be read.
    """

    def __init__(self, path: Path, fallback: Jar | None = None) -> None:
        self._content: dict[str, bytes] = dict(fallback._content) if fallback else {}
        try:
            with zipfile.ZipFile(path) as archive:
                self._content |= {name: archive.read(name) for name in archive.namelist() if _is_relevant(name)}
        except (OSError, zipfile.BadZipFile) as error:
            raise RackgateError(f"{path}: can't be read: {error}; run `rackgate build --force`") from error

    def read(self, name: str) -> bytes | None:
        """Return the content of an entry, or None."""
        return self._content.get(name)

    def parents(self, name: str) -> list[str]:
        """Return simple names of a class's superclasses, nearest first, until one is outside the jars' entries.

        Empty if the class is not found.
        """
        superclasses: list[str] = []
        content = self.read(f"{name}.class")
        while content is not None and (above := class_file.parent(content)) not in ("", _TOP):
            superclasses.append(above.rpartition(".")[2])
            content = self.read(f"{above.replace('.', '/')}.class")
        return superclasses

    def versions(self, name: str) -> list[int]:
        """Return the lowest and highest version of a message class; empty if the class is not found."""
        content = self.read(f"{name}.class")
        version_by_side = {
            match[1]: int.from_bytes(ast.literal_eval(match[2]), signed=True)
            for line in (class_file.surface(content) if content is not None else ())
            if (match := _VERSION.fullmatch(line))
        }
        return [version_by_side[side] for side in ("LOWEST", "HIGHEST") if side in version_by_side]


def _is_relevant(name: str) -> bool:
    if name.startswith("common/message/"):
        return name.endswith(".json")
    return name.endswith(".class") and name.startswith((_ERROR_PACKAGE, _DATA_PACKAGE))


def _definitions(files: Sequence[str]) -> set[str]:
    """Return changed message definitions of all modules; records of the metadata log are among them."""
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
    """Parse a message definition, which is JSON with whole-line comments."""
    lines = (line for line in content.decode("utf-8").splitlines() if not line.lstrip().startswith("//"))
    parsed: Mapping[str, Any] = json.loads("\n".join(lines))
    return parsed


def _fields(definition: Mapping[str, Any]) -> Any:
    """Return the parts of a definition that determine the wire format, without descriptions."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items() if key != "about"}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return {key: plain(value) for key, value in definition.items() if key in ("fields", "commonStructs", "apiKey")}
