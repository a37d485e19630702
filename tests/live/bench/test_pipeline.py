"""The benchmark's pipeline on generated observations, without a cluster: analysis, end-to-end check, report."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.analysis import availability, exit_reasons, latency_analysis, record_check, verdicts
from bench.analysis.comparisons import CellMeasurements, compare
from bench.analysis.latency_analysis import SCHEMA_VERSION
from bench.load.pacer import record_key
from bench.load.spark_load import SCHEMA
from bench.report import cell_table, figures, run_page
from bench.report.availability_table import NONE
from bench.spark_session import spark_session
from bench_observations import (
    CELL,
    OUTAGE,
    SCENARIO,
    SLOWER,
    START_NS,
    latency_rows,
    outage_history,
    outage_rows,
)
from bench_results import bin_counts
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write_json
from spark_cluster import SHORT_SESSION


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Run the complete analysis once."""
    folder = tmp_path_factory.mktemp("pipeline")
    rows = pd.concat([latency_rows(), outage_rows()])
    with spark_session(folder / "spark", master="local[2]", conf=SHORT_SESSION) as spark:
        spark.createDataFrame(rows, SCHEMA).write.parquet(str(folder / "raw"))
        raw = latency_analysis.read_raw(spark, folder / "raw")
        outage = availability.summarise(spark, raw, outage_history(), OUTAGE, SCENARIO.outage_arms, START_NS)
        availability.add_behaviours(outage)
        yield {
            "latency": latency_analysis.cells(latency_analysis.measurements(raw, SCENARIO.cells))[0],
            "outage": outage,
            "checked": checked(spark, rows),
            "rows": rows,
        }


def checked(spark: Any, rows: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Run the end-to-end check on a correct log, and on one with a defect of each kind."""
    sent = rows[(rows["phase"] == "latency") & (rows["arm"] == "A")].reset_index(drop=True)
    keys = [record_key("r", "latency", "A", int(seq)).decode() for seq in sent["seq"]]
    log = pd.DataFrame({"topic": "rf5-m3", "partition": 0, "offset": sent["offset"], "key": keys})
    others = pd.DataFrame({"topic": "rf5-m3", "partition": 0, "offset": [90_000, 90_001], "key": ["probe/1", None]})
    broken = log[log["offset"] != 7].copy()
    broken.loc[broken["offset"] == 20, "key"], broken.loc[broken["offset"] == 21, "key"] = keys[21], keys[20]
    more = pd.DataFrame(
        {"topic": "rf5-m3", "partition": 0, "offset": [99_998, 99_999], "key": [keys[-1], "r/latency/A/999999"]}
    )
    schema = "topic string, partition int, offset long, key string"
    raw = spark.createDataFrame(sent, SCHEMA)
    logs = {"whole": pd.concat([log, others]), "broken": pd.concat([broken, more])}
    found = {
        name: record_check.check_records(raw, spark.createDataFrame(one, schema), "r") for name, one in logs.items()
    }
    # records swapped in pairs: two tasks may send them in this order, a single task may not
    swapped = log.assign(offset=log["offset"] ^ 1)
    for name, tasks in (("one task", 1), ("two tasks", 2)):
        shared = sent.assign(offset=sent["offset"] ^ 1, task=(sent["seq"] % tasks).astype("int32"))
        own = spark.createDataFrame(shared, SCHEMA)
        found[name] = record_check.check_records(own, spark.createDataFrame(swapped, schema), "r")
    # each partition has its own offsets; a record in the other one is not where it was acknowledged
    places = {"partition": (sent["seq"] % 2).astype("int32"), "offset": sent["seq"] // 2}
    own, wide = spark.createDataFrame(sent.assign(**places), SCHEMA), log.assign(**places)
    for name, one in (("two partitions", wide), ("exchanged", wide.assign(partition=1 - wide["partition"]))):
        found[name] = record_check.check_records(own, spark.createDataFrame(one, schema), "r")
    return found


@pytest.fixture(scope="module")
def result(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the result as a run writes it."""
    whole: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "cells": [
            outcome["latency"]
            | {"discarded": []}
            | {"findings": {"rate_per_s": 100.0, "isr": [1, 3], "isr_racks": ["a", "b"], "slow": []}}
            | {"rejections": [{"session": 1, "rejected": {}, "rejected_after": {}, "expected_to_reject": []}]}
        ],
        "outage": outcome["outage"],
        "end_to_end": outcome["checked"]["whole"],
        "hosts": [{"host": "here", "intended": 9, "acked": 9}],
        "notes": ["a note with <angle> brackets"],
        "usage": {
            phase: [{"kind": "brokers", "processes": 5, "cpus": 0.5, "rss_mb_max": 1500.0}]
            for phase in ("latency", "outage")
        }
        | {
            "later": [
                {"kind": "probe", "processes": 1, "cpus": None, "rss_mb_max": 0.0},
                {"kind": "unknown", "processes": 3, "cpus": None, "rss_mb_max": None},
            ]
        },
        "manifest": {
            "run_id": "r",
            "command": "rackgate bench run --scenario question",
            "machine": {"kernel": "6.1", "cpu": "a CPU", "cpus": 2, "memory_gib": 24.0},
            "versions": {"kafka": "4.0.0", "spark": "4.2.0"},
            "links": {"a-b": "netem"},
            "distribution": {"patch_hash": "abc123"},
            "round_trips": {
                state: [{"source": "clients", "target": "broker-1", "p50_ms": 1.1, "p99_ms": 1.9}]
                for state in ("idle", "under_load")
            },
            "rates": {},
            "scenario": SCENARIO.as_json(),
            "duration_s": {"whole": 200.0},
        },
    }
    return whole | exit_reasons.conclude(exit_reasons.run_reasons(whole), verdicts.sentences(whole))


