"""Claims about the KIP: parsing and verdicts, and the project's own claims."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ducktape_tests import plan
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.evidence import artifacts, rules
from pyhooks.evidence.claims import CONDITIONAL, CONFIRMED, NOT_TESTABLE, REFUTED, Condition, load
from pyhooks.evidence.rules import NOT_RUN, STALE, UNDECIDED, AbsentError, value_at
from written_claims import GOOD, read

# -- parsing ----------------------------------------------------------------------------------------------------------


def test_claims_are_read(tmp_path: Path) -> None:
    claims = read(tmp_path)
    assert list(claims.claims) == ["one", "two", "three"]
    one = claims.claims["one"]
    assert one.rules[CONDITIONAL] == (Condition("sum", "/n", "is", 0), Condition("sum", "/rows/name=a/v", "most", 3))
    assert claims.claims["two"].rules[REFUTED][0] == Condition("tests", "", "failed", cases=("kafka.PTest#testA",))
    assert (claims.runs["sum"].statuses, claims.runs["tests"].statuses) == ((0,), (0, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "one"', 'id = "One"', "claim One: id: must be lower-case"),
        ('id = "one"', 'id = "two"', "claim two: id: is used twice"),
        ('id = "tests"', 'id = "sum"', "run sum: id: is used twice"),
        ('run = "sum"', "", "claim one: run: is missing, so nothing checks it"),
        ('run = "sum"', 'run = "none"', "claim one: run: must be one of sum, tests, is 'none'"),
        ('verdict = "confirmed"', 'verdict = "true"', "claim one: verdict: must be one of confirmed, .* is 'true'"),
        ('verdict = "confirmed"', 'verdict = "refuted"', "claim one: why: is missing, and the verdict is refuted"),
        ('verdict = "confirmed"', 'verdict = "not testable"\nwhy = "x"', "claim one: verdict: is not testable, but"),
        ("confirmed = [{ at = \"/n\", is = 1 }]\nref", "ref", "claim one: verdict: no rule for confirmed"),
        ("refuted = [{ at = \"/n\", least = 2 }]", "refuted = []", "claim one: refuted: must have at least 1 item"),
        ("least = 2", 'least = "2"', "claim one: refuted 1: least: must be a valid number, is '2'"),
        ("least = 2", "least = 2, most = 3", "claim one: refuted 1: at: goes with exactly one of"),
        ("least = 2", "near = 2", "claim one: refuted 1: within: is missing"),
        ("least = 2", "least = 2, within = 1", "claim one: refuted 1: within: unknown key"),
        ("least = 2", "leats = 2", "claim one: refuted 1: at: goes with exactly one of is, least, most"),
        ("least = 2", "least = 2, leats = 2", "claim one: refuted 1: leats: unknown key; known keys: of, "),
        ('at = "/n", least', 'at = "n", least', "at: must begin with /"),
        ('of = "tests", failed', 'of = "other", failed', "claim two: refuted 1: of: must be one of sum, tests"),
        ('of = "tests", failed', "failed", "run sum is of kind json"),
        ("kafka.PTest#testA\"] }, { at", "kafka.QTest#testA\"] }, { at", "kafka.QTest is not run by tests"),
        ("kafka.PTest#testA\"] }, { at", "testA\"] }, { at", "must be package.Class#method"),
        ('document = "kip"', 'document = "kap"', "claim one: document: must be one of kip, is 'kap'"),
        ('why = "A fails"', "", "claim two: why: is missing"),
        ('command = "rackgate plan --json"', 'command = "rm -r x"', "run sum: command: must begin with rackgate or py"),
        ('command = "rackgate plan --json"', "commands = { x = 'rm -r x' }", "run sum: commands.x: must begin with"),
        ('command = "rackgate plan --json"', "commands = 'rackgate plan'", "run sum: commands: must be an object"),
        ('command = "rackgate plan --json"', "", "run sum: command: exactly one of command and commands"),
        ('reads = "out/*.xml"', "", "run tests: reads: is missing: of kind junit"),
        ('cost = "minutes"', 'cost = "cheap"', "run tests: cost: must be 'seconds', .* is 'cheap'"),
        ("minutes = 2", "minutes = 0", "run tests: minutes: must be greater than or equal to 0.01, is 0"),
        ("says = \"advice\"", "say = \"advice\"", "claim three: says: is missing"),
        ('says = "advice"', 'says = "advice"\nsaid = 1', "claim three: said: unknown key; known keys: verdict, run"),
        ('verdict = "not testable"', 'verdict = "not testable"\nrefuted = []', "claim three: verdict: is not testable"),
        ('run = "sum"', 'run = "sum"\nruns = ["sum"]', "claim one: runs: unknown key; known keys: verdict, run, "),
        ('kip = "the <KIP>"', "kip = 1", "documents.kip: must be a valid string, is 1"),
        ("minutes = 2", "minutes = true", "run tests: minutes: must be a valid number"),
        ("statuses = [0, 1]", "statuses = [true]", "run tests: statuses: value 1 must be a valid integer"),
        ('id = "one"', "id = 1", "claim 1: id: must be a valid string"),
        ("[[claim]]", "[[claim]", "not TOML"),
    ],
)  # fmt: skip
def test_invalid_entries_are_one_line_errors(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(RackgateError, match=message) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert "claims.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_without_claims_and_an_empty_file_are_rejected(tmp_path: Path) -> None:
    unused = GOOD.replace('runs = ["sum", "tests"]', 'run = "sum"')
    unused = re.sub(r", \{ of = \"tests\", passed = [^}]*\}", "", unused)
    unused = re.sub(r"\{ of = \"tests\", failed = [^}]*\}, ", "", unused)
    with pytest.raises(RackgateError, match="run tests: checks no claim"):
        read(tmp_path, unused)
    with pytest.raises(RackgateError, match="documents: is missing"):
        read(tmp_path, "")
    with pytest.raises(RackgateError, match="claim: is missing"):
        read(tmp_path, "[documents]")


# -- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "state", "because"),
    [
        ({"n": 1}, CONFIRMED, "/n is 1"),
        ({"n": 7}, REFUTED, "/n is 7"),
        ({"n": 0, "rows": [{"name": "a", "v": 3}]}, CONDITIONAL, "name=a/v is 3"),
        ({"n": 0, "rows": [{"name": "a", "v": 4}]}, UNDECIDED, "name=a/v is 4"),
        ({"n": 0, "rows": [{"name": "a", "v": 1}, {"name": "a", "v": 1}]}, UNDECIDED, "2 have name=a"),
        ({"n": 0}, UNDECIDED, "there is no rows"),
        ({"n": True}, UNDECIDED, "/n is True"),
        ({"n": "1"}, UNDECIDED, "/n is '1'"),
        ({}, UNDECIDED, "there is no n"),
        ([], UNDECIDED, "there is no n"),
    ],
)
def test_a_verdict_follows_from_the_result(tmp_path: Path, result: Any, state: str, because: str) -> None:
    judged = rules.judge(read(tmp_path).claims["one"], {"sum": result}, {})
    assert judged.state == state
    assert any(because in line for line in judged.because)


def test_contradictory_rules_that_are_both_met_are_undecided(tmp_path: Path) -> None:
    claims = read(tmp_path, GOOD.replace("least = 2", "least = 1", 1))
    judged = rules.judge(claims.claims["one"], {"sum": {"n": 1}}, {})
    assert (judged.state, judged.because) == (UNDECIDED, ("the rules for confirmed and refuted are all met",))


def test_missing_results_give_no_verdict(tmp_path: Path) -> None:
    claims = read(tmp_path)
    assert rules.judge(claims.claims["one"], {}, {}).state == NOT_RUN
    assert rules.judge(claims.claims["two"], {"sum": {"n": 1}}, {}).state == NOT_RUN
    # a required test was not among the selected ones
    partial = {"sum": {"n": 1}, "tests": {"cases": {"kafka.PTest#testA": "failed"}}}
    judged = rules.judge(claims.claims["two"], partial, {})
    assert (judged.state, judged.because) == (NOT_RUN, ("tests.test_x#test_b has not been run",))
    assert rules.judge(claims.claims["three"], {}, {}) == rules.ClaimJudgement(NOT_TESTABLE, ("nothing to run",))


@pytest.mark.parametrize(
    ("a", "b", "state"),
    [
        ("passed", "passed", CONFIRMED),
        ("failed", "passed", REFUTED),
        ("passed", "failed", UNDECIDED),
        ("skipped", "passed", UNDECIDED),
        ("absent", "passed", UNDECIDED),
    ],
)
def test_skipped_or_missing_tests_are_undecided(tmp_path: Path, a: str, b: str, state: str) -> None:
    results = {"sum": {"n": 1}, "tests": {"cases": {"kafka.PTest#testA": a, "tests.test_x#test_b": b}}}
    assert rules.judge(read(tmp_path).claims["two"], results, {}).state == state


def test_stale_results_have_no_verdict(tmp_path: Path) -> None:
    judged = rules.judge(read(tmp_path).claims["one"], {"sum": {"n": 1}}, {"sum": "the patch series has changed"})
    assert (judged.state, judged.was) == (STALE, CONFIRMED)
    assert judged.because == ("sum: the patch series has changed",)


@pytest.mark.parametrize(
    ("compare", "value", "found", "met"),
    [
        ("is", 2, 2.0, True), ("is", True, 1, False), ("is", 1, True, False), ("is", [2, 3], [2, 3], True),
        ("is", [], {}, False), ("least", 2, 2, True), ("least", 2, 1.9, False), ("most", 2, None, False),
        ("has", "b", ["a", "b"], True), ("has", "b", "abc", True), ("has", 1, "1", False), ("lacks", "b", ["a"], True),
        ("lacks", "b", None, False), ("lacks", "b", {"b": 1}, False), ("near", 8e-6, 8.0000001e-6, True),
        ("near", 8e-6, 8.1e-6, False),
    ],
)  # fmt: skip
def test_comparisons(compare: str, value: Any, found: Any, met: bool) -> None:
    assert rules.compare(Condition("r", "/x", compare, value, 1e-6 if compare == "near" else 0.0), found) is met


def test_values_are_found_by_pointer() -> None:
    result = {"a/b": {"~": 1}, "rows": [{"arm": "B", "at": "p50", "v": 5}, {"arm": "B", "at": "p99", "v": 9}]}
    assert value_at(result, "/a~1b/~0") == 1
    assert value_at(result, "/rows/#") == 2
    assert value_at(result, "/rows/1/v") == value_at(result, "/rows/arm=B&at=p99/v") == 9
    assert value_at({"/rows/arm=B&at=p99/v": 7}, "/rows/arm=B&at=p99/v") == 7
    kept = {"/rows/arm=B": {"verdict": "faster"}, "/rows/arm=BB": {"verdict": "slower"}}
    assert value_at(kept, "/rows/arm=BB/verdict") == "slower"
    assert value_at(kept, "/rows/arm=B") == {"verdict": "faster"}
    for absent in ("/x", "/rows/2", "/rows/arm=B/v", "/rows/v", "/a~1b/~0/deeper"):
        with pytest.raises(AbsentError):
            value_at(result, absent)


# -- claims of the project --------------------------------------------------------------------------------------------


def test_the_project_has_enough_claims_and_their_tests_exist() -> None:
    claims = load()
    kip = [claim for claim in claims.claims.values() if claim.document == "kip"]
    assert len(kip) >= 30
    assert {claim.document for claim in claims.claims.values()} == set(claims.documents)
    test_ids = {test.id for test in plan.load()}
    for claim in claims.claims.values():
        for condition in (condition for rule in claim.rules.values() for condition in rule):
            if claims.runs[condition.run].kind == "system":
                assert condition.at.split("/")[2] in test_ids, claim.id
            for case in condition.cases:
                name, _, method = case.partition("#")
                if name.startswith("tests."):
                    source = (paths.REPO / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
                    assert f"def {method}(" in source, case
    for run in claims.runs.values():
        for command in run.commands.values():
            for argument in shlex.split(command):
                if argument.startswith("tests/"):
                    assert (paths.REPO / argument).is_file(), run.id


def test_committed_artifacts_do_not_contradict_the_claims() -> None:
    claims = load()
    assert artifacts.faults(claims, artifacts.read_results(claims)) == []


def test_the_deviations_cite_all_refuted_claims_with_their_verdicts() -> None:
    claims = load().claims
    kip_claims = {name for name, claim in claims.items() if claim.document == "kip"}
    revised = {name for name, claim in claims.items() if claim.document == "revised"}
    text = (paths.REPO / "kip" / "deviations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (D\d+) \| (.*)\|$", text, re.MULTILINE)
    assert [name for name, _ in rows] == [f"D{number}" for number in range(1, len(rows) + 1)]
    cited: set[str] = set()
    for name, row in rows:
        proposed, *_, last = row.split(" | ")
        ids = set(re.findall(r"`([a-z0-9-]+)`", last))
        verdicts = dict(re.findall(r"`([a-z0-9-]+)`: ([a-z]+(?: [a-z]+)*)", last))
        assert ids, f"{name} cites no claim"
        assert ids <= kip_claims | revised, name
        assert verdicts == {claim_id: claims[claim_id].verdict for claim_id in ids}, name
        # deviations from what the KIP does not mention contradict none of its claims
        assert bool(ids & kip_claims) == (proposed not in ("nothing said", "no tool")), name
        cited |= ids
    assert {name for name in kip_claims if claims[name].verdict == REFUTED} | revised <= cited
