"""Labs from outside: starting one that stays, finding those that run, entering them, taking them down.

What is known of a lab outside of it lies in a folder of this user's run-time state, a file and a lock each. The
lab's first process holds the lock, so the kernel tells whether a lab runs, however it ended. Nothing in that folder
outlives a restart of the machine, and nothing of a lab but its folder of results outlives the lab.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pyhooks import paths, process
from pyhooks.cluster.lab import DESCRIPTION, LAB_VARIABLE, Lab, in_lab
from pyhooks.errors import RackgateError
from pyhooks.wait import wait_for

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
MAX_NAME = 24
SYSCTL = Path("/proc/sys")
STATE_VARIABLE = "RACKGATE_STATE"
UP_TIMEOUT_S = 180.0
DOWN_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Way:
    """How this machine gives a private set of namespaces.

    Attributes:
        words: the words that put a program into them; all of it ends with the program.
        user: whether there is a user namespace among them.
        text: for people.
    """

    words: tuple[str, ...]
    user: bool
    text: str


def way(*, user: bool = True) -> Way:
    """The way of this machine.

    A user namespace is asked for even when root, so that nothing in a lab has power over the machine; where the
    kernel refuses that (in a chroot, or by a setting) root goes without.

    Args:
        user: whether to ask for a user namespace; only root can do without. Programs in it can't change users.

    Raises:
        RackgateError: the kernel allows no such namespaces, or this is not root and wants to do without.
    """
    private = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    root = os.geteuid() == 0
    who = "root" if root else "an ordinary user"
    if not user and not root:
        raise RackgateError("only root can do without a user namespace")
    ways = (
        [Way(("unshare", "--user", "--map-root-user", *private), True, f"{who}, in a user namespace")] if user else []
    )
    if root:
        why = "the kernel refuses one here" if user else "as asked"
        ways.append(Way(("unshare", *private), False, f"root, without a user namespace ({why})"))
    for one in ways:
        tried = subprocess.run([*one.words, "true"], capture_output=True, text=True, check=False, timeout=20)
        if tried.returncode == 0:
            return one
    advice = " and ".join(f"'sysctl -w {name}={value}'" for name, value in _against_us())
    raise RackgateError(
        f"this machine gives no namespaces ({tried.stderr.strip()}); "
        + (
            f"allow them with {advice}, or run as root"
            if advice
            else "run as root, outside of a container that forbids them"
        )
    )


# setting -> value that allows unprivileged user namespaces, and values that forbid them
_SETTINGS = {
    "kernel.unprivileged_userns_clone": ("1", frozenset({"0"})),
    "kernel.apparmor_restrict_unprivileged_userns": ("0", frozenset({"1"})),
    "user.max_user_namespaces": ("10000", frozenset({"0"})),
    "user.max_net_namespaces": ("10000", frozenset({"0"})),
}


def _against_us() -> list[tuple[str, str]]:
    """The settings of this kernel that forbid namespaces, and what would allow them."""
    found = []
    for name, (allowing, forbidding) in _SETTINGS.items():
        path = SYSCTL / name.replace(".", "/")
        if path.exists() and path.read_text(encoding="ascii").strip() in forbidding:
            found.append((name, allowing))
    return found


@dataclass(frozen=True)
class Known:
    """A lab as it is known outside of it.

    Attributes:
        name: its name.
        pid: its first process, as this process sees it.
        user: whether it has a user namespace of its own.
        way: how its namespaces were had, for people.
        topology: file of its topology.
        stock: whether its Kafka is without the overlay.
        run_dir: folder of its results.
        started_at: seconds since the epoch.
        ticks: when its first process started, as the kernel counts; a process id alone may be another's by now.
    """

    name: str
    pid: int
    user: bool
    way: str
    topology: str
    stock: bool
    run_dir: str
    started_at: float
    ticks: int

    @property
    def runs(self) -> bool:
        """Whether it is there."""
        return _locked(self.name) and _ticks(self.pid) == self.ticks

    @property
    def log(self) -> Path:
        """What its first process has said."""
        return Path(self.run_dir) / "lab.log"

    def entering(self, command: Sequence[str]) -> list[str]:
        """The words that run a command in the lab.

        The command is killed with the process that runs these words. Ctrl-C reaches the command alone, which decides
        what to do: the one that waits for it in between must not go first.
        """
        user = ["--user", "--preserve-credentials"] if self.user else []
        return [
            "env",
            "--ignore-signal=INT,QUIT",
            *("nsenter", f"--target={self.pid}", *user, "--net", "--mount", "--pid", f"--wdns={Path.cwd()}", "--"),
            *process.DIES_WITH_PARENT,
            *("env", "--default-signal=INT,QUIT"),
            *command,
        ]


def _ticks(pid: int) -> int:
    """When a process started, in the kernel's ticks since the machine did; 0 if there is none."""
    fields = process.stat_fields(Path(f"/proc/{pid}"))
    # the 22nd of all
    return int(fields[19]) if fields else 0


