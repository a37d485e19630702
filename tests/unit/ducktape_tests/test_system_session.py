"""The runner on programs that are made up: nothing here needs a lab."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ducktape_tests import results, session
from ducktape_tests.plan import SuiteTest
from ducktape_tests.results import Result
from ducktape_tests.session import RunEnvironment, SuiteSession
from pyhooks.core import paths, process
from pyhooks.core.wait import wait_for

# a child that would outlive its parent if nobody minded
STAYS = "sleep 300 & echo $! > {}; wait"


@dataclass(frozen=True)
class Made(RunEnvironment):
    """Shell scripts instead of labs; a test's name is its script."""

    scripts: Mapping[str, str]

    def words(self, test: SuiteTest) -> list[str]:
        return ["sh", "-c", self.scripts[test.id]]


class Heard:
    def __init__(self, stop_after: int = 10**9) -> None:
        self.said: list[str] = []
        self.most = self.ticks = 0
        self.stop_after = stop_after

    def begun(self, test: SuiteTest) -> None:
        self.said.append(f"begun {test.id}")

    def ended(self, test: SuiteTest, found: Sequence[Result]) -> None:
        self.said.append(f"ended {test.id}: {', '.join(one.outcome for one in found)}")

    def tick(self, running: Mapping[SuiteTest, float]) -> None:
        self.most, self.ticks = max(self.most, len(running)), self.ticks + 1
        if self.ticks > self.stop_after:
            raise KeyboardInterrupt


def listed(name: str, minutes: float = 1, **more: Any) -> SuiteTest:
    return SuiteTest(name, "az3", minutes, ("system",), **more)


def made(run_dir: Path, **scripts: str) -> Made:
    return Made(Path(sys.executable), None, run_dir, {}, scripts)


def runs(pid_file: Path) -> bool:
    fields = process.stat_fields(Path(f"/proc/{pid_file.read_text(encoding='ascii').strip()}"))
    return bool(fields) and fields[0] != "Z"


def test_tests_run_some_at_a_time_the_longest_first(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    place = made(tmp_path, **dict.fromkeys(names, "sleep 0.3; echo done; exit 3"))
    tests = [listed("a", 1), listed("b", 3), listed("c", 2), listed("d", 9, alone=True)]
    heard = Heard()
    SuiteSession(place, tests, 2, heard).run()
    assert [line for line in heard.said if line.startswith("begun")] == ["begun b", "begun c", "begun a", "begun d"]
    # d has waited for the others
    assert heard.said[-2:] == ["begun d", "ended d: unknown"]
    assert heard.most == 2
    for name in names:
        told = results.read_json(tmp_path / "tests" / name / "ended.json")
        assert (told["status"], told["why"]) == (3, "")
        assert (tmp_path / "tests" / name / "session.log").read_text(encoding="utf-8") == "done\n"


def test_a_test_that_takes_far_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "limit_s", lambda test: 0.4 if test.id == "stays" else 60.0)
    pid = tmp_path / "pid"
    heard = Heard()
    SuiteSession(
        made(tmp_path, stays=STAYS.format(pid), ends="true"), [listed("stays"), listed("ends")], 2, heard
    ).run()
    told = results.read_json(tmp_path / "tests" / "stays" / "ended.json")
    assert told["status"] == -signal.SIGKILL
    assert "given up" in told["why"]
    assert not runs(pid)
    assert results.read_json(tmp_path / "tests" / "ends" / "ended.json")["status"] == 0


