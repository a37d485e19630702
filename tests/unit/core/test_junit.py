"""Test reports in JUnit XML."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhooks.core.errors import RackgateError
from pyhooks.core.junit import JUnitCase, read_report

SUITE = """<testsuite time="1,002.5">
<testcase classname="p.A" name="passes" time="1.5"/>
<testcase classname="p.A" name="fails" time="0"><failure message="first&#10;second"/><skipped/></testcase>
<testcase classname="p.A"><error type="NullPointerException"/></testcase>
<testcase name="later"><skipped/></testcase>
</testsuite>"""
CASES = (
    JUnitCase("p.A", "passes", "passed", 1.5, ""),
    JUnitCase("p.A", "fails", "failed", 0, "first"),
    JUnitCase("p.A", "", "error", 0, "NullPointerException"),
    JUnitCase("", "later", "skipped", 0, ""),
)


def test_surefire_and_pytest_reports_are_read(tmp_path: Path) -> None:
    file = tmp_path / "TEST-p.A.xml"
    file.write_text(SUITE, encoding="utf-8")
    assert (read_report(file).seconds, read_report(file).cases) == (1002.5, CASES)
    file.write_text(f"<testsuites>{SUITE}</testsuites>", encoding="utf-8")
    assert read_report(file).cases == CASES


def test_a_report_that_is_not_xml_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "TEST-p.A.xml"
    file.write_text("<testsuite>", encoding="utf-8")
    with pytest.raises(RackgateError, match=r"TEST-p\.A\.xml: no element found"):
        read_report(file)
