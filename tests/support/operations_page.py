"""Commands of the runbook in kip/operations.md."""

from __future__ import annotations

import re
import shlex

from pyhooks.core import paths

RUNBOOK = paths.REPO / "kip" / "operations.md"


def section(title: str) -> str:
    """Return the text below a heading, up to the next heading of the same or a higher level."""
    text = RUNBOOK.read_text(encoding="utf-8")
    heading = re.search(rf"^(##+) {re.escape(title)}$", text, re.MULTILINE)
    assert heading, f"{RUNBOOK.name} has no section {title!r}"
    after = text[heading.end() :]
    return re.split(rf"^##{{1,{len(heading[1]) - 1}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def commands(title: str) -> list[list[str]]:
    """Return the commands of a section, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", section(title), re.DOTALL)
    return [shlex.split(line) for line in "".join(blocks).splitlines() if line.strip()]
