"""Work folders of system tests on hosts: scripts must not delete foreign files. They run on local folders."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ducktape_tests.services.host_folder import (
    CLIENTS,
    DELETE,
    KIND,
    PID,
    PIDS,
    ROOT_BYTES_MAX,
    HostFolder,
    checked_root,
    host_root,
)
from ducktape_tests.services.hosts import Hosts, run_command
from pyhooks.core.errors import RackgateError
from pyhooks.core.run_folder import MARKER, PROJECT, Kind
from pyhooks.core.wait import wait_for
from pyhooks.lab import topology
from pyhooks.lab.disks import DATA
from pyhooks.lab.kafka_process import METRICS_SOCKET

AZ3 = topology.load(topology.find("az3"))
BROKER = AZ3.brokers[0]
JAVA = "#!/bin/sh\nexec sleep 300\n"
# no-op script: only the folder is checked and claimed
CLAIM = ":"


class LocalAccount:
    """Ducktape account that runs commands locally; ``programs`` precedes the system's folders in the PATH."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def _bash(self, command: str) -> subprocess.CompletedProcess[bytes]:
        arguments = ["bash", "-c", command]
        return subprocess.run(arguments, capture_output=True, check=False, env=self.env, stdin=subprocess.DEVNULL)

    def ssh(self, command: str, allow_fail: bool) -> int:
        assert allow_fail
        return self._bash(command).returncode

    def ssh_output(self, command: str, combine_stderr: bool, timeout_sec: float) -> bytes:
        assert (combine_stderr, timeout_sec > 0) == (False, True)
        return self._bash(command).stdout

    def signal(self, pid: int, number: signal.Signals, allow_fail: bool) -> None:
        assert allow_fail
        os.kill(pid, number)

    def copy_from(self, path: str, local: str) -> None:
        shutil.copyfile(path, local)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def local(tmp_path: Path) -> LocalAccount:
    (tmp_path / "bin").mkdir()
    return LocalAccount(tmp_path / "bin")


@pytest.fixture
def hosts(root: Path, local: LocalAccount) -> Hosts:
    return hosts_at(root, local)


def hosts_at(root: Path, local: LocalAccount) -> Hosts:
    hosts = Hosts()
    hosts.topology, hosts.classpath = AZ3, "x"
    hosts.folder = HostFolder(str(root))
    hosts.accounts = {BROKER.name: local}
    return hosts


def write_files(folder: Path) -> None:
    """Write files with names that tests also use, and unrelated files."""
    (folder / DATA / "t-0").mkdir(parents=True)
    (folder / DATA / "meta.properties").write_text("directory.id=foreign\n")
    (folder / DATA / "t-0" / "0.log").write_text("years of work")
    (folder / "data.gone").mkdir()
    (folder / "data.gone" / "kept").touch()
    (folder / "disk.tar").write_text("a backup")
    (folder / "thesis.txt").write_text("years of work")
    (folder / ".hidden").touch()


def make_work_folder(root: Path) -> Path:
    """Create the work folder with its marker."""
    folder = Path(HostFolder(str(root)).path)
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    (folder / MARKER).write_text(KIND.marker)
    return folder


