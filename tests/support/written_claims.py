"""Claims for tests: one decided by one run, one by two runs, and one that no run can decide."""

from __future__ import annotations

from pathlib import Path

from pyhooks.evidence.claims import Claims, load

GOOD = """
[documents]
kip = "the <KIP>"

[[run]]
id = "sum"
kind = "json"
command = "rackgate plan --json"
cost = "seconds"
minutes = 0.1
needs = "nothing"
depends = ["input/*.txt"]

[[run]]
id = "tests"
kind = "junit"
command = "pytest tests/test_x.py kafka.PTest --junitxml out/x.xml"
reads = "out/*.xml"
cost = "minutes"
minutes = 2
needs = "Maven"
depends = ["input/*.txt"]
statuses = [0, 1]

[[claim]]
id = "one"
document = "kip"
place = "Motivation, sentence 1"
says = "n is 1 & more"
run = "sum"
confirmed = [{ at = "/n", is = 1 }]
refuted = [{ at = "/n", least = 2 }]
conditional = [{ at = "/n", is = 0 }, { at = "/rows/name=a/v", most = 3 }]
verdict = "confirmed"

[[claim]]
id = "two"
document = "kip"
place = "Motivation, sentence 2"
says = "both pass"
runs = ["sum", "tests"]
confirmed = [{ at = "/n", is = 1 }, { of = "tests", passed = ["kafka.PTest#testA", "tests.test_x#test_b"] }]
refuted = [{ of = "tests", failed = ["kafka.PTest#testA"] }, { at = "/n", is = 1 }]
verdict = "refuted"
why = "A fails"

[[claim]]
id = "three"
document = "kip"
place = "Motivation, sentence 3"
says = "advice"
verdict = "not testable"
why = "nothing to run"
"""


def read(tmp_path: Path, text: str = GOOD) -> Claims:
    path = tmp_path / "claims.toml"
    path.write_text(text, encoding="utf-8")
    return load(path)
