"""``rackgate patch check-reproducible``: check that two clean builds under different conditions give the same bytes."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_json
from pyhooks.core.process import run
from pyhooks.patchset import maven, recipe
from pyhooks.patchset.artifacts import sha256
from pyhooks.patchset.distribution import MANIFEST
from pyhooks.patchset.git import git
from pyhooks.patchset.recipe import TEST_ALL
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify.check_result import CheckResult

_TIMEOUT_S = 1800.0
_NOBODY = "65534"
_SETPRIV = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
_READ_ALL = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
# Prefixes that run a command as another user; the first that works is used. The first two need root; the second also
# lets the user read all files, where only root can read the checkout or Python. The third uses a user namespace.
_OTHER_USERS = (
    (*_SETPRIV, "--"),
    (*_SETPRIV, *_READ_ALL, "--"),
    ("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--"),
)
_BUILD = "import sys; sys.argv = ['rackgate', 'build', '--archive']; from pyhooks.cli import main; main()"
# Programs that print the wall clock of Python and Java in seconds.
_PYTHON_CLOCK = "import time; print(int(time.time()))"
_JAVA_CLOCK = (
    "class Clock { public static void main(String[] a) { System.out.println(System.currentTimeMillis() / 1000); } }"
)
# Preloaded into every process of a build: shifts the wall clock, but not the monotonic clock.
_CLOCK_LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int status = next(clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += SHIFT_S;
    return status;
}
int gettimeofday(struct timeval *now, void *zone) {
    int (*next)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int status = next(now, zone);
    if (status == 0) now->tv_sec += SHIFT_S;
    return status;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
"""


@dataclass(frozen=True)
class Conditions:
    """Conditions of one of the builds.

    Attributes:
        clock_shift_days: how many days its wall clock is ahead.
        source_times_s: modification time of all sources, in seconds since the epoch.
    """

    name: str
    other_user: bool
    umask: int
    clock_shift_days: int
    variables: Mapping[str, str]
    source_times_s: int


