"""TOML files that a person writes, read with errors that say which file and where."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pyhooks.errors import RackgateError


def read(path: Path, purpose: str) -> dict[str, Any]:
    """Reads a file.

    Args:
        path: the file.
        purpose: what the file is for, as in "it lists the mutants".

    Raises:
        RackgateError: missing, not to be read, or not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RackgateError(f"{path}: can't be read, it is missing: {purpose}") from error
    except OSError as error:
        raise RackgateError(f"{path}: can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RackgateError(f"{path}: not TOML: {error}") from error
