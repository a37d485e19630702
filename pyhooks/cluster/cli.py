"""``rackgate lab``: start a lab, run a command in it, take everything down."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from pyhooks import paths
from pyhooks.cluster import topology
from pyhooks.errors import RackgateError

lab_app = typer.Typer(no_args_is_help=True, help="A private cluster of namespaces on this machine.")

# program -> Debian package
PROGRAMS = {
    "java": "openjdk-17-jre-headless",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "ping": "iputils-ping",
    "vde_switch": "vde2",
    "wirefilter": "vde2",
}


def check_programs() -> None:
    """Raises one line that names all missing programs and their packages."""
    missing = {program: package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise RackgateError(f"a lab needs {', '.join(sorted(missing))}: install with 'apt-get install {packages}'")


def namespaces() -> list[str]:
    """The words that put a process into a private set of namespaces; all of it ends with the process.

    A user namespace is asked for even when root, so that nothing in a lab has power over the machine; where the
    kernel refuses that (in a chroot, or by a setting) root goes without.

    Raises:
        RackgateError: the kernel allows no such namespaces.
    """
    private = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    ways = [["unshare", "--user", "--map-root-user", *private]]
    if os.geteuid() == 0:
        ways.append(["unshare", *private])
    for words in ways:
        tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False, timeout=20)
        if tried.returncode == 0:
            return words
    raise RackgateError(
        f"this machine gives no namespaces ({tried.stderr.strip()}); allow them with"
        " 'sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000', or run as root"
    )


def enter(topology_name: str, run_dir: Path, command: list[str], *, bare: bool, stock: bool) -> None:
    """Becomes a lab that runs ``command``; does not return.

    Args:
        topology_name: file, or name of a shipped topology.
        run_dir: where logs and results go.
        command: program and arguments.
        bare: nodes and network only, no Kafka.
        stock: without the overlay.

    Raises:
        RackgateError: something needed is missing.
    """
    from pyhooks.build.distribution import Distribution

    check_programs()
    source = topology.find(topology_name)
    topology.load(source)
    # a bare lab starts no Kafka, so it needs none
    classpath = "" if bare else Distribution.load().classpath(overlay=not stock)
    run_dir.mkdir(parents=True, exist_ok=True)
    words = [*namespaces(), sys.executable, "-m", "pyhooks.cluster.inside"]
    words += ["--topology", str(source.resolve()), "--run-dir", str(run_dir.resolve()), "--classpath", classpath]
    words += ["--bare"] if bare else []
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(words[0], [*words, "--", *command])  # noqa: S606 - no shell is wanted


@lab_app.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: rackgate lab run --topology az3-outside -- sh -c 'echo $RACKGATE_BOOTSTRAP; nproc'",
)
def run_command(
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    topology_name: Annotated[
        str, typer.Option("--topology", help="A topology file, or the name of a shipped one.")
    ] = "az3-outside",
    run_dir: Annotated[Path | None, typer.Option(help="Folder for logs and history [default: out/lab/TIME].")] = None,
    bare: Annotated[bool, typer.Option("--bare", help="Nodes and network only; no Kafka is started.")] = False,
    stock: Annotated[bool, typer.Option("--stock", help="Run Kafka without the overlay.")] = False,
) -> None:
    """Starts a lab, runs COMMAND in it, takes everything down; ends with COMMAND's exit status.

    COMMAND finds the brokers in RACKGATE_BOOTSTRAP, the folder of the run in RACKGATE_RUN_DIR, and the lab's
    description in RACKGATE_LAB.
    """
    enter(
        topology_name,
        run_dir or paths.OUT / "lab" / time.strftime("%Y%m%d-%H%M%S"),
        command,
        bare=bare,
        stock=stock,
    )
