"""git without system or user settings: the same commands give the same commit hashes on every machine."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from pyhooks.core.process import run

IDENTITY = "kafka-rackgate"
EMAIL = "rackgate@localhost"
# Any fixed time would do.
BASELINE_DATE = "2026-06-17T00:00:00+00:00"


def git(folder: Path, *arguments: str, task: str, stdin: str | None = None) -> str:
    """Run git in ``folder`` with a fixed identity and no system or user configuration; return its trimmed output.

    Raises:
        RackgateError: git failed.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment = {
        **kept,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "GIT_AUTHOR_NAME": IDENTITY,
        "GIT_AUTHOR_EMAIL": EMAIL,
        "GIT_COMMITTER_NAME": IDENTITY,
        "GIT_COMMITTER_EMAIL": EMAIL,
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    settings = ("core.autocrlf=false", "core.fileMode=false", "gc.auto=0", "advice.detachedHead=false")
    options = [option for setting in settings for option in ("-c", setting)]
    return run(["git", "-C", folder, *options, *arguments], task=task, env=environment, stdin=stdin).rstrip("\n")


def commit_all(folder: Path, message: str) -> str:
    """Commit the whole work tree without a parent, dated ``BASELINE_DATE``, and return the commit's hash.

    The commit object is written directly because ``git commit`` takes its date from the clock or the environment.
    """
    task = "lay out the tree"
    git(folder, "add", "--all", "--force", task=task)
    tree = git(folder, "write-tree", task=task)
    seconds = int(datetime.fromisoformat(BASELINE_DATE).timestamp())
    author = f"{IDENTITY} <{EMAIL}> {seconds} +0000"
    text = f"tree {tree}\nauthor {author}\ncommitter {author}\n\n{message}\n"
    commit = git(folder, "hash-object", "-t", "commit", "-w", "--stdin", task=task, stdin=text)
    git(folder, "update-ref", "HEAD", commit, task=task)
    return commit


def tree_id(folder: Path, commit: str, path: str) -> str:
    """Return the id of the tree or blob at ``path`` in ``commit``, or empty if there is none."""
    listed = git(folder, "ls-tree", commit, "--", path.rstrip("/"), task=f"look up {path}")
    return listed.split()[2] if listed else ""


def changed_files(folder: Path, old: str, new: str) -> tuple[str, ...]:
    """Return the paths of all files that differ between two commits; a renamed file counts with both names."""
    listed = git(folder, "diff", "--name-only", "--no-renames", "-z", old, new, task="compare with the baseline")
    return tuple(sorted(filter(None, listed.split("\0"))))


def commit_of(folder: Path, ref: str) -> str:
    """Return the commit of a full ref such as ``refs/heads/gate``, or empty if there is no such ref."""
    return git(folder, "for-each-ref", "--format=%(objectname)", ref, task=f"look up {ref}")
