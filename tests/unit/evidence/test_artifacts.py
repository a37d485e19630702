"""Evidence artifacts: execution of runs, storage, staleness, page and command."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from process_state import is_running
from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.evidence import artifacts, cli, page, run_table, runs
from pyhooks.evidence.claims import CONFIRMED, NOT_TESTABLE, REFUTED, Claims
from pyhooks.evidence.rules import STALE
from pyhooks.evidence.runs import FinishedCommand
from written_claims import GOOD, read

XML = """<testsuite>
<testcase classname="kafka.PTest" name="testA(String)[1]"/>
<testcase classname="kafka.PTest" name="testA(String)[2]">{a}</testcase>
<testcase classname="tests.test_x" name="test_b[x]"/>
<testcase classname="tests.test_x" name="test_c"><skipped/></testcase>
</testsuite>"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text("a", encoding="utf-8")
    return tmp_path


class Commands:
    """Fake of ``runs.execute``: writes the files of a command and records its arguments."""

    def __init__(self, root: Path, output: Any, failing: str = "") -> None:
        self.root, self.output, self.failing = root, output, failing
        self.requested: list[list[str]] = []
        self.status = 0

    def __call__(self, arguments: Sequence[str], log: Path, timeout_s: float) -> FinishedCommand:
        assert timeout_s >= 600
        self.requested.append(list(arguments))
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("output of the command", encoding="utf-8")
        if arguments[0] == "pytest":
            (self.root / "out").mkdir(exist_ok=True)
            text = XML.format(a=self.failing)
            (self.root / "out" / "x.xml").write_text(text, encoding="utf-8")
        return FinishedCommand(self.status, json.dumps(self.output))


def run_all(claims: Claims, root: Path, commands: Commands) -> artifacts.EvidenceResults:
    for run in claims.runs.values():
        runs.execute_run(claims, run, folder=root / "kept", root=root, out=root / "logs", execute=commands)
    return read_results(claims, root)


def read_results(claims: Claims, root: Path) -> artifacts.EvidenceResults:
    return artifacts.read_results(claims, root / "kept", root)


# -- execution and storage --------------------------------------------------------------------------------------------


def test_a_run_writes_an_artifact_with_a_verdict_for_each_claim(root: Path) -> None:
    claims = read(root)
    commands = Commands(root, {"n": 1, "at": f"{root}/out/x"}, failing="<failure message='no'/>")
    results = run_all(claims, root, commands)
    assert commands.requested[0] == ["rackgate", "plan", "--json"]
    assert {name: judgement.state for name, judgement in results.judged.items()} == {
        "one": CONFIRMED,
        "two": REFUTED,
        "three": NOT_TESTABLE,
    }
    artifact = artifacts.read(root / "kept" / "sum.json")
    # absolute paths are made relative to the repository
    assert artifact["result"] == {"n": 1, "at": "out/x"}
    assert artifact["versions"]["kafka"] == paths.kafka_version()
    assert artifacts.read(root / "kept" / "tests.json")["result"] == {
        "cases": {"kafka.PTest#testA": "failed", "tests.test_x#test_b": "passed"},
        "totals": {"passed": 2, "failed": 1, "skipped": 1},
    }
    artifacts.write_index(claims, results, root / "kept")
    assert artifacts.faults(claims, results, root / "kept") == []


def test_changed_dependencies_make_an_artifact_stale(root: Path) -> None:
    claims = read(root)
    run_all(claims, root, Commands(root, {"n": 1}))
    (root / "input" / "a.txt").write_text("b", encoding="utf-8")
    results = read_results(claims, root)
    assert results.judged["one"].state == STALE
    assert results.stale["sum"] == "input/*.txt has changed"
    (root / "input" / "a.txt").write_text("a", encoding="utf-8")
    assert read_results(claims, root).stale == {}
    other = read(root, GOOD.replace("rackgate plan --json", "rackgate plan --rf 3 --json"))
    assert read_results(other, root).stale == {"sum": "the command has changed"}


def test_a_missing_fingerprint_makes_an_artifact_stale(root: Path) -> None:
    run_all(read(root), root, Commands(root, {"n": 1}))
    (root / "more.py").write_text("", encoding="utf-8")
    (root / "input" / "a.txt").write_text("b", encoding="utf-8")
    more = read(root, GOOD.replace('depends = ["input/*.txt"]', 'depends = ["input/*.txt", "more.py", "*.py"]', 1))
    assert read_results(more, root).stale["sum"] == "input/*.txt has changed, no fingerprint is stored of more.py, *.py"


