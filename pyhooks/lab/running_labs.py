"""Labs from outside: starting one that stays, finding those that run, entering them, taking them down.

What is known of a lab outside of it lies in a folder of this user's run-time state, a file and a lock each. The
lab's first process holds the lock, so the kernel tells whether a lab runs, however it ended. Nothing in that folder
outlives a restart of the machine, and nothing of a lab but its folder of results outlives the lab.

The folder is ``$RACKGATE_STATE`` if that is set, else ``rackgate`` in ``$XDG_RUNTIME_DIR`` or ``/run/user/UID``, else
``/tmp/rackgate-UID``. The runtime folder may come with a login and go with the last logout. So labs are looked for in
each of these folders, and a lab ends when its lock file is deleted: else it would run on and no command could find it.
A state file is data, not proof: before a process is signalled or its namespaces are entered, it must belong to this
user, have started when the file says, and hold the lock.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pyhooks.core import paths, private_files, process
from pyhooks.core.errors import RackgateError
from pyhooks.core.toml_config import Table
from pyhooks.core.wait import wait_for
from pyhooks.lab.lab import DESCRIPTION, LAB_VARIABLE, Lab, in_lab

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
MAX_NAME = 24
SYSCTL = Path("/proc/sys")
STATE_VARIABLE = "RACKGATE_STATE"
RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
RUN_USER = Path("/run/user")
FALLBACK = Path("/tmp")  # noqa: S108 - a folder in it is checked before use
ADVICE = f"set {STATE_VARIABLE} to a folder of yours that nobody else can write"
# The sticky bit keeps what cleans up old files away from them, see tmpfiles.d(5) and XDG_RUNTIME_DIR's specification.
STATE_MODE = 0o1600
# option of nsenter -> file below /proc/PID/ns
NAMESPACES = {"--user": "user", "--net": "net", "--mount": "mnt", "--pid": "pid"}
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
        state: folder of its state file and its lock; not part of the state file.
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
    state: Path

    @property
    def runs(self) -> bool:
        """Whether it is there."""
        with _first_process(self) as process_folder:
            return process_folder is not None

    @property
    def log(self) -> Path:
        """What its first process has said."""
        return Path(self.run_dir) / "lab.log"

    @property
    def file(self) -> Path:
        """State file."""
        return self.state / f"{self.name}.json"

    @property
    def lock(self) -> Path:
        """Lock file, locked by the first process."""
        return _lock_file(self.state, self.name)

    def save(self) -> None:
        """Write the state file.

        Raises:
            RackgateError: a path in it has unprintable characters.
        """
        values = {key: value for key, value in asdict(self).items() if key != "state"}
        _parse(self.file, values)
        private_files.write_file(self.file, json.dumps(values) + "\n", mode=STATE_MODE)


def _parse(file: Path, raw: object) -> Known:
    """Return the lab that a state file describes.

    Raises:
        RackgateError: a field is missing, unknown, of another type or out of range.
    """
    if not isinstance(raw, dict):
        raise RackgateError(f"{file}: not an object of JSON")
    table = Table(raw, file)
    found = Known(
        name=table.word("name", [file.stem]),
        pid=table.whole("pid", 1),
        user=table.flag("user"),
        way=table.text("way"),
        topology=table.text("topology"),
        stock=table.flag("stock"),
        run_dir=table.text("run_dir"),
        # far from what a float or a date can't hold
        started_at=table.number("started_at", 0, 1e11),
        ticks=table.whole("ticks", 0),
        state=file.parent,
    )
    table.done()
    for key in ("way", "topology", "run_dir"):
        if not (value := getattr(found, key)).isprintable():
            raise table.wrong(key, f"has unprintable characters: {value!a:.100}")
    return found


def _ticks(entry: Path) -> int:
    """When a process started, in the kernel's ticks since the machine did; 0 if there is none.

    Args:
        entry: its folder below /proc.
    """
    fields = process.stat_fields(entry)
    # the 22nd of all
    return int(fields[19]) if fields else 0


@contextmanager
def _first_process(lab: Known) -> Iterator[int | None]:
    """Open the first process of a lab, if the lab runs.

    Yields:
        A descriptor of the process's folder in /proc, or None. It stands for the process itself: what is opened or
        signalled through it is never another process that got the same number.
    """
    with ExitStack() as stack:
        folder = None
        with suppress(FileNotFoundError, ProcessLookupError):
            folder = os.open(f"/proc/{lab.pid}", os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, folder)
        yield folder if folder is not None and _is_first_process(Path(f"/proc/self/fd/{folder}"), lab) else None


def _is_first_process(entry: Path, lab: Known) -> bool:
    """Whether a process is this user's, started when the state file says, and holds the lab's lock."""
    try:
        if entry.stat().st_uid != os.geteuid() or _ticks(entry) != lab.ticks:
            return False
        lock = lab.lock.lstat()
        descriptors = [link.name for link in (entry / "fd").iterdir()]
    except OSError:
        return False  # it has ended, or may not be examined: no proof
    return any(_holds(entry, number, lock) for number in descriptors)


def _holds(entry: Path, number: str, lock: os.stat_result) -> bool:
    """Whether a descriptor of a process is what locks a file."""
    try:
        if not os.path.samestat((entry / "fd" / number).stat(), lock):
            return False
        text = (entry / "fdinfo" / number).read_text(encoding="ascii")
    except OSError:
        return False  # closed meanwhile
    # such as "lock:\t1: FLOCK  ADVISORY  WRITE 17083 fe:00:9978415 0 EOF"; only locks held through this descriptor
    locks = [line.split() for line in text.splitlines() if line.startswith("lock:")]
    return any("FLOCK" in words and "WRITE" in words for words in locks)


def _folders() -> list[Path]:
    """Return the folders that may have state of this user's labs; new labs get the first.

    Raises:
        RackgateError: the runtime folder is another user's, or other users can get at it.
    """
    if chosen := os.environ.get(STATE_VARIABLE):
        return [Path(chosen).absolute()]
    user = str(os.geteuid())
    given = os.environ.get(RUNTIME_VARIABLE)
    bases = dict.fromkeys([*([Path(given)] if given else []), RUN_USER / user])
    found = [
        base / "rackgate"
        for base in bases
        if private_files.find_folder(base, ADVICE, forbidden=private_files.OTHERS_ANY) is not None
    ]
    return [*found, FALLBACK / f"rackgate-{user}"]


def _state() -> Path:
    """Return the folder for the state of new labs; it is made if need be.

    Raises:
        RackgateError: it can't be made, or another user could write it, see ``private_files``.
    """
    return private_files.make_folder(_folders()[0], ADVICE)


def _lock_file(state: Path, name: str) -> Path:
    return state / f"{name}.lock"


def _locked(state: Path, name: str) -> bool:
    try:
        descriptor = private_files.open_file(_lock_file(state, name), os.O_RDONLY, ADVICE)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def survey() -> tuple[tuple[Known, ...], tuple[str, ...]]:
    """Return the labs that run or have ended without being taken down, by name; and a line for each unusable file.

    Raises:
        RackgateError: the folder that new labs get is unsafe.
    """
    found: list[Known] = []
    problems: list[str] = []
    for number, folder in enumerate(_folders()):
        try:
            real = private_files.find_folder(folder, ADVICE)
        except RackgateError as error:
            if number == 0:
                raise
            problems.append(f"{error}; not searched for labs")
            continue
        for file in sorted(real.glob("*.json")) if real is not None else ():
            if not _is_name(file.stem):
                continue  # of no lab
            try:
                found.append(_read(file))
            except FileNotFoundError:
                continue  # the lab was taken down just now
            except RackgateError as error:
                problems.append(f"{error}; ignored: delete it and {file.stem}.lock, which also ends a lab that has it")
    return tuple(sorted(found, key=lambda lab: lab.name)), tuple(problems)


def _read(file: Path) -> Known:
    text = private_files.read_file(file, "no lab has made it")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RackgateError(f"{file}: not JSON") from error
    return _parse(file, raw)


def known() -> tuple[Known, ...]:
    """All labs that run, or that have ended without being taken down; by name."""
    return survey()[0]


def find(name: str | None) -> Known:
    """The lab of a name, or the only one that runs.

    Raises:
        RackgateError: there is none, or there are several and no name; the message says which run.
    """
    labs, problems = survey()
    running = [lab for lab in labs if lab.runs]
    names = ", ".join(lab.name for lab in running)
    unused = "".join(f"; {problem}" for problem in problems)
    if name is None:
        if len(running) == 1:
            return running[0]
        if running:
            raise RackgateError(f"several labs run ({names}): say which with --lab NAME")
        raise RackgateError(f"no lab runs: start one with 'rackgate lab up'{unused}")
    for lab in running:
        if lab.name == name:
            return lab
    raise RackgateError(f"no lab {name!r} runs; " + (f"those that run: {names}" if names else "none does") + unused)


def _is_name(name: str) -> bool:
    return 1 <= len(name) <= MAX_NAME and set(name) <= NAME_CHARACTERS


def check_name(name: str) -> None:
    """Refuses a name that cannot be one.

    Raises:
        RackgateError: says what is allowed.
    """
    if not _is_name(name):
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
        words = [sys.executable, "-m", "pyhooks.lab.init_process", "--name", self.name]
        words += ["--topology", str(self.topology.resolve()), "--run-dir", str(self.run_dir.resolve())]
        words += ["--classpath", self.classpath, "--agent", self.agent, "--archive", self.archive]
        return words + ([] if self.classpath else ["--bare"])


@contextmanager
def _taken(state: Path, name: str) -> Iterator[int]:
    """The lock of a name, as a descriptor that a child may inherit; it is free again when all who have it are gone."""
    path = _lock_file(state, name)
    while True:
        descriptor = private_files.open_file(path, os.O_RDWR | os.O_CREAT, ADVICE)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise _runs_already(name) from error
            # A lab that was taken down meanwhile took the file with it: a lock on that one would keep nobody out.
            if os.fstat(descriptor).st_nlink:
                os.fchmod(descriptor, STATE_MODE)
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _runs_already(name: str) -> RackgateError:
    return RackgateError(
        f"lab {name!r} runs already: take it down with 'rackgate lab down {name}', or use another --name"
    )


def up(plan: Plan, tell: Callable[[str, float], None]) -> Known:
    """Starts a lab that stays until it is taken down; if we end before it is up, it ends as well.

    Args:
        plan: what to make.
        tell: hears of each step that is done, with its seconds.

    Raises:
        RackgateError: a lab of that name runs, or this one did not come up.
    """
    check_name(plan.name)
    state = _state()
    if any(lab.runs for lab in known() if lab.name == plan.name):
        raise _runs_already(plan.name)
    chosen = way()
    run_dir = plan.run_dir
    run_dir.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    with (
        _taken(state, plan.name) as lock,
        (run_dir / "lab.log").open("ab") as log,
        os.fdopen(reading, "rb", buffering=0) as said,
    ):
        # of a lab of that name that has ended
        file = state / f"{plan.name}.json"
        file.unlink(missing_ok=True)
        words = [*chosen.words, *plan.words, "--serve", str(writing), "--lock", str(lock)]
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
                ticks=_ticks(Path(f"/proc/{first}")),
                user=chosen.user,
                way=chosen.text,
                topology=str(plan.topology),
                stock=plan.stock,
                run_dir=str(run_dir.resolve()),
                started_at=time.time(),
                state=state,
            )
            lab.save()
            _listen(said.fileno(), lab, tell)
        except BaseException:
            starter.kill()
            starter.wait()
            file.unlink(missing_ok=True)
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
    with _first_process(lab) as process_folder, suppress(ProcessLookupError):
        if process_folder is not None:
            # The kernel ends all other processes before the first one is gone, and with it who holds the lock.
            signal.pidfd_send_signal(process_folder, signal.SIGKILL)
    gone = f"lab {lab.name} to be gone"
    wait_for(lambda: not _locked(lab.state, lab.name), what=gone, timeout_s=DOWN_TIMEOUT_S, interval_s=0.05)
    with _taken(lab.state, lab.name):
        for path in (lab.file, lab.lock):
            path.unlink(missing_ok=True)


def enter(lab: Known, command: Sequence[str]) -> int:
    """Runs a command in a lab, on our terminal, to its end; returns its exit status.

    Raises:
        RackgateError: the lab cannot be entered.
    """
    env = os.environ | {LAB_VARIABLE: str(DESCRIPTION)}
    with _namespaces(lab) as descriptors:
        ours = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
        try:
            words = [*process.DIES_WITH_PARENT, *_entering(command, descriptors)]
            done = subprocess.run(words, env=env, check=False, pass_fds=tuple(descriptors.values()))
        finally:
            for number, handler in ours.items():
                signal.signal(number, handler)
    if not lab.runs:
        raise RackgateError(f"lab {lab.name} has ended meanwhile, see {lab.log}")
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


@contextmanager
def _namespaces(lab: Known) -> Iterator[dict[str, int]]:
    """Open the namespaces of a lab's first process; yield a descriptor for each option of nsenter.

    Raises:
        RackgateError: the lab does not run, or they can't be opened.
    """
    with ExitStack() as stack:
        process_folder = stack.enter_context(_first_process(lab))
        if process_folder is None:
            raise RackgateError(f"lab {lab.name} has ended, see {lab.log}")
        found: dict[str, int] = {}
        try:
            for option, name in NAMESPACES.items():
                if lab.user or option != "--user":
                    found[option] = os.open(f"ns/{name}", os.O_RDONLY, dir_fd=process_folder)
                    stack.callback(os.close, found[option])
        except OSError as error:
            raise RackgateError(f"lab {lab.name}: its namespaces can't be entered: {error.strerror}") from error
        yield found


def _entering(command: Sequence[str], descriptors: Mapping[str, int]) -> list[str]:
    """Return the arguments that run a command in the namespaces of ``_namespaces``.

    The command is killed with the process that runs them. Ctrl-C reaches the command alone, which decides what to do:
    the one that waits for it in between must not go first.
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
