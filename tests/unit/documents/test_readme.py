"""The commands that the documents name exist and take the options that they are shown with."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.lab import topology
from terminal_user import RACKGATE

FOUND = (*paths.REPO.glob("*.md"), *paths.REPO.glob("*/README.md"), *paths.REPO.glob("kip/*.md"))
DOCUMENTS = sorted({path for path in FOUND if path.is_file()})


def commands(word: str) -> list[list[str]]:
    """All commands in code spans and in blocks, fenced or indented, that start with ``word``."""
    found: set[tuple[str, ...]] = set()
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
        blocks += re.findall(rf"^ {{4,}}((?:\.venv/bin/)?{word} .*)$", text, re.MULTILINE)
        for line in "\n".join(blocks).splitlines():
            arguments = list(takewhile(lambda one: one != "&&", shlex.split(line, comments=True)))
            if arguments and arguments[0].removeprefix(".venv/bin/") == word:
                found.add(tuple(arguments[1:]))
    return [list(arguments) for arguments in sorted(found)]


def test_the_documents_show_commands() -> None:
    assert ["bench"] in commands("make")
    assert ["test"] in commands("make")
    assert len(commands("rackgate")) >= 5


@pytest.mark.parametrize("arguments", commands("make"), ids=" ".join)
def test_make_knows_its_targets(arguments: list[str]) -> None:
    done = subprocess.run(["make", "-n", *arguments], cwd=paths.REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def command_path(arguments: list[str]) -> tuple[str, ...]:
    """The leading words that name a command; options between them are skipped."""
    found: list[str] = []
    command: Any = typer.main.get_command(app)
    for word in (word for word in arguments if not word.startswith("-")):
        inner = command.get_command(typer.Context(command), word) if hasattr(command, "get_command") else None
        if inner is None:
            break
        found.append(word)
        command = inner
    return tuple(found)


@cache
def page_of_help(*path: str) -> str:
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("arguments", commands("rackgate"), ids=" ".join)
def test_rackgate_knows_its_commands_and_options(arguments: list[str]) -> None:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    # a group that runs without the name of a command
    own = ["bench", "run", *own[1:]] if own[:1] == ["bench"] and own[1:2] and own[1].startswith("--") else own
    # what follows is for Kafka's tool
    own = own[:2] if own[:2] == ["lab", "kafka"] else own
    path = command_path(own)
    assert path or not [word for word in own if not word.startswith("-")], f"rackgate has no command {own[0]}"
    shown = page_of_help(*path)
    for option in (word for word in own if word.startswith("--") and word not in ("--help", "--debug")):
        known = re.search(rf"(?<![\w-]){re.escape(option.partition('=')[0])}(?![\w-])", shown)
        assert known, f"rackgate {' '.join(path)} has no {option}"


# They need no cluster, no built Kafka and some seconds.
QUICK = ("plan", "model exact", "system list", "evidence --list", "patch mutate --list")


def quick() -> list[list[str]]:
    """Commands of the documents that can run here."""
    found = [words for words in commands("rackgate") if " ".join(words).startswith(QUICK) and "…" not in words]
    # in a sentence a command may stand for itself, without what it needs
    return [words for words in found if words not in (["plan"], ["model", "exact"])]


@pytest.mark.parametrize("arguments", quick(), ids=" ".join)
def test_commands_that_need_nothing_do_what_they_are_shown_for(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run([RACKGATE, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    for option, value in pairwise(arguments):
        if option == "--picture":
            assert list((tmp_path / value).parent.glob(f"{Path(value).name}*")), "no picture was drawn"


def test_what_can_be_tried_is_tried() -> None:
    tried = {" ".join(words) for words in quick()}
    assert [name for name in QUICK if not any(one.startswith(name) for one in tried)] == []


def test_ci_calls_exactly_the_readme_s_test_command() -> None:
    script = (paths.REPO / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    lines = [line for line in script if line and not line.startswith(("#", "set ", "cd "))]
    assert lines == ["exec make test"]


def test_pictures_of_the_documents_are_there() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).is_file(), f"{document.name}: {target}"


def anchors(document: Path) -> set[str]:
    """The names that links can give headings: in lower case, with hyphens for spaces, without other punctuation."""
    text = re.sub(r"^ *```.*?^ *```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = [re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)]
    return {heading.replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(paths.REPO)))
def test_links_lead_somewhere(document: Path) -> None:
    dead = []
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        there = document.parent / file if file else document
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(target)
    assert not dead, f"{document.relative_to(paths.REPO)}: {', '.join(dead)}"


def test_the_documents_of_the_proposal_are_in_its_index() -> None:
    index = (paths.REPO / "kip" / "README.md").read_text(encoding="utf-8")
    for document in (paths.REPO / "kip").glob("*.md"):
        assert document.name == "README.md" or f"]({document.name})" in index, document.name


def test_the_topology_of_the_documents(tmp_path: Path) -> None:
    text = (paths.REPO / "pyhooks" / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "more.toml"
    base = 'name = "more"\n[[site]]\nname = "a"\nbrokers = [1]\ncontrollers = [101]\nclient = true\n'
    file.write_text(base + block, encoding="utf-8")
    found = topology.load(file)
    assert [node.role for node in found.site("d").nodes] == ["combined"]
    assert found.links[0].quality == topology.Quality(20, 4, 0.5, 1000)
    assert found.broker_properties == {"replica.lag.time.max.ms": "10000"}
