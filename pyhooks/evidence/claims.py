"""``kip/claims.toml``: the claims, the runs that check them, and the rules by which a result is judged."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhooks import paths, toml
from pyhooks.errors import RackgateError

CLAIMS = paths.REPO / "kip" / "claims.toml"
# what a rule can say; NOT_TESTABLE is a person's word and has a reason instead of a rule
CONFIRMED, REFUTED, CONDITIONAL, NOT_TESTABLE = "confirmed", "refuted", "confirmed with a condition", "not testable"
RULES = {"confirmed": CONFIRMED, "refuted": REFUTED, "conditional": CONDITIONAL}
VERDICTS = (CONFIRMED, CONDITIONAL, REFUTED, NOT_TESTABLE)
KINDS = ("json", "junit", "system")
COSTS = ("seconds", "minutes", "lab", "hours")
PROGRAMS = ("rackgate", "pytest")
# The whole series, or what is built from it: its tests are no part of a broker.
SERIES, OVERLAY = "series", "overlay"
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_COMPARES = ("is", "least", "most", "has", "lacks", "near")
_NUMBERS = ("least", "most", "near", "within")
_CASE = re.compile(r"[\w.]+#\w+")


@dataclass(frozen=True)
class Run:
    """A command whose result is kept, and what that result depends on.

    Attributes:
        id: lower-case words with hyphens; the artifact is ``kip/evidence/ID.json``.
        kind: ``json`` (what it prints, or the file in ``reads``), ``junit`` (XML) or ``system`` (``results.json``).
        commands: label to command; of a single command the label is empty, and its result has no level of its own.
        cost: ``seconds``, ``minutes``, ``lab`` (minutes to an hour, in namespaces) or ``hours``.
        minutes: what it is expected to take.
        needs: what must be there before, in words.
        depends: ``series``, ``overlay``, or patterns of files, whose change makes the artifact stale.
        reads: file or pattern, from the root of the repository, that the command writes; empty for standard output.
        keep: keys of the object that each command prints, or pointers into it, of what is kept; all if empty.
        statuses: exit statuses with which there is a result.
    """

    id: str
    kind: str
    commands: Mapping[str, str]
    cost: str
    minutes: float
    needs: str
    depends: tuple[str, ...]
    reads: str
    keep: tuple[str, ...]
    statuses: tuple[int, ...]


@dataclass(frozen=True)
class Atom:
    """One condition on the result of one run: all of a rule must hold.

    Attributes:
        run: whose result.
        at: pointer into it, such as ``/weighed/total`` or ``/rows/name=x/value``; empty if ``cases`` are given.
        compare: one of ``is``, ``least``, ``most``, ``has``, ``lacks``, ``near``; of cases ``passed`` or ``failed``.
        value: what is compared with.
        within: of ``near``, the relative difference that is allowed.
        cases: ``package.Class#method`` of JUnit, ``tests.test_x#test_y`` of pytest. All must have passed, or at
            least one must have failed.
    """

    run: str
    at: str
    compare: str
    value: Any = None
    within: float = 0.0
    cases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A sentence that can be checked.

    Attributes:
        id: lower-case words with hyphens.
        document: key of the table ``documents``.
        place: section and line or row in the document.
        says: the sentence in words of ours, short.
        verdict: what this project holds to be so; an artifact that says otherwise is an error.
        why: the reason for a verdict other than ``confirmed``: the condition, or what is so instead.
        runs: ids of the runs that check it; empty if it is not testable.
        rules: verdict to the conditions under which it is given.
    """

    id: str
    document: str
    place: str
    says: str
    verdict: str
    why: str
    runs: tuple[str, ...]
    rules: Mapping[str, tuple[Atom, ...]]


@dataclass(frozen=True)
class Claims:
    """All of the file.

    Attributes:
        documents: key to title.
        runs: by id, in the order of the file.
        claims: by id, in the order of the file.
    """

    documents: Mapping[str, str]
    runs: Mapping[str, Run]
    claims: Mapping[str, Claim]


