"""The commands of the README's lab section."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pyhooks.core import paths
from terminal_user import output_of, visiting


@pytest.mark.timeout(600)
def test_the_lab_of_the_readme(tmp_path: Path) -> None:
    text = (paths.REPO / "README.md").read_text(encoding="utf-8")
    (block,) = [one for one in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "lab up" in one]
    outputs: list[tuple[str, str]] = []
    with visiting(tmp_path) as person:
        for line in block.splitlines():
            arguments = shlex.split(line)[1:]
            if arguments[:2] == ["lab", "up"]:
                arguments += ["--run-dir", str(tmp_path / "run")]
            done = person.run(*arguments)
            outputs.append((" ".join(arguments[:3]), output_of(done) + done.stderr))
    sent = [text for command, text in outputs if command == "lab kafka producer-perf-test"]
    assert ["NotEnoughRacksException" in text for text in sent] == [False, True, False]
    assert ["3 records sent" in text for text in sent] == [True, False, True]
    found = dict(outputs)
    assert "orders" in found["watch --once"]
    assert "is healed, proved" in found["rack heal b"]
    assert "is down" in found["lab down"]
