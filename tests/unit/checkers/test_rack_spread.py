"""Acknowledgements in an outage that too few racks can hold, whatever ISRs and observations report."""

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


def late(racks: dict[int, str] | None = None, *, op: str = "kill-rack", ends: str = "ok", **more: Any) -> Simulated:
    """Rack b is away for long; the ISR shrinks 9 s later, and 18 records wait for that, which then end in a way.

    Args:
        racks: of the replicas.
        op: of the fault.
        ends: ``ok``: they and 19 more are acknowledged, in 1.8 s; ``fail``: none is.
        more: what each step of the fault tells.
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
        waiting.append(_ask(cluster))
        cluster.now += S // 2
        cluster.look()
    cluster.down = {broker for broker, rack in cluster.racks.items() if rack == "b"}
    cluster.look()
    for fields in waiting:
        _end(cluster, fields, ends)
    for at in range(19):
        _end(cluster, _ask(cluster), ends)
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
    longest = max((one.keys for one in cluster.logs.values()), key=lambda keys: len(keys))
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


def _ask(cluster: Simulated) -> dict[str, Any]:
    """A record is sent that is in the log of the leader's rack."""
    if cluster.seq >= cluster.announced:
        cluster.announce(cluster.seq + 10)
    fields = {"run": cluster.run, "topic": "t", "key": key(cluster.seq), "seq": cluster.seq, "partition": 0,
            "sent_ns": cluster.now, "mode": "plain"}  # fmt: skip
    cluster.seq += 1
    cluster.now += 1_000_000
    return fields


def _end(cluster: Simulated, fields: dict[str, Any], ends: str) -> None:
    latency = {"latency_ms": (cluster.now - fields["sent_ns"]) / 1e6}
    if ends == "ok":
        for broker in cluster.isr:
            cluster.logs[broker].keys.append(fields["key"])
        offset = len(cluster.logs[cluster.isr[0]].keys) - 1
        cluster.note("producer", "produce", "ok", **fields, **latency, offset=offset)
    else:
        cluster.note("producer", "produce", "unknown", **fields, **latency, exception="Timeout", retriable=True)


@pytest.mark.parametrize("op", ["kill-rack", "pause-rack", "wipe-rack", "cut-rack"])
def test_an_acknowledgement_by_one_rack_when_the_isr_shrinks_is_wrong(op: str) -> None:
    """A gate that is missing where records wait, and one that closes late: the others grant both to a change."""
    events = late(op=op).finish()
    assert check_progress(events).valid == check_promise(events).valid == "true"
    verdict = check_spread(events)
    assert verdict.valid == "false"
    assert len(verdict.because) == 37
    assert "could have it; 2 are required" in verdict.because[0]
    assert {one.checker for one in judge(events)[0] if one.valid == "false"} == {"spread"}


def test_a_record_that_waits_without_acknowledgement_is_valid() -> None:
    verdict = check_spread(late(ends="fail").finish())
    assert (verdict.valid, verdict.because) == ("true", ())
    counts = [re.findall(r"\d+", note) for note in verdict.notes]
    assert counts == [["0", "53", "1", "53"]], "acknowledgements, other outcomes, outages, outcomes with too few racks"


@pytest.mark.parametrize(
    ("racks", "valid"),
    [
        ({1: "a", 2: "c", 3: "b"}, "true"),
        ({1: "a", 2: "a", 3: "a", 4: "b"}, "false"),
        # one of which nothing is known may be in another rack, one without a rack is in none
        ({1: "a"}, "true"),
        ({1: "", 2: "a", 3: "b"}, "false"),
        ({1: "", 2: "", 3: "b"}, "false"),
        ({1: "", 2: "a", 3: "b", 4: "c"}, "true"),
    ],
)
def test_the_remaining_racks_count(racks: dict[int, str], valid: str) -> None:
    assert check_spread(late(racks).finish()).valid == valid


def test_the_side_of_a_partition_with_enough_racks_may_acknowledge() -> None:
    """A broker is cut off: it may lead, and clients may be with it."""
    cluster = late(op="cut-broker", broker=3).finish()
    assert check_spread(cluster).valid == "false"
    assert check_spread(late({1: "a", 2: "c", 3: "b"}, op="cut-broker", broker=3).finish()).valid == "true"
    # two racks are partitioned together with a third one, which may have the leader
    assert check_spread(late({1: "a", 3: "b", 4: "b"}, op="cut-rack", brokers=[1, 3, 4]).finish()).valid == "true"
    assert check_spread(late({1: "a", 3: "b", 4: "b"}, op="kill-rack", brokers=[3, 4]).finish()).valid == "false"


def test_a_partition_from_only_some_racks_is_left_out() -> None:
    verdict = check_spread(late(op="cut-rack", peers=["a"], brokers=[3]).finish())
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert "no fault was proved" in verdict.because[0]
    assert "spread" not in {one.checker for one in judge(late(op="cut-rack", peers=["a"]).finish())[0]}
    assert "spread" not in {one.checker for one in judge(late(op="slow-rack").finish())[0]}