def tree(folder: Path) -> dict[str, str]:
    """Return the contents of a folder by path, without following links."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            contents[str(path)] = f"-> {path.readlink()}"
        else:
            contents[str(path)] = path.read_text() if path.is_file() else ""
    return contents


def no_marker(root: Path) -> Path:
    folder = make_work_folder(root)
    (folder / MARKER).unlink()
    return folder


def marker_with(text: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        (make_work_folder(root) / MARKER).write_text(text)
        return Path(HostFolder(str(root)).path)

    return make


def marker_is_a_link(root: Path) -> Path:
    folder = make_work_folder(root)
    (folder / MARKER).rename(root / "marker")
    (folder / MARKER).symlink_to(root / "marker")
    return folder


def marker_is_a_broken_link(root: Path) -> Path:
    folder = no_marker(root)
    (folder / MARKER).symlink_to(root / "none")
    return folder


def marker_is_a_folder(root: Path) -> Path:
    folder = no_marker(root)
    (folder / MARKER).mkdir()
    return folder


def folder_is_a_link(root: Path) -> Path:
    folder = make_work_folder(root)
    folder.rename(root / "elsewhere")
    folder.symlink_to(root / "elsewhere")
    return folder


def parent_is_a_link(root: Path) -> Path:
    folder = make_work_folder(root)
    folder.parent.rename(root / "elsewhere")
    folder.parent.symlink_to(root / "elsewhere")
    return folder.parent


def root_is_a_link(root: Path) -> Path:
    make_work_folder(root)
    target = root.with_name("target")
    root.rename(target)
    root.symlink_to(target)
    return root


def folder_is_writable_by_all(root: Path) -> Path:
    folder = make_work_folder(root)
    folder.chmod(0o777)
    return folder


def parent_is_writable_by_a_group(root: Path) -> Path:
    folder = make_work_folder(root)
    folder.parent.chmod(0o770)
    return folder.parent


def owned_by_another_user(*parts: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        if os.geteuid() != 0:
            pytest.skip("only root can give a file to another user")
        folder = make_work_folder(root)
        os.chown(root.joinpath(PROJECT, *parts), 1234, 1234)
        return folder if parts else folder.parent

    return make


CASES: dict[str, Callable[[Path], Path]] = {
    "no marker": no_marker,
    "empty marker": marker_with(""),
    "JSON of something else": marker_with("{}\n"),
    "another kind": marker_with(Kind("bench", 1, "--out").marker),
    "another format": marker_with(Kind(KIND.name, KIND.format + 1, KIND.option).marker),
    "another project": marker_with(KIND.marker.replace(PROJECT, "other")),
    "marker with more behind it": marker_with(KIND.marker + "x"),
    "marker is a link": marker_is_a_link,
    "marker is a broken link": marker_is_a_broken_link,
    "marker is a folder": marker_is_a_folder,
    "marker of another user": owned_by_another_user("kafka", MARKER),
    "folder is a link": folder_is_a_link,
    "folder of another user": owned_by_another_user("kafka"),
    "folder is writable by all": folder_is_writable_by_all,
    "parent is a link": parent_is_a_link,
    "parent of another user": owned_by_another_user(),
    "parent is writable by a group": parent_is_writable_by_a_group,
    "root is a link": root_is_a_link,
}
LINK_CASES = ("folder is a link", "parent is a link", "root is a link")
OPERATIONS: dict[str, Callable[[Hosts, Path], Any]] = {
    "claim": lambda hosts, _: hosts.run_in_folder(BROKER, CLAIM),
    "delete": lambda hosts, _: hosts.run_in_folder(BROKER, DELETE),
    "wipe": lambda hosts, _: hosts.wipe(BROKER),
    "clear a disk": lambda hosts, _: hosts.clear_disk(BROKER),
    "copy a disk": lambda hosts, into: hosts.copy_disk(BROKER, into),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("case", CASES)
def test_foreign_files_are_kept_and_reported(
    hosts: Hosts, root: Path, tmp_path: Path, case: str, operation: str
) -> None:
    reported = CASES[case](root)
    write_files(Path(hosts.home))
    before = tree(tmp_path)
    with pytest.raises(RackgateError) as caught:
        OPERATIONS[operation](hosts, tmp_path / "copy")
    assert tree(tmp_path) == before
    assert str(caught.value).startswith(f"{BROKER.name} ({BROKER.ip}): {reported}: ")
    assert "--host-root" in str(caught.value)
    assert ("is a symbolic link" in str(caught.value)) is (case in LINK_CASES)
    assert "\n" not in str(caught.value)


def no_root(root: Path) -> Path:
    root.rmdir()
    return root


def root_is_a_file(root: Path) -> Path:
    root.rmdir()
    root.write_text("a file")
    return root


def folder_is_a_file(root: Path) -> Path:
    folder = make_work_folder(root)
    shutil.rmtree(folder)
    folder.write_text("a file")
    return folder


def folder_is_a_broken_link(root: Path) -> Path:
    folder = make_work_folder(root)
    shutil.rmtree(folder)
    folder.symlink_to(root / "none")
    return folder


@pytest.mark.parametrize("make", [no_root, root_is_a_file, folder_is_a_file, folder_is_a_broken_link])
@pytest.mark.parametrize("script", [CLAIM, DELETE])
def test_unsuitable_folders_are_kept(
    hosts: Hosts, root: Path, tmp_path: Path, make: Callable[[Path], Path], script: str
) -> None:
    reported = make(root)
    before = tree(tmp_path)
    with pytest.raises(RackgateError, match=f"^{BROKER.name} .*: {reported}: .*--host-root"):
        hosts.run_in_folder(BROKER, script)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("program", ["find", "ls", "cat", "head"])
@pytest.mark.parametrize("case", ["no marker", "another kind", "folder is writable by all"])
def test_failed_check_prevents_deletion(
    hosts: Hosts, root: Path, local: LocalAccount, tmp_path: Path, program: str, case: str
) -> None:
    CASES[case](root)
    write_files(Path(hosts.home))
    (local.programs / program).write_text("#!/bin/sh\nexit 1\n")
    (local.programs / program).chmod(0o755)
    before = tree(tmp_path)
    with pytest.raises(RackgateError):
        hosts.run_in_folder(BROKER, f"rm -rf {DATA} thesis.txt")
    assert tree(tmp_path) == before


def test_own_folder_is_created_used_and_deleted(hosts: Hosts, root: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "elsewhere")
    write_files(root / "beside")
    before = tree(tmp_path)
    for _ in range(2):
        hosts.run_in_folder(BROKER, CLAIM)
        folder = Path(hosts.home)
        assert folder == root / PROJECT / "kafka"
        assert (folder / MARKER).read_text() == KIND.marker
        assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o700, 0o700]
        write_files(folder)
        for name in ("-rf", "a b", "line\nend", "*", "$(touch x)"):
            (folder / name).touch()
        (folder / "link").symlink_to(tmp_path / "elsewhere")
        (folder / "data" / "link").symlink_to(tmp_path / "elsewhere")
        hosts.run_in_folder(BROKER, CLAIM)
        hosts.run_in_folder(BROKER, DELETE)
        assert tree(tmp_path) == before
        # Deleting an absent folder is no error.
        hosts.run_in_folder(BROKER, DELETE)
        assert tree(tmp_path) == before


@pytest.mark.parametrize("leftovers", [(), (f"{MARKER}.new",)])
def test_empty_folder_is_claimed(hosts: Hosts, root: Path, leftovers: tuple[str, ...]) -> None:
    folder = no_marker(root)
    for name in leftovers:
        (folder / name).write_text("incomplete")
    hosts.run_in_folder(BROKER, CLAIM)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {MARKER: KIND.marker}


def test_link_in_place_of_the_new_marker_is_not_followed(hosts: Hosts, root: Path) -> None:
    folder = no_marker(root)
    (root / "thesis.txt").write_text("years of work")
    (folder / f"{MARKER}.new").symlink_to(root / "thesis.txt")
    hosts.run_in_folder(BROKER, CLAIM)
    assert (root / "thesis.txt").read_text() == "years of work"


def test_folder_of_another_service_is_kept(hosts: Hosts, root: Path, local: LocalAccount) -> None:
    clients = HostFolder(str(root), CLIENTS)
    run_command(local, "host", clients.command(CLAIM))
    hosts.run_in_folder(BROKER, CLAIM)
    (Path(clients.path) / PIDS).touch()
    hosts.run_in_folder(BROKER, DELETE)
    assert [path.name for path in (root / PROJECT).iterdir()] == [CLIENTS]
    run_command(local, "host", clients.command(DELETE))
    assert list(root.iterdir()) == []


def test_root_with_spaces_and_shell_characters(
    tmp_path: Path, local: LocalAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (local.programs / "java").write_text(JAVA)
    (local.programs / "java").chmod(0o755)
    root = tmp_path / "a b;touch x;$(touch y)`touch z` 'q\" * -rf &"
    root.mkdir()
    bystander = tmp_path / "a"
    write_files(bystander)
    before = tree(tmp_path)
    hosts = hosts_at(root, local)
    hosts.run_in_folder(BROKER, DELETE)
    hosts.run_in_folder(BROKER, CLAIM)
    assert not hosts.formatted(BROKER)
    write_files(Path(hosts.home))
    assert hosts.directory_id(BROKER) == "foreign"
    hosts.launch(BROKER)
    assert hosts.process_state(BROKER) == "up"
    hosts.kill_kafka(BROKER)
    assert Path(hosts.log).is_file()
    disk = hosts.copy_disk(BROKER, tmp_path / "copy")
    assert (disk.data / "t-0" / "0.log").read_text() == "years of work"
    shutil.rmtree(tmp_path / "copy")
    assert hosts.wipe(BROKER) == "foreign"
    assert not hosts.formatted(BROKER)
    hosts.clear_disk(BROKER)
    hosts.run_in_folder(BROKER, DELETE)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("text", ["", "mnt", "./mnt", "/a,b", "/a\\b", "/a\nb", "/ä", "/" + "x" * ROOT_BYTES_MAX])
def test_invalid_root_is_an_error(text: str) -> None:
    with pytest.raises(RackgateError, match="--host-root"):
        checked_root(text)


def test_root_is_normalised() -> None:
    assert [checked_root(text) for text in ("/", "//data//", "/data/../x/.", "/a b")] == ["/", "/data", "/x", "/a b"]
    assert HostFolder("/").path == "/kafka-rackgate/kafka"
    assert HostFolder(host_root({})).path == "/mnt/kafka-rackgate/kafka"
    assert HostFolder(host_root({"host_root": "/data/"}), CLIENTS).path == "/data/kafka-rackgate/clients"
    longest = HostFolder(checked_root("/" + "x" * (ROOT_BYTES_MAX - 1)))
    assert len(f"{longest.path}/{METRICS_SOCKET}") == 107


# -- Processes left by earlier runs -----------------------------------------------------------------------------------


@contextmanager
def running_process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with these arguments in its own process group, like Kafka and the clients."""
    process = subprocess.Popen(["sh", "-c", "sleep 300; : $*", "sh", *arguments], start_new_session=True)
    try:
        # The arguments appear in /proc shortly after the start.
        wait_for(Path(f"/proc/{process.pid}/cmdline").read_bytes, goal="a command line", timeout_s=10)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_kafka_of_an_earlier_run_is_killed(hosts: Hosts, root: Path) -> None:
    folder = make_work_folder(root)
    kafka, other = ["kafka.Kafka", f"{folder}/server.properties"], ["kafka.Kafka", "/elsewhere/server.properties"]
    for arguments, is_ours in ((kafka, True), (other, False), (["vi", kafka[1]], False)):
        with running_process(*arguments) as process:
            hosts.run_in_folder(BROKER, CLAIM)
            (folder / PID).write_text(f"{process.pid}\n", encoding="ascii")
            # A paused Kafka is killed, too.
            os.kill(process.pid, signal.SIGSTOP if is_ours else signal.SIGCONT)
            hosts.run_in_folder(BROKER, DELETE)
            assert (process.poll() == -signal.SIGKILL) is is_ours
    for text in ("", "x; false\n", "1 2\n", "999999999\n"):
        hosts.run_in_folder(BROKER, CLAIM)
        (folder / PID).write_text(text, encoding="ascii")
        hosts.run_in_folder(BROKER, DELETE)
        assert not folder.exists()


