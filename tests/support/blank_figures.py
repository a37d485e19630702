"""Figures saved as empty pictures: rendering takes most of the time of a page."""

from __future__ import annotations

from typing import IO, Any

import pytest
from matplotlib.figure import Figure

EMPTY = {"png": b"", "svg": b'<svg width="1" height="1"></svg>'}


def save_blank_figures(patch: pytest.MonkeyPatch) -> None:
    """Save each figure, which is still drawn, as an empty picture."""

    def save(_: Figure, out: IO[bytes], *, format: str, **_options: Any) -> None:  # noqa: A002 - matplotlib's name
        out.write(EMPTY[format])

    patch.setattr(Figure, "savefig", save)
