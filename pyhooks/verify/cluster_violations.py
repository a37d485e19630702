"""Violations of observations, faults, nodes, clients and metrics."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from pyhooks.checkers import many_partitions, slowdown
from pyhooks.checkers.cluster_view import HEALED, HELD
from pyhooks.checkers.expected_gauges import COUNTS, Truth
from pyhooks.checkers.gauges import BEHIND_S, METER, QUICK_S
from pyhooks.checkers.settling_times import NS
from pyhooks.checkers.transaction_recovery import BOUND_S
from pyhooks.history import events as ev
from pyhooks.history.event_log import Event
from pyhooks.history.outcomes import ERRORS, TOO_FEW_RACKS
from pyhooks.verify.stored_history import (
    NOT_ENOUGH_REPLICAS,
    SETTLE_NS,
    NotApplicableError,
    StoredHistory,
    changed,
    client_names,
    draw,
    edit_one,
    is_result,
    violation,
)

RACK_COUNTS = tuple(name for name in COUNTS.values() if "Rack" in name)
# How far a change of the ISR is moved: longer than a change may take to take effect, so that attempts contradict it.
MOVED_NS = 15 * NS


# -- cluster -----------------------------------------------------------------------------------------------------------


@violation("progress")
def move_isr_change(history: StoredHistory, choice: random.Random) -> list[Event]:
    """An ISR shrinks earlier or grows later than acknowledgements allow."""
    found = []
    for partition, known in history.windows.items():
        for before, after in pairwise(known):
            if before.enough is after.enough:
                continue
            # The insufficient state is extended over acknowledgements of the sufficient one.
            if before.enough:
                from_ns, to_ns = after.observation.at_ns - MOVED_NS, after.observation.at_ns
            else:
                from_ns, to_ns = before.to_ns, after.observation.at_ns + MOVED_NS
            if any(
                attempt.partition_name == partition
                and from_ns + 2 * SETTLE_NS < attempt.sent_ns
                and attempt.done_ns < to_ns - 2 * SETTLE_NS
                for attempt in history.acked
                if history.judged(attempt, enough=True)
            ):
                state = (after if before.enough else before).observation
                found.append((partition, from_ns, to_ns, list(state.isr)))
    partition, from_ns, to_ns, isr = draw(choice, found)
    return [
        _with_isr(event, str(partition), isr) if from_ns <= event.mono_ns <= to_ns else event
        for event in history.events
    ]


@violation("recovery")
def stay_out_of_sync(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A replica never returns to the ISR."""
    heals = [fault.heal_ns for fault in history.cluster.faults if fault.heal_ns is not None]
    found = [
        (str(partition), broker)
        for partition, observed in history.cluster.observations.items()
        for broker in observed[-1].isr
        if heals and observed[-1].at_ns > max(heals) + 70 * NS and broker != observed[-1].leader
    ]
    name, broker = draw(choice, found)
    return [
        _with_isr(event, name, [one for one in event.data["partitions"][name]["isr"] if one != broker])
        if event.mono_ns > max(heals) and ev.ObservationDetails.of(event) and name in event.data["partitions"]
        else event
        for event in history.events
    ]


def _with_isr(event: Event, partition: str, isr: Sequence[int]) -> Event:
    if ev.ObservationDetails.of(event) is None or partition not in event.data["partitions"]:
        return event
    state = {**event.data["partitions"][partition], "isr": list(isr)}
    return changed(event, partitions={**event.data["partitions"], partition: state})


