"""Test classes of Kafka, found in compiled classes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pyhooks.patchset.maven import java_home
from pyhooks.verify import upstream_suite


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_test_classes_are_found_by_own_inherited_and_nested_annotations(tmp_path: Path) -> None:
    sources = {
        "org/junit/jupiter/api/Test.java": "package org.junit.jupiter.api; public @interface Test {}",
        "x/Own.java": "package x; class Own { @org.junit.jupiter.api.Test void a() {} long l = 5L; double d = 0.1; }",
        "x/Base.java": "package x; abstract class Base { @org.junit.jupiter.api.Test void a() {} }",
        "x/Heir.java": "package x; class Heir extends Base {}",
        "x/Outer.java": "package x; class Outer { class Inner { @org.junit.jupiter.api.Test void a() {} } }",
        "x/Helper.java": 'package x; class Helper { String a = "org.junit.jupiter.api.Test"; }',
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = [str(tmp_path / name) for name in sources]
    subprocess.run([java_home() / "bin" / "javac", "-d", str(tmp_path / "out"), *files], check=True)
    parsed = [upstream_suite.parse_class(path.read_bytes()) for path in (tmp_path / "out").rglob("*.class")]
    known = {entry.name: entry for entry in parsed}
    assert upstream_suite.test_classes(list(known), known) == ("x.Heir", "x.Outer", "x.Own")
