"""Codes of the findings that modules of ``pyhooks.placement`` create about restarts and preflights."""

from __future__ import annotations

import ast

from pyhooks.core import paths

# class of a finding -> position of the code among its arguments
_POSITIONS = {"ReadinessFinding": 0, "_StoppedPartition": 1}


def source_codes(module: str) -> set[str]:
    """Return all codes of findings in a module; those that it takes from another object are constants there."""
    tree = ast.parse((paths.REPO / "pyhooks" / "placement" / f"{module}.py").read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _POSITIONS:
            code = node.args[_POSITIONS[node.func.id]]
            if isinstance(code, ast.Constant):
                found.add(str(code.value))
            else:
                assert ast.unparse(code) == "code", ast.unparse(code)
    return found
