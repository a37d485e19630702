"""Artifacts of long runs: stored figures, dependencies, and the rules of the claims."""

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

# -- stored figures ---------------------------------------------------------------------------------------------------


def document(**figures: Any) -> dict[str, Any]:
    """Return a result of system tests with these figures, by test."""
    common = {"outcome": "pass", "reasons": [], "seconds": 1.0, "verdicts": {"faults": "true"}, "report": "x.html"}
    rows = [{"id": name, "figures": reported, **common} for name, reported in figures.items()]
    return {"seed": 7, "counts": {"pass": len(rows)}, "results": rows, "machine": "x"}


def test_short_figures_of_system_tests_are_stored() -> None:
    reported = {
        "lost": 0,
        "late_s": {"g": 0.5},
        "rows": [{"stage": "all stock", "times": [1.5] * 21}],
        "short": [1.5] * 20,
    }
    kept = artifacts.system_result(document(a=reported, b={}))
    assert kept["tests"]["b"] == {
        "outcome": "pass", "reasons": [], "seconds": 1.0, "verdicts": {"faults": "true"}, "figures": {},
    }  # fmt: skip
    rows = [{"stage": "all stock", "times": "left out: 21 values"}]
    assert kept["tests"]["a"]["figures"] == {**reported, "rows": rows}
    # an omitted value satisfies no rule
    assert not rules.compare(Condition("r", "/x", "least", 0), value_at(kept, "/tests/a/figures/rows/0/times"))


def test_large_figures_of_one_test_do_not_displace_those_of_others() -> None:
    large = {f"k{number}": {"value": "x" * 1_000} for number in range(40)}
    kept = artifacts.system_result(document(a={"large": large, "lost": 1}, b={"lost": 0}, c=large))
    assert kept["tests"]["a"]["figures"]["lost"] == 1
    assert kept["tests"]["a"]["figures"]["large"].startswith("left out: 4")
    assert kept["tests"]["b"]["figures"] == {"lost": 0}
    partial = kept["tests"]["c"]["figures"]
    assert partial.keys() == large.keys()
    omitted = [name for name, value in partial.items() if isinstance(value, str)]
    assert 0 < len(omitted) < len(large)
    artifact = dict.fromkeys(artifacts._FIELDS, "") | {"run": "x", "result": kept}
    assert len(artifacts.artifact_text(artifact)) < artifacts.MAX_BYTES


# -- dependencies -----------------------------------------------------------------------------------------------------


def test_a_run_of_system_tests_depends_on_tests_and_checkers() -> None:
    checked = 0
    for run in load().runs.values():
        if run.kind != "system":
            continue
        (command,) = run.commands.values()
        selection = shlex.split(command)[3]
        files = {paths.REPO / "ducktape_tests" / test.file for test in plan.select(plan.load(), [selection])}
        unread = set(files)
        while unread:
            imported = {
                path for name in IMPORTED.findall(unread.pop().read_text(encoding="utf-8")) for path in modules(name)
            }
            unread |= imported - files
            files |= imported
        declared = {path for name in run.depends if "/" in name for path in paths.REPO.glob(name)}
        assert files <= declared, (run.id, files - declared)
        assert set((paths.REPO / "pyhooks" / "checkers").glob("*.py")) <= declared, run.id
        checked += 1
    assert checked >= 3


IMPORTED = re.compile(
    r"^from (ducktape_tests(?:\.\w+)* import [\w, ]+|ducktape_tests(?:\.\w+)* import \()", re.MULTILINE
)


def modules(imported: str) -> list[Path]:
    """Return the files of ``ducktape_tests`` that an import statement names."""
    name, _, names = imported.partition(" import ")
    named = [name, *(f"{name}.{part.strip()}" for part in names.split(","))]
    found = [paths.REPO / f"{module.replace('.', '/')}.py" for module in named]
    return [path for path in found if path.is_file()]


# -- rules of the claims ----------------------------------------------------------------------------------------------


def states_of_claims(run: str, reported: Any) -> dict[str, str]:
    """Return the states of a run's claims for this result."""
    claims = load()
    kept = runs._selected_values(reported, claims.runs[run])
    judged = [claim for claim in claims.claims.values() if claim.runs == (run,)]
    return {claim.id: rules.judge(claim, {run: kept}, {}).state for claim in judged}


