"""Jinja environment for result pages: templates of a folder, and the style sheet that all pages share."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def environment(folder: Path) -> Environment:
    """Return an environment for the templates of a folder, which can include ``page.css.j2``.

    ``page.css.j2`` needs ``light`` and ``dark``: the colours of ``pyhooks.report.plots`` by name.
    """
    return Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
