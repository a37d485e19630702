"""Labs from outside: start a background lab, find running labs, enter them and take them down.

Each lab has a state file and a lock file in a folder of this user's runtime state. The lab's init process holds the
lock, so a free lock proves that the lab has ended, however it ended. The folder does not survive a restart of the
machine. Of a lab, only its run folder is kept after it ends.

The folder is ``$RACKGATE_STATE`` if that is set, else ``rackgate`` in ``$XDG_RUNTIME_DIR`` or ``/run/user/UID``, else
``/tmp/rackgate-UID``. The runtime folder may appear with a login and disappear with the last logout. So all of these
folders are searched for labs, and a lab ends when its lock file is deleted: otherwise it would keep running where no
command could find it. A state file alone proves nothing. Before a process is signalled or its namespaces are entered,
it must belong to this user, have the start time of the state file, and hold the lock.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from pyhooks.core import paths, private_files, process
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_text
from pyhooks.core.locks import try_lock
from pyhooks.core.toml_config import Natural, Positive, Table, Text
from pyhooks.core.wait import wait_for
from pyhooks.lab.lab import DESCRIPTION, LAB_VARIABLE, Lab, in_lab

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
MAX_NAME = 24
SYSCTL = Path("/proc/sys")
STATE_VARIABLE = "RACKGATE_STATE"
RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
RUN_USER = Path("/run/user")
FALLBACK = Path("/tmp")  # noqa: S108 - a folder in it is checked before use
ADVICE = f"set {STATE_VARIABLE} to a folder that only you can write"
# The sticky bit excludes the files from periodic cleanup, see tmpfiles.d(5) and XDG_RUNTIME_DIR's specification.
STATE_MODE = 0o1600
# nsenter option -> file below /proc/PID/ns
NAMESPACES = {"--user": "user", "--net": "net", "--mount": "mnt", "--pid": "pid"}
UP_TIMEOUT_S = 180.0
DOWN_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class NamespaceMethod:
    """Method by which this machine provides a private set of namespaces."""

    prefix: tuple[str, ...]  # command prefix that runs a program in new namespaces, which end with the program
    user: bool
    text: str


def namespace_method(*, user: bool = True) -> NamespaceMethod:
    """Return the method that works on this machine.

    Even root gets a user namespace, so that nothing in a lab has privileges on the machine. Where the kernel rejects
    one (in a chroot, or because of a setting), root does without.

    Args:
        user: whether to use a user namespace; only root can do without. Programs in it can't change users.

    Raises:
        RackgateError: the kernel allows no such namespaces, or an ordinary user requests none.
    """
    private = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    root = os.geteuid() == 0
    user_kind = "root" if root else "an ordinary user"
    if not user and not root:
        raise RackgateError("without a user namespace only root can start a lab")
    methods = (
        [NamespaceMethod(("unshare", "--user", "--map-root-user", *private), True, f"{user_kind}, in a user namespace")]
        if user
        else []
    )
    if root:
        why = "the kernel rejects one here" if user else "as asked"
        methods.append(NamespaceMethod(("unshare", *private), False, f"root, without a user namespace ({why})"))
    for method in methods:
        tried = subprocess.run([*method.prefix, "true"], capture_output=True, text=True, check=False, timeout=20)
        if tried.returncode == 0:
            return method
    advice = " and ".join(f"'sysctl -w {name}={value}'" for name, value in _forbidding_settings())
    raise RackgateError(
        f"namespaces are not available on this machine ({tried.stderr.strip()}); "
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


def _forbidding_settings(folder: Path = SYSCTL) -> list[tuple[str, str]]:
    """Return the kernel settings that forbid namespaces, with the values that would allow them."""
    settings = []
    for name, (allowing, forbidding) in _SETTINGS.items():
        path = folder / name.replace(".", "/")
        if path.exists() and path.read_text(encoding="ascii").strip() in forbidding:
            settings.append((name, allowing))
    return settings


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has unprintable characters")
    return text


_Printable = Annotated[Text, AfterValidator(_printable)]


@dataclass(frozen=True)
class LabRecord:
    """Lab as described by its state file."""

    name: str
    pid: Positive  # PID of its init process, in this process's PID namespace
    user: bool  # whether it has its own user namespace
    way: _Printable  # description of how its namespaces were created, for messages
    topology: _Printable
    stock: bool
    run_dir: _Printable
    # well within the range of floats and dates
    started_at: Annotated[float, Field(ge=0, le=1e11)]
    ticks: Natural  # start time of its init process in kernel ticks since boot, because the PID may have been reused
    state: Path  # folder of its state file and lock; not part of the state file

    @property
    def runs(self) -> bool:
        """Whether the lab runs."""
        with _open_init_process(self) as process_folder:
            return process_folder is not None

    @property
    def log(self) -> Path:
        """Log of its init process."""
        return Path(self.run_dir) / "lab.log"

    @property
    def file(self) -> Path:
        """State file."""
        return self.state / f"{self.name}.json"

    @property
    def lock(self) -> Path:
        """Lock file, locked by the init process."""
        return _lock_file(self.state, self.name)

    def save(self) -> None:
        """Write the state file.

        Raises:
            RackgateError: a path in it has unprintable characters.
        """
        values = {key: value for key, value in asdict(self).items() if key != "state"}
        _parse(self.file, values)
        write_text(self.file, json.dumps(values) + "\n", mode=STATE_MODE)


def _parse(file: Path, raw: object) -> LabRecord:
    """Return the lab that a state file describes."""
    if not isinstance(raw, dict):
        raise RackgateError(f"{file}: not an object of JSON")
    table = Table(raw, file)
    record = table.into(LabRecord, name=table.choice("name", [file.stem]), state=file.parent)
    table.done()
    return record


def _start_ticks(entry: Path) -> int:
    """Return the start time of a process in kernel ticks since boot; 0 if there is no such process."""
    fields = process.stat_fields(entry)
    # field 22 of proc(5), starttime
    return int(fields[19]) if fields else 0


@contextmanager
def _open_init_process(lab: LabRecord) -> Iterator[int | None]:
    """Open the init process of a lab, if the lab runs.

    Yields:
        A descriptor of the process's folder in /proc, or None. It stands for this process only: opening or signalling
        through it never affects another process that reuses the PID.
    """
    with ExitStack() as stack:
        folder = None
        with suppress(FileNotFoundError, ProcessLookupError):
            folder = os.open(f"/proc/{lab.pid}", os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, folder)
        yield folder if folder is not None and _is_init_process(Path(f"/proc/self/fd/{folder}"), lab) else None


def _is_init_process(entry: Path, lab: LabRecord) -> bool:
    """Return whether a process belongs to this user, has the recorded start time, and holds the lab's lock."""
    try:
        if entry.stat().st_uid != os.geteuid() or _start_ticks(entry) != lab.ticks:
            return False
        lock = lab.lock.lstat()
        descriptors = [link.name for link in (entry / "fd").iterdir()]
    except OSError:
        return False  # it has ended or can't be examined, so nothing is proved
    return any(_holds_lock(entry, number, lock) for number in descriptors)


