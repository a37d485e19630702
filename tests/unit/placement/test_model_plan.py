"""``rackgate plan`` and ``model exact``: placements, probabilities, dominated choices, advice, output and document."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.placement import failure_rates as ch
from pyhooks.placement.choices import Choice, cross_rack_copies, evaluate_choices, recommend
from pyhooks.placement.exact_model import ELRS, evaluate
from pyhooks.placement.model_report import format_probability, format_year_share, print_plan
from pyhooks.placement.replica_placement import Placement, distinct_placements, parse_placement, parse_racks

BROKERS_BY_RACK = {"a": 2, "b": 2, "c": 1}
RUNNER = CliRunner()

DEFAULT_PROBABILITIES = ch.parse_probabilities(*(default.value for default in ch.DEFAULTS))


def choices_for(brokers_by_rack: Mapping[str, int], max_rf: int = 5) -> tuple[Choice, ...]:
    factors = range(1, min(max_rf, sum(brokers_by_rack.values())) + 1)
    return evaluate_choices(
        [placement for rf in factors for placement in distinct_placements(brokers_by_rack, rf)],
        DEFAULT_PROBABILITIES,
    )


def json_of(*arguments: str) -> Any:
    """Return the JSON output of a command."""
    finished = RUNNER.invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert finished.exit_code == 0
    return json.loads(finished.output)


def error_of(*arguments: str) -> str:
    """Return the one-line error of a command."""
    with pytest.raises(RackgateError) as caught:
        RUNNER.invoke(app, [*arguments], catch_exceptions=False)
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- placements -------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), min_size=1), st.integers(1, 6))
def test_distinct_placements_are_all_choices_of_brokers_up_to_rack_names(
    brokers_by_rack: dict[str, int], rf: int
) -> None:
    brokers = [rack for rack, size in brokers_by_rack.items() for _ in range(size)]
    expected = {tuple(sorted(Counter(chosen).values(), reverse=True)) for chosen in itertools.combinations(brokers, rf)}
    found = distinct_placements(brokers_by_rack, rf)
    assert sorted(tuple(sorted(placement.counts, reverse=True)) for placement in found) == sorted(expected)
    for placement in found:
        pairs = zip(placement.racks, placement.counts, strict=True)
        assert all(count <= brokers_by_rack[rack] for rack, count in pairs)


def test_placements_are_parsed() -> None:
    assert parse_placement("b, a ,a", "it") == parse_placement("a:2,b", "it") == Placement(("a", "b"), (2, 1))
    assert str(parse_placement("a:2,b", "it")) == "a a b"
    assert parse_racks("a:2,b:40", "it") == {"a": 2, "b": 40}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "'' is no rack"),
        ("a,,b", "'' is no rack"),
        ("a:x", "'a:x' is no rack"),
        ("a:-1", "'a:-1' is no rack"),
        ("a:0,b", "rack a has none"),
        ("a:7,b:6", "13 replicas: at most 12"),
        ("a,d", "there is no rack d: --racks has a, b, c"),
        ("a:2,c:2", "2 replicas in rack c, which has 1 brokers"),
    ],
)
def test_invalid_placements_are_errors(text: str, error: str) -> None:
    with pytest.raises(RackgateError, match=re.escape(f"--placement {text}: {error}")):
        parse_placement(text, "--placement", {"a": 9, "b": 9, "c": 1})


# -- probabilities ----------------------------------------------------------------------------------------------------


def test_probabilities_are_parsed() -> None:
    assert ch.parse_unavailable_share("0.01", "it") == 0.01
    assert ch.parse_unavailable_share("4x1h", "it") == pytest.approx(4 / 8766)
    assert ch.parse_destruction_probability("0.02", "it", 1.0) == 0.02
    assert ch.parse_destruction_probability("0.0157/y", "it", 24 * 3600.0) == pytest.approx(0.0157 / 365.25, rel=1e-4)
    assert ch.parse_destruction_probability("1/y", "it", ch.YEAR_S) == pytest.approx(1 - 2.718281828**-1)


@pytest.mark.parametrize("invalid", ["1.01", "-0.1", "nan", "often", "2x", "0.1/y", ""])
def test_an_invalid_share_of_time_is_an_error(invalid: str) -> None:
    with pytest.raises(RackgateError, match=re.escape(f"--rack-away {invalid}: ") + "expected a"):
        ch.parse_unavailable_share(invalid, "--rack-away")


def test_a_share_of_time_above_1_is_an_error() -> None:
    with pytest.raises(RackgateError, match="more than a year"):
        ch.parse_unavailable_share("1000x24h", "--rack-away")


@pytest.mark.parametrize("invalid", ["1.01", "-1/y", "inf", "0.1/d", "2x1h"])
def test_an_invalid_probability_of_destruction_is_an_error(invalid: str) -> None:
    with pytest.raises(RackgateError, match=re.escape(f"--rack-destroyed {invalid}: ") + "expected a probability"):
        ch.parse_destruction_probability(invalid, "--rack-destroyed", 1.0)


# -- costs and dominated choices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "copies"), [("a", 0), ("a:3", 0), ("a,b,c", 2), ("a,a,b", 4 / 3), ("a:2,b:2", 2)])
def test_copies_across_racks(where: str, copies: float) -> None:
    """RF - 1 with one replica in each rack, as in the background document; the others are computed by hand."""
    assert cross_rack_copies(parse_placement(where, "it")) == pytest.approx(copies)


def test_choices_cover_all_settings_and_merge_only_equal_ones() -> None:
    for choice in choices_for(BROKERS_BY_RACK):
        for racks in choice.min_racks:
            single = evaluate(
                choice.placement,
                min_replicas=choice.min_replicas,
                min_racks=racks,
                probabilities=DEFAULT_PROBABILITIES,
            )
            assert single.rejected == choice.evaluation.rejected
            assert single.worst == choice.evaluation.worst
            assert single.usual == choice.evaluation.usual
    covered = {
        (choice.placement, choice.min_replicas, r) for choice in choices_for(BROKERS_BY_RACK) for r in choice.min_racks
    }
    expected = {
        (placement, m, r)
        for rf in range(1, 6)
        for placement in distinct_placements(BROKERS_BY_RACK, rf)
        for m in range(1, rf + 1)
        for r in range(1, min(m, len(placement.racks)) + 1)
    }
    assert covered == expected


def test_a_choice_is_marked_if_another_dominates_it() -> None:
    found = choices_for({"a": 3, "b": 3, "c": 3})
    assert any(choice.dominated for choice in found)
    for choice in found:
        better = [
            other
            for other in found
            if all(a <= b * 1.000001 for a, b in zip(other.criteria, choice.criteria, strict=True))
            and any(a < b * 0.999999 for a, b in zip(other.criteria, choice.criteria, strict=True))
        ]
        assert choice.dominated is bool(better), choice
    # each dominated choice is dominated by one that is not
    undominated = [choice for choice in found if not choice.dominated]
    for choice in found:
        if choice.dominated:
            assert any(
                all(a <= b * 1.000001 for a, b in zip(other.criteria, choice.criteria, strict=True))
                for other in undominated
            )


# -- advice -----------------------------------------------------------------------------------------------------------


def test_advice_for_three_racks() -> None:
    durable, available, cheap = recommend(choices_for(BROKERS_BY_RACK))
    for advice in (durable, available):
        assert advice.choice is not None
        assert (str(advice.choice.placement), advice.choice.min_replicas, advice.choice.min_racks) == (
            "a b c",
            2,
            (1, 2),
        )
        assert "R=2 has the same effect as R=1 until replicas are moved" in advice.because
    assert cheap.choice is not None
    assert (str(cheap.choice.placement), cheap.choice.min_replicas, cheap.choice.min_racks) == ("a a b", 2, (1,))
    assert "one rack may be the only one with them" in cheap.because
    assert "assign it by hand" in cheap.because
    assert "assign it by hand" not in durable.because


def test_advice_does_not_depend_on_the_defaults() -> None:
    """As stated in kip/model.md: each default is multiplied and divided by ten."""
    placements = [placement for rf in range(1, 6) for placement in distinct_placements(BROKERS_BY_RACK, rf)]
    usual = [
        advice.choice and settings_of(advice.choice)
        for advice in recommend(evaluate_choices(placements, DEFAULT_PROBABILITIES))
    ]
    for name in ("broker_away", "rack_away", "broker_destroyed", "rack_destroyed"):
        for factor in (0.1, 10.0):
            other = replace(DEFAULT_PROBABILITIES, **{name: factor * getattr(DEFAULT_PROBABILITIES, name)})
            found = [
                advice.choice and settings_of(advice.choice)
                for advice in recommend(evaluate_choices(placements, other))
            ]
            assert found == usual, (name, factor)


def settings_of(choice: Choice) -> tuple[str, int, tuple[int, ...]]:
    return str(choice.placement), choice.min_replicas, choice.min_racks


def test_with_two_racks_each_choice_has_a_cost() -> None:
    durable, available, _ = recommend(choices_for({"a": 2, "b": 2}))
    assert durable.choice is not None
    assert durable.choice.evaluation.outlives_racks == 1
    assert durable.choice.evaluation.writes_without_racks == 0
    assert available.choice is not None
    assert available.choice.evaluation.writes_without_racks == 1
    assert available.choice.evaluation.outlives_racks == 0
    assert (str(available.choice.placement), available.choice.min_replicas) == ("a a b b", 2)


def test_the_reason_for_missing_advice_is_stated() -> None:
    durable, available, cheap = recommend(choices_for({"a": 2}))
    assert durable.choice is available.choice is cheap.choice is None
    assert "two racks and RF 2" in durable.because
    assert cheap.because == "no choice in the table: that requires RF 3"


# -- commands ---------------------------------------------------------------------------------------------------------


def test_exact_as_json() -> None:
    output = json_of(
        "model", "exact", "--placement", "a,a,b", "--min-replicas", "2", "--min-racks", "2", "--broker-away", "0.01",
        "--rack-away", "0", "--broker-destroyed", "0.02", "--rack-destroyed", "0",
    )  # fmt: skip
    assert output["chances"] == {
        "broker_away": 0.01, "rack_away": 0.0, "broker_destroyed": 0.02, "rack_destroyed": 0.0
    }  # fmt: skip
    evaluation = output["weighed"]
    assert evaluation["limits"] == {"replicas": 2, "racks": 2}
    # b is unavailable and both brokers of a are up; two brokers are unavailable; all are
    assert evaluation["rejected"]["racks"] == pytest.approx(0.01 * 0.99**2)
    assert evaluation["rejected"]["replicas"] == pytest.approx(3 * 0.01**2 * 0.99)
    assert evaluation["rejected"]["no_leader"] == pytest.approx(1e-6)
    assert evaluation["whole"]["total"] == pytest.approx(8e-6)
    assert evaluation["worst_set"] == {"a": 1, "b": 1}


def test_exact_as_a_table() -> None:
    command = ["model", "exact", "--placement", "a,a,b", "--min-replicas", "2"]
    output = RUNNER.invoke(app, command, catch_exceptions=False).output
    assert "RF 3 on a a b, M=2, R=1" in output
    assert "worst, ISR a a" in output
    assert "one rack may be the only one with them" in output
    never = RUNNER.invoke(app, ["model", "exact", "--placement", "a,a", "--min-racks", "2"], catch_exceptions=False)
    assert "always rejected: replicas in 1 of 2 racks" in never.output


@pytest.fixture(scope="module")
def plan_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new folder with the JSON and the pictures of a plan."""
    folder = tmp_path_factory.mktemp("plan") / "new"
    output = json_of("plan", "--racks", "a:2,b:2,c:1", "--picture", str(folder / "plan"))
    (folder / "plan.json").write_text(json.dumps(output), encoding="utf-8")
    return folder


