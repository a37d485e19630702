"""Long runs: the figures kept of them, their dependencies, and the rules of their claims."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bench.outages import outage_results
from bench.outages.destruction import arm_row
from bench.plan import outage_plan
from bench.plan.scenario import BenchArm
from ducktape_tests import plan
from pyhooks.core import paths
from pyhooks.evidence import artifacts, rules, runs
from pyhooks.evidence.claims import CONFIRMED, REFUTED, Condition, load
from pyhooks.evidence.rules import UNDECIDED, value_at

# -- what is kept -----------------------------------------------------------------------------------------------------


def document(**figures: Any) -> dict[str, Any]:
    """Result of system tests, with the figures of each."""
    about = {"outcome": "pass", "reasons": [], "seconds": 1.0, "verdicts": {"faults": "true"}, "report": "x.html"}
    rows = [{"id": name, "figures": reported, **about} for name, reported in figures.items()]
    return {"seed": 7, "counts": {"pass": len(rows)}, "results": rows, "machine": "x"}


def test_short_figures_of_system_tests_are_kept() -> None:
    reported = {
        "lost": 0,
        "late_s": {"g": 0.5},
        "rows": [{"stage": "all stock", "times": [1.5] * 21}],
        "few": [1.5] * 20,
    }
    kept = artifacts.system_result(document(a=reported, b={}))
    assert kept["tests"]["b"] == {
        "outcome": "pass", "reasons": [], "seconds": 1.0, "verdicts": {"faults": "true"}, "figures": {},
    }  # fmt: skip
    rows = [{"stage": "all stock", "times": "left out: 21 values"}]
    assert kept["tests"]["a"]["figures"] == {**reported, "rows": rows}
    # what is left out satisfies no rule
    assert not rules.compare(Condition("r", "/x", "least", 0), value_at(kept, "/tests/a/figures/rows/0/times"))


def test_large_figures_of_one_test_leave_room_for_the_others() -> None:
    much = {f"k{number}": {"value": "x" * 1_000} for number in range(40)}
    kept = artifacts.system_result(document(a={"much": much, "lost": 1}, b={"lost": 0}, c=much))
    assert kept["tests"]["a"]["figures"]["lost"] == 1
    assert kept["tests"]["a"]["figures"]["much"].startswith("left out: 4")
    assert kept["tests"]["b"]["figures"] == {"lost": 0}
    some = kept["tests"]["c"]["figures"]
    assert some.keys() == much.keys()
    left = [name for name, value in some.items() if isinstance(value, str)]
    assert 0 < len(left) < len(much)
    artifact = dict.fromkeys(artifacts._FIELDS, "") | {"run": "x", "result": kept}
    assert len(artifacts.artifact_text(artifact)) < artifacts.MAX_BYTES


# -- what makes them stale --------------------------------------------------------------------------------------------


def test_a_run_of_system_tests_depends_on_tests_and_checkers() -> None:
    checked = 0
    for run in load().runs.values():
        if run.kind != "system":
            continue
        (command,) = run.commands.values()
        selection = shlex.split(command)[3]
        files = {paths.REPO / "ducktape_tests" / one.file for one in plan.load() if selection in one.selections}
        assert files, run.id
        left = set(files)
        while left:
            own = {path for name in IMPORTED.findall(left.pop().read_text(encoding="utf-8")) for path in modules(name)}
            left |= own - files
            files |= own
        known = {path for name in run.depends if "/" in name for path in paths.REPO.glob(name)}
        assert files <= known, (run.id, files - known)
        assert set((paths.REPO / "pyhooks" / "checkers").glob("*.py")) <= known, run.id
        checked += 1
    assert checked >= 3


IMPORTED = re.compile(
    r"^from (ducktape_tests(?:\.\w+)* import [\w, ]+|ducktape_tests(?:\.\w+)* import \()", re.MULTILINE
)


def modules(imported: str) -> list[Path]:
    """The files of the suite that an import is about."""
    name, _, names = imported.partition(" import ")
    named = [name, *(f"{name}.{part.strip()}" for part in names.split(","))]
    found = [paths.REPO / f"{one.replace('.', '/')}.py" for one in named]
    return [path for path in found if path.is_file()]


# -- what their rules ask ---------------------------------------------------------------------------------------------


def judged_by(run: str, reported: Any) -> dict[str, str]:
    """Return the verdicts of a run's claims for this result."""
    claims = load()
    kept = runs._selected_values(reported, claims.runs[run])
    own = [claim for claim in claims.claims.values() if claim.runs == (run,)]
    return {claim.id: rules.judge(claim, {run: kept}, {}).state for claim in own}


@pytest.mark.parametrize(
    ("lost", "states"),
    [
        ({"cut": {"B": 0, "C": 9}, "kill": {"B": 0, "C": 9}}, (CONFIRMED, CONFIRMED)),
        ({"cut": {"B": 1, "C": 9}, "kill": {"B": 9, "C": 9}}, (REFUTED, REFUTED)),
        # if nothing is lost without the gate either, the rack's records were not gone
        ({"cut": {"B": 0, "C": 0}, "kill": {"B": 0, "C": 9}}, (UNDECIDED, CONFIRMED)),
        ({"cut": {"B": 0, "C": 9}, "kill": {"B": 0, "C": 0}}, (CONFIRMED, UNDECIDED)),
        ({"cut": {"B": None, "C": 9}, "kill": {"B": None, "C": 9}}, (UNDECIDED, UNDECIDED)),
    ],
)
def test_the_claims_of_a_destroyed_rack_depend_on_the_benchmark(
    lost: dict[str, dict[str, int | None]], states: tuple[str, str]
) -> None:
    arms = {one.id: one for one in outage_plan.load("full").arms}
    reported = [
        {
            "way": way,
            "proved": True,
            "topics": [_destroyed(arms[name].on("a,a,b", (1, 2, 3)), number) for name, number in by_arm.items()],
        }
        for way, by_arm in lost.items()
    ]
    found = judged_by("outages", {"destructions": reported, "states": outage_states()})
    assert (found["destroyed-rack-in-the-benchmark"], found["destroyed-and-killed-rack-in-the-benchmark"]) == states


