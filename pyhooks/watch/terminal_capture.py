"""Recording of a terminal program, with pictures of its screen at given times.

    python -m pyhooks.watch.terminal_capture --out kip/evidence/watch --at 10s --at 25s -- rackgate watch

The program runs on a pseudo-terminal. Its output is written with timestamps to ``OUT.cast`` (asciicast v2, which
players of terminal recordings read) and fed to a terminal emulator (pyte). The emulator's screen at each ``--at`` is
written to ``OUT-10s.svg``, and to ``OUT-10s.png`` if Chromium is installed. After the last picture the program is
interrupted.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

from pyhooks.core import process
from pyhooks.core.durations import seconds
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_text
from pyhooks.report import browser

END_S = 10.0
DRAIN_S = 0.1
CTRL_C = b"\x03"
# rich's template downloads a web font; a picture must be the same offline
WEB_FONT = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)
TEMPLATE = WEB_FONT.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code", "DejaVu Sans Mono")
VIEW_BOX = re.compile(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"')
# SGR (select graphic rendition) codes
DIM_CODE, BLINK_CODE = 2, 5
# pyte's colour names that differ from rich's ("bfightmagenta" is pyte's spelling)
COLOURS = {"brown": "yellow", "brightbrown": "bright_yellow", "bfightmagenta": "bright_magenta"}


@dataclass(frozen=True)
class CapturePlan:
    """Recording to make."""

    command: tuple[str, ...]  # program and arguments
    out: Path  # path of the output files without suffix
    moments_s: tuple[float, ...]  # times of the pictures in seconds from the start, ascending
    columns: int  # width of the terminal
    lines: int  # height of the terminal
    title: str  # title of the pictures


def capture(plan: CapturePlan) -> list[Path]:
    """Run the program and return the written files.

    Raises:
        RackgateError: the program ended before the last picture or did not end after Ctrl-C, or pyte is not installed.
    """
    try:
        import pyte
    except ImportError as error:
        raise RackgateError("a picture of a terminal needs the package pyte: pip install pyte") from error
    screen = _emulator(pyte, plan.columns, plan.lines)
    stream = pyte.ByteStream(screen)
    cast = plan.out.with_suffix(".cast")
    written = [cast]
    header = {"version": 2, "width": plan.columns, "height": plan.lines, "timestamp": int(time.time())}
    recorded: list[Any] = [header | {"title": plan.title}]
    with _terminal(plan) as (running, master):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        begin = time.monotonic()
        for moment_s in plan.moments_s:
            while (left_s := begin + moment_s - time.monotonic()) > 0:
                output = _read(master, left_s)
                if output == b"":
                    running.wait(END_S)
                    raise RackgateError(
                        f"{plan.command[0]} ended with status {running.returncode} after"
                        f" {time.monotonic() - begin:.1f} s, before the picture at {moment_s:g} s",
                        detail="\n".join(screen.display).rstrip(),
                    )
                if output is not None:
                    recorded.append([round(time.monotonic() - begin, 3), "o", decoder.decode(output)])
                    stream.feed(output)
            written += _write_picture(plan, screen, moment_s)
        # as a user would: the terminal then sends SIGINT to its foreground process group
        os.write(master, CTRL_C)
        end = time.monotonic() + END_S
        while running.poll() is None:
            # drain the output, or the program could block on a full terminal buffer
            _read(master, DRAIN_S)
            if time.monotonic() > end:
                raise RackgateError(f"{plan.command[0]} did not end within {END_S:.0f} s of Ctrl-C; it was killed")
    write_text(cast, "".join(json.dumps(line) + "\n" for line in recorded))
    return written


def _emulator(pyte: Any, columns: int, lines: int) -> Any:
    """Return a pyte screen that keeps dim text: pyte drops that attribute, so it is stored as blinking."""

    class Screen(pyte.Screen):  # type: ignore[misc]
        def select_graphic_rendition(self, *codes: int, **options: Any) -> None:
            translated, remaining = [], list(codes)
            while remaining:
                code = remaining.pop(0)
                # a colour's parameters follow: 5 and an index, or 2 and three values
                size = {5: 2, 2: 4}.get(remaining[0], 0) if code in (38, 48) and remaining else 0
                translated += [BLINK_CODE if code == DIM_CODE else code, *remaining[:size]]
                del remaining[:size]
            super().select_graphic_rendition(*translated, **options)

    return Screen(columns, lines)


@contextlib.contextmanager
def _terminal(plan: CapturePlan) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the program on a pseudo-terminal of its own; yield the process and the master descriptor."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", plan.lines, plan.columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    # Ctrl-C needs a session with this controlling terminal, and SIGINT not ignored: a shell's background commands and
    # their descendants ignore it.
    command = ["env", "--default-signal=INT,QUIT", "setsid", "--ctty", *plan.command]
    try:
        with process.supervised(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as running:
            os.close(slave)
            yield running, master
    finally:
        os.close(master)


def _read(master: int, timeout_s: float) -> bytes | None:
    """Return the program's output; None if there is none in time, empty if the program has ended."""
    if not select.select([master], [], [], timeout_s)[0]:
        return None
    try:
        return os.read(master, 65536)
    except OSError:
        # Linux returns EIO when no process has the terminal open any more
        return b""