def test_percentiles_are_exact_and_limited_by_the_sample(outcome: dict[str, Any]) -> None:
    rows = outcome["rows"]
    for arm in outcome["latency"]["arms"]:
        own = rows[(rows["phase"] == "latency") & (rows["arm"] == arm["arm"]) & rows["measured"]]
        expected = np.quantile((own["done_ns"] - own["intended_ns"]) / 1e6, [0.5, 0.9, 0.99])
        found = arm["percentiles_ms"]
        assert [found["p50"], found["p90"]] == pytest.approx(expected[:2])
        # 1,500 observations: 15 beyond p99, one beyond p99.9.
        assert found["p99"] == pytest.approx(expected[2])
        assert found["p99.9"] is None
        assert arm["curve"]["quantiles"][-1] <= arm["highest_quantile"]
        assert arm["pacer_late_ms"]["p50"] == pytest.approx(0.1)


def test_warm_up_is_shown_and_does_not_count(outcome: dict[str, Any]) -> None:
    rounds = outcome["latency"]["rounds"]
    warm = max(row["p50_ms"] for row in rounds if row["block"] < 0)
    assert warm > 10 * max(row["p50_ms"] for row in rounds if row["block"] >= 0)
    assert all(arm["max_ms"] < 30 for arm in outcome["latency"]["arms"])


def test_equal_arms_are_equivalent_and_the_slower_one_slower(outcome: dict[str, Any]) -> None:
    comparisons = {(row["arm"], row["at"]): row for row in outcome["latency"]["comparisons"]}
    assert comparisons["A'", "p50"]["verdict"] == comparisons["A'", "p99"]["verdict"] == "equivalent"
    assert comparisons["B", "p50"]["verdict"] == comparisons["B", "p99"]["verdict"] == "slower"
    assert comparisons["B", "p50"]["ratio"]["point"] == pytest.approx(SLOWER, rel=0.01)


