"""Figures in the documents equal those of the evidence that the documents cite."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from typing import Any

import pytest

from ducktape_tests.kafkatest.nodes import ARMS
from ducktape_tests.kafkatest.results import short
from pyhooks.core import paths

EVIDENCE = paths.REPO / "kip" / "evidence"


def result(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EVIDENCE / f"{run}.json").read_text(encoding="utf-8"))["result"]
    return found


def question_values() -> dict[str, Any]:
    """Return ``answer`` and ``comparisons`` of the cell that decides the question, whatever its id."""
    return {name.rpartition("/")[2]: value for name, value in result("question").items()}


def document(name: str) -> str:
    return " ".join((paths.REPO / name).read_text(encoding="utf-8").split())


def system_figures(test: str) -> dict[str, Any]:
    found: dict[str, Any] = result("system")["tests"][test]["figures"]
    return found


def quoted_transactions() -> list[str]:
    """Return the sentences about producers and readers in an outage."""
    figures = system_figures("transactions_test.py::TransactionsTest.test_producers_ride_out_an_outage")
    by_kind: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for producer in figures["producers"]:
        by_kind.setdefault((producer["client"], producer["mode"]), []).append(producer)
    (java_idempotent,) = by_kind["patched", "idempotent"]
    (c_idempotent,) = by_kind["confluent", "idempotent"]
    # of each kind, the producer with the long timeout has the slowest transaction
    java_short, java = sorted(by_kind["patched", "transactional"], key=lambda producer: producer["longest_s"])
    librdkafka = max(by_kind["confluent", "transactional"], key=lambda producer: producer["longest_s"])
    readers = {reader["topic"]: reader["held_up_in_the_outage_s"] for reader in figures["readers"]}
    assert not {"unknown", "fail"} & (java["records"].keys() | librdkafka["records"].keys())
    ends = java_short["transactions"]
    (unknown,) = (outcome.removesuffix(" unknown") for outcome in ends if outcome.endswith(" unknown"))
    assert ends[f"{unknown} unknown"] == 1
    names = ("producers_ride_out_an_outage", "the_transactions_topic_is_rejected_too")
    tests = [result("system")["tests"][f"transactions_test.py::TransactionsTest.test_{name}"] for name in names]
    (checkers,) = {len(test["verdicts"]) for test in tests}
    assert {verdict for test in tests for verdict in test["verdicts"].values()} == {"true"}
    return [
        f"All {checkers} checkers were true",
        f"all {java_idempotent['records']['ok']:,} and {c_idempotent['records']['ok']:,} records acknowledged, "
        f"the slowest after {java_idempotent['slowest_s']} and {c_idempotent['slowest_s']} s",
        f"{java['transactions']['commit ok']} and {librdkafka['transactions']['commit ok']} transactions committed, "
        f"the slowest took {java['longest_s']} and {librdkafka['longest_s']} s; no outcome is unknown",
        f"{java_short['transactions']['commit ok']} transactions committed, the outcome of one {unknown} is unknown, "
        f"and so is that of {java_short['records']['unknown']} records",
        f"no progress for {readers['aab']} s of the outage on a, a, b and for {readers['abc']} s on a, b, c",
    ]


def quoted_acks_one() -> list[str]:
    """Return the sentences about acks=1 and about latencies while a rack catches up."""
    figures = system_figures("acks_one_test.py::AcksOneTest.test_taken_hidden_and_shown")
    before, slow, after = (figures["acks_all_latency"][phase] for phase in ("before", "catching up", "after"))
    return [
        f"rack b killed for {figures['acks_all_latency']['outage']['seconds']} s",
        f"The {figures['backlog_records']:,} records of the backlog",
        f"the backlog ({figures['backlog_bytes'] / 1e6:.0f} MB in that run) "
        f"had a median of {before['p50_ms']:.0f} ms before the outage, "
        f"{slow['p50_ms']:.0f} ms in the {slow['seconds']} s of catching up ({slow['max_ms']:.0f} ms at most), "
        f"and {after['p50_ms']:.0f} ms afterwards",
    ]


def quoted_destruction() -> list[str]:
    """Return the sentences about destroyed racks under load, in system tests and in the benchmark."""
    (control,) = (test["figures"] for test in result("one-rack")["tests"].values())
    destroyed = result("destroyed")["tests"]
    rounds = destroyed["destroyed_test.py::DestroyedTest.test_no_acknowledged_record_is_lost"]["figures"]
    assert (rounds["lost"], len(rounds["rounds"])) == (0, 21)
    level_off = destroyed["destroyed_test.py::LevelOffTest.test_the_only_holder_is_forgotten"]["figures"]
    stock = system_figures("destroyed_test.py::StockTest.test_the_only_holder_is_forgotten")
    assert level_off["lost"] == stock["lost"]
    killed = result("outages")["/destructions/fault=kill/topics/arm=B"]
    in_tests = [
        system_figures(f"destroyed_test.py::KilledTest.test_the_{rack}_rack_returns_first")
        for rack in ("killed", "destroyed")
    ]
    assert not killed["lost"]
    assert not any(figures["lost"] for figures in in_tests)
    # what happened to another rack while a rack was destroyed
    meanwhile = [text for text in rounds["rounds"].values() if "meanwhile" in text]
    killed_rounds, cut, paused = (sum(f"({how})" in text for text in meanwhile) for how in ("kill", "cut", "pause"))
    return [
        f"none of {rounds['acked']:,} acknowledged records was lost when racks were destroyed under load, "
        f"in {len(rounds['rounds'])} rounds of `make system-long` ([stored](evidence/destroyed.json))",
        f"{control['lost']} of {control['acked']:,} acknowledged records were lost with it",
        "On stock Kafka, and with the feature disabled, rack a was destroyed while b was partitioned: "
        f"all {stock['lost']} records acknowledged before the faults were lost",
        f"another rack was killed in {killed_rounds} of these rounds, partitioned in {cut} and paused in {paused}.",
        f"none of {sum(figures['acked'] for figures in in_tests)} was lost in two tests of `make system`",
        f"no acknowledged record lost; {result('destroyed')['counts']['pass']} of {len(destroyed)} tests pass |",
        f"[none of {killed['acked']}](../bench/README.md#availability-in-rack-outages)",
    ]


def append_targets(racks: int) -> list[dict[str, Any]]:
    """Return the measured values by target name of each stored comparison of an append."""
    return [
        {target["name"]: target["measured"] for target in targets}
        for name, targets in result("jmh").items()
        if name.startswith("/comparisons/name=append gate") and name.endswith(f"R={racks}/targets")
    ]


def added_ns(racks: int) -> str:
    """Return the lowest and the highest time added to an append, in ns; empty if it is not stored."""
    estimates = [measured["ns"]["estimate"] for measured in append_targets(racks)]
    return f"{min(estimates):.1f} to {max(estimates):.1f}" if estimates else ""


def quoted_append_cost() -> list[str]:
    """Return the texts about the targets of the cost, and about the time that the gate adds to an append."""
    stored = result("jmh")
    verdicts = [verdict for name, verdict in stored.items() if name.endswith("/verdict")]
    # the percentage is that of the time on stock
    times = [100 * measured["ns"]["estimate"] / measured["percent"]["estimate"] for measured in append_targets(2)]
    (seven,) = (value for name, value in stored.items() if name.endswith("append gate, ISR of 7, R=2/targets"))
    (percent,) = (target["measured"] for target in seven if target["name"] == "percent")
    texts = [
        f"{verdicts.count('met')} of {len(verdicts)} comparisons of an append meet all targets",
        f"takes {min(times):.0f} to {max(times):.0f} ns on stock",
        f"R=2 adds {added_ns(2)}",
        f"{percent['estimate']:.1f} % ({percent['low']:.1f} to {percent['high']:.1f})",
    ]
    # runs since 29 November 2026 store these, too
    if added_ns(1):
        texts.append(f"R=1 adds {added_ns(1)} ns")
    if targets := stored.get("/targets"):
        texts.append(f"{targets['met']} of {sum(targets.values())} targets")
    return texts


def test_the_cost_of_an_append_in_the_answers_to_reviewers_equals_the_evidence() -> None:
    assert f"{added_ns(1)} ns at R=1 and {added_ns(2)} at R=2" in document("kip/review.md")


def format_ratio(ratio: dict[str, float]) -> str:
    return f"{ratio['point']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"


def three_digits(value: float) -> str:
    return f"{value:#.3g}"


def tenths(value: float) -> str:
    # round half up: the stored values are rounded to hundredths
    return f"{value + 1e-9:.1f}"


def quoted_latency() -> list[str]:
    """Return the sentences about the latency of M=2 with R=2 over M=3."""
    tail = {name.rsplit("/", 1)[1]: row for name, row in result("bench").items() if "/comparisons/" in name}
    assert {row["verdict"] for row in tail.values()} == {"equivalent"}
    p50, p99 = (format_ratio(tail[f"arm=B&at={at}"]["ratio"]) for at in ("p50", "p99"))
    control50, control99 = (format_ratio(tail[f"is_control=True&at={at}"]["ratio"]) for at in ("p50", "p99"))
    question = question_values()
    answer = question["answer"]
    assert (answer["answer"], answer["arm"], answer["against"]) == ("waits-for-isr", "B", "A")
    assert [rival["id"] for rival in answer["hypotheses"] if rival["rejected"]] == ["waits-for-m"]
    verdicts = {(row["arm"], row["at"]): row["verdict"] for row in question["comparisons"]}
    assert (verdicts["B", "p50"], verdicts["B", "p99"]) == ("undecided", "undecided")
    ratio = answer["ratio"]
    (control,) = (row for row in question["comparisons"] if row["is_control"] and row["at"] == "p50")
    (acks_one,) = (row for row in question["comparisons"] if (row["arm"], row["at"]) == ("P", "p50"))
    assert (control["verdict"], control["blocks"], acks_one["verdict"]) == ("undecided", 10, "faster")
    (blocks,) = {row["blocks"] for row in tail.values()}
    return [
        f"links of 1 ms, {blocks} blocks of 20 s an arm",
        f"acks=1, the positive control, {acks_one['ratio']['point']:.3f} times",
        "M=3 against M=3, ten blocks "
        f"({control['ratio']['point']:.3f}, {control['ratio']['low']:.3f} to {control['ratio']['high']:.3f})",
        f"{p50} at the median and {p99} at the 99th percentile, both *equivalent*",
        f"The control is {control50} and {control99}",
        f"{ratio['point']:.3f} times ({ratio['low']:.3f} to {ratio['high']:.3f}) as long as M=3 at the median",
    ]


def quoted_load() -> list[str]:
    """Return the table rows and the sentence about 10,000 partitions."""
    tests = result("load")["tests"]
    outage = tests["load_test.py::LoadTest.test_outage_of_many_partitions"]["figures"]
    others = tests["load_test.py::LoadTest.test_others_beside_rejections"]["figures"]
    stock, overlay = outage["stock"]["reached_s"], outage["overlay"]["reached_s"]
    assert outage["stock"]["rejected_s"] == []
    assert all(test["verdicts"]["delivery"] == "true" for test in tests.values())
    # rejected against accepted, and the control
    ratios, controls = (
        [
            f"{three_digits(point)}{times} ({three_digits(low)} to {three_digits(high)})"
            for low, point, high in (others[request]["ratios"][number] for request in ("produce", "fetch"))
        ]
        for number, times in ((0, " times"), (1, ""))
    )
    passed = sum(test["outcome"] == "pass" for test in tests.values())
    rejected, acknowledged = outage["overlay"]["rejected_s"], outage["overlay"]["acknowledged_s"]
    return [
        f"| {tenths(min(stock['lost']))} to {tenths(max(stock['lost']))} s "
        f"| {tenths(min(overlay['lost']))} to {tenths(max(overlay['lost']))} s |",
        f"| none | {min(rejected):.1f} to {max(rejected):.1f} s |",
        f"| not interrupted | {min(acknowledged):.0f} to {max(acknowledged):.0f} s |",
        f"| {min(stock['back']):.0f} to {max(stock['back']):.0f} s "
        f"| {min(overlay['back']):.0f} to {max(overlay['back']):.0f} s |",
        f"{ratios[0]} those while they are accepted (R=1) for produce, and {ratios[1]} for fetch",
        f"In the control, R=1 against R=1, it is {controls[0]} and {controls[1]}.",
        f"and {outage['cycles']} outages each on stock and on the overlay",
        f"| [load](evidence/load.json) | {passed} of {len(tests)} tests pass |",
    ]


def quoted_system_tests() -> str:
    """Return the cell about the complete run of the system tests."""
    system = result("system")
    passed, unknown = system["counts"]["pass"], system["counts"]["unknown"]
    assert passed + unknown == len(system["tests"])
    return f"| {passed} of {len(system['tests'])} pass, {unknown} unknown |"


@pytest.mark.parametrize(
    "text",
    [
        *quoted_transactions(),
        *quoted_acks_one(),
        *quoted_destruction(),
        *quoted_append_cost(),
        *quoted_latency(),
        *quoted_load(),
        quoted_system_tests(),
    ],
)
def test_results_equal_the_evidence(text: str) -> None:
    assert text in document("kip/results.md")


@pytest.mark.parametrize("run", ["system", "destroyed", "load"])
def test_the_results_name_each_system_test_that_did_not_pass(run: str) -> None:
    others = [name for name, test in result(run)["tests"].items() if test["outcome"] != "pass"]
    page = document("kip/results.md")
    assert [name for name in others if f"`{name.partition('::')[2].partition('.')[0]}`" not in page] == []


def test_the_verdicts_on_twelve_cells_equal_the_result() -> None:
    rows = [row for cell in stored_bench("bench-full")["cells"] for row in cell["comparisons"]]
    rows = [row for row in rows if row["arm"] == "B" and row["ratio"] is not None]
    verdicts = Counter((row["against"], row["at"], row["verdict"]) for row in rows)
    assert not [key for key in verdicts if key[2] in ("faster", "slower")]
    assert verdicts["C", "p50", "equivalent"] == 1
    names = {3: "three", 7: "seven"}
    text = (
        f"The median is equivalent in {names[verdicts['A', 'p50', 'equivalent']]} cells "
        f"and undecided because of noise in {names[verdicts['A', 'p50', 'undecided']]}. "
        "The 99th percentile is undecided"
    )
    assert not verdicts["A", "p99", "equivalent"]
    assert text in document("kip/results.md")


def verdict_counts() -> Counter[str]:
    """Return the number of claims of KIP-1290 by verdict."""
    claims = tomllib.loads((paths.REPO / "kip" / "claims.toml").read_text(encoding="utf-8"))["claim"]
    return Counter(claim["verdict"] for claim in claims if claim["document"] == "kip")


def test_the_answers_to_reviewers_equal_the_evidence() -> None:
    answers = document("kip/review.md")
    ratio = question_values()["answer"]["ratio"]
    assert f"{ratio['point']:.3f} times ({ratio['low']:.3f} to {ratio['high']:.3f}) as long as M=3" in answers
    acks_one = system_figures("acks_one_test.py::AcksOneTest.test_taken_hidden_and_shown")
    assert f"{acks_one['backlog_records']:,} records in one [run]" in answers
    outage = system_figures("transactions_test.py::TransactionsTest.test_producers_ride_out_an_outage")
    (waited,) = (reader["held_up_in_the_outage_s"] for reader in outage["readers"] if reader["topic"] == "abc")
    assert f"for {waited} s in one run, even on a topic with enough racks" in answers
    for rejected in ("5.2 h", "6.4 h"):
        assert rejected in answers


def test_the_rejections_in_the_proposal_are_those_of_the_model() -> None:
    rows = [("a, a, b | 2 | 2", "5.2 h"), ("a, a, b | 3 | 1", "6.4 h"), ("a, a, a, b, c | 2 | 2", "9.1 s")]
    for setting, rejected in rows:
        assert f"| {setting} | {rejected} |" in document("kip/model.md")
        assert rejected in document("kip/KIP-1290.md")


def test_the_readme_counts_the_verdicts_on_the_kip() -> None:
    count = verdict_counts()
    refuted, conditional, confirmed = (count[name] for name in ("refuted", "confirmed with a condition", "confirmed"))
    expected = f"{refuted} are refuted, {conditional} are true with a condition and {confirmed} without"
    assert expected in document("README.md")


def test_the_summary_counts_the_verdicts_on_the_kip() -> None:
    text = document("kip/summary.md")
    assert all(f"| {verdict} | {count} |" in text for verdict, count in verdict_counts().items())


@pytest.mark.parametrize(("name", "words"), [("summary.md", 600), ("discussion-mail.md", 300)])
def test_short_documents_stay_short(name: str, words: int) -> None:
    assert len(re.findall(r"\S*\w\S*", (paths.REPO / "kip" / name).read_text(encoding="utf-8"))) <= words


def test_the_controls_whose_intervals_exclude_1_are_named() -> None:
    stored = json.loads((EVIDENCE / "bench-full" / "results.json").read_text(encoding="utf-8"))
    controls = [
        (cell["cell"], row["at"], row["ratio"])
        for cell in stored["cells"]
        for row in cell["comparisons"]
        if row["is_control"] and row["ratio"] is not None
    ]
    text = document("bench/README.md")
    assert f"the intervals of all {len(controls)} controls at p50 and p99 contain 1 but two" in text
    excluding = [control for control in controls if not control[2]["low"] <= 1 <= control[2]["high"]]
    assert len(excluding) == 2
    for cell, at, ratio in excluding:
        assert f"`{cell}` at {at} ({ratio['point']:.3f}, {ratio['low']:.3f} to {ratio['high']:.3f})" in text


def stored_bench(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EVIDENCE / name / "results.json").read_text(encoding="utf-8"))
    return found


def test_the_waits_after_a_rack_returned_equal_the_result() -> None:
    def seconds(value: dict[str, float]) -> str:
        return f"{value['mean'] / 1000:.1f} s ({value['low'] / 1000:.1f} to {value['high'] / 1000:.1f})"

    states = stored_bench("bench-returned")["states"]
    assert [state["lab"] for state in states] == ["stock", "overlay-R1", "overlay-R2"]
    for label, state in zip(("stock Kafka, M=3", "overlay, M=3, R=1", "overlay, M=2, R=2"), states, strict=True):
        arm, control = state["arms"]
        columns = (arm["catch_up_p50_ms"], arm["catch_up_max_ms"], control["catch_up_max_ms"])
        assert f"| {' | '.join([label, *map(seconds, columns)])} |" in document("bench/README.md")


def test_the_cost_of_the_overlay_equals_the_result() -> None:
    table = {(row["quantity"], row["partitions"], row["arm"]): row for row in stored_bench("bench-overlay")["table"]}
    for label, quantity, partitions, unit in (
        ("1 partition", "MB/s", 1, "MB/s"),
        ("8 partitions", "MB/s", 8, "MB/s"),
        ("64 partitions", "MB/s", 64, "MB/s"),
        ("mean latency, 1 partition", "mean latency, ms", 1, "ms"),
    ):
        values = table[quantity, partitions, "stock"]["values"]
        ratios = [table[quantity, partitions, arm]["ratio"] for arm in ("overlay, R=1", "overlay, R=2")]
        cells = [f"{ratio['point']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})" for ratio in ratios]
        line = " | ".join([label, f"{sum(values) / len(values):.1f} {unit}", *cells])
        assert f"| {line} |" in document("bench/README.md")


def test_the_instruments_of_the_healthy_cell_equal_the_result() -> None:
    stored, text = stored_bench("bench-healthy"), document("bench/README.md")
    measured = [stored["instruments"][arm] for arm in "ABCF"]

    def span(instrument: str, value: str, decimals: int) -> str:
        values = [arm[instrument][value] for arm in measured]
        return f"{min(values):.{decimals}f} to {max(values):.{decimals}f} ms"

    assert f"produce to consumer takes {span('end-to-end', 'p50_ms', 0)} (p50)" in text
    assert f"a transaction of one record {span('transaction', 'p50_ms', 0)} (p50)" in text
    assert f"`kafka-producer-perf-test` reports a mean of {span('producer-perf-test', 'mean_ms', 1)}" in text
    records = [instrument["records"] for arm in measured for instrument in arm.values()]
    assert f"with {min(records)} to {max(records)} records an arm" in text
    ratios = {row["arm"]: row["ratio"] for row in stored["comparisons"] if row["at"] == "p50"}
    for arm in "BF":
        ratio = ratios[arm]
        assert f"over A {ratio['point']:.3f}, {ratio['low']:.3f} to {ratio['high']:.3f}" in text


def listed_cases() -> list[str]:
    """Return the rows of the table of Kafka's system tests."""
    text = (paths.REPO / "kip" / "results.md").read_text(encoding="utf-8")
    return re.findall(r"^\| \w+\.test_\w+ .*\|$", text, re.MULTILINE)


