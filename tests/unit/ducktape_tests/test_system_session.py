"""Runner of the suite, with shell scripts instead of labs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ducktape_tests import results, session
from ducktape_tests.plan import SuiteTest
from ducktape_tests.results import Result
from ducktape_tests.session import RunEnvironment, SuiteSession
from process_state import is_running
from pyhooks.core import paths
from pyhooks.core.wait import wait_for


def has_content(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


# starts a child that outlives the shell unless it is killed
LONG_RUNNING = "sleep 300 & echo $! > {}; wait"


@dataclass(frozen=True)
class ScriptEnvironment(RunEnvironment):
    """Environment that runs a shell script instead of a lab; ``scripts`` are by test name.

    The time of a test in ``limited`` is over as soon as its file has content.
    """

    scripts: Mapping[str, str] = field(default_factory=dict)
    limited: Mapping[str, Path] = field(default_factory=dict)

    def limit_s(self, test: SuiteTest) -> float:
        return 0.0 if test.id in self.limited and has_content(self.limited[test.id]) else 60.0

    def command(self, test: SuiteTest) -> list[str]:
        return ["sh", "-c", self.scripts[test.id]]


class Recorder:
    """Listener that records the starts and ends of tests."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.running = self.max_running = 0

    def test_started(self, test: SuiteTest) -> None:
        self.events.append(f"started {test.id}")
        self.running += 1
        self.max_running = max(self.max_running, self.running)

    def test_ended(self, test: SuiteTest, results_: Sequence[Result]) -> None:
        self.events.append(f"ended {test.id}: {', '.join(result.outcome for result in results_)}")
        self.running -= 1

    def update(self, running: Mapping[SuiteTest, float]) -> None:
        assert len(running) == self.running


class Interrupter(Recorder):
    """Recorder that raises ``KeyboardInterrupt`` as soon as all files have content."""

    def __init__(self, *files: Path) -> None:
        super().__init__()
        self.files = files

    def update(self, running: Mapping[SuiteTest, float]) -> None:
        super().update(running)
        if all(map(has_content, self.files)):
            raise KeyboardInterrupt


def suite_test(name: str, minutes: float = 1, **options: Any) -> SuiteTest:
    return SuiteTest(name, "az3", minutes, ("system",), **options)


def script_environment(run_dir: Path, **by_name: str) -> ScriptEnvironment:
    return ScriptEnvironment(Path(sys.executable), None, run_dir, {}, scripts=by_name)


def child_runs(pid_file: Path) -> bool:
    return is_running(int(pid_file.read_text(encoding="ascii")))


