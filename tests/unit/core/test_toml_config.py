"""Validation of hand-written TOML files: accepted values, and one-line errors for invalid ones."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from pyhooks.core import toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import DistinctNaturals, Table, Text

ReadValue = Callable[[Table], Any]


def parse_table(text: str) -> Table:
    return Table(tomllib.loads(text), "f.toml")


@pytest.mark.parametrize(
    ("read_value", "text", "value"),
    [
        (lambda t: t.text("k"), "k = 'a'", "a"),
        (lambda t: t.text("k", ""), "k = ''", ""),
        (lambda t: t.text("k", "b"), "", "b"),
        (lambda t: t.text("k", empty=True), "k = ''", ""),
        (lambda t: t.texts("k"), "k = ['a', 'a']", ("a", "a")),
        (lambda t: t.texts("k", ("b",)), "k = []", ()),
        (lambda t: t.texts("k", ("b",)), "", ("b",)),
        (lambda t: t.choice("k", (0, 1)), "k = 1", 1),
        (lambda t: t.choices("k", ("a", "b", "c")), "k = ['c', 'a']", ("c", "a")),
        (lambda t: t.flag("k", True), "k = false", False),
        (lambda t: t.flag("k", False), "", False),
        (lambda t: t.number("k", 1, 2), "k = 2", 2.0),
        (lambda t: t.number("k"), "k = -3.5", -3.5),
        (lambda t: t.number("k", 1, default=0.5), "", 0.5),
        (lambda t: t.numbers("k", 0, 1), "k = [0.5, 0.5]", (0.5, 0.5)),
        (lambda t: t.whole("k", 0), "k = 0", 0),
        (lambda t: t.wholes("k"), "k = [3, 1]", (3, 1)),
        (lambda t: t.wholes("k", (0,)), "", (0,)),
        (lambda t: t.scalar("k"), "k = true", True),
        (lambda t: t.get("k", Any), "k = [{ a = 1 }]", [{"a": 1}]),
        (lambda t: t.table("k").rest(), "k = { a = 1 }", {"a": 1}),
        (lambda t: t.table("k", {}).left(), "", ()),
        (lambda t: [entry.whole("a", 0) for entry in t.tables("k")], "k = [{ a = 1 }, { a = 2 }]", [1, 2]),
        (lambda t: t.tables("k", ()), "", []),
    ],
)
def test_a_value_of_the_expected_type_is_accepted(read_value: ReadValue, text: str, value: Any) -> None:
    root = parse_table(text)
    assert read_value(root) == value
    root.done()


@pytest.mark.parametrize(
    ("read_value", "text", "error"),
    [
        (lambda t: t.text("k"), "", "k: is missing"),
        (lambda t: t.text("k"), "k = ' '", "k: must not be empty, is ' '"),
        (lambda t: t.text("k", ""), "k = 1", "k: must be a valid string, is 1"),
        (lambda t: t.texts("k"), "k = 'a'", "k: must be a valid array, is 'a'"),
        (lambda t: t.texts("k"), "k = []", "k: must have at least 1 item after validation, not 0, is []"),
        (lambda t: t.texts("k", ()), "k = ['']", "k: value 1 must not be empty, is ['']"),
        (lambda t: t.choice("k", (0, 1)), "k = true", "k: must be one of 0, 1, is True"),
        (lambda t: t.choice("k", ("a", "b")), "k = ['a']", "k: must be one of a, b, is ['a']"),
        (lambda t: t.choices("k", ("a", "b")), "k = ['a', 'c']", "k: value 2 must be one of a, b, is ['a', 'c']"),
        (lambda t: t.choices("k", ("a", "b")), "k = ['a', 'a']", "k: contains a duplicate, is ['a', 'a']"),
        (lambda t: t.choices("k", ("a", "b")), "k = [['a']]", "k: value 1 must be one of a, b, is [['a']]"),
        (lambda t: t.flag("k", False), "k = 0", "k: must be a valid boolean, is 0"),
        (lambda t: t.number("k"), "k = true", "k: must be a valid number, is True"),
        (lambda t: t.number("k", 1), "k = 0.5", "k: must be greater than or equal to 1, is 0.5"),
        (lambda t: t.number("k", 1, 2), "k = nan", "k: must be a finite number, is nan"),
        (lambda t: t.numbers("k", 0, 1), "k = [1]", "k: value 1 must be less than 1, is [1]"),
        (lambda t: t.whole("k", 1, 9), "k = 10", "k: must be less than or equal to 9, is 10"),
        (lambda t: t.text("k"), "k = 1979-05-27", "k: must be a valid string, is datetime.date(1979, 5, 27)"),
        (lambda t: t.whole("k", 1, 9), "k = 2.0", "k: must be a valid integer, is 2.0"),
        (lambda t: t.wholes("k"), "k = [-1]", "k: value 1 must be greater than or equal to 0, is [-1]"),
        (lambda t: t.wholes("k"), "k = [true]", "k: value 1 must be a valid integer, is [True]"),
        (lambda t: t.wholes("k", ()), "k = [1, 1]", "k: contains a duplicate, is [1, 1]"),
        (lambda t: t.scalar("k"), "k = []", "k: must be a text, a number, true or false, is []"),
        (lambda t: t.table("k"), "k = 1", "k: must be an object, is 1"),
        (lambda t: t.tables("k"), "k = []", "k: must have at least 1 item after validation, not 0, is []"),
        (lambda t: t.tables("k", ()), "[k]", "k: must be a valid array, is {}"),
        (lambda t: t.table("k").table("l").text("m"), "k = { l = {} }", "k.l.m: is missing"),
        (lambda t: t.tables("k")[1].text("m"), "[[k]]\n[[k]]", "k 2: m: is missing"),
        (
            lambda t: t.tables("k")[0].tables("l")[0].text("m"),
            "k = [{ id = 'a', l = [{}] }]",
            "k a: l 1: m: is missing",
        ),
        (lambda t: t.tables("k")[0].table("l").text("m"), "k = [{ name = 'a\\nb', l = {} }]", "k a b: l.m: is missing"),
        (lambda t: t.text("k"), f"k = {list(range(900))}", "k: must be a valid string, is [0, 1, 2, "),
    ],
)
def test_an_invalid_value_is_a_short_one_line_error(read_value: ReadValue, text: str, error: str) -> None:
    with pytest.raises(RackgateError) as caught:
        read_value(parse_table(text.replace("'a\\nb'", '"a\\nb"')))
    assert str(caught.value).startswith(f"f.toml: {error}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a = 1\nc = 1", "f.toml: c: unknown key; known keys: a, b, d, e"),
        ("a = 1\nd = { c = 1 }", "f.toml: d.c: unknown key; known keys: f"),
        ("a = 1\ne = [{ name = 'x', c = 1 }]", "f.toml: e x: c: unknown key; known keys: name"),
    ],
)
def test_an_unknown_key_is_an_error_at_any_depth(text: str, error: str) -> None:
    root = parse_table(text)
    assert root.has("a")
    root.whole("a", 0)
    assert not root.has("a")
    root.text("b", "")
    root.table("d", {}).text("f", "")
    for entry in root.tables("e", ()):
        entry.text("name")
    with pytest.raises(RackgateError) as caught:
        root.done()
    assert str(caught.value) == error


@dataclass(frozen=True)
class Example:
    name: Text
    ids: DistinctNaturals = ()
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    path: str = ""


def read_example(root: Table) -> Example:
    example = root.into(Example, path="p")
    root.done()
    return example


def test_a_table_becomes_a_dataclass() -> None:
    assert read_example(parse_table("name = 'a'\nids = [2, 1]")) == Example("a", (2, 1), 0.5, "p")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "f.toml: name: is missing"),
        ("name = ''", "f.toml: name: must not be empty, is ''"),
        ("name = 'a'\nids = [1, 1]", "f.toml: ids: contains a duplicate, is [1, 1]"),
        ("name = 'a'\nids = ['1']", "f.toml: ids: value 1 must be a valid integer, is ['1']"),
        ("name = 'a'\nshare = 1", "f.toml: share: must be less than 1, is 1"),
        ("name = 'a'\nshare = true", "f.toml: share: must be a valid number, is True"),
        ("name = 'a'\npath = 'p'", "f.toml: path: unknown key; known keys: name, ids, share"),
    ],
)
def test_a_table_that_does_not_match_the_dataclass_is_an_error(text: str, expected: str) -> None:
    with pytest.raises(RackgateError) as caught:
        read_example(parse_table(text))
    assert str(caught.value) == expected


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    with pytest.raises(RackgateError, match=r"f\.toml: .*missing: purpose"):
        toml_config.read(path, "purpose")
    path.write_bytes(b"\xff")
    with pytest.raises(RackgateError, match="not UTF-8"):
        toml_config.read(path, "purpose")
    with pytest.raises(RackgateError, match="can't be read: Is a directory"):
        toml_config.read(tmp_path, "purpose")