def _holds_lock(entry: Path, number: str, lock: os.stat_result) -> bool:
    """Return whether a descriptor of a process holds the lock on a file."""
    try:
        if not os.path.samestat((entry / "fd" / number).stat(), lock):
            return False
        text = (entry / "fdinfo" / number).read_text(encoding="ascii")
    except OSError:
        return False  # closed in the meantime
    # Example: "lock:\t1: FLOCK  ADVISORY  WRITE 17083 fe:00:9978415 0 EOF". Lists only locks held by this descriptor.
    locks = [line.split() for line in text.splitlines() if line.startswith("lock:")]
    return any("FLOCK" in fields and "WRITE" in fields for fields in locks)


def _state_folders() -> list[Path]:
    """Return the folders that may have state of this user's labs; new labs use the first."""
    if chosen := os.environ.get(STATE_VARIABLE):
        return [Path(chosen).absolute()]
    user = str(os.geteuid())
    given = os.environ.get(RUNTIME_VARIABLE)
    bases = dict.fromkeys([*([Path(given)] if given else []), RUN_USER / user])
    folders = [
        base / "rackgate"
        for base in bases
        if private_files.find_folder(base, ADVICE, forbidden=private_files.OTHERS_ANY) is not None
    ]
    return [*folders, FALLBACK / f"rackgate-{user}"]