def test_after_an_interrupt_nothing_is_left(tmp_path: Path) -> None:
    pids = [tmp_path / "first", tmp_path / "second"]
    place = made(tmp_path, a=STAYS.format(pids[0]), b=STAYS.format(pids[1]), c="true")
    heard = Heard(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        SuiteSession(place, [listed("a", 3), listed("b", 2), listed("c", 1)], 2, heard).run()
    assert not any(map(runs, pids))
    assert results.read_json(tmp_path / "tests" / "a" / "ended.json")["why"] == "it was interrupted"
    assert not (tmp_path / "tests" / "c").exists()


# as a test on hosts: what it began there goes on, unless it ends it
ENDS_ON_HOSTS = "trap 'touch {0}; exit 1' INT; touch {1}; while :; do sleep 0.1; done"


@dataclass(frozen=True)
class OnHosts(Made):
    """Whatever runs would not end with its first process."""

    @property
    def on_hosts(self) -> bool:
        return True


def on_hosts(run_dir: Path, script: str) -> OnHosts:
    return OnHosts(Path(sys.executable), None, run_dir, {}, {"a": script})


class Stops(Heard):
    """Ctrl-C as soon as a file is there."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def tick(self, running: Mapping[SuiteTest, float]) -> None:
        assert running
        if self.file.exists():
            raise KeyboardInterrupt


def test_on_hosts_a_test_may_end_in_good_order(tmp_path: Path) -> None:
    ended, begun = tmp_path / "ended", tmp_path / "begun"
    # whoever runs in the background has this signal ignored
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        made = SuiteSession(on_hosts(tmp_path, ENDS_ON_HOSTS.format(ended, begun)), [listed("a")], 1, Stops(begun))
        with pytest.raises(KeyboardInterrupt):
            made.run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.exists()
    assert made.left == []
    told = results.read_json(tmp_path / "tests" / "a" / "ended.json")
    assert (told["status"], told["why"]) == (1, "it was interrupted")


def test_on_hosts_one_that_does_not_end_is_killed_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ENDS_S", 0.5)
    monkeypatch.setattr(session, "limit_s", lambda _: 0.5)
    script = "trap '' INT; while :; do sleep 0.1; done"
    made = SuiteSession(on_hosts(tmp_path, script), [listed("a")], 1, Heard())
    made.run()
    assert made.left == ["a"]
    told = results.read_json(tmp_path / "tests" / "a" / "ended.json")
    assert told["status"] == -signal.SIGKILL
    assert "given up" in told["why"]
    assert session.LEFT in told["why"]


def test_on_hosts_a_second_interrupt_kills_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(child: subprocess.Popen[bytes]) -> bool:
        assert child.poll() is None
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_ends", impatient)
    pid = tmp_path / "pid"
    made = SuiteSession(on_hosts(tmp_path, STAYS.format(pid)), [listed("a")], 1, Stops(pid))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert made.left == ["a"]
    assert not runs(pid)
    assert session.LEFT in results.read_json(tmp_path / "tests" / "a" / "ended.json")["why"]


def test_what_runs_is_killed_with_the_runner(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    # the lab's own processes die with the first one in the same way; see tests/live/lab/test_lab.py
    script = f"setpriv --pdeathsig KILL -- sleep 300 & echo $! > {pid}; wait"
    code = (
        "import sys; sys.path.insert(0, 'tests'); from pathlib import Path\n"
        "from test_system_session import Heard, SuiteSession, listed, made\n"
        f"SuiteSession(made(Path({str(tmp_path)!r}), a={script!r}), [listed('a')], 1, Heard()).run()\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", code], cwd=paths.REPO)
    try:
        wait_for(lambda: pid.exists() and pid.read_text(encoding="ascii"), what="the test's process", timeout_s=30)
        assert runs(pid)
    finally:
        runner.kill()
        runner.wait()
    wait_for(lambda: not runs(pid), what="its end", timeout_s=10)


def test_the_words_of_a_lab_and_of_hosts(tmp_path: Path) -> None:
    test = SuiteTest("x_test.py::A.test_m", "az3x2", 2, ("system",), settings={"seeds": 3, "k": 1})
    place = RunEnvironment(Path("python"), None, tmp_path, {"seed": 7, "k": 2})
    words = place.words(test)
    folder = str(tmp_path / "tests" / "x.A.test_m")
    assert words[1:9] == ["-m", "pyhooks.cli", "lab", "run", "--bare", "--topology", "az3x2", "--run-dir"]
    assert words[words.index("--") + 1 :][:4] == ["python", "-m", "ducktape_tests.driver", folder]
    # what a person says goes before what the list says
    assert words[words.index("--globals") + 1] == '{"seeds": 3, "k": 2, "seed": 7}'
    assert words[-3:] == ["--cluster", "ducktape_tests.cluster.LabCluster", "ducktape_tests/x_test.py::A.test_m"]
    hosts = RunEnvironment(Path("python"), Path("hosts.json"), tmp_path, {}).words(test)
    assert hosts[:2] == ["python", "-m"]
    assert (place.on_hosts, RunEnvironment(Path("python"), Path("hosts.json"), tmp_path, {}).on_hosts) == (False, True)
    assert hosts[-5:-1] == ["--cluster", "ducktape.cluster.json.JsonCluster", "--cluster-file", "hosts.json"]
    assert session.limit_s(test) == 660


def test_a_child_of_another_session_is_not_ours() -> None:
    begun = time.monotonic()
    child = subprocess.Popen(["sleep", "30"], start_new_session=True)
    try:
        wait_for(lambda: os.getsid(child.pid) == child.pid, what="its session", timeout_s=5)
        assert session._in_session(child.pid) == [child.pid]
        assert child.pid not in session._in_session(os.getsid(0))
    finally:
        child.kill()
        child.wait()
    assert session._in_session(child.pid) == []
    assert time.monotonic() - begun < 20