def test_an_artifact_that_contradicts_a_claim_is_reported(root: Path) -> None:
    claims = read(root)
    results = run_all(claims, root, Commands(root, {"n": 5}))
    artifacts.write_index(claims, results, root / "kept")
    reported = artifacts.faults(claims, results, root / "kept")
    assert reported[0].startswith("one: claims.toml expects confirmed, the artifact gives refuted")
    assert [line.partition(":")[0] for line in reported] == ["one", "two"]


def test_an_index_that_does_not_match_the_artifacts_is_reported(root: Path) -> None:
    claims = read(root)
    results = run_all(claims, root, Commands(root, {"n": 1}, failing="<error/>"))
    assert [line for line in artifacts.faults(claims, results, root / "kept") if "hashes" in line]
    artifacts.write_index(claims, results, root / "kept")
    path = root / "kept" / "sum.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"n": 1', '"n": 5'), encoding="utf-8")
    changed = read_results(claims, root)
    assert any("one: claims.json has other hashes" in line for line in artifacts.faults(claims, changed, root / "kept"))
    (root / "kept" / "claims.json").write_text('{"removed": {}}', encoding="utf-8")
    assert any(line.startswith("removed: ") for line in artifacts.faults(claims, results, root / "kept"))


def test_a_failed_run_writes_no_artifact(root: Path) -> None:
    claims = read(root)
    commands = Commands(root, {"n": 1})
    commands.status = 2
    with pytest.raises(RackgateError, match="rackgate plan --json: ended with status 2") as caught:
        runs.execute_run(
            claims, claims.runs["sum"], folder=root / "kept", root=root, out=root / "logs", execute=commands
        )
    assert caught.value.detail == "output of the command"
    assert not (root / "kept").exists()


