"""A TOML table that is read key by key; what is wrong, missing or left over is an error with its full key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pyhooks.errors import RackgateError

W = TypeVar("W", bound=str | int)


class Table:
    """One table; each key is taken once, and ``done`` refuses what nobody took.

    Args:
        raw: as parsed.
        file: for errors.
        key: of the table, for errors.

    Every method but ``has`` and ``rest`` raises RackgateError if what it finds is not what it asks for.
    """

    def __init__(self, raw: object, file: Path, key: str) -> None:
        if not isinstance(raw, dict):
            raise RackgateError(f"{file}: [{key}] must be a table")
        self._raw = dict(raw)
        self._file = file
        self._key = key

    def wrong(self, key: str, why: str) -> RackgateError:
        """The error that names ``key``."""
        return RackgateError(f"{self._file}: key {self._key}.{key}: {why}")

    def _take(self, key: str) -> Any:
        if key not in self._raw:
            raise self.wrong(key, "is missing")
        return self._raw.pop(key)

    def text(self, key: str) -> str:
        """A text that is not empty."""
        value = self._take(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"must be a text, is {value!r}")
        return value

    def word(self, key: str, allowed: Sequence[W]) -> W:
        """One of a closed list of words or numbers."""
        value = self._take(key)
        for one in allowed:
            if type(value) is type(one) and value == one:
                return one
        raise self.wrong(key, f"must be one of {', '.join(map(str, allowed))}, is {value!r}")

    def words(self, key: str, allowed: Sequence[W]) -> tuple[W, ...]:
        """Different ones of a closed list."""
        value = self._take(key)
        told = ", ".join(map(str, allowed))
        if not isinstance(value, list) or not value or not all(one in allowed for one in value):
            raise self.wrong(key, f"must be a list of {told}, is {value!r}")
        if len(set(value)) != len(value):
            raise self.wrong(key, f"names one twice: {value!r}")
        return tuple(value)

    def has(self, key: str) -> bool:
        """Whether the key is there and not taken yet."""
        return key in self._raw

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._take(key)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, is {value!r}")
        return value

    def number(self, key: str, low: float, high: float = float("inf")) -> float:
        """A number from ``low`` to ``high``."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, f"must be a number, is {value!r}")
        if not low <= value <= high:
            raise self.wrong(key, f"must be from {low:g} to {high:g}, is {value:g}")
        return float(value)

    def whole(self, key: str, low: int, high: float = float("inf")) -> int:
        """A whole number from ``low`` to ``high``."""
        value = self._raw.get(key)
        if isinstance(value, float):
            raise self.wrong(key, f"must be a whole number, is {value!r}")
        return int(self.number(key, low, high))

    def numbers(self, key: str, low: float, high: float) -> tuple[float, ...]:
        """Numbers between ``low`` and ``high``."""
        value = self._take(key)
        good = isinstance(value, list) and value and all(isinstance(x, int | float) for x in value)
        if not good or not all(low < x < high for x in value):
            raise self.wrong(key, f"must be a list of numbers between {low:g} and {high:g}, is {value!r}")
        return tuple(float(x) for x in value)

    def ids(self, key: str) -> tuple[int, ...]:
        """Different broker ids."""
        value = self._take(key)
        if not isinstance(value, list) or not value or not all(type(x) is int and x >= 0 for x in value):
            raise self.wrong(key, f"must be a list of broker ids, is {value!r}")
        if len(set(value)) != len(value):
            raise self.wrong(key, f"names a broker twice: {value!r}")
        return tuple(value)

    def table(self, key: str) -> Table:
        """A table within this one."""
        return Table(self._take(key), self._file, f"{self._key}.{key}")

    def tables(self, key: str) -> list[Table]:
        """A list of tables."""
        value = self._take(key)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, "must be a list of tables")
        return [Table(raw, self._file, f"{self._key}.{key}[{n}]") for n, raw in enumerate(value)]

    def rest(self) -> dict[str, Any]:
        """What nobody took yet."""
        rest, self._raw = self._raw, {}
        return rest

    def done(self) -> None:
        """Refuses what nobody took."""
        for key in self._raw:
            raise self.wrong(key, "is not known")
