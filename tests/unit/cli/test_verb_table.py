"""Command ``rackgate``: verbs, help and imports; a verb's package is imported only when the verb is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.markup import render
from typer.testing import CliRunner

from pyhooks.cli import VERBS, app
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset import recipe, series

# slow imports that no command of a running lab needs
SLOW_IMPORTS = ("matplotlib", "numpy", "pandas", "pyspark")


def test_help_lists_all_verbs() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("│ ") and line[2] not in " -"] == [
        *VERBS,
        "version",
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_its_own_help(verb: str) -> None:
    done = CliRunner().invoke(app, [verb, "--help"])
    assert done.exit_code == 0
    assert f"Usage: root {verb} " in done.stdout


def help_texts(command: Any) -> Iterator[str]:
    """Yield the help texts of a command, its options and its subcommands."""
    yield from filter(None, [command.help, command.epilog, *(getattr(one, "help", None) for one in command.params)])
    for name in command.list_commands(typer.Context(command)) if hasattr(command, "list_commands") else ():
        yield from help_texts(command.get_command(typer.Context(command), name))


# the load generator of "bench" is left as it is until it changes, since measurements depend on its file
@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"bench"}))
def test_no_part_of_the_help_is_taken_for_markup(verb: str) -> None:
    command = typer.main.get_command(app)
    texts = list(help_texts(command.get_command(typer.Context(command), verb)))  # type: ignore[attr-defined]
    assert texts
    assert [text for text in texts if render(text).plain != text] == []


def test_paragraphs_of_the_help_are_wrapped_by_the_terminal() -> None:
    command = typer.main.get_command(app)
    texts = {verb: command.get_command(typer.Context(command), verb) for verb in VERBS}  # type: ignore[attr-defined]
    assert "preflight: check that nothing stands against it. observe: set" in texts["adopt"].help
    assert "\n\nExit status: 0 all steps are done" in texts["adopt"].help
    assert "Examples:\n  rackgate build\n  rackgate build " in texts["build"].help


def test_unknown_verb_is_an_error() -> None:
    done = CliRunner().invoke(app, ["rock", "cut", "b"])
    assert done.exit_code == 2
    assert "No such command 'rock'" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["lab", "status"], ["rack", "cut"], ["broker", "heal"], ["lab", "set"], ["version"]]
)
def test_lab_commands_import_no_slow_package(arguments: list[str]) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pyhooks.cli import app;"
        f" done = CliRunner().invoke(app, {[*arguments, '--help']}, catch_exceptions=False);"
        f" print(done.exit_code, [name for name in {SLOW_IMPORTS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


def test_help_imports_no_verb_package() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pyhooks.cli import VERBS, app;"
        " done = CliRunner().invoke(app, ['--help'], catch_exceptions=False);"
        " apps = [app.split(':')[0] for verb in VERBS.values() for app in verb.apps];"
        " print(done.exit_code, [name for name in apps if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


def test_kafka_option_selects_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.KAFKA_VARIABLE, paths.DEFAULT_KAFKA)
    for version in paths.patched_versions():
        done = CliRunner().invoke(app, ["--kafka", version, "version"])
        assert f"series {series.revision()} for Kafka {version}" in done.stdout
        assert paths.kafka_version() == version
        assert recipe.load().version == version
    with pytest.raises(RackgateError, match=r"no series for Kafka 0\.7: patch/ has .*"):
        CliRunner().invoke(app, ["--kafka", "0.7", "version"], catch_exceptions=False)


def test_make_passes_the_version_on() -> None:
    for command in (["KAFKA=0.7", "make"], ["make", "KAFKA=0.7"]):
        done = subprocess.run(
            ["/usr/bin/env", *command, "--no-print-directory", "--eval", "show:; @echo $$RACKGATE_KAFKA", "show"],
            capture_output=True, text=True, check=True, cwd=paths.REPO,
        )  # fmt: skip
        assert done.stdout == "0.7\n"


def test_sources_do_not_name_a_version_of_kafka() -> None:
    """All that differs between versions of Kafka is in patch/VERSION; the code has one default."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for folder in ("pyhooks", "bench", "ducktape_tests", "tests")
        for pattern in ("*.py", "*.toml", "*.j2", "*.java", "*.properties")
        for path in (paths.REPO / folder).rglob(pattern)
    }
    named = {
        (path.relative_to(paths.REPO).as_posix(), version)
        for path, text in texts.items()
        for version in paths.patched_versions()
        if version in text
    }
    assert named == {("pyhooks/core/paths.py", paths.DEFAULT_KAFKA)}
