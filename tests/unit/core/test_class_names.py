"""Class names are unique in the repository, so that a name in a report or a search leads to one place."""

from __future__ import annotations

import ast
from collections import defaultdict

from pyhooks.core import paths


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for package in ("pyhooks", "bench", "ducktape_tests"):
        for path in sorted((paths.REPO / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(paths.REPO)}:{node.lineno}")
    assert len(places) > 300
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
