"""Checker of acknowledgements in an outage that leaves too few racks, independent of ISRs and observations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyhooks.checkers.judgement import judge
from pyhooks.checkers.progress import check_progress
from pyhooks.checkers.promise import check_promise
from pyhooks.checkers.rack_spread import check_spread
from pyhooks.history.event_log import Event
from pyhooks.kafka.gate import MIN_INSYNC_RACKS, MIN_INSYNC_REPLICAS
from written_histories import S, Simulated, changed, event, is_, key, outage, without


def late_shrink(
    racks: dict[int, str] | None = None, *, op: str = "kill-rack", result: str = "ok", **more: Any
) -> Simulated:
    """Long outage of rack b; the ISR shrinks 9 s after its loss, and 18 records wait until then.

    Args:
        racks: rack of each replica.
        op: op of the fault.
        result: ``ok``: they and 19 later records are acknowledged within 1.8 s; ``fail``: they time out.
        more: further data of each step of the fault.
    """
    cluster = Simulated(dict(racks or {1: "a", 2: "a", 3: "b"}), need_replicas=1)
    for _ in range(12):
        cluster.produce()
        cluster.look()
        cluster.now += S // 2

    def step(name: str, outcome: Any) -> None:
        cluster.note("fault", op, outcome, "b", step=name, **more)

    for name, outcome in (("before", "ok"), ("inject", None), ("proved", "ok")):
        step(name, outcome)
    cluster.now += S // 2
    waiting = []
    for _ in range(18):
        waiting.append(_begin_attempt(cluster))
        cluster.now += S // 2
        cluster.look()
    cluster.down = {broker for broker, rack in cluster.racks.items() if rack == "b"}
    cluster.look()
    for fields in waiting:
        _end_attempt(cluster, fields, result)
    for at in range(19):
        _end_attempt(cluster, _begin_attempt(cluster), result)
        if at % 5 == 0:
            cluster.look()
        cluster.now += S // 11
    for _ in range(16):
        cluster.produce()
        cluster.look()
        cluster.now += S // 2
    step("held", "ok")
    step("heal", None)
    cluster.down.clear()
    longest = max((log.keys for log in cluster.logs.values()), key=lambda keys: len(keys))
    for log in cluster.logs.values():
        log.keys = list(longest)
    cluster.rest(1)
    step("healed", "ok")
    cluster.rest(5)
    for _ in range(6):
        cluster.produce()
        cluster.look()
        cluster.now += S // 2
    return cluster


def _begin_attempt(cluster: Simulated) -> dict[str, Any]:
    """Begin an attempt and return its data."""
    if cluster.seq >= cluster.announced:
        cluster.announce(cluster.seq + 10)
    fields = {"run": cluster.run, "topic": "t", "key": key(cluster.seq), "seq": cluster.seq, "partition": 0,
            "sent_ns": cluster.now, "mode": "plain"}  # fmt: skip
    cluster.seq += 1
    cluster.now += 1_000_000
    return fields


def _end_attempt(cluster: Simulated, fields: dict[str, Any], result: str) -> None:
    latency = {"latency_ms": (cluster.now - fields["sent_ns"]) / 1e6}
    if result == "ok":
        for broker in cluster.isr:
            cluster.logs[broker].keys.append(fields["key"])
        offset = len(cluster.logs[cluster.isr[0]].keys) - 1
        cluster.note("producer", "produce", "ok", **fields, **latency, offset=offset)
    else:
        cluster.note("producer", "produce", "unknown", **fields, **latency, exception="Timeout", retriable=True)


@pytest.mark.parametrize("op", ["kill-rack", "pause-rack", "wipe-rack", "cut-rack"])
def test_an_acknowledgement_by_one_rack_when_the_isr_shrinks_is_wrong(op: str) -> None:
    """Waiting records bypass the gate, or it closes late; the other checkers grant both to the settling time."""
    events = late_shrink(op=op).finish()
    assert check_progress(events).valid == check_promise(events).valid == "true"
    verdict = check_spread(events)
    assert verdict.valid == "false"
    assert len(verdict.because) == 37
    assert "could have it; 2 are required" in verdict.because[0]
    assert {verdict.checker for verdict in judge(events)[0] if verdict.valid == "false"} == {"spread"}


def test_records_that_time_out_are_valid() -> None:
    verdict = check_spread(late_shrink(result="fail").finish())
    assert (verdict.valid, verdict.because) == ("true", ())
    counts = [re.findall(r"\d+", note) for note in verdict.notes]
    assert counts == [["0", "53", "1", "53"]], "acknowledgements, other outcomes, outages, outcomes with too few racks"


@pytest.mark.parametrize(
    ("racks", "valid"),
    [
        ({1: "a", 2: "c", 3: "b"}, "true"),
        ({1: "a", 2: "a", 3: "a", 4: "b"}, "false"),
        # an unknown broker may be in another rack; a broker without a rack is in none
        ({1: "a"}, "true"),
        ({1: "", 2: "a", 3: "b"}, "false"),
        ({1: "", 2: "", 3: "b"}, "false"),
        ({1: "", 2: "a", 3: "b", 4: "c"}, "true"),
    ],
)
def test_the_remaining_racks_count(racks: dict[int, str], valid: str) -> None:
    assert check_spread(late_shrink(racks).finish()).valid == valid


def test_the_side_of_a_partition_with_enough_racks_may_acknowledge() -> None:
    """A partitioned broker may lead, and clients may be on its side."""
    cluster = late_shrink(op="cut-broker", broker=3).finish()
    assert check_spread(cluster).valid == "false"
    assert check_spread(late_shrink({1: "a", 2: "c", 3: "b"}, op="cut-broker", broker=3).finish()).valid == "true"
    # two racks are partitioned from the others together; the leader may be among them
    assert (
        check_spread(late_shrink({1: "a", 3: "b", 4: "b"}, op="cut-rack", brokers=[1, 3, 4]).finish()).valid == "true"
    )
    assert check_spread(late_shrink({1: "a", 3: "b", 4: "b"}, op="kill-rack", brokers=[3, 4]).finish()).valid == "false"


def test_a_partition_from_only_some_racks_is_not_judged() -> None:
    verdict = check_spread(late_shrink(op="cut-rack", peers=["a"], brokers=[3]).finish())
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert "no fault was proved" in verdict.because[0]
    assert "spread" not in {verdict.checker for verdict in judge(late_shrink(op="cut-rack", peers=["a"]).finish())[0]}
    assert "spread" not in {verdict.checker for verdict in judge(late_shrink(op="slow-rack").finish())[0]}


def with_changed_r(events: Sequence[Event], at_s: float, racks: int) -> list[Event]:
    """Add a change of R ``at_s`` after the fault was verified; it settles half a second later."""
    verified_ns = next(entry.mono_ns for entry in events if entry.data.get("step") == "proved")
    fields: dict[str, Any] = {"topic": "t", MIN_INSYNC_REPLICAS: 1}
    changes = [
        event(
            round(verified_ns + (at_s + more) * S),
            "settings",
            "settings",
            **(fields | {MIN_INSYNC_RACKS: value}),
            step=step,
        )
        for step, more, value in (("seen", -0.01, 2), ("begin", 0.0, racks), ("settled", 0.5, racks))
    ]
    return sorted([*events, *changes], key=lambda entry: entry.mono_ns)


def test_the_lowest_possible_requirement_counts() -> None:
    events = late_shrink().finish()
    assert check_spread(with_changed_r(events, 1.0, 1)).valid == "true"
    assert check_spread(with_changed_r(events, 1.0, 3)).valid == "false"
    # records acknowledged before the request stay wrong
    verdict = check_spread(with_changed_r(events, 10.5, 1))
    assert verdict.valid == "false"
    assert 18 <= len(verdict.because) < 37


def test_all_possible_replicas_count() -> None:
    """A reassignment adds a replica in another rack, or removes one, while records wait."""
    events = late_shrink({1: "a", 2: "a", 3: "b"}).finish()
    begun = next(at for at, entry in enumerate(events) if entry.data.get("step") == "proved")
    observed = [at for at, entry in enumerate(events) if entry.op == "look" and at > begun]

    def moved(until: int, replicas: list[int]) -> list[Event]:
        changed_events = list(events)
        for at in observed[:until]:
            state = {**events[at].data["partitions"]["t-0"], "replicas": replicas}
            racks = {**events[at].data["racks"], "5": "c"}
            changed_events[at] = replace(
                events[at], data={**events[at].data, "racks": racks, "partitions": {"t-0": state}}
            )
        return changed_events

    assert check_spread(moved(len(observed), [1, 2, 3, 5])).valid == "true"
    assert check_spread(moved(len(observed), [1, 2])).valid == "false"
    # a partition with a single replica requires one rack
    assert len(check_spread(moved(6, [1])).because) < 37


def test_a_broker_that_changed_racks_may_have_been_in_either() -> None:
    events = late_shrink().finish()
    verified_ns = next(entry.mono_ns for entry in events if entry.data.get("step") == "proved")
    first = next(at for at, entry in enumerate(events) if entry.op == "look" and entry.mono_ns > verified_ns + 4 * S)
    racks = {**events[first].data["racks"], "2": "c"}
    events[first] = replace(events[first], data={**events[first].data, "racks": racks})
    assert 19 <= len(check_spread(events).because) < 37


def test_missing_evidence_is_unknown() -> None:
    events = late_shrink().finish()
    complete = check_spread(events)

    def reasons(incomplete: Sequence[Event]) -> str:
        verdict = check_spread(incomplete)
        assert verdict.valid == "unknown", verdict
        return "; ".join(verdict.because)

    assert "the fault was not proved to have lasted" in reasons(without(events, is_("kill-rack", step="held")))
    assert "the fault was not proved to have lasted" in reasons(
        changed(events, is_("kill-rack", step="held"), outcome="unknown")
    )
    assert "no fault was proved" in reasons(changed(events, is_("kill-rack", step="proved"), outcome="unknown"))
    assert "its required replicas and racks are unknown" in reasons(
        [entry for entry in events if entry.op != "settings"]
    )
    assert "its placement was not observed" in reasons([entry for entry in events if entry.op != "look"])
    held_ns = next(entry.mono_ns for entry in events if entry.data.get("step") == "held")
    assert "not observed before and after" in reasons(
        [entry for entry in events if entry.op != "look" or not held_ns - 26 * S < entry.mono_ns < held_ns - 2 * S]
    )
    assert check_spread(without(events, is_("kill-rack", step="heal"))) == complete
    idle = Simulated()
    idle.rest(4)
    idle.produce()
    idle.lose("b")
    idle.heal("b")
    assert "no attempt began and ended in 1 outages" in reasons(idle.finish())


def test_attempts_outside_the_verified_outage_are_not_judged() -> None:
    cluster = outage()
    events = cluster.finish()
    verified_ns = next(entry.mono_ns for entry in events if entry.data.get("step") == "proved")
    held_ns = next(entry.mono_ns for entry in events if entry.data.get("step") == "held")
    rejected = [entry for entry in events if entry.op == "produce" and verified_ns < entry.mono_ns < held_ns]
    (first, *_) = rejected

    def verdict(sent_ns: int | None, done_ns: int) -> str:
        data = {**first.data, "offset": 5} | ({} if sent_ns is None else {"sent_ns": sent_ns})
        data = {name: value for name, value in data.items() if name != "sent_ns" or sent_ns is not None}
        attempt = replace(first, mono_ns=done_ns, outcome="ok", data=data)
        return check_spread([attempt if entry is first else entry for entry in events]).valid

    times_inside = (verified_ns + S // 2, held_ns - S // 2)
    assert verdict(*times_inside) == "false"
    assert verdict(verified_ns - 1, times_inside[1]) == "true"
    assert verdict(times_inside[0], held_ns + 1) == "true"
    assert verdict(None, times_inside[1]) == "true"


def test_an_acknowledgement_with_acks_1_is_not_judged() -> None:
    events = [
        replace(entry, data={**entry.data, "acks": "1"}) if entry.op == "intend" else entry
        for entry in late_shrink().finish()
    ]
    verdict = check_spread(events)
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert "no attempt" in verdict.because[0]
