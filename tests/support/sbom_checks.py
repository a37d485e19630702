"""Checks of a CycloneDX software bill of materials."""

from __future__ import annotations

import re
from typing import Any


def check_sbom(bom: dict[str, Any]) -> None:
    """Check the CycloneDX 1.6 schema's requirements on the elements that the project uses."""
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", bom["serialNumber"])
    (formula,) = bom["formulation"]
    components = [bom["metadata"]["component"], *bom["components"], *formula["components"]]
    ancestors = [one for made in components for one in made.get("pedigree", {}).get("ancestors", [])]
    for component in [*components, *ancestors]:
        assert component["type"] in {"application", "library", "file"}
        assert component["name"]
        for hashed in component.get("hashes", []):
            assert hashed["alg"] == "SHA-256"
            assert re.fullmatch("[0-9a-f]{64}", hashed["content"])
        if "purl" in component:
            assert re.fullmatch(
                r"pkg:maven/[\w.%-]+/[\w.%-]+@[\w.%-]+\?(classifier=[\w.-]+&)?type=(jar|pom)", component["purl"]
            )
    refs = [component["bom-ref"] for component in components]
    assert len(set(refs)) == len(refs)
    for entry in bom["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= set(refs)
    assert all(isinstance(one["value"], str) for one in bom["metadata"]["properties"])


def hashes_of(components: list[dict[str, Any]]) -> dict[str, str]:
    return {made["bom-ref"]: made["hashes"][0]["content"] for made in components if "hashes" in made}
