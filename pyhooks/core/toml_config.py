"""Reader for hand-written TOML files; each error names the file, the key and the allowed values in one line."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_text

V = TypeVar("V")
W = TypeVar("W", bound=str | int)
_INFINITE = float("inf")
# TOML guarantees 64-bit integers only
_MOST_INTEGER = 2**63 - 1


def read(path: Path, purpose: str) -> dict[str, Any]:
    """Parse a TOML file.

    Args:
        path: the file.
        purpose: what the file is for, as in "it lists the mutants".

    Raises:
        RackgateError: the file is missing, can't be read, or is not TOML.
    """
    text = read_text(path, purpose)
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise RackgateError(f"{path}: not TOML: nested too deeply") from error
    except ValueError as error:
        raise RackgateError(f"{path}: not TOML: {error}") from error


class Table:
    """TOML table that is read key by key: each key is read once, and ``done`` rejects keys that were not read.

    A key with a default is optional. A text or list must not be empty, unless ``empty`` is true or the key is optional.

    Args:
        raw: the parsed table.
        file: name of the file for errors.
        place: prefix of its keys in errors, such as ``latency.`` or ``claim no-loss: ``.

    Every method except ``wrong``, ``has``, ``left`` and ``rest`` raises RackgateError if the file does not match.
    """

    def __init__(self, raw: Mapping[str, Any], file: Path | str, place: str = "") -> None:
        self._raw = dict(raw)
        self._file = file
        self._place = place
        self._known: dict[str, None] = {}
        self._within: list[Table] = []

    def wrong(self, key: str, why: str) -> RackgateError:
        """Return an error that names ``key``."""
        # quoted keys and ids may contain line breaks or terminal control characters
        line = " ".join(f"{self._place}{key}: {why}".split())
        shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in line)
        return RackgateError(f"{self._file}: {shown}")

    def done(self) -> None:
        """Raise an error if a key of this table, or of a table read from it, was not read."""
        for key in self._raw:
            raise self.wrong(key, f"is not known; known here: {', '.join(self._known)}")
        for table in self._within:
            table.done()

    def has(self, key: str) -> bool:
        """Return whether the key is present and not read yet; it counts as a known key from now on."""
        self._known[key] = None
        return key in self._raw

    def left(self) -> tuple[str, ...]:
        """Return the keys not read yet, for a table whose keys the author of the file chooses."""
        return tuple(self._raw)

    def rest(self) -> dict[str, Any]:
        """Read all remaining keys and values without checks."""
        rest, self._raw = self._raw, {}
        return rest

    def value(self, key: str) -> Any:
        """Read a value of any type."""
        return self._take(key, "given", lambda _: True, None)

    def scalar(self, key: str) -> str | int | float | bool:
        """Read a text, a number, true or false."""
        return self._take(key, "a text, a number, true or false", lambda it: isinstance(it, str | int | float), None)

    def text(self, key: str, default: str | None = None, *, empty: bool = False) -> str:
        """Read a text."""
        empty |= default is not None
        what = "a text" if empty else "a text that is not empty"
        return self._take(key, what, lambda it: isinstance(it, str) and (empty or it.strip()), default)

    def texts(self, key: str, default: Sequence[str] | None = None, *, empty: bool = False) -> tuple[str, ...]:
        """Read a list of texts."""
        return self._list(key, "texts", lambda it: isinstance(it, str) and it, default, empty=empty)

    def word(self, key: str, allowed: Sequence[W], default: W | None = None) -> W:
        """Read one of a closed list of texts or numbers."""
        return self._take(key, f"one of {_told(allowed)}", lambda it: _is_of(it, allowed), default)

    def words(self, key: str, allowed: Sequence[W], default: Sequence[W] | None = None) -> tuple[W, ...]:
        """Read a list of distinct values from a closed list."""
        what = f"some of {_told(allowed)}"
        return self._list(key, what, lambda it: _is_of(it, allowed), default, different=True)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Read true or false."""
        return self._take(key, "true or false", lambda it: isinstance(it, bool), default)

    def number(self, key: str, low: float = -_INFINITE, high: float = _INFINITE, default: float | None = None) -> float:
        """Read a number from ``low`` to ``high``."""
        what = f"a number{_bounds(low, high)}"
        return float(self._take(key, what, lambda it: _finite(it) and low <= it <= high, default))

    def numbers(self, key: str, low: float, high: float) -> tuple[float, ...]:
        """Read a list of numbers between ``low`` and ``high``, both excluded."""
        what = f"numbers between {low:g} and {high:g}"
        found: tuple[float, ...] = self._list(key, what, lambda it: _finite(it) and low < it < high, None)
        return tuple(map(float, found))

    def whole(self, key: str, low: int, high: float = _INFINITE, default: int | None = None) -> int:
        """Read an integer from ``low`` to ``high``."""
        what = f"a whole number{_bounds(low, high)}"
        return self._take(key, what, lambda it: _integer(it) and low <= it <= high, default)

    def wholes(self, key: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Read a list of distinct integers of 0 or more, such as node IDs."""
        what = "whole numbers of 0 or more"
        return self._list(key, what, lambda it: _integer(it) and it >= 0, default, different=True)

    def table(self, key: str, default: Mapping[str, Any] | None = None) -> Table:
        """Read a table within this one."""
        return self._below(self._take(key, "a table", lambda it: isinstance(it, dict), default), f"{key}.")

    def tables(self, key: str, default: Sequence[Mapping[str, Any]] | None = None) -> list[Table]:
        """Read a list of tables; errors name each by its id or name, else by its number from 1."""
        found = self._list(key, "tables", lambda it: isinstance(it, dict), default)
        return [
            self._below(raw, f"{key} {raw.get('id') or raw.get('name') or number}: ")
            for number, raw in enumerate(found, 1)
        ]

    def _below(self, raw: Mapping[str, Any], place: str) -> Table:
        self._within.append(Table(raw, self._file, self._place + place))
        return self._within[-1]

    def _take(self, key: str, what: str, good: Callable[[Any], object], default: V | None) -> V:
        if not self.has(key):
            if default is None:
                raise self.wrong(key, f"is missing, must be {what}")
            return default
        value: V = self._raw.pop(key)
        if not good(value):
            raise self.wrong(key, f"must be {what}, is {value!r:.100}")
        return value

    def _list(
        self,
        key: str,
        what: str,
        good: Callable[[Any], object],
        default: Sequence[V] | None,
        *,
        empty: bool = False,
        different: bool = False,
    ) -> tuple[V, ...]:
        empty |= default is not None

        def right(it: Any) -> object:
            return isinstance(it, list) and (empty or it) and all(map(good, it))

        found = tuple(self._take(key, f"a list of {what}", right, default))
        if different and len(set(found)) < len(found):
            raise self.wrong(key, f"names one twice: {list(found)!r:.100}")
        return found


def _integer(value: object) -> bool:
    return type(value) is int and abs(value) <= _MOST_INTEGER


def _finite(value: object) -> bool:
    return _integer(value) or (type(value) is float and math.isfinite(value))


def _is_of(value: object, allowed: Sequence[object]) -> bool:
    # True equals 1 in Python, but not in TOML
    return any(type(value) is type(one) and value == one for one in allowed)


def _told(allowed: Sequence[object]) -> str:
    return ", ".join(map(str, allowed))


def _bounds(low: float, high: float) -> str:
    if high < _INFINITE:
        return f" from {low:g} to {high:g}"
    return f" of {low:g} or more" if low > -_INFINITE else ""
