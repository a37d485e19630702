"""Commands of the runbook in kip/operations.md."""

from __future__ import annotations

import re
import shlex

from pyhooks.core import paths

RUNBOOK = paths.REPO / "kip" / "operations.md"


def section(title: str) -> str:
    """Return the text below a heading, up to the next heading of the same level."""
    _, _, after = RUNBOOK.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert after, f"{RUNBOOK.name} has no section {title!r}"
    return after.partition("\n## ")[0]


def commands(title: str) -> list[list[str]]:
    """Return the commands of a section, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", section(title), re.DOTALL)
    return [shlex.split(line) for line in "".join(blocks).splitlines() if line.strip()]
