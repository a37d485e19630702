"""The overlay as an archive: reproducible bytes, checksums, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.patchset import archive, sbom
from pyhooks.patchset.artifacts import sha256
from pyhooks.patchset.compilation import write_jar
from pyhooks.patchset.distribution import MANIFEST, Distribution
from sbom_checks import check_sbom, hashes_of

PUBLISHED, SOURCES = "org.g:m:9.9", "org.g:m:9.9:sources"
PLUGIN = "org/g/scala-plugin_2.13/1.0+b/scala-plugin_2.13-1.0+b.jar"
TOP = "kafka-rackgate-9.9-overlay"


def make_distribution(
    root: Path, *, content: bytes = b"code", jars: int = 2, opt_ins: Sequence[str] = ()
) -> Distribution:
    """A distribution of a few bytes."""
    (root / "libs").mkdir(parents=True)
    (root / "overlay").mkdir()
    (root / "libs" / "stock.jar").write_bytes(b"stock")
    overlay = []
    for number in range(jars):
        jar = root / "overlay" / f"m{number}-rackgate.jar"
        write_jar(jar, {"META-INF/LICENSE": b"licence", "META-INF/NOTICE": b"notice", "p/A.class": content})
        entry = {"module": f"m{number}", "jar": jar.name, "sha256": sha256(jar), "classes": ["p/A"], "resources": []}
        overlay.append({**entry, "published": PUBLISHED})
    files = {str(p.relative_to(root)): sha256(p) for p in sorted(root.rglob("*")) if p.is_file()}
    manifest = {
        "key": "k", "kafka_version": "9.9", "scala_version": "2.13", "javac_version": "17", "tree_commit": "c",
        "patch_hash": "h", "opt_ins": list(opt_ins), "overlay": overlay,
        "patches": [{"name": "gate/0001-a.patch", "subject": "A", "sha256": "1" * 64}],
        "files": files, "artifacts": {PUBLISHED: "2" * 64, SOURCES: "3" * 64, "g:unused:1": "4" * 64},
        "compiled_with": [PUBLISHED, SOURCES], "maven": {PLUGIN: "5" * 64},
    }  # fmt: skip
    (root / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return Distribution(root)


def unpack(path: Path, target: Path) -> Path:
    # as an operator does
    target.mkdir()
    run(["tar", "--extract", "--file", path], task="unpack the archive", cwd=target)
    return target / TOP


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = archive.make_archive(make_distribution(tmp_path / "one"), tmp_path / "a")
    # another folder, another time, other file times, another umask
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    before = os.umask(0o077)
    try:
        other = make_distribution(tmp_path / "two")
        for path in other.root.rglob("*"):
            os.utime(path, (1_000_000, 1_000_000))
        second = archive.make_archive(other, tmp_path / "b")
    finally:
        os.umask(before)
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.path.name == f"{TOP}.tar.gz"


def test_another_hash_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    made = archive.make_archive(make_distribution(tmp_path / "dist", jars=5), tmp_path / "a")
    script = (
        "import sys; from pathlib import Path; from pyhooks.patchset.archive import make_archive;"
        "from pyhooks.patchset.distribution import Distribution;"
        "print(make_archive(Distribution(Path(sys.argv[1])), Path(sys.argv[2])).sha256)"
    )
    for seed in ("1", "2"):
        message = [sys.executable, "-c", script, str(tmp_path / "dist"), str(tmp_path / seed)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo"}
        assert run(message, task="pack", env=environment).strip() == made.sha256


def test_other_contents_give_other_bytes(tmp_path: Path) -> None:
    first = archive.make_archive(make_distribution(tmp_path / "one"), tmp_path / "a")
    second = archive.make_archive(make_distribution(tmp_path / "two", content=b"edit"), tmp_path / "b")
    assert first.sha256 != second.sha256


def test_checksums_detect_a_change(tmp_path: Path) -> None:
    made = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    run(["sha256sum", "--check", f"{made.path.name}.sha256"], task="verify the archive", cwd=tmp_path)
    folder = unpack(made.path, tmp_path / "unpacked")
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], task="verify the files", cwd=folder)
    covered = {line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert covered == present - {"SHA256SUMS"}
    (folder / "overlay" / "m0-rackgate.jar").write_bytes(b"other")
    done = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "m0-rackgate.jar: FAILED" in done.stdout


def test_the_archive_has_the_documented_content(tmp_path: Path) -> None:
    made = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    assert made.names == (
        "INSTALL.md", "LICENSE", "NOTICE", "SHA256SUMS", "manifest.json",
        "overlay/m0-rackgate.jar", "overlay/m1-rackgate.jar", "sbom.cdx.json",
    )  # fmt: skip
    assert made.size == made.path.stat().st_size
    with tarfile.open(made.path) as tar:
        entries = tar.getmembers()
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {
        (0, 0, "root", "root", 315_532_800)
    }
    assert {entry.mode for entry in entries if entry.isfile()} == {0o644}
    assert {entry.mode for entry in entries if entry.isdir()} == {0o755}
    # gzip: no flags (so no file name), no time
    assert made.path.read_bytes()[3:8] == bytes(5)


def test_licence_and_notice_are_those_of_the_jars(tmp_path: Path) -> None:
    made = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    folder = unpack(made.path, tmp_path / "unpacked")
    assert (folder / "LICENSE").read_bytes() == b"licence"
    assert (folder / "NOTICE").read_bytes() == b"notice"


def test_sbom_lists_inputs_and_tools_of_the_overlay(tmp_path: Path) -> None:
    distribution = make_distribution(tmp_path / "dist", jars=1)
    made = archive.make_archive(distribution, tmp_path)
    bom = json.loads((unpack(made.path, tmp_path / "unpacked") / "sbom.cdx.json").read_text())
    check_sbom(bom)
    jar = distribution.manifest["overlay"][0]
    assert hashes_of(bom["components"]) == {
        "overlay/m0-rackgate.jar": jar["sha256"],
        "patch/gate/0001-a.patch": "1" * 64,
        "pkg:maven/org.g/m@9.9?type=jar": "2" * 64,
        "pkg:maven/org.g/m@9.9?classifier=sources&type=jar": "3" * 64,
    }
    assert hashes_of(bom["formulation"][0]["components"]) == {
        "build:pkg:maven/org.g/scala-plugin_2.13@1.0%2Bb?type=jar": "5" * 64
    }
    assert [one["version"] for one in bom["formulation"][0]["components"] if one["name"] == "javac"] == ["17"]
    assert {"name": "rackgate:javac_version", "value": "17"} in bom["metadata"]["properties"]
    (ancestor,) = bom["components"][0]["pedigree"]["ancestors"]
    assert (ancestor["group"], ancestor["name"], ancestor["hashes"][0]["content"]) == ("org.g", "m", "2" * 64)


def test_another_input_gives_another_sbom(tmp_path: Path) -> None:
    manifest = dict(make_distribution(tmp_path / "dist").manifest)
    same, other = sbom.make_sbom(manifest), sbom.make_sbom({**manifest, "maven": {PLUGIN: "6" * 64}})
    assert same == sbom.make_sbom(dict(reversed(manifest.items())))
    assert json.loads(same)["serialNumber"] != json.loads(other)["serialNumber"]


def test_installation_instructions(tmp_path: Path) -> None:
    made = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    folder = unpack(made.path, tmp_path / "unpacked")
    note = (folder / "INSTALL.md").read_text(encoding="utf-8")
    for heading in ("## Install", "## Restart", "## Remove", "## What a client application takes"):
        assert heading in note
    assert f'export CLASSPATH="/opt/{TOP}/overlay/*"' in note
    assert str(tmp_path) not in note + (folder / MANIFEST).read_text()


def test_opt_in_fixes_have_their_own_archive(tmp_path: Path) -> None:
    default, other = (
        archive.make_archive(make_distribution(tmp_path / "-".join(["dist", *names]), opt_ins=names), tmp_path)
        for names in ((), ("raft", "clients"))
    )
    assert [made.path.name for made in (default, other)] == [f"{TOP}.tar.gz", f"{TOP}-with-clients-raft.tar.gz"]
    for made, names in ((default, []), (other, ["raft", "clients"])):
        top = made.path.name.removesuffix(".tar.gz")
        with tarfile.open(made.path) as tar:
            members = {name: tar.extractfile(f"{top}/{name}") for name in ("INSTALL.md", MANIFEST, sbom.SBOM)}
            note, manifest, bom = (member.read().decode() for member in members.values() if member)
        assert ("raft, clients" in note) is bool(names)
        assert json.loads(manifest)["opt_ins"] == names
        properties = json.loads(bom)["metadata"]["properties"]
        assert [p["value"] for p in properties if p["name"] == "rackgate:opt_in"] == names


def test_a_damaged_distribution_is_not_packed(tmp_path: Path) -> None:
    distribution = make_distribution(tmp_path / "dist")
    (distribution.root / "overlay" / "m1-rackgate.jar").write_bytes(b"other")
    with pytest.raises(RackgateError, match=r"m1-rackgate\.jar .*--force"):
        archive.make_archive(distribution, tmp_path)
    assert not list(tmp_path.glob("*.tar.gz"))


def test_an_empty_overlay_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="nothing to pack"):
        archive.make_archive(make_distribution(tmp_path / "dist", jars=0), tmp_path)
