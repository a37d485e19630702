"""Lab processes seen from the host: state files, locks and namespaces, without a running lab."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from pyhooks.cli import app
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import tools
from pyhooks.lab import init_process, lab_processes
from pyhooks.lab.lab import LAB_VARIABLE, Lab

OTHER_UID = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files and processes to other users")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RACKGATE_STATE", str(tmp_path))
    return tmp_path


def lab_record(name: str, run_dir: Path) -> lab_processes.LabRecord:
    return lab_processes.LabRecord(name, 1, True, "as somebody", "az3.toml", False, str(run_dir), 0.0, 1, run_dir)


@contextmanager
def lock_holder(lock: Path | None, *prefix: str) -> Iterator[int]:
    """Start a process that holds ``lock``, if given; yield its PID.

    Args:
        lock: lock file.
        prefix: command that executes the process.
    """
    with ExitStack() as stack:
        descriptors = []
        if lock is not None:
            descriptors.append(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600))
            stack.callback(os.close, descriptors[0])
            fcntl.flock(descriptors[0], fcntl.LOCK_EX)
        child = subprocess.Popen([*prefix, "sleep", "300"], pass_fds=descriptors)
        stack.pop_all().close()
        try:
            yield child.pid
        finally:
            child.kill()
            child.wait()


def is_running(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG) == (0, 0)


def save_record(pid: int, state: Path, name: str = "t") -> lab_processes.LabRecord:
    """Save and return the record of a lab with this PID and the process's real start time."""
    lab = replace(lab_record(name, state), pid=pid, ticks=lab_processes._start_ticks(Path(f"/proc/{pid}")))
    lab.save()
    return lab


def status_errors() -> list[str]:
    """Return the lines that ``rackgate lab status`` writes to standard error."""
    invocation = CliRunner().invoke(app, ["lab", "status"])
    assert (invocation.exit_code, invocation.exception) == (0, None)
    assert "no lab runs" in invocation.stdout
    return invocation.stderr.splitlines()


