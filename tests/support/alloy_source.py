"""Write Alloy source to a file."""

from __future__ import annotations

from pathlib import Path


def source(folder: Path, text: str) -> Path:
    path = folder / "model.als"
    path.write_text(text, encoding="utf-8")
    return path
