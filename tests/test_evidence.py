"""The claims about the KIP: how they are read, judged, kept and shown."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ducktape_tests import plan
from pyhooks import paths
from pyhooks.cli import app
from pyhooks.errors import RackgateError
from pyhooks.evidence import artifacts, cli, judging, page, running
from pyhooks.evidence.claims import CONDITIONAL, CONFIRMED, NOT_TESTABLE, REFUTED, Atom, Claims, load
from pyhooks.evidence.judging import NOT_RUN, STALE, UNDECIDED, AbsentError, find
from pyhooks.evidence.running import Done

GOOD = """
[documents]
kip = "the <KIP>"

[[run]]
id = "sum"
kind = "json"
command = "rackgate plan --json"
cost = "seconds"
minutes = 0.1
needs = "nothing"
depends = ["input/*.txt"]

[[run]]
id = "tests"
kind = "junit"
command = "pytest tests/test_x.py kafka.PTest --junitxml out/x.xml"
reads = "out/*.xml"
cost = "minutes"
minutes = 2
needs = "Maven"
depends = ["input/*.txt"]
statuses = [0, 1]

[[claim]]
id = "one"
document = "kip"
place = "Motivation, sentence 1"
says = "n is 1 & more"
run = "sum"
confirmed = [{ at = "/n", is = 1 }]
refuted = [{ at = "/n", least = 2 }]
conditional = [{ at = "/n", is = 0 }, { at = "/rows/name=a/v", most = 3 }]
verdict = "confirmed"

[[claim]]
id = "two"
document = "kip"
place = "Motivation, sentence 2"
says = "both pass"
runs = ["sum", "tests"]
confirmed = [{ at = "/n", is = 1 }, { of = "tests", passed = ["kafka.PTest#testA", "tests.test_x#test_b"] }]
refuted = [{ of = "tests", failed = ["kafka.PTest#testA"] }, { at = "/n", is = 1 }]
verdict = "refuted"
why = "A fails"