def _state() -> Path:
    """The folder for what is known of labs; one that outlives a login, as labs do.

    Raises:
        RackgateError: somebody else's folder is in its place.
    """
    told = os.environ.get(STATE_VARIABLE)
    folder = Path(told) if told else Path(f"/tmp/rackgate-{os.geteuid()}")  # noqa: S108 - its owner is checked
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise RackgateError(
            f"{folder} belongs to somebody else: remove it, or set {STATE_VARIABLE} to a folder of yours"
        )
    return folder


def _locked(name: str) -> bool:
    path = _state() / f"{name}.lock"
    if not path.exists():
        return False
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def known() -> tuple[Known, ...]:
    """All labs that run, or that have ended without being taken down; by name."""
    found = []
    for file in sorted(_state().glob("*.json")):
        try:
            found.append(Known(**json.loads(file.read_text(encoding="utf-8"))))
        except (ValueError, TypeError, FileNotFoundError):
            # of another version, or just going
            continue
    return tuple(found)


def find(name: str | None) -> Known:
    """The lab of a name, or the only one that runs.

    Raises:
        RackgateError: there is none, or there are several and no name; the message says which run.
    """
    running = [lab for lab in known() if lab.runs]
    names = ", ".join(lab.name for lab in running)
    if name is None:
        if len(running) == 1:
            return running[0]
        if running:
            raise RackgateError(f"several labs run ({names}): say which with --lab NAME")
        raise RackgateError("no lab runs: start one with 'rackgate lab up'")
    for lab in running:
        if lab.name == name:
            return lab
    raise RackgateError(f"no lab {name!r} runs; " + (f"those that run: {names}" if names else "none does"))


def check_name(name: str) -> None:
    """Refuses a name that cannot be one.

    Raises:
        RackgateError: says what is allowed.
    """
    if not 1 <= len(name) <= MAX_NAME or not set(name) <= NAME_CHARACTERS:
        raise RackgateError(f"lab {name!r}: a name has 1 to {MAX_NAME} small letters, digits and dashes")


@dataclass(frozen=True)
class Plan:
    """A lab to be made.

    Attributes:
        name: its name.
        topology: its file.
        run_dir: folder for logs and history.
        classpath: of its Kafka; empty if it has none.
        agent: jar of the agent by which nodes tell their metrics; empty if there are none.
        archive: of Kafka's classes; empty if there is none.
        stock: whether the class path is without the overlay.
    """

    name: str
    topology: Path
    run_dir: Path
    classpath: str
    agent: str
    archive: str
    stock: bool

    @property
    def words(self) -> list[str]:
        """The words of the lab's first process, to follow those of ``way``."""
        words = [sys.executable, "-m", "pyhooks.cluster.inside", "--name", self.name]
        words += ["--topology", str(self.topology.resolve()), "--run-dir", str(self.run_dir.resolve())]
        words += ["--classpath", self.classpath, "--agent", self.agent, "--archive", self.archive]
        return words + ([] if self.classpath else ["--bare"])


@contextmanager
def _taken(name: str) -> Iterator[int]:
    """The lock of a name, as a descriptor that a child may inherit; it is free again when all who have it are gone."""
    path = _state() / f"{name}.lock"
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RackgateError(
                    f"lab {name!r} runs already: take it down with 'rackgate lab down {name}', or use another --name"
                ) from error
            # A lab that was taken down meanwhile took the file with it: a lock on that one would keep nobody out.
            if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def up(plan: Plan, tell: Callable[[str, float], None]) -> Known:
    """Starts a lab that stays until it is taken down; if we end before it is up, it ends as well.

    Args:
        plan: what to make.
        tell: hears of each step that is done, with its seconds.

    Raises:
        RackgateError: a lab of that name runs, or this one did not come up.
    """
    check_name(plan.name)
    chosen = way()
    run_dir = plan.run_dir
    run_dir.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    with (
        _taken(plan.name) as lock,
        (run_dir / "lab.log").open("ab") as log,
        os.fdopen(reading, "rb", buffering=0) as said,
    ):
        # of a lab of that name that has ended
        (_state() / f"{plan.name}.json").unlink(missing_ok=True)
        words = [*chosen.words, *plan.words, "--serve", str(writing)]
        starter = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writing, lock),
            start_new_session=True,
        )
        os.close(writing)
        try:
            lab = Known(
                name=plan.name,
                pid=(first := _first_child(starter)),
                ticks=_ticks(first),
                user=chosen.user,
                way=chosen.text,
                topology=str(plan.topology),
                stock=plan.stock,
                run_dir=str(run_dir.resolve()),
                started_at=time.time(),
            )
            file = _state() / f"{plan.name}.json"
            file.write_text(json.dumps(asdict(lab)) + "\n", encoding="utf-8")
            _listen(said.fileno(), lab, tell)
        except BaseException:
            starter.kill()
            starter.wait()
            (_state() / f"{plan.name}.json").unlink(missing_ok=True)
            raise
        # It lives on without us; nobody shall warn of that.
        starter.returncode = 0
        return lab