def lowered(events: Sequence[Event], at_s: float, racks: int) -> list[Event]:
    """Add a change of R at some time after the proof of the fault, settled half a second later."""
    proved = next(entry.mono_ns for entry in events if entry.data.get("step") == "proved")
    fields: dict[str, Any] = {"topic": "t", MIN_INSYNC_REPLICAS: 1}
    changes = [
        event(
            round(proved + (at_s + more) * S), "settings", "settings", **(fields | {MIN_INSYNC_RACKS: value}), step=step
        )
        for step, more, value in (("seen", -0.01, 2), ("begin", 0.0, racks), ("settled", 0.5, racks))
    ]
    return sorted([*events, *changes], key=lambda entry: entry.mono_ns)


def test_the_least_that_may_have_been_required_counts() -> None:
    events = late().finish()
    assert check_spread(lowered(events, 1.0, 1)).valid == "true"
    assert check_spread(lowered(events, 1.0, 3)).valid == "false"
    # those that were acknowledged before it was asked for
    verdict = check_spread(lowered(events, 10.5, 1))
    assert verdict.valid == "false"
    assert 18 <= len(verdict.because) < 37


def test_all_possible_replicas_count() -> None:
    """A reassignment brings one in another rack, while records wait, and takes another one away."""
    events = late({1: "a", 2: "a", 3: "b"}).finish()
    begun = next(at for at, entry in enumerate(events) if entry.data.get("step") == "proved")
    looks = [at for at, entry in enumerate(events) if entry.op == "look" and at > begun]

    def moved(until: int, replicas: list[int]) -> list[Event]:
        found = list(events)
        for at in looks[:until]:
            state = {**events[at].data["partitions"]["t-0"], "replicas": replicas}
            racks = {**events[at].data["racks"], "5": "c"}
            found[at] = replace(events[at], data={**events[at].data, "racks": racks, "partitions": {"t-0": state}})
        return found

    assert check_spread(moved(len(looks), [1, 2, 3, 5])).valid == "true"
    assert check_spread(moved(len(looks), [1, 2])).valid == "false"
    # one replica of a single one is all that is required, as long as it may be
    assert len(check_spread(moved(6, [1])).because) < 37


def test_a_broker_that_changed_racks_may_have_been_in_either() -> None:
    events = late().finish()
    proved = next(entry.mono_ns for entry in events if entry.data.get("step") == "proved")
    first = next(at for at, entry in enumerate(events) if entry.op == "look" and entry.mono_ns > proved + 4 * S)
    racks = {**events[first].data["racks"], "2": "c"}
    events[first] = replace(events[first], data={**events[first].data, "racks": racks})
    assert 19 <= len(check_spread(events).because) < 37


def test_missing_evidence_is_unknown() -> None:
    events = late().finish()
    whole = check_spread(events)

    def reasons(left: Sequence[Event]) -> str:
        verdict = check_spread(left)
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
    held = next(entry.mono_ns for entry in events if entry.data.get("step") == "held")
    assert "not observed before and after" in reasons(
        [entry for entry in events if entry.op != "look" or not held - 26 * S < entry.mono_ns < held - 2 * S]
    )
    assert check_spread(without(events, is_("kill-rack", step="heal"))) == whole
    idle = Simulated()
    idle.rest(4)
    idle.produce()
    idle.lose("b")
    idle.heal("b")
    assert "no attempt began and ended in 1 outages" in reasons(idle.finish())


def test_attempts_outside_the_proved_outage_are_not_judged() -> None:
    cluster = outage()
    events = cluster.finish()
    proved = next(entry.mono_ns for entry in events if entry.data.get("step") == "proved")
    held = next(entry.mono_ns for entry in events if entry.data.get("step") == "held")
    refused = [entry for entry in events if entry.op == "produce" and proved < entry.mono_ns < held]
    (first, *_) = refused

    def verdict(sent_ns: int | None, done_ns: int) -> str:
        data = {**first.data, "offset": 5} | ({} if sent_ns is None else {"sent_ns": sent_ns})
        data = {name: value for name, value in data.items() if name != "sent_ns" or sent_ns is not None}
        own = replace(first, mono_ns=done_ns, outcome="ok", data=data)
        return check_spread([own if entry is first else entry for entry in events]).valid

    inside = (proved + S // 2, held - S // 2)
    assert verdict(*inside) == "false"
    assert verdict(proved - 1, inside[1]) == "true"
    assert verdict(inside[0], held + 1) == "true"
    assert verdict(None, inside[1]) == "true"


def test_an_acknowledgement_with_acks_1_is_not_judged() -> None:
    events = [
        replace(entry, data={**entry.data, "acks": "1"}) if entry.op == "intend" else entry for entry in late().finish()
    ]
    verdict = check_spread(events)
    assert (verdict.valid, len(verdict.because)) == ("unknown", 1)
    assert "no attempt" in verdict.because[0]
