"""Documents: their commands and options exist, links and pictures resolve, and examples work."""

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

CANDIDATES = (*paths.REPO.glob("*.md"), *paths.REPO.glob("*/*.md"))
DOCUMENTS = sorted({path for path in CANDIDATES if path.is_file()})


def commands(program: str) -> list[list[str]]:
    """Return the arguments of all commands of a program in code spans and in fenced or indented blocks."""
    found: set[tuple[str, ...]] = set()
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
        blocks += re.findall(rf"^ {{4,}}((?:\.venv/bin/)?{program} .*)$", text, re.MULTILINE)
        for line in "\n".join(blocks).splitlines():
            arguments = list(takewhile(lambda argument: argument != "&&", shlex.split(line, comments=True)))
            if arguments and arguments[0].removeprefix(".venv/bin/") == program:
                found.add(tuple(arguments[1:]))
    return [list(arguments) for arguments in sorted(found)]


def test_the_documents_show_commands() -> None:
    assert ["bench"] in commands("make")
    assert ["test"] in commands("make")
    assert len(commands("rackgate")) >= 5


@pytest.mark.parametrize("arguments", commands("make"), ids=" ".join)
def test_make_targets_exist(arguments: list[str]) -> None:
    finished = subprocess.run(["make", "-n", *arguments], cwd=paths.REPO, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def command_path(arguments: list[str]) -> tuple[str, ...]:
    """Return the subcommand names at the start of the arguments, without the options between them."""
    found: list[str] = []
    command: Any = typer.main.get_command(app)
    for argument in (argument for argument in arguments if not argument.startswith("-")):
        inner = command.get_command(typer.Context(command), argument) if hasattr(command, "get_command") else None
        if inner is None:
            break
        found.append(argument)
        command = inner
    return tuple(found)


@cache
def help_text(*path: str) -> str:
    finished = CliRunner().invoke(app, [*path, "--help"])
    assert finished.exit_code == 0, finished.output
    return finished.stdout


@pytest.mark.parametrize("arguments", commands("rackgate"), ids=" ".join)
def test_rackgate_commands_and_options_exist(arguments: list[str]) -> None:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    own = own[2:] if own[:1] == ["--kafka"] else own
    # `rackgate bench` with options runs `bench run`
    own = ["bench", "run", *own[1:]] if own[:1] == ["bench"] and own[1:2] and own[1].startswith("--") else own
    # the other arguments are those of Kafka's tool
    own = own[:2] if own[:2] == ["lab", "kafka"] else own
    path = command_path(own)
    assert path or not [argument for argument in own if not argument.startswith("-")], (
        f"rackgate has no command {own[0]}"
    )
    help_page = help_text(*path)
    for option in (name for name in own if name.startswith("--") and name not in ("--help", "--debug")):
        known = re.search(rf"(?<![\w-]){re.escape(option.partition('=')[0])}(?![\w-])", help_page)
        assert known, f"rackgate {' '.join(path)} has no {option}"


# commands that need no cluster and no built Kafka, and take a few seconds
QUICK = ("plan", "model exact", "system list", "evidence --list", "patch mutate --list")


def quick_commands() -> list[list[str]]:
    """Return the commands of the documents that this test can run."""
    found = [
        arguments
        for arguments in commands("rackgate")
        if " ".join(arguments).startswith(QUICK) and "…" not in arguments
    ]
    # sentences name some commands without their required options
    return [arguments for arguments in found if arguments not in (["plan"], ["model", "exact"])]


@pytest.mark.parametrize("arguments", quick_commands(), ids=" ".join)
def test_quick_commands_succeed(arguments: list[str], tmp_path: Path) -> None:
    finished = subprocess.run([RACKGATE, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip()
    for option, value in pairwise(arguments):
        if option == "--picture":
            assert list((tmp_path / value).parent.glob(f"{Path(value).name}*")), "no picture was drawn"


def test_each_quick_command_is_in_a_document() -> None:
    executed = {" ".join(arguments) for arguments in quick_commands()}
    assert [name for name in QUICK if not any(command.startswith(name) for command in executed)] == []


def test_ci_calls_exactly_the_readme_s_test_command() -> None:
    script = (paths.REPO / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    lines = [line for line in script if line and not line.startswith(("#", "set ", "cd "))]
    assert lines == ["exec make test"]


def test_pictures_of_the_documents_exist() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).is_file(), f"{document.name}: {target}"


def anchors(document: Path) -> set[str]:
    """Return the anchors of the headings: lower case, hyphens for spaces, no other punctuation."""
    text = re.sub(r"^ *```.*?^ *```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = [re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)]
    return {heading.replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(paths.REPO)))
def test_links_resolve(document: Path) -> None:
    broken = []
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        target_file = document.parent / file if file else document
        if not target_file.exists() or (anchor and anchor not in anchors(target_file)):
            broken.append(target)
    assert not broken, f"{document.relative_to(paths.REPO)}: {', '.join(broken)}"


def test_the_documents_of_the_proposal_are_in_its_index() -> None:
    index = (paths.REPO / "kip" / "README.md").read_text(encoding="utf-8")
    for document in (paths.REPO / "kip").glob("*.md"):
        assert document.name == "README.md" or f"]({document.name})" in index, document.name


def test_the_site_has_each_document_once() -> None:
    navigation = (paths.REPO / "setup" / "site" / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=paths.REPO, capture_output=True, text=True, check=True)
    assert sorted(listed) == sorted(tracked.stdout.split())


def test_the_example_topology_is_valid(tmp_path: Path) -> None:
    text = (paths.REPO / "pyhooks" / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "more.toml"
    base = 'name = "more"\n[[site]]\nname = "a"\nbrokers = [1]\ncontrollers = [101]\nclient = true\n'
    file.write_text(base + block, encoding="utf-8")
    found = topology.load(file)
    assert [node.role for node in found.site("d").nodes] == ["combined"]
    assert found.links[0].quality == topology.Quality(20, 4, 0.5, 1000)
    assert found.broker_properties == {"replica.lag.time.max.ms": "10000"}
    assert found.java_options == ("-javaagent:/path/to/agent.jar",)