def test_the_verdicts_of_kafkas_system_tests_equal_the_result() -> None:
    stored = json.loads((EVIDENCE / "kafkatest.json").read_text(encoding="utf-8"))
    page, cases, own = document("kip/results.md"), stored["cases"], stored["patched"]["cases"]
    suite = [row for row in cases if row["predicted"]]
    passing = [row for row in suite if all(row[arm] == "pass" for arm in ARMS)]
    assert f"{len(passing)} of {len(suite)} cases of the suite pass in all three arms" in page
    runs = sum(row[arm] != "not run" for row in suite for arm in ARMS)
    assert f"({runs} of {len(suite) * len(ARMS)} runs have a verdict)" in page
    # the table has every other case, of the suite or not, and only these
    expected = []
    for row in (row for row in cases if row not in passing):
        predicted = row["predicted"]["gate"] if row["predicted"] else "none"
        line = " | ".join([short(row["case"]), *(row[arm] for arm in ARMS), predicted])
        expected.append(f"| {line} |")
    assert listed_cases() == expected
    assert "Each verdict of `gate` is the one predicted" in page
    assert [row["gate"] for row in suite] == [row["predicted"]["gate"] for row in suite]
    assert "no case passes on stock and fails on the overlay" in page
    assert not [row for row in (*cases, *own) if row["stock"] == "pass" and row["overlay"] != "pass"]
    assert not any(row["problems"] for row in (*cases, *own))
    decided = [row for row in own if (row["stock"], row["overlay"]) == ("fail", "pass")]
    assert decided == own
    assert f"{len(decided)} of {len(own)} cases pass on the overlay and fail on stock" in page
