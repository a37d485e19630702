"""Pages of results: templates beside the code that fills them, and the style that all of them share."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def environment(folder: Path) -> Environment:
    """Templates of a folder, in which ``page.css.j2`` can be included.

    It needs ``light`` and ``dark``, the colours of ``pyhooks.report.plots`` by their names.
    """
    return Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
