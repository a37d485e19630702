"""HTML page with the matrix of claims, from claims and artifacts only."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from pyhooks.core.files import write_text
from pyhooks.evidence.artifacts import EVIDENCE, INDEX, EvidenceResults
from pyhooks.evidence.claims import CONDITIONAL, CONFIRMED, NOT_TESTABLE, REFUTED, Claim, ClaimRun, Claims
from pyhooks.evidence.rules import NOT_RUN, STALE, UNDECIDED
from pyhooks.report import pages

STATES = (CONFIRMED, CONDITIONAL, REFUTED, UNDECIDED, STALE, NOT_RUN, NOT_TESTABLE)


def counts(results: EvidenceResults) -> dict[str, int]:
    """Return the number of claims in each state, including 0."""
    states = Counter(judgement.state for judgement in results.judged.values())
    return {state: states[state] for state in STATES}


def row(claim: Claim, claims: Claims, results: EvidenceResults) -> dict[str, Any]:
    """Return the data of a claim for the page and JSON: its fields, its judgement, and each run with its artifact.

    ``agrees`` is whether the state is the expected verdict; None without a current result.
    """
    judgement = results.judged[claim.id]
    is_current = judgement.state not in (NOT_RUN, STALE)
    return {
        "id": claim.id,
        "document": claim.document,
        "place": claim.place,
        "says": claim.says,
        "why": claim.why if judgement.state == claim.verdict else "",
        "expected": claim.verdict,
        "state": judgement.state,
        "because": list(judgement.because),
        "was": judgement.was,
        "agrees": judgement.state == claim.verdict if is_current else None,
        "checks": [_check(claims.runs[name], results) for name in claim.runs],
    }


def _check(run: ClaimRun, results: EvidenceResults) -> dict[str, Any]:
    artifact: Mapping[str, Any] = results.artifacts.get(run.id, {})
    return {
        "run": run.id,
        "commands": [command for _, command in sorted(run.commands.items())],
        "cost": run.cost,
        "minutes": run.minutes,
        "needs": run.needs,
        "artifact": f"{run.id}.json" if artifact else "",
        "sha256": results.hashes.get(run.id, ""),
        "date": artifact.get("date", ""),
        "versions": artifact.get("versions", {}),
        "stale": results.stale.get(run.id, ""),
    }


def code(text: str) -> Markup:
    """Return text as HTML, with parts in backticks as ``<code>`` elements."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


def html(claims: Claims, results: EvidenceResults, artifacts: str) -> str:
    """Return the page; ``artifacts`` is a link to their folder, without a slash at its end."""
    rows = [row(claim, claims, results) for claim in claims.claims.values()]
    values = {
        "counts": counts(results),
        "documents": [
            (title, [claim for claim in rows if claim["document"] == key]) for key, title in claims.documents.items()
        ],
        "index": INDEX,
        "artifacts": artifacts,
        "code": code,
        "again": lambda claim: shlex.join(["rackgate", "evidence", "--fresh", claim["id"]]),
    }
    return pages.render(Path(__file__).with_name("page.html.j2"), values)


def write(claims: Claims, results: EvidenceResults, path: Path, folder: Path = EVIDENCE) -> None:
    """Write the page; its links to artifacts are relative to it."""
    write_text(path, html(claims, results, os.path.relpath(folder.resolve(), path.parent.resolve())))