def test_the_output_and_timeout_of_a_command(tmp_path: Path) -> None:
    finished = runs.execute(["rackgate", "version"], tmp_path / "logs" / "log", 60)
    assert (finished.status, finished.output.split()[0]) == (0, "kafka-rackgate")
    failed = runs.execute(["rackgate", "evidence", "nothing-of-that-name"], tmp_path / "log", 60)
    assert failed.status == 2
    assert "no claim or run" in (tmp_path / "log").read_text(encoding="utf-8")
    with pytest.raises(RackgateError, match="rackgate version: did not end within 0 s"):
        runs.execute(["rackgate", "version"], tmp_path / "log", 0.01)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_ends_with_its_parent(tmp_path: Path, signal_number: signal.Signals) -> None:
    started, exited = tmp_path / "started", tmp_path / "exited"
    setup = (
        "import atexit, os, pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(1));"
        f"atexit.register(pathlib.Path({str(exited)!r}).touch);"
        f"pathlib.Path({str(started)!r}).write_text(str(os.getpid()))"
    )
    arguments = ["sleeper", "-n1", "-r1", "-s", setup, "time.sleep(60)"]
    script = (
        "from pathlib import Path; from pyhooks.evidence import runs\n"
        "runs.MODULES['sleeper'] = 'timeit'\n"
        f"runs.execute({arguments!r}, Path({str(tmp_path / 'log')!r}), 60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        wait_for(lambda: started.exists() and started.read_text(), goal="the command to start", timeout_s=30)
        child = int(started.read_text())
        parent.send_signal(signal_number)
        wait_for(lambda: not is_running(child), goal="the end of the command", timeout_s=20)
    assert exited.exists() is (signal_number == signal.SIGTERM)
    assert parent.returncode == (128 + signal_number if signal_number == signal.SIGTERM else -signal_number)


def test_reports_of_earlier_runs_are_ignored(root: Path) -> None:
    claims = read(root)
    (root / "out").mkdir()
    old = root / "out" / "x.xml"
    old.write_text(XML.format(a=""), encoding="utf-8")
    os.utime(old, (1, 1))

    def write_nothing(arguments: Sequence[str], log: Path, timeout_s: float) -> FinishedCommand:
        return FinishedCommand(0, f"{arguments}{log}{timeout_s}")

    with pytest.raises(RackgateError, match="no report of tests"):
        runs.execute_run(claims, claims.runs["tests"], folder=root / "kept", root=root, out=root, execute=write_nothing)


def test_only_selected_small_values_are_kept(root: Path) -> None:
    claims = read(root)
    commands = Commands(root, {"n": 1, "rows": [{"name": "a", "v": 3}], "long": "x" * 40_000})
    run = claims.runs["sum"]

    def keep_only(*names: str) -> Any:
        selective = replace(run, keep=names)
        return runs.execute_run(claims, selective, folder=root / "k", root=root, out=root / "l", execute=commands)[
            "result"
        ]

    assert keep_only("n", "/rows/name=a/v") == {"n": 1, "/rows/name=a/v": 3}
    with pytest.raises(RackgateError, match="there is no m"):
        keep_only("m")
    with pytest.raises(RackgateError, match="more than 32000"):
        keep_only()


def test_an_artifact_of_another_run_is_rejected(root: Path) -> None:
    claims = read(root)
    run_all(claims, root, Commands(root, {"n": 1}))
    shutil.copyfile(root / "kept" / "tests.json", root / "kept" / "sum.json")
    with pytest.raises(RackgateError, match=r"sum\.json: .*`rackgate evidence --fresh sum`"):
        read_results(claims, root)
    (root / "kept" / "sum.json").write_text("{", encoding="utf-8")
    with pytest.raises(RackgateError, match="rackgate evidence --fresh sum"):
        read_results(claims, root)


# -- page -------------------------------------------------------------------------------------------------------------


class TableRows(HTMLParser):
    """Text of each table row by the row's id, and the links of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, str] = {}
        self.links: list[str] = []
        self._row = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "tr":
            self._row = attributes.get("id") or ""
        if tag == "a" and attributes.get("href"):
            self.links.append(str(attributes["href"]))

    def handle_data(self, data: str) -> None:
        if self._row:
            self.rows[self._row] = f"{self.rows.get(self._row, '')} {data.strip()}"


def test_the_page_shows_each_claim(root: Path) -> None:
    claims = read(root)
    results = run_all(claims, root, Commands(root, {"n": 5}))
    path = root / "out" / "evidence" / "index.html"
    page.write(claims, results, path, root / "kept")
    text = path.read_text(encoding="utf-8")
    page_rows = TableRows()
    page_rows.feed(text)
    assert list(page_rows.rows) == ["one", "two", "three"]
    assert "n is 1 & more" in page_rows.rows["one"]
    assert "refuted" in page_rows.rows["one"]
    assert "claims.toml says: confirmed" in page_rows.rows["one"]
    assert "undecided" in page_rows.rows["two"]
    assert "not testable" in page_rows.rows["three"]
    assert "nothing to run" in page_rows.rows["three"]
    assert "the &lt;KIP&gt;" in text
    for link in page_rows.links:
        assert (path.parent / link).resolve().name in {"sum.json", "tests.json", "claims.json"}
        assert (path.parent / link).is_file() or link.endswith("claims.json")
    shutil.rmtree(root / "kept")
    page_rows = TableRows()
    page_rows.feed(page.html(claims, read_results(claims, root), "kept"))
    assert "not run yet" in page_rows.rows["one"]
    assert "needs Maven" in page_rows.rows["two"]
    assert "confirmed" not in page_rows.rows["one"]


def test_commands_between_backticks_are_code_and_nothing_else_is() -> None:
    assert page.code("`make <a>` compares") == "<code>make &lt;a&gt;</code> compares"
    assert page.code("a ` alone & <b>") == "a ` alone &amp; &lt;b&gt;"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_renders_the_page(root: Path) -> None:
    claims = read(root)
    results = run_all(claims, root, Commands(root, {"n": 1}, failing="<failure/>"))
    path = root / "index.html"
    page.write(claims, results, path, root / "kept")
    arguments = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={root / 'profile'}"]
    screenshot = [f"--screenshot={root / 'page.png'}", "--window-size=400,900", path.as_uri()]
    done = subprocess.run([*arguments, *screenshot], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (root / "page.png").stat().st_size > 5_000


# -- command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def commands(root: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    claims = read(root)
    commands = Commands(root, {"n": 1}, failing="<failure/>")
    folder = root / "kept"
    monkeypatch.setattr(cli, "load", lambda: claims)
    monkeypatch.setattr(cli, "PAGE", root / "page" / "index.html")
    monkeypatch.setattr(runs, "OUT", root / "logs")
    real_run, real_read, real_index = runs.execute_run, artifacts.read_results, artifacts.write_index
    real_page, real_faults = page.write, artifacts.faults

    def execute_run(claims: Claims, run: Any) -> Any:
        return real_run(claims, run, folder=folder, root=root, out=root / "logs", execute=commands)

    monkeypatch.setattr(runs, "execute_run", execute_run)
    monkeypatch.setattr(artifacts, "read_results", lambda claims: real_read(claims, folder, root))
    monkeypatch.setattr(artifacts, "write_index", lambda claims, results: real_index(claims, results, folder))
    monkeypatch.setattr(artifacts, "faults", lambda claims, results: real_faults(claims, results, folder))
    monkeypatch.setattr(page, "write", lambda claims, results, path: real_page(claims, results, path, folder))
    table = root / "results.md"
    table.write_text(run_table.BEGIN + run_table.END, encoding="utf-8")
    real_table = run_table.write
    monkeypatch.setattr(run_table, "write", lambda claims, results: real_table(claims, results, table))
    return commands


def test_the_command_executes_only_missing_runs(commands: Commands) -> None:
    runner = CliRunner()
    first = runner.invoke(app, ["evidence", "--cheap", "--json"])
    assert first.exit_code == 0, first.output
    assert [claim["state"] for claim in json.loads(first.stdout)["claims"]] == [CONFIRMED, NOT_TESTABLE]
    assert len(commands.requested) == 1
    every = runner.invoke(app, ["evidence"])
    assert every.exit_code == 0, every.output
    assert len(commands.requested) == 2
    assert "3 claims: 1 confirmed, 1 refuted, 1 not testable" in every.stdout
    assert runner.invoke(app, ["evidence", "one"]).exit_code == 0
    assert len(commands.requested) == 2
    again = runner.invoke(app, ["evidence", "--fresh", "sum"])
    assert again.exit_code == 0, again.output
    assert len(commands.requested) == 3
    assert runner.invoke(app, ["evidence", "--check"]).exit_code == 0
    commands.output = {"n": 9}
    assert runner.invoke(app, ["evidence", "one", "--fresh"]).exit_code == 1
    checked = runner.invoke(app, ["evidence", "--check"])
    assert checked.exit_code == 1
    assert "one: claims.toml expects confirmed, the artifact gives refuted" in checked.stdout
    assert (commands.root / "page" / "index.html").is_file()
    assert "| [sum](evidence/sum.json) |" in (commands.root / "results.md").read_text(encoding="utf-8")


def test_a_strict_check_requires_current_results(commands: Commands) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["evidence", "--check"]).exit_code == 0
    strict = runner.invoke(app, ["evidence", "--check", "--strict"])
    assert strict.exit_code == 1
    assert "one: not run yet: sum has not been run; run `rackgate evidence one`" in strict.stdout
    assert "0 contradictions, 2 without a current result" in strict.stdout
    assert runner.invoke(app, ["evidence"]).exit_code == 0
    # a claim that is not testable needs no result
    assert runner.invoke(app, ["evidence", "--check", "--strict"]).exit_code == 0
    (commands.root / "input" / "a.txt").write_text("another", encoding="utf-8")
    checked = runner.invoke(app, ["evidence", "--check"])
    assert (checked.exit_code, re.findall(r"(\d+) stale", checked.stdout)) == (0, ["2"])
    assert "stale" in runner.invoke(app, ["evidence", "--check", "--strict"]).stdout
    assert isinstance(runner.invoke(app, ["evidence", "--strict"]).exception, RackgateError)


def test_the_command_reports_failed_runs(commands: Commands) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["evidence", "--list"])
    assert listed.exit_code == 0
    assert commands.requested == []
    assert "to run (minutes, about 2 min)" in listed.stdout
    assert runner.invoke(app, ["evidence", "--judge"]).exit_code == 1
    for arguments in (["four"], ["--cost", "days"], ["--list", "--check"]):
        assert isinstance(runner.invoke(app, ["evidence", *arguments]).exception, RackgateError)
    commands.status = 3
    failed = runner.invoke(app, ["evidence"])
    assert "2 runs failed: sum, tests" in str(failed.exception)
