"""The public interface: its names, its page, its examples that need no lab, and the start of a lab."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks import api
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.lab import topology

PAGE = paths.REPO / "pyhooks" / "api.md"
EXAMPLES = sorted((paths.REPO / "pyhooks" / "examples").glob("*.py"))
HISTORY = paths.REPO / "tests" / "support" / "lab_histories" / "whole_rack_shut_down.jsonl"
MAX_WORDS = 400


def run_python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=paths.REPO)
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(name: str) -> str:
    (path,) = [path for path in EXAMPLES if path.stem == name]
    return str(path)


def test_the_page_names_all_that_is_exported() -> None:
    table = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = re.findall(r"`(\w+)`", " ".join(table))
    assert sorted(named) == sorted(api.__all__)
    assert all(getattr(api, name).__doc__ for name in api.__all__)


def test_the_page_is_short_and_links_each_example() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.split()) <= MAX_WORDS
    assert re.findall(r"\]\((examples/.*?)\)", text) == [
        "examples/outage.py",
        "examples/judge_history.py",
        "examples/gate_decisions.py",
    ]
    assert len(EXAMPLES) == 3


def test_python_on_the_page_is_that_of_an_example() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.strip() for line in block.splitlines()]
    text = "\n".join(line.strip() for line in Path(example("outage")).read_text(encoding="utf-8").splitlines())
    assert "\n".join(lines) in text


def test_examples_import_nothing_else_of_the_project() -> None:
    for path in EXAMPLES:
        imports = re.findall(r"^(?:from|import) (?:pyhooks|bench|ducktape_tests)[\w.]*", path.read_text(), re.MULTILINE)
        assert imports == ["from pyhooks.api"], path


def test_the_package_alone_loads_no_module_of_its_own() -> None:
    assert (
        run_python("-c", "import sys, pyhooks; print([m for m in sys.modules if m.startswith('pyhooks.')])") == "[]\n"
    )


def test_the_example_of_the_gate() -> None:
    assert run_python(example("gate_decisions")).splitlines() == [
        "R=1, without rack a: accepts writes",
        "R=1, without rack b: accepts writes",
        "R=2, without rack a: rejects writes",
        "R=2, without rack b: rejects writes",
    ]


def test_the_example_of_a_stored_history() -> None:
    output = run_python(example("judge_history"), str(HISTORY), "rejections", "recovery")
    assert output.splitlines() == ["rejections: true", "recovery: true"]


def test_a_program_outside_is_run_again_in_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def run_in_lab(*arguments: Any, **options: Any) -> int:
        calls.append((*arguments, options))
        return 7

    monkeypatch.setattr(api, "run_in_lab", run_in_lab)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "-m", "mine", "--fast"])
    with pytest.raises(SystemExit) as ended, api.open_lab("az3", run_dir=tmp_path):
        pytest.fail("the block must not run outside of a lab")
    assert ended.value.code == 7
    command = [sys.executable, "-X", "dev", "-m", "mine", "--fast"]
    assert calls == [("az3", tmp_path, command, {"bare": False, "stock": False})]


def test_a_program_in_a_lab_gets_that_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = SimpleNamespace(name="one", topology=topology.load(topology.find("az3")))
    monkeypatch.setattr(api, "in_lab", lambda: True)
    monkeypatch.setattr(api.Lab, "attach", staticmethod(lambda: lab))
    with api.open_lab("az3") as found:
        assert found.name == "one"
    with (
        pytest.raises(RackgateError, match="lab 'one', which has another topology than single"),
        api.open_lab("single"),
    ):
        pytest.fail("the block must not run in another lab")