def test_plan_as_json_and_as_a_table(plan_folder: Path, tmp_path: Path) -> None:
    stem = plan_folder / "plan"
    output = json.loads(stem.with_name("plan.json").read_text(encoding="utf-8"))
    assert len(output["choices"]) == len(choices_for(BROKERS_BY_RACK))
    best = output["choices"][output["advice"][0]["choice"]]
    assert (best["placement"], best["rf"], best["min_replicas"]) == ({"a": 1, "b": 1, "c": 1}, 3, 2)
    assert best["min_racks"] == [1, 2]
    assert (best["storage_factor"], best["cross_rack_copies"]) == (3, 2)
    assert stem.with_name("plan.png").read_bytes().startswith(b"\x89PNG")
    svg = stem.with_name("plan.svg").read_text(encoding="utf-8")
    # RF 2 on a b, RF 3 on a b c, RF 4 on a a b c and RF 5
    assert svg.count("M=2 R=2") == 4
    again = tmp_path / "again"
    result = RUNNER.invoke(app, ["plan", "--racks", "a:2,b:2,c:1", "--picture", str(again)], catch_exceptions=False)
    assert again.with_name("again.svg").read_text(encoding="utf-8") == svg
    assert "Keep writing with one rack unavailable: RF 3 on a b c, M=2, R=2" in result.output.replace("\n", " ")


