"""``python -m bench.report.document_pictures``: pictures for documents, made from a result that is kept beside them.

A result with an outage gives those of the README, one of several cells without any that of ``bench/README.md``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from rich.console import Console

from bench.report import run_page
from pyhooks.core import exit_status, files, paths, run_folder
from pyhooks.core.errors import RackgateError

EVIDENCE = paths.REPO / "kip" / "evidence"
STORED = EVIDENCE / "bench" / "results.json"
STORED_CELLS = EVIDENCE / "bench-full" / "results.json"
OUTAGE, ANSWER, CELLS = "outage.png", "bench-answer.png", "bench-cells.png"
# PNG field with the digest of the result that a picture shows.
SOURCE = "Source"


def digest(result: Path) -> str:
    """Return the SHA-256 of a result."""
    return f"sha256:{hashlib.sha256(result.read_bytes()).hexdigest()}"


def source_of(picture: Path) -> str:
    """Return the digest of the result that a picture shows; empty if the picture has none."""
    with Image.open(picture) as image:
        return str(image.info.get(SOURCE, ""))


def pictures(result: Path, out: Path) -> list[Path]:
    """Make the pictures, and keep the result beside them, in ``bench`` or ``bench-full`` below ``out``.

    A result with an outage gives its timeline and the answer of its first cell; any other one the overview of all
    cells.

    Raises:
        RackgateError: there is no such result, it has neither an outage nor several cells, or the
            folder is neither ``EVIDENCE`` nor one of earlier pictures.
    """
    stored = run_page.load(result)
    if not stored.get("outage") and len(stored["cells"]) < 2:
        raise RackgateError(
            f"{result}: has neither an outage nor several cells; use a result of the scenario question or full"
            " of 'rackgate bench run'"
        )
    if out.resolve() != EVIDENCE:
        run_folder.claim(out.resolve(), run_folder.README_PICTURES)
    kept = out / (STORED if stored.get("outage") else STORED_CELLS).relative_to(EVIDENCE)
    if not (kept.exists() and kept.samefile(result)):
        files.write({kept: result.read_bytes()})
    with tempfile.TemporaryDirectory(prefix="rackgate-readme-") as name:
        folder = Path(name)
        run_page.render(stored, folder, source=result)
        if stored.get("outage"):
            made = {OUTAGE: folder / "timeline.png"}
            if stored["cells"][0].get("answer"):
                made[ANSWER] = folder / "answer.png"
        else:
            made = {CELLS: folder / "overview.png"}
        return [_signed(drawn, out / file, digest(kept)) for file, drawn in made.items()]


def _signed(drawn: Path, target: Path, source: str) -> Path:
    text = PngInfo()
    text.add_text(SOURCE, source)
    out = BytesIO()
    with Image.open(drawn) as image:
        image.save(out, format="png", pnginfo=text, optimize=True)
    files.write({target: out.getvalue()})
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.report.document_pictures", description=__doc__)
    parser.add_argument("--result", type=Path, default=STORED, help="results.json [default: the stored one]")
    parser.add_argument("--out", type=Path, default=EVIDENCE, help="folder for pictures and result")
    options = parser.parse_args(arguments)
    try:
        for picture in pictures(options.result, options.out):
            print(picture)  # noqa: T201 - the output of the command
    except Exception as error:  # noqa: BLE001 - Python's own exit status 1 would mean that a check failed
        return exit_status.report_error(error, Console(stderr=True, soft_wrap=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
