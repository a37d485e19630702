"""A mutant for tests of mutation testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyhooks.verify.mutants import Mutant, Selector


def mutant(name: str = "gate-missing", tests: Sequence[str] = ("q.GateTest",), **changes: Any) -> Mutant:
    base = Mutant(
        name=name, what="no gate", stands_for="the gate", file="alpha/src/main/java/p/Gate.java",
        old="open < 2", new="false", tests=tuple(Selector.of(test) for test in tests),
    )  # fmt: skip
    return replace(base, **changes)