def _state_folder() -> Path:
    """Return the folder for the state of new labs; create it if needed."""
    return private_files.make_folder(_state_folders()[0], ADVICE)


def _lock_file(state: Path, name: str) -> Path:
    return state / f"{name}.lock"


def _is_locked(state: Path, name: str) -> bool:
    try:
        descriptor = private_files.open_file(_lock_file(state, name), os.O_RDONLY, ADVICE)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def list_labs() -> tuple[tuple[LabRecord, ...], tuple[str, ...]]:
    """Return all labs that run or ended without being taken down, by name, and a line for each unusable file.

    Raises:
        RackgateError: the folder for new labs is unsafe.
    """
    records: list[LabRecord] = []
    problems: list[str] = []
    for number, folder in enumerate(_state_folders()):
        try:
            real = private_files.find_folder(folder, ADVICE)
        except RackgateError as error:
            if number == 0:
                raise
            problems.append(f"{error}; not searched for labs")
            continue
        for file in sorted(real.glob("*.json")) if real is not None else ():
            if not _is_name(file.stem):
                continue  # not a lab's file
            try:
                records.append(_read(file))
            except FileNotFoundError:
                continue  # the lab was taken down in the meantime
            except RackgateError as error:
                problems.append(f"{error}; ignored: delete it and {file.stem}.lock, which also ends a lab that has it")
    return tuple(sorted(records, key=lambda lab: lab.name)), tuple(problems)


def _read(file: Path) -> LabRecord:
    text = private_files.read_file(file, "no lab has made it")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RackgateError(f"{file}: not JSON") from error
    return _parse(file, raw)


def recorded_labs() -> tuple[LabRecord, ...]:
    """Return all labs that run or ended without being taken down, by name."""
    return list_labs()[0]


def find(name: str | None) -> LabRecord:
    """Return the running lab with a name or, without a name, the only running lab.

    Raises:
        RackgateError: no such lab, or several and no name; the message lists the running ones.
    """
    labs, problems = list_labs()
    running = [lab for lab in labs if lab.runs]
    names = ", ".join(lab.name for lab in running)
    unused = "".join(f"; {problem}" for problem in problems)
    if name is None:
        if len(running) == 1:
            return running[0]
        if running:
            raise RackgateError(f"several labs run ({names}): choose one with --lab NAME")
        raise RackgateError(f"no lab runs: start one with 'rackgate lab up'{unused}")
    for lab in running:
        if lab.name == name:
            return lab
    raise RackgateError(f"no lab {name!r} runs; " + (f"those that run: {names}" if names else "none does") + unused)


def _is_name(name: str) -> bool:
    return 1 <= len(name) <= MAX_NAME and set(name) <= NAME_CHARACTERS


def check_name(name: str) -> None:
    """Reject an invalid lab name.

    Raises:
        RackgateError: the name is invalid; the message states what is allowed.
    """
    if not _is_name(name):
        raise RackgateError(f"lab {name!r}: a name has 1 to {MAX_NAME} lowercase letters, digits and hyphens")


@dataclass(frozen=True)
class LabSetup:
    """Lab to be created."""

    name: str
    topology: Path
    run_dir: Path
    classpath: str  # class path of its Kafka; empty for a bare lab
    agent: str  # jar of the agent that serves each node's metrics; empty for none
    archive: str  # class data sharing archive of Kafka's classes; empty for none
    stock: bool

    @property
    def command(self) -> list[str]:
        """Command line of the lab's init process, to be appended to that of ``NamespaceMethod``."""
        command = [sys.executable, "-m", "pyhooks.lab.init_process", "--name", self.name]
        command += ["--topology", str(self.topology.resolve()), "--run-dir", str(self.run_dir.resolve())]
        command += ["--classpath", self.classpath, "--agent", self.agent, "--archive", self.archive]
        return command + ([] if self.classpath else ["--bare"])


