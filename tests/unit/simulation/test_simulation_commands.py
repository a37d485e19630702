"""Command ``rackgate model simulate``: table, JSON, invalid values and defaults."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from model_plans import made
from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.simulation import failures as fl
from pyhooks.simulation.partition_machine import GateSetting

RUNNER = CliRunner()
DURATIONS = {"duration_s": 0.0, "cpu_s": 0.0}


def run_simulation(*arguments: str) -> str:
    """Return the output of the command."""
    finished = RUNNER.invoke(app, ["model", "simulate", *arguments, "--master", "none"], catch_exceptions=False)
    assert finished.exit_code == 0
    return finished.output


def test_table_and_json() -> None:
    options = ["--racks", "a:2,b:1", "--placement", "a,a,b", "--partitions", "30", "--years", "3", "--setting", "2,1"]
    options += ["--setting", "2,2", "--setting", "2,2,lower=30m", "--rack-outage", "4x5h"]
    table = run_simulation(*options)
    assert "3 brokers, 30 partitions, RF 3, 3 cluster-years in 3 replications" in table
    assert "M=2 R=2 lowered after 30 min" in table
    output = json.loads(run_simulation(*options, "--json"))
    assert output["plan"]["placements"] == {"a a b": 10, "a b a": 10, "a b b": 10}
    assert output["plan"]["racks"] == {"a": 2, "b": 1}
    assert [setting["lower_s"] for setting in output["settings"]] == [None, None, 1800.0]
    rejected = [setting["rejected"]["value"] for setting in output["settings"]]
    assert rejected[0] < rejected[2] < rejected[1]
    assert output["settings"][1]["by_status"]["racks"]["value"] > 0
    faults = {fault["option"]: fault for fault in output["faults"]}
    assert faults["--rack-outage"]["value"] == "4x5h"
    assert faults["--rack-outage"]["default"] == fl.RACK.value
    assert json.loads(run_simulation(*options, "--json")) | DURATIONS == output | DURATIONS


def test_losses_are_shown_with_the_number_of_events() -> None:
    options = ["--racks", "a:1,b:1", "--rf", "2", "--partitions", "1", "--years", "5", "--setting", "1,1"]
    table = run_simulation(*options, "--disk-loss", "40x1ms", "--copy", "24h")
    assert re.search(r"partitions that lose records, in a year +\S+ \(\d{2} events\) *\n +\S+ to \S+", table)
    few = run_simulation(*options, "--disk-loss", "8x1ms", "--copy", "24h")
    assert re.search(r"partitions that lose records, in a year +\S+ \(\d events?\) *\n +too few for an interval", few)
    none = run_simulation(
        *options, "--disk-loss", "0", "--rack-loss", "0", "--power-share", "0", "--broker-failure", "0"
    )
    assert "0 (none seen)" in none
    # without an event, the upper limit is 3.7 events in 5 years
    assert "0 to 0.74" in none


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--racks", "a:2", "--rf", "3"], "--rf 3: --racks has 2 brokers"),
        (["--racks", "a:2,b:1", "--placement", "a,c"], "there is no rack c"),
        (["--racks", "a:3", "--setting", "2"], "--setting 2: expected M,R"),
        (["--racks", "a:3", "--setting", "4,1"], "--setting 4,1: M is 4: expected 1 to 3"),
        (["--racks", "a:3", "--setting", "1,0"], "R is 0: expected 1 to 3"),
        (["--racks", "a:3", "--setting", "1,1,lower=soon"], "lower soon: expected a duration"),
        (["--racks", "a:3", "--setting", "1,1,elr=on"], "expected M,R such as 2,2"),
        (["--racks", "a:3", "--lag", "often"], "--lag often: expected 4x1h"),
        (["--racks", "a:3", "--lag", "20000x1s"], "at most 10000 times a year"),
        (["--racks", "a:3", "--power-share", "2"], "--power-share 2: expected a number from 0 to 1"),
        (["--racks", "a:3", "--burst-size", "1"], "--burst-size 1: expected a number from 2"),
        (["--racks", "a:3", "--copy", "1y"], "--copy 1y: expected a duration"),
        (["--racks", "a:3", "--years", "0"], "--years 0: expected more than 0"),
        (["--racks", "a:3", "--topics", "5", "--partitions", "4"], "--topics 5: there are 4 partitions"),
        (["--racks", "a:3000"], "3000 brokers: at most 2000"),
    ],
)
def test_invalid_values_are_one_line_errors(options: list[str], error: str) -> None:
    with pytest.raises(RackgateError) as caught:
        RUNNER.invoke(app, ["model", "simulate", *options, "--master", "none"], catch_exceptions=False)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_setting_is_parsed() -> None:
    plan = made("a:2,b:1", ["2,2,lower=30m,elr=replicas"])
    assert plan.settings == (GateSetting(2, 2, "replicas", 1800.0),)


def test_the_defaults_of_the_document_are_those_of_the_command() -> None:
    text = (paths.REPO / "kip" / "model.md").read_text(encoding="utf-8")
    for default in fl.DEFAULTS:
        assert f"| `{default.option}` | {default.value} |" in text