def test_longest_tests_start_first_and_serial_tests_last(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    environment = script_environment(tmp_path, **dict.fromkeys(names, "sleep 0.3; echo done; exit 3"))
    tests = [suite_test("a", 1), suite_test("b", 3), suite_test("c", 2), suite_test("d", 9, alone=True)]
    recorder = Recorder()
    SuiteSession(environment, tests, 2, recorder).run()
    assert [line for line in recorder.events if line.startswith("started")] == [f"started {name}" for name in "bcad"]
    # d is serial: it runs after all others.
    assert recorder.events[-2:] == ["started d", "ended d: unknown"]
    assert recorder.max_running == 2
    for name in names:
        end = results.read_json(tmp_path / "tests" / name / "ended.json")
        assert (end["status"], end["why"]) == (3, "")
        assert (tmp_path / "tests" / name / "session.log").read_text(encoding="utf-8") == "done\n"


def test_test_is_killed_after_its_time_limit(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    recorder = Recorder()
    environment = replace(
        script_environment(tmp_path, stays=LONG_RUNNING.format(pid), ends="true"), limited={"stays": pid}
    )
    SuiteSession(environment, [suite_test("stays"), suite_test("ends")], 2, recorder).run()
    end = results.read_json(tmp_path / "tests" / "stays" / "ended.json")
    assert end["status"] == -signal.SIGKILL
    assert "stopped after" in end["why"]
    assert not child_runs(pid)
    assert results.read_json(tmp_path / "tests" / "ends" / "ended.json")["status"] == 0


def test_interrupt_kills_all_processes(tmp_path: Path) -> None:
    pids = [tmp_path / "first", tmp_path / "second"]
    environment = script_environment(tmp_path, a=LONG_RUNNING.format(pids[0]), b=LONG_RUNNING.format(pids[1]), c="true")
    tests = [suite_test("a", 3), suite_test("b", 2), suite_test("c", 1)]
    with pytest.raises(KeyboardInterrupt):
        SuiteSession(environment, tests, 2, Interrupter(*pids)).run()
    assert not any(map(child_runs, pids))
    assert results.read_json(tmp_path / "tests" / "a" / "ended.json")["why"] == "interrupted"
    assert not (tmp_path / "tests" / "c").exists()


# stops cleanly on SIGINT, like a test on hosts
CLEAN_STOP = "trap 'touch {0}; exit 1' INT; echo > {1}; while :; do sleep 0.1; done"


@dataclass(frozen=True)
class HostEnvironment(ScriptEnvironment):
    """Environment of a run on hosts, where killing a test leaves its remote processes running."""

    @property
    def on_hosts(self) -> bool:
        return True


def on_hosts(run_dir: Path, script: str) -> HostEnvironment:
    return HostEnvironment(Path(sys.executable), None, run_dir, {}, scripts={"a": script})


def test_interrupted_test_on_hosts_stops_cleanly(tmp_path: Path) -> None:
    ended, started = tmp_path / "ended", tmp_path / "started"
    # Background jobs of a shell ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        suite = SuiteSession(
            on_hosts(tmp_path, CLEAN_STOP.format(ended, started)), [suite_test("a")], 1, Interrupter(started)
        )
        with pytest.raises(KeyboardInterrupt):
            suite.run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.exists()
    assert suite.unclean == []
    end = results.read_json(tmp_path / "tests" / "a" / "ended.json")
    assert (end["status"], end["why"]) == (1, "interrupted")


def test_test_on_hosts_that_does_not_stop_is_killed_and_reported(tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = f"trap '' INT; echo > {started}; while :; do sleep 0.1; done"
    environment = replace(on_hosts(tmp_path, script), stop_timeout_s=0.5, limited={"a": started})
    suite = SuiteSession(environment, [suite_test("a")], 1, Recorder())
    suite.run()
    assert suite.unclean == ["a"]
    end = results.read_json(tmp_path / "tests" / "a" / "ended.json")
    assert end["status"] == -signal.SIGKILL
    assert "stopped after" in end["why"]
    assert session.UNCLEAN in end["why"]


def test_second_interrupt_kills_a_test_on_hosts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second_interrupt(child: subprocess.Popen[bytes], _: float) -> bool:
        assert child.poll() is None
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_stop", second_interrupt)
    pid = tmp_path / "pid"
    suite = SuiteSession(on_hosts(tmp_path, LONG_RUNNING.format(pid)), [suite_test("a")], 1, Interrupter(pid))
    with pytest.raises(KeyboardInterrupt):
        suite.run()
    assert suite.unclean == ["a"]
    assert not child_runs(pid)
    assert session.UNCLEAN in results.read_json(tmp_path / "tests" / "a" / "ended.json")["why"]


def test_tests_die_with_the_runner(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    # Like in a lab, whose processes die with its first process; see tests/live/lab/test_lab.py.
    script = f"setpriv --pdeathsig KILL -- sh -c 'echo $$ > {pid}; exec sleep 300' & wait"
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; from pathlib import Path\n"
        "from test_system_session import Recorder, SuiteSession, script_environment, suite_test\n"
        f"environment = script_environment(Path({str(tmp_path)!r}), a={script!r})\n"
        "SuiteSession(environment, [suite_test('a')], 1, Recorder()).run()\n"
    )
    folders = [str(Path(__file__).parent), str(paths.REPO / "tests" / "support")]
    runner = subprocess.Popen([sys.executable, "-c", code, *folders], cwd=paths.REPO)
    try:
        wait_for(lambda: has_content(pid), goal="the test's process", timeout_s=30)
        assert child_runs(pid)
    finally:
        runner.kill()
        runner.wait()
    wait_for(lambda: not child_runs(pid), goal="its end", timeout_s=10)


def test_command_in_a_lab_and_on_hosts(tmp_path: Path) -> None:
    test = SuiteTest("x_test.py::A.test_m", "az3x2", 2, ("system",), settings={"seeds": 3, "k": 1})
    environment = RunEnvironment(Path("python"), None, tmp_path, {"seed": 7, "k": 2})
    command = environment.command(test)
    folder = str(tmp_path / "tests" / "x.A.test_m")
    assert command[1:9] == ["-m", "pyhooks.cli", "lab", "run", "--bare", "--topology", "az3x2", "--run-dir"]
    assert command[command.index("--") + 1 :][:4] == ["python", "-m", "ducktape_tests.driver", folder]
    # Settings of the run override those of the suite.
    assert command[command.index("--globals") + 1] == '{"seeds": 3, "k": 2, "seed": 7}'
    assert command[-3:] == ["--cluster", "ducktape_tests.cluster.LabCluster", "ducktape_tests/x_test.py::A.test_m"]
    hosts = RunEnvironment(Path("python"), Path("hosts.json"), tmp_path, {}).command(test)
    assert hosts[:2] == ["python", "-m"]
    assert (environment.on_hosts, RunEnvironment(Path("python"), Path("hosts.json"), tmp_path, {}).on_hosts) == (
        False,
        True,
    )
    assert hosts[-5:-1] == ["--cluster", "ducktape.cluster.json.JsonCluster", "--cluster-file", "hosts.json"]
    assert environment.limit_s(test) == 660


def test_only_processes_of_the_session_are_listed() -> None:
    start = time.monotonic()
    child = subprocess.Popen(["sleep", "30"], start_new_session=True)
    try:
        wait_for(lambda: os.getsid(child.pid) == child.pid, goal="its session", timeout_s=5)
        assert session._in_session(child.pid) == [child.pid]
        assert child.pid not in session._in_session(os.getsid(0))
    finally:
        child.kill()
        child.wait()
    assert session._in_session(child.pid) == []
    assert time.monotonic() - start < 20
