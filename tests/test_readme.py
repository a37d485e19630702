"""The commands that the documents name exist and take the options that they are shown with."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pyhooks import paths

DOCUMENTS = [path for path in (*paths.REPO.glob("*.md"), *paths.REPO.glob("*/README.md")) if path.is_file()]
RACKGATE = Path(sys.executable).with_name("rackgate")


def commands(word: str) -> list[list[str]]:
    """All commands in code spans and blocks that start with ``word``."""
    found: set[tuple[str, ...]] = set()
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
        for line in "\n".join(blocks).splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0].removeprefix(".venv/bin/") == word:
                found.add(tuple(words[1:]))
    return [list(words) for words in sorted(found)]


def test_the_documents_show_commands() -> None:
    assert ["bench"] in commands("make")
    assert ["test"] in commands("make")
    assert len(commands("rackgate")) >= 5


@pytest.mark.parametrize("words", commands("make"), ids=" ".join)
def test_make_knows_its_targets(words: list[str]) -> None:
    done = subprocess.run(["make", "-n", *words], cwd=paths.REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", commands("rackgate"), ids=" ".join)
def test_rackgate_knows_its_commands_and_options(words: list[str]) -> None:
    own = words[: words.index("--")] if "--" in words else words
    path = [word for word in own if not word.startswith("-")]
    # the longest run of leading words that names a command
    for length in range(len(path), -1, -1):
        done = subprocess.run([RACKGATE, *path[:length], "--help"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    assert length >= min(1, len(path)), f"rackgate has no command {path[:1]}"
    for option in (word for word in own if word.startswith("--") and word not in ("--help", "--debug")):
        assert option in done.stdout, f"rackgate {' '.join(path[:length])} has no {option}"


def test_ci_calls_exactly_the_readme_s_test_command() -> None:
    script = (paths.REPO / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    lines = [line for line in script if line and not line.startswith(("#", "set ", "cd "))]
    assert lines == ["exec make test"]


def test_pictures_of_the_documents_are_there() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).is_file(), f"{document.name}: {target}"