def compared(rounds: list[dict[str, Any]], summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {
        arm: {row["block"]: bin_counts(np.array([row["p99_ms"]] * row["n"])) for row in rounds if row["arm"] == arm}
        for arm in summary
    }
    (rows,) = compare([CellMeasurements(CELL, rounds, summary, counts)])
    return {row["arm"]: row for row in rows if row["at"] == "p50"}


def test_an_unacknowledged_record_or_a_missing_block_is_undecided(outcome: dict[str, Any]) -> None:
    latency = outcome["latency"]
    summary = {arm["arm"]: arm for arm in latency["arms"]}
    lossy = summary | {"B": summary["B"] | {"acked": summary["B"]["acked"] - 1}}
    rows = compared(latency["rounds"], lossy)
    assert (rows["B"]["verdict"], rows["B"]["reason"]) == ("undecided", "not acknowledged")
    assert rows["A'"]["verdict"] == "equivalent"
    fewer = [row for row in latency["rounds"] if (row["block"], row["arm"]) != (2, "B")]
    missing = compared(fewer, summary)
    assert (missing["B"]["verdict"], missing["B"]["reason"], missing["B"]["ratio"]) == ("undecided", "missing", None)


def test_the_outage_is_decided_topic_by_topic(outcome: dict[str, Any]) -> None:
    topics = {topic["arm"]: topic for topic in outcome["outage"]["topics"]}
    did = {arm: topic["behaviour"] for arm, topic in topics.items()}
    assert did == {"A": "continued", "B": "continued", "D": "was rejected", "E": "continued unprotected"}
    rejected = topics["D"]
    assert rejected["settled_acked"] == rejected["acked_while_unavailable"] == 0
    assert (rejected["settled_done"], topics["A"]["settled_done"]) == (0, topics["A"]["settled_acked"])
    # including records sent before the settled part of the outage and acknowledged in it
    waited_s = topics["E"]["window_s"][0] - 15
    late = topics["E"]["settled_done"] - topics["E"]["settled_acked"]
    assert late == pytest.approx(OUTAGE.rate_per_s * waited_s, abs=2)
    assert topics["A"]["acked_while_unavailable"] == pytest.approx(OUTAGE.rate_per_s * (55.1 - 15), abs=2)
    assert rejected["probe"]["first_rejection_after_s"] == pytest.approx(9.6)
    assert rejected["first_ack_after_heal_s"] == pytest.approx(62 - 55.1 + 0.002, abs=0.03)
    assert rejected["sent_under_fault_ms"]["max"] == pytest.approx(47_000, rel=0.01)
    assert rejected["probe"]["exceptions"] == {"TimeoutException": 19, "NotEnoughRacksException": 75}
    # no record was in flight when the fault was verified: all of E's acks are without the rack
    assert rejected["acked_without_rack"] == rejected["probe"]["acked_without_rack"] == 0
    assert topics["E"]["acked_without_rack"] == topics["E"]["acked_while_unavailable"]
    assert topics["E"]["probe"]["acked_without_rack"] == len(range(49, 110))
    burst = max(point["acked"] for point in rejected["series"])
    assert burst >= OUTAGE.rate_per_s * 40
    assert sum(point["acked"] for point in rejected["series"]) == OUTAGE.rate_per_s * OUTAGE.total_s


def test_a_correct_log_is_complete_and_probe_records_are_distinguished(outcome: dict[str, Any]) -> None:
    found = outcome["checked"]["whole"]
    assert {kind: one["count"] for kind, one in found["kinds"].items()} == dict.fromkeys(record_check.KINDS, 0)
    (topic,) = found["topics"]
    assert topic["acked"] == topic["read"] > 1000
    assert topic["of_others"] == 2


def test_every_kind_of_defect_is_found_with_an_example(outcome: dict[str, Any]) -> None:
    found = outcome["checked"]["broken"]["kinds"]
    counts = {kind: one["count"] for kind, one in found.items()}
    assert counts == {"lost": 1, "duplicated": 1, "invented": 1, "out_of_order": 1, "moved": 2}
    assert found["lost"]["examples"] == ["rf5-m3: r/latency/A/7"]
    assert found["invented"]["examples"] == ["rf5-m3: r/latency/A/999999"]


def test_records_of_several_clients_have_no_order_among_each_other(outcome: dict[str, Any]) -> None:
    checked = outcome["checked"]
    assert checked["one task"]["kinds"]["out_of_order"]["count"] == checked["one task"]["read"] // 2 > 100
    assert {kind: one["count"] for kind, one in checked["two tasks"]["kinds"].items() if one["count"]} == {}


def test_order_and_place_are_judged_within_each_partition(outcome: dict[str, Any]) -> None:
    whole, exchanged = outcome["checked"]["two partitions"], outcome["checked"]["exchanged"]
    assert {kind: one["count"] for kind, one in whole["kinds"].items() if one["count"]} == {}
    assert whole["acked"] == whole["read"] > 100
    counts = {kind: one["count"] for kind, one in exchanged["kinds"].items() if one["count"]}
    assert counts == {"moved": exchanged["acked"]}


def test_the_verdict_names_the_defects_found(result: dict[str, Any]) -> None:
    assert result["exit_status"] == 0
    lines = verdicts.lines(result["verdicts"])
    assert len(lines) == 4 + 2 + 1
    rejected = next(line for line in lines if "WAS REJECTED" in line)
    assert "rf3-m2r2" in rejected
    assert "NotEnoughRacksException" in rejected
    assert any("SLOWER" in line and "p50" in line for line in lines)
    assert lines[-1].endswith("None lost, duplicated, invented, out of order, at another offset than acknowledged.")


def test_an_ack_despite_the_gate_is_in_the_verdict(result: dict[str, Any]) -> None:
    leaky = json.loads(json.dumps(result))
    leaky["outage"]["topics"][2]["acked_without_rack"] = 5
    verdict = verdicts.outage_verdicts(leaky["outage"])[2]
    # behaviour in the settled part of the outage that fails the run
    assert verdict["verdict"] == "was rejected"
    assert "5 records that waited when the rack left the ISR were acknowledged" in verdict["text"]
    (reason,) = exit_reasons.run_reasons(leaky)
    assert (reason.verdict, reason.subject) == ("failed", "rack b unavailable: RF=3, M=2, R=2 (rf3-m2r2)")


def test_a_failed_control_is_named_as_the_reason(result: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(result["cells"][0]))
    for row in changed["comparisons"]:
        row["verdict"], row["reason"] = "undecided", "noise" if row["is_control"] else "control"
    texts = [row["text"] for row in verdicts.latency_verdicts(changed)]
    assert all("Undecided: the control failed" in text for text in texts)
    assert not any("Smallest detectable ratio" in text for text in texts)


def numbers_of(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from numbers_of(one)
    elif isinstance(value, int | float):
        yield float(value)


def test_the_report_is_complete_and_made_only_from_the_stored_result(result: dict[str, Any], tmp_path: Path) -> None:
    write_json(tmp_path / "results.json", result)
    page = run_page.render(run_page.load(tmp_path), tmp_path).read_text(encoding="utf-8")
    assert set(figures.pictures(result)) == {"percentiles", "blocks", "timeline"}
    for name in figures.pictures(result):
        data = (tmp_path / f"{name}.png").read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert data[:4] == b"\x89PNG"
        assert min(width, height) > 500
        assert page.count(f'id="picture-{name}"') == 1
        for look in ("wide", "narrow"):
            assert f'id="{name}-{look}-figure_1"' in page
    assert page.count("<svg ") == 2 * 3
    assert not re.search(r'(src|href)="(?!#)', page), "the page must not reach out"
    assert "a note with &lt;angle&gt; brackets" in page
    assert "<td>unknown (could not be read)</td><td>3</td>" in page
    assert not any(colour in page for colour in figures.MARKED.names().values())
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for used in re.findall(r"url\(#([^)]+)\)", page) + re.findall(r'href="#([^"]+)"', page):
        assert used in ids
    for row in result["verdicts"]:
        assert row["subject"] in page
    assert "M=2, R=2" in (tmp_path / "table.md").read_text(encoding="utf-8")


def several(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with a second cell, in which M=3 rejects writes, and without an outage."""
    whole: dict[str, Any] = json.loads(json.dumps(result))
    first = whole["cells"][0]
    second = json.loads(json.dumps(first)) | {"cell": "isr-2", "state": "isr-2-in-2-racks", "judged": ["p50"]}
    nothing = {"rejected": True, "rejected_with": "NotEnoughReplicasException", "curve": None, "pacer_late_ms": None}
    for arm in second["arms"]:
        if arm["role"] != "candidate":
            arm |= nothing | {"intended": 0, "acked": 0, "max_ms": None}
            arm["percentiles_ms"] = arm["client_percentiles_ms"] = dict.fromkeys(arm["percentiles_ms"])
    second["rounds"] = [row for row in second["rounds"] if row["arm"] == "B"]
    for row in second["comparisons"]:
        row |= {"verdict": "undecided", "reason": "rejected", "rejected": ["A"], "ratio": None, "mean_ratio": None}
        row |= dict.fromkeys(("detectable_ratio", "blocks_needed", "p_equivalent", "p_different"))
    whole["cells"].append(second)
    whole["outage"] = None
    whole["manifest"]["rates"] = {
        "az3-outside": {"sustained_per_s": 500.0, "kept_up": True, "ended": True,
                        "steps": [{"rate_per_s": 500.0, "p50_ms": 3.0}, {"rate_per_s": 1000.0, "p50_ms": None}]}
    }  # fmt: skip
    whole["verdicts"] = verdicts.sentences(whole)
    return whole


def test_a_result_of_several_cells_has_each_cell_s_pictures_and_one_table(
    result: dict[str, Any], tmp_path: Path
) -> None:
    both = several(result)
    page = run_page.render(both, tmp_path).read_text(encoding="utf-8")
    names = {"overview", "percentiles-healthy", "blocks-healthy", "percentiles-isr-2", "blocks-isr-2"}
    assert {path.stem for path in tmp_path.glob("*.png")} == names == set(figures.pictures(both))
    assert all(page.count(f'id="picture-{name}"') == 1 for name in names)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert not re.search(r'(src|href)="(?!#)', page), "the page must not reach out"
    subjects = [row["subject"] for row in both["verdicts"] if row["about"] == "latency"]
    # The second cell compares only the median.
    assert [subject.split(":")[0] for subject in subjects] == ["healthy", "healthy", "isr-2"]
    assert "rejects records (NotEnoughReplicasException), no latency" in page
    verdict = next(row for row in both["verdicts"] if row["subject"].startswith("isr-2"))
    assert verdict["text"].startswith("No latency to compare: records of M=3 (NotEnoughReplicasException) are rejected")
    rows = [line for line in cell_table.markdown(both).split("Availability")[0].splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 2
    assert all(line.count("|") == len(cell_table.HEAD) + 1 for line in rows)
    assert "slower" in rows[1]
    assert "no latency: M=3 rejects" in rows[2]


def test_a_cell_with_its_own_baseline_names_it(result: dict[str, Any]) -> None:
    both = several(result)
    for row in both["cells"][1]["comparisons"]:
        row["against"] = "B" if row["arm"] != "B" else "A'"
    rows = [line for line in cell_table.markdown(both).splitlines() if line.startswith("| ")]
    assert "(to " not in rows[1]
    assert "M=2, R=2 (to M=3 again (control))" in rows[2]
    figure = figures.overview(both, figures.FigureStyle(figures.MARKED))
    figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["healthy", "isr-2\n(over M=2, R=2)"]


def test_a_result_without_an_outage_gives_a_report(result: dict[str, Any], tmp_path: Path) -> None:
    empty = json.loads(json.dumps(result))
    empty["outage"].update(proved=False, inject_s=None, heal_s=None, healed_s=None)
    for topic in empty["outage"]["topics"]:
        topic.update(
            window_s=None, isr=[], looked_until_s=None, left_after_s=None, fewest_racks=None, behaviour="unknown"
        )
    empty["verdicts"] = verdicts.sentences(empty)
    # as for an existing cluster
    own = {"ahead_ms": 1.25, "error_ms": 0.06, "how": "connection", "same": False}
    executor = {"host": "here", "cpus": 3, "versions": {"python": "3.11.2"}, "clock": own}
    empty["manifest"]["executors"], empty["usage"] = [executor, {**executor, "host": "idle"}], {"healthy": []}
    page = run_page.render(empty, tmp_path).read_text(encoding="utf-8")
    assert page.count("The fault was not proved to have taken effect") == 4
    assert "2 load hosts, 200 s" in page
    assert "<td>here</td><td>3</td><td>9</td><td>9</td>\n<td>+1.250 ± 0.060</td>" in page
    assert f"<td>idle</td><td>3</td><td>{NONE}</td><td>{NONE}</td>" in page
    assert "<h2>Machine" not in page


def test_a_file_that_is_no_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match="run 'rackgate bench run' first"):
        run_page.load(tmp_path)
    for text in ("[]", "{}", '{"schema": 4}', '{"schema": "x", "cells": []}'):
        (tmp_path / "results.json").write_text(text, encoding="utf-8")
        with pytest.raises(RackgateError, match="not a result of the benchmark"):
            run_page.load(tmp_path)
    for schema, age in ((run_page.OLDEST_SCHEMA - 1, "an earlier"), (SCHEMA_VERSION + 1, "a later")):
        (tmp_path / "results.json").write_text(json.dumps({"schema": schema, "cells": []}), encoding="utf-8")
        with pytest.raises(RackgateError, match=f"has {age} schema, {schema}; this version reads"):
            run_page.load(tmp_path)


def test_a_number_that_is_not_finite_is_never_written(result: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "results.json", {**result, "broken": math.nan})
    assert not (tmp_path / "results.json").exists()
    assert all(math.isfinite(number) for number in numbers_of(result))
