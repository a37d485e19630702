"""Reader of hand-written TOML files: values it accepts, and one-line errors for those it refuses."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyhooks.core import toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table

Take = Callable[[Table], Any]


def table(text: str) -> Table:
    return Table(tomllib.loads(text), "f.toml")


@pytest.mark.parametrize(
    ("take", "text", "value"),
    [
        (lambda t: t.text("k"), "k = 'a'", "a"),
        (lambda t: t.text("k", ""), "k = ''", ""),
        (lambda t: t.text("k", "b"), "", "b"),
        (lambda t: t.text("k", empty=True), "k = ''", ""),
        (lambda t: t.texts("k"), "k = ['a', 'a']", ("a", "a")),
        (lambda t: t.texts("k", ("b",)), "k = []", ()),
        (lambda t: t.texts("k", ("b",)), "", ("b",)),
        (lambda t: t.word("k", (0, 1)), "k = 1", 1),
        (lambda t: t.words("k", ("a", "b", "c")), "k = ['c', 'a']", ("c", "a")),
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
        (lambda t: t.value("k"), "k = [{ a = 1 }]", [{"a": 1}]),
        (lambda t: t.table("k").rest(), "k = { a = 1 }", {"a": 1}),
        (lambda t: t.table("k", {}).left(), "", ()),
        (lambda t: [one.whole("a", 0) for one in t.tables("k")], "k = [{ a = 1 }, { a = 2 }]", [1, 2]),
        (lambda t: t.tables("k", ()), "", []),
    ],
)
def test_a_value_of_the_right_form_is_accepted(take: Take, text: str, value: Any) -> None:
    top = table(text)
    assert take(top) == value
    top.done()


@pytest.mark.parametrize(
    ("take", "text", "error"),
    [
        (lambda t: t.text("k"), "", "k: is missing, must be a text that is not empty"),
        (lambda t: t.text("k"), "k = ' '", "k: must be a text that is not empty, is ' '"),
        (lambda t: t.text("k", ""), "k = 1", "k: must be a text, is 1"),
        (lambda t: t.texts("k"), "k = 'a'", "k: must be a list of texts, is 'a'"),
        (lambda t: t.texts("k"), "k = []", "k: must be a list of texts, is []"),
        (lambda t: t.texts("k", ()), "k = ['']", "k: must be a list of texts, is ['']"),
        (lambda t: t.word("k", (0, 1)), "k = true", "k: must be one of 0, 1, is True"),
        (lambda t: t.word("k", ("a", "b")), "k = ['a']", "k: must be one of a, b, is ['a']"),
        (lambda t: t.words("k", ("a", "b")), "k = ['a', 'c']", "k: must be a list of some of a, b, is ['a', 'c']"),
        (lambda t: t.words("k", ("a", "b")), "k = ['a', 'a']", "k: names one twice: ['a', 'a']"),
        (lambda t: t.words("k", ("a", "b")), "k = [['a']]", "k: must be a list of some of a, b, is [['a']]"),
        (lambda t: t.flag("k", False), "k = 0", "k: must be true or false, is 0"),
        (lambda t: t.number("k"), "k = true", "k: must be a number, is True"),
        (lambda t: t.number("k", 1), "k = 0.5", "k: must be a number of 1 or more, is 0.5"),
        (lambda t: t.number("k", 1, 2), "k = nan", "k: must be a number from 1 to 2, is nan"),
        (lambda t: t.numbers("k", 0, 1), "k = [1]", "k: must be a list of numbers between 0 and 1, is [1]"),
        (lambda t: t.whole("k", 1, 9), "k = 2.0", "k: must be a whole number from 1 to 9, is 2.0"),
        (lambda t: t.wholes("k"), "k = [-1]", "k: must be a list of whole numbers of 0 or more, is [-1]"),
        (lambda t: t.wholes("k"), "k = [true]", "k: must be a list of whole numbers of 0 or more, is [True]"),
        (lambda t: t.wholes("k", ()), "k = [1, 1]", "k: names one twice: [1, 1]"),
        (lambda t: t.scalar("k"), "k = []", "k: must be a text, a number, true or false, is []"),
        (lambda t: t.table("k"), "k = 1", "k: must be a table, is 1"),
        (lambda t: t.tables("k"), "k = []", "k: must be a list of tables, is []"),
        (lambda t: t.tables("k", ()), "[k]", "k: must be a list of tables, is {}"),
        (lambda t: t.table("k").table("l").text("m"), "k = { l = {} }", "k.l.m: is missing"),
        (lambda t: t.tables("k")[1].text("m"), "[[k]]\n[[k]]", "k 2: m: is missing"),
        (
            lambda t: t.tables("k")[0].tables("l")[0].text("m"),
            "k = [{ id = 'a', l = [{}] }]",
            "k a: l 1: m: is missing",
        ),
        (lambda t: t.tables("k")[0].table("l").text("m"), "k = [{ name = 'a\\nb', l = {} }]", "k a b: l.m: is missing"),
        (lambda t: t.text("k"), f"k = {list(range(900))}", "k: must be a text that is not empty, is [0, 1, 2, "),
    ],
)
def test_a_value_of_the_wrong_form_is_a_short_one_line_error(take: Take, text: str, error: str) -> None:
    with pytest.raises(RackgateError) as caught:
        take(table(text.replace("'a\\nb'", '"a\\nb"')))
    assert str(caught.value).startswith(f"f.toml: {error}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a = 1\nc = 1", "f.toml: c: is not known; known here: a, b, d, e"),
        ("a = 1\nd = { c = 1 }", "f.toml: d.c: is not known; known here: f"),
        ("a = 1\ne = [{ name = 'x', c = 1 }]", "f.toml: e x: c: is not known; known here: name"),
    ],
)
def test_an_unread_key_is_refused_at_any_level(text: str, error: str) -> None:
    top = table(text)
    assert top.has("a")
    top.whole("a", 0)
    assert not top.has("a")
    top.text("b", "")
    top.table("d", {}).text("f", "")
    for one in top.tables("e", ()):
        one.text("name")
    with pytest.raises(RackgateError) as caught:
        top.done()
    assert str(caught.value) == error


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    with pytest.raises(RackgateError, match=r"f\.toml: .*missing: it lists things"):
        toml_config.read(path, "it lists things")
    path.write_bytes(b"\xff")
    with pytest.raises(RackgateError, match="not UTF-8"):
        toml_config.read(path, "it lists things")
    with pytest.raises(RackgateError, match="can't be read: Is a directory"):
        toml_config.read(tmp_path, "it lists things")
