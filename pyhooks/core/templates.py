"""Jinja templates of poms, pages and documents; an undefined variable is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
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
    environment = _environment(tuple(folders), tuple((filters or {}).items()), escape)
    return environment.get_template(name).render(values)


# An environment keeps its compiled templates, and compiles one again after its file changed.
@lru_cache(maxsize=16)
def _environment(
    folders: tuple[Path, ...], filters: tuple[tuple[str, Callable[..., Any]], ...], escape: bool
) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=escape,  # noqa: S701 - Markdown is not escaped
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not escape,
    )
    environment.filters.update(filters)
    return environment
