"""``rackgate system`` as a person calls it; the labs are made up."""

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

ONE = SuiteTest("x_test.py::A.test_one", "az3", 2, ("smoke", "system"))
TWO = SuiteTest("x_test.py::A.test_two", "az3", 2, ("system",))
BAD = SuiteTest("y_test.py::B.test_bad", "single", 1, ("long",))


class Made:
    """In place of a session: writes what ducktape and the runner would."""

    places: list[tuple[RunEnvironment, int]]
    stops = False
    left: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def __init__(self, place: RunEnvironment, tests: Sequence[SuiteTest], jobs: int, audience: Display) -> None:
        self.place, self.tests, self.audience = place, tests, audience
        Made.places.append((place, jobs))

    def run(self) -> None:
        for test in self.tests:
            folder = self.place.folder(test) / "results" / "1"
            folder.mkdir(parents=True)
            self.audience.begun(test)
            if Made.stops:
                raise KeyboardInterrupt
            valid = "false" if test.id == BAD.id else "true"
            told: list[dict[str, Any]] = [{"checker": "faults", "valid": valid, "because": ["because"]}]
            files.write_json(folder / "verdicts.json", told)
            if Made.left_out:
                files.write_json(folder / results.LEFT_OUT, Made.left_out)
            files.write_json(folder / "expected.json", [{"test_id": "n", "injected_args": None}])
            row = {"test_id": "n", "test_status": "PASS", "summary": "", "run_time_seconds": 60.0}
            files.write_json(folder / "report.json", {"results": [{**row, "relative_results_dir": "."}]})
            files.write_json(self.place.folder(test) / "ended.json", {"status": 0, "seconds": 60.0, "why": ""})
            planned = results.PlannedTest(test.id, test.topology, test.minutes, test.folder)
            self.audience.ended(test, results.judge_one(self.place.run_dir, planned))


@pytest.fixture(autouse=True)
def _made(monkeypatch: pytest.MonkeyPatch) -> None:
    Made.places, Made.stops = [], False
    monkeypatch.setattr(cli, "SuiteSession", Made)
    monkeypatch.setattr(cli, "_check", lambda _: None)
    monkeypatch.setattr(cli, "_versions", lambda _: {"kafka": "4.3.1"})
    monkeypatch.setattr(plan, "load", lambda: (ONE, TWO, BAD))


def called(*words: str) -> Result:
    return CliRunner().invoke(cli.system_app, list(words))


def test_a_run_tells_its_seed_its_tests_and_its_page(tmp_path: Path) -> None:
    done = called("run", "smoke", "--run-dir", str(tmp_path), "--seed", "7", "--set", "seeds=3")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "1 tests, 2 at a time, about 2 min; seed 7"
    assert lines[1:3] == [
        "begun   x_test.py::A.test_one on az3 (about 2 min)",
        "pass    x_test.py::A.test_one on az3 (1.0 min)",
    ]
    assert lines[-2] == f"1 pass; seed 7; page: {tmp_path / 'index.html'}"
    assert lines[-1].startswith("bar of 8 minutes: met, it took 0.0, on ")
    ((place, jobs),) = Made.places
    assert (dict(place.settings), jobs, place.cluster_file) == ({"seeds": 3, "seed": 7}, 2, None)
    run = results.read_json(tmp_path / "run.json")
    assert run["command"] == "rackgate system run smoke --seed 7 --set seeds=3 --jobs 2"
    assert run["took_s"] is not None
    # the same again, and what was there is gone
    (tmp_path / "tests" / "old").mkdir()
    assert called("run", "smoke", "--run-dir", str(tmp_path), "--seed", "7").exit_code == 0
    assert not (tmp_path / "tests" / "old").exists()


def test_without_a_seed_one_is_drawn_that_repeats_the_run(tmp_path: Path) -> None:
    assert called("run", "smoke", "--run-dir", str(tmp_path)).exit_code == 0
    ((place, _),) = Made.places
    assert results.read_json(tmp_path / "run.json")["seed"] == place.settings["seed"]