@violation("progress promise")
def report_other_racks(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A broker reports another R than was set."""
    requested = {
        settings.topic
        for _, settings in ev.SettingsDetails.each(history.events)
        if settings.step in ("made", "settled")
    }
    seen = [
        event
        for event, settings in ev.SettingsDetails.each(history.events)
        if settings.step == "seen" and settings.topic in requested
    ]
    # Long after any change, and under no fault: then a broker that has not yet learned of a value is no excuse.
    quiet = [
        event
        for event in seen
        if not any(
            fault.inject_ns <= event.mono_ns and (fault.healed_ns is None or event.mono_ns <= fault.healed_ns + 5 * NS)
            for fault in history.cluster.faults
        )
        and len(history.cluster.settings.possible(event.data["topic"], event.mono_ns - 5 * NS, event.mono_ns)) == 1
    ]
    victim = draw(choice, quiet[1:])
    return edit_one(history, victim, **{"min.insync.racks": victim.data["min.insync.racks"] + 1})


@violation("faults")
def fail_fault_probe(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A probe contradicts that a fault held or was healed."""
    steps = [event for event, fault in ev.FaultDetails.each(history.events) if fault.step in (HELD, HEALED)]
    return edit_one(history, draw(choice, steps), outcome="fail")


@violation("crashes")
def crash_node(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A node is down although the test did not end it."""
    states = [event for event, state in ev.NodeStateDetails.each(history.events) if state.state == "up"]
    return edit_one(history, draw(choice, states), state="down")


@violation("crashes")
def log_fault(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A node logs a fatal error."""
    logs = [event for event, _ in ev.LoggedFaultsDetails.each(history.events)]
    return edit_one(
        history, draw(choice, logs), found=["[2026-01-01 00:00:00,000] FATAL [broker] planted (kafka.Kafka$)"]
    )


@violation("flood")
def log_twice(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A leader logs the beginning of a shortage twice."""
    found = [
        (event, place)
        for event, lines in ev.LogLinesDetails.each(history.events)
        for place, entry in enumerate(lines.entries)
        if "Rejecting writes with acks=all" in entry[3]
    ]
    event, place = draw(choice, found)
    entries = list(event.data["entries"])
    again = [entries[place][0] + 1, *entries[place][1:]]
    entries.insert(place + 1, again)
    ends = history.edit(lambda one: one is event, entries=entries)
    return [
        changed(one, entries=one.data["entries"] + 1)
        if one.op == "log-end" and one.data["node"] == event.data["node"] and "entries" in one.data
        else one
        for one in ends
    ]


# -- clients, features and metrics -------------------------------------------------------------------------------------


@violation("defaults")
def show_cause_to_default(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A default producer reports the cause of a rejection."""
    failed = [
        event
        for event, produced in ev.ProduceDetails.each(history.events)
        if produced.defaults and event.outcome != "ok"
    ]
    return edit_one(history, draw(choice, failed), exception=NOT_ENOUGH_REPLICAS)


@violation("known")
def report_unknown_error(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A client reports an error that it does not know."""
    clients = client_names(history)
    known = {details.client for _, details in ev.KnownErrorsDetails.each(history.events)}
    failed = [
        event
        for event, produced in ev.ProduceDetails.each(history.events)
        if produced.exception is not None and clients.get(produced.run or "") in known
    ]
    return edit_one(history, draw(choice, failed), exception="org.apache.kafka.common.errors.UnknownServerException")


@violation("rides")
def give_up_in_outage(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A client that retries gives up a record."""
    riding = {name for _, ride in ev.RideDetails.each(history.events) for name in ride.clients}
    runs = {
        intend.run
        for _, intend in ev.IntendDetails.each(history.events)
        if intend.client in riding and intend.idempotent
    }
    acked = [
        event
        for event, produced in ev.ProduceDetails.each(history.events)
        if produced.run in runs and event.outcome == "ok"
    ]
    timeout = f"{ERRORS}.TimeoutException"
    return edit_one(history, draw(choice, acked), outcome="unknown", offset=None, exception=timeout)


@violation("levels")
def change_level(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A request for a feature level has another result."""
    victim = draw(choice, [event for event, _ in ev.LevelDetails.each(history.events)])
    data = victim.data
    return edit_one(history, victim, after=data["before"] if data["after"] == data["to"] else data["to"])


@violation("versions")
def change_version(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A client uses another version of a request."""
    reports = [
        event for event, one in ev.VersionsDetails.each(history.events) if not one.baseline and len(one.versions)
    ]
    victim = draw(choice, reports)
    request = choice.choice(sorted(victim.data["versions"]))
    return edit_one(history, victim, versions={**victim.data["versions"], request: "99"})


@violation("warned")
def miss_warning(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A controller does not log partitions in too few racks."""
    warned = [event for event, warnings in ev.WarningsDetails.each(history.events) if any(warnings.counts.values())]
    if not warned:
        raise NotApplicableError
    victim = warned[-1]
    controller = choice.choice(sorted(name for name, counts in victim.data["counts"].items() if counts))
    return edit_one(history, victim, counts={**victim.data["counts"], controller: []})


@violation("metrics")
def change_gauge(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A broker reports a wrong number of partitions."""
    truth = Truth(history.events)
    found = [
        (event, name)
        for event, metrics in ev.MetricsDetails.each(history.events)
        # polls that the checker judges
        if metrics.latency_ms < QUICK_S * 1000
        and truth.from_ns is not None
        and truth.from_ns + BEHIND_S * NS <= event.mono_ns <= truth.to_ns - NS
        for name, value in metrics.values.items()
        if name in RACK_COUNTS and value is not None
    ]
    event, name = draw(choice, found)
    return edit_one(history, event, values={**event.data["values"], name: event.data["values"][name] + 10})


@violation("meter")
def count_rejections(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A meter counts more rejections than clients received."""
    metered = [
        event for event, metrics in ev.MetricsDetails.each(history.events) if metrics.values.get(METER) is not None
    ]
    brokers = sorted({event.data["broker"] for event in metered})
    broker = draw(choice, brokers)
    last = [event for event in metered if event.data["broker"] == broker][-1]
    return edit_one(history, last, values={**last.data["values"], METER: last.data["values"][METER] + 10**6})


@violation("alike")
def slow_commits(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A group's commits take longer because more racks are required."""
    pairs = [pair for _, alike in ev.AlikeDetails.each(history.events) for pair in alike.pairs]
    pair = draw(choice, pairs)
    return [
        changed(event, begun_ns=commit.begun_ns - NS)
        if (commit := ev.CommitDetails.of(event)) is not None and commit.group == pair[0]
        else event
        for event in history.events
    ]


@violation("idle")
def keep_hidden(history: StoredHistory, choice: random.Random) -> list[Event]:
    """Waiting records of an idle topic stay hidden after R was lowered."""
    found = []
    for event, idle in ev.IdleDetails.each(history.events):
        rounds = [one for one, _ in ev.VisibleDetails.each(history.events)]
        names = sorted({name for one in rounds for name in one.data["next"] if name.rpartition("-")[0] == idle.topic})
        before = [one for one in rounds if one.mono_ns <= event.mono_ns and one.data["high"].keys() >= set(names)]
        if names and before:
            found.append((event.mono_ns, names, before[-1].data))
    since_ns, names, frozen = draw(choice, found)
    return [
        changed(
            event,
            **{
                field: {
                    name: frozen[field][name] if name in names else value for name, value in event.data[field].items()
                }
                for field in ("next", "high")
            },
        )
        if event.mono_ns > since_ns and ev.VisibleDetails.describes(event)
        else event
        for event in history.events
    ]


@violation("unstuck")
def stick_reader(history: StoredHistory, choice: random.Random) -> list[Event]:
    """A reader of committed records stays where it was at the heal."""
    heal_ns = max((fault.heal_ns or 0 for fault in history.cluster.faults), default=0)
    followed = list(ev.FollowDetails.each(history.events))
    last_ns = max((event.mono_ns for event, _ in followed), default=0)
    names = sorted({(follow.run, follow.topic, follow.partition) for _, follow in followed})
    if not heal_ns or not names or last_ns <= heal_ns + (BOUND_S + 5) * NS:
        raise NotApplicableError
    name = choice.choice(names)
    mine = {id(event): follow for event, follow in followed if (follow.run, follow.topic, follow.partition) == name}
    position = max(
        (one.position for event, one in followed if id(event) in mine and event.mono_ns <= heal_ns), default=0
    )
    return [
        changed(event, position=min(position, mine[id(event)].position)) if id(event) in mine else event
        for event in history.events
    ]


@violation("slowdown")
def slow_others(history: StoredHistory, choice: random.Random) -> list[Event]:  # noqa: ARG001 - no choice
    """Other topics are slower while records are rejected."""
    found, _ = slowdown.blocks(history.events)
    rejecting = [block for (arm, _), block in found.items() if arm == slowdown.GATE]
    if not rejecting:
        raise NotApplicableError

    def slower(event: Event) -> Event:
        produced = ev.ProduceDetails.of(event)
        if produced is None or produced.sent_ns is None:
            return event
        sent_ns, topic = produced.sent_ns, produced.topic
        if not any(topic in block.topics and block.from_ns <= sent_ns < block.to_ns for block in rejecting):
            return event
        latency_ms = (event.mono_ns - sent_ns) / 1e6 if produced.latency_ms is None else produced.latency_ms
        return changed(event, latency_ms=2 * latency_ms)

    return [slower(event) for event in history.events]


@violation("stops")
def accept_probe(history: StoredHistory, choice: random.Random) -> list[Event]:
    """Patched Kafka accepts a probe in an outage of many partitions."""
    lost = [
        (event.mono_ns, edge.arm) for event, edge in ev.ReachedDetails.each(history.events) if edge.change == "lost"
    ]
    probed = {topic for _, arm in ev.ArmDetails.each(history.events) for topic in arm.probed}
    candidates = [
        attempt
        for attempt in history.records.attempts
        if attempt.exception in TOO_FEW_RACKS and attempt.mode == "probe" and attempt.topic in probed
        for fault in history.cluster.faults
        for from_ns, arm in lost
        if arm == many_partitions.OVERLAY
        and fault.heal_ns is not None
        and fault.inject_ns <= from_ns <= attempt.sent_ns
        and attempt.done_ns <= fault.heal_ns
    ]
    victim = draw(choice, candidates)
    return history.edit(is_result(victim), outcome="ok", offset=0, exception=None)
