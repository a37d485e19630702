"""The proposal quotes the config's documentation, the schema change and the metrics as the series defines them."""

from __future__ import annotations

import re

from pyhooks.core import paths
from pyhooks.evidence.claims import load

SERIES = paths.REPO / "patch" / paths.DEFAULT_KAFKA
PROPOSAL = (paths.REPO / "kip" / "KIP-1290.md").read_text(encoding="utf-8")
PATCHES = sorted(path for part in ("gate", "elr", "observe") for path in (SERIES / part).glob("*.patch"))
ADDED = "\n".join(
    line[1:]
    for path in PATCHES
    for line in path.read_text(encoding="utf-8").splitlines()
    if line.startswith("+") and not line.startswith("+++")
)
# of stock Kafka
STOCK_METRICS = {"OfflinePartitionsCount"}


def test_the_documentation_of_the_config_is_that_of_the_series() -> None:
    literal = r'"((?:\\.|[^"\\])*)"'
    (definition,) = re.findall(rf"String MIN_IN_SYNC_RACKS_DOC = ((?:{literal}\s*\+?\s*)+);", ADDED)
    series = "".join(re.findall(literal, definition[0])).replace('\\"', '"')
    quoted = " ".join(line.removeprefix(">").strip() for line in PROPOSAL.splitlines() if line.startswith(">"))
    assert quoted == " ".join(series.split())


def test_the_schema_change_is_that_of_the_series() -> None:
    (block,) = re.findall(r"```diff\n(.*?)```", PROPOSAL, re.DOTALL)
    added = [line[1:] for line in block.splitlines() if line.startswith("+")]
    # in the request and in the response
    assert [ADDED.count(line) for line in added] == [2, 2]


def test_the_table_of_metrics_is_complete() -> None:
    listed = re.findall(r"^\| `kafka\.\w+:type=\w+,name=(\w+)", PROPOSAL, re.MULTILINE)
    named = set(re.findall(r'"([A-Z]\w*(?:Count|Rate|PerSec|RackIsr|ExceedsMetadata))"', ADDED))
    assert len(listed) == len(set(listed))
    assert set(listed) == named - STOCK_METRICS


def headings(document: str) -> list[str]:
    text = (paths.REPO / document).read_text(encoding="utf-8")
    return re.findall(r"^##+ (.+)$", text, re.MULTILINE)


def test_the_places_of_claims_exist() -> None:
    deviations = re.findall(r"^\| (D\d+) \|", (paths.REPO / "kip" / "deviations.md").read_text(encoding="utf-8"), re.M)
    sections = headings("kip/KIP-1290.md")
    for claim in load().claims.values():
        if claim.document == "revised":
            for part in re.split("; |, (?=D)", claim.place):
                assert part in deviations or any(part.startswith(section) for section in sections), claim.id
        elif claim.document == "measured":
            document, section, *_ = claim.place.split(", ")
            folder = "" if "/" in document else "kip/"
            assert section in headings(f"{folder}{document}"), claim.id
