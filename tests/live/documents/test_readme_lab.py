"""The commands of the README's lab section."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pyhooks.core import paths
from terminal_user import visiting


@pytest.mark.timeout(600)
def test_the_lab_of_the_readme(tmp_path: Path) -> None:
    text = (paths.REPO / "README.md").read_text(encoding="utf-8")
    (block,) = [one for one in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "lab up" in one]
    outputs: dict[str, str] = {}
    with visiting(tmp_path) as person:
        for line in block.splitlines():
            arguments = shlex.split(line)[1:]
            if arguments == ["watch"]:
                arguments.append("--once")
            elif arguments[:2] == ["lab", "up"]:
                arguments += ["--run-dir", str(tmp_path / "run")]
            outputs[" ".join(arguments[:2])] = person.check_output(*arguments)
    assert "aab" in outputs["watch --once"]
    assert "is healed, proved" in outputs["rack kill"]
    assert "is down" in outputs["lab down"]
