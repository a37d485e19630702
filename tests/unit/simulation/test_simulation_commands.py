"""The commands of the simulation: what people and programs read, its speed and the bars, bad values, defaults."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from model_plans import made
from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.simulation import failures as fl
from pyhooks.simulation import speed
from pyhooks.simulation.machine_script import Setting
from pyhooks.simulation.replication import play

RUNNER = CliRunner()
TOOK = {"took_s": 0.0, "cpu_s": 0.0}


def test_a_speed_is_told_if_the_figures_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {"local[1]": "1f", "local[2]": "1f", "standalone": "1f"}

    def made_up(on: str, years: int) -> speed.Measure:
        return speed.Measure(on, years, 60.0, 100.0, 0.25, digests[on])

    monkeypatch.setattr(speed, "measure", made_up)
    done = RUNNER.invoke(app, ["model", "speed", "--years", "9", "--json"], catch_exceptions=False)
    told = json.loads(done.stdout)
    assert [one["on"] for one in told["measures"]] == list(digests)
    assert told["job"]["given"] == {"--broker-failure": "4x1h", "--rack-outage": "2x3.5h"}
    assert "9 cluster-years on standalone, about 1 min to the end" in done.stderr
    assert told["bars"] == []
    # of which a figure that is the same says nothing
    digests["standalone"] = "2e"
    with pytest.raises(RackgateError, match=r"different figures: .*standalone 2e"):
        RUNNER.invoke(app, ["model", "speed"], catch_exceptions=False)


def test_the_digest_is_of_all_that_was_found() -> None:
    one = made("a:1,b:1", ["1,1", "2,1"], rf=2, partitions=2, given={"disk_loss": "40x1ms", "copy": "24h"})
    found = play(one, range(3))
    whole = speed.digest(found)
    assert speed.digest(list(reversed(found))) == whole == speed.digest(play(one, range(3)))
    last = found[-1]
    for other in (
        replace(last, shares=last.shares + 1e-9),
        replace(last, lost=last.lost + 1e-9),
        replace(last, events=last.events + 1),
        replace(last, by_cause=last.by_cause + 1),
        replace(last, tail_s=last.tail_s + 1e-9),
        replace(last, with_tail=last.with_tail + 1e-9),
    ):
        assert speed.digest([*found[:-1], other]) != whole
    assert speed.digest(found[:-1]) != whole


def test_the_speed_in_the_document_is_that_of_the_artifact() -> None:
    artifact = json.loads((paths.REPO / "kip" / "evidence" / "model-speed.json").read_text(encoding="utf-8"))
    text = (paths.REPO / "kip" / "model.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+ \| (\d+) s \| (\d+) s \|$", text, re.MULTILINE)
    measures = artifact["result"]["measures"]
    assert rows == [(f"{one['wall_s']:.0f}", f"{one['cpu_s']:.0f}") for one in measures]


@pytest.mark.parametrize(
    ("changes", "cores", "outcomes", "status"),
    [
        ({}, 2, ["met", "met", "met"], 0),
        # too slow on two cores, and on two workers
        ({"local[2]": (75.0, 0.0)}, 2, ["met", "missed", "met"], 1),
        ({"standalone": (96.0, 0.0)}, 2, ["met", "met", "missed"], 1),
        # since others were at work beside them, perhaps
        ({"local[2]": (75.0, 0.4), "standalone": (96.0, 0.4)}, 2, ["met", "unknown", "unknown"], 2),
        # what others do beside one core makes the rest look faster
        ({"local[1]": (100.0, 0.4)}, 2, ["met", "unknown", "unknown"], 2),
        ({}, 1, ["met", "unknown", "unknown"], 2),
    ],
)
def test_more_cores_and_workers_must_be_faster_than_one_core(
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, tuple[float, float]],
    cores: int,
    outcomes: list[str],
    status: int,
) -> None:
    took = {"local[1]": (100.0, 0.0), "local[2]": (60.0, 0.0), "standalone": (80.0, 0.0)} | changes
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(
        speed, "measure", lambda on, years: speed.Measure(on, years, took[on][0], 100.0, 0.25, "1f", took[on][1])
    )
    done = RUNNER.invoke(app, ["model", "speed", "--json"])
    assert done.exit_code == status
    told = json.loads(done.stdout)["bars"]
    assert [bar["outcome"] for bar in told] == outcomes
    assert [bar["name"] for bar in told[1:]] == [
        "speed of local[2] over that of local[1]",
        "speed of standalone over that of local[1]",
    ]
    alone = json.loads(RUNNER.invoke(app, ["model", "speed", "--on", "local[2]", "--json"]).stdout)["bars"]
    assert len(alone) == 1


@pytest.mark.parametrize(
    ("wall_s", "others_cpus", "status", "word"),
    [(299.0, 1.5, 0, "MET"), (301.0, 0.01, 1, "MISSED"), (301.0, 0.4, 2, "UNKNOWN")],
)
def test_the_bar_of_the_speed_is_met_missed_or_unknown(
    monkeypatch: pytest.MonkeyPatch, wall_s: float, others_cpus: float, status: int, word: str
) -> None:
    made_up = speed.Measure("local[2]", speed.YEARS, wall_s, 100.0, 0.25, "1f", others_cpus)
    monkeypatch.setattr(speed, "measure", lambda *_: made_up)
    done = RUNNER.invoke(app, ["model", "speed", "--on", "local[2]"])
    assert done.exit_code == status
    assert f"{word}: 1,000 cluster-years on local[2]" in done.output


def runs(*words: str) -> str:
    done = RUNNER.invoke(app, ["model", "simulate", *words, "--master", "none"], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_command_for_people_and_programs() -> None:
    words = ["--racks", "a:2,b:1", "--placement", "a,a,b", "--partitions", "30", "--years", "3", "--setting", "2,1"]
    words += ["--setting", "2,2", "--setting", "2,2,lower=30m", "--rack-outage", "4x5h"]
    said = runs(*words)
    assert "3 brokers, 30 partitions, RF 3, 3 cluster-years in 3 replications" in said
    assert "M=2 R=2 lowered after 30 min" in said
    told = json.loads(runs(*words, "--json"))
    assert told["plan"]["placements"] == {"a a b": 10, "a b a": 10, "a b b": 10}
    assert told["plan"]["racks"] == {"a": 2, "b": 1}
    assert [one["lower_s"] for one in told["settings"]] == [None, None, 1800.0]
    refused = [one["refused"]["value"] for one in told["settings"]]
    assert refused[0] < refused[2] < refused[1]
    assert told["settings"][1]["by_status"]["racks"]["value"] > 0
    given = {one["option"]: one for one in told["faults"]}
    assert given["--rack-outage"]["value"] == "4x5h"
    assert given["--rack-outage"]["default"] == fl.RACK.value
    assert json.loads(runs(*words, "--json")) | TOOK == told | TOOK


def test_beside_each_loss_is_how_often_it_was_seen() -> None:
    words = ["--racks", "a:1,b:1", "--rf", "2", "--partitions", "1", "--years", "5", "--setting", "1,1"]
    said = runs(*words, "--disk-loss", "40x1ms", "--copy", "24h")
    assert re.search(r"partitions that lose records, in a year +\S+ \(\d{2} events\) *\n +\S+ to \S+", said)
    few = runs(*words, "--disk-loss", "8x1ms", "--copy", "24h")
    assert re.search(r"partitions that lose records, in a year +\S+ \(\d events?\) *\n +too few for an interval", few)
    none = runs(*words, "--disk-loss", "0", "--rack-loss", "0", "--power-share", "0", "--broker-failure", "0")
    assert "0 (none seen)" in none
    # 3.7 in 5 years: what may happen and not be seen
    assert "0 to 0.74" in none


def test_the_command_for_rare_losses() -> None:
    words = ["--racks", "a:1,b:1,c:1", "--partitions", "3", "--years", "0.2", "--rare"]
    told = json.loads(runs(*words, "--json"))
    assert told["plan"]["rare"] is True
    drawn = told["plan"]["drawn_more_often"]
    assert drawn["rack_disks"] > 100
    assert drawn["burst"] > 10
    assert told["settings"][0]["refused"] is None
    assert told["settings"][0]["lost"]["value"] >= 0
    assert "each loss weighs less in return" in runs(*words)


@pytest.mark.parametrize(
    ("words", "said"),
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
def test_bad_values_are_told_in_one_line(words: list[str], said: str) -> None:
    with pytest.raises(RackgateError) as caught:
        RUNNER.invoke(app, ["model", "simulate", *words, "--master", "none"], catch_exceptions=False)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_settings_of_a_plan() -> None:
    one = made("a:2,b:1", ["2,2,lower=30m,elr=replicas"])
    assert one.settings == (Setting(2, 2, "replicas", 1800.0),)


def test_the_defaults_of_the_document_are_those_of_the_command() -> None:
    text = (paths.REPO / "kip" / "model.md").read_text(encoding="utf-8")
    for default in fl.DEFAULTS:
        assert f"| `{default.option}` | {default.value} |" in text
