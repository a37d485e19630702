"""Mutation testing: the list of mutants, verdicts, and results kept between runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mutants import mutant
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.locks import hold_lock
from pyhooks.patchset import recipe, series
from pyhooks.patchset.stages import Stages
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import mutants, mutation
from pyhooks.verify.mutant_runner import FinishedTest, JvmRun, NotCompiledError, parse_run
from pyhooks.verify.mutants import Mutant, Selector
from pyhooks.verify.mutation import KILLED, SURVIVED, UNKNOWN, Baseline, MutantResults, judge, missing, run_base

ENTRY = """
[[mutant]]
name = "gate-missing"
what = "no gate"
stands_for = "the gate"
file = "core/src/main/scala/kafka/cluster/Partition.scala"
old = "if (shut)"
new = "if (false)"
tests = ["kafka.cluster.PartitionTest#testGate", "kafka.cluster.OtherTest"]
"""


def load(tmp_path: Path, text: str) -> tuple[Mutant, ...]:
    path = tmp_path / "mutants.toml"
    path.write_text(text, encoding="utf-8")
    return mutants.load(path, recipe.load())


def test_mutant_list_is_parsed(tmp_path: Path) -> None:
    (only,) = load(tmp_path, ENTRY)
    assert only.tests == (Selector("kafka.cluster.PartitionTest", "testGate"), Selector("kafka.cluster.OtherTest"))
    assert [str(test) for test in only.tests] == ["kafka.cluster.PartitionTest#testGate", "kafka.cluster.OtherTest"]
    assert only.apply("a if (shut) b") == "a if (false) b"
    assert only.opt_ins == frozenset()
    assert load(tmp_path, f'{ENTRY}with = ["raft"]')[0].opt_ins == {"raft"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "gate-missing"', 'name = "Gate"', "lower-case"),
        ('what = "no gate"', "", "what"),
        ('new = "if (false)"', 'new = "if (shut)"', "new: is the same as old"),
        ("core/src/main/", "core/src/test/", r"in src/main of no \[\[module\]\]"),
        ('"kafka.cluster.OtherTest"', '"a b"', "package.Class"),
        ('tests = ["kafka.cluster.PartitionTest#testGate", "kafka.cluster.OtherTest"]', "tests = []", "tests"),
        ("stands_for", "stnds_for = 1\nstands_for", "mutant gate-missing: stnds_for: unknown key; known keys: tests"),
        ('new = "if (false)"', "new = 1", "mutant gate-missing: new: must be a valid string, is 1"),
        ('old = "if (shut)"', 'old = ""', "mutant gate-missing: old: must not be empty"),
        ("[[mutant]]", "recompile = []\n[[mutant]]", "recompile: unknown key; known keys: mutant"),
        ("[[mutant]]", "[[mutant]", "mutants.toml"),
    ],
)
def test_invalid_entries_are_one_line_errors(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ENTRY
    with pytest.raises(RackgateError, match=message) as caught:
        load(tmp_path, ENTRY.replace(old, new))
    assert "\n" not in str(caught.value)


def test_duplicate_empty_and_absent_lists_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="twice"):
        load(tmp_path, ENTRY + ENTRY)
    with pytest.raises(RackgateError, match="mutant: is missing"):
        load(tmp_path, "")
    with pytest.raises(RackgateError, match="missing"):
        mutants.load(tmp_path / "none.toml", recipe.load())


@pytest.mark.parametrize("text", ["nothing", "open < 2 or open < 2"])
def test_old_text_must_occur_once(text: str) -> None:
    with pytest.raises(RackgateError, match="not once"):
        mutant().apply(text)


def test_mutants_are_chosen_by_name_in_the_order_of_the_list() -> None:
    listed = (mutant("a"), mutant("b"), mutant("c"))
    assert mutants.choose(listed, ()) == listed
    assert [mutant_.name for mutant_ in mutants.choose(listed, ["c", "a"])] == ["a", "c"]
    with pytest.raises(RackgateError, match="no mutant is named d"):
        mutants.choose(listed, ["d"])


def test_the_mutants_of_the_repository_fit_its_patches() -> None:
    listed = mutation.listed()
    patches = series.load_all(paths.patch_folder())
    assert {m.file for m in listed} <= {file for patch in patches for file in patch.files}
    assert {name for m in listed for name in m.opt_ins} <= set(series.opt_ins(patches))
    assert len(listed) > 60


@pytest.mark.parametrize("changed", [{"old": "x"}, {"new": "x"}, {"file": "x"}])
def test_the_key_covers_series_text_and_tests(changed: dict[str, Any]) -> None:
    key = mutant().key("series")
    assert mutant(what="other text", stands_for="other text").key("series") == key
    assert replace(mutant(), **changed).key("series") != key
    assert mutant().key("other series") != key
    assert mutant(tests=("q.GateTest#one",)).key("series") != key
    assert replace(mutant(), recompile=("x",)).key("series") != key


@dataclass
class FakeTester:
    """Fake mutant tester: returns scripted runs by class, without (``base``) and with a mutant (``mutated``)."""

    base: dict[str, JvmRun] = field(default_factory=dict)
    mutated: dict[str, JvmRun] = field(default_factory=dict)
    fault: NotCompiledError | None = None
    runs: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list)

    def compile(self, mutant: Mutant) -> Path:
        if self.fault:
            raise self.fault
        return Path(mutant.name)

    def run(self, class_name: str, methods: Sequence[str], mutated: Path | None, timeout_s: float) -> JvmRun:
        assert timeout_s > 0
        self.runs.append((class_name, tuple(methods), mutated is not None))
        return (self.mutated if mutated else self.base)[class_name]


def jvm_run(*lines: str, fault: str = "") -> JvmRun:
    """Return the run of lines such as ``passed one``, each a test method of q.GateTest and its result."""
    results = [line.split() for line in lines]
    return JvmRun(
        tuple(FinishedTest(status, f"id:{name}", f"q.GateTest#{name}", "why") for status, name in results), fault
    )


BASES = {"q.GateTest": Baseline("q.GateTest", ("id:one", "id:two"), "", 1.0)}


@pytest.mark.parametrize(
    ("run", "status", "reason"),
    [
        (jvm_run("passed one", "failed two"), KILLED, "why"),
        # The run ends at the first failure; the remaining tests are not needed.
        (jvm_run("failed one"), KILLED, "why"),
        (jvm_run("passed one", "passed two"), SURVIVED, "pass"),
        (jvm_run("passed one", "passed two", "passed three"), SURVIVED, "pass"),
        (jvm_run("passed one"), UNKNOWN, "1 of 2 tests did not run"),
        (jvm_run("passed one", "skipped two"), UNKNOWN, "did not run"),
        (jvm_run("passed one", "aborted two"), UNKNOWN, "did not run"),
        (jvm_run("passed one", "broken two"), UNKNOWN, "does not judge"),
        (jvm_run("passed one", "passed two", "failed never-seen-before"), UNKNOWN, "does not judge"),
        (jvm_run(), UNKNOWN, "2 of 2"),
        (jvm_run("passed one", fault="the JVM ended"), UNKNOWN, "the JVM ended"),
        (jvm_run("passed one", "passed two", fault="the JVM ended"), UNKNOWN, "the JVM ended"),
        # The test failed before the JVM ended.
        (jvm_run("failed one", fault="the JVM ended"), KILLED, "why"),
    ],
)
def test_a_mutant_is_killed_only_by_a_test_that_passes_without_it(run: JvmRun, status: str, reason: str) -> None:
    verdict = judge(FakeTester(mutated={"q.GateTest": run}), mutant(), BASES, "key")
    assert verdict.status == status
    assert reason in verdict.message
    assert bool(verdict.by) == (status == KILLED)


def test_a_mutant_that_does_not_compile_is_unknown() -> None:
    tester = FakeTester(fault=NotCompiledError("javac: Gate.java:1: error: no"))
    verdict = judge(tester, mutant(), BASES, "key")
    assert (verdict.status, tester.runs) == (UNKNOWN, [])
    assert "error: no" in verdict.message


def test_tests_that_fail_without_a_mutant_judge_nothing() -> None:
    tester = FakeTester(base={"q.GateTest": jvm_run("passed one", "failed two")})
    bases = {base.selector: base for base in run_base(tester, "q.GateTest", ["one", "two", "three"])}
    assert bases["q.GateTest#one"].fault == ""
    assert "fails without a mutant" in bases["q.GateTest#two"].fault
    assert "no test ran" in bases["q.GateTest#three"].fault
    for tests in (("q.GateTest#two",), ("q.GateTest#one", "q.GateTest#two")):
        verdict = judge(FakeTester(), mutant(tests=tests), bases, "key")
        assert verdict.status == UNKNOWN
        assert "fails without a mutant" in verdict.message


def test_a_run_without_a_mutant_that_ends_early_judges_nothing() -> None:
    (base,) = run_base(FakeTester(base={"q.GateTest": jvm_run("passed one", fault="killed")}), "q.GateTest", [""])
    assert "killed" in base.fault


def test_each_missing_baseline_is_run_once() -> None:
    listed = [
        mutant("a", ("q.GateTest#one",)),
        mutant("b", ("q.GateTest#two", "q.OtherTest")),
        mutant("c", ("q.GateTest#one",)),
    ]
    assert missing(listed, {}) == [("q.GateTest", ("one", "two")), ("q.OtherTest", ("",))]
    assert missing(listed, {"q.OtherTest": BASES["q.GateTest"]}) == [("q.GateTest", ("one", "two"))]


def test_test_classes_are_run_until_one_kills_the_mutant() -> None:
    bases = {name: Baseline(name, ("id:one",), "", 1.0) for name in ("q.A", "q.B#one", "q.C")}
    tester = FakeTester(mutated={"q.A": jvm_run("passed one"), "q.B": jvm_run("failed one")})
    verdict = judge(tester, mutant(tests=("q.A", "q.B#one", "q.C")), bases, "key")
    assert verdict.status == KILLED
    assert tester.runs == [("q.A", (), True), ("q.B", ("one",), True)]


def test_an_incomplete_class_makes_a_mutant_unknown() -> None:
    bases = {name: Baseline(name, ("id:one",), "", 1.0) for name in ("q.A", "q.B")}
    tester = FakeTester(mutated={"q.A": jvm_run(fault="the JVM ended"), "q.B": jvm_run("passed one")})
    assert judge(tester, mutant(tests=("q.A", "q.B")), bases, "key").status == UNKNOWN


CONTEXTS = {frozenset[str](): "series"}
RAFT = frozenset({"raft"})


def test_a_mutant_of_an_opt_in_fix_runs_on_a_build_with_that_fix(tmp_path: Path) -> None:
    listed = (mutant("a"), replace(mutant("b"), opt_ins=RAFT), mutant("c"))
    contexts = {**CONTEXTS, RAFT: "series with raft"}
    results = MutantResults(tmp_path / "out", listed, contexts)
    prepared: list[frozenset[str]] = []

    class FakeCompilingTester(FakeTester):
        @contextmanager
        def compiler(self) -> Iterator[None]:
            yield None

    def prepare(names: frozenset[str], work: Path) -> Any:
        assert work.is_dir()
        prepared.append(names)
        return FakeCompilingTester(
            base={"q.GateTest": jvm_run("passed one")}, mutated={"q.GateTest": jvm_run("failed one")}
        )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mutation, "JvmMutantTester", lambda tester, *_: tester)
        stages = Stages(6, None, quiet=True)
        mutation._try_all(listed, results, stages, prepare, Workspace(tmp_path))
    assert prepared == [frozenset(), RAFT], "each build is prepared once"
    assert [verdict.status for verdict in results.verdicts()] == [KILLED] * 3
    assert {context: list(bases) for context, bases in results.bases.items()} == {
        "series": list(BASES), "series with raft": list(BASES),
    }  # fmt: skip
    again = MutantResults(tmp_path / "out", listed, {**contexts, RAFT: "other fixes"})
    assert [again.known(mutant_) for mutant_ in listed] == [True, False, True]
    assert again.bases == {"series": results.bases["series"], "other fixes": {}}


def test_results_are_kept_while_their_inputs_are_unchanged(tmp_path: Path) -> None:
    listed = (mutant("a"), mutant("b"), mutant("c"))
    tester = FakeTester(mutated={"q.GateTest": jvm_run("failed one")})
    results = MutantResults(tmp_path, listed, CONTEXTS)
    assert [verdict.message for verdict in results.verdicts()] == [mutation.NOT_RUN] * 3
    results.add_bases("series", BASES.values())
    results.add(judge(tester, listed[0], results.bases["series"], listed[0].key("series")))
    results.add(
        judge(FakeTester(fault=NotCompiledError("no")), listed[1], results.bases["series"], listed[1].key("series"))
    )

    again = MutantResults(tmp_path, listed, CONTEXTS)
    assert again.bases["series"] == BASES
    # Unknown mutants are run again.
    assert [again.known(mutant_) for mutant_ in listed] == [True, False, False]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["total"], summary["killed"], summary["survived"], summary["unknown"]) == (3, 1, 0, 2)
    assert summary["mutants"][0]["by"] == "q.GateTest#one"

    assert not MutantResults(tmp_path, listed, {frozenset(): "other series"}).known(listed[0])
    assert MutantResults(tmp_path, listed, {frozenset(): "other series"}).bases == {"other series": {}}
    assert not MutantResults(tmp_path, (replace(listed[0], new="true"),), CONTEXTS).known(listed[0])
    assert not MutantResults(tmp_path, listed, CONTEXTS, fresh=True).known(listed[0])
    (tmp_path / "summary.json").write_text("{ trunca")
    assert not MutantResults(tmp_path, listed, CONTEXTS).known(listed[0])


def test_concurrent_runs_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = SimpleNamespace(manifest={"patch_hash": series.series_hash(series.load(recipe.load().path.parent))})
    monkeypatch.setattr(mutation, "_try_all", lambda *_: pytest.fail("the second run started"))
    with hold_lock(tmp_path / "lock", taken=""), pytest.raises(RackgateError, match="another run"):
        mutation.mutate(built, quiet=True, out=tmp_path)  # type: ignore[arg-type]
    assert (tmp_path / "lock").exists()


def test_a_failed_run_without_mutants_is_not_kept(tmp_path: Path) -> None:
    MutantResults(tmp_path, [mutant()], CONTEXTS).add_bases("series", [Baseline("q.GateTest", (), "fails", 1.0)])
    assert not MutantResults(tmp_path, [mutant()], CONTEXTS).bases["series"]


def test_a_summary_passes_only_if_all_chosen_mutants_were_killed(tmp_path: Path) -> None:
    listed = (mutant("a"), mutant("b"))
    results = MutantResults(tmp_path, listed, CONTEXTS)
    results.add(
        judge(FakeTester(mutated={"q.GateTest": jvm_run("failed one")}), listed[0], BASES, listed[0].key("series"))
    )
    assert mutation.MutationSummary(results.verdicts(), ("a",), 0, results.file, 1.0).passed
    assert not mutation.MutationSummary(results.verdicts(), ("a", "b"), 0, results.file, 1.0).passed
    assert not mutation.MutationSummary(results.verdicts(), (), 0, results.file, 1.0).passed


def test_a_run_without_an_end_line_is_incomplete() -> None:
    text = "passed\tid:one\tq.GateTest#one\t\nfailed\tid:two\tq.GateTest#two\twhy\n"
    assert parse_run(text + "end\n") == JvmRun(parse_run(text).lines)
    assert [line.status for line in parse_run(text).lines] == ["passed", "failed"]
    assert parse_run(text).lines[1].message == "why"
    assert parse_run(text).fault
    assert parse_run(text, "ended with status 3").fault == "ended with status 3"