def test_the_table_fits_80_columns_and_greys_dominated_choices() -> None:
    found = choices_for(BROKERS_BY_RACK)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    print_plan(console, found, recommend(found), DEFAULT_PROBABILITIES)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert "…" not in "".join(lines)
    assert any("a a b b c" in line for line in lines)
    assert sum(" \x1b[90m " in line for line in lines) == sum(choice.dominated for choice in found) > 0


def test_a_picture_can_be_drawn_if_all_probabilities_are_0(tmp_path: Path) -> None:
    """A logarithmic axis has no position for 0."""
    options = ["--broker-away", "0", "--rack-away", "0", "--picture", str(tmp_path / "plan")]
    assert json_of("plan", "--racks", "a,b", *options)["choices"]
    assert (tmp_path / "plan.png").is_file()


def test_the_plan_is_limited_to_the_given_settings() -> None:
    limited = json_of("plan", "--racks", "a:2,b:2,c:1", "--placement", "a,a,b", "--placement", "a:2,b:1")
    assert {json.dumps(choice["placement"]) for choice in limited["choices"]} == {'{"a": 2, "b": 1}'}
    assert {choice["rf"] for choice in json_of("plan", "--racks", "a:2,b:2", "--rf", "4", "--rf", "2")["choices"]} == {
        2,
        4,
    }


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["model", "exact", "--placement", "a:13"], "--placement a:13: 13 replicas: at most 12"),
        (["model", "exact", "--placement", "a,b", "--min-replicas", "3"], "--min-replicas 3: the placement has 2"),
        (["model", "exact", "--placement", "a,b", "--min-racks", "3"], "--min-racks 3: the placement has 2"),
        (["model", "exact", "--placement", "a", "--broker-away", "2"], "--broker-away 2: expected a probability"),
        (["model", "exact", "--placement", "a", "--elr", "on"], "--elr on: expected one of racks, replicas, off"),
        (["model", "exact", "--placement", "a", "--window", "2 days"], "--window 2 days: expected a duration"),
        (["plan", "--racks", "a:2", "--rf", "3"], "--rf 3: --racks has 2 brokers"),
        (["plan", "--racks", "a:2,b:2", "--placement", "a,d"], "there is no rack d: --racks has a, b"),
        (["plan", "--racks", "a:2", "--rf", "1", "--placement", "a"], "--rf and --placement"),
        (["plan", "--racks", "a:2", "--picture", "/dev/null/plan"], "/dev/null/plan.png: can't be written"),
    ],
)
def test_invalid_values_are_one_line_errors(arguments: list[str], error: str) -> None:
    assert error in error_of(*arguments)


