"""Artifacts in ``kip/evidence``: the result of a run in a few kB of JSON, with fingerprints of its dependencies."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_object, write_text
from pyhooks.core.junit import read_report
from pyhooks.evidence import fingerprint
from pyhooks.evidence.claims import OVERLAY, SERIES, Claim, ClaimRun, Claims
from pyhooks.evidence.rules import FAILED, NOT_RUN, PASSED, SKIPPED, STALE, ClaimJudgement, judge
from pyhooks.patchset import series

EVIDENCE = paths.REPO / "kip" / "evidence"
SCHEMA = 2
CACHE = paths.OUT / "evidence" / "fingerprints.json"
# an artifact is for reading and review, so its size is limited
MAX_BYTES = 32_000
# share of these bytes for measurements of system tests, and the longest list that is kept
FIGURES_BYTES, LIST_MAX = 12_000, 20
INDEX = "claims.json"
ABSENT = "absent"
_METHOD = re.compile(r"\w+")
_FIELDS = {
    "schema", "run", "commands", "statuses", "date", "seconds", "depends", "files", "versions", "machine", "result",
}  # fmt: skip


@dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of a run's dependencies."""

    depends: Mapping[str, str]  # fingerprint of each dependency, by its name in ``depends`` of the run
    files: str  # fingerprint of the contents of all files that it depends on, regardless of their paths


@dataclass(frozen=True)
class EvidenceResults:
    """Artifacts in a folder, and the judgements of all claims by them."""

    artifacts: Mapping[str, Mapping[str, Any]]  # artifact by run; runs without one are missing
    hashes: Mapping[str, str]
    stale: Mapping[str, str]  # description of the changes since a stale artifact was made, by run
    judged: Mapping[str, ClaimJudgement]


def read_results(claims: Claims, folder: Path = EVIDENCE, root: Path = paths.REPO) -> EvidenceResults:
    """Read all artifacts in ``folder`` and judge all claims by them, without running anything.

    Raises:
        RackgateError: an artifact is invalid, a pattern matches no file, or a file can't be parsed.
    """
    artifacts: dict[str, Mapping[str, Any]] = {}
    hashes: dict[str, str] = {}
    stale: dict[str, str] = {}
    current = fingerprints(claims.runs.values(), root)
    for run in claims.runs.values():
        path = folder / f"{run.id}.json"
        if not os.path.lexists(path):
            continue
        artifacts[run.id] = read(path)
        hashes[run.id] = hashlib.sha256(path.read_bytes()).hexdigest()
        if description := changes(run, artifacts[run.id], current[run.id]):
            stale[run.id] = description
    results = {name: artifact["result"] for name, artifact in artifacts.items()}
    judged = {claim.id: judge(claim, results, stale) for claim in claims.claims.values()}
    return EvidenceResults(artifacts, hashes, stale, judged)


def read(path: Path) -> Mapping[str, Any]:
    """Return an artifact.

    Raises:
        RackgateError: the file is not an artifact of this schema and of the run that its name gives.
    """
    again = f"run `rackgate evidence --fresh {path.stem}`"
    content = read_object(path, again)
    if content.get("schema") != SCHEMA or content.keys() != _FIELDS or content["run"] != path.stem:
        raise RackgateError(f"{path}: no artifact of {path.stem}; {again}")
    if invalid := [name for name in ("commands", "depends") if not isinstance(content[name], dict)]:
        raise RackgateError(f"{path}: no artifact of {path.stem}, {invalid[0]} is {content[invalid[0]]!r:.60}; {again}")
    return content


def changes(run: ClaimRun, artifact: Mapping[str, Any], current: Fingerprints) -> str:
    """Describe what has changed since an artifact was made; empty if it is current.

    Files count by content: a moved file or another pattern for the same files is no change. ``current`` has the current
    fingerprints of the run's dependencies.
    """
    descriptions = [] if artifact["commands"] == dict(run.commands) else ["the command has changed"]
    stored = artifact["depends"]
    labels = {SERIES: "the patch series", OVERLAY: "the build of the patch series"}
    same_files = artifact["files"] == current.files
    changed = [
        name
        for name, value in current.depends.items()
        if stored.get(name) != value and (name in labels or not same_files)
    ]
    descriptions += [f"{labels.get(name, name)} has changed" for name in changed if name in stored]
    not_stored = [labels.get(name, name) for name in changed if name not in stored]
    descriptions += [f"no fingerprint is stored of {', '.join(not_stored)}"] if not_stored else []
    return ", ".join(descriptions)