@contextmanager
def _locked_name(state: Path, name: str) -> Iterator[int]:
    """Lock a lab name; yield a descriptor that a child may inherit. It is free again when all holders have ended."""
    path = _lock_file(state, name)
    while True:
        descriptor = private_files.open_file(path, os.O_RDWR | os.O_CREAT, ADVICE)
        try:
            if not try_lock(descriptor):
                raise _already_running(name)
            # Taking down a lab deletes its lock file; a lock on the deleted file would exclude no other process.
            if os.fstat(descriptor).st_nlink:
                os.fchmod(descriptor, STATE_MODE)
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _already_running(name: str) -> RackgateError:
    return RackgateError(
        f"lab {name!r} runs already: take it down with 'rackgate lab down {name}', or use another --name"
    )


def up(plan: LabSetup, report: Callable[[str, float], None]) -> LabRecord:
    """Start a background lab, and pass text and seconds of each completed step to ``report``.

    It runs until it is taken down; it also ends if this process ends before it is up.

    Raises:
        RackgateError: a lab with this name runs already, or this one did not come up.
    """
    check_name(plan.name)
    state = _state_folder()
    if any(lab.runs for lab in recorded_labs() if lab.name == plan.name):
        raise _already_running(plan.name)
    chosen = namespace_method()
    run_dir = plan.run_dir
    run_dir.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    with _locked_name(state, plan.name) as lock, os.fdopen(reading, "rb", buffering=0) as progress:
        # left over from a lab with this name that has ended
        file = state / f"{plan.name}.json"
        file.unlink(missing_ok=True)
        command = [*chosen.prefix, *plan.command, "--serve", str(writing), "--lock", str(lock)]
        starter = process.start(
            command,
            log=run_dir / "lab.log",
            append=True,
            outlives=True,
            pass_fds=(writing, lock),
            start_new_session=True,
        )
        os.close(writing)
        try:
            lab = LabRecord(
                name=plan.name,
                pid=(first := _wait_child(starter)),
                ticks=_start_ticks(Path(f"/proc/{first}")),
                user=chosen.user,
                way=chosen.text,
                topology=str(plan.topology),
                stock=plan.stock,
                run_dir=str(run_dir.resolve()),
                started_at=time.time(),
                state=state,
            )
            lab.save()
            _read_progress(progress.fileno(), lab, report)
        except BaseException:
            process.end(starter)
            file.unlink(missing_ok=True)
            raise
        # The lab outlives this process: set a return code to avoid a ResourceWarning about a running child.
        starter.returncode = 0
        return lab


def run(plan: LabSetup, command: Sequence[str], *, user: bool = True) -> int:
    """Create a lab, run a command in it, take the lab down and return the command's exit status.

    SIGTERM is forwarded to the command; Ctrl-C reaches it directly. The lab ends with this process, however that ends.

    Raises:
        RackgateError: no namespaces are available, or the lab's init process does not start.
    """
    plan.run_dir.mkdir(parents=True, exist_ok=True)
    starter = process.start([*namespace_method(user=user).prefix, *plan.command, "--", *command], stdin=None)
    first: list[int] = []

    def end(*_: object) -> None:
        # "unshare" does not forward SIGTERM
        if first:
            os.kill(first[0], signal.SIGTERM)
        else:
            starter.kill()

    with process.handling_signals({signal.SIGTERM: end, signal.SIGINT: signal.SIG_IGN}):
        first.append(_wait_child(starter))
        status = starter.wait()
    return status if status >= 0 else 128 - status


def _wait_child(starter: subprocess.Popen[bytes]) -> int:
    def first_child() -> list[int]:
        if starter.poll() is not None:
            raise RackgateError(f"the lab's first process did not start: unshare ended with {starter.returncode}")
        return process.children(starter.pid)

    return wait_for(first_child, goal="the lab's first process", timeout_s=20, interval_s=0.01)[0]


def _read_progress(descriptor: int, lab: LabRecord, report: Callable[[str, float], None]) -> None:
    """Read the init process's reports until it is ready, and pass each step to ``report``."""
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
            message = json.loads(line)
            if "error" in message:
                raise RackgateError(message["error"], detail=message["detail"], exit_status=message["status"])
            if "ready" in message:
                return
            report(message["step"], message["seconds"])


