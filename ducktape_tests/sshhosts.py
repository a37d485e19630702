"""SSH hosts on the nodes of a lab, to test the suite with an ordinary cluster file of ducktape.

Usage, inside ``rackgate lab run --bare``: ``python -m ducktape_tests.sshhosts FILE -- COMMAND…``. This starts an sshd
in each node and one for the clients, writes ducktape's description of them (``ducktape.cluster.json.JsonCluster``) to
``FILE``, and runs the command. The exit status is that of the command; the daemons end with the lab.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from pyhooks.core import process, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.namespaces import NamespaceMachine
from pyhooks.core.wait import wait_for
from pyhooks.lab.lab import Lab

SSHD = "/usr/sbin/sshd"
PORT = 2222
USER = "root"
READY_S = 20.0
CONNECT_S = 1.0
# sshd's folder for privilege separation
PRIVSEP = Path("/run/sshd")


def config(ip: str, host_key: Path, authorized: Path) -> str:
    """Return the configuration of a daemon that accepts public keys only, and no passwords."""
    options = {
        "Port": PORT,
        "ListenAddress": ip,
        "HostKey": host_key,
        "AuthorizedKeysFile": authorized,
        "PermitRootLogin": "prohibit-password",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        # sshd would reject the owner of the lab's folders.
        "StrictModes": "no",
        "UseDNS": "no",
        "PidFile": "none",
        # Tests connect to all nodes at the same time.
        "MaxSessions": 200,
        "MaxStartups": 200,
        "Subsystem": "sftp internal-sftp",
    }
    return "".join(f"{name} {value}\n" for name, value in options.items())


def host_entry(name: str, ip: str, identity: Path) -> dict[str, Any]:
    """Return the entry of a host in a cluster file."""
    ssh_config = {
        "host": name,
        "hostname": ip,
        "user": USER,
        "port": PORT,
        "password": None,
        "identityfile": str(identity),
    }
    return {"ssh_config": ssh_config, "externally_routable_ip": ip}


def serve(lab: Lab, folder: Path) -> list[dict[str, Any]]:
    """Start the daemons and wait until each of them listens.

    Returns:
        The hosts: all nodes, then the clients' host.

    Raises:
        RackgateError: this machine has no sshd, a daemon does not listen in time, or another program created the
            folder.
    """
    if not Path(SSHD).exists():
        raise RackgateError(f"{SSHD}: missing; install openssh-server")
    run_folder.empty(folder, run_folder.SSH_HOSTS)
    folder.chmod(0o700)
    PRIVSEP.mkdir(exist_ok=True)
    identity, host_key = folder / "id_ed25519", folder / "host_ed25519"
    for key in (identity, host_key):
        process.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], task="ssh-keygen", timeout_s=READY_S
        )
    hosts = []
    for name, ip, pid in [
        *((node.name, node.ip, lab.pids[node.name]) for node in lab.nodes),
        ("clients", lab.topology.client_site.client_ip, None),
    ]:
        file, log = folder / f"{name}.conf", folder / f"{name}.log"
        file.write_text(config(ip, host_key, identity.with_suffix(".pub")), encoding="ascii")
        command = [SSHD, "-D", "-f", str(file), "-E", str(log)]
        if pid is None:
            process.start(command, outlives=True, start_new_session=True)
        else:
            NamespaceMachine(name, pid).popen(command)
        wait_for(partial(_listens, ip), goal=f"sshd of {name} at {ip}:{PORT} (see {log})", timeout_s=READY_S)
        hosts.append(host_entry(name, ip, identity))
    return hosts


def _listens(ip: str) -> bool:
    with closing(socket.socket()) as client:
        client.settimeout(CONNECT_S)
        return client.connect_ex((ip, PORT)) == 0


def main(arguments: Sequence[str]) -> int:
    """Start the daemons, write the cluster file and run the command."""
    if len(arguments) < 3 or arguments[1] != "--":
        sys.stderr.write("usage: python -m ducktape_tests.sshhosts FILE -- COMMAND…\n")
        return 2
    file = Path(arguments[0])
    try:
        lab = Lab.attach()
        hosts = serve(lab, lab.run_dir / "ssh")
    except RackgateError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"nodes": hosts}, indent=1) + "\n", encoding="utf-8")
    return subprocess.run(arguments[2:], check=False, env=dict(os.environ)).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
