"""Class names are unique in the repository, so that a search finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict

from pyhooks.core import paths


def test_no_two_classes_share_a_name() -> None:
    definitions = defaultdict(list)
    for package in ("pyhooks", "bench", "ducktape_tests"):
        for path in sorted((paths.REPO / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    definitions[node.name].append(f"{path.relative_to(paths.REPO)}:{node.lineno}")
    assert len(definitions) > 300
    assert {name: places for name, places in definitions.items() if len(places) > 1} == {}
