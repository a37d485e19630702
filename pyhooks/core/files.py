"""Input and output files of commands: strict JSON, and results that replace earlier ones atomically."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from pyhooks.core.errors import RackgateError

# Exceptions of code that evaluates a value of an unexpected type or form.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MAX_INTEGER = 2**64


def read_text(path: Path, purpose: str) -> str:
    """Return a file's text; ``purpose`` says in errors what it is for or how to make it, as in "it lists the mutants".

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
        constants: converts NaN and Infinity; without it they are rejected.

    Raises:
        RackgateError: it can't be read, or ``parse_json`` rejects it.
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
    content = read_json(path, advice)
    if not isinstance(content, dict):
        raise RackgateError(f"{path}: must be a JSON object, is {content!r:.60}; {advice}")
    return content


def complete_lines(text: str) -> list[str]:
    """Return the lines of an append-only file without an incomplete last line, which a killed writer may have left."""
    return text.split("\n")[:-1]


def parse_json(text: str, *, constants: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON strictly: no duplicate keys, and no numbers or strings that can't be serialized again.

    ``constants`` converts NaN and Infinity; without it they are rejected.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or contains a duplicate key, a number that is not finite, an
            integer beyond 64 bits or a lone surrogate.
    """
    try:
        parsed = json.loads(
            text,
            parse_constant=constants or _reject_constant,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=unique_keys,
        )
        if "\\u" in text:
            json.dumps(parsed, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return parsed


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object as a dictionary.

    Raises:
        ValueError: a key occurs twice.
    """
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r:.60} occurs twice")
    return mapping


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text:.60} is too large")
    return number


def _integer(text: str) -> int:
    # int() rejects texts of several thousand digits
    number = int(text) if len(text) < 100 else _MAX_INTEGER
    if abs(number) >= _MAX_INTEGER:
        raise ValueError(f"{text:.60} is too large")
    return number


@contextmanager
def evaluating(path: Path, expected: str) -> Iterator[None]:
    """Report an exception in the body, which evaluates a stored file, as a malformed file.

    ``expected`` is what it should be and how to make it, as in "a result of 'rackgate bench run'".

    Raises:
        RackgateError: the body raised it, or any exception other than OSError and MemoryError.
    """
    try:
        yield
    except (RackgateError, OSError, MemoryError):
        raise
    except Exception as error:  # templates and drawing libraries raise their own exception classes
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


def write(contents: Mapping[Path, str | bytes], *, mode: int | None = None) -> None:
    """Replace several files atomically once all content is written, so that a full disk leaves the old files intact.

    Missing folders are created. A symbolic link stays a link; its target is replaced. ``mode`` has the permission bits
    of the files; None is the default of the process.

    Raises:
        RackgateError: a file can't be written; the error names it and the reason.
    """
    temporaries: dict[Path, Path] = {}
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
                temporaries[temporary] = target
                if mode is not None:
                    # no other user reads the content before the file has its mode
                    temporary.touch(0o600)
                temporary.write_bytes(content.encode() if isinstance(content, str) else content)
                if mode is not None:
                    temporary.chmod(mode)
        for temporary, target in temporaries.items():
            with writing(target):
                temporary.replace(target)
    finally:
        for temporary in temporaries:
            with suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str, *, mode: int | None = None) -> None:
    """Write a file, as ``write`` does."""
    write({path: text}, mode=mode)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, as ``write`` does; a number that is not finite fails here instead of in the reader."""
    write({path: json_text(value)})


def json_text(value: Any) -> str:
    """Return a value as indented JSON that ends with a newline."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def put_in_place(finished: Path, target: Path) -> None:
    """Move a finished file or folder to its place in one step; missing folders above it are created."""
    target.parent.mkdir(parents=True, exist_ok=True)
    finished.replace(target)


def delete_stale(folder: Path, pattern: str, age_s: float) -> None:
    """Delete matching folders that were last changed more than ``age_s`` seconds ago: killed processes left them."""
    for left in folder.glob(pattern):
        # another process may delete it at the same time
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > age_s:
                shutil.rmtree(left, ignore_errors=True)
