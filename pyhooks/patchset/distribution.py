"""Distribution, the result of a build: unmodified stock jars, overlay jars that precede them, and a manifest."""

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

# Expected types of values that the code reads from the manifest.
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
        root: its folder, which contains ``libs/``, ``overlay/``, ``spark/``, ``hooks/`` and ``manifest.json``.
    """

    root: Path

    @staticmethod
    def load(root: Path | None = None) -> Distribution:
        """Return the distribution in ``root``, by default the latest default one of ``rackgate build``.

        The link is resolved, so that running processes keep their jars when a later build replaces the link.

        Raises:
            RackgateError: there is no distribution.
        """
        root = root or paths.BUILD / f"kafka-{paths.kafka_version()}" / "dist"
        if not (root / MANIFEST).is_file():
            raise RackgateError(f"no built Kafka in {root}: run `rackgate build`")
        return Distribution(root.resolve())

    def classpath(self, overlay: bool = True) -> str:
        """Return the class path of a broker or tool, with the overlay first or without it."""
        stock = f"{self.root}/libs/*"
        return f"{self.root}/overlay/*:{stock}" if overlay else stock

    def classes(self, overlay: bool = True) -> Path:
        """Return the class data sharing archive of this class path; see ``pyhooks.lab.class_data_sharing``."""
        return self.root / "classes" / ("overlay.jsa" if overlay else "stock.jsa")

    @property
    def overlay_classpath(self) -> str:
        """The value of CLASSPATH for Kafka's own start scripts."""
        return f"{self.root}/overlay/*"

    @property
    def hooks(self) -> Path:
        """The jar of the project's own Java helpers; callers add it to a class path explicitly.

        Raises:
            RackgateError: the jar is missing.
        """
        path = self.root / HOOKS
        if not path.is_file():
            raise RackgateError(f"{path} is missing: run `rackgate build`")
        return path

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The parsed ``manifest.json``.

        Raises:
            RackgateError: it can't be read, or a value is missing or of the wrong type.
        """
        path, again = self.root / MANIFEST, "run `rackgate build --force`"
        parsed = read_object(path, again)
        for name, kind in _TYPES.items():
            if not isinstance(parsed.get(name), kind):
                raise RackgateError(f"{path}: {name} is {parsed.get(name)!r:.60}; {again}")
        return parsed

    @property
    def opt_ins(self) -> frozenset[str]:
        """The names of the opt-in fixes in this build."""
        return frozenset(self.manifest.get("opt_ins", ()))

    @property
    def spark_jars(self) -> tuple[Path, ...]:
        """The jars that Spark's Kafka source needs in addition to those of pyspark."""
        return tuple(sorted((self.root / "spark").glob("*.jar")))

    def damage(self) -> str:
        """Describe the first file that differs from the manifest; empty if there is none."""
        from pyhooks.patchset.artifacts import sha256

        expected: Mapping[str, str] = self.manifest.get("files", {})
        present = {
            str(path.relative_to(self.root)): path
            for folder in FOLDERS
            for path in (self.root / folder).rglob("*")
            if path.is_file()
        }
        if stray := sorted(set(present) - set(expected)):
            return f"{stray[0]} does not belong to this build"
        for name, digest in expected.items():
            if name not in present:
                return f"{name} is missing"
            if sha256(present[name]) != digest:
                return f"{name} has changed"
        return ""
