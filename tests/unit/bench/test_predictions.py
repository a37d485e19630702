"""Answer to the question of a cell: rejected hypotheses, predicted medians, verdict text, figure and page."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.analysis import inference, predictions, verdicts
from bench.plan import scenarios
from bench.plan.cluster_states import SLOW_RTT_MS
from bench.report import figures, run_page
from bench.report.figures import FigureStyle
from bench_results import made_up
from blank_figures import save_blank_figures

(CELL,) = scenarios.load("question").cells
LABELS = {arm.id: arm.label for arm in CELL.scenario.latency_arms}
ROLES = {arm.id: arm.latency for arm in CELL.scenario.latency_arms}
RACKS = {"1": "a", "2": "a", "3": "b", "4": "b", "5": "c"}
# Round trips between racks, in ms.
ROUND_TRIPS = {frozenset("ab"): 1.0, frozenset("ac"): 1.5, frozenset("bc"): 9.0}
BASE_MS = 3.0
WAITS_FOR_M, WAITS_FOR_ISR = "waits-for-m", "waits-for-isr"


def interval(low: float, high: float) -> dict[str, float]:
    return {"low": low, "point": (low + high) / 2, "high": high}


def comparison(arm: str, ratio: dict[str, float] | None, verdict: str, reason: str = "decided") -> dict[str, Any]:
    return {
        "arm": arm,
        "against": "A",
        "at": "p50",
        "ratio": ratio,
        "error": 0.01,
        "freedom": 8,
        "verdict": verdict,
        "reason": reason,
    }


def cell_numbers(
    ratio: dict[str, float] | None, *, positive: str = "faster", reason: str = "decided", medians: Any = None
) -> dict[str, Any]:
    """Return the cell of a result, with this interval for B over A and this verdict on the positive control."""
    medians = medians or {"A": 30.0, "A'": 30.0, "B": 30.0, "C": 30.0, "P": BASE_MS}
    return {
        "cell": CELL.id,
        "confidence": 0.95,
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


def answer(cell: dict[str, Any]) -> dict[str, Any]:
    result = predictions.answer(CELL, cell, ROUND_TRIPS)
    assert result is not None
    return result


def rejected(cell: dict[str, Any]) -> set[str]:
    return {hypothesis["id"] for hypothesis in answer(cell)["hypotheses"] if hypothesis["rejected"]}


@pytest.mark.parametrize(
    ("ratio", "rejected_ids", "expected"),
    [
        (interval(0.98, 1.02), {WAITS_FOR_M}, WAITS_FOR_ISR),
        (interval(0.6, 0.96), {WAITS_FOR_M}, WAITS_FOR_ISR),
        (interval(0.1, 0.2), {WAITS_FOR_ISR}, WAITS_FOR_M),
        (interval(0.4, 0.9), {WAITS_FOR_ISR}, WAITS_FOR_M),
        # An interval that touches a range is not outside it.
        (interval(0.5, 0.9), {WAITS_FOR_ISR}, WAITS_FOR_M),
        (interval(0.5, 0.95), set(), None),
        (interval(0.3, 1.0), set(), None),
        (interval(0.6, 0.9), {WAITS_FOR_M, WAITS_FOR_ISR}, None),
        (interval(1.2, 1.4), {WAITS_FOR_M, WAITS_FOR_ISR}, None),
    ],
)
def test_an_interval_outside_a_range_rejects_its_hypothesis(
    ratio: dict[str, float], rejected_ids: set[str], expected: str | None
) -> None:
    answered = answer(cell_numbers(ratio))
    assert rejected(cell_numbers(ratio)) == rejected_ids
    assert (answered["answer"], answered["arm"], answered["against"], answered["ratio"]) == (expected, "B", "A", ratio)
    if expected:
        assert answered["missing"] == ""
    else:
        assert answered["missing"] == (
            "the ratio contradicts all of them"
            if rejected_ids
            else "the interval of the ratio does not distinguish them"
        )


@pytest.mark.parametrize("verdict", ["equivalent", "undecided", "slower"])
def test_without_a_faster_positive_control_nothing_is_rejected(verdict: str) -> None:
    cell = cell_numbers(interval(0.98, 1.02), positive=verdict)
    assert (answer(cell)["answer"], rejected(cell)) == (None, set())
    assert answer(cell)["missing"] == f"the positive control is {verdict}, so the cell would not show a difference"


def test_a_plan_without_a_positive_control_has_no_answer() -> None:
    arms = tuple(arm for arm in CELL.scenario.arms if arm.latency != "positive")
    cell = dataclasses.replace(CELL, scenario=dataclasses.replace(CELL.scenario, arms=arms))
    answered = predictions.answer(cell, cell_numbers(interval(0.98, 1.02)), ROUND_TRIPS)
    assert answered is not None
    assert answered["answer"] is None
    assert answered["missing"].startswith("the positive control is missing")
    assert [hypothesis["predicted_ms"] for hypothesis in answered["hypotheses"]] == [{}, {}]


@pytest.mark.parametrize("reason", predictions.NO_DATA)
def test_a_ratio_that_lacks_data_rejects_nothing(reason: str) -> None:
    cell = cell_numbers(interval(0.98, 1.02), reason=reason)
    assert (answer(cell)["answer"], rejected(cell)) == (None, set())
    assert reason in answer(cell)["missing"]
    assert answer(cell_numbers(None, reason="missing"))["answer"] is None


def test_a_cell_without_a_question_has_no_answer() -> None:
    assert predictions.answer(dataclasses.replace(CELL, question=None), cell_numbers(None), ROUND_TRIPS) is None


def test_medians_are_of_measured_blocks_without_the_warm_up() -> None:
    # Four blocks of 30.0, 30.3, 30.6 and 30.9 ms, after a warm-up.
    assert answer(cell_numbers(None))["measured_ms"]["A"] == pytest.approx({"low": 30.0, "point": 30.45, "high": 30.9})


def test_predictions_add_round_trips_of_the_slowest_awaited_follower_to_the_acks_1_median() -> None:
    base_ms = BASE_MS * 1.015
    required, isr = answer(cell_numbers(None))["hypotheses"]
    # Broker 2 is the nearest of the delayed followers, because it is in the leader's rack.
    near_ms, delayed_ms, farthest_ms = 1.0, SLOW_RTT_MS, SLOW_RTT_MS + 1.5
    slowest_ms = {"A": delayed_ms, "A'": delayed_ms, "B": near_ms, "C": near_ms}
    assert set(required["predicted_ms"]) == set(slowest_ms)
    for arm, ms in slowest_ms.items():
        assert required["predicted_ms"][arm] == pytest.approx([base_ms + ms, base_ms + 2 * ms])
        assert isr["predicted_ms"][arm] == pytest.approx([base_ms + farthest_ms, base_ms + 2 * farthest_ms])


def test_without_round_trips_or_acks_1_data_there_are_no_predictions() -> None:
    for round_trips in ({}, {frozenset("ab"): 1.0}):
        answered = predictions.answer(CELL, cell_numbers(interval(0.98, 1.02)), round_trips)
        assert answered is not None
        assert [hypothesis["predicted_ms"] for hypothesis in answered["hypotheses"]] == [{}, {}]
        assert answered["answer"] == WAITS_FOR_ISR, "the ratio needs no prediction in ms"
    no_base = cell_numbers(interval(0.98, 1.02), medians={"A": 30.0, "B": 30.0})
    assert [hypothesis["predicted_ms"] for hypothesis in answer(no_base)["hypotheses"]] == [{}, {}]


def test_round_trips_between_racks_are_measured_between_brokers() -> None:
    rows = [
        {"source": "clients", "target": "broker-1", "p50_ms": 7.0},
        {"source": "broker-1", "target": "broker-3", "p50_ms": 1},
        {"source": "broker-5", "target": "broker-1", "p50_ms": 1.5},
        {"source": "broker-3", "target": "controller-101", "p50_ms": 8.0},
    ]
    racks = {str(broker): rack for broker, rack in RACKS.items()}
    assert predictions.rack_round_trips(rows, racks) == {frozenset("ab"): 1.0, frozenset("ac"): 1.5}
    assert predictions.rack_round_trips([], racks) == {}


def test_the_verdict_text_has_the_answer_predictions_and_measured_ratio() -> None:
    cell = cell_numbers(interval(0.98, 1.02))
    verdict = verdicts.question_verdict(cell | {"answer": answer(cell)})
    assert (verdict["about"], verdict["verdict"]) == ("question", "answered")
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

    undecided = cell_numbers(interval(0.98, 1.02), positive="equivalent")
    verdict = verdicts.question_verdict(undecided | {"answer": answer(undecided)})
    assert verdict["verdict"] == "undecided"
    assert verdict["text"].startswith("Undecided: the positive control is equivalent, so ")

    missing = cell_numbers(None, reason="missing")
    verdict = verdicts.question_verdict(missing | {"answer": answer(missing)})
    assert verdict["text"].endswith(" Nothing was measured.")


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    """Return a result of two cells; the first one has a question with an answer."""
    data = made_up()
    (first, _) = data["cells"]
    first["answer"] = answer(cell_numbers(interval(0.98, 1.02)))
    data["verdicts"] = verdicts.sentences(data)
    return dict(json.loads(json.dumps(data)))


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
    # Each hypothesis predicts A, B and C; acks=1 is the base of the predictions, and A' repeats A.
    assert len(axes.collections) - len(axes.containers) == (6 if has_predictions else 0)
    assert len(axes.containers) == 4
    measured = [text.get_text() for text in axes.texts]
    assert measured == ["30.5 ms", "30.5 ms", "30.5 ms", "3 ms"]
    ticks = [axes.yaxis.get_major_formatter()(place) for place in range(4)]
    assert [tick.replace("\n", " ") for tick in ticks] == [LABELS[arm] for arm in ("A", "B", "C", "P")]


def test_the_page_begins_with_the_question_its_answer_and_its_picture(result: dict[str, Any], tmp_path: Path) -> None:
    page = run_page.render(result, tmp_path).read_text(encoding="utf-8")
    verdict, *_ = result["verdicts"]
    assert verdict["about"] == "question"
    body = page[page.index("<body") :]
    parts = [f"<h2>{verdict['subject']}</h2>", "A leader waits for the whole ISR.", 'id="picture-answer-healthy"',
             '<ul class="verdicts">']  # fmt: skip
    positions = [body.index(part) for part in parts]
    assert positions == sorted(positions)
    assert body.index("<h2>") == positions[0]
    assert body.index("<figure") < positions[3]
    assert body.index("<figure id=") == positions[2] - len("<figure ")
    # The question appears once, and not in the list of verdicts.
    assert body.count(verdict["subject"]) == 1
    assert (tmp_path / "answer-healthy.png").stat().st_size > 5_000


def test_the_picture_of_a_single_cell_has_no_suffix_and_needs_an_answer(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_blank_figures(monkeypatch)
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


def test_the_power_is_the_share_of_runs_that_reject_the_false_hypothesis() -> None:
    generator = np.random.default_rng(1)
    error, freedom, distance = 0.3, 8, math.log(0.95 / 0.5)
    blocks = freedom + 1
    values = generator.normal(distance, error * math.sqrt(blocks), (4000, blocks))
    estimates = [inference.mean_estimate(row, 0.0).interval(0.025) for row in values]
    share = sum(interval.low > 0 for interval in estimates) / len(estimates)
    assert inference.power(error, freedom, distance, 0.025) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(("error", "least", "most"), [(0.01, 0.999, 1.0), (0.3, 0.3, 0.7), (5.0, 0.0, 0.1)])
def test_noisy_blocks_have_little_power_and_the_verdict_states_it(error: float, least: float, most: float) -> None:
    numbers = cell_numbers(interval(0.98, 1.02))
    for row in numbers["comparisons"]:
        row["error"] = error
    numbers["answer"] = answer(numbers)
    assert least <= numbers["answer"]["power"] <= most
    expected = "> 99.9 %" if error == 0.01 else f"{100 * numbers['answer']['power']:.0f} %"
    assert f"with probability {expected}" in verdicts.question_verdict(numbers)["text"]
