"""Result pages: Jinja templates that extend ``base.html.j2`` and share its style sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyhooks.core.templates import render_template
from pyhooks.report.plots import DARK, LIGHT


def render(template: Path, values: Mapping[str, Any], filters: Mapping[str, Callable[..., Any]] | None = None) -> str:
    """Return a result page as HTML.

    Args:
        template: a Jinja template that extends ``base.html.j2`` and may include templates beside it.
        values: its variables.
        filters: its filters by name, in addition to those of Jinja.
    """
    colours = {"light": LIGHT.names(), "dark": DARK.names()}
    folders = [template.parent, Path(__file__).parent]
    return render_template(template.name, folders, {**values, **colours}, filters=filters)