def test_clients_of_an_earlier_run_are_killed(root: Path, local: LocalAccount) -> None:
    clients = HostFolder(str(root), CLIENTS)
    run_command(local, "host", clients.command(CLAIM))
    with (
        running_process("--history", f"{clients.path}/run.jsonl") as client,
        running_process("unrelated") as unrelated,
    ):
        pids = f"{client.pid}\n{unrelated.pid}\n999999999\nx\n"
        (Path(clients.path) / PIDS).write_text(pids, encoding="ascii")
        for _ in range(2):
            run_command(local, "host", clients.command(DELETE))
        assert (client.poll(), unrelated.poll()) == (-signal.SIGKILL, None)
    assert list(root.iterdir()) == []


def test_process_id_in_a_foreign_folder_is_ignored(hosts: Hosts, root: Path) -> None:
    folder = no_marker(root)
    with running_process("kafka.Kafka", f"{folder}/server.properties") as process:
        for name in (PID, PIDS):
            (folder / name).write_text(f"{process.pid}\n", encoding="ascii")
        with pytest.raises(RackgateError, match=f"{folder}: "):
            hosts.run_in_folder(BROKER, DELETE)
        assert process.poll() is None


def test_folder_of_a_process_that_cannot_be_killed_is_kept(hosts: Hosts, root: Path) -> None:
    folder = make_work_folder(root)
    # Make kill a no-op and skip the waits.
    script = DELETE.replace("kill -s KILL", "true").replace("sleep 0.1", "true")
    with running_process("kafka.Kafka", f"{folder}/server.properties") as process:
        (folder / PID).write_text(f"{process.pid}\n", encoding="ascii")
        start = time.monotonic()
        with pytest.raises(RackgateError, match=f"{folder}: process {process.pid} of an earlier run does not end"):
            hosts.run_in_folder(BROKER, script)
        assert time.monotonic() - start < 60
    assert (folder / MARKER).exists()