[[claim]]
id = "three"
document = "kip"
place = "Motivation, sentence 3"
says = "advice"
verdict = "not testable"
why = "nothing to run"
"""

XML = """<testsuite>
<testcase classname="kafka.PTest" name="testA(String)[1]"/>
<testcase classname="kafka.PTest" name="testA(String)[2]">{a}</testcase>
<testcase classname="tests.test_x" name="test_b[x]"/>
<testcase classname="tests.test_x" name="test_c"><skipped/></testcase>
</testsuite>"""


def read(tmp_path: Path, text: str = GOOD) -> Claims:
    path = tmp_path / "claims.toml"
    path.write_text(text, encoding="utf-8")
    return load(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text("a", encoding="utf-8")
    return tmp_path


class Commands:
    """In place of processes: writes what they would, and remembers what was asked for."""

    def __init__(self, root: Path, answer: Any, failing: str = "") -> None:
        self.root, self.answer, self.failing = root, answer, failing
        self.asked: list[list[str]] = []
        self.status = 0

    def __call__(self, words: Sequence[str], log: Path, timeout_s: float) -> Done:
        assert timeout_s >= 600
        self.asked.append(list(words))
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("what it said", encoding="utf-8")
        if words[0] == "pytest":
            (self.root / "out").mkdir(exist_ok=True)
            text = XML.format(a=self.failing)
            (self.root / "out" / "x.xml").write_text(text, encoding="utf-8")
        return Done(self.status, json.dumps(self.answer))


def run_all(claims: Claims, root: Path, commands: Commands) -> artifacts.Book:
    for run in claims.runs.values():
        running.carry_out(claims, run, folder=root / "kept", root=root, out=root / "logs", execute=commands)
    return book_of(claims, root)


def book_of(claims: Claims, root: Path) -> artifacts.Book:
    return artifacts.read_book(claims, root / "kept", root)


# -- reading ----------------------------------------------------------------------------------------------------------


def test_claims_are_read(tmp_path: Path) -> None:
    claims = read(tmp_path)
    assert list(claims.claims) == ["one", "two", "three"]
    one = claims.claims["one"]
    assert one.rules[CONDITIONAL] == (Atom("sum", "/n", "is", 0), Atom("sum", "/rows/name=a/v", "most", 3))
    assert claims.claims["two"].rules[REFUTED][0] == Atom("tests", "", "failed", cases=("kafka.PTest#testA",))
    assert (claims.runs["sum"].statuses, claims.runs["tests"].statuses) == ((0,), (0, 1))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('id = "one"', 'id = "One"', "claim One: id: must be lower-case"),
        ('id = "one"', 'id = "two"', "claim two: id: there are two"),
        ('id = "tests"', 'id = "sum"', "run sum: id: there are two"),
        ('run = "sum"', "", "claim one: run: is missing, so nothing checks it"),
        ('run = "sum"', 'run = "none"', "claim one: run: must be one of sum, tests, is 'none'"),
        ('verdict = "confirmed"', 'verdict = "true"', "claim one: verdict: must be one of confirmed, .* is 'true'"),
        ('verdict = "confirmed"', 'verdict = "refuted"', "claim one: why: is missing, and the verdict is refuted"),
        ('verdict = "confirmed"', 'verdict = "not testable"\nwhy = "x"', "claim one: verdict: not testable, yet it"),
        ("confirmed = [{ at = \"/n\", is = 1 }]\nref", "ref", "claim one: verdict: no rule tells when it is confirmed"),
        ("refuted = [{ at = \"/n\", least = 2 }]", "refuted = []", "claim one: refuted: must be a list of tables"),
        ("least = 2", 'least = "2"', "claim one: refuted 1: least: must be a number, is '2'"),
        ("least = 2", "least = 2, most = 3", "claim one: refuted 1: at: goes with exactly one of"),
        ("least = 2", "near = 2", "claim one: refuted 1: within: is missing"),
        ("least = 2", "least = 2, within = 1", "claim one: refuted 1: within: is not known"),
        ("least = 2", "leats = 2", "claim one: refuted 1: at: goes with exactly one of is, least, most"),
        ("least = 2", "least = 2, leats = 2", "claim one: refuted 1: leats: is not known; known here: of, "),
        ('at = "/n", least', 'at = "n", least', "at: must begin with /"),
        ('of = "tests", failed', 'of = "other", failed', "claim two: refuted 1: of: must be one of sum, tests"),
        ('of = "tests", failed', "failed", "run sum is of kind json"),
        ("kafka.PTest#testA\"] }, { at", "kafka.QTest#testA\"] }, { at", "kafka.QTest is not among what run tests"),
        ("kafka.PTest#testA\"] }, { at", "testA\"] }, { at", "must be package.Class#method"),
        ('document = "kip"', 'document = "kap"', "claim one: document: must be one of kip, is 'kap'"),
        ('why = "A fails"', "", "claim two: why: is missing"),
        ('command = "rackgate plan --json"', 'command = "rm -r x"', "run sum: command: must begin with rackgate or py"),
        ('command = "rackgate plan --json"', "commands = { x = 'rm -r x' }", "run sum: commands.x: must begin with"),
        ('command = "rackgate plan --json"', "commands = 'rackgate plan'", "run sum: commands: must be a table"),
        ('command = "rackgate plan --json"', "", "run sum: command: exactly one of command and commands"),
        ('reads = "out/*.xml"', "", "run tests: reads: is missing: of kind junit"),
        ('cost = "minutes"', 'cost = "cheap"', "run tests: cost: must be one of seconds, .* is 'cheap'"),
        ("minutes = 2", "minutes = 0", "run tests: minutes: must be a number of 0.01 or more, is 0"),
        ("says = \"advice\"", "say = \"advice\"", "claim three: says: is missing"),
        ('says = "advice"', 'says = "advice"\nsaid = 1', "claim three: said: is not known; known here: verdict, run"),
        ('verdict = "not testable"', 'verdict = "not testable"\nrefuted = []', "claim three: verdict: not testable"),
        ('run = "sum"', 'run = "sum"\nruns = ["sum"]', "claim one: runs: is not known; known here: verdict, run, "),
        ('kip = "the <KIP>"', "kip = 1", "documents.kip: must be a text that is not empty, is 1"),
        ("minutes = 2", "minutes = true", "run tests: minutes: must be a number"),
        ("statuses = [0, 1]", "statuses = [true]", "run tests: statuses: must be a list of whole numbers"),
        ('id = "one"', "id = 1", "claim 1: id: must be a text"),
        ("[[claim]]", "[[claim]", "not TOML"),
    ],
)  # fmt: skip
def test_wrong_entries_are_refused_in_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(RackgateError, match=words) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert "claims.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_checks_nothing_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    idle = GOOD.replace('runs = ["sum", "tests"]', 'run = "sum"')
    idle = re.sub(r", \{ of = \"tests\", passed = [^}]*\}", "", idle)
    idle = re.sub(r"\{ of = \"tests\", failed = [^}]*\}, ", "", idle)
    with pytest.raises(RackgateError, match="run tests: no claim is checked by it"):
        read(tmp_path, idle)
    with pytest.raises(RackgateError, match="documents: is missing"):
        read(tmp_path, "")
    with pytest.raises(RackgateError, match="claim: is missing"):
        read(tmp_path, "[documents]")


# -- judging ----------------------------------------------------------------------------------------------------------


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
    judged = judging.judge(read(tmp_path).claims["one"], {"sum": result}, {})
    assert judged.state == state
    assert any(because in line for line in judged.because)


def test_two_verdicts_at_once_are_none(tmp_path: Path) -> None:
    claims = read(tmp_path, GOOD.replace("least = 2", "least = 1", 1))
    judged = judging.judge(claims.claims["one"], {"sum": {"n": 1}}, {})
    assert (judged.state, judged.because) == (UNDECIDED, ("the rules say confirmed and refuted at once",))


def test_what_was_not_run_is_no_verdict(tmp_path: Path) -> None:
    claims = read(tmp_path)
    assert judging.judge(claims.claims["one"], {}, {}).state == NOT_RUN
    assert judging.judge(claims.claims["two"], {"sum": {"n": 1}}, {}).state == NOT_RUN
    # a test that nobody asked for when the others ran
    some = {"sum": {"n": 1}, "tests": {"cases": {"kafka.PTest#testA": "failed"}}}
    judged = judging.judge(claims.claims["two"], some, {})
    assert (judged.state, judged.because) == (NOT_RUN, ("tests.test_x#test_b has not been run",))
    assert judging.judge(claims.claims["three"], {}, {}) == judging.Judged(NOT_TESTABLE, ("nothing to run",))


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
def test_tests_must_have_run(tmp_path: Path, a: str, b: str, state: str) -> None:
    results = {"sum": {"n": 1}, "tests": {"cases": {"kafka.PTest#testA": a, "tests.test_x#test_b": b}}}
    assert judging.judge(read(tmp_path).claims["two"], results, {}).state == state


def test_stale_results_are_told_and_no_verdict(tmp_path: Path) -> None:
    judged = judging.judge(read(tmp_path).claims["one"], {"sum": {"n": 1}}, {"sum": "the patch series has changed"})
    assert (judged.state, judged.was) == (STALE, CONFIRMED)
    assert judged.because == ("sum: the patch series has changed",)


@pytest.mark.parametrize(
    ("compare", "value", "found", "holds"),
    [
        ("is", 2, 2.0, True), ("is", True, 1, False), ("is", 1, True, False), ("is", [2, 3], [2, 3], True),
        ("is", [], {}, False), ("least", 2, 2, True), ("least", 2, 1.9, False), ("most", 2, None, False),
        ("has", "b", ["a", "b"], True), ("has", "b", "abc", True), ("has", 1, "1", False), ("lacks", "b", ["a"], True),
        ("lacks", "b", None, False), ("lacks", "b", {"b": 1}, False), ("near", 8e-6, 8.0000001e-6, True),
        ("near", 8e-6, 8.1e-6, False),
    ],
)  # fmt: skip
def test_comparisons(compare: str, value: Any, found: Any, holds: bool) -> None:
    assert judging.compare(Atom("r", "/x", compare, value, 1e-6 if compare == "near" else 0.0), found) is holds


def test_places_in_a_result() -> None:
    result = {"a/b": {"~": 1}, "rows": [{"arm": "B", "at": "p50", "v": 5}, {"arm": "B", "at": "p99", "v": 9}]}
    assert find(result, "/a~1b/~0") == 1
    assert find(result, "/rows/#") == 2
    assert find(result, "/rows/1/v") == find(result, "/rows/arm=B&at=p99/v") == 9
    assert find({"/rows/arm=B&at=p99/v": 7}, "/rows/arm=B&at=p99/v") == 7
    kept = {"/rows/arm=B": {"word": "faster"}, "/rows/arm=BB": {"word": "slower"}}
    assert find(kept, "/rows/arm=BB/word") == "slower"
    assert find(kept, "/rows/arm=B") == {"word": "faster"}
    for absent in ("/x", "/rows/2", "/rows/arm=B/v", "/rows/v", "/a~1b/~0/deeper"):
        with pytest.raises(AbsentError):
            find(result, absent)


# -- running and keeping ----------------------------------------------------------------------------------------------


def test_a_run_leaves_an_artifact_that_is_judged(root: Path) -> None:
    claims = read(root)
    commands = Commands(root, {"n": 1, "at": f"{root}/out/x"}, failing="<failure message='no'/>")
    book = run_all(claims, root, commands)
    assert commands.asked[0] == ["rackgate", "plan", "--json"]
    assert {name: one.state for name, one in book.judged.items()} == {
        "one": CONFIRMED,
        "two": REFUTED,
        "three": NOT_TESTABLE,
    }
    kept = artifacts.read(root / "kept" / "sum.json")
    # no path of a machine
    assert kept["result"] == {"n": 1, "at": "out/x"}
    assert kept["versions"]["kafka"] == "4.3.1"
    assert artifacts.read(root / "kept" / "tests.json")["result"] == {
        "cases": {"kafka.PTest#testA": "failed", "tests.test_x#test_b": "passed"},
        "totals": {"passed": 2, "failed": 1, "skipped": 1},
    }
    artifacts.write_index(claims, book, root / "kept")
    assert artifacts.faults(claims, book, root / "kept") == []


def test_what_changes_makes_it_stale(root: Path) -> None:
    claims = read(root)
    run_all(claims, root, Commands(root, {"n": 1}))
    (root / "input" / "a.txt").write_text("b", encoding="utf-8")
    book = book_of(claims, root)
    assert book.judged["one"].state == STALE
    assert book.stale["sum"] == "input/*.txt has changed"
    (root / "input" / "a.txt").write_text("a", encoding="utf-8")
    assert book_of(claims, root).stale == {}
    other = read(root, GOOD.replace("rackgate plan --json", "rackgate plan --rf 3 --json"))
    assert book_of(other, root).stale == {"sum": "the command has changed"}


def test_what_nothing_was_noted_of_makes_it_stale(root: Path) -> None:
    run_all(read(root), root, Commands(root, {"n": 1}))
    (root / "more.py").write_text("", encoding="utf-8")
    (root / "input" / "a.txt").write_text("b", encoding="utf-8")
    more = read(root, GOOD.replace('depends = ["input/*.txt"]', 'depends = ["input/*.txt", "more.py", "*.py"]', 1))
    assert book_of(more, root).stale["sum"] == "input/*.txt has changed, nothing was noted of more.py, *.py"


def test_an_artifact_that_says_otherwise_is_a_fault(root: Path) -> None:
    claims = read(root)
    book = run_all(claims, root, Commands(root, {"n": 5}))
    artifacts.write_index(claims, book, root / "kept")
    told = artifacts.faults(claims, book, root / "kept")
    assert told[0].startswith("one: claims.toml says confirmed, its artifact refuted")
    assert [line.partition(":")[0] for line in told] == ["one", "two"]


def test_an_index_that_is_not_of_the_artifacts_is_a_fault(root: Path) -> None:
    claims = read(root)
    book = run_all(claims, root, Commands(root, {"n": 1}, failing="<error/>"))
    assert [line for line in artifacts.faults(claims, book, root / "kept") if "hashes" in line]
    artifacts.write_index(claims, book, root / "kept")
    path = root / "kept" / "sum.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"n": 1', '"n": 5'), encoding="utf-8")
    changed = book_of(claims, root)
    assert any("one: claims.json has other hashes" in line for line in artifacts.faults(claims, changed, root / "kept"))
    (root / "kept" / "claims.json").write_text('{"gone": {}}', encoding="utf-8")
    assert any(line.startswith("gone: ") for line in artifacts.faults(claims, book, root / "kept"))


def test_a_run_that_fails_leaves_nothing(root: Path) -> None:
    claims = read(root)
    commands = Commands(root, {"n": 1})
    commands.status = 2
    with pytest.raises(RackgateError, match="rackgate plan --json: ended with status 2") as caught:
        running.carry_out(
            claims, claims.runs["sum"], folder=root / "kept", root=root, out=root / "logs", execute=commands
        )
    assert caught.value.detail == "what it said"
    assert not (root / "kept").exists()


def test_a_command_is_one_of_the_project(tmp_path: Path) -> None:
    done = running.execute(["rackgate", "version"], tmp_path / "logs" / "log", 60)
    assert (done.status, done.output.split()[0]) == (0, "kafka-rackgate")
    wrong = running.execute(["rackgate", "evidence", "nothing-of-that-name"], tmp_path / "log", 60)
    assert wrong.status == 2
    assert "no claim or run" in (tmp_path / "log").read_text(encoding="utf-8")
    with pytest.raises(RackgateError, match="rackgate version: not ready after 0 s"):
        running.execute(["rackgate", "version"], tmp_path / "log", 0.01)


def test_a_report_of_before_is_not_taken(root: Path) -> None:
    claims = read(root)
    (root / "out").mkdir()
    old = root / "out" / "x.xml"
    old.write_text(XML.format(a=""), encoding="utf-8")
    os.utime(old, (1, 1))

    def nothing(words: Sequence[str], log: Path, timeout_s: float) -> Done:
        return Done(0, f"{words}{log}{timeout_s}")

    with pytest.raises(RackgateError, match="no report of tests"):
        running.carry_out(claims, claims.runs["tests"], folder=root / "kept", root=root, out=root, execute=nothing)


def test_only_what_is_named_is_kept_and_nothing_large(root: Path) -> None:
    claims = read(root)
    commands = Commands(root, {"n": 1, "rows": [{"name": "a", "v": 3}], "much": "x" * 40_000})
    run = claims.runs["sum"]

    def keep(*names: str) -> Any:
        kept = replace(run, keep=names)
        return running.carry_out(claims, kept, folder=root / "k", root=root, out=root / "l", execute=commands)["result"]

    assert keep("n", "/rows/name=a/v") == {"n": 1, "/rows/name=a/v": 3}
    with pytest.raises(RackgateError, match="there is no m"):
        keep("m")
    with pytest.raises(RackgateError, match="more than 32000"):
        keep()


def test_an_artifact_of_something_else_is_refused(root: Path) -> None:
    claims = read(root)
    run_all(claims, root, Commands(root, {"n": 1}))
    shutil.copyfile(root / "kept" / "tests.json", root / "kept" / "sum.json")
    with pytest.raises(RackgateError, match=r"sum\.json: no artifact of sum; run `rackgate evidence --fresh sum`"):
        book_of(claims, root)
    (root / "kept" / "sum.json").write_text("{", encoding="utf-8")
    with pytest.raises(RackgateError, match="rackgate evidence --fresh sum"):
        book_of(claims, root)


# -- showing ----------------------------------------------------------------------------------------------------------


class Cells(HTMLParser):
    """The words of each row of the tables, by the row's id."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, str] = {}
        self.links: list[str] = []
        self._row = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "tr":
            self._row = given.get("id") or ""
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))

    def handle_data(self, data: str) -> None:
        if self._row:
            self.rows[self._row] = f"{self.rows.get(self._row, '')} {data.strip()}"


