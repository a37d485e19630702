"""Suite of system tests: the file ``suite.toml``, discovery, selection, order and estimated duration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ducktape_tests import plan
from ducktape_tests.discovery import DiscoveredTest, discover
from ducktape_tests.plan import SuiteTest
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError

TEST = """
[[test]]
id = "x_test.py::A.test_one"
topology = "az3"
minutes = 2
selections = ["smoke", "system"]
"""
SOURCE = """
from ducktape_tests.scenario import RackScenario
from ducktape_tests.base import Base


class Common(RackScenario):
    TOPOLOGY = "az3"

    def test_shared(self):
        pass

    def helper(self):
        pass


class One(Common):
    TOPOLOGY: str = "stretch2"


class Two(Common):
    def test_own(self):
        pass


class Three(Base):
    TOPOLOGY = "az" + "3"
"""


def write_suite(folder: Path, text: str) -> Path:
    file = folder / "suite.toml"
    file.write_text(text, encoding="utf-8")
    return file


def suite_test(name: str, minutes: float = 1, **options: Any) -> SuiteTest:
    return SuiteTest(f"x_test.py::A.test_{name}", "az3", minutes, ("system",), **options)


def test_suite_of_the_repository_is_valid() -> None:
    suite = plan.load()
    smoke, system = (plan.select(suite, [selection]) for selection in ("smoke", "system"))
    assert {test.id for test in smoke} <= {test.id for test in system}
    assert 0 < plan.estimate(smoke, 2) <= 8
    assert len({test.folder for test in system}) == len(system)


def test_suite_is_read(tmp_path: Path) -> None:
    entries = 'alone = true\nfinds = ["delivery"]\nsettings = {seeds = 20}\n'
    entries += '[[test]]\nid = "y_test.py::B.test_m@{\\"k\\": 1}"\n'
    entries += 'topology = "single"\nminutes = 0.5\nselections = ["long"]\n'
    first, second = plan.read(write_suite(tmp_path, TEST + entries))
    assert first == SuiteTest(
        "x_test.py::A.test_one",
        "az3",
        2.0,
        ("smoke", "system"),
        alone=True,
        finds=("delivery",),
        settings={"seeds": 20},
    )
    assert second.name == "y_test.py::B.test_m"
    assert second.folder == "y.B.test_m.k.1"
    assert not second.alone


def test_long_ids_have_short_distinct_folders() -> None:
    first, second = (
        replace(suite_test("m"), id=f'x_test.py::A.test_m@{{"k": "{"v" * 300}{suffix}"}}') for suffix in "ab"
    )
    assert len(first.folder) < 200
    assert first.folder != second.folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('topology = "az3"\n', ""), "topology: is missing"),
        (('"az3"', '"nowhere"'), "topology: "),
        (("minutes = 2", "minutes = 0"), "test x_test.py::A.test_one: minutes: must be greater than or equal to 0.01"),
        (("minutes = 2", "minutes = true"), "minutes: must be a valid number"),
        (("minutes = 2", "minutes = 2\nlinks = true"), "links: unknown key"),
        (("minutes = 2", "minutes = 2\nhours = 1"), "hours: unknown key; known keys: selections, finds, id, topology"),
        (('"smoke"', '"some"'), "selections: value 1 must be one of smoke, system, long, load"),
        (('"smoke"', '"smoke", "smoke"'), "selections: contains a duplicate"),
        (("A.test_one", "A"), "id: must be"),
        (("A.test_one", "A.test_one@{x}"), "not JSON"),
        (("minutes = 2", "minutes = 2\nalone = 1"), "alone: must be a valid boolean"),
        (("minutes = 2", "minutes = 2\nfinds = true"), "finds: must be a valid array"),
        (("minutes = 2", 'minutes = 2\nfinds = ["deliveries"]'), "finds: value 1 must be one of "),
        (("minutes = 2", "minutes = 2\nsettings = 1"), "settings: must be an object"),
        (("minutes", "[test"), "not TOML"),
        ((TEST, TEST + TEST), "listed 2 times in smoke"),
        ((TEST, ""), "test: is missing"),
        ((TEST, "[other]\n" + TEST), "other: unknown key; known keys: test"),
        ((TEST, "test = [1]"), "test: value 1 must be an object"),
    ],
)
def test_errors_in_the_suite_name_their_location(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = TEST.replace(*change) if change[0] in TEST else TEST
    with pytest.raises(RackgateError) as caught:
        plan.read(write_suite(tmp_path, text))
    assert message in str(caught.value)
    assert "suite.toml" in str(caught.value) or "not JSON" in message


def test_suite_must_agree_with_the_existing_tests() -> None:
    existing = [DiscoveredTest("x_test.py::A.test_one", "az3"), DiscoveredTest("x_test.py::A.test_two", None)]
    plan.check([suite_test("one"), suite_test("two")], existing)
    with pytest.raises(RackgateError, match=r"A\.test_three: no"):
        plan.check([suite_test("one"), suite_test("two"), suite_test("three")], existing)
    with pytest.raises(RackgateError, match=r"A\.test_two is not"):
        plan.check([suite_test("one")], existing)
    with pytest.raises(RackgateError, match=r"A\.test_one: .*az3.*single"):
        plan.check([replace(suite_test("one"), topology="single"), suite_test("two")], existing)


def test_tests_are_discovered_in_their_source(tmp_path: Path) -> None:
    (tmp_path / "x_test.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "base.py").write_text("class Base(RackScenario):\n    def test_far(self): ...\n", encoding="utf-8")
    assert discover(tmp_path) == (
        DiscoveredTest("x_test.py::One.test_shared", "stretch2"),
        DiscoveredTest("x_test.py::Three.test_far", None),
        DiscoveredTest("x_test.py::Two.test_own", "az3"),
        DiscoveredTest("x_test.py::Two.test_shared", "az3"),
    )


def test_readme_states_the_target_and_whether_it_is_met() -> None:
    text = " ".join((paths.REPO / "ducktape_tests" / "README.md").read_text(encoding="utf-8").split())
    expected = plan.estimate(plan.select(plan.load(), ["system"]), plan.TARGET_JOBS)
    assert f"The target is {plan.TARGETS_MIN['system']:g} minutes on 2 cores" in text
    missed = f"It is missed as long as the tests are expected to take {expected:.0f} minutes."
    assert (missed in text) is (expected > plan.TARGETS_MIN["system"])


def test_targets_apply_to_whole_selections_with_two_labs() -> None:
    assert plan.target_min(["system"], 2) == 40
    assert plan.target_min(["system"], 1) is None
    assert plan.target_min(["system", "smoke"], 2) is None
    assert plan.target_min(["long"], 2) is None


def test_tests_are_selected_by_selection_file_class_and_id() -> None:
    first = SuiteTest("x_test.py::A.test_one", "az3", 1, ("smoke", "system"), settings={"seeds": 3})
    again = replace(first, selections=("long",), settings={"seeds": 20})
    other = SuiteTest("y_test.py::B.test_one", "az3", 1, ("system",))
    suite = [first, again, other]
    assert plan.select(suite, ["smoke"]) == (first,)
    assert plan.select(suite, ["system"]) == (first, other)
    assert plan.select(suite, ["long"]) == (again,)
    assert plan.select(suite, ["y_test.py", "x_test.py::A", "x_test.py::A.test_one"]) == (first, other)
    (narrow,) = plan.select(suite, ['x_test.py::A.test_one@{"k": 1}'])
    assert narrow == replace(first, id='x_test.py::A.test_one@{"k": 1}')
    with pytest.raises(RackgateError, match="contains no test"):
        plan.select(suite, ["load"])
    for name in ("z_test.py", "x_test.py::A.test_none", "nothing", "x_test.py::AB"):
        with pytest.raises(RackgateError, match="neither a selection"):
            plan.select(suite, [name])


def test_longest_test_is_next_and_serial_tests_run_last_without_others() -> None:
    long, short, serial = suite_test("long", 5), suite_test("short", 1), suite_test("alone", 9, alone=True)
    waiting = [short, serial, long]
    assert plan.next_up(waiting, [], 2) is long
    assert plan.next_up([short, serial], [long], 2) is short
    assert plan.next_up([serial], [long], 2) is None
    assert plan.next_up([serial], [], 2) is serial
    assert plan.next_up([short], [serial], 2) is None
    assert plan.next_up([short], [long], 1) is None


def test_estimated_duration() -> None:
    tests = [suite_test("a", 4), suite_test("b", 3), suite_test("c", 2), suite_test("d", 1, alone=True)]
    assert plan.estimate(tests, 1) == 10
    # In parallel: a takes 4 minutes, b and c take 5; then the serial d takes 1.
    assert plan.estimate(tests, 2) == 6
    assert plan.estimate([suite_test("a", 4)], 2, {suite_test("b"): 0.5, suite_test("c"): 1.5}) == 4.5
    assert plan.estimate([], 2) == 0