def load(path: Path = CLAIMS) -> Claims:
    """Reads the file.

    Raises:
        RackgateError: it can't be read, or an entry is wrong: which, and how.
    """
    told = toml.read(path, "it lists what the KIP claims and what checks it")
    _known(told, {"documents", "run", "claim"}, str(path))
    documents = {str(key): str(title) for key, title in told.get("documents", {}).items()}
    runs: dict[str, Run] = {}
    for number, entry in enumerate(told.get("run", []), 1):
        run = _run(entry, _where(path, "run", number, entry))
        if run.id in runs:
            raise RackgateError(f"{path}: run {run.id}: there are two of this id")
        runs[run.id] = run
    claims: dict[str, Claim] = {}
    for number, entry in enumerate(told.get("claim", []), 1):
        claim = _claim(entry, _where(path, "claim", number, entry), documents, runs)
        if claim.id in claims or claim.id in runs:
            raise RackgateError(f"{path}: claim {claim.id}: there are two of this id")
        claims[claim.id] = claim
    used = {run for claim in claims.values() for run in claim.runs}
    for idle in runs.keys() - used:
        raise RackgateError(f"{path}: run {idle}: no claim is checked by it")
    if not claims:
        raise RackgateError(f"{path}: no [[claim]]")
    return Claims(documents, runs, claims)


def _where(path: Path, kind: str, number: int, entry: Mapping[str, Any]) -> str:
    return f"{path}: {kind} {entry.get('id', number)}"


def _known(entry: Mapping[str, Any], names: set[str], where: str) -> None:
    for name in entry.keys() - names:
        raise RackgateError(f"{where}: {name} is not known; known are {', '.join(sorted(names))}")