def _write_picture(plan: CapturePlan, screen: Any, moment_s: float) -> list[Path]:
    svg = plan.out.with_name(f"{plan.out.name}-{moment_s:g}s.svg")
    write_text(svg, svg_picture(screen, plan.title))
    size = VIEW_BOX.search(svg.read_text(encoding="utf-8"))
    try:
        program = browser.find_program()
    except RackgateError:
        return [svg]
    if size is None:
        return [svg]
    width, height = (int(float(text)) + 1 for text in size.groups())
    with browser.open_browser(program) as page:
        page.visit(svg, width=width, height=height)
        return [svg, page.screenshot(svg.with_suffix(".png"))]


def svg_picture(screen: Any, title: str) -> str:
    """Return the screen of the emulator as an SVG document."""
    console = Console(
        width=screen.columns, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    for row in range(screen.lines):
        line = Text(end="")
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        for style, run in groupby(cells, _style):
            line.append("".join(cell.data for cell in run), style)
        console.print(line, no_wrap=True, overflow="crop", crop=True)
    return console.export_svg(title=title, code_format=TEMPLATE)


def _style(cell: Any) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
        bold=cell.bold,
        dim=cell.blink,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _colour(name: str) -> str | None:
    """Return rich's name of one of pyte's colours; None for the default."""
    if name == "default":
        return None
    if name in COLOURS:
        return COLOURS[name]
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return f"bright_{name.removeprefix('bright')}" if name.startswith("bright") else name


def parse(arguments: Sequence[str]) -> CapturePlan:
    """Parse the command line.

    Raises:
        RackgateError: the size or a time is invalid.
        SystemExit: for --help and unknown options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pyhooks.watch.terminal_capture", description="Record a terminal program."
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="path without suffix; its .cast, .svg and .png files are replaced"
    )
    parser.add_argument("--at", action="append", required=True, help="time of a picture, such as 10s; repeatable")
    parser.add_argument("--size", default="100x30", help="columns and lines (default 100x30)")
    parser.add_argument("--title", default="rackgate watch", help="of the pictures")
    parser.add_argument("command", nargs="+", help="program and arguments, after --")
    options = parser.parse_args(arguments)
    size = re.fullmatch(r"(\d+)x(\d+)", options.size)
    if size is None or not all(map(int, size.groups())):
        raise RackgateError(f"--size {options.size}: expected columns and lines, such as 100x30")
    moments = tuple(sorted(seconds(text, "--at") for text in options.at))
    return CapturePlan(tuple(options.command), options.out, moments, int(size[1]), int(size[2]), options.title)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the recording, print the written files and return the exit status."""
    try:
        for path in capture(parse(sys.argv[1:] if arguments is None else arguments)):
            sys.stdout.write(f"{path}\n")
    except RackgateError as error:
        sys.stderr.write(f"error: {error}\n{error.detail}\n" if error.detail else f"error: {error}\n")
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
