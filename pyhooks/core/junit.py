"""Reports of tests in JUnit's XML format, as Maven Surefire and pytest write them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyhooks.core.errors import RackgateError

Status = Literal["passed", "failed", "error", "skipped"]
_STATUSES: dict[str, Status] = {"failure": "failed", "error": "error", "skipped": "skipped"}


@dataclass(frozen=True)
class JUnitCase:
    """One test case of a report.

    Attributes:
        owner: name of its class or module, or empty.
        name: its name; empty for a failure before the first test of a class.
        message: first line of the message if it did not pass, or empty.
    """

    owner: str
    name: str
    status: Status
    seconds: float
    message: str


@dataclass(frozen=True)
class JUnitReport:
    """One report: the duration in seconds, and the test cases in order."""

    seconds: float
    cases: tuple[JUnitCase, ...]


def read_report(file: Path) -> JUnitReport:
    """Return the content of a report.

    Raises:
        RackgateError: it is not XML.
    """
    try:
        root = ElementTree.parse(file).getroot()  # noqa: S314 - written by a program that we started
    except ElementTree.ParseError as error:
        raise RackgateError(f"{file}: {error}") from error
    return JUnitReport(_seconds(root), tuple(map(_case, root.iter("testcase"))))


def _seconds(node: ElementTree.Element) -> float:
    return float((node.get("time") or "0").replace(",", ""))


def _case(node: ElementTree.Element) -> JUnitCase:
    status: Status = "passed"
    lines: list[str] = []
    for tag, meaning in _STATUSES.items():
        if (child := node.find(tag)) is not None:
            status, lines = meaning, (child.get("message") or child.get("type") or "").strip().splitlines()
            break
    owner, name = node.get("classname") or "", node.get("name") or ""
    return JUnitCase(owner, name, status, _seconds(node), lines[0] if lines else "")
