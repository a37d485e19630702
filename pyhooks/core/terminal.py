"""Safe terminal output of external text: rack, topic and host names, configuration values, broker errors.

Such text may contain rich markup, or control characters that move the cursor or change the colour or order of text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

LENGTH_MAX = 2000


def visible(text: str, *, length_max: int = LENGTH_MAX) -> str:
    """Return text on one line, with each non-printable character replaced by its Python escape.

    Args:
        text: any text; newlines and directional marks count as non-printable.
        length_max: maximum length in characters before escaping; in longer text ``…`` replaces the middle.
    """
    if len(text) > length_max:
        half = (length_max - 1) // 2
        text = f"{text[: length_max - 1 - half]}…{text[len(text) - half :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def plain(text: str, style: str = "", *, length_max: int = LENGTH_MAX) -> Text:
    """Return text that rich prints literally: neither markup nor emoji codes nor control characters take effect."""
    return Text(visible(text, length_max=length_max), style=style)


def step_line(text: str, seconds: float) -> Text:
    """Return the output line of a finished step: its text and duration."""
    return Text.assemble("  ", plain(text), (f" {seconds:.1f} s", "dim"))


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Write to standard output within the block; the block ends silently if the reader closes the pipe (``| head``)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # the interpreter must not flush the remaining buffer again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
