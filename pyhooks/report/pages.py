"""Result pages: Jinja templates that extend ``base.html.j2`` and share its style sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pyhooks.report.plots import DARK, LIGHT


def render(template: Path, values: Mapping[str, Any], filters: Mapping[str, Callable[..., Any]] | None = None) -> str:
    """Return a result page as HTML.

    Args:
        template: a Jinja template that extends ``base.html.j2`` and may include templates beside it.
        values: its variables.
        filters: its filters by name, in addition to those of Jinja.
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    return environment.get_template(template.name).render(values, light=LIGHT.names(), dark=DARK.names())
