"""A user's checkout of apache/kafka: its version, its fingerprint and the cases of its kafkatest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ducktape_tests.kafkatest.cases import Case
from pyhooks.core import paths, process
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_text
from pyhooks.patchset.git import git
from pyhooks.patchset.series import Patch

# Older tests start ZooKeeper and use options that Kafka 4 has not.
MAJOR = "4"
COLLECT_TIMEOUT_S = 120.0
FOLDERS = ("tests", "bin", "config")
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True)
class Checkout:
    """A checkout that has kafkatest; nothing in it is changed.

    Attributes:
        version: of its kafkatest, such as ``4.0.0.dev0``.
    """

    root: Path
    version: str

    @staticmethod
    def open(root: Path) -> Checkout:
        """Return the checkout in ``root``.

        Raises:
            RackgateError: no such folder, it has no kafkatest or no scripts, or its version does not fit.
        """
        option = f"--checkout {root}"
        if not root.is_dir():
            raise RackgateError(f"{option}: no such folder")
        init = root / "tests" / "kafkatest" / "__init__.py"
        for needed in (init, root / "bin" / "kafka-run-class.sh", root / "config"):
            if not needed.exists():
                missing = needed.relative_to(root)
                raise RackgateError(f"{option}: has no {missing}; give the root of a checkout of apache/kafka")
        match = _VERSION.search(read_text(init, "it has the version of kafkatest"))
        if match is None:
            raise RackgateError(f"{init}: has no __version__")
        if match[1].split(".")[0] != MAJOR:
            raise RackgateError(f"{option}: its kafkatest is of version {match[1]}, must be {MAJOR}.x")
        return Checkout(root.resolve(), match[1])

    @property
    def tests(self) -> Path:
        """Folder of the package kafkatest."""
        return self.root / "tests" / "kafkatest"

    def fingerprint(self) -> str:
        """Return a short hash of the tests, scripts and configuration."""
        digest = hashlib.sha256()
        for folder in (self.tests, self.root / "bin", self.root / "config"):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    digest.update(f"{path.relative_to(self.root)}\0".encode() + path.read_bytes())
        return digest.hexdigest()[:12]

    @contextmanager
    def patched(self, patches: Sequence[Patch]) -> Iterator[Checkout]:
        """Yield a temporary copy of tests, scripts and configuration with these patches.

        Raises:
            RackgateError: a patch does not apply.
        """
        with tempfile.TemporaryDirectory(prefix="rackgate-kafkatest-") as temporary:
            copy = Path(temporary).resolve()
            for folder in FOLDERS:
                shutil.copytree(self.root / folder, copy / folder, symlinks=True)
            # a repository of its own, in case the folder for temporary files is in one
            git(copy, "init", "--quiet", task="copy the checkout")
            for patch in patches:
                git(copy, "apply", "--whitespace=nowarn", str(patch.path.resolve()), task=f"apply {patch.name}")
            yield Checkout(copy, self.version)

    def environment(self) -> dict[str, str]:
        """Return the environment of programs that import kafkatest: they find it, and write no bytecode into it."""
        python_path = os.pathsep.join([str(paths.REPO), str(self.root / "tests")])
        return os.environ | {"PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"}

    def cases(self, python: Path) -> tuple[Case, ...]:
        """Return all cases.

        Args:
            python: interpreter of the environment with ducktape.

        Raises:
            RackgateError: ducktape could not list them.
        """
        command = [str(python), "-m", "ducktape_tests.kafkatest.collect", str(self.root)]
        listed = process.run(
            command, task="list of the checkout's tests", timeout_s=COLLECT_TIMEOUT_S, env=self.environment()
        )
        return tuple(Case(**case) for case in json.loads(listed))
