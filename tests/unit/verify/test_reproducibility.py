"""Reproducible builds: differences between two builds, and the conditions under which they run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset.archive import pack
from pyhooks.patchset.compilation import write_jar
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import reproducibility
from pyhooks.verify.reproducibility import BUILDS, differences

ENTRIES = {"META-INF/MANIFEST.MF": b"m", "p/A.class": b"a", "p/B.class": b"b"}


def jar(path: Path, files: dict[str, bytes] | None = None) -> Path:
    """Write a jar of these files, by default of ``ENTRIES``."""
    write_jar(path, files or ENTRIES)
    return path


def test_equal_bytes_are_no_difference(tmp_path: Path) -> None:
    first, second = ({"a.jar": jar(tmp_path / name / "a.jar")} for name in ("one", "other"))
    assert differences(first, second) == []


def test_differences_in_jars_name_the_entry(tmp_path: Path) -> None:
    first = {"overlay/a.jar": jar(tmp_path / "a.jar"), "overlay/b.jar": jar(tmp_path / "b.jar")}
    second = {**first, "overlay/b.jar": jar(tmp_path / "c.jar", {**ENTRIES, "p/B.class": b"c"})}
    assert differences(first, second) == ["overlay/b.jar: p/B.class"]
    second["overlay/b.jar"] = jar(tmp_path / "d.jar", {**ENTRIES, "p/C.class": b"c"})
    assert differences(first, second) == ["overlay/b.jar: p/C.class"]


def test_a_file_missing_in_one_build_is_a_difference(tmp_path: Path) -> None:
    build = {"a.jar": jar(tmp_path / "a.jar")}
    assert differences(build, {}) == ["a.jar: only in the first build"]
    assert differences({}, build) == ["a.jar: only in the second build"]


def test_entry_times_and_order_are_differences(tmp_path: Path) -> None:
    first = {"a.jar": jar(tmp_path / "a.jar")}
    for name, names, time, fault in (
        ("time", list(ENTRIES), (1999, 1, 1, 0, 0, 0), list(ENTRIES)),
        ("order", list(reversed(ENTRIES)), (1980, 1, 1, 0, 0, 0), ["order of entries"]),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for entry in names:
                info = zipfile.ZipInfo(entry, time)
                info.external_attr = 0o644 << 16
                archive.writestr(info, ENTRIES[entry], zipfile.ZIP_STORED)
        shutil.copyfile(tmp_path / name, tmp_path / f"{name}.jar")
        assert differences(first, {"a.jar": tmp_path / f"{name}.jar"}) == [f"a.jar: {entry}" for entry in fault]


def test_differences_in_archives_and_manifests_name_the_entry(tmp_path: Path) -> None:
    builds = []
    for name, text in (("one", b"1"), ("other", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.tar.gz").write_bytes(pack("top", {"same": b"s", "changed": text}))
        (tmp_path / name / "manifest.json").write_text(json.dumps({"same": 1, "key": text.decode()}))
        builds.append({path.name: path for path in (tmp_path / name).iterdir()})
    assert differences(*builds) == ["manifest.json: key", "x.tar.gz: top/changed"]


@pytest.mark.parametrize("same", [True, False])
def test_the_result_is_written_and_is_met_only_without_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    def build(conditions: Any, _space: object, folder: Path) -> reproducibility.FinishedBuild:
        content = b"b" if same or conditions is BUILDS[0] else b"c"
        path = jar(folder / conditions.name / "a.jar", {"p/A.class": content})
        return reproducibility.FinishedBuild({"umask": conditions.umask}, 1.0, {"overlay/a.jar": path})

    monkeypatch.setattr(reproducibility, "_build", build)
    store = SimpleNamespace(fetch=lambda *_: 0)
    workspace = SimpleNamespace(root=tmp_path, store=store, lock=lambda _: nullcontext())
    monkeypatch.setattr(Workspace, "of", lambda _: workspace)
    verdict = reproducibility.check_reproducible(out=tmp_path / "out", quiet=True)
    assert verdict.met is same
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["verdict"] == ("same" if same else "different")
    assert summary["differences"] == ([] if same else ["overlay/a.jar: p/A.class"])
    hashes = summary["files"]["overlay/a.jar"]
    assert (hashes[0] == hashes[1]) is same
    assert [build["umask"] for build in summary["builds"]] == [0o022, 0o077]


def test_conditions_of_the_builds_differ() -> None:
    first, second = BUILDS
    assert first.name != second.name
    assert len(first.name) != len(second.name)
    assert first.other_user != second.other_user
    assert first.umask != second.umask
    assert second.clock_shift_days - first.clock_shift_days > 366
    assert first.source_times_s != second.source_times_s
    assert first.variables["TZ"] != second.variables["TZ"]


def test_the_clock_of_a_build_is_shifted_for_python_and_java(tmp_path: Path) -> None:
    library = reproducibility._clock_library(401, tmp_path)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    reproducibility._check_clock(BUILDS[1], (), environment, tmp_path)
    with pytest.raises(RackgateError, match="does not see a clock that is 401 days ahead"):
        reproducibility._check_clock(BUILDS[1], (), dict(os.environ), tmp_path)


def test_the_other_user_has_another_uid(tmp_path: Path) -> None:
    prefix = reproducibility._other_user(tmp_path)
    command = [*prefix, sys.executable, "-c", "import os; print(os.getuid())"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    assert int(done.stdout) == 65534 != os.getuid()


def test_sources_are_copied_with_the_time_of_the_build(tmp_path: Path) -> None:
    reproducibility._copy_sources(tmp_path, 1_000_000_000)
    copied = tmp_path / "patch" / paths.kafka_version() / "kafka.toml"
    assert copied.read_bytes() == (paths.patch_folder() / "kafka.toml").read_bytes()
    assert copied.stat().st_mtime == 1_000_000_000
    assert not (tmp_path / "build").exists()
