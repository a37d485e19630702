"""Generated results of Kafka's own tests, and reports in Maven's format."""

from __future__ import annotations

from pathlib import Path

from pyhooks.verify.upstream_cases import ERROR, FAILED, CaseResult, ClassResult

NAME = "kafka.cluster.PartitionTest"


def result(name: str = NAME, error: str = "", **cases: str) -> ClassResult:
    made = tuple(CaseResult(f"{name}.{case}", status, 0.1, "why" if status in (FAILED, ERROR) else "")
                 for case, status in cases.items())  # fmt: skip
    return ClassResult(name, 1.0, made, error)


def write_report(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"TEST-{name}.xml"
    file.write_text(f'<testsuite name="{name}" time="1,234.5">{body}</testsuite>', encoding="utf-8")
    return file
