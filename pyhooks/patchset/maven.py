"""Maven as resolver, compiler driver and test runner: render poms, run Maven, and extract errors from its log."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import run
from pyhooks.core.templates import render_template

TEMPLATES = paths.REPO / "patch" / "build"
JMH = paths.REPO / "patch" / "jmh"
TIMEOUT_S = 900.0
# An artifact that is missing while Maven is offline.
_UNPINNED = re.compile(r"in offline mode and the artifact (?P<artifact>\S+) has not been downloaded")
_COMPILE_ERROR = re.compile(
    r"^\[ERROR\] (?P<file>/[^:\[]+\.(?:java|scala)):(?:\[(?P<jline>\d+),\d+\]|(?P<sline>\d+):) ?(?P<text>.*)$"
)
_MISSING_FILE = re.compile(r"Could not (?:find|transfer) artifact (?P<artifact>[^\s]+) ")
_CORRUPT = re.compile(r"Could not transfer artifact (?P<artifact>\S+) .*Checksum validation failed")
_FAILED_PROJECT = re.compile(r"Failed to execute goal .* on project (?P<project>[^:]+):")
# The first errors are sufficient: one missing class can cause thousands.
_DETAIL_CHARACTERS = 3000
# scalac fails in a JVM with Turkish locale: it derives method names by changing case.
LANGUAGE = ("-Duser.language=en", "-Duser.country=US")
# The compilers recurse deeply on Kafka's sources; upstream's build sets the same stack size. C2 costs such short runs
# more than it saves: with C1 alone, clients and core take half the CPU time.
_MAVEN_OPTS = "-Xss4m -Xmx2g -XX:+UseParallelGC -XX:TieredStopAtLevel=1"


def render(template: str, path: Path, /, **values: Any) -> Path:
    """Write a pom from a template of ``patch/build`` or ``patch/jmh``, with values escaped for XML; return ``path``."""
    text = render_template(template, [TEMPLATES, JMH], values)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@functools.cache
def java_home() -> Path:
    """Return the JDK to compile with: JAVA_HOME, or the JDK of ``javac`` on the PATH.

    Raises:
        RackgateError: there is no JDK.
    """
    named = os.environ.get("JAVA_HOME")
    if named and (Path(named) / "bin" / "javac").exists():
        return Path(named)
    found = shutil.which("javac")
    if not found:
        raise RackgateError("no JDK: javac is not on the PATH; install openjdk-17-jdk-headless")
    return Path(found).resolve().parent.parent


@functools.cache
def javac_version() -> str:
    """Return the version of the compiler, such as ``17.0.15``.

    Raises:
        RackgateError: there is no JDK, or it is older than 17.
    """
    command = run([java_home() / "bin" / "javac", "-version"], task="query the version of javac").split()
    version = command[-1] if command else ""
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < 17:
        raise RackgateError(f"javac {version or '?'} in {java_home()} is too old: Kafka 4 needs a JDK 17 or later")
    return version


def maven(
    pom: Path, goals: Sequence[str], *,
    repository: Path, online: bool, task: str, log: Path, timeout_s: float = TIMEOUT_S,
) -> None:  # fmt: skip
    """Run Maven on ``pom`` without verifying the repository; ``artifacts.MavenRepository.maven`` verifies it first.

    The working directory is the folder of ``pom``, so that ``end_processes_in`` finds the processes.

    Args:
        pom: the pom file.
        goals: goals, phases and further options.
        repository: the local repository.
        online: whether Maven may download; a download with a wrong checksum is then an error.
        task: description of the work, for error messages.
        log: file for all of Maven's output.
        timeout_s: timeout in seconds.

    Raises:
        RackgateError: Maven failed; the message names the source file and line, or the artifact, or the timeout.
    """
    if not shutil.which("mvn"):
        raise RackgateError(f"{task}: mvn is not installed; install the package maven")
    command: list[str | Path] = ["mvn", "-B", "-ntp", "-Dstyle.color=never", f"-Dmaven.repo.local={repository}"]
    # -U: Maven must retry artifacts that it failed to find earlier.
    command += ["--strict-checksums", "-U"] if online else ["--offline"]
    environment: Mapping[str, str] = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "MAVEN_OPTS": f"{' '.join((_MAVEN_OPTS, *LANGUAGE))} {os.environ.get('MAVEN_OPTS', '')}".strip(),
    }
    try:
        run(
            [*command, "-f", pom.name, *goals], task=task, cwd=pom.parent, env=environment, log=log, timeout_s=timeout_s
        )
    except RackgateError as error:
        if not log.exists() or isinstance(error.__cause__, subprocess.TimeoutExpired):
            raise
        raise explain(task, log.read_text(encoding="utf-8", errors="replace"), log) from None


class MavenError(RackgateError):
    """A failure of Maven; ``project`` is the reactor module that failed, or empty."""

    project: str = ""


def explain(task: str, text: str, log: Path) -> MavenError:
    """Summarize the log of a failed run in one line: the first compile error, or the missing or corrupt artifact."""
    lines = text.splitlines()
    errors = [match for match in map(_COMPILE_ERROR.match, lines) if match]
    detail = "\n".join(line for line in lines if line.startswith("[ERROR]"))
    failed = _FAILED_PROJECT.search(text)
    if errors:
        first = errors[0]
        place = f"{first['file']}:{first['jline'] or first['sline']}"
        message = f"{task}: {place}: {first['text'].removeprefix('error: ')}"
    elif unpinned := _UNPINNED.search(text):
        message = (
            f"{task}: Maven needs {unpinned['artifact']}, which has no pin in maven.sha256; "
            "run `rackgate patch pin --role maven`"
        )
    elif corrupt := _CORRUPT.search(text):
        message = f"{task}: artifact {corrupt['artifact']} does not have the checksum that its repository states"
    elif missing := _MISSING_FILE.search(text):
        message = f"{task}: artifact {missing['artifact']} can't be downloaded; is the network available?"
    else:
        message = f"{task}: Maven failed, see {log}"
    error = MavenError(message, detail=detail[:_DETAIL_CHARACTERS])
    error.project = failed["project"].strip() if failed else ""
    return error
