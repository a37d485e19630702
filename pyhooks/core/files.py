"""Files that commands read and write: strict JSON, and results that replace earlier ones whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from pyhooks.core.errors import RackgateError

# What code raises that evaluates a value of another type or form than it expects.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MOST_INTEGER = 2**64


def read_text(path: Path, purpose: str) -> str:
    """Return a file's text.

    Args:
        path: the file.
        purpose: what the file is for or how to make it, as in "it lists the mutants".

    Raises:
        RackgateError: it is missing, can't be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RackgateError(f"{path}: can't be read, it is missing: {purpose}") from error
    except OSError as error:
        raise RackgateError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RackgateError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}; {purpose}") from error
    except ValueError as error:
        # a null character in the path
        raise RackgateError(f"{path}: can't be read: {error}") from error


def read_json(path: Path, advice: str, *, constants: Callable[[str], Any] | None = None) -> Any:
    """Return the content of a JSON file.

    Args:
        path: the file.
        advice: how to make it, for errors, as in "'rackgate bench run' writes it".
        constants: what NaN and Infinity become; they are refused without it.

    Raises:
        RackgateError: it can't be read, or is not JSON as ``parse_json`` requires it.
    """
    text = read_text(path, advice)
    try:
        return parse_json(text, constants=constants)
    except ValueError as error:
        raise RackgateError(f"{path}: not JSON: {error}; {advice}") from error


def read_object(path: Path, advice: str) -> dict[str, Any]:
    """Return the content of a JSON file that is an object.

    Raises:
        RackgateError: as for ``read_json``, or it is not an object.
    """
    found = read_json(path, advice)
    if not isinstance(found, dict):
        raise RackgateError(f"{path}: must be a JSON object, is {found!r:.60}; {advice}")
    return found


def parse_json(text: str, *, constants: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON strictly: no duplicate keys, and no numbers or strings that can't be written again.

    Args:
        text: the JSON.
        constants: what NaN and Infinity become; they are refused without it.

    Raises:
        ValueError: it is not JSON, nested too deeply, has a key twice, a number that is not finite or an integer beyond
            64 bits, or half of a surrogate pair.
    """
    try:
        found = json.loads(
            text,
            parse_constant=constants or _refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=unique_keys,
        )
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return found


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary of JSON members.

    Raises:
        ValueError: a key occurs twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r:.60} occurs twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text:.60} is too large")
    return number


def _integer(text: str) -> int:
    # more digits are refused by Python
    number = int(text) if len(text) < 100 else _MOST_INTEGER
    if abs(number) >= _MOST_INTEGER:
        raise ValueError(f"{text:.60} is too large")
    return number


@contextmanager
def evaluating(path: Path, expected: str) -> Iterator[None]:
    """Report an exception in the body, which evaluates a stored file, as a malformed file.

    Args:
        path: the file.
        expected: what it should be and how to make it, as in "a result of 'rackgate bench run'".

    Raises:
        RackgateError: the body raised it, or raised what a value of an unexpected type or form causes.
    """
    try:
        yield
    except (RackgateError, OSError, MemoryError):
        raise
    except Exception as error:  # templates and drawing libraries raise exceptions of their own
        why = f"{type(error).__name__}: {error}"
        raise RackgateError(f"{path}: malformed, not {expected}: {' '.join(why.split()):.200}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report an operating system error in the body, which writes a file or folder, with its path.

    Raises:
        RackgateError: names the path and the reason, such as a full disk.
    """
    try:
        yield
    except OSError as error:
        raise RackgateError(f"{path}: can't be written: {error.strerror or error}") from error


def write(contents: Mapping[Path, str | bytes]) -> None:
    """Write files, all of them or none: a full disk leaves earlier files in their places as they were.

    Folders are made. A file that is a symbolic link stays one; its target is replaced.

    Raises:
        RackgateError: one can't be written, says which and why.
    """
    whole: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            with writing(path):
                target = Path(os.path.realpath(path))
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                except FileExistsError as error:
                    raise NotADirectoryError(None, f"{target.parent} is not a folder") from error
                if target.is_dir():
                    raise IsADirectoryError(None, "Is a directory")
                # two processes must not write to the same temporary file
                temporary = target.with_name(f".{target.name}.{os.getpid()}.new")
                whole[temporary] = target
                temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        for temporary, target in whole.items():
            with writing(target):
                temporary.replace(target)
    finally:
        for temporary in whole:
            with suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a file, as ``write`` does."""
    write({path: text})


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, as ``write`` does; a number that is not finite is an error here, not in the reader."""
    write({path: json_text(value)})


def json_text(value: Any) -> str:
    """Return a value as indented JSON that ends with a newline."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