def run(plan: Plan, command: Sequence[str], *, user: bool = True) -> int:
    """Makes a lab, runs a command in it, takes all of it away, and returns the command's exit status.

    A SIGTERM goes to the command; a Ctrl-C has reached it by itself. The lab ends with this process, however that ends.

    Args:
        plan: of the lab.
        command: program and arguments.
        user: whether to ask for a user namespace; see ``way``.

    Raises:
        RackgateError: no namespaces, or the lab's first process does not start.
    """
    plan.run_dir.mkdir(parents=True, exist_ok=True)
    starter = subprocess.Popen([*process.DIES_WITH_PARENT, *way(user=user).words, *plan.words, "--", *command])
    first: list[int] = []

    def end(*_: object) -> None:
        # "unshare" lets no SIGTERM through
        if first:
            os.kill(first[0], signal.SIGTERM)
        else:
            starter.kill()

    ours = {signal.SIGTERM: signal.signal(signal.SIGTERM, end)}
    ours[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        first.append(_first_child(starter))
        status = starter.wait()
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _first_child(starter: subprocess.Popen[bytes]) -> int:
    path = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")

    def born() -> list[str]:
        if starter.poll() is not None:
            raise RackgateError(f"the lab's first process did not start: unshare ended with {starter.returncode}")
        return path.read_text(encoding="ascii").split()

    return int(wait_for(born, what="the lab's first process", timeout_s=20, interval_s=0.01)[0])


def _listen(descriptor: int, lab: Known, tell: Callable[[str, float], None]) -> None:
    """Reads what the first process says until it is ready."""
    deadline = time.monotonic() + UP_TIMEOUT_S
    text = b""
    while True:
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise RackgateError(f"lab {lab.name}: not up after {UP_TIMEOUT_S:.0f} s, see {lab.log}")
        more = os.read(descriptor, 65536)
        if not more:
            tail = "\n".join(lab.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
            raise RackgateError(f"lab {lab.name}: its first process ended, see {lab.log}", detail=tail)
        text += more
        *lines, text = text.split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "error" in said:
                raise RackgateError(said["error"], detail=said["detail"], exit_status=said["status"])
            if "ready" in said:
                return
            tell(said["step"], said["seconds"])


def down(lab: Known) -> None:
    """Takes a lab down and waits until nothing of it is left; a lab that has ended is forgotten.

    Raises:
        RackgateError: it does not go.
    """
    try:
        # A handle on the process itself: between a look at the number and the signal it could become another's.
        handle = os.pidfd_open(lab.pid)
    except ProcessLookupError:
        handle = -1
    if handle >= 0:
        try:
            if lab.runs:
                # The kernel ends all other processes before the first one is gone, and with it who holds the lock.
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
    gone = f"lab {lab.name} to be gone"
    wait_for(lambda: not _locked(lab.name), what=gone, timeout_s=DOWN_TIMEOUT_S, interval_s=0.05)
    with _taken(lab.name):
        for suffix in (".json", ".lock"):
            (_state() / f"{lab.name}{suffix}").unlink(missing_ok=True)


def enter(lab: Known, command: Sequence[str]) -> int:
    """Runs a command in a lab, on our terminal, to its end; returns its exit status.

    Raises:
        RackgateError: the lab cannot be entered.
    """
    env = os.environ | {LAB_VARIABLE: str(DESCRIPTION)}
    ours = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        done = subprocess.run([*process.DIES_WITH_PARENT, *lab.entering(command)], env=env, check=False)
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    if not lab.runs:
        raise RackgateError(f"lab {lab.name} has ended meanwhile, see {lab.log}")
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def inside(name: str | None) -> bool:
    """Whether this runs in a lab already, which must be the one that is meant.

    Raises:
        RackgateError: another one is meant.
    """
    if not in_lab():
        return False
    here = Lab.attach().name
    if name not in (None, here):
        raise RackgateError(f"--lab {name}: this runs in lab {here!r}; leave it first")
    return True


def enter_again(name: str | None, *, otherwise: str = "") -> int:
    """Runs this very command line once more, in a lab; for commands that are the same inside and outside.

    Args:
        name: of the lab, if several run.
        otherwise: what else a person could do if no lab can be meant, for the error.

    Raises:
        RackgateError: no lab, or several without a name.
    """
    try:
        lab = find(name)
    except RackgateError as error:
        raise RackgateError(f"{error}{otherwise and '; or '}{otherwise}") from error
    return enter(lab, [sys.executable, "-m", "pyhooks.cli", *sys.argv[1:]])


def default_run_dir(name: str) -> Path:
    """Where the results of a lab go if nobody says so."""
    return paths.OUT / "lab" / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