def _text(entry: Mapping[str, Any], name: str, where: str, default: str | None = None) -> str:
    value = entry.get(name, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise RackgateError(f"{where}: {name} must be a text{' and not empty' if default is None else ''}")
    return value


def _texts(entry: Mapping[str, Any], name: str, where: str, default: Sequence[str] = ()) -> tuple[str, ...]:
    value = entry.get(name, list(default))
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise RackgateError(f"{where}: {name} must be a list of texts")
    return tuple(value)


def _id(entry: Mapping[str, Any], where: str) -> str:
    value = _text(entry, "id", where)
    if not _ID.fullmatch(value):
        raise RackgateError(f"{where}: id must be lower-case words and digits with hyphens between")
    return value


def _one_of(value: str, names: Sequence[str], name: str, where: str) -> str:
    if value not in names:
        raise RackgateError(f"{where}: {name} is {value!r}, and must be one of: {', '.join(names)}")
    return value


def _run(entry: Mapping[str, Any], where: str) -> Run:
    _known(
        entry,
        {"id", "kind", "command", "commands", "cost", "minutes", "needs", "depends", "reads", "keep", "statuses"},
        where,
    )
    kind = _one_of(_text(entry, "kind", where), KINDS, "kind", where)
    if ("command" in entry) == ("commands" in entry):
        raise RackgateError(f"{where}: it needs either command or commands")
    commands = {"": _text(entry, "command", where)} if "command" in entry else dict(entry["commands"])
    for label, command in commands.items():
        words = shlex.split(command) if isinstance(command, str) else []
        if not words or words[0] not in PROGRAMS:
            raise RackgateError(f"{where}: command {label or command!r} must begin with {' or '.join(PROGRAMS)}")
    if "commands" in entry and (kind != "json" or "reads" in entry):
        raise RackgateError(f"{where}: several commands are possible for JSON that is printed alone")
    reads = _text(entry, "reads", where, "")
    if kind != "json" and not reads:
        raise RackgateError(f"{where}: kind {kind} needs reads, the files that the command writes")
    minutes, statuses = entry.get("minutes"), entry.get("statuses", [0])
    if not isinstance(minutes, int | float) or minutes <= 0:
        raise RackgateError(f"{where}: minutes must be a number above 0")
    if not isinstance(statuses, list) or not all(isinstance(one, int) for one in statuses):
        raise RackgateError(f"{where}: statuses must be a list of exit statuses")
    return Run(
        id=_id(entry, where),
        kind=kind,
        commands=commands,
        cost=_one_of(_text(entry, "cost", where), COSTS, "cost", where),
        minutes=float(minutes),
        needs=_text(entry, "needs", where),
        depends=_texts(entry, "depends", where, (SERIES,)),
        reads=reads,
        keep=_texts(entry, "keep", where),
        statuses=tuple(statuses),
    )


def _claim(entry: Mapping[str, Any], where: str, documents: Mapping[str, str], runs: Mapping[str, Run]) -> Claim:
    _known(entry, {"id", "document", "place", "says", "verdict", "why", "run", "runs", *RULES}, where)
    verdict = _one_of(_text(entry, "verdict", where), VERDICTS, "verdict", where)
    why = _text(entry, "why", where, "")
    if verdict != CONFIRMED and not why:
        raise RackgateError(f"{where}: {verdict} needs why")
    own = (entry["run"],) if "run" in entry else _texts(entry, "runs", where)
    for name in own:
        _one_of(name, list(runs), "run", where)
    if verdict == NOT_TESTABLE:
        if own or entry.keys() & RULES.keys():
            raise RackgateError(f"{where}: not testable, yet it has a run or a rule")
        rules: dict[str, tuple[Atom, ...]] = {}
    else:
        if not own:
            raise RackgateError(f"{where}: no run, so nothing checks it")
        rules = {
            RULES[name]: tuple(_atom(one, f"{where}: {name}", own, runs) for one in entry[name])
            for name in RULES
            if name in entry
        }
        if not rules.get(verdict):
            raise RackgateError(f"{where}: no rule tells when it is {verdict}")
        for name, atoms in rules.items():
            if not atoms:
                raise RackgateError(f"{where}: the rule for {name} is empty, so it would always hold")
        for name in set(own) - {atom.run for atoms in rules.values() for atom in atoms}:
            raise RackgateError(f"{where}: no rule asks for the result of run {name}")
    return Claim(
        id=_id(entry, where),
        document=_one_of(_text(entry, "document", where), list(documents), "document", where),
        place=_text(entry, "place", where),
        says=_text(entry, "says", where),
        verdict=verdict,
        why=why,
        runs=own,
        rules=rules,
    )


def _atom(entry: Any, where: str, own: Sequence[str], runs: Mapping[str, Run]) -> Atom:
    if not isinstance(entry, dict):
        raise RackgateError(f"{where}: each condition must be a table")
    run = runs[_one_of(entry.get("of", own[0]), own, "of", where)]
    if cases := [name for name in ("passed", "failed") if name in entry]:
        _known(entry, {"of", cases[0]}, where)
        named = _texts(entry, cases[0], where)
        for case in named:
            if not _CASE.fullmatch(case):
                raise RackgateError(f"{where}: {case}: must be package.Class#method")
            _is_run(case, run, where)
        if not named:
            raise RackgateError(f"{where}: {cases[0]} names no test")
        return Atom(run.id, "", cases[0], cases=named)
    compares = [name for name in _COMPARES if name in entry]
    _known(entry, {"of", "at", "within", *_COMPARES}, where)
    if len(compares) != 1 or ("within" in entry) != (compares == ["near"]):
        raise RackgateError(f"{where}: it needs one of {', '.join(_COMPARES)}; near needs within, and it alone")
    for name in _NUMBERS:
        if name in entry and (isinstance(entry[name], bool) or not isinstance(entry[name], int | float)):
            raise RackgateError(f"{where}: {name} must be a number")
    at = _text(entry, "at", where)
    if not at.startswith("/"):
        raise RackgateError(f"{where}: at must begin with /, such as /weighed/total")
    return Atom(run.id, at, compares[0], entry[compares[0]], float(entry.get("within", 0)))


def _is_run(case: str, run: Run, where: str) -> None:
    """A test whose class no command names would never have a result."""
    if run.kind != "junit":
        raise RackgateError(f"{where}: run {run.id} is of kind {run.kind} and has no tests of that form")
    name = case.partition("#")[0]
    words = [word for command in run.commands.values() for word in shlex.split(command)]
    if not {name, name.replace(".", "/") + ".py"} & {word.partition("::")[0] for word in words}:
        raise RackgateError(f"{where}: {name} is not among what run {run.id} runs")
