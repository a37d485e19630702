"""Commands of the formal model, executed by Alloy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alloy_source import source
from pyhooks.cli import app
from pyhooks.formal import instance, model_source
from pyhooks.formal.cli import TARGET_S


def test_alloy_finds_an_instance_and_its_pictures_are_drawn(tmp_path: Path) -> None:
    arguments = ["formal", "--only", "NotAttempted", "--json", "--run-dir", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.output)
    (command,) = summary["commands"]
    assert command["found"] is True
    assert (summary["target"], summary["target_s"]) == ("unknown", TARGET_S)
    states = instance.read(tmp_path / "NotAttempted" / "NotAttempted-solution-0.xml")
    # a raised R that no broker has reported to have applied yet
    assert states[1].atoms("Behind") == states[1].atoms("Broker")
    assert all(Path(path).is_file() for path in summary["pictures"])
    assert len(summary["pictures"]) == 2


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name",
    [
        "NoMetadataR",
        # 30 s of CPU time each: "make formal" runs them; "make test" runs only the command above, with the same code
        pytest.param("UnnamedRackCounts", marks=pytest.mark.long),
        pytest.param("NoKilledMemory", marks=pytest.mark.long),
    ],
)
def test_a_record_is_lost_only_without_the_removed_part(tmp_path: Path, name: str) -> None:
    text = model_source.MODEL.read_text(encoding="utf-8")
    before, command, after = text.partition(f"\n{name}: run {{\n")
    whole = source(tmp_path, before + command + re.sub(r"without\[\w+\]", "without[none]", after, count=1))
    for path, found in ((model_source.MODEL, True), (whole, False)):
        arguments = ["formal", "--model", str(path), "--only", name, "--json", "--run-dir", str(tmp_path / str(found))]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == (0 if found else 1), done.output
        assert json.loads(done.output)["commands"][0]["found"] is found
