"""Answer to the question of a cell: rejected hypotheses, predicted medians, its sentence, its figure and its page."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bench.analysis import predictions, verdicts
from bench.plan import scenarios
from bench.plan.cluster_states import SLOW_RTT_MS
from bench.report import figures, run_page
from bench.report.figures import FigureStyle
from bench_results import made_up

(CELL,) = scenarios.load("question").cells
LABELS = {arm.id: arm.label for arm in CELL.scenario.latency_arms}
ROLES = {arm.id: arm.latency for arm in CELL.scenario.latency_arms}
RACKS = {"1": "a", "2": "a", "3": "b", "4": "b", "5": "c"}
# between the leader's rack and the others'
ROUND_TRIPS = {frozenset("ab"): 1.0, frozenset("ac"): 1.5, frozenset("bc"): 9.0}
BASE_MS = 3.0
M_ONLY, ISR = "waits-for-m", "waits-for-isr"


def interval(low: float, high: float) -> dict[str, float]:
    return {"low": low, "point": (low + high) / 2, "high": high}


def comparison(arm: str, ratio: dict[str, float] | None, word: str, reason: str = "decided") -> dict[str, Any]:
    return {"arm": arm, "against": "A", "at": "p50", "ratio": ratio, "word": word, "reason": reason}


def numbers(
    ratio: dict[str, float] | None, *, positive: str = "faster", reason: str = "decided", medians: Any = None
) -> dict[str, Any]:
    """Entry of the cell in a result, with this interval of B over A and this verdict on the positive control."""
    medians = medians or {"A": 30.0, "A'": 30.0, "B": 30.0, "C": 30.0, "P": BASE_MS}
    return {
        "cell": CELL.id,
        "arms": [{"arm": arm, "label": label, "role": ROLES[arm]} for arm, label in LABELS.items()],
        "rounds": [
            {"block": block, "arm": arm, "p50_ms": ms * (100 if block < 0 else 1 + block / 100)}
            for block in range(-1, 4)
            for arm, ms in medians.items()
        ],
        "comparisons": [
            comparison("B", {"low": 7.0, "point": 8.0, "high": 9.0}, "slower") | {"at": "p99"},
            comparison("A'", interval(0.99, 1.01), "equivalent"),
            comparison("B", ratio, "equivalent", reason),
            comparison("C", interval(0.99, 1.01), "equivalent"),
            comparison("P", interval(0.1, 0.2), positive),
        ],
    }


def answered(found: dict[str, Any]) -> dict[str, Any]:
    result = predictions.answer(CELL, found, ROUND_TRIPS)
    assert result is not None
    return result


def rejected(found: dict[str, Any]) -> set[str]:
    return {hypothesis["id"] for hypothesis in answered(found)["hypotheses"] if hypothesis["rejected"]}


@pytest.mark.parametrize(
    ("ratio", "contradicted", "expected"),
    [
        (interval(0.98, 1.02), {M_ONLY}, ISR),
        (interval(0.6, 0.96), {M_ONLY}, ISR),
        (interval(0.1, 0.2), {ISR}, M_ONLY),
        (interval(0.4, 0.9), {ISR}, M_ONLY),
        # ends that touch a range do not lie outside it
        (interval(0.5, 0.9), {ISR}, M_ONLY),
        (interval(0.5, 0.95), set(), None),
        (interval(0.3, 1.0), set(), None),
        (interval(0.6, 0.9), {M_ONLY, ISR}, None),
        (interval(1.2, 1.4), {M_ONLY, ISR}, None),
    ],
)
def test_an_interval_outside_a_range_rejects_its_hypothesis(
    ratio: dict[str, float], contradicted: set[str], expected: str | None
) -> None:
    found = answered(numbers(ratio))
    assert rejected(numbers(ratio)) == contradicted
    assert (found["answer"], found["arm"], found["against"], found["ratio"]) == (expected, "B", "A", ratio)
    if expected:
        assert found["missing"] == ""
    else:
        assert found["missing"] == (
            "the ratio contradicts all of them"
            if contradicted
            else "the interval of the ratio does not distinguish them"
        )


@pytest.mark.parametrize("word", ["equivalent", "undecided", "slower"])
def test_without_a_faster_positive_control_nothing_is_rejected(word: str) -> None:
    found = numbers(interval(0.98, 1.02), positive=word)
    assert (answered(found)["answer"], rejected(found)) == (None, set())
    assert answered(found)["missing"] == f"the positive control is {word}, so the cell would not show a difference"


def test_a_plan_without_a_positive_control_has_no_answer() -> None:
    arms = tuple(arm for arm in CELL.scenario.arms if arm.latency != "positive")
    cell = dataclasses.replace(CELL, scenario=dataclasses.replace(CELL.scenario, arms=arms))
    found = predictions.answer(cell, numbers(interval(0.98, 1.02)), ROUND_TRIPS)
    assert found is not None
    assert found["answer"] is None
    assert found["missing"].startswith("the positive control is missing")
    assert [one["predicted_ms"] for one in found["hypotheses"]] == [{}, {}]


@pytest.mark.parametrize("reason", predictions.NO_DATA)
def test_a_ratio_that_lacks_data_rejects_nothing(reason: str) -> None:
    found = numbers(interval(0.98, 1.02), reason=reason)
    assert (answered(found)["answer"], rejected(found)) == (None, set())
    assert reason in answered(found)["missing"]
    assert answered(numbers(None, reason="missing"))["answer"] is None


def test_a_cell_without_a_question_has_no_answer() -> None:
    assert predictions.answer(dataclasses.replace(CELL, question=None), numbers(None), ROUND_TRIPS) is None


def test_the_medians_are_those_of_measured_blocks() -> None:
    # four blocks of 30.0, 30.3, 30.6 and 30.9, after a warm-up
    assert answered(numbers(None))["measured_ms"]["A"] == pytest.approx({"low": 30.0, "point": 30.45, "high": 30.9})


def test_predictions_are_the_acks_1_median_and_round_trips_to_the_slowest_awaited_follower() -> None:
    base = BASE_MS * 1.015
    required, isr = answered(numbers(None))["hypotheses"]
    # of the far ones 2 is the nearest, because it is in the leader's rack
    near, far, farthest = 1.0, SLOW_RTT_MS, SLOW_RTT_MS + 1.5
    slowest = {"A": far, "A'": far, "B": near, "C": near}
    assert set(required["predicted_ms"]) == set(slowest)
    for arm, ms in slowest.items():
        assert required["predicted_ms"][arm] == pytest.approx([base + ms, base + 2 * ms])
        assert isr["predicted_ms"][arm] == pytest.approx([base + farthest, base + 2 * farthest])


def test_without_round_trips_or_acks_1_data_there_are_no_predictions() -> None:
    for round_trips in ({}, {frozenset("ab"): 1.0}):
        found = predictions.answer(CELL, numbers(interval(0.98, 1.02)), round_trips)
        assert found is not None
        assert [one["predicted_ms"] for one in found["hypotheses"]] == [{}, {}]
        assert found["answer"] == ISR, "the ratio needs no prediction in ms"
    no_base = numbers(interval(0.98, 1.02), medians={"A": 30.0, "B": 30.0})
    assert [one["predicted_ms"] for one in answered(no_base)["hypotheses"]] == [{}, {}]


def test_round_trips_between_racks_are_those_between_their_brokers() -> None:
    rows = [
        {"source": "clients", "target": "broker-1", "p50_ms": 7.0},
        {"source": "broker-1", "target": "broker-3", "p50_ms": 1},
        {"source": "broker-5", "target": "broker-1", "p50_ms": 1.5},
        {"source": "broker-3", "target": "controller-101", "p50_ms": 8.0},
    ]
    racks = {str(broker): rack for broker, rack in RACKS.items()}
    assert predictions.rack_round_trips(rows, racks) == {frozenset("ab"): 1.0, frozenset("ac"): 1.5}
    assert predictions.rack_round_trips([], racks) == {}


def test_the_sentence_has_the_answer_the_predictions_and_the_measured_ratio() -> None:
    found = numbers(interval(0.98, 1.02))
    verdict = verdicts.question_verdict(found | {"answer": answered(found)})
    assert (verdict["about"], verdict["word"]) == ("question", "answered")
    assert verdict["subject"] == "With acks=all, does a leader wait for M replicas or for the whole ISR?"
    assert verdict["text"].startswith(
        "A leader waits for the whole ISR. Predicted ratio of the medians, M=2, R=2 over "
    )
    for part in (
        "waits for M replicas: 0.01",
        "waits for the whole ISR: 0.95",
        " to 1.050. Measured: 1.000 (0.980 to 1.020).",
    ):
        assert part in verdict["text"]

    undecided = numbers(interval(0.98, 1.02), positive="equivalent")
    verdict = verdicts.question_verdict(undecided | {"answer": answered(undecided)})
    assert verdict["word"] == "undecided"
    assert verdict["text"].startswith("Undecided: the positive control is equivalent, so ")

    nothing = numbers(None, reason="missing")
    verdict = verdicts.question_verdict(nothing | {"answer": answered(nothing)})
    assert verdict["text"].endswith(" Nothing was measured.")


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    """Result of two cells, of which the first one has a question and its answer."""
    whole = made_up()
    (first, _) = whole["cells"]
    first["answer"] = answered(numbers(interval(0.98, 1.02)))
    whole["verdicts"] = verdicts.sentences(whole)
    return dict(json.loads(json.dumps(whole)))


@pytest.fixture
def result(stored: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(stored)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("has_predictions", [False, True])
def test_the_figure_has_predictions_and_measurements_by_arm(
    result: dict[str, Any], narrow: bool, has_predictions: bool
) -> None:
    cell = result["cells"][0]
    if not has_predictions:
        for hypothesis in cell["answer"]["hypotheses"]:
            hypothesis["predicted_ms"] = {}
    style = FigureStyle(figures.MARKED, narrow=narrow)
    figure = figures.answer(result, cell, style)
    figure.canvas.draw()
    (axes,) = figure.axes
    assert axes.get_xlabel() == "median produce latency, ms"
    assert figure.get_size_inches()[0] == style.size(1)[0]
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    predicted = ["waits for M replicas (rejected): predicted", "waits for the whole ISR: predicted"]
    observed = "measured: median and range of the blocks"
    assert sorted(labels) == sorted([*(predicted if has_predictions else []), observed])
    # of A, B and C by each hypothesis; acks=1 is what they are predicted from, and A' is another A
    assert len(axes.collections) - len(axes.containers) == (6 if has_predictions else 0)
    assert len(axes.containers) == 4
    measured = [text.get_text() for text in axes.texts]
    assert measured == ["30.5 ms", "30.5 ms", "30.5 ms", "3 ms"]
    ticks = [axes.yaxis.get_major_formatter()(place) for place in range(4)]
    assert [tick.replace("\n", " ") for tick in ticks] == [LABELS[arm] for arm in ("A", "B", "C", "P")]


def test_the_page_begins_with_the_question_its_answer_and_its_picture(result: dict[str, Any], tmp_path: Path) -> None:
    page = run_page.render(result, tmp_path).read_text(encoding="utf-8")
    found, *_ = result["verdicts"]
    assert found["about"] == "question"
    body = page[page.index("<body") :]
    order = [f"<h2>{found['subject']}</h2>", "A leader waits for the whole ISR.", 'id="picture-answer-healthy"',
             '<ul class="verdicts">']  # fmt: skip
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    assert body.index("<h2>") == places[0]
    assert body.index("<figure") < places[3]
    assert body.index("<figure id=") == places[2] - len("<figure ")
    # once, and not as a verdict among others
    assert body.count(found["subject"]) == 1
    assert (tmp_path / "answer-healthy.png").stat().st_size > 5_000


def test_the_picture_of_a_single_cell_has_no_suffix_and_needs_an_answer(result: dict[str, Any], tmp_path: Path) -> None:
    assert [name for name in figures.pictures(result) if name.startswith("answer")] == ["answer-healthy"]
    single = result | {"cells": result["cells"][:1], "outage": None}
    assert next(iter(figures.pictures(single))) == "answer"
    page = run_page.render(single, tmp_path).read_text(encoding="utf-8")
    assert page.index('id="picture-answer"') < page.index('<ul class="verdicts">')
    del single["cells"][0]["answer"]
    assert "answer" not in figures.pictures(single)
    single["cells"][0]["answer"] = None
    assert "answer" not in figures.pictures(single)
    single["verdicts"] = verdicts.sentences(single)
    assert 'id="picture-answer' not in run_page.render(single, tmp_path).read_text(encoding="utf-8")