def fingerprints(runs: Iterable[ClaimRun], root: Path = paths.REPO) -> dict[str, Fingerprints]:
    """Return the current fingerprints of the dependencies of runs, by run.

    Fingerprints of unchanged contents are read from a cache below ``out``.

    Raises:
        RackgateError: a pattern matches no file, or a file can't be parsed.
    """
    cache = fingerprint.Cache(root / CACHE.relative_to(paths.REPO))
    # several runs have dependencies in common
    matching = functools.cache(partial(_matching_files, root=root))
    of_series = functools.cache(partial(_series_fingerprint, root=root, cache=cache))
    of_file = functools.cache(partial(_file_fingerprint, cache=cache))
    by_run = {}
    for run in runs:
        depends: dict[str, str] = {}
        files: set[Path] = set()
        for name in run.depends:
            if name in (SERIES, OVERLAY):
                depends[name] = of_series(name)
            else:
                files.update(matching(name))
                depends[name] = fingerprint.combined(map(of_file, matching(name)))
        by_run[run.id] = Fingerprints(depends, fingerprint.combined(map(of_file, files)))
    cache.save()
    return by_run


def _matching_files(pattern: str, root: Path) -> list[Path]:
    files = [path for path in root.glob(pattern) if path.is_file()]
    if not files:
        raise RackgateError(f"kip/claims.toml: a run depends on {pattern}, which matches no file")
    return files


def _file_fingerprint(path: Path, cache: fingerprint.Cache) -> str:
    content = path.read_bytes()
    return cache.get(path.suffix.encode() + b"\0" + content, lambda: fingerprint.fingerprint_of_file(path, content))


def _series_fingerprint(name: str, root: Path, cache: fingerprint.Cache) -> str:
    """Return the fingerprint of the whole series, or only of what is built from it."""
    folder = root / paths.patch_folder().relative_to(paths.REPO)
    patches = series.load_all(folder) if name == SERIES else series.load(folder)
    key = f"{name}\0{series.series_hash(patches)}".encode()
    return cache.get(key, lambda: fingerprint.fingerprint_of_patches(patches, main_only=name == OVERLAY))


def artifact_text(artifact: Mapping[str, Any]) -> str:
    """Return the text of an artifact's file.

    Raises:
        RackgateError: the artifact is too large to be committed.
    """
    text = json.dumps(artifact, indent=1, sort_keys=True) + "\n"
    if len(text.encode()) > MAX_BYTES:
        raise RackgateError(
            f"run {artifact['run']}: its result has {len(text.encode())} bytes, more than {MAX_BYTES}: list the "
            "needed values in `keep` of kip/claims.toml"
        )
    return text


def required_tests(claims: Claims, run: str) -> tuple[str, ...]:
    """Return the tests of a run that rules require."""
    conditions = (condition for claim in claims.claims.values() for rule in claim.rules.values() for condition in rule)
    return tuple(sorted({case for condition in conditions if condition.run == run for case in condition.cases}))


def junit_result(files: Iterable[Path], required: Sequence[str]) -> dict[str, Any]:
    """Return the outcomes of the wanted tests in JUnit XML files, and the number of all tests by outcome.

    A parameterized test has passed only if it has passed with all parameters.

    Raises:
        RackgateError: there is no file, or a file is not XML.
    """
    outcomes: dict[str, set[str]] = {}
    totals = dict.fromkeys((PASSED, FAILED, SKIPPED), 0)
    files = list(files)
    for case in (case for file in files for case in read_report(file).cases):
        outcome = FAILED if case.status == "error" else case.status
        totals[outcome] += 1
        method = _METHOD.match(case.name)
        outcomes.setdefault(f"{case.owner}#{method.group() if method else ''}", set()).add(outcome)
    if not files:
        raise RackgateError("no report of tests was written")
    return {"cases": {name: _combined_outcome(outcomes.get(name, set())) for name in required}, "totals": totals}


def _combined_outcome(outcomes: set[str]) -> str:
    return next((outcome for outcome in (FAILED, SKIPPED, PASSED) if outcome in outcomes), ABSENT)


