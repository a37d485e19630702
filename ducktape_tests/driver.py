"""ducktape as ``rackgate system run`` starts it: ``python -m ducktape_tests.driver FOLDER`` and ducktape's own words.

Two things differ from the command ``ducktape``: its notes lie in FOLDER, since those of two that run in one place would
spoil each other, and what it is about to run is written to ``expected.json`` beside its report before anything runs, so
that nobody has to believe it that all ran.
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


class Telling(TestLoader):
    """Finds tests, and writes which it has found."""

    __test__ = False

    def load(self, symbols: list[str], excluded_test_symbols: Any = None) -> Any:
        """See TestLoader.load."""
        found = super().load(symbols, excluded_test_symbols=excluded_test_symbols)
        told = [
            {
                "test_id": one.test_id,
                "cls_name": one.cls_name,
                "function_name": one.function_name,
                "injected_args": one.injected_args,
                "ignored": bool(one.ignore),
            }
            for one in found
        ]
        file = Path(self.session_context.results_dir) / EXPECTED
        write_json(file, told)
        return found


def main() -> None:
    """Runs ducktape on the words after the first."""
    notes = Path(sys.argv.pop(1)).resolve() / "ducktape"
    ConsoleDefaults.METADATA_DIR = str(notes)
    ConsoleDefaults.SESSION_ID_FILE = str(notes / "session_id")
    command.TestLoader = Telling
    command.main()


if __name__ == "__main__":
    main()