def _destroyed(arm: BenchArm, lost: int | None) -> dict[str, Any]:
    counted = None if lost is None else {"acked": 9, "read": 9 - lost, "lost": lost}
    return arm_row(arm, counted, (1, False), ("a",), "a", proved=True)


def outage_states(
    *, aab_b: float | None = 0.0, abc_b: float = 0.98, refused_s: float | None = 8.5
) -> list[dict[str, Any]]:
    """States of ``rackgate bench outages`` with arm B's behaviour; A stops in each, and C continues."""
    whole = outage_plan.load("full")
    states = outage_results.state_figures(whole, whole.labs[0], [])

    def each(value: float | None) -> dict[str, Any] | None:
        return None if value is None else outage_results.mean_over_outages([value] * 3, confidence=0.95)

    for state in states:
        a, b, c = state["arms"]
        aab = state["placement"] == "a,a,b"
        for arm, share in ((a, 0.0), (b, aab_b if aab else abc_b), (c, 0.99)):
            arm["fault_share"] = each(share)
            arm["fewest_racks"] = 1 if aab else 2
        for arm, after_s in ((a, 8.4), (b, refused_s)):
            arm["first_refusal_probe_s"] = each(after_s)
            arm["first_ack_after_heal_s"] = each(2.8)
    return states


@pytest.mark.parametrize(
    ("did", "states"),
    [
        ({}, (CONFIRMED, CONFIRMED)),
        ({"aab_b": 0.5}, (REFUTED, CONFIRMED)),
        ({"abc_b": 0.5}, (UNDECIDED, CONFIRMED)),
        ({"refused_s": 16.0}, (CONFIRMED, REFUTED)),
        # no outage was proved, and no refusal seen
        ({"aab_b": None, "refused_s": None}, (UNDECIDED, UNDECIDED)),
    ],
)
def test_the_claims_of_outages_depend_on_the_benchmark(did: dict[str, Any], states: tuple[str, str]) -> None:
    reported = [{"way": way, "proved": True, "topics": [{"arm": "B"}, {"arm": "C"}]} for way in ("cut", "kill")]
    found = judged_by("outages", {"destructions": reported, "states": outage_states(**did)})
    assert (found["outages-stop-what-lacks-a-rack"], found["refusals-begin-when-the-controller-knows"]) == states


DESTROYED = "destroyed_test.py::DestroyedTest.test_no_acknowledged_record_is_lost"
LEVEL_OFF = "destroyed_test.py::LevelOffTest.test_the_only_holder_is_forgotten"
OTHERS = "load_test.py::LoadTest.test_others_beside_refusals"


def system(outcome: str, verdicts: dict[str, str], **figures: Any) -> dict[str, Any]:
    return {"outcome": outcome, "reasons": [], "seconds": 1.0, "verdicts": verdicts, "figures": figures}


def result_of(**tests: dict[str, Any]) -> dict[str, Any]:
    ids = {"destroyed": DESTROYED, "level_off": LEVEL_OFF, "others": OTHERS}
    return artifacts.system_result(
        {"seed": 1, "counts": {}, "results": [{"id": ids[name], **one} for name, one in tests.items()]}
    )


@pytest.mark.parametrize(
    ("rounds", "lost", "control", "state"),
    [
        (20, 0, "false", CONFIRMED),
        (20, 1, "false", REFUTED),
        (3, 0, "false", UNDECIDED),
        (20, 0, "true", UNDECIDED),
    ],
)
def test_the_claim_of_destroyed_racks_depends_on_the_losses(rounds: int, lost: int, control: str, state: str) -> None:
    text = "rack b is cut off for 12.3 s, and rack a is destroyed 4.5 s later; rack a comes back first"
    drawn = {str(number): text for number in range(rounds)}
    each = {f"round-{number}": {"acked": 1700, "lost": 0} for number in range(rounds)}
    reported = result_of(
        destroyed=system("pass" if not lost else "fail", {}, acked=34_000, lost=lost, rounds=drawn, topics=each),
        level_off=system("pass", {"delivery": control}),
    )
    claim = load().claims["destroyed-racks-lose-nothing"]
    assert rules.judge(claim, {"destroyed": reported}, {}).state == state


@pytest.mark.parametrize(
    ("outcome", "slowdown", "high", "state"),
    [
        ("pass", "true", 1.01, CONFIRMED),
        ("fail", "false", 1.2, REFUTED),
        ("unknown", "unknown", 1.06, UNDECIDED),
        ("pass", "true", 1.06, UNDECIDED),
    ],
)
def test_the_claim_of_other_topics_depends_on_the_upper_end(
    outcome: str, slowdown: str, high: float, state: str
) -> None:
    kind = {"latency_ms": {"gate": 12.4, "free": 13.2}, "ratios": [[0.92, 0.96, high], [1.0, 1.02, 1.04]]}
    verdicts = {"slowdown": slowdown}
    reported = result_of(others=system(outcome, verdicts, partitions=10_000, produce=kind, fetch=kind))
    claim = load().claims["others-are-not-slowed"]
    assert rules.judge(claim, {"load": reported}, {}).state == state
