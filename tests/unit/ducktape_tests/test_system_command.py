"""Command line of ``rackgate system``, with a simulated session."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ducktape_tests import cli, plan, results
from ducktape_tests.plan import SuiteTest
from ducktape_tests.report.display import Display
from ducktape_tests.session import RunEnvironment
from pyhooks.core import files
from pyhooks.core.errors import RackgateError
from pyhooks.core.run_folder import LOCK, MARKER
from pyhooks.patchset import client_classpaths

ONE = SuiteTest("x_test.py::A.test_one", "az3", 2, ("smoke", "system"))
TWO = SuiteTest("x_test.py::A.test_two", "az3", 2, ("system",))
BAD = SuiteTest("y_test.py::B.test_bad", "single", 1, ("long",), jars=("kafka-streams",))


class SimulatedSession:
    """Session that writes the files of ducktape and of the runner without running a test."""

    runs: list[tuple[RunEnvironment, int]]
    interrupted = False
    unclean: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def __init__(self, environment: RunEnvironment, tests: Sequence[SuiteTest], jobs: int, listener: Display) -> None:
        self.environment, self.tests, self.listener = environment, tests, listener
        SimulatedSession.runs.append((environment, jobs))

    def run(self) -> None:
        for test in self.tests:
            folder = self.environment.folder(test) / "results" / "1"
            folder.mkdir(parents=True)
            self.listener.test_started(test)
            if SimulatedSession.interrupted:
                raise KeyboardInterrupt
            valid = "false" if test.id == BAD.id else "true"
            verdicts: list[dict[str, Any]] = [{"checker": "faults", "valid": valid, "because": ["because"]}]
            files.write_json(folder / "verdicts.json", verdicts)
            if SimulatedSession.left_out:
                files.write_json(folder / results.LEFT_OUT, SimulatedSession.left_out)
            files.write_json(folder / "expected.json", [{"test_id": "n", "injected_args": None}])
            row = {"test_id": "n", "test_status": "PASS", "summary": "", "run_time_seconds": 60.0}
            files.write_json(folder / "report.json", {"results": [{**row, "relative_results_dir": "."}]})
            files.write_json(self.environment.folder(test) / "ended.json", {"status": 0, "seconds": 60.0, "why": ""})
            planned = results.PlannedTest(test.id, test.topology, test.minutes, test.folder)
            self.listener.test_ended(test, results.judge_one(self.environment.run_dir, planned))


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    SimulatedSession.runs, SimulatedSession.interrupted = [], False
    SimulatedSession.unclean = SimulatedSession.left_out = ()
    monkeypatch.setattr(cli, "SuiteSession", SimulatedSession)
    monkeypatch.setattr(cli, "_require", lambda _: None)
    monkeypatch.setattr(cli, "_versions", lambda _: {"kafka": "4.0.0"})
    monkeypatch.setattr(client_classpaths, "fetch_jars", list)
    monkeypatch.setattr(plan, "load", lambda: (ONE, TWO, BAD))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.system_app, list(arguments))


def test_run_prints_seed_tests_and_page_and_records_its_command(tmp_path: Path) -> None:
    done = run("run", "smoke", "--run-dir", str(tmp_path), "--seed", "7", "--set", "seeds=3")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "1 tests, 2 at a time, about 2 min; seed 7"
    assert lines[1:3] == [
        "started x_test.py::A.test_one on az3 (about 2 min)",
        "pass    x_test.py::A.test_one on az3 (1.0 min)",
    ]
    assert lines[-2] == f"1 pass; seed 7; page: {tmp_path / 'index.html'}"
    assert lines[-1].startswith("target of 8 minutes: met, it took 0.0, on ")
    ((environment, jobs),) = SimulatedSession.runs
    assert (dict(environment.settings), jobs, environment.cluster_file) == ({"seeds": 3, "seed": 7}, 2, None)
    saved = results.read_json(tmp_path / "run.json")
    assert saved["command"] == "rackgate system run smoke --seed 7 --set seeds=3 --jobs 2"
    assert saved["duration_s"] is not None
    # A second run deletes the files of the first one.
    (tmp_path / "tests" / "old").mkdir()
    assert run("run", "smoke", "--run-dir", str(tmp_path), "--seed", "7").exit_code == 0
    assert not (tmp_path / "tests" / "old").exists()


def test_jars_of_the_chosen_tests_are_fetched_before_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fetched: list[tuple[list[str], int]] = []
    monkeypatch.setattr(
        client_classpaths, "fetch_jars", lambda names: fetched.append((names, len(SimulatedSession.runs)))
    )
    assert run("run", "smoke", "--run-dir", str(tmp_path)).exit_code == 0
    assert run("run", BAD.id, "smoke", "--run-dir", str(tmp_path)).exit_code == 1
    assert fetched == [(["kafka-streams"], 1)]


def test_default_seed_is_random_and_recorded(tmp_path: Path) -> None:
    assert run("run", "smoke", "--run-dir", str(tmp_path)).exit_code == 0
    ((environment, _),) = SimulatedSession.runs
    assert results.read_json(tmp_path / "run.json")["seed"] == environment.settings["seed"]


def test_false_verdict_fails_run_and_page(tmp_path: Path) -> None:
    done = run("run", BAD.id, "--run-dir", str(tmp_path), "--json")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert (document["exit_status"], document["counts"]["fail"]) == (1, 1)
    assert document["results"][0]["reasons"] == ["faults is false: because"]
    again = run("page", str(tmp_path), "--json")
    assert again.exit_code == 1
    assert json.loads(again.stdout) == document


def test_steps_that_need_a_lab_are_reported_as_skipped_on_hosts(tmp_path: Path) -> None:
    SimulatedSession.left_out = ["slow rack b"]
    hosts = tmp_path / "hosts.json"
    hosts.write_text("{}", encoding="utf-8")
    done = run("run", "system", "--run-dir", str(tmp_path / "run"), "--cluster-file", str(hosts))
    assert done.exit_code == 0, done.output
    assert "skipped in x_test.py::A.test_one, needs a lab: slow rack b" in done.stdout
    assert "2 pass;" in done.stdout
    # The target is for two labs at a time.
    assert "target of" not in done.stdout
    assert json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))["target"] is None
    ((environment, jobs),) = SimulatedSession.runs
    assert (environment.cluster_file, jobs) == (hosts, 1)


def test_host_root_is_passed_to_the_tests_and_recorded(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text("{}", encoding="utf-8")
    arguments = ("run", "smoke", "--run-dir", str(tmp_path / "run"), "--seed", "7", "--cluster-file", str(hosts))
    assert run(*arguments, "--host-root", "/data/a b/").exit_code == 0
    saved = results.read_json(tmp_path / "run" / "run.json")
    assert saved["command"] == f"rackgate system run smoke --seed 7 --cluster-file {hosts} --host-root '/data/a b'"
    assert run(*arguments).exit_code == 0
    # Without the option the tests use their default.
    assert [dict(environment.settings) for environment, _ in SimulatedSession.runs] == [
        {"seed": 7, "host_root": "/data/a b"},
        {"seed": 7},
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host-root", "/data"], "--host-root: has no effect without --cluster-file"),
        (["--host-root", "data", "--cluster-file", "hosts.json"], "--host-root 'data': must be an absolute path"),
        (["--set", 'host_root="/data"'], "--set host_root: use --host-root"),
    ],
)
def test_invalid_host_root_is_an_error(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run("run", "smoke", "--run-dir", str(tmp_path / "run"), *arguments)
    assert isinstance(done.exception, RackgateError)
    assert message in str(done.exception)
    assert SimulatedSession.runs == []


def test_interrupted_run_can_be_rendered(tmp_path: Path) -> None:
    SimulatedSession.interrupted = True
    done = run("run", "system", "--run-dir", str(tmp_path))
    assert done.exit_code != 0
    assert "interrupted; no process is left" in done.stdout
    page = run("page", str(tmp_path), "--json")
    assert page.exit_code == 1
    assert [result["outcome"] for result in json.loads(page.stdout)["results"]] == ["unknown", "not run"]


def test_interrupt_lists_tests_that_may_still_run_on_hosts(tmp_path: Path) -> None:
    SimulatedSession.unclean = ["x_test.py::A.test_one"]
    SimulatedSession.interrupted = True
    done = run("run", "system", "--run-dir", str(tmp_path))
    assert "interrupted; x_test.py::A.test_one: it did not stop cleanly" in done.stdout
    assert "no process is left" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "load"), "contains no test"),
        (("run", "nothing"), "neither a selection"),
        (("run", "--set", "k=x"), "not JSON"),
        (("run", "--set", "1"), "must be NAME=JSON"),
        (("run", "--set", "seed=1"), "use --seed"),
        (("page", "/nowhere"), "no run of system tests"),
    ],
)
def test_invalid_command_fails_before_any_test_runs(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert isinstance(done.exception, RackgateError)
    assert message in str(done.exception)
    assert done.exception.exit_status == 2
    assert SimulatedSession.runs == []


def test_page_does_not_overwrite_files_of_an_unmarked_folder(tmp_path: Path) -> None:
    assert run("run", "smoke", "--run-dir", str(tmp_path)).exit_code == 0
    (tmp_path / MARKER).unlink()
    (tmp_path / "index.html").write_text("foreign", encoding="utf-8")
    done = run("page", str(tmp_path))
    assert isinstance(done.exception, RackgateError)
    assert done.exception.exit_status == 2
    assert str(tmp_path) in str(done.exception)
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == "foreign"


def test_run_folder_is_locked(tmp_path: Path) -> None:
    assert run("run", "smoke", "--run-dir", str(tmp_path)).exit_code == 0
    before = (tmp_path / "run.json").read_bytes()
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("run", "smoke", "--run-dir", str(tmp_path))
    assert isinstance(done.exception, RackgateError)
    assert done.exception.exit_status == 2
    assert str(tmp_path) in str(done.exception)
    assert "another run" in str(done.exception)
    assert (tmp_path / "run.json").read_bytes() == before


def test_list_prints_selections_and_tests() -> None:
    text = run("list").stdout
    assert "system: 2 tests, about 2 min, two at a time" in text
    assert [test["id"] for test in json.loads(run("list", "long", "--json").stdout)] == [BAD.id]
