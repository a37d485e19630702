"""What goes into an overlay jar and what does not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pyhooks.build import overlay
from pyhooks.build.compiling import write_jar
from pyhooks.build.recipe import Module
from pyhooks.errors import RackgateError

MODULE = Module(name="m", artifact="kafka-m", path="m", release=17, relocated=("io/proto/",), may_vanish=("p/Goes",))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("p/A.class", "p/A"),
        ("p/A$B$1.class", "p/A"),
        ("p/A$.class", "p/A"),
        ("p/$A.class", "p/$A"),
        ("A$1.class", "A"),
    ],
)
def test_nest(name: str, expected: str) -> None:
    assert overlay.nest(name) == expected


def test_only_changed_and_new_nests_but_those_whole() -> None:
    before = {"p/A.class": b"a", "p/A$1.class": b"a1", "p/B.class": b"b", "p/B$C.class": b"c"}
    after = {"p/A.class": b"a", "p/A$1.class": b"a1", "p/B.class": b"b", "p/B$C.class": b"C", "p/N.class": b"n"}
    changed = overlay.changed_nests(MODULE, before, after)
    assert changed == {"p/B": {"p/B.class": b"b", "p/B$C.class": b"C"}, "p/N": {"p/N.class": b"n"}}


def test_a_nested_class_that_vanished_changes_its_nest() -> None:
    changed = overlay.changed_nests(MODULE, {"p/A.class": b"a", "p/A$1.class": b"1"}, {"p/A.class": b"a"})
    assert changed == {"p/A": {"p/A.class": b"a"}}


def test_a_class_that_vanished_is_an_error_unless_stated() -> None:
    assert overlay.changed_nests(MODULE, {"p/Goes.class": b"g"}, {}) == {}
    with pytest.raises(RackgateError, match="class p/Stays is gone"):
        overlay.changed_nests(MODULE, {"p/Stays.class": b"s"}, {})


def test_a_changed_class_of_a_relocated_package_is_an_error() -> None:
    same = {"p/T.class": b"uses io/proto/X"}
    assert overlay.changed_nests(MODULE, same, same) == {}
    with pytest.raises(RackgateError, match="class p/T changed, but it uses io/proto/"):
        overlay.changed_nests(MODULE, same, {"p/T.class": b"still uses io/proto/X"})


def test_jar_bytes_depend_on_content_alone(tmp_path: Path) -> None:
    published = tmp_path / "published.jar"
    write_jar(published, {"p/A.class": b"old", "p/A$1.class": b"old", "p/B$1.class": b"other nest"})
    jars = []
    for name, files in (
        ("one", {"p/A.class": b"a", "p/A$2.class": b"2"}),
        ("two", {"p/A$2.class": b"2", "p/A.class": b"a"}),
    ):
        made = overlay.make_jar(
            MODULE, {"p/A": files}, {"r.txt": b"r"}, published=published, folder=tmp_path / name, manifest=[("X", "y")]
        )
        assert made is not None
        jars.append(made)
    assert jars[0] == jars[1]
    assert (tmp_path / "one/m-rackgate.jar").read_bytes() == (tmp_path / "two/m-rackgate.jar").read_bytes()
    assert jars[0].classes == ("p/A", "p/A$2")
    assert jars[0].resources == ("r.txt",)
    assert jars[0].left_behind == ("p/A$1",)
    with zipfile.ZipFile(tmp_path / "one/m-rackgate.jar") as archive:
        assert archive.namelist() == ["META-INF/MANIFEST.MF", "p/A$2.class", "p/A.class", "r.txt"]
        assert b"X: y" in archive.read("META-INF/MANIFEST.MF")


def test_no_jar_without_a_change(tmp_path: Path) -> None:
    published = tmp_path / "published.jar"
    write_jar(published, {"p/A.class": b"a"})
    assert overlay.make_jar(MODULE, {}, {}, published=published, folder=tmp_path, manifest=[]) is None


def test_changed_resources(tmp_path: Path) -> None:
    for state, files in (("a", {"x": "1", "d/y": "1"}), ("b", {"x": "1", "d/y": "2", "z": "3"})):
        for name, text in files.items():
            path = tmp_path / state / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    assert overlay.changed_resources(tmp_path / "a", tmp_path / "b") == {"d/y": b"2", "z": b"3"}