def test_missing_namespaces_are_an_error_that_names_the_sysctl(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_unshare(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "unshare failed: Operation not permitted\n")

    monkeypatch.setattr(subprocess, "run", fail_unshare)
    monkeypatch.setattr(lab_processes, "_forbidding_settings", lambda: [("kernel.odd", "1")])
    with pytest.raises(RackgateError, match=r"unshare failed.*'sysctl -w kernel.odd=1'"):
        lab_processes.namespace_method()


@pytest.mark.parametrize("root", [True, False])
def test_root_falls_back_to_no_user_namespace(monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    def fail_user_namespaces(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, int("--user" in command), "", "no user namespaces")

    monkeypatch.setattr(subprocess, "run", fail_user_namespaces)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    if root:
        method = lab_processes.namespace_method()
        assert (method.user, "--user" in method.prefix, method.text.startswith("root, without")) == (False, False, True)
    else:
        with pytest.raises(RackgateError, match="run as root"):
            lab_processes.namespace_method()


@pytest.mark.parametrize("root", [True, False])
def test_only_root_can_do_without_a_user_namespace(monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    def succeed(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", succeed)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    assert lab_processes.namespace_method().user
    if root:
        assert "--user" not in lab_processes.namespace_method(user=False).prefix
    else:
        with pytest.raises(RackgateError, match="only root"):
            lab_processes.namespace_method(user=False)


def test_a_lab_whose_lock_is_free_is_not_running(tmp_path: Path) -> None:
    lab_record("old", tmp_path).save()
    (lab,) = lab_processes.recorded_labs()
    assert (lab.name, lab.runs) == ("old", False)
    with pytest.raises(RackgateError, match="no lab runs"):
        lab_processes.find(None)
    with pytest.raises(RackgateError, match="no lab 'old' runs; none does"):
        lab_processes.find("old")
    lab_processes.down(lab)
    assert lab_processes.recorded_labs() == ()


def test_another_user_s_folder_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(RackgateError, match=r"user 0, .*user 4711; .*RACKGATE_STATE"):
        lab_processes.recorded_labs()


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "x" * 25])
def test_an_invalid_lab_name_is_an_error(name: str) -> None:
    with pytest.raises(RackgateError, match="letters, digits and "):
        lab_processes.check_name(name)


def test_tools_get_the_bootstrap_servers_unless_given() -> None:
    command = tools.command("cp", "topics", ["--list"], "h:1")
    assert command[-4:] == ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", "h:1", "--list"]
    assert tools.command("cp", "kafka-topics.sh", ["--list"], "h:1") == command
    assert "h:1" not in tools.command("cp", "topics", ["--bootstrap-server", "k:2", "--list"], "h:1")
    assert "h:1" not in tools.command("cp", "topics", ["--help"], "h:1")
    assert "h:1" not in tools.command("cp", "dump-log", ["--files", "f"], "h:1")
    # The option belongs to the subcommand.
    assert tools.command("cp", "cluster", ["cluster-id"], "h:1")[-3:] == ["cluster-id", "--bootstrap-server", "h:1"]
    with pytest.raises(RackgateError, match=r"'topic' .*: acls"):
        tools.command("cp", "topic", [], "h:1")


def test_only_existing_sysctls_that_forbid_namespaces_are_named(tmp_path: Path) -> None:
    for name, value in (("kernel/unprivileged_userns_clone", "1"), ("user/max_user_namespaces", "0")):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(value + "\n", encoding="ascii")
    assert lab_processes._forbidding_settings(tmp_path) == [("user.max_user_namespaces", "10000")]


def test_a_process_that_reuses_the_pid_of_a_lab_is_not_the_lab(state: Path, tmp_path: Path) -> None:
    """Stale state file whose PID was reused: the other process must not be killed."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        stale = replace(
            lab_record("old", tmp_path), pid=other.pid, ticks=lab_processes._start_ticks(Path(f"/proc/{other.pid}")) - 1
        )
        stale.save()
        with (state / "old.lock").open("w") as lock:
            # A new lab of that name is starting: it holds the lock and has not written its file yet.
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert not stale.runs
        lab_processes.down(stale)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_another_lab_cannot_be_chosen_inside_a_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_processes, "in_lab", lambda: True)
    monkeypatch.setattr(Lab, "attach", staticmethod(lambda: SimpleNamespace(name="one")))
    assert lab_processes.runs_inside(None)
    assert lab_processes.runs_inside("one")
    with pytest.raises(RackgateError, match=r"^--lab two: .*'one'"):
        lab_processes.runs_inside("two")


# Processes that a state file refers to.


def test_down_kills_the_process_that_holds_the_lock(state: Path) -> None:
    with lock_holder(state / "t.lock") as pid:
        lab = save_record(pid, state)
        assert lab_processes.find("t") == lab
        assert lab.runs
        lab_processes.down(lab)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert not list(state.iterdir())


@pytest.mark.parametrize("locked", ["by another process", "for reading", "another file"])
def test_a_process_that_does_not_hold_the_lock_is_neither_entered_nor_killed(
    state: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    """A state file could refer to any process of this user, with its real start time."""
    monkeypatch.setattr(lab_processes, "DOWN_TIMEOUT_S", 0.2)
    with ExitStack() as stack:
        holder = stack.enter_context((state / "t.lock").open("w"))
        fcntl.flock(holder, fcntl.LOCK_SH if locked == "for reading" else fcntl.LOCK_EX)
        if locked == "for reading":
            child = subprocess.Popen(["sleep", "300"], pass_fds=[holder.fileno()])
            stack.callback(child.wait)
            stack.callback(child.kill)
            pid = child.pid
        else:
            pid = stack.enter_context(lock_holder(state / "u.lock" if locked == "another file" else None))
        lab = save_record(pid, state)
        assert not lab.runs
        with pytest.raises(RackgateError, match="no lab 't' runs"):
            lab_processes.find("t")
        with pytest.raises(RackgateError, match="lab t has ended"):
            lab_processes.run_inside(lab, ["touch", str(state / "entered")])
        if locked != "for reading":
            with pytest.raises(RackgateError, match="lab t to end"):
                lab_processes.down(lab)
        assert is_running(pid)
        assert not (state / "entered").exists()


@as_root
def test_another_user_s_process_is_neither_entered_nor_killed(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_processes, "DOWN_TIMEOUT_S", 0.2)
    setpriv = ("setpriv", f"--reuid={OTHER_UID}", "--clear-groups", "--")
    with lock_holder(state / "t.lock", *setpriv) as pid:
        lab = save_record(pid, state)
        status = Path(f"/proc/{pid}/status")
        wait_for(lambda: f"Uid:\t{OTHER_UID}\t" in status.read_text(), goal="setpriv", timeout_s=10)
        assert not lab.runs
        with pytest.raises(RackgateError, match="lab t has ended"):
            lab_processes.run_inside(lab, ["true"])
        with pytest.raises(RackgateError, match="lab t to end"):
            lab_processes.down(lab)
        assert is_running(pid)


def test_a_command_enters_the_namespaces_of_the_process_that_holds_the_lock(
    state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    unshare = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child")
    with lock_holder(state / "t.lock", *unshare) as unshare_pid:
        children = Path(f"/proc/{unshare_pid}/task/{unshare_pid}/children")
        pid = int(wait_for(lambda: children.read_text().split(), goal="a child", timeout_s=10)[0])
        lab = save_record(pid, state)
        assert lab.runs
        assert lab_processes.run_inside(lab, ["sh", "-c", "readlink /proc/$1/ns/net; exit 3", "sh", str(pid)]) == 3
        lab_namespace, own_namespace = (str(Path(f"/proc/{process}/ns/net").readlink()) for process in (pid, "self"))
        assert capfd.readouterr().out.strip() == lab_namespace != own_namespace


def test_a_lab_whose_lock_file_is_deleted_ends(state: Path) -> None:
    """A logout can delete the lock file; then no command could find the lab."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    lab: Any = SimpleNamespace(name="t")
    try:
        with lab_processes._locked_name(state, "t") as lock:
            (state / "t.lock").unlink()
            with pytest.raises(RackgateError, match="lab t: its lock file was deleted"):
                init_process._serve(lab, {}, lock)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# State folders and files that another user could have created.


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Unset RACKGATE_STATE and put /tmp and /run/user into a folder; return the folder."""
    monkeypatch.delenv("RACKGATE_STATE")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    for name in ("tmp", "run-user"):
        (tmp_path / name).mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    monkeypatch.setattr(lab_processes, "FALLBACK", tmp_path / "tmp")
    monkeypatch.setattr(lab_processes, "RUN_USER", tmp_path / "run-user")
    return tmp_path


def plant_folder(folder: Path, how: str) -> Path:
    """Create what another user could create in place of the state folder in /tmp; return its path."""
    target = folder.with_name("target")
    target.mkdir(mode=0o700)
    if how == "link":
        folder.symlink_to(target)
        return folder
    folder.mkdir(mode=0o700)
    if how == "owner":
        os.chown(folder, OTHER_UID, -1)
    else:
        folder.chmod(int(how, 8))
    return folder


@pytest.mark.parametrize("how", ["link", "0777", "0770", "1777", pytest.param("owner", marks=as_root)])
def test_every_command_rejects_a_planted_state_folder(folders: Path, how: str) -> None:
    folder = plant_folder(folders / "tmp" / f"rackgate-{os.geteuid()}", how)
    for command in (["status"], ["down", "--all"], ["exec", "true"], ["up", "--bare"]):
        invocation = CliRunner().invoke(app, ["lab", *command])
        assert isinstance(invocation.exception, RackgateError), invocation.exception
        assert invocation.exception.exit_status == 2
        assert str(folder) in str(invocation.exception)
    assert not list((folders / "tmp" / "target").iterdir())


def test_the_state_folder_is_private(folders: Path) -> None:
    assert lab_processes._state_folder() == folders / "tmp" / f"rackgate-{os.geteuid()}"
    assert lab_processes._state_folder().stat().st_mode & 0o777 == 0o700


def test_a_state_folder_below_one_that_others_can_write_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("RACKGATE_STATE", str(tmp_path / "shared" / "state"))
    with pytest.raises(RackgateError, match=r"other users can write .*/shared .mode 0777"):
        lab_processes._state_folder()


@pytest.mark.parametrize("given", [True, False])
def test_the_runtime_folder_is_preferred_if_it_exists(
    folders: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    runtime = folders / "run-user" / str(os.geteuid())
    if given:
        runtime = folders / "session"
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    fallback = lab_processes._state_folder()
    assert fallback.parent == folders / "tmp"
    runtime.mkdir(mode=0o700)
    assert lab_processes._state_folder() == runtime / "rackgate"
    # A lab that started before the login is found, too.
    lab_record("old", fallback).save()
    lab_record("new", runtime / "rackgate").save()
    assert [(lab.name, lab.state) for lab in lab_processes.recorded_labs()] == [
        ("new", runtime / "rackgate"),
        ("old", fallback),
    ]


@pytest.mark.parametrize("how", ["link", "0755", "0777", "0710", pytest.param("owner", marks=as_root)])
@pytest.mark.parametrize("given", [True, False])
def test_a_runtime_folder_that_others_can_enter_is_rejected(
    folders: Path, monkeypatch: pytest.MonkeyPatch, how: str, given: bool
) -> None:
    runtime = plant_folder(folders / "run-user" / (str(os.geteuid()) if not given else "session"), how)
    if given:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    for call in (lab_processes._state_folder, lab_processes.recorded_labs):
        with pytest.raises(RackgateError, match="RACKGATE_STATE") as caught:
            call()
        assert str(runtime) in str(caught.value)


def test_a_planted_folder_in_tmp_does_not_hide_other_labs(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = folders / "session"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    lab_record("mine", lab_processes._state_folder()).save()
    folder = plant_folder(folders / "tmp" / f"rackgate-{os.geteuid()}", "0777")
    found, problems = lab_processes.list_labs()
    assert [lab.name for lab in found] == ["mine"]
    assert [str(folder) in problem for problem in problems] == [True]


def test_lab_names_are_unique_across_state_folders(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fallback = lab_processes._state_folder()
    with lock_holder(fallback / "t.lock") as pid:
        save_record(pid, fallback)
        (folders / "session").mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folders / "session"))
        plan = lab_processes.LabSetup("t", folders / "t.toml", folders / "run", "", "", "", False)
        with pytest.raises(RackgateError, match="lab 't' runs already"):
            lab_processes.up(plan, lambda *_: None)


def replace_with_link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def replace_with_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


PLANTED_FILES: dict[str, Callable[[Path], None]] = {
    "link": replace_with_link,
    "pipe": replace_with_pipe,
    "group-writable": lambda file: file.chmod(0o660),
    "world-writable": lambda file: file.chmod(0o606),
}


@pytest.mark.parametrize("how", [*PLANTED_FILES, pytest.param("owner", marks=as_root)])
def test_a_planted_state_file_is_reported_and_ignored(state: Path, how: str) -> None:
    with lock_holder(state / "t.lock") as pid:
        lab = save_record(pid, state)
        if how == "owner":
            os.chown(lab.file, OTHER_UID, -1)
        else:
            PLANTED_FILES[how](lab.file)
        assert lab_processes.recorded_labs() == ()
        (line,) = status_errors()
        assert line.startswith(f"{state}/t.json: ")
        invocation = CliRunner().invoke(app, ["lab", "down", "--all"])
        assert (invocation.exit_code, invocation.stdout) == (0, "no lab runs\n")
        assert is_running(pid)


VALID = {"name": "t", "pid": 1, "user": True, "way": "w", "topology": "t", "stock": False, "run_dir": "r",
        "started_at": 0.0, "ticks": 1}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        "9" * 5000,
        json.dumps({"name": "t"}),
        *(json.dumps({key: value for key, value in VALID.items() if key != left}) for left in VALID),
        *(json.dumps(VALID | {key: {}}) for key in VALID),
        *(json.dumps(VALID | {key: "1"}) for key in ("pid", "user", "stock", "started_at", "ticks")),
        *(json.dumps(VALID | {"pid": pid}) for pid in (0, -1, 1.0, True)),
        *(json.dumps(VALID | {"started_at": at}) for at in (float("nan"), float("inf"), -1, 1e300)),
        *(json.dumps(VALID | {"run_dir": path}) for path in ("", "a\0b", "a\nb", "\x1b[31m", "\udcff")),
        json.dumps(VALID | {"name": "u"}),
        json.dumps(VALID | {"more": 1}),
    ],
)
def test_a_damaged_state_file_is_reported_and_ignored(state: Path, text: str) -> None:
    (state / "t.json").write_text(text, encoding="utf-8")
    assert lab_processes.recorded_labs() == ()
    (line,) = status_errors()
    assert line.startswith(f"{state}/t.json: ")
    assert line.isprintable()
    with pytest.raises(RackgateError, match=r"no lab runs: .*t\.json: "):
        lab_processes.find(None)
    (state / "t.json").write_text(json.dumps(VALID), encoding="utf-8")
    assert [lab.name for lab in lab_processes.recorded_labs()] == ["t"]


def test_a_file_with_an_invalid_lab_name_is_ignored(state: Path) -> None:
    for name in ("README.json", ".json", "a b.json"):
        (state / name).write_text("", encoding="utf-8")
    os.close(os.open(os.fsencode(state) + b"/\xff.json", os.O_CREAT))
    assert lab_processes.list_labs() == ((), ())


def test_a_lock_file_is_not_created_through_a_link(state: Path) -> None:
    target = state / "target"
    (state / "t.lock").symlink_to(target)
    with pytest.raises(RackgateError, match=r"t\.lock: is a symbolic link"), lab_processes._locked_name(state, "t"):
        pytest.fail("the lock was acquired")
    assert not target.exists()
    plan = lab_processes.LabSetup("t", state / "t.toml", state / "run", "", "", "", False)
    with pytest.raises(RackgateError, match=r"t\.lock: is a symbolic link"):
        lab_processes.up(plan, lambda *_: None)


def test_a_lock_file_deleted_before_locking_is_created_again(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, flock, deletions = state / "t.lock", fcntl.flock, [1]

    def delete_then_lock(descriptor: int, operation: int) -> None:
        if deletions:
            deletions.pop()
            lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", delete_then_lock)
    with lab_processes._locked_name(state, "t") as descriptor:
        assert os.path.samestat(os.fstat(descriptor), lock.stat())


# The lab description file for programs inside the lab.


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"run_dir": 1}', '{"run_dir": "r", "source": {}}'])
def test_an_invalid_lab_description_is_an_error(state: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    file = state / "lab.json"
    monkeypatch.setenv(LAB_VARIABLE, str(file))
    with pytest.raises(RackgateError, match=r"lab\.json: .*RACKGATE_LAB"):
        Lab.attach()
    file.write_text(text, encoding="utf-8")
    file.chmod(0o644)
    with pytest.raises(RackgateError, match=r"lab\.json: "):
        Lab.attach()


@pytest.mark.parametrize("how", [*PLANTED_FILES, pytest.param("owner", marks=as_root)])
def test_a_description_that_another_user_could_have_written_is_rejected(
    state: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    file = state / "lab.json"
    file.write_text("{}", encoding="utf-8")
    monkeypatch.setenv(LAB_VARIABLE, str(file))
    if how == "owner":
        os.chown(file, OTHER_UID, -1)
    else:
        PLANTED_FILES[how](file)
    reasons = "is a symbolic link|is not a regular file|its mode is|belongs to user"
    with pytest.raises(RackgateError, match=f"lab.json: ({reasons}).*unset RACKGATE_LAB"):
        Lab.attach()
