"""Text from outside on a terminal: names of racks, topics and hosts, configuration values, errors of brokers.

Such text may contain rich's markup, or control characters that move the cursor, colour or reorder what follows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

LENGTH_MAX = 2000


def visible(text: str, *, length_max: int = LENGTH_MAX) -> str:
    """Return text on one line, with each character that does not print as its Python escape.

    Args:
        text: any text; newlines and directional marks count as characters that do not print.
        length_max: longer text is cut in the middle, where ``…`` stands then; in characters before escaping.
    """
    if len(text) > length_max:
        half = (length_max - 1) // 2
        text = f"{text[: length_max - 1 - half]}…{text[len(text) - half :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def plain(text: str, style: str = "", *, length_max: int = LENGTH_MAX) -> Text:
    """Return text that rich prints literally: neither markup nor emoji codes nor control characters take effect."""
    return Text(visible(text, length_max=length_max), style=style)


def step_line(text: str, seconds: float) -> Text:
    """Return the line of a finished step: what was done and how long it took."""
    return Text.assemble("  ", plain(text), (f" {seconds:.1f} s", "dim"))


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Write to standard output within the block; a reader that closes the pipe (``| head``) ends the block quietly."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # what is still buffered must not be tried again when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
