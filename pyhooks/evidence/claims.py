"""Parser for ``kip/claims.toml``: claims, runs that check them, and rules that judge the results."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from pyhooks.core import paths, toml_config
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import DistinctNaturals, Table, Text, matching

CLAIMS = paths.REPO / "kip" / "claims.toml"
# verdicts of rules; NOT_TESTABLE is a human judgement with a reason instead of a rule
CONFIRMED, REFUTED, CONDITIONAL, NOT_TESTABLE = "confirmed", "refuted", "confirmed with a condition", "not testable"
RunCost = Literal["seconds", "minutes", "lab", "hours"]
COSTS: tuple[RunCost, ...] = get_args(RunCost)
RULES = {"confirmed": CONFIRMED, "refuted": REFUTED, "conditional": CONDITIONAL}
VERDICTS = (CONFIRMED, CONDITIONAL, REFUTED, NOT_TESTABLE)
PROGRAMS = ("rackgate", "pytest")
# dependencies: the whole patch series, or only what is built from it, without its tests
SERIES, OVERLAY = "series", "overlay"
_Id = Annotated[str, matching("[a-z0-9]+(-[a-z0-9]+)*", "lower-case words and digits with hyphens between")]
_COMPARES = ("is", "least", "most", "has", "lacks", "near")
_NUMBERS = ("least", "most", "near")
_Case = Annotated[str, matching(r"[\w.]+#\w+", "package.Class#method")]
_Cases = Annotated[tuple[_Case, ...], Field(min_length=1)]


@dataclass(frozen=True)
class ClaimRun:
    """Commands whose result is kept as an artifact, and the dependencies of that result."""

    id: _Id  # lower-case words with hyphens; the artifact is ``kip/evidence/ID.json``
    # ``json`` (standard output, or the file in ``reads``), ``junit`` (XML) or ``system`` (``results.json``)
    kind: Literal["json", "junit", "system"]
    # command by label. The label of a single command is empty, and its result is not nested under it
    commands: Mapping[str, str]
    cost: RunCost  # ``seconds``, ``minutes``, ``lab`` (minutes to an hour, in namespaces) or ``hours``
    minutes: Annotated[float, Field(ge=0.01)]
    needs: Text
    # ``series``, ``overlay`` or file patterns; their change makes the artifact stale
    depends: tuple[Text, ...] = (SERIES,)
    reads: str = ""  # file or pattern, relative to the repository, that the command writes; empty for standard output
    keep: tuple[Text, ...] = ()  # keys of each command's result, or pointers into it, to keep; all if empty
    statuses: DistinctNaturals = (0,)  # exit statuses with a valid result


@dataclass(frozen=True)
class Condition:
    """Condition on the result of one run; all conditions of a rule must be true."""

    run: str
    # pointer into its result, such as ``/weighed/total`` or ``/rows/name=x/value``; empty if there are ``cases``
    at: str
    # ``is``, ``least``, ``most``, ``has``, ``lacks`` or ``near``; with ``cases``, ``passed`` or ``failed``
    compare: str
    value: Any = None
    within: float = 0.0  # allowed relative difference for ``near``
    # ``package.Class#method`` of JUnit, ``tests.test_x#test_y`` of pytest. With ``passed`` all must have passed, with
    # ``failed`` at least one must have failed
    cases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """Checkable sentence of a document."""

    id: _Id
    document: str
    place: Text
    says: Text  # the sentence in our own words, short
    verdict: str  # expected verdict; an artifact with another verdict is an error
    why: str = ""  # reason for a verdict other than ``confirmed``: the condition, or the correct statement
    runs: tuple[str, ...] = ()  # ids of the runs that check it; empty if it is not testable
    rules: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Claims:
    """Content of the file."""

    documents: Mapping[str, str]
    runs: Mapping[str, ClaimRun]
    claims: Mapping[str, Claim]


def load(path: Path = CLAIMS) -> Claims:
    """Parse the file.

    Raises:
        RackgateError: it can't be read, or an entry is invalid; the error names the entry and the reason.
    """
    top = Table(toml_config.read(path, "it lists the claims of the KIP and their checks"), path)
    titles = top.table("documents")
    documents = {key: titles.text(key) for key in titles.left()}
    runs: dict[str, ClaimRun] = {}
    for table in top.tables("run", ()):
        run = _parse_run(table)
        if run.id in runs:
            raise table.wrong("id", "is used twice")
        runs[run.id] = run
    claims: dict[str, Claim] = {}
    for table in top.tables("claim"):
        claim = _parse_claim(table, documents, runs)
        if claim.id in claims or claim.id in runs:
            raise table.wrong("id", "is used twice")
        claims[claim.id] = claim
    top.done()
    used = {run for claim in claims.values() for run in claim.runs}
    for unused in runs.keys() - used:
        raise RackgateError(f"{path}: run {unused}: checks no claim")
    return Claims(documents, runs, claims)


def _parse_commands(table: Table) -> dict[str, str]:
    if table.has("command") is table.has("commands"):
        raise table.wrong("command", "exactly one of command and commands must be given")
    if table.has("command"):
        return {"": _parse_command(table, "command")}
    commands = table.table("commands")
    return {label: _parse_command(commands, label) for label in commands.left()}


def _parse_command(table: Table, key: str) -> str:
    command = table.text(key)
    if shlex.split(command)[0] not in PROGRAMS:
        raise table.wrong(key, f"must begin with {' or '.join(PROGRAMS)}, is {command!r}")
    return command


def _parse_run(table: Table) -> ClaimRun:
    several = table.has("commands")
    run = table.into(ClaimRun, commands=_parse_commands(table))
    if several and (run.kind != "json" or run.reads):
        raise table.wrong("commands", "several commands are possible only for JSON on standard output")
    if run.kind != "json" and not run.reads:
        raise table.wrong("reads", f"is missing: of kind {run.kind}, the files that the command writes")
    return run


def _parse_claim(table: Table, documents: Mapping[str, str], runs: Mapping[str, ClaimRun]) -> Claim:
    verdict = table.choice("verdict", VERDICTS)
    run_ids = (table.choice("run", tuple(runs)),) if table.has("run") else table.choices("runs", tuple(runs), ())
    rule_names = [name for name in RULES if table.has(name)]
    if verdict == NOT_TESTABLE and (run_ids or rule_names):
        raise table.wrong("verdict", "is not testable, but has a run or a rule")
    if verdict != NOT_TESTABLE and not run_ids:
        raise table.wrong("run", "is missing, so nothing checks it")
    claim = table.into(
        Claim,
        document=table.choice("document", tuple(documents)),
        verdict=verdict,
        runs=run_ids,
        rules={
            RULES[name]: tuple(_parse_condition(condition, run_ids, runs) for condition in table.tables(name))
            for name in rule_names
        },
    )
    if verdict != CONFIRMED and not claim.why:
        raise table.wrong("why", f"is missing, and the verdict is {verdict}")
    if verdict != NOT_TESTABLE and verdict not in claim.rules:
        raise table.wrong("verdict", f"no rule for {verdict}")
    for name in set(run_ids) - {condition.run for conditions in claim.rules.values() for condition in conditions}:
        raise table.wrong("run", f"no rule uses the result of {name}")
    return claim


def _parse_condition(table: Table, run_ids: Sequence[str], runs: Mapping[str, ClaimRun]) -> Condition:
    run = table.choice("of", run_ids, run_ids[0])
    for key in ("passed", "failed"):
        if table.has(key):
            cases: tuple[str, ...] = table.get(key, _Cases)
            for case in cases:
                if fault := _case_fault(case, runs[run]):
                    raise table.wrong(key, f"{case}: {fault}")
            return Condition(run, "", key, cases=cases)
    compares = [name for name in _COMPARES if table.has(name)]
    if len(compares) != 1:
        raise table.wrong("at", f"goes with exactly one of {', '.join(_COMPARES)}")
    compare = compares[0]
    at = table.text("at")
    if not at.startswith("/"):
        raise table.wrong("at", "must begin with /, such as /weighed/total")
    value = table.number(compare) if compare in _NUMBERS else table.get(compare, Any)
    return Condition(run, at, compare, value, table.number("within", 0) if compare == "near" else 0.0)


def _case_fault(case: str, run: ClaimRun) -> str:
    """Return the reason why a run can't have a result for a test; empty if it can."""
    if run.kind != "junit":
        return f"run {run.id} is of kind {run.kind} and has no tests of that form"
    name = case.partition("#")[0]
    arguments = [argument for command in run.commands.values() for argument in shlex.split(command)]
    if {name, name.replace(".", "/") + ".py"} & {argument.partition("::")[0] for argument in arguments}:
        return ""
    return f"{name} is not run by {run.id}"
