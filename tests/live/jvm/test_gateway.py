"""Several JVMs at once, Produce versions of stock and patched clients, and the ends of JVMs and their processes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from process_state import is_running
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.jvm.gateway import LOOPBACK, Gateway, Versions
from pyhooks.jvm.producer import Producer
from pyhooks.patchset.distribution import Distribution


def listening(pid: int) -> set[str]:
    """Return the listening addresses of a process, in hexadecimal as in ``/proc``."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = str(link.readlink())
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].split(":")[0])
    return found


def spoken(port: int, text: str) -> str:
    with socket.create_connection((LOOPBACK, port), timeout=5) as stranger:
        stranger.sendall(text.encode())
        return stranger.recv(1000).decode()


def test_stock_and_patched_client_side_by_side() -> None:
    built = Distribution.load()
    with Gateway(built.classpath(overlay=False)) as stock, Gateway(built.classpath()) as patched:
        assert stock.produce_versions() == Versions(3, 13)
        assert patched.produce_versions() == Versions(3, 14)
        pids = (stock.pid, patched.pid)
    assert not any(is_running(pid) for pid in pids)


def test_only_loopback_and_only_with_the_token() -> None:
    # py4j's command for java.lang.System.nanoTime()
    command = "c\nz:java.lang.System\nnanoTime\ne\n"
    with Gateway(Distribution.load().classpath()) as gateway:
        # 127.0.0.1, also as an IPv4-mapped IPv6 address
        assert listening(gateway.pid) <= {"0100007F", "0000000000000000FFFF00000100007F"}
        assert listening(gateway.pid)
        assert "Authentication error" in spoken(gateway.port, command)
        assert gateway.jvm.java.lang.System.nanoTime() > 0


def test_a_jvm_ends_with_its_killed_parent() -> None:
    script = (
        "import sys; from pyhooks.patchset.distribution import Distribution; from pyhooks.jvm.gateway import Gateway\n"
        "with Gateway(Distribution.load().classpath()) as gateway:\n"
        "    print(gateway.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.send_signal(signal.SIGKILL)
        wait_for(lambda: not is_running(pid), goal="the end of the JVM", timeout_s=10)
    assert parent.returncode == -signal.SIGKILL


def test_a_process_ends_whose_jvm_was_started_by_a_thread_that_ended() -> None:
    script = (
        "import threading; from pyhooks.jvm.client import start_jvm\n"
        "starter = threading.Thread(target=start_jvm)\n"
        "starter.start(); starter.join()\n"
        "print('started', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "started\n")


def test_a_class_path_without_the_helpers_is_an_error() -> None:
    with (
        Gateway(Distribution.load().classpath()) as bare,
        pytest.raises(RackgateError, match="is not on the class path"),
    ):
        Producer("127.0.0.1:1", {}, home=bare)


def test_a_jvm_that_cannot_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+NoSuchOption")
    with pytest.raises(RackgateError, match="did not start") as caught:
        Gateway("nowhere", timeout_s=20)
    assert "NoSuchOption" in caught.value.detail
