"""Software bill of materials (SBOM) of the overlay, in CycloneDX JSON: its components and its build tools."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyhooks.patchset.artifacts import Download

SBOM = "sbom.cdx.json"
_SPEC = "1.6"
_ROOT = "overlay"
_LICENCES = [{"license": {"id": "Apache-2.0"}}]


def make_sbom(manifest: Mapping[str, Any]) -> bytes:
    """Return the SBOM of the overlay in a distribution with this manifest; the same manifest gives the same bytes.

    ``components`` lists the overlay jars, each with the published jar that it patches, the patches, and the artifacts
    from and against which the overlay is compiled. ``formulation`` lists the compilers and Maven's plugins.
    """
    jars = [_overlay_jar(jar, manifest) for jar in manifest["overlay"]]
    patches = [
        {
            "type": "file",
            "bom-ref": f"patch/{patch['name']}",
            "name": patch["name"],
            "description": patch["subject"],
            "licenses": _LICENCES,
            "hashes": _hashes(patch["sha256"]),
        }
        for patch in manifest["patches"]
    ]
    artifacts = [_artifact(id_, manifest) for id_ in manifest["compiled_with"]]
    version = manifest["javac_version"]
    javac = {"type": "application", "bom-ref": "build:javac", "name": "javac", "version": version}
    bom: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": _SPEC,
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": _ROOT,
                "name": "kafka-rackgate-overlay",
                "version": f"{manifest['kafka_version']}+{manifest['patch_hash'][:16]}",
                "licenses": _LICENCES,
            },
            "properties": [
                {"name": f"rackgate:{name}", "value": manifest[name]}
                for name in ("kafka_version", "revision", "scala_version", "javac_version", "patch_hash", "tree_commit")
            ]
            + [{"name": "rackgate:opt_in", "value": name} for name in manifest["opt_ins"]],
        },
        "components": [*jars, *patches, *artifacts],
        "dependencies": [
            {"ref": _ROOT, "dependsOn": [jar["bom-ref"] for jar in jars]},
            *({"ref": jar["bom-ref"], "dependsOn": [jar["pedigree"]["ancestors"][0]["purl"]]} for jar in jars),
        ],
        "formulation": [
            {
                "bom-ref": "build",
                "components": [javac, *_tools(manifest["maven"])],
            }
        ],
    }
    # Derived from the content: a random number would make each build different.
    digest = hashlib.sha256(json.dumps(bom, sort_keys=True).encode()).digest()
    bom["serialNumber"] = f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=5)}"
    return (json.dumps(bom, indent=1, sort_keys=True) + "\n").encode()


def _overlay_jar(jar: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    ancestor = _artifact(jar["published"], manifest)
    del ancestor["bom-ref"], ancestor["scope"]
    return {
        "type": "library",
        "bom-ref": f"overlay/{jar['jar']}",
        "name": jar["jar"],
        "version": manifest["kafka_version"],
        "licenses": _LICENCES,
        "hashes": _hashes(jar["sha256"]),
        "pedigree": {
            "ancestors": [ancestor],
            "notes": f"{len(jar['classes'])} classes, compiled with the patches that are listed as components",
        },
    }


def _artifact(id_: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return an artifact of ``kafka.toml``; its scope is "excluded" because the overlay does not contain it."""
    group, name, version, classifier = [*id_.split(":"), ""][:4]
    file = Download(group, name, version, classifier, "jar", Path())
    return {**_library(file, manifest["artifacts"][id_]), "scope": "excluded"}


def _tools(pins: Mapping[str, str]) -> list[dict[str, Any]]:
    libraries = [_library(Download.parse(path, Path()), digest) for path, digest in sorted(pins.items())]
    return [{**library, "bom-ref": f"build:{library['purl']}"} for library in libraries]


def _library(file: Download, digest: str) -> dict[str, Any]:
    purl = _purl(file.group, file.name, file.version, file.classifier, file.type)
    return {
        "type": "library",
        "bom-ref": purl,
        "group": file.group,
        "name": file.name,
        "version": file.version,
        "purl": purl,
        "hashes": _hashes(digest),
    }


def _hashes(digest: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest}]


def _purl(group: str, name: str, version: str, classifier: str, type_: str) -> str:
    qualifiers = f"classifier={quote(classifier, safe='')}&" if classifier else ""
    parts = (quote(part, safe="") for part in (group, name))
    return f"pkg:maven/{'/'.join(parts)}@{quote(version, safe='')}?{qualifiers}type={type_}"