def test_a_verdict_that_is_not_true_fails_the_run_and_the_page_says_the_same(tmp_path: Path) -> None:
    done = called("run", BAD.id, "--run-dir", str(tmp_path), "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["exit_status"], told["counts"]["fail"]) == (1, 1)
    assert told["results"][0]["reasons"] == ["faults is false: because"]
    again = called("page", str(tmp_path), "--json")
    assert again.exit_code == 1
    assert json.loads(again.stdout) == told


def test_on_hosts_what_needs_a_lab_is_left_out_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Made, "left_out", ["slow rack b"])
    hosts = tmp_path / "hosts.json"
    hosts.write_text("{}", encoding="utf-8")
    done = called("run", "system", "--run-dir", str(tmp_path / "run"), "--cluster-file", str(hosts))
    assert done.exit_code == 0, done.output
    assert "left out of x_test.py::A.test_one, since it needs a lab: slow rack b" in done.stdout
    assert "2 pass;" in done.stdout
    # the bar is for labs, two at a time
    assert "bar of" not in done.stdout
    assert json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))["bar"] is None
    ((place, jobs),) = Made.places
    assert (place.cluster_file, jobs) == (hosts, 1)


def test_the_folder_on_hosts_is_chosen_and_repeated(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text("{}", encoding="utf-8")
    words = ("run", "smoke", "--run-dir", str(tmp_path / "run"), "--seed", "7", "--cluster-file", str(hosts))
    assert called(*words, "--host-root", "/data/a b/").exit_code == 0
    run = results.read_json(tmp_path / "run" / "run.json")
    assert run["command"] == f"rackgate system run smoke --seed 7 --cluster-file {hosts} --host-root '/data/a b'"
    assert called(*words).exit_code == 0
    # without it the tests' own default is used
    assert [dict(place.settings) for place, _ in Made.places] == [{"seed": 7, "host_root": "/data/a b"}, {"seed": 7}]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host-root", "/data"], "--host-root: has no effect without --cluster-file"),
        (["--host-root", "data", "--cluster-file", "hosts.json"], "--host-root 'data': must be an absolute path"),
        (["--set", 'host_root="/data"'], "--set host_root: say it with --host-root"),
    ],
)
def test_a_folder_on_hosts_that_cannot_be_used_is_refused(tmp_path: Path, words: list[str], says: str) -> None:
    done = called("run", "smoke", "--run-dir", str(tmp_path / "run"), *words)
    assert isinstance(done.exception, RackgateError)
    assert says in str(done.exception)
    assert Made.places == []


def test_an_interrupted_run_can_be_shown(tmp_path: Path) -> None:
    Made.stops = True
    done = called("run", "system", "--run-dir", str(tmp_path))
    assert done.exit_code != 0
    assert "interrupted; nothing runs any more" in done.stdout
    shown = called("page", str(tmp_path), "--json")
    assert shown.exit_code == 1
    assert [one["outcome"] for one in json.loads(shown.stdout)["results"]] == ["unknown", "not run"]


def test_what_may_still_run_on_hosts_after_an_interrupt_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Made, "left", ["x_test.py::A.test_one"])
    Made.stops = True
    done = called("run", "system", "--run-dir", str(tmp_path))
    assert "interrupted; x_test.py::A.test_one: it did not end in good order" in done.stdout
    assert "nothing runs any more" not in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "load"), "no test belongs to it"),
        (("run", "nothing"), "neither a selection"),
        (("run", "--set", "k=x"), "not JSON"),
        (("run", "--set", "1"), "must be NAME=JSON"),
        (("run", "--set", "seed=1"), "say it with --seed"),
        (("page", "/nowhere"), "no run of system tests"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(words: tuple[str, ...], says: str) -> None:
    done = called(*words)
    assert isinstance(done.exception, RackgateError)
    assert says in str(done.exception)
    assert done.exception.exit_status == 2
    assert Made.places == []


def test_a_page_is_not_written_over_the_files_of_a_folder_without_the_marker(tmp_path: Path) -> None:
    assert called("run", "smoke", "--run-dir", str(tmp_path)).exit_code == 0
    (tmp_path / MARKER).unlink()
    (tmp_path / "index.html").write_text("thesis", encoding="utf-8")
    done = called("page", str(tmp_path))
    assert isinstance(done.exception, RackgateError)
    assert done.exception.exit_status == 2
    assert str(tmp_path) in str(done.exception)
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == "thesis"


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    assert called("run", "smoke", "--run-dir", str(tmp_path)).exit_code == 0
    before = (tmp_path / "run.json").read_bytes()
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = called("run", "smoke", "--run-dir", str(tmp_path))
    assert isinstance(done.exception, RackgateError)
    assert done.exception.exit_status == 2
    assert f"{tmp_path}: another run is at work there" in str(done.exception)
    assert (tmp_path / "run.json").read_bytes() == before


def test_the_list_shows_what_there_is() -> None:
    text = called("list").stdout
    assert "system: 2 tests, about 2 min with two at a time" in text
    assert [one["id"] for one in json.loads(called("list", "long", "--json").stdout)] == [BAD.id]
