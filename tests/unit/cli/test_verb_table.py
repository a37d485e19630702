"""The command ``rackgate``: the package of a verb is imported when the verb is used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pyhooks.cli import VERBS, app

# What takes a second to import, and no command of a running lab needs.
HEAVY = ("matplotlib", "numpy", "pandas", "pyspark")


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


def test_unknown_verb_is_an_error() -> None:
    done = CliRunner().invoke(app, ["rock", "cut", "b"])
    assert done.exit_code == 2
    assert "No such command 'rock'" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["lab", "status"], ["rack", "cut"], ["broker", "heal"], ["lab", "set"], ["version"]]
)
def test_commands_of_a_lab_start_light(arguments: list[str]) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pyhooks.cli import app;"
        f" done = CliRunner().invoke(app, {[*arguments, '--help']}, catch_exceptions=False);"
        f" print(done.exit_code, [name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


def test_help_imports_no_package_of_a_verb() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pyhooks.cli import VERBS, app;"
        " done = CliRunner().invoke(app, ['--help'], catch_exceptions=False);"
        " apps = [one.split(':')[0] for verb in VERBS.values() for one in verb.apps];"
        " print(done.exit_code, [name for name in apps if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"