def down(lab: LabRecord) -> None:
    """Take a lab down and wait until all its processes have ended; also deletes the state of an ended lab.

    Raises:
        RackgateError: it does not end in time.
    """
    with _open_init_process(lab) as process_folder, suppress(ProcessLookupError):
        if process_folder is not None:
            # The kernel kills all other processes in the PID namespace first, so all holders of the lock end.
            signal.pidfd_send_signal(process_folder, signal.SIGKILL)
    goal = f"lab {lab.name} to end"
    wait_for(lambda: not _is_locked(lab.state, lab.name), goal=goal, timeout_s=DOWN_TIMEOUT_S, interval_s=0.05)
    with _locked_name(lab.state, lab.name):
        for path in (lab.file, lab.lock):
            path.unlink(missing_ok=True)


def run_inside(lab: LabRecord, command: Sequence[str]) -> int:
    """Run a command in a lab on this terminal and return its exit status.

    Raises:
        RackgateError: the lab can't be entered, or ended while the command ran.
    """
    env = os.environ | {LAB_VARIABLE: str(DESCRIPTION)}
    with _open_namespaces(lab) as descriptors:
        entering = [*process.DIES_WITH_PARENT, *_enter_command(command, descriptors)]
        with process.handling_signals(dict.fromkeys((signal.SIGINT, signal.SIGQUIT), signal.SIG_IGN)):
            done = subprocess.run(entering, env=env, check=False, pass_fds=tuple(descriptors.values()))
    if not lab.runs:
        raise RackgateError(f"lab {lab.name} has ended meanwhile, see {lab.log}")
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


@contextmanager
def _open_namespaces(lab: LabRecord) -> Iterator[dict[str, int]]:
    """Open the namespaces of a lab's init process; yield a descriptor for each nsenter option."""
    with ExitStack() as stack:
        process_folder = stack.enter_context(_open_init_process(lab))
        if process_folder is None:
            raise RackgateError(f"lab {lab.name} has ended, see {lab.log}")
        descriptors: dict[str, int] = {}
        try:
            for option, name in NAMESPACES.items():
                if lab.user or option != "--user":
                    descriptors[option] = os.open(f"ns/{name}", os.O_RDONLY, dir_fd=process_folder)
                    stack.callback(os.close, descriptors[option])
        except OSError as error:
            raise RackgateError(f"lab {lab.name}: its namespaces can't be entered: {error.strerror}") from error
        yield descriptors


def _enter_command(command: Sequence[str], descriptors: Mapping[str, int]) -> list[str]:
    """Return the command line that runs a command in the namespaces of ``_open_namespaces``.

    The command is killed together with nsenter. Only the command handles Ctrl-C: nsenter, which waits for it, must not
    end first.
    """
    options = [f"{option}=/proc/self/fd/{descriptor}" for option, descriptor in descriptors.items()]
    return [
        "env",
        "--ignore-signal=INT,QUIT",
        *("nsenter", *options, *(["--preserve-credentials"] if "--user" in descriptors else [])),
        *(f"--wdns={Path.cwd()}", "--"),
        *process.DIES_WITH_PARENT,
        *("env", "--default-signal=INT,QUIT"),
        *command,
    ]


def runs_inside(name: str | None) -> bool:
    """Return whether this process runs in the lab called ``name``, or in any lab without a name.

    Raises:
        RackgateError: it runs in another lab.
    """
    if not in_lab():
        return False
    current = Lab.attach().name
    if name not in (None, current):
        raise RackgateError(f"--lab {name}: this runs in lab {current!r}; leave it first")
    return True


def rerun_inside(name: str | None, *, otherwise: str = "") -> int:
    """Run this command line again inside a lab, for commands that are the same inside and outside.

    Raises:
        RackgateError: no lab runs, or several run and no name is given.
    """
    try:
        lab = find(name)
    except RackgateError as error:
        raise RackgateError(f"{error}{otherwise and '; or '}{otherwise}") from error
    return run_inside(lab, [sys.executable, "-m", "pyhooks.cli", *sys.argv[1:]])


def attach(name: str | None, *, otherwise: str = "") -> Lab:
    """Return the lab in which this process runs; outside, run this command line in the lab ``name`` and exit."""
    if not runs_inside(name):
        sys.exit(rerun_inside(name, otherwise=otherwise))
    return Lab.attach()


def default_run_dir(name: str) -> Path:
    """Return the default folder for the results of a lab."""
    return paths.OUT / "lab" / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
