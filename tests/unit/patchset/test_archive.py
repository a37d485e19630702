"""Archive of the overlay: reproducible bytes, checksums, contents, container files and errors."""

from __future__ import annotations

import json
import os
import shlex
import shutil
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
    """Create a distribution of small fake files."""
    (root / "libs").mkdir(parents=True)
    (root / "overlay").mkdir()
    (root / "libs" / "stock.jar").write_bytes(b"stock")
    overlay = []
    for number in range(jars):
        jar = root / "overlay" / f"m{number}-rackgate.jar"
        write_jar(jar, {"META-INF/LICENSE": b"licence", "META-INF/NOTICE": b"notice", "p/A.class": content})
        module_entry = {
            "module": f"m{number}",
            "jar": jar.name,
            "sha256": sha256(jar),
            "classes": ["p/A"],
            "resources": [],
        }
        overlay.append({**module_entry, "published": PUBLISHED})
    files = {str(p.relative_to(root)): sha256(p) for p in sorted(root.rglob("*")) if p.is_file()}
    manifest = {
        "key": "k", "kafka_version": "9.9", "revision": "rackgate-7", "scala_version": "2.13",
        "javac_version": "17", "tree_commit": "c",
        "patch_hash": "h", "opt_ins": list(opt_ins), "overlay": overlay,
        "patches": [{"name": "gate/0001-a.patch", "subject": "A", "sha256": "1" * 64}],
        "files": files, "artifacts": {PUBLISHED: "2" * 64, SOURCES: "3" * 64, "g:unused:1": "4" * 64},
        "compiled_with": [PUBLISHED, SOURCES], "maven": {PLUGIN: "5" * 64},
    }  # fmt: skip
    (root / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return Distribution(root)


def unpack(path: Path, target: Path) -> Path:
    """Unpack an archive with ``tar``, like an operator, and return its top folder."""
    target.mkdir()
    run(["tar", "--extract", "--file", path], task="unpack the archive", cwd=target)
    return target / TOP


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = archive.make_archive(make_distribution(tmp_path / "one"), tmp_path / "a")
    # The second archive has another folder, clock, file times and umask.
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    old_umask = os.umask(0o077)
    try:
        distribution = make_distribution(tmp_path / "two")
        for path in distribution.root.rglob("*"):
            os.utime(path, (1_000_000, 1_000_000))
        second = archive.make_archive(distribution, tmp_path / "b")
    finally:
        os.umask(old_umask)
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.path.name == f"{TOP}.tar.gz"


def test_the_hash_seed_does_not_change_the_bytes(tmp_path: Path) -> None:
    packed = archive.make_archive(make_distribution(tmp_path / "dist", jars=5), tmp_path / "a")
    script = (
        "import sys; from pathlib import Path; from pyhooks.patchset.archive import make_archive;"
        "from pyhooks.patchset.distribution import Distribution;"
        "print(make_archive(Distribution(Path(sys.argv[1])), Path(sys.argv[2])).sha256)"
    )
    for seed in ("1", "2"):
        command = [sys.executable, "-c", script, str(tmp_path / "dist"), str(tmp_path / seed)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo"}
        assert run(command, task="pack", env=environment).strip() == packed.sha256


def test_different_contents_give_different_bytes(tmp_path: Path) -> None:
    first = archive.make_archive(make_distribution(tmp_path / "one"), tmp_path / "a")
    second = archive.make_archive(make_distribution(tmp_path / "two", content=b"edit"), tmp_path / "b")
    assert first.sha256 != second.sha256


def test_checksums_detect_a_change(tmp_path: Path) -> None:
    packed = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    run(["sha256sum", "--check", f"{packed.path.name}.sha256"], task="verify the archive", cwd=tmp_path)
    folder = unpack(packed.path, tmp_path / "unpacked")
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
    packed = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    assert packed.names == (
        "Dockerfile", "INSTALL.md", "LICENSE", "NOTICE", "SHA256SUMS", "manifest.json",
        "overlay/m0-rackgate.jar", "overlay/m1-rackgate.jar", "sbom.cdx.json", "strimzi.yaml",
    )  # fmt: skip
    assert packed.size == packed.path.stat().st_size
    with tarfile.open(packed.path) as tar:
        entries = tar.getmembers()
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {
        (0, 0, "root", "root", 315_532_800)
    }
    assert {entry.mode for entry in entries if entry.isfile()} == {0o644}
    assert {entry.mode for entry in entries if entry.isdir()} == {0o755}
    # The gzip header has no flags (thus no file name) and no time.
    assert packed.path.read_bytes()[3:8] == bytes(5)


def test_licence_and_notice_are_those_of_the_jars(tmp_path: Path) -> None:
    packed = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    folder = unpack(packed.path, tmp_path / "unpacked")
    assert (folder / "LICENSE").read_bytes() == b"licence"
    assert (folder / "NOTICE").read_bytes() == b"notice"


def test_sbom_lists_inputs_and_tools_of_the_overlay(tmp_path: Path) -> None:
    distribution = make_distribution(tmp_path / "dist", jars=1)
    packed = archive.make_archive(distribution, tmp_path)
    bom = json.loads((unpack(packed.path, tmp_path / "unpacked") / "sbom.cdx.json").read_text())
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
    assert [
        component["version"] for component in bom["formulation"][0]["components"] if component["name"] == "javac"
    ] == ["17"]
    assert {"name": "rackgate:javac_version", "value": "17"} in bom["metadata"]["properties"]
    (ancestor,) = bom["components"][0]["pedigree"]["ancestors"]
    assert (ancestor["group"], ancestor["name"], ancestor["hashes"][0]["content"]) == ("org.g", "m", "2" * 64)


def test_a_changed_input_changes_the_sbom(tmp_path: Path) -> None:
    manifest = dict(make_distribution(tmp_path / "dist").manifest)
    original, changed = sbom.make_sbom(manifest), sbom.make_sbom({**manifest, "maven": {PLUGIN: "6" * 64}})
    assert original == sbom.make_sbom(dict(reversed(manifest.items())))
    assert json.loads(original)["serialNumber"] != json.loads(changed)["serialNumber"]


def test_installation_instructions_are_included(tmp_path: Path) -> None:
    packed = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    folder = unpack(packed.path, tmp_path / "unpacked")
    instructions = (folder / "INSTALL.md").read_text(encoding="utf-8")
    for heading in ("## Install", "## Restart", "## Enable", "## Remove", "## Client applications"):
        assert heading in instructions
    assert f'export CLASSPATH="/opt/{TOP}/overlay/*"' in instructions
    assert str(tmp_path) not in instructions + (folder / MANIFEST).read_text()


def instructions_of(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, which has one a line, with their arguments."""
    lines = [line for line in dockerfile.splitlines() if not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def build_layer(folder: Path, root: Path, version: str = "9.9") -> dict[str, str]:
    """Follow the Dockerfile in ``folder`` on an image with a Kafka whose root is ``root``; return its environment.

    There is no container engine: a path below /opt is one below ``root``.

    Raises:
        RackgateError: a command failed.
    """
    (root / "opt/kafka/libs").mkdir(parents=True)
    (root / f"opt/kafka/libs/kafka-clients-{version}.jar").touch()
    environment: dict[str, str] = {}
    for name, rest in instructions_of((folder / "Dockerfile").read_text(encoding="utf-8")):
        if name == "RUN":
            run(["sh", "-c", rest.replace("/opt/", f"{root}/opt/")], task=rest)
        elif name == "COPY":
            source, target = rest.split()
            shutil.copytree(folder / source, root / target.removeprefix("/"))
        elif name == "ENV":
            variable, _, value = rest.partition("=")
            (environment[variable],) = shlex.split(value)
        else:
            assert name in ("ARG", "FROM")
    return environment


def test_the_dockerfile_puts_the_jars_of_the_archive_on_the_class_path(tmp_path: Path) -> None:
    packed = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    folder = unpack(packed.path, tmp_path / "unpacked")
    environment = build_layer(folder, tmp_path / "root")
    assert environment == {"CLASSPATH": f"/opt/{TOP}/overlay/*"}
    assert f'export CLASSPATH="{environment["CLASSPATH"]}"' in (folder / "INSTALL.md").read_text(encoding="utf-8")
    jars = (tmp_path / "root" / environment["CLASSPATH"].removeprefix("/")).parent.iterdir()
    assert {f"overlay/{jar.name}" for jar in jars} == {name for name in packed.names if name.startswith("overlay/")}


def test_the_dockerfile_rejects_another_kafka_and_changed_jars(tmp_path: Path) -> None:
    packed = archive.make_archive(make_distribution(tmp_path / "dist"), tmp_path)
    folder = unpack(packed.path, tmp_path / "unpacked")
    with pytest.raises(RackgateError, match=r"test -f /opt/kafka/libs/kafka-clients-9\.9\.jar"):
        build_layer(folder, tmp_path / "other", version="9.8")
    # a changed Dockerfile is no error, a changed jar is one
    with (folder / "Dockerfile").open("a") as dockerfile:
        dockerfile.write("ARG unused\n")
    build_layer(folder, tmp_path / "edited")
    (folder / "overlay/m1-rackgate.jar").write_bytes(b"other")
    with pytest.raises(RackgateError, match="sha256sum -c"):
        build_layer(folder, tmp_path / "damaged")


def test_container_files_name_the_version_and_the_image(tmp_path: Path) -> None:
    packed = archive.make_archive(make_distribution(tmp_path / "dist", opt_ins=["raft"]), tmp_path)
    with tarfile.open(packed.path) as tar:
        names = ("Dockerfile", "INSTALL.md", "strimzi.yaml")
        found = {name: tar.extractfile(f"{TOP}-with-raft/{name}") for name in names}
        texts = {name: member.read().decode() for name, member in found.items() if member}
    assert texts["Dockerfile"].splitlines()[1:3] == ["ARG BASE=apache/kafka:9.9", "FROM ${BASE}"]
    assert f'ENV CLASSPATH="/opt/{TOP}-with-raft/overlay/*"' in texts["Dockerfile"]
    assert "docker build --tag kafka-rackgate:9.9 ." in texts["INSTALL.md"]
    cluster, topic = texts["strimzi.yaml"].split("---\n")
    assert "\n    version: 9.9\n" in cluster
    assert "\n    image: REGISTRY/kafka-rackgate:9.9\n" in cluster
    assert "kind: Kafka\n" in cluster
    assert "kind: KafkaTopic\n" in topic
    assert "\n    min.insync.racks: 2\n" in topic


def test_opt_in_fixes_have_their_own_archive(tmp_path: Path) -> None:
    default, with_fixes = (
        archive.make_archive(make_distribution(tmp_path / "-".join(["dist", *names]), opt_ins=names), tmp_path)
        for names in ((), ("raft", "clients"))
    )
    assert [packed.path.name for packed in (default, with_fixes)] == [
        f"{TOP}.tar.gz",
        f"{TOP}-with-clients-raft.tar.gz",
    ]
    for packed, names in ((default, []), (with_fixes, ["raft", "clients"])):
        top = packed.path.name.removesuffix(".tar.gz")
        with tarfile.open(packed.path) as tar:
            members = {name: tar.extractfile(f"{top}/{name}") for name in ("INSTALL.md", MANIFEST, sbom.SBOM)}
            instructions, manifest, bom = (member.read().decode() for member in members.values() if member)
        assert ("raft, clients" in instructions) is bool(names)
        assert json.loads(manifest)["opt_ins"] == names
        properties = json.loads(bom)["metadata"]["properties"]
        assert [property_["value"] for property_ in properties if property_["name"] == "rackgate:opt_in"] == names


def test_a_damaged_distribution_is_not_packed(tmp_path: Path) -> None:
    distribution = make_distribution(tmp_path / "dist")
    (distribution.root / "overlay" / "m1-rackgate.jar").write_bytes(b"other")
    with pytest.raises(RackgateError, match=r"m1-rackgate\.jar .*--force"):
        archive.make_archive(distribution, tmp_path)
    assert not list(tmp_path.glob("*.tar.gz"))


def test_an_empty_overlay_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="nothing to pack"):
        archive.make_archive(make_distribution(tmp_path / "dist", jars=0), tmp_path)