def test_shares_of_a_year_are_formatted() -> None:
    year_s = 365.25 * 24 * 3600
    found = [format_year_share(seconds / year_s) for seconds in (0, 1e-5, 0.0023, 4.21, 90, 7200, 90000, year_s)]
    assert found == ["never", "<1 ms", "2.3 ms", "4.2 s", "1.5 min", "2.0 h", "1.0 d", "always"]


# -- documents --------------------------------------------------------------------------------------------------------


def test_the_defaults_of_the_document_are_those_of_the_commands() -> None:
    text = (paths.REPO / "kip" / "model.md").read_text(encoding="utf-8")
    for default in ch.DEFAULTS:
        assert f"| `{default.option}` | {default.value} |" in text


def test_the_table_of_the_document_equals_the_model() -> None:
    text = (paths.REPO / "kip" / "model.md").read_text(encoding="utf-8").partition("\n## Years of a cluster\n")[0]
    rows = re.findall(r"^\| ([abc, ]+) \| (\d) \| (\d) \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) >= 12
    for placement, m, r, figures in rows:
        found, stock = (
            evaluate(
                parse_placement(placement, "it"),
                min_replicas=int(m),
                min_racks=int(r),
                probabilities=DEFAULT_PROBABILITIES,
                elr=elr,
            )
            for elr in ELRS[:2]
        )
        assert figures.split(" | ") == [
            format_year_share(found.rejected.total),
            format_year_share(found.one_rack_alone),
            format_probability(found.worst.total),
            format_probability(stock.worst.total),
            str(max(0, found.writes_without_racks)),
            str(max(0, found.outlives_racks)),
        ], f"{placement} {m} {r}"


def test_the_picture_of_the_document_equals_the_command_output(plan_folder: Path) -> None:
    old, new = (
        re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))
        for path in (paths.REPO / "kip" / "evidence" / "plan.svg", plan_folder / "plan.svg")
    )
    assert len(new) > 30
    assert old == new
