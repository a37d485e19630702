"""Copy the repository's Markdown files, and the files that they link to, into a folder for MkDocs.

usage: stage.py REPOSITORY FOLDER
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def linked_files(repository: Path, document: Path) -> set[Path]:
    """Return the existing files of the repository that a document links to."""
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    paths = {(document.parent / target).resolve() for target in targets if ":" not in target}
    return {path for path in paths if path.is_file() and path.is_relative_to(repository)}


def main(repository: Path, folder: Path) -> None:
    """Replace the folder's content by the documents and what they link to."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.split()
    documents = {repository / name for name in listed}
    files = documents.union(*(linked_files(repository, document) for document in documents))
    shutil.rmtree(folder, ignore_errors=True)
    for file in sorted(files):
        target = folder / file.relative_to(repository)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
