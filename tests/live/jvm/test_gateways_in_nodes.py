"""Gateways in a lab's nodes run in the node's namespaces, are controlled outside the lab's network, and end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.namespaces import network_of

RACKGATE = Path(sys.executable).with_name("rackgate")
SCRIPT = str(paths.REPO / "tests/support/node_gateways.py")


def in_lab(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    arguments = [str(RACKGATE), "lab", "run", "--bare", "--run-dir", str(tmp_path / "run"), "--", *command]
    environment = {**os.environ, "PYTHONPATH": str(paths.REPO)}
    return subprocess.run(
        arguments, capture_output=True, text=True, check=False, cwd=paths.REPO, env=environment, timeout=200
    )


def test_clients_in_nodes_are_controlled_without_the_lab_s_network(tmp_path: Path) -> None:
    done = in_lab(tmp_path, sys.executable, SCRIPT)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["versions"] == [14, 9, 13]
    assert report["in_node"] == [[True] * 4] * 2
    assert report["data"] == [True, False]
    assert report["during_cut"] == [5, 6]
    # 127.0.0.1 of the node, also as an IPv4-mapped IPv6 address; nothing listens on the lab's network
    for addresses in report["listening"]:
        assert addresses
        assert set(addresses) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert report["from_the_lab"] == [False, False]
    assert report["here"]
    assert report["back"]
    assert report["left"] == []
    assert "does its node run?" in report["no_node"]
    assert report["still_own"]


def test_a_jvm_in_a_node_ends_with_its_killed_parent(tmp_path: Path) -> None:
    # inside the lab, which keeps running: bash kills the parent and then looks for the JVM
    script = f"""
        exec 3< <(exec {sys.executable} {SCRIPT} hold < <(exec sleep 100))
        parent=$!
        read -r jvm <&3
        test -d /proc/$jvm && grep -q java /proc/$jvm/cmdline || exit 3
        kill -KILL $parent
        for _ in $(seq 100); do
            grep -qE '^State:.(Z|X)' /proc/$jvm/status || test ! -d /proc/$jvm && exit 0
            sleep 0.1
        done
        exit 4
    """
    done = in_lab(tmp_path, "bash", "-c", script)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_only_the_calling_thread_is_elsewhere() -> None:
    """The test creates its own namespaces, so that it needs no more privileges than a lab."""
    script = """
import subprocess, threading
from pathlib import Path
from pyhooks.core.namespaces import network_of
def mine() -> str:
    return str(Path("/proc/thread-self/ns/net").readlink())
own = mine()
child = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo ready; exec sleep 100"], stdout=subprocess.PIPE)
child.stdout.readline()
seen = []
try:
    with network_of(child.pid):
        assert mine() != own
        assert mine() == str(Path(f"/proc/{child.pid}/ns/net").readlink())
        raise ValueError
except ValueError:
    pass
assert mine() == own
barrier, go = threading.Barrier(2), threading.Event()
def bystander() -> None:
    barrier.wait()
    go.wait()
    seen.append(mine())
thread = threading.Thread(target=bystander)
thread.start()
barrier.wait()
with network_of(child.pid):
    go.set()
    thread.join()
child.kill()
assert seen == [own], seen
"""
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", script]
    done = subprocess.run(command, cwd=paths.REPO, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_entering_a_node_without_permission_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.get_native_id()
    before = Path(f"/proc/{here}/ns/net").readlink()
    monkeypatch.setattr("pyhooks.core.namespaces._CLONE_NEWNET", 0x20000000)  # CLONE_NEWPID
    with pytest.raises(RackgateError, match="only the lab that made a node"), network_of(os.getpid()):
        pass
    assert Path(f"/proc/{here}/ns/net").readlink() == before
