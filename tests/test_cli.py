"""The command ``rackgate`` as a whole: its rooms are imported when their word is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pyhooks.cli import ROOMS, app

# What takes a second to import, and no command of a running lab needs.
HEAVY = ("matplotlib", "numpy", "pandas", "pyspark")


def test_the_help_names_every_word() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("│ ") and line[2] not in " -"] == [
        *ROOMS,
        "version",
    ]


@pytest.mark.parametrize("word", ROOMS)
def test_a_word_leads_to_its_own_help(word: str) -> None:
    done = CliRunner().invoke(app, [word, "--help"])
    assert done.exit_code == 0
    assert f"Usage: root {word} " in done.stdout


def test_a_word_that_is_not_there_is_told() -> None:
    done = CliRunner().invoke(app, ["rock", "cut", "b"])
    assert done.exit_code == 2
    assert "No such command 'rock'" in done.stderr


@pytest.mark.parametrize("words", [["lab", "status"], ["rack", "cut"], ["broker", "heal"], ["lab", "set"], ["version"]])
def test_commands_of_a_lab_start_light(words: list[str]) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pyhooks.cli import app;"
        f" done = CliRunner().invoke(app, {[*words, '--help']}, catch_exceptions=False);"
        f" print(done.exit_code, [name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"
