"""Facts of the series, computed from patches and jars."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import series, series_facts
from pyhooks.patchset.series_facts import Jar

NAME = "common/message/ProduceRequest.json"
FIELDS = [{"name": "Acks", "type": "int16", "versions": "0+", "about": "How many."}]


def jar(path: Path, definition: dict[str, Any] | None, behind: Jar | None = None) -> Jar:
    """Write a jar with this message definition, if any; ``behind`` is the next jar on the classpath."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "x")
        if definition is not None:
            archive.writestr(NAME, "// a comment\n" + json.dumps(definition, indent=1))
    return Jar(path, behind)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        (FIELDS, False),
        ([{**FIELDS[0], "about": "How many replicas."}], False),
        ([{**FIELDS[0], "versions": "14+"}], True),
        ([*FIELDS, {"name": "Racks", "type": "int32", "versions": "14+"}], True),
    ],
)
def test_messages_are_compared_by_their_wire_format(tmp_path: Path, fields: list[Any], changed: bool) -> None:
    stock = jar(tmp_path / "stock.jar", {"validVersions": "3-13", "fields": FIELDS})
    overlay = jar(tmp_path / "overlay.jar", {"validVersions": "3-14", "fields": fields}, stock)
    facts = series_facts._message(stock, overlay, f"clients/src/main/resources/{NAME}")
    assert facts == {"fields_changed": changed, "versions": "3-14", "was": "3-13"}
    same = series_facts._message(stock, jar(tmp_path / "empty.jar", None, stock), f"clients/src/main/resources/{NAME}")
    assert same == {"fields_changed": False, "versions": "3-13", "was": "3-13"}


def test_an_unreadable_jar_is_an_error_and_an_absent_class_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"no zip")
    with pytest.raises(RackgateError, match=r"a\.jar: can't be read"):
        Jar(tmp_path / "a.jar")
    assert jar(tmp_path / "b.jar", None).parents("org/apache/kafka/common/errors/None") == []
    assert jar(tmp_path / "b.jar", None).versions("org/apache/kafka/common/message/None") == []


def test_sizes_are_counted_by_part_and_opt_in_fix() -> None:
    text = (
        "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1,2 @@\n-a\n+b\n+c\n"
        "diff --git a/x/src/test/A b/x/src/test/A\n--- a/x/src/test/A\n+++ b/x/src/test/A\n@@ -0,0 +1 @@\n+d\n"
    )
    raft = (("Opt-in", "raft"),)
    patches = [
        series.Patch(Path(name), name, text.format(file), name, "R.", trailers, (file,))
        for name, file, trailers in (
            ("fixes/0001-a.patch", "x/src/main/A", ()),
            ("fixes/0002-b.patch", "x/src/main/A", raft),
            ("fixes/0003-c.patch", "x/src/main/A", ()),
            ("gate/0001-d.patch", "x/src/test/B", ()),
        )
    ]
    assert [tuple(row.values()) for row in series_facts.sizes(patches)] == [
        ("fixes", "", 2, 4, 2),
        ("fixes", "raft", 1, 2, 1),
        ("gate", "", 1, 0, 3),
        ("elr", "", 0, 0, 0),
        ("observe", "", 0, 0, 0),
        ("all", "", 4, 6, 6),
    ]
    assert list(series_facts.sizes([])[0]) == ["part", "opt_in", "patches", "main_added", "test_added"]