BUILDS = (
    Conditions("a", False, 0o022, 0, {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"}, 1_700_000_000),
    Conditions(
        "another/folder",
        True,
        0o077,
        401,
        {
            "TZ": "Pacific/Kiritimati",
            "LC_ALL": "C.UTF-8",
            "PYTHONHASHSEED": "2",
            "SOURCE_DATE_EPOCH": "1234567890",
            # Turkish: its case conversion differs from English.
            "JAVA_TOOL_OPTIONS": "-Duser.language=tr -Duser.country=TR",
        },
        1_000_000_000,
    ),
)


@dataclass
class FinishedBuild:
    """One build: its conditions, duration and files."""

    conditions: dict[str, Any]
    seconds: float
    files: dict[str, Path] = field(default_factory=dict)


def check_reproducible(*, out: Path | None = None, quiet: bool = False) -> CheckResult:
    """Build twice from only the sources and pinned files, and compare overlay, helpers, manifest and archive.

    The result is written to ``out``, by default ``out/reproducible``.

    Raises:
        RackgateError: a build failed, or its conditions could not be set.
    """
    started = time.monotonic()
    target = out or paths.OUT / "reproducible"
    plan = recipe.load()
    space = Workspace.of(plan)
    stages = Stages(1 + len(BUILDS), space.root / "timings-reproducible.json", quiet=quiet)
    with tempfile.TemporaryDirectory(prefix="rackgate-reproducible-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        with stages.stage("fetch and verify"), space.lock(stages.print_line):
            space.store.fetch(plan, plan.without(TEST_ALL), folder / "fetch")
            # Copied before the first build, so that an edit during the check makes no difference.
            for conditions in BUILDS:
                _copy_sources(folder / conditions.name, conditions.source_times_s)
        builds: list[FinishedBuild] = []
        for conditions in BUILDS:
            with stages.stage(f"build under conditions {len(builds) + 1}"):
                builds.append(_build(conditions, space, folder))
        files = {
            name: [sha256(build.files[name]) if name in build.files else None for build in builds]
            for name in sorted({name for build in builds for name in build.files})
        }
        different = differences(builds[0].files, builds[1].files)
    stages.remember()
    summary = {
        "verdict": "different" if different else "same",
        "differences": different,
        "files": files,
        "builds": [{**build.conditions, "seconds": round(build.seconds, 1)} for build in builds],
        "javac_version": maven.javac_version(),
        "machine": platform.machine(),
        "seconds": round(time.monotonic() - started, 1),
    }
    path = target / "summary.json"
    write_json(path, summary)
    return CheckResult(summary, path, not different)


def differences(first: Mapping[str, Path], second: Mapping[str, Path]) -> list[str]:
    """Return the files, and the entries of archives, in which two builds differ; empty if all bytes are equal."""
    differing = []
    for name in sorted({*first, *second}):
        if name not in first or name not in second:
            differing.append(f"{name}: only in the {'second' if name not in first else 'first'} build")
        elif first[name].read_bytes() != second[name].read_bytes():
            differing += [f"{name}: {entry}" for entry in _entries_that_differ(first[name], second[name])]
    return differing


def _entries_that_differ(first: Path, second: Path) -> list[str]:
    left, right = (dict(_entries(path)) for path in (first, second))
    entries = [entry for entry in sorted({*left, *right}) if left.get(entry) != right.get(entry)]
    if not entries and list(left) != list(right):
        entries = ["order of entries"]
    return entries or ["bytes outside of entries"]


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name and the content with metadata of each entry of an archive or key of a JSON file."""
    if path.suffix == ".jar":
        with zipfile.ZipFile(path) as jar:
            for entry in jar.infolist():
                yield entry.filename, (jar.read(entry), entry.date_time, entry.external_attr, entry.extra)
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(path) as tar:
            for member in tar.getmembers():
                stream = tar.extractfile(member)
                owner = (member.uid, member.gid, member.uname, member.gname)
                yield member.name, (stream.read() if stream else b"", member.mtime, member.mode, owner)
    elif path.suffix == ".json":
        yield from json.loads(path.read_text(encoding="utf-8")).items()


def _build(conditions: Conditions, space: Workspace, folder: Path) -> FinishedBuild:
    """Build in the folder of the conditions, which contains the sources, using only pinned files."""
    root = folder / conditions.name
    build = root / "build" / space.root.name
    for kept in (space.store.root, space.repository.root):
        shutil.copytree(kept, build / kept.relative_to(space.root))
    (root / "home").mkdir()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"MAKEFLAGS", "MAVEN_OPTS", "SOURCE_DATE_EPOCH"}
    }
    environment |= {"HOME": str(root / "home"), "PYTHONPATH": str(root), **conditions.variables}
    if conditions.clock_shift_days:
        environment["LD_PRELOAD"] = str(_clock_library(conditions.clock_shift_days, folder))
    prefix = _other_user(root) if conditions.other_user else ()
    _check_clock(conditions, prefix, environment, folder)
    started = time.monotonic()
    mask = ("sh", "-c", f'umask {conditions.umask:03o}; exec "$@"', "sh")
    _run([*prefix, *mask, sys.executable, "-c", _BUILD], "build", environment, root)
    builds = FinishedBuild({**asdict(conditions), "run_by": list(prefix)}, time.monotonic() - started)
    # The other user's umask does not block reading here: this process is root, or the same user to the file system.
    dist = (build / "dist").resolve()
    builds.files = {path.relative_to(dist).as_posix(): path for path in dist.glob("*/rackgate-hooks.jar")}
    builds.files |= {f"overlay/{path.name}": path for path in (dist / "overlay").iterdir()}
    builds.files |= {MANIFEST: dist / MANIFEST, **{path.name: path for path in build.glob("*.tar.gz")}}
    if len(builds.files) < 4:
        raise RackgateError(f"build {conditions.name}: its only files are {', '.join(sorted(builds.files))}")
    return builds


def _copy_sources(root: Path, time_s: int) -> None:
    listed = git(paths.REPO, "ls-files", "-z", "--cached", "--others", "--exclude-standard", task="list the sources")
    for name in filter(None, listed.split("\0")):
        source = paths.REPO / name
        if source.is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / name)
            os.utime(root / name, (time_s, time_s))


def _other_user(root: Path) -> tuple[str, ...]:
    """Return a prefix that runs a command as another user; with ``setpriv``, make that user the owner of ``root``."""
    for prefix in _OTHER_USERS:
        # Through a shell, since setpriv itself still has root's capabilities.
        probe = [*prefix, "sh", "-c", 'exec "$@"', "sh", sys.executable, "-c", "import jinja2"]
        try:
            run(probe, task="run Python as another user", cwd=Path("/"))
        except RackgateError:
            continue
        if prefix[0] == "setpriv":
            for path in (root, *root.rglob("*")):
                os.chown(path, int(_NOBODY), int(_NOBODY), follow_symlinks=False)
        return prefix
    raise RackgateError("a build by another user is not possible: neither setpriv nor a user namespace works here")


def _clock_library(days: int, folder: Path) -> Path:
    source = folder / "clock.c"
    source.write_text(_CLOCK_LIBRARY, encoding="utf-8")
    library = folder / "clock.so"
    command: list[str | Path] = [
        "gcc",
        "-shared",
        "-fPIC",
        f"-DSHIFT_S={days * 86_400}L",
        "-o",
        library,
        source,
        "-ldl",
    ]
    run(command, task="compile the library that shifts the clock")
    library.chmod(0o755)
    return library


def _check_clock(conditions: Conditions, prefix: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    """Check that Python and Java see the shifted clock."""
    program = folder / "Clock.java"
    program.write_text(_JAVA_CLOCK, encoding="utf-8")
    program.chmod(0o644)
    for command in ([sys.executable, "-c", _PYTHON_CLOCK], [str(maven.java_home() / "bin" / "java"), str(program)]):
        clock_s = int(_run([*prefix, *command], "read the clock", environment, folder))
        if abs(clock_s - time.time() - conditions.clock_shift_days * 86_400) > 3_600:
            raise RackgateError(
                f"build {conditions.name}: {Path(command[0]).name} does not see a clock that is "
                f"{conditions.clock_shift_days} days ahead, so builds of different days can't be compared here"
            )


def _run(command: Sequence[str], task: str, environment: Mapping[str, str], folder: Path) -> str:
    return run(command, task=task, cwd=folder, env=environment, timeout_s=_TIMEOUT_S)
