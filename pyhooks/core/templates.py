"""Jinja templates of poms, pages and documents; an undefined variable is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_template(
    name: str,
    folders: Sequence[Path],
    values: Mapping[str, Any],
    *,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    escape: bool = True,
) -> str:
    """Return the text of a template.

    Args:
        name: file name of the template.
        folders: folders of the template and of those that it includes or extends, searched in order.
        values: its variables.
        filters: its filters by name, in addition to those of Jinja.
        escape: whether values are escaped for XML and HTML.
    """
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=escape,  # noqa: S701 - Markdown is not escaped
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not escape,
    )
    environment.filters.update(filters or {})
    return environment.get_template(name).render(values)
