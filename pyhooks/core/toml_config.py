"""Reader for hand-written TOML files; each error names the file, the key and the allowed values in one line."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_text

V = TypeVar("V")
W = TypeVar("W", bound=str | int)
_INFINITE = float("inf")
# TOML guarantees 64-bit integers only
MAX_INTEGER = 2**63 - 1


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def matching(pattern: str, form: str) -> AfterValidator:
    """Return the validator of a text that matches a regular expression; ``form`` describes it in errors."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"must be {form}")
        return text

    return AfterValidator(check)


def _distinct(values: tuple[V, ...]) -> tuple[V, ...]:
    if len(set(values)) < len(values):
        raise ValueError("contains a duplicate")
    return values


def _scalar(value: V) -> V:
    if not isinstance(value, str | int | float):
        raise ValueError("must be a text, a number, true or false")
    return value


# Types of dataclass fields for ``Table.into``.
Text = Annotated[str, AfterValidator(_not_blank)]
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]
Natural = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
DistinctNaturals = Annotated[tuple[Natural, ...], AfterValidator(_distinct)]
Naturals = Annotated[DistinctNaturals, Field(min_length=1)]
_Tables = Annotated[list[dict[str, Any]], Field(min_length=1)]


def read(path: Path, purpose: str) -> dict[str, Any]:
    """Parse a TOML file; ``purpose`` is what it is for, as in "it lists the mutants".

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
        printable = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
            for character in line
        )
        return RackgateError(f"{self._file}: {printable}")

    def done(self) -> None:
        """Raise an error if a key of this table, or of a table read from it, was not read."""
        for key in self._raw:
            raise self.wrong(key, f"unknown key; known keys: {', '.join(self._known)}")
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

    def into(self, kind: type[V], **given: Any) -> V:
        """Read the fields of a dataclass, each from the key of its name; its annotation defines the valid values.

        A field with a default is optional; ``given`` has the fields that do not come from keys of their names.
        """
        # mypy does not consider type[V] hashable
        cached: Any = kind
        values: dict[str, Any] = {
            name: self.get(name, type_)
            for name, (type_, required) in _fields(cached).items()
            if name not in given and (required or self.has(name))
        }
        return kind(**values, **given)

    def get(self, key: str, kind: Any, default: V | None = None) -> V:
        """Read a value of a type that pydantic can validate; without a default the key is required."""
        if not self.has(key):
            if default is None:
                raise self.wrong(key, "is missing")
            return default
        value = self._raw.pop(key)
        try:
            # JSON, because only its strict mode reads lists into tuples
            validated: V = _adapter(kind).validate_json(json.dumps(value, default=_date), strict=True)
        except ValidationError as error:
            raise self.wrong(key, f"{_reason(error)}, is {value!r:.100}") from error
        return validated

    def scalar(self, key: str) -> str | int | float | bool:
        """Read a text, a number, true or false."""
        return self.get(key, Annotated[Any, AfterValidator(_scalar)])

    def text(self, key: str, default: str | None = None, *, empty: bool = False) -> str:
        """Read a text."""
        return self.get(key, str if empty or default is not None else Text, default)

    def texts(self, key: str, default: Sequence[str] | None = None, *, empty: bool = False) -> tuple[str, ...]:
        """Read a list of texts."""
        optional = empty or default is not None
        return tuple(self.get(key, tuple[Text, ...] if optional else Texts, default))

    def choice(self, key: str, allowed: Sequence[W], default: W | None = None) -> W:
        """Read one of a closed list of texts or numbers."""
        return self.get(key, Annotated[Any, _one_of(tuple(allowed))], default)

    def choices(self, key: str, allowed: Sequence[W], default: Sequence[W] | None = None) -> tuple[W, ...]:
        """Read a list of distinct values from a closed list."""
        return tuple(self.get(key, _distinct_choices(tuple(allowed), int(default is None)), default))

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Read true or false."""
        return self.get(key, bool, default)

    def number(self, key: str, low: float = -_INFINITE, high: float = _INFINITE, default: float | None = None) -> float:
        """Read a number from ``low`` to ``high``."""
        return self.get(key, _number(low, high), default)

    def numbers(self, key: str, low: float, high: float) -> tuple[float, ...]:
        """Read a list of numbers between ``low`` and ``high``, both excluded."""
        return self.get(key, _numbers(low, high))

    def whole(self, key: str, low: int, high: int = MAX_INTEGER, default: int | None = None) -> int:
        """Read an integer from ``low`` to ``high``."""
        return self.get(key, _whole(low, high), default)

    def wholes(self, key: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Read a list of distinct integers of 0 or more, such as node IDs."""
        return tuple(self.get(key, Naturals if default is None else DistinctNaturals, default))

    def table(self, key: str, default: Mapping[str, Any] | None = None) -> Table:
        """Read a table within this one."""
        return self._below(self.get(key, dict[str, Any], default), f"{key}.")

    def tables(self, key: str, default: Sequence[Mapping[str, Any]] | None = None) -> list[Table]:
        """Read a list of tables; errors name each by its id or name, else by its number from 1."""
        kind: Any = _Tables if default is None else list[dict[str, Any]]
        return [
            self._below(raw, f"{key} {raw.get('id') or raw.get('name') or number}: ")
            for number, raw in enumerate(self.get(key, kind, default), 1)
        ]

    def _below(self, raw: Mapping[str, Any], place: str) -> Table:
        self._within.append(Table(raw, self._file, self._place + place))
        return self._within[-1]


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))


# A type with a ``Field`` equals only itself. These are cached so that ``_adapter``, which is slow, finds its adapter.


@lru_cache(maxsize=64)
def _number(low: float, high: float) -> Any:
    return Annotated[float, Field(ge=low, le=high)]


@lru_cache(maxsize=64)
def _numbers(low: float, high: float) -> Any:
    return Annotated[tuple[Annotated[float, Field(gt=low, lt=high)], ...], Field(min_length=1)]


@lru_cache(maxsize=64)
def _whole(low: int, high: int) -> Any:
    return Annotated[int, Field(ge=low, le=high)]


@lru_cache(maxsize=64)
def _distinct_choices(allowed: tuple[object, ...], min_length: int) -> Any:
    choices = tuple[Annotated[Any, _one_of(allowed)], ...]
    return Annotated[choices, Field(min_length=min_length), AfterValidator(_distinct)]


@lru_cache(maxsize=64)
def _fields(kind: Any) -> Mapping[str, tuple[Any, bool]]:
    """Return the type of each field of a dataclass, and whether the field has no default."""
    types = get_type_hints(kind, include_extras=True)
    missing = dataclasses.MISSING
    return {
        field.name: (types[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
    }


@lru_cache(maxsize=64)
def _one_of(allowed: tuple[object, ...]) -> AfterValidator:
    def check(value: object) -> object:
        # True equals 1 in Python, but not in TOML
        if not any(type(value) is type(choice) and value == choice for choice in allowed):
            raise ValueError(f"must be one of {', '.join(map(str, allowed))}")
        return value

    return AfterValidator(check)


def _date(value: object) -> dict[str, None]:
    # no key is a date or a time, and a text would be valid for some
    return {str(value): None}


def _reason(error: ValidationError) -> str:
    """Return the first reason in the form "must be …", with the position in a list."""
    first = error.errors(include_url=False)[0]
    position = "".join(f"value {at + 1} " for at in first["loc"] if isinstance(at, int))
    return position + re.sub(
        r"^(Value error, |\w+ (?=should))(should)?", lambda m: "must" if m[2] else "", first["msg"]
    )
