"""Runs that take long: what is kept of them."""

from __future__ import annotations

from typing import Any

from pyhooks.evidence import artifacts, judging
from pyhooks.evidence.claims import Atom
from pyhooks.evidence.judging import find

# -- what is kept -----------------------------------------------------------------------------------------------------


def document(**figures: Any) -> dict[str, Any]:
    """What system tests write, with the figures of each."""
    about = {"outcome": "pass", "reasons": [], "seconds": 1.0, "verdicts": {"faults": "true"}, "report": "x.html"}
    rows = [{"id": name, "figures": told, **about} for name, told in figures.items()]
    return {"seed": 7, "counts": {"pass": len(rows)}, "results": rows, "machine": "x"}


def test_what_system_tests_measured_is_kept_as_far_as_it_is_short() -> None:
    told = {"lost": 0, "late_s": {"g": 0.5}, "rows": [{"stage": "all stock", "times": [1.5] * 21}], "few": [1.5] * 20}
    kept = artifacts.of_system(document(a=told, b={}))
    assert kept["tests"]["b"] == {
        "outcome": "pass", "reasons": [], "seconds": 1.0, "verdicts": {"faults": "true"}, "figures": {},
    }  # fmt: skip
    rows = [{"stage": "all stock", "times": "left out: 21 values"}]
    assert kept["tests"]["a"]["figures"] == {**told, "rows": rows}
    # what is left out satisfies no rule
    assert not judging.compare(Atom("r", "/x", "least", 0), find(kept, "/tests/a/figures/rows/0/times"))


def test_one_test_that_tells_much_leaves_room_for_the_others() -> None:
    much = {f"k{number}": {"value": "x" * 1_000} for number in range(40)}
    kept = artifacts.of_system(document(a={"much": much, "lost": 1}, b={"lost": 0}, c=much))
    assert kept["tests"]["a"]["figures"]["lost"] == 1
    assert kept["tests"]["a"]["figures"]["much"].startswith("left out: 4")
    assert kept["tests"]["b"]["figures"] == {"lost": 0}
    some = kept["tests"]["c"]["figures"]
    assert some.keys() == much.keys()
    left = [name for name, value in some.items() if isinstance(value, str)]
    assert 0 < len(left) < len(much)
    artifact = dict.fromkeys(artifacts._FIELDS, "") | {"run": "x", "result": kept}
    assert len(artifacts.text_of(artifact)) < artifacts.MAX_BYTES
