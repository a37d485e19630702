"""Terminal recording: options, and the recording of a small program (needs the terminal emulator ``pyte``)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.watch.terminal_capture import TEMPLATE, main, parse

PROGRAM = r"""
import os, sys, time
size = os.get_terminal_size()
sys.stdout.write("\x1b[?1049h\x1b[H\x1b[31mred\x1b[0m \x1b[2mdim\x1b[0m \x1b[38;2;1;2;3mown\x1b[0m ")
sys.stdout.write(f"{size.columns}x{size.lines} {sys.stdout.isatty()}\n")
sys.stdout.flush()
time.sleep(float(sys.argv[1]))
"""


def test_options_of_a_recording() -> None:
    plan = parse(["--out", "x/y", "--at", "20s", "--at", "500ms", "--size", "80x24", "--", "rackgate", "watch"])
    assert (plan.command, plan.moments_s, plan.columns, plan.lines) == (("rackgate", "watch"), (0.5, 20), 80, 24)
    with pytest.raises(RackgateError, match=r"^--size 80: "):
        parse(["--out", "x", "--at", "1s", "--size", "80", "--", "true"])


def test_pictures_load_no_external_files() -> None:
    assert "font-face" not in TEMPLATE
    assert "url(http" not in TEMPLATE


def test_a_screen_is_recorded_as_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyte")
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    out = tmp_path / "shot"
    arguments = ["--out", str(out), "--at", "4s", "--size", "60x5", "--", sys.executable, "-c", PROGRAM]
    assert main([*arguments, "30"]) == 0
    svg = (tmp_path / "shot-4s.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    for label in ("red", "dim", "own", "60x5 True"):
        assert label in svg
    assert "#010203" in svg
    head, *events = [json.loads(line) for line in out.with_suffix(".cast").read_text(encoding="utf-8").splitlines()]
    assert (head["version"], head["width"], head["height"]) == (2, 60, 5)
    assert "\x1b[31mred" in "".join(text for _, kind, text in events if kind == "o")


def test_a_program_that_ends_too_early_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyte")
    arguments = ["--out", str(tmp_path / "shot"), "--at", "20s", "--", sys.executable, "-c", PROGRAM, "0"]
    assert main(arguments) == 2
    assert "ended with status 0 after" in capsys.readouterr().err