@pytest.mark.parametrize(
    ("lost", "states"),
    [
        ({"cut": {"B": 0, "C": 9}, "kill": {"B": 0, "C": 9}}, (CONFIRMED, CONFIRMED)),
        ({"cut": {"B": 1, "C": 9}, "kill": {"B": 9, "C": 9}}, (REFUTED, REFUTED)),
        # no loss without the gate either: the records of the rack were not destroyed
        ({"cut": {"B": 0, "C": 0}, "kill": {"B": 0, "C": 9}}, (UNDECIDED, CONFIRMED)),
        ({"cut": {"B": 0, "C": 9}, "kill": {"B": 0, "C": 0}}, (CONFIRMED, UNDECIDED)),
        ({"cut": {"B": None, "C": 9}, "kill": {"B": None, "C": 9}}, (UNDECIDED, UNDECIDED)),
    ],
)
def test_the_claims_of_a_destroyed_rack_depend_on_the_benchmark(
    lost: dict[str, dict[str, int | None]], states: tuple[str, str]
) -> None:
    arms = {arm.id: arm for arm in outage_plan.load("full").arms}
    reported = [
        {
            "fault": fault,
            "proved": True,
            "topics": [_destroyed_topic(arms[name].on("a,a,b", (1, 2, 3)), number) for name, number in by_arm.items()],
        }
        for fault, by_arm in lost.items()
    ]
    found = states_of_claims("outages", {"destructions": reported, "states": outage_states()})
    assert (found["destroyed-rack-in-the-benchmark"], found["destroyed-and-killed-rack-in-the-benchmark"]) == states


def _destroyed_topic(arm: BenchArm, lost: int | None) -> dict[str, Any]:
    counts = None if lost is None else {"acked": 9, "read": 9 - lost, "lost": lost}
    return arm_row(arm, counts, (1, False), ("a",), "a", proved=True)


def outage_states(
    *, aab_b: float | None = 0.0, abc_b: float = 0.98, rejected_s: float | None = 8.5
) -> list[dict[str, Any]]:
    """Return states of ``rackgate bench outages`` with this behaviour of arm B. Arm A stops in all, arm C in none."""
    full = outage_plan.load("full")
    states = outage_results.state_figures(full, full.labs[0], [])

    def mean_of(value: float | None) -> dict[str, Any] | None:
        return None if value is None else outage_results.mean_over_outages([value] * 3, confidence=0.95)

    for state in states:
        a, b, c = state["arms"]
        aab = state["placement"] == "a,a,b"
        for arm, share in ((a, 0.0), (b, aab_b if aab else abc_b), (c, 0.99)):
            arm["fault_share"] = mean_of(share)
            arm["fewest_racks"] = 1 if aab else 2
        for arm, after_s in ((a, 8.4), (b, rejected_s)):
            arm["first_rejection_probe_s"] = mean_of(after_s)
            arm["first_ack_after_heal_s"] = mean_of(2.8)
    return states


@pytest.mark.parametrize(
    ("behaviour", "states"),
    [
        ({}, (CONFIRMED, CONFIRMED)),
        ({"aab_b": 0.5}, (REFUTED, CONFIRMED)),
        ({"abc_b": 0.5}, (UNDECIDED, CONFIRMED)),
        ({"rejected_s": 16.0}, (CONFIRMED, REFUTED)),
        # no verified outage and no observed rejection
        ({"aab_b": None, "rejected_s": None}, (UNDECIDED, UNDECIDED)),
    ],
)
def test_the_claims_of_outages_depend_on_the_benchmark(behaviour: dict[str, Any], states: tuple[str, str]) -> None:
    reported = [{"fault": fault, "proved": True, "topics": [{"arm": "B"}, {"arm": "C"}]} for fault in ("cut", "kill")]
    found = states_of_claims("outages", {"destructions": reported, "states": outage_states(**behaviour)})
    assert (found["outages-stop-what-lacks-a-rack"], found["rejections-begin-when-the-controller-knows"]) == states


DESTROYED = "destroyed_test.py::DestroyedTest.test_no_acknowledged_record_is_lost"
LEVEL_OFF = "destroyed_test.py::LevelOffTest.test_the_only_holder_is_forgotten"
OTHERS = "load_test.py::LoadTest.test_others_beside_rejections"


def system_test_result(outcome: str, verdicts: dict[str, str], **figures: Any) -> dict[str, Any]:
    return {"outcome": outcome, "reasons": [], "seconds": 1.0, "verdicts": verdicts, "figures": figures}


def result_of(**tests: dict[str, Any]) -> dict[str, Any]:
    ids = {"destroyed": DESTROYED, "level_off": LEVEL_OFF, "others": OTHERS}
    return artifacts.system_result(
        {"seed": 1, "counts": {}, "results": [{"id": ids[name], **row} for name, row in tests.items()]}
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
        destroyed=system_test_result(
            "pass" if not lost else "fail", {}, acked=34_000, lost=lost, rounds=drawn, topics=each
        ),
        level_off=system_test_result("pass", {"delivery": control}),
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
def test_the_claim_of_other_topics_depends_on_the_upper_confidence_limit(
    outcome: str, slowdown: str, high: float, state: str
) -> None:
    kind = {"latency_ms": {"gate": 12.4, "free": 13.2}, "ratios": [[0.92, 0.96, high], [1.0, 1.02, 1.04]]}
    verdicts = {"slowdown": slowdown}
    reported = result_of(others=system_test_result(outcome, verdicts, partitions=10_000, produce=kind, fetch=kind))
    claim = load().claims["others-are-not-slowed"]
    assert rules.judge(claim, {"load": reported}, {}).state == state