def system_result(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the system tests' ``results.json``, shortened for an artifact.

    Measured figures are kept if they are short; a text replaces each long one, so that no rule can use it.
    """
    names = ("outcome", "reasons", "seconds", "verdicts", "figures")
    tests = {test["id"]: {name: test[name] for name in names} for test in document["results"]}
    figures = {
        (test, name): value for test, content in tests.items() for name, value in shorten(content["figures"]).items()
    }
    bytes_left = FIGURES_BYTES
    # smallest first, so that a test with large figures leaves space for the others
    for (test, name), value in sorted(figures.items(), key=lambda item: (_figure_bytes(item[1]), item[0])):
        bytes_left -= _figure_bytes(value)
        if bytes_left < 0:
            figures[test, name] = f"left out: {_figure_bytes(value)} bytes"
    for test, content in tests.items():
        content["figures"] = {name: value for (owner, name), value in figures.items() if owner == test}
    return {"seed": document["seed"], "counts": document["counts"], "tests": tests}


def shorten(value: Any) -> Any:
    """Return figures with each long list replaced by a text with its length."""
    if isinstance(value, Mapping):
        return {str(name): shorten(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shorten(item) for item in value] if len(value) <= LIST_MAX else f"left out: {len(value)} values"
    return value


def _figure_bytes(value: Any) -> int:
    """Return the size of a figure in an artifact in bytes, where its lines have a deeper indentation."""
    text = json.dumps(value, indent=1)
    return len(text) + 6 * (text.count("\n") + 1)


def index_content(claims: Claims, results: EvidenceResults) -> dict[str, Any]:
    """Return the index, which is committed with the artifacts: state of each claim and SHA-256 of its artifacts."""
    return {
        name: {
            "state": judgement.state,
            "artifacts": {run: results.hashes[run] for run in claims.claims[name].runs if run in results.hashes},
        }
        for name, judgement in results.judged.items()
    }


def write_index(claims: Claims, results: EvidenceResults, folder: Path = EVIDENCE) -> None:
    """Write the index."""
    text = json.dumps(index_content(claims, results), indent=1, sort_keys=True) + "\n"
    write_text(folder / INDEX, text)


def contradiction(claim: Claim, judged: ClaimJudgement) -> str:
    """Describe how current artifacts contradict the expected verdict of a claim; empty if they do not."""
    if judged.state == claim.verdict or judged.state in (NOT_RUN, STALE):
        return ""
    reasons = "; ".join(judged.because)
    return f"{claim.id}: claims.toml expects {claim.verdict}, the artifact gives {judged.state}: {reasons}"


def missing(results: EvidenceResults) -> list[str]:
    """Describe the claims without a current result, with the commands to run; ``--check --strict`` fails for them."""
    return [
        f"{name}: {judgement.state}: {'; '.join(judgement.because)}; run `rackgate evidence {name}`"
        for name, judgement in results.judged.items()
        if judgement.state in (NOT_RUN, STALE)
    ]


def faults(claims: Claims, results: EvidenceResults, folder: Path = EVIDENCE) -> list[str]:
    """Describe faults of the committed files: contradictions of claims, and an index that does not match."""
    faults = [
        contradiction_text
        for name, judgement in results.judged.items()
        if (contradiction_text := contradiction(claims.claims[name], judgement))
    ]
    path = folder / INDEX
    try:
        index = read_object(path, "`rackgate evidence --judge` writes it") if os.path.lexists(path) else {}
        if invalid := [
            name
            for name, content in index.items()
            if name in claims.claims and not (isinstance(content, dict) and {"state", "artifacts"} <= set(content))
        ]:
            raise RackgateError(f"{path}: {invalid[0]}: not an entry of the index")
    except RackgateError as error:
        return [*faults, f"{error}; run `rackgate evidence --judge`"]
    for name, entry in index_content(claims, results).items():
        content = index.get(name, {"state": NOT_RUN, "artifacts": {}})
        if content["artifacts"] != entry["artifacts"]:
            faults.append(f"{name}: {INDEX} has other hashes of its artifacts; run `rackgate evidence --judge`")
        # a state that became stale by a later change is no fault of the index
        elif content["state"] != entry["state"] and entry["state"] != STALE and claims.claims[name].runs:
            faults.append(
                f"{name}: {INDEX} has state {content['state']}, which is now {entry['state']}; "
                "run `rackgate evidence --judge`"
            )
    faults += [f"{name}: listed in {INDEX}, but not in claims.toml" for name in index.keys() - claims.claims.keys()]
    return faults
