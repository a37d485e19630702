"""ducktape cluster of lab nodes: ``--cluster ducktape_tests.cluster.LabCluster`` inside ``rackgate lab run --bare``.

Commands enter the namespaces of a node and do not use its network, so a network fault never cuts control. On real hosts
the same tests run with ducktape's own JsonCluster and a cluster file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ducktape.cluster.json import JsonCluster
from ducktape.cluster.linux_remoteaccount import LinuxRemoteAccount
from ducktape.cluster.remoteaccount import RemoteCommandError, SSHOutputIter

from pyhooks.core.namespaces import NamespaceMachine
from pyhooks.core.process import start
from pyhooks.lab.lab import Lab

CLIENTS = "clients"


class _NodeFiles:
    """The part of an SFTP client that ducktape uses, on a local folder that shows a node's root."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def stat(self, path: str) -> os.stat_result:
        return self._at(path).stat()

    def lstat(self, path: str) -> os.stat_result:
        return self._at(path).lstat()

    def listdir(self, path: str) -> list[str]:
        return [entry.name for entry in self._at(path).iterdir()]

    def open(self, path: str, mode: str = "r") -> IO[Any]:
        return self._at(path).open(mode)

    def get(self, path: str, local: str) -> None:
        shutil.copyfile(self._at(path), local)

    def put(self, local: str, path: str) -> None:
        shutil.copyfile(local, self._at(path))

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        self._at(path).mkdir(mode)


class LabAccount(LinuxRemoteAccount):
    """An account on a node of the lab; ``pid`` is the node's first process, None for the clients' node."""

    def __init__(self, *args: Any, pid: int | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pid = pid

    def _command(self, cmd: str) -> list[str]:
        command = ["bash", "-c", cmd]
        return NamespaceMachine(str(self.hostname), self.pid).enter(command) if self.pid is not None else command

    @property
    def sftp_client(self) -> _NodeFiles:
        """File access to the node."""
        return _NodeFiles(Path(f"/proc/{self.pid}/root") if self.pid is not None else Path("/"))

    @property
    def ssh_client(self) -> Any:
        """Raise ``NotImplementedError``: a lab node has no SSH connection."""
        raise NotImplementedError("a node of a lab has no ssh connection; use ssh, ssh_output or ssh_capture")

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _run(
        self, cmd: str, allow_fail: bool, combine_stderr: bool = False, timeout_s: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        self._log(10, f"Running: {cmd}")
        done = subprocess.run(
            self._command(cmd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if combine_stderr else subprocess.PIPE,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0 and not allow_fail:
            raise RemoteCommandError(self, cmd, done.returncode, done.stdout if combine_stderr else done.stderr)
        return done

    def ssh(self, cmd: str, allow_fail: bool = False) -> int:
        """Run a command to its end; see RemoteAccount.ssh."""
        return self._run(cmd, allow_fail).returncode

    def ssh_output(
        self, cmd: str, allow_fail: bool = False, combine_stderr: bool = True, timeout_sec: float | None = None
    ) -> bytes:
        """Run a command to its end and return its output; see RemoteAccount.ssh_output."""
        return self._run(cmd, allow_fail, combine_stderr, timeout_sec).stdout

    def ssh_capture(
        self,
        cmd: str,
        allow_fail: bool = False,
        callback: Callable[[str], Any] | None = None,
        combine_stderr: bool = True,
        timeout_sec: float | None = None,  # noqa: ARG002 - ducktape's signature; a namespace does not time out
    ) -> SSHOutputIter:
        """Start a command and return its lines as they arrive; see RemoteAccount.ssh_capture."""
        self._log(10, f"Running: {cmd}")
        process = start(
            self._command(cmd),
            outlives=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if combine_stderr else subprocess.DEVNULL,
            text=True,
        )

        def lines() -> Iterator[Any]:
            with process:
                for line in process.stdout or ():
                    yield callback(line) if callback else line
            if process.returncode != 0 and not allow_fail:
                raise RemoteCommandError(self, cmd, process.returncode, "")

        return SSHOutputIter(lines)


class LabCluster(JsonCluster):
    """All nodes of the lab, with their names in the topology, followed by a node ``clients`` for client programs."""

    has_clients = True

    def __init__(self, *_: Any, **kwargs: Any) -> None:
        lab = Lab.attach()
        pids: dict[str, int | None] = {**lab.pids, CLIENTS: None}
        # Without node types, ducktape allocates nodes in this order: those of Kafka first, then that of the clients.
        nodes = [_node_entry(node.name, node.ip) for node in lab.nodes]
        if self.has_clients:
            nodes.append(_node_entry(CLIENTS, lab.topology.client_site.client_ip))

        def account(ssh_config: Any, ip: str, **extra: Any) -> LabAccount:
            return LabAccount(ssh_config, ip, pid=pids[ssh_config.host], **extra)

        super().__init__({"nodes": nodes}, make_remote_account_func=account, **kwargs)


class NodesCluster(LabCluster):
    """The nodes of the lab only, for tests that decide themselves what runs on each."""

    has_clients = False


def _node_entry(name: str, ip: str) -> dict[str, Any]:
    return {"ssh_config": {"host": name, "hostname": name, "user": None}, "externally_routable_ip": ip}
