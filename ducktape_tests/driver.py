"""Entry point of ducktape for ``rackgate system run``.

Usage: ``python -m ducktape_tests.driver FOLDER ARGUMENTS…``, with the arguments of the command ``ducktape``. ducktape
writes its metadata to FOLDER, because runs in one working directory would overwrite each other's. Before any test runs,
the tests that it found are written to ``expected.json`` beside its report, so that missing results are detected.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ducktape.command_line import main as command
from ducktape.command_line.defaults import ConsoleDefaults
from ducktape.tests.loader import TestLoader

from pyhooks.core.files import write_json

EXPECTED = "expected.json"


class RecordingLoader(TestLoader):
    """Test loader that records the tests it finds."""

    __test__ = False

    def load(self, symbols: list[str], excluded_test_symbols: Any = None) -> Any:
        """Find tests and record them; see TestLoader.load."""
        tests = super().load(symbols, excluded_test_symbols=excluded_test_symbols)
        expected = [
            {
                "test_id": test.test_id,
                "cls_name": test.cls_name,
                "function_name": test.function_name,
                "injected_args": test.injected_args,
                "ignored": bool(test.ignore),
            }
            for test in tests
        ]
        write_json(Path(self.session_context.results_dir) / EXPECTED, expected)
        return tests


def main() -> None:
    """Run ducktape with the arguments after the first."""
    metadata = Path(sys.argv.pop(1)).resolve() / "ducktape"
    ConsoleDefaults.METADATA_DIR = str(metadata)
    ConsoleDefaults.SESSION_ID_FILE = str(metadata / "session_id")
    command.TestLoader = RecordingLoader
    command.main()


if __name__ == "__main__":
    main()
