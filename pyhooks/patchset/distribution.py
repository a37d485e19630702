"""What a build leaves behind: stock jars untouched, overlay jars that go before them, and a manifest of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_object

MANIFEST = "manifest.json"
FOLDERS = ("overlay", "libs", "spark", "hooks")
HOOKS = "hooks/rackgate-hooks.jar"

# of what is read from the manifest
_TYPES: Mapping[str, type] = {
    "files": dict,
    "kafka_version": str,
    "overlay": list,
    "patch_hash": str,
    "patches": list,
}


@dataclass(frozen=True)
class Distribution:
    """A built Kafka.

    Attributes:
        root: its folder, with ``libs/``, ``overlay/``, ``spark/``, ``hooks/`` and ``manifest.json``.
    """

    root: Path

    @staticmethod
    def load(root: Path | None = None) -> Distribution:
        """The distribution in ``root``, by default the one that ``rackgate build`` made last.

        The folder is resolved, so that a later build, which puts another one in its place, does not pull the
        jars away from under running processes.

        Raises:
            RackgateError: there is none.
        """
        root = root or paths.BUILD / "kafka-4.3.1" / "dist"
        if not (root / MANIFEST).is_file():
            raise RackgateError(f"no built Kafka in {root}: run `rackgate build`")
        return Distribution(root.resolve())

    def classpath(self, overlay: bool = True) -> str:
        """The class path of a broker or tool, the overlay first, or without it."""
        stock = f"{self.root}/libs/*"
        return f"{self.root}/overlay/*:{stock}" if overlay else stock

    def classes(self, overlay: bool = True) -> Path:
        """Archive of the loaded classes of that class path, see ``pyhooks.lab.class_data_sharing``."""
        return self.root / "classes" / ("overlay.jsa" if overlay else "stock.jsa")

    @property
    def overlay_classpath(self) -> str:
        """What a person puts into CLASSPATH for Kafka's own start scripts."""
        return f"{self.root}/overlay/*"

    @property
    def hooks(self) -> Path:
        """The jar of the project's own Java helpers; it is on no class path unless somebody puts it there.

        Raises:
            RackgateError: this build has none.
        """
        path = self.root / HOOKS
        if not path.is_file():
            raise RackgateError(f"{path} is missing: run `rackgate build`")
        return path

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The parsed ``manifest.json``.

        Raises:
            RackgateError: it cannot be read.
        """
        path, again = self.root / MANIFEST, "run `rackgate build --force`"
        parsed = read_object(path, again)
        for name, kind in _TYPES.items():
            if not isinstance(parsed.get(name), kind):
                raise RackgateError(f"{path}: {name} is {parsed.get(name)!r:.60}; {again}")
        return parsed

    @property
    def opt_ins(self) -> frozenset[str]:
        """The names of the opt-in fixes that are built in."""
        return frozenset(self.manifest.get("opt_ins", ()))

    @property
    def spark_jars(self) -> tuple[Path, ...]:
        """The jars that Spark needs for its Kafka source beside those of pyspark."""
        return tuple(sorted((self.root / "spark").glob("*.jar")))

    def damage(self) -> str:
        """What is not as the manifest says, in a few words, or empty if all is right."""
        from pyhooks.patchset.artifacts import sha256

        expected: Mapping[str, str] = self.manifest.get("files", {})
        present = {
            str(path.relative_to(self.root)): path
            for folder in FOLDERS
            for path in (self.root / folder).rglob("*")
            if path.is_file()
        }
        if stray := sorted(set(present) - set(expected)):
            return f"{stray[0]} is not of this build"
        for name, digest in expected.items():
            if name not in present:
                return f"{name} is missing"
            if sha256(present[name]) != digest:
                return f"{name} has changed"
        return ""
