"""Kafka's own tests on stock and overlay: reports, comparison and the list of test classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.patchset import recipe
from pyhooks.verify import changed_tests, kafka_tests, upstream, upstream_suite
from pyhooks.verify.upstream_cases import (
    ARMS,
    ERROR,
    FAILED,
    OVERLAY,
    PASSED,
    PATCHED,
    SKIPPED,
    STOCK,
    CaseResult,
    ClassResult,
    Runs,
    judge,
    method_of,
    plain,
    read_class,
    totals,
)
from upstream_results import NAME, result, write_report

# classes that the list of test classes must contain
REGRESSION = [
    "PartitionTest",
    "PartitionLockTest",
    "ReplicaManagerTest",
    "KafkaApisTest",
    "KafkaConfigTest",
    "LogConfigTest",
    "DynamicBrokerConfigTest",
    "ReplicationControlManagerTest",
    "PartitionChangeBuilderTest",
    "ConfigurationControlManagerTest",
    "QuorumControllerTest",
    "ActivationRecordsGeneratorTest",
    "KafkaConfigSchemaTest",
    "SenderTest",
    "TransactionManagerTest",
    "RequestResponseTest",
    "ErrorsTest",
    "TransactionStateManagerTest",
    "TransactionMarkerRequestCompletionHandlerTest",
    "CoordinatorPartitionWriterTest",
    "TopicCommandTest",
    "EligibleLeaderReplicasIntegrationTest",
]


def runs_of(*pairs: tuple[str, ClassResult]) -> Runs:
    """Collect results, given as pairs of arm and class result."""
    runs = Runs()
    for arm, class_result in pairs:
        runs.add(arm, class_result)
    return runs


def test_a_report_is_read_case_by_case_with_nested_classes(tmp_path: Path) -> None:
    write_report(
        tmp_path, NAME,
        f'<testcase classname="{NAME}" name="good(String)[1]" time="0.5"/>'
        f'<testcase classname="{NAME}" name="bad" time="0.1"><failure message="one&#10;two"/></testcase>'
        f'<testcase classname="{NAME}" name="broken"><error type="java.io.IOException"/></testcase>'
        f'<testcase classname="{NAME}" name="left"><skipped message="not here"/></testcase>',
    )  # fmt: skip
    write_report(tmp_path, f"{NAME}$Inner", f'<testcase classname="{NAME}$Inner" name="nested"/>')
    write_report(tmp_path, f"{NAME}Other", f'<testcase classname="{NAME}Other" name="foreign"/>')
    class_result = read_class(NAME, tmp_path)
    assert {case.name.removeprefix(NAME): case.status for case in class_result.cases} == {
        ".good(String)[1]": PASSED, ".bad": FAILED, ".broken": ERROR, ".left": SKIPPED, "$Inner.nested": PASSED,
    }  # fmt: skip
    assert [case.message for case in class_result.cases][1:3] == ["one", "java.io.IOException"]
    assert class_result.figures() == {"tests": 5, "failures": 1, "errors": 1, "skipped": 1, "seconds": 2469.0}
    assert ClassResult.parse(json.loads(json.dumps(class_result.as_dict()))) == class_result


def test_object_addresses_in_parameters_do_not_change_case_names(tmp_path: Path) -> None:
    for folder, addresses in ((tmp_path / "a", ("1a2b3c", "4d5e6f")), (tmp_path / "b", ("99aa88", "77bb66"))):
        cases = "".join(f'<testcase classname="{NAME}" name="t{{Foo@{address}}}"/>' for address in addresses)
        write_report(folder, NAME, cases)
    first, second = (read_class(NAME, tmp_path / name) for name in "ab")
    assert [case.name for case in first.cases] == [case.name for case in second.cases]
    assert len({case.name for case in first.cases}) == 2


def test_a_truncated_or_missing_report_is_an_error(tmp_path: Path) -> None:
    file = write_report(tmp_path, NAME, "")
    file.write_text("<testsuite><testcase", encoding="utf-8")
    with pytest.raises(RackgateError, match=r"TEST-kafka\.cluster\.PartitionTest\.xml"):
        read_class(NAME, tmp_path)
    with pytest.raises(RackgateError, match="no report"):
        read_class("kafka.Absent", tmp_path)


@pytest.mark.parametrize(
    ("case", "method"),
    [("a(String)[1]", "a"), ("a{int}[2] #2", "a"), ("a", "a"), ("(class)", None)],
)
def test_the_method_name_of_a_case(case: str, method: str | None) -> None:
    assert method_of(f"{NAME}.{case}", NAME) == method
    assert plain(f"{NAME}.a(String)[1]") == f"{NAME}.a"


def test_nested_cases_can_only_run_with_their_whole_class() -> None:
    assert method_of(f"{NAME}$Inner.a", NAME) is None
    runs = runs_of(
        (STOCK, ClassResult(NAME, 1, (CaseResult(f"{NAME}$Inner.a", FAILED, 0), CaseResult(f"{NAME}.b", FAILED, 0))))
    )
    assert upstream.methods_of(NAME, runs, STOCK, [f"{NAME}.b"]) == ("b",)
    assert upstream.methods_of(NAME, runs, STOCK, [f"{NAME}.b", f"{NAME}$Inner.a"]) == ()


def test_a_case_that_fails_only_on_the_overlay_is_a_miss() -> None:
    repeats = [(arm, result(a=status)) for arm, status in ((STOCK, PASSED), (OVERLAY, FAILED)) for _ in range(6)]
    verdict = judge(runs_of(*repeats), {})
    assert [(row["test"], row["stock"], row["overlay"]) for row in verdict["missed"]] == [
        (f"{NAME}.a", "6 of 6 passed", "0 of 6 passed")
    ]
    assert verdict["flakes"] == []


def test_a_flaky_case_is_not_a_miss() -> None:
    runs = runs_of((STOCK, result(a=PASSED)), (OVERLAY, result(a=FAILED)), (OVERLAY, result(a=PASSED)))
    verdict = judge(runs, {})
    assert verdict["missed"] == []
    assert verdict["flakes"] == [{"test": f"{NAME}.a", STOCK: "1 of 1 passed", OVERLAY: "1 of 2 passed"}]


def test_a_flake_on_stock_that_never_passes_on_the_overlay_is_a_miss() -> None:
    runs = runs_of(
        (STOCK, result(a=FAILED)), (STOCK, result(a=PASSED)), (OVERLAY, result(a=FAILED)), (OVERLAY, result(a=FAILED))
    )
    assert [row["test"] for row in judge(runs, {})["missed"]] == [f"{NAME}.a"]


def test_a_case_that_fails_on_both_arms_is_listed_but_not_a_miss() -> None:
    verdict = judge(runs_of((STOCK, result(a=ERROR)), (OVERLAY, result(a=ERROR))), {})
    assert verdict["missed"] == []
    assert [row["test"] for row in verdict["fails_everywhere"]] == [f"{NAME}.a"]


ALLOWED = {f"{NAME}.a": "fails on any new config"}


def test_an_allowed_failure_must_pass_in_the_version_of_the_series() -> None:
    published = [(STOCK, result(a=PASSED)), (OVERLAY, result(a=FAILED))]
    assert [row["reason"] for row in judge(runs_of(*published, (PATCHED, result(a=PASSED))), ALLOWED)["allowed"]] == [
        "fails on any new config"
    ]
    assert judge(runs_of(*published, (PATCHED, result(a=PASSED))), ALLOWED)["missed"] == []
    assert judge(runs_of(*published), ALLOWED)["missed"][0]["why"].startswith("is allowed to fail")
    flaky = judge(runs_of(*published, (PATCHED, result(a=PASSED)), (PATCHED, result(a=FAILED))), ALLOWED)
    assert flaky["missed"][0]["why"].startswith("is allowed to fail")


def test_an_unused_allowed_failure_is_listed() -> None:
    runs = runs_of((STOCK, result(a=PASSED)), (OVERLAY, result(a=PASSED)))
    assert judge(runs, ALLOWED)["stale_allowed"] == [f"{NAME}.a"]


def test_a_changed_test_must_pass_in_the_version_of_the_series() -> None:
    runs = runs_of((STOCK, result(a=PASSED)), (OVERLAY, result(a=PASSED)), (PATCHED, result(a=PASSED, added=FAILED)))
    verdict = judge(runs, {})
    assert [row["test"] for row in verdict["missed"]] == [f"{NAME}.added"]
    assert verdict["new_in_series"] == [f"{NAME}.added"]


def test_cases_present_on_only_one_arm_are_listed() -> None:
    runs = runs_of(
        (STOCK, result(a=PASSED, old=PASSED)), (OVERLAY, result(a=PASSED, new=PASSED)), (PATCHED, result(a=PASSED))
    )
    verdict = judge(runs, {})
    assert (verdict["only_on_stock"], verdict["only_on_overlay"]) == ([f"{NAME}.old"], [f"{NAME}.new"])
    assert verdict["gone_in_series"] == [f"{NAME}.old"]


def test_a_case_skipped_only_on_the_overlay_is_a_miss() -> None:
    runs = runs_of((STOCK, result(a=PASSED)), (OVERLAY, result(a=SKIPPED)))
    assert [row["test"] for row in judge(runs, {})["missed"]] == [f"{NAME}.a"]


@pytest.mark.parametrize(("on_stock", "missed"), [(result(a=PASSED), True), (result(error="VM terminated"), False)])
def test_an_incomplete_class_counts_if_it_completed_on_stock(on_stock: ClassResult, missed: bool) -> None:
    verdict = judge(runs_of((STOCK, on_stock), (OVERLAY, result(error="VM terminated"))), {})
    assert bool(verdict["missed"]) is missed
    assert NAME in [row["test"] for row in verdict["did_not_run"]]


def test_a_new_class_of_the_series_that_does_not_run_is_a_miss() -> None:
    assert judge(runs_of((PATCHED, result(error="VM terminated"))), {})["missed"][0]["arm"] == PATCHED


def test_totals_are_summed_over_classes() -> None:
    assert totals([result(a=PASSED, b=FAILED), result("x.Y", c=SKIPPED, d=ERROR)]) == {
        "classes": 2, "tests": 4, "failures": 1, "errors": 1, "skipped": 1, "seconds": 2.0,
    }  # fmt: skip


def test_test_classes_with_names_other_than_their_source_are_included() -> None:
    changed = {"clients": ("a.ATest", "a.Helper"), "core": ("b.BTest",)}
    by_module = upstream.by_module(changed, ["a.ATest", "b.BUnitTest", "b.BTest"])
    assert by_module == {"clients": ("a.ATest",), "core": ("b.BTest", "b.BUnitTest")}


def test_the_list_contains_all_regression_classes() -> None:
    suite = upstream_suite.load(recipe.load())
    listed = {name.rpartition(".")[2] for names in suite.classes.values() for name in names}
    assert [name for name in REGRESSION if name not in listed] == []
    assert "kafka.server.KafkaConfigTest.testDynamicLogConfigs" in suite.allowed
    assert all(len(reason) > 20 for reason in suite.allowed.values())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[[module]]\nname = "none"\nclasses = []', "module none: not defined in kafka"),
        ('[[module]]\nname = "core"\nclasses = ["a.B", "a.B"]', "a.B is listed twice"),
        ('[[module]]\nname = "core"', "module core: classes: is missing"),
        ('[[module]]\nname = "core"\nclasses = "a.B"', "module core: classes: must be a valid array"),
        ('[[module]]\nname = "core"\nclasses = []\ntests = []', "module core: tests: unknown key; known"),
        ('[[module]]\nname = "core"\nclasses = []\n[[allowed]]\ntest = "a.B.c"\nreason = " "', "allowed 1: reason: "),
        ('[[module]]\nname = "core"\nclasses = []\n[[allowed]]\ntest = "a"\nreason = "b"', "'a' needs a class"),
        ("[[module", "upstream.toml"),
    ],
)
def test_an_invalid_list_is_an_error(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "upstream.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RackgateError, match=error):
        upstream_suite.load(recipe.load(), path)
    with pytest.raises(RackgateError, match="is missing"):
        upstream_suite.load(recipe.load(), tmp_path / "absent.toml")


def test_a_run_is_summarised(tmp_path: Path) -> None:
    run = kafka_tests.summarise_results([result("p.T", good=PASSED, skip=SKIPPED)], tmp_path, 1.0)
    assert (run.tests, run.failed, run.skipped, run.passed) == (2, 0, 1, True)
    run = kafka_tests.summarise_results([result("p.T", good=PASSED), result("p.U", bad=FAILED)], tmp_path, 1.0)
    assert (run.tests, run.failed, run.passed) == (2, 1, False)
    assert run.failures == ("p.U.bad: why",)


@pytest.mark.parametrize("results", [[], [result(skip=SKIPPED)], [result(good=PASSED), result("p.U", error="crash")]])
def test_only_a_complete_run_with_a_passed_test_passes(tmp_path: Path, results: list[ClassResult]) -> None:
    assert not kafka_tests.summarise_results(results, tmp_path, 1.0).passed


def test_the_class_name_is_derived_from_package_and_file_name(tmp_path: Path) -> None:
    source = tmp_path / "ATest.scala"
    source.write_text("/** package x */\npackage kafka.server\n\nclass ATest\n", encoding="utf-8")
    assert changed_tests.class_of(source) == "kafka.server.ATest"
    source.write_text("package org.a.b;\nclass ATest {}\n", encoding="utf-8")
    assert changed_tests.class_of(source) == "org.a.b.ATest"


def test_an_invalid_class_file_is_rejected() -> None:
    with pytest.raises(RackgateError, match="not a class file"):
        upstream_suite.parse_class(b"PK\x03\x04")


def test_touched_modules_come_from_main_and_test_sources() -> None:
    plan = recipe.load()
    files = ["core/src/test/scala/unit/A.scala", "clients/src/main/java/B.java", "docs/c.html"]
    assert [module.name for module in upstream_suite.touched(plan, files)] == ["clients", "core"]


def test_there_are_three_arms() -> None:
    assert ARMS == (STOCK, OVERLAY, PATCHED)
