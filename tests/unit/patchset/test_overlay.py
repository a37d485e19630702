"""Classes and resources that an overlay jar contains."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import overlay
from pyhooks.patchset.compilation import read_jar, write_jar
from pyhooks.patchset.recipe import Module

LEGAL = {"LICENSE": b"licence\n", "NOTICE": b"notice\n"}
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
def test_nest_is_the_outermost_class(name: str, expected: str) -> None:
    assert overlay.nest(name) == expected


def test_changed_and_new_nests_include_all_their_classes() -> None:
    before = {"p/A.class": b"a", "p/A$1.class": b"a1", "p/B.class": b"b", "p/B$C.class": b"c"}
    after = {"p/A.class": b"a", "p/A$1.class": b"a1", "p/B.class": b"b", "p/B$C.class": b"C", "p/N.class": b"n"}
    changed = overlay.changed_nests(MODULE, before, after)
    assert changed == {"p/B": {"p/B.class": b"b", "p/B$C.class": b"C"}, "p/N": {"p/N.class": b"n"}}


def test_a_missing_nested_class_changes_its_nest() -> None:
    changed = overlay.changed_nests(MODULE, {"p/A.class": b"a", "p/A$1.class": b"1"}, {"p/A.class": b"a"})
    assert changed == {"p/A": {"p/A.class": b"a"}}


def test_a_missing_class_is_an_error_unless_listed() -> None:
    assert overlay.changed_nests(MODULE, {"p/Goes.class": b"g"}, {}) == {}
    with pytest.raises(RackgateError, match="p/Stays is missing"):
        overlay.changed_nests(MODULE, {"p/Stays.class": b"s"}, {})


def test_a_changed_class_of_a_relocated_package_is_an_error() -> None:
    same = {"p/T.class": b"uses io/proto/X"}
    assert overlay.changed_nests(MODULE, same, same) == {}
    with pytest.raises(RackgateError, match=r"p/T .*io/proto/"):
        overlay.changed_nests(MODULE, same, {"p/T.class": b"still uses io/proto/X"})


def test_jar_bytes_depend_on_content_alone(tmp_path: Path) -> None:
    published = tmp_path / "published.jar"
    write_jar(published, {**LEGAL, "p/A.class": b"old", "p/A$1.class": b"old", "p/B$1.class": b"other nest"})
    jars = []
    for name, files in (
        ("one", {"p/A.class": b"a", "p/A$2.class": b"2"}),
        ("two", {"p/A$2.class": b"2", "p/A.class": b"a"}),
    ):
        jar = overlay.make_jar(
            MODULE, {"p/A": files}, {"r.txt": b"r"},
            published=published, coordinates="g:m:1", folder=tmp_path / name, manifest=[("X", "y")],
        )  # fmt: skip
        assert jar is not None
        jars.append(jar)
    assert jars[0] == jars[1]
    assert (tmp_path / "one/m-rackgate.jar").read_bytes() == (tmp_path / "two/m-rackgate.jar").read_bytes()
    assert jars[0].classes == ("p/A", "p/A$2")
    assert jars[0].resources == ("r.txt",)
    assert jars[0].left_behind == ("p/A$1",)
    with zipfile.ZipFile(tmp_path / "one/m-rackgate.jar") as archive:
        assert archive.namelist() == [
            "META-INF/MANIFEST.MF", "META-INF/LICENSE", "META-INF/NOTICE", "p/A$2.class", "p/A.class", "r.txt",
        ]  # fmt: skip
        assert b"X: y" in archive.read("META-INF/MANIFEST.MF")


def test_a_jar_contains_licence_notice_and_a_statement_of_changes(tmp_path: Path) -> None:
    published = tmp_path / "published.jar"
    for prefix in ("", "META-INF/"):
        write_jar(published, {f"{prefix}{name}": content for name, content in LEGAL.items()})
        overlay.make_jar(
            MODULE, {"p/A": {"p/A.class": b"a"}}, {},
            published=published, coordinates="g:m:1", folder=tmp_path, manifest=[],
        )  # fmt: skip
        files = read_jar(tmp_path / "m-rackgate.jar")
        assert files["META-INF/LICENSE"] == LEGAL["LICENSE"]
        assert files["META-INF/NOTICE"].startswith(paths.NOTICE.read_bytes())
        assert files["META-INF/NOTICE"].endswith(LEGAL["NOTICE"])
        lines = files["META-INF/MANIFEST.MF"].replace(b"\r\n ", b"").decode().splitlines()
        (changes,) = (line for line in lines if line.startswith("Rackgate-Changes: "))
        assert "g:m:1" in changes
        assert "changed" in changes


@pytest.mark.parametrize("missing", ["LICENSE", "NOTICE"])
def test_a_published_jar_without_licence_or_notice_is_an_error(tmp_path: Path, missing: str) -> None:
    published = tmp_path / "published.jar"
    write_jar(published, {name: content for name, content in LEGAL.items() if name != missing})
    with pytest.raises(RackgateError, match=f"has no {missing}"):
        overlay.make_jar(
            MODULE, {"p/A": {"p/A.class": b"a"}}, {},
            published=published, coordinates="g:m:1", folder=tmp_path, manifest=[],
        )  # fmt: skip
    assert not (tmp_path / "m-rackgate.jar").exists()


def test_no_jar_is_made_without_a_change(tmp_path: Path) -> None:
    published = tmp_path / "published.jar"
    write_jar(published, {"p/A.class": b"a"})
    jar = overlay.make_jar(MODULE, {}, {}, published=published, coordinates="g:m:1", folder=tmp_path, manifest=[])
    assert jar is None


def test_changed_and_new_resources_are_found(tmp_path: Path) -> None:
    for state, files in (("a", {"x": "1", "d/y": "1"}), ("b", {"x": "1", "d/y": "2", "z": "3"})):
        for name, text in files.items():
            path = tmp_path / state / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    assert overlay.changed_resources(tmp_path / "a", tmp_path / "b") == {"d/y": b"2", "z": b"3"}


def test_the_commit_id_names_the_revision(tmp_path: Path) -> None:
    published = tmp_path / "m-1.jar"
    write_jar(published, {overlay.VERSION_PROPERTIES: b"commitId=26b251a4\nversion=4.0.0"})
    changed = overlay.version_properties(published, "rackgate-7")
    assert changed == {overlay.VERSION_PROPERTIES: b"commitId=26b251a4-rackgate-7\nversion=4.0.0"}
    write_jar(published, {"p/A.class": b""})
    assert overlay.version_properties(published, "rackgate-7") == {}
    write_jar(published, {overlay.VERSION_PROPERTIES: b"version=4.0.0"})
    with pytest.raises(RackgateError, match="has no commitId"):
        overlay.version_properties(published, "rackgate-7")