def test_the_page_shows_each_claim(root: Path) -> None:
    claims = read(root)
    book = run_all(claims, root, Commands(root, {"n": 5}))
    path = root / "out" / "evidence" / "index.html"
    page.write(claims, book, path, root / "kept")
    text = path.read_text(encoding="utf-8")
    cells = Cells()
    cells.feed(text)
    assert list(cells.rows) == ["one", "two", "three"]
    assert "n is 1 & more" in cells.rows["one"]
    assert "refuted" in cells.rows["one"]
    assert "claims.toml says: confirmed" in cells.rows["one"]
    assert "undecided" in cells.rows["two"]
    assert "not testable" in cells.rows["three"]
    assert "nothing to run" in cells.rows["three"]
    assert "the &lt;KIP&gt;" in text
    for link in cells.links:
        assert (path.parent / link).resolve().name in {"sum.json", "tests.json", "claims.json"}
        assert (path.parent / link).is_file() or link.endswith("claims.json")
    shutil.rmtree(root / "kept")
    cells = Cells()
    cells.feed(page.html(claims, book_of(claims, root), "kept"))
    assert "not run yet" in cells.rows["one"]
    assert "needs Maven" in cells.rows["two"]
    assert "confirmed" not in cells.rows["one"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_shows_the_page(root: Path) -> None:
    claims = read(root)
    book = run_all(claims, root, Commands(root, {"n": 1}, failing="<failure/>"))
    path = root / "index.html"
    page.write(claims, book, path, root / "kept")
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={root / 'profile'}"]
    picture = [f"--screenshot={root / 'page.png'}", "--window-size=400,900", path.as_uri()]
    done = subprocess.run([*words, *picture], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (root / "page.png").stat().st_size > 5_000


# -- the command and the real claims ----------------------------------------------------------------------------------


@pytest.fixture
def made(root: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    claims = read(root)
    commands = Commands(root, {"n": 1}, failing="<failure/>")
    folder = root / "kept"
    monkeypatch.setattr(cli, "load", lambda: claims)
    monkeypatch.setattr(cli, "PAGE", root / "page" / "index.html")
    monkeypatch.setattr(running, "OUT", root / "logs")
    real_run, real_book, real_index = running.carry_out, artifacts.read_book, artifacts.write_index
    real_page, real_faults = page.write, artifacts.faults

    def carried(claims: Claims, run: Any) -> Any:
        return real_run(claims, run, folder=folder, root=root, out=root / "logs", execute=commands)

    monkeypatch.setattr(running, "carry_out", carried)
    monkeypatch.setattr(artifacts, "read_book", lambda claims: real_book(claims, folder, root))
    monkeypatch.setattr(artifacts, "write_index", lambda claims, book: real_index(claims, book, folder))
    monkeypatch.setattr(artifacts, "faults", lambda claims, book: real_faults(claims, book, folder))
    monkeypatch.setattr(page, "write", lambda claims, book, path: real_page(claims, book, path, folder))
    return commands


def test_the_command_runs_what_is_missing(made: Commands) -> None:
    runner = CliRunner()
    first = runner.invoke(app, ["evidence", "--cheap", "--json"])
    assert first.exit_code == 0, first.output
    assert [one["state"] for one in json.loads(first.stdout)["claims"]] == [CONFIRMED, NOT_TESTABLE]
    assert len(made.asked) == 1
    every = runner.invoke(app, ["evidence"])
    assert every.exit_code == 0, every.output
    assert len(made.asked) == 2
    assert "3 claims: 1 confirmed, 1 refuted, 1 not testable" in every.stdout
    assert runner.invoke(app, ["evidence", "one"]).exit_code == 0
    assert len(made.asked) == 2
    again = runner.invoke(app, ["evidence", "--fresh", "sum"])
    assert again.exit_code == 0, again.output
    assert len(made.asked) == 3
    assert runner.invoke(app, ["evidence", "--check"]).exit_code == 0
    made.answer = {"n": 9}
    assert runner.invoke(app, ["evidence", "one", "--fresh"]).exit_code == 1
    checked = runner.invoke(app, ["evidence", "--check"])
    assert checked.exit_code == 1
    assert "one: claims.toml says confirmed, its artifact refuted" in checked.stdout
    assert (made.root / "page" / "index.html").is_file()


def test_a_strict_check_wants_results_of_the_present(made: Commands) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["evidence", "--check"]).exit_code == 0
    strict = runner.invoke(app, ["evidence", "--check", "--strict"])
    assert strict.exit_code == 1
    assert "one: not run yet: sum has not been run; run `rackgate evidence one`" in strict.stdout
    assert "0 contradictions, 2 without a result of the present" in strict.stdout
    assert runner.invoke(app, ["evidence"]).exit_code == 0
    # what can't be tested needs none
    assert runner.invoke(app, ["evidence", "--check", "--strict"]).exit_code == 0
    (made.root / "input" / "a.txt").write_text("another", encoding="utf-8")
    assert runner.invoke(app, ["evidence", "--check"]).exit_code == 0
    assert "stale" in runner.invoke(app, ["evidence", "--check", "--strict"]).stdout
    assert isinstance(runner.invoke(app, ["evidence", "--strict"]).exception, RackgateError)


def test_the_command_tells_what_it_cannot_do(made: Commands) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["evidence", "--list"])
    assert listed.exit_code == 0
    assert made.asked == []
    assert "to run (minutes, about 2 min)" in listed.stdout
    assert runner.invoke(app, ["evidence", "--judge"]).exit_code == 1
    for words in (["four"], ["--cost", "days"], ["--list", "--check"]):
        assert isinstance(runner.invoke(app, ["evidence", *words]).exception, RackgateError)
    made.status = 3
    failed = runner.invoke(app, ["evidence"])
    assert "2 runs could not be carried out: sum, tests" in str(failed.exception)


def test_the_claims_of_the_project_are_enough_and_their_tests_exist() -> None:
    claims = load()
    kip = [claim for claim in claims.claims.values() if claim.document == "kip"]
    assert len(kip) >= 30
    assert {claim.document for claim in claims.claims.values()} == set(claims.documents)
    known = {one.id for one in plan.load()}
    for claim in claims.claims.values():
        for atom in (atom for rule in claim.rules.values() for atom in rule):
            if claims.runs[atom.run].kind == "system":
                assert atom.at.split("/")[2] in known, claim.id
            for case in atom.cases:
                name, _, method = case.partition("#")
                if name.startswith("tests."):
                    source = (paths.REPO / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
                    assert f"def {method}(" in source, case
    for run in claims.runs.values():
        for command in run.commands.values():
            for word in shlex.split(command):
                if word.startswith("tests/"):
                    assert (paths.REPO / word).is_file(), run.id


def test_committed_artifacts_do_not_contradict_the_claims() -> None:
    claims = load()
    assert artifacts.faults(claims, artifacts.read_book(claims)) == []


def test_each_deviation_names_claims_and_each_of_the_text_that_is_refuted_is_one() -> None:
    claims = load().claims
    own = {name for name, claim in claims.items() if claim.document == "kip"}
    revised = {name for name, claim in claims.items() if claim.document == "revised"}
    text = (paths.REPO / "kip" / "KIP-1290.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (D\d+) \| (.*)\|$", text, re.MULTILINE)
    assert [name for name, _ in rows] == [f"D{number}" for number in range(1, len(rows) + 1)]
    named: set[str] = set()
    for name, row in rows:
        said, *_, last = row.split(" | ")
        ids = set(re.findall(r"`([a-z0-9-]+)`", last))
        assert ids, f"{name} names no claim"
        assert ids <= own | revised, name
        # what the text does not say it does not claim
        assert bool(ids & own) == (said not in ("nothing said", "no tool")), name
        named |= ids
    assert {name for name in own if claims[name].verdict == REFUTED} | revised <= named
