"""The built overlay: licences, software bill of materials, archive, and manifests as a JVM reads them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.patchset import archive, overlay, recipe, sbom, series, series_facts
from pyhooks.patchset.artifacts import read_pins
from pyhooks.patchset.compilation import read_jar, write_jar
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.maven import java_home
from pyhooks.patchset.workspace import MAVEN_MANIFEST
from sbom_checks import check_sbom, hashes_of


def test_lines_of_a_manifest_are_continued_as_java_reads_them(tmp_path: Path) -> None:
    value = "".join(f"{number:04d}" for number in range(60))
    text = overlay.manifest_text([("Manifest-Version", "1.0"), ("Long", value), ("Short", "s")])
    assert max(len(line) for line in text.split(b"\r\n")) <= 71
    write_jar(tmp_path / "a.jar", {"META-INF/MANIFEST.MF": text})
    (tmp_path / "Read.java").write_text(
        "class Read { public static void main(String[] a) throws Exception {"
        " System.out.print(new java.util.jar.JarFile(a[0]).getManifest().getMainAttributes().getValue(a[1])); } }"
    )
    java = java_home() / "bin" / "java"
    for key, expected in (("Long", value), ("Short", "s")):
        assert run([java, tmp_path / "Read.java", tmp_path / "a.jar", key], task="read the manifest") == expected


def test_overlay_jars_meet_the_terms_of_the_licence() -> None:
    built = Distribution.load()
    kafka = read_jar(next((built.root / "libs").glob("kafka-clients-*.jar")))
    jars = [built.root / "overlay" / jar["jar"] for jar in built.manifest["overlay"]]
    assert jars
    for jar in jars:
        files = read_jar(jar)
        assert files["META-INF/LICENSE"] == kafka["LICENSE"]
        assert files["META-INF/NOTICE"].endswith(kafka["NOTICE"])
    # the attribution notices up to the first one about a component that is not included
    attribution = kafka["NOTICE"].decode().partition("\nThis distribution has")[0]
    assert "The Apache Software Foundation" in attribution
    assert attribution in paths.NOTICE.read_text(encoding="utf-8")


def test_sbom_of_the_real_overlay_has_every_pin() -> None:
    manifest = Distribution.load().manifest
    bom = json.loads(sbom.make_sbom(manifest))
    check_sbom(bom)
    plan = recipe.load()
    pins = read_pins(plan.path.with_name(MAVEN_MANIFEST))
    assert sorted(hashes_of(bom["formulation"][0]["components"]).values()) == sorted(pins.values())
    built = {artifact.sha256 for role in ("runtime", "sources", "generator") for artifact in plan.with_role(role)}
    found = set(hashes_of(bom["components"]).values())
    assert built <= found
    assert {patch.sha256 for patch in series.load(plan.path.parent)} <= found


def test_the_real_overlay_packs_to_the_same_bytes_twice(tmp_path: Path) -> None:
    distribution = Distribution.load()
    first, second = (archive.make_archive(distribution, tmp_path / name) for name in "ab")
    assert first.path.read_bytes() == second.path.read_bytes()
    with tarfile.open(first.path) as tar:
        for jar in distribution.manifest["overlay"]:
            packed = tar.extractfile(f"kafka-rackgate-{paths.kafka_version()}-overlay/overlay/{jar['jar']}")
            assert packed is not None
            assert hashlib.sha256(packed.read()).hexdigest() == jar["sha256"]


def test_the_facts_of_the_series() -> None:
    patches = series.load_all(paths.patch_folder())
    facts = series_facts.facts(Distribution.load(), patches)
    # read from the published jar: the statements about Kafka itself
    assert facts["parents"]["stock"]["NotEnoughReplicasException"][0] == "RetriableException"
    assert facts["parents"]["stock"]["NotEnoughRacksException"] == []
    assert facts["parents"]["overlay"]["NotEnoughRacksException"][0] == "RetriableException"
    assert facts["requests"]["Produce"] == {"stock": [3, 13], "overlay": [3, 14]}
    assert facts["requests"]["Fetch"]["stock"] == facts["requests"]["Fetch"]["overlay"]
    assert facts["main_files"] == sum(len(files) for files in facts["main"].values())
    assert set(facts["messages"]) == {"ProduceRequest", "ProduceResponse"}
    *parts, total = facts["parts"]
    assert [row["part"] for row in parts if not row["opt_in"]] == list(series.PARTS)
    assert total["patches"] == len(patches) == sum(row["patches"] for row in parts)
    assert total["main_added"] == sum(row["main_added"] for row in parts) > 0
    with pytest.raises(RackgateError, match="does not match the current series"):
        series_facts.facts(Distribution.load(), patches[:-1])
