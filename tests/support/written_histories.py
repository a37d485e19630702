"""Simulated cluster that generates correct histories, into which tests insert defects."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyhooks.checkers.record_view import offsets_of
from pyhooks.history.event_log import Event, Outcome
from pyhooks.history.record_format import key_of

MS = 1_000_000
S = 1_000 * MS
REJECTED = "org.apache.kafka.common.errors.NotEnoughRacksException"
TOO_FEW = "org.apache.kafka.common.errors.NotEnoughReplicasException"
TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"
RACKS = {1: "a", 2: "a", 3: "b"}


def event(
    at_ns: int, process: str, op: str, outcome: Outcome | None = "ok", rack: str | None = None, **data: Any
) -> Event:
    """Return an event as it is parsed from a history file."""
    return Event.parse(Event(at_ns, at_ns // MS, process, op, outcome, rack, data).line())


def probe(at_ns: int, exception: str | None, latency_ns: int = MS, mode: str = "probe", topic: str = "gated") -> Event:
    """Return a probe's attempt that ended at ``at_ns`` with an exception, or with an acknowledgement if None."""
    data: dict[str, Any] = {"topic": topic, "key": f"p/{topic}/0/{at_ns}", "mode": mode, "sent_ns": at_ns - latency_ns}
    data |= {"latency_ms": latency_ns / MS} | ({"exception": exception} if exception else {"offset": 1})
    return event(at_ns, "producer", "produce", "fail" if exception else "ok", **data)


def config(at_s: float, step: str, racks: int, outcome: Any = "ok", asked_s: float | None = None) -> Event:
    """Return a report of a topic's settings with min.insync.replicas=1; ``asked_s`` is the query's time, if any."""
    fields: dict[str, Any] = {"min.insync.replicas": 1, "min.insync.racks": racks, "topic": "t", "step": step}
    fields |= {} if asked_s is None else {"asked_ns": round(asked_s * S)}
    return event(round(at_s * S), "x", "settings", outcome, **fields)


@dataclass
class Log:
    """Log of one replica on its disk: keys by offset; None is a transaction marker."""

    keys: list[str | None] = field(default_factory=list)


@dataclass
class Simulated:
    """Correct cluster with the gate: one partition of topic ``t``, a producer and an observer.

    Attributes:
        racks: rack by broker; all brokers are replicas.
        need_replicas: min.insync.replicas.
        need_racks: min.insync.racks.
        mode: mode of the producer.
    """

    racks: dict[int, str] = field(default_factory=lambda: dict(RACKS))
    need_replicas: int = 2
    need_racks: int = 2
    mode: str = "plain"
    run: str = "producer-1"
    now: int = 0
    seq: int = 0
    txn: int = 0
    events: list[Event] = field(default_factory=list)
    logs: dict[int, Log] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    announced: int = 0

    def __post_init__(self) -> None:
        self.logs = {broker: Log() for broker in self.racks}
        self.settings("seen")
        self.look()

    # -- the cluster ----------------------------------------------------------------------------------------------

    @property
    def isr(self) -> list[int]:
        return [broker for broker in self.racks if broker not in self.down]

    @property
    def enough(self) -> bool:
        count = len(self.racks)
        racks = {self.racks[broker] for broker in self.isr}
        return len(self.isr) >= min(self.need_replicas, count) and len(racks) >= min(self.need_racks, count)

    def note(self, process: str, op: str, outcome: Outcome | None = "ok", rack: str | None = None, **data: Any) -> None:
        self.now += MS
        self.events.append(event(self.now, process, op, outcome, rack, **data))

    def settings(self, step: str) -> None:
        fields: dict[str, Any] = {"min.insync.replicas": self.need_replicas, "min.insync.racks": self.need_racks}
        self.note("isr-watch", "settings", topic="t", step=step, **fields)

    def look(self) -> None:
        state = {"leader": self.isr[0] if self.isr else -1, "isr": self.isr, "replicas": list(self.racks)}
        racks = {str(broker): rack for broker, rack in self.racks.items()}
        self.note("isr-watch", "look", racks=racks, partitions={"t-0": state})

    def rest(self, seconds: float, every_s: float = 0.5) -> None:
        """Let time pass, with observations."""
        until = self.now + round(seconds * S)
        while self.now < until:
            self.look()
            self.now += round(every_s * S)

    def step(self, op: str, rack: str, step: str, outcome: Outcome | None = None) -> None:
        self.note("fault", op, outcome, rack, step=step)

    def lose(
        self, rack: str, op: str = "kill-rack", *, wipe: bool = False, until_death: int = 0, until_proof: int = 0
    ) -> None:
        """Lose a rack to a fault; send records before the rack is dead, and more before the fault is verified."""
        self.step(op, rack, "before", "ok")
        self.step(op, rack, "inject")
        self.send(until_death)
        gone = {broker for broker, own in self.racks.items() if own == rack}
        self.down |= gone
        if wipe:
            self.logs |= {broker: Log() for broker in gone}
        self.send(until_proof)
        self.step(op, rack, "proved", "ok")
        self.rest(4)

    def heal(self, rack: str, op: str = "kill-rack") -> None:
        """Heal the rack; its replicas catch up."""
        self.step(op, rack, "held", "ok")
        self.step(op, rack, "heal")
        best = max((log for broker, log in self.logs.items() if broker not in self.down), key=lambda log: len(log.keys))
        for broker in [broker for broker, own in self.racks.items() if own == rack]:
            self.logs[broker] = Log(list(best.keys))
            self.down.discard(broker)
        self.rest(1)
        self.step(op, rack, "healed", "ok")
        self.rest(4)

    # -- the producer ---------------------------------------------------------------------------------------------

    def announce(self, to: int) -> None:
        self.announced = to
        fields: dict[str, Any] = {
            "mode": self.mode,
            "client": "patched",
            "first_only": self.mode == "plain",
            "idempotent": self.mode in ("idempotent", "transactional"),
        }
        self.note(
            "producer", "intend", None, run=self.run, topic="t", to={"0": to}, **fields
        )  # fmt: skip

    def write(self, key: str | None) -> int:
        for broker in self.isr:
            self.logs[broker].keys.append(key)
        return len(self.logs[self.isr[0]].keys) - 1

    def produce(self, *, lost_answer: bool = False, txn: int | None = None) -> str:
        """Send one record and respond as a correct broker does."""
        if self.seq >= self.announced:
            self.announce(self.seq + 10)
        key, sent = key_of(self.run, "t", 0, self.seq), self.now
        self.now += 3 * MS
        data: dict[str, Any] = {
            "run": self.run, "topic": "t", "key": key, "seq": self.seq, "partition": 0, "intended_ns": sent,
            "sent_ns": sent, "latency_ms": 3.0, "mode": self.mode,
        } | ({} if txn is None else {"txn": txn})  # fmt: skip
        self.seq += 1
        if not self.enough:
            sure: Outcome | None = "fail" if self.mode == "plain" else "unknown"
            # the broker checks the number of replicas first
            why = TOO_FEW if len(self.isr) < min(self.need_replicas, len(self.racks)) else REJECTED
            self.note("producer", "produce", sure, exception=why, retriable=True, **data)
        elif lost_answer:
            self.write(key)
            self.note("producer", "produce", "unknown", exception=TIMEOUT, retriable=True, **data)
        else:
            self.note("producer", "produce", "ok", offset=self.write(key), **data)
        return key

    def send(self, number: int) -> None:
        """Send records, with or without transactions."""
        for _ in range(number):
            if self.mode == "transactional":
                self.transaction(1, "ok")
            else:
                self.produce()

    def transaction(self, records: int, outcome: Outcome | None, *, committed: bool = True) -> None:
        """Send a transaction; abort it if writes are rejected. ``committed``: true result of an unknown outcome."""
        outcome = outcome if self.enough else "fail"
        begun, number = self.now, self.txn
        self.txn += 1
        keys = [self.produce(txn=number) for _ in range(records)]
        if self.enough:
            self.write(None)
        if outcome == "fail" or (outcome == "unknown" and not committed):
            self.aborted |= set(keys)
        asked = "abort" if outcome == "fail" else "commit"
        self.note(
            "producer", "txn", outcome, run=self.run, txn=number, asked=asked, records=records, begun_ns=begun
        )  # fmt: skip

    def end(self) -> None:
        self.note(
            "producer", "end", None, run=self.run, topic="t", attempts=self.seq, skipped=0, to={"0": self.seq}
        )  # fmt: skip

    # -- at the end -----------------------------------------------------------------------------------------------

    def read(self, name: str = "p1", isolation: str = "read_uncommitted", size: int = 7) -> None:
        """Read the partition in chunks."""
        keys = self.logs[self.isr[0]].keys
        held = [(at, key) for at, key in enumerate(keys) if key is not None]
        if isolation == "read_committed":
            held = [(at, key) for at, key in held if key not in self.aborted]
        about: dict[str, Any] = {"pass": name, "topic": "t", "partition": 0, "partitions": 1, "isolation": isolation}
        for part in chunks(held, size, len(keys)):
            self.note("reader", "read", **about, low=0, end=len(keys), **part)

    def stop_and_dump(self, size: int = 7) -> None:
        """Stop all brokers and read their disks."""
        for broker, log in self.logs.items():
            held = [(at, key) for at, key in enumerate(log.keys) if key is not None]
            about: dict[str, Any] = {"pass": "d1", "broker": broker, "topic": "t", "partition": 0}
            for part in chunks(held, size, len(log.keys)):
                self.note("disks", "disk", rack=self.racks[broker], **about, low=0, end=len(log.keys), **part)
            fields: dict[str, Any] = {"pass": "d1", "broker": broker, "replicas": [["t", 0]], "stopped": True}
            self.note("disks", "disk-end", rack=self.racks[broker], **fields)

    def finish(self) -> list[Event]:
        """End the run cleanly and return the complete history."""
        self.end()
        for name in ("p1", "p2"):
            self.read(name)
            self.read(name + "c", "read_committed")
        self.stop_and_dump()
        return self.events


def chunks(held: Sequence[tuple[int, str]], size: int, end: int) -> list[dict[str, Any]]:
    """Split records into chunks, as readers and disks report them."""
    parts = [held[at : at + size] for at in range(0, len(held), size)] or [[]]
    found, begin = [], 0
    for number, part in enumerate(parts):
        after = end if number == len(parts) - 1 else part[-1][0] + 1
        runs: list[list[int]] = []
        for at, _ in part:
            if runs and sum(runs[-1]) == at:
                runs[-1][1] += 1
            else:
                runs.append([at, 1])
        found.append({"begin": begin, "next": after, "runs": runs, "keys": [key for _, key in part]})
        begin = after
    return found


def two_requirements(required: Mapping[str, int], *, observed: bool = True, healed: bool = True) -> list[Event]:
    """Return an outage of rack b with observations of topics on racks a, a, b that require these numbers of racks.

    The rack is killed at 20 s, out of all ISRs from 30 s to 70 s, and healed at 65 to 72 s; observations end at 110 s.
    """
    found: list[Event] = []
    for topic, count in required.items():
        settings: dict[str, Any] = {"min.insync.replicas": 2, "min.insync.racks": count, "step": "made"}
        found.append(event(0, "settings", "settings", topic=topic, **settings))
    for half in range(220 if observed else 0):
        isr = [1, 2] if 60 <= half < 140 else [1, 2, 3]
        state = {"leader": 1, "isr": isr, "replicas": [1, 2, 3]}
        racks = {str(broker): rack for broker, rack in RACKS.items()}
        found.append(
            event(half * S // 2, "isr-watch", "look", racks=racks, partitions={f"{t}-0": state for t in required})
        )
    steps: list[tuple[int, str, Outcome | None]] = [
        (20, "inject", None), (21, "proved", "ok"), (65, "heal", None), (72, "healed", "ok"),
    ]  # fmt: skip
    for at_s, step, outcome in steps if healed else steps[:2]:
        found.append(event(at_s * S, "fault", "kill-rack", outcome, "b", step=step, target="b", brokers=[3]))
    return found


def outage(mode: str = "plain", rack: str = "b", **more: Any) -> Simulated:
    """Return a run in which a rack is lost and returns, with records throughout."""
    made = Simulated(mode=mode, **more)
    made.rest(4)
    _some(made)
    made.rest(2)
    made.lose(rack)
    _some(made)
    made.rest(2)
    made.heal(rack)
    _some(made)
    made.rest(4)
    return made


def back_again(racks: dict[int, str] | None = None, **more: Any) -> Simulated:
    """Return a run in which rack b was lost and its recovery is verified, without records."""
    made = Simulated(dict(racks or RACKS), **more)
    made.rest(4)
    made.lose("b")
    made.heal("b")
    return made


def _some(made: Simulated, number: int = 5) -> None:
    for at in range(number):
        if made.mode == "transactional":
            made.transaction(3, ("ok", "fail")[at % 2])
        else:
            made.produce()
        made.look()


def busy(made: Simulated, seconds: int, *, rejected: bool = False) -> None:
    """Produce and observe; if ``rejected``, records are rejected although the observed ISR is complete."""
    until = made.now + seconds * S
    while made.now < until:
        made.down |= {3} if rejected else set()
        made.produce()
        made.down -= {3} if rejected else set()
        made.look()
        made.now += S // 2


def random_run(seed: int, mode: str) -> Simulated:
    """Return a random run, determined by its seed."""
    choice = random.Random(seed)  # noqa: S311 - a seeded plan, not a secret
    placements = [RACKS, {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}, {1: "a", 2: "b", 3: "c"}, {1: "a", 2: "b"}]
    racks = dict(choice.choice(placements))
    made = Simulated(
        racks, need_replicas=choice.randint(1, len(racks)), need_racks=choice.randint(1, len(set(racks.values()))),
        mode=mode,
    )  # fmt: skip
    made.rest(4)
    _random_records(made, choice)
    names = sorted(set(racks.values()))
    for rack in choice.sample(names, choice.randint(0, len(names))) * choice.randint(1, 2):
        made.rest(1)
        op = _random_loss(made, choice, rack)
        # Another rack while the first one is down, healed before or after it.
        others = [name for name in names if name != rack]
        other = choice.choice(others) if len(others) > 1 and choice.random() < 0.3 else None
        if other is None:
            open_faults = [(rack, op)]
        else:
            open_faults = [(rack, op), (other, _random_loss(made, choice, other, may_wipe=False))]
            choice.shuffle(open_faults)
        for gone, its in open_faults:
            made.heal(gone, its)
            _random_records(made, choice)
            made.rest(2)
        if choice.random() < 0.3:
            made.read(f"m{made.now}")
    return made


def _random_loss(made: Simulated, choice: random.Random, rack: str, *, may_wipe: bool = True) -> str:
    wipe = may_wipe and choice.random() < 0.4
    op = "wipe-rack" if wipe else choice.choice(["kill-rack", "cut-rack"])
    # No records before a wipe takes effect: whether the wiped rack had them would be unknown.
    early = 0 if wipe else choice.randint(0, 2)
    made.lose(rack, op, wipe=wipe, until_death=early, until_proof=choice.randint(0, 2))
    _random_records(made, choice)
    made.rest(2)
    return op


def _random_records(made: Simulated, choice: random.Random) -> None:
    for _ in range(choice.randint(4, 12)):
        if made.mode == "transactional":
            outcome: Outcome | None = choice.choice(["ok", "ok", "fail", "unknown"])
            made.transaction(choice.randint(1, 4), outcome, committed=choice.random() < 0.5)
        else:
            made.produce()
        if choice.random() < 0.5:
            made.look()
    if made.mode != "transactional":
        made.rest(0.6, 0.2)
    # records without a later observation are not judged
    made.look()


def without(events: Sequence[Event], where: Callable[[Event], bool], which: int = 0) -> list[Event]:
    """Return a history without one of the matching events."""
    found = [at for at, one in enumerate(events) if where(one)]
    assert found, "there is no such event"
    removed = found[which]
    return [one for at, one in enumerate(events) if at != removed]


def changed(events: Sequence[Event], where: Callable[[Event], bool], which: int = 0, **data: Any) -> list[Event]:
    """Return a history with other data in one of the matching events; ``outcome`` replaces its outcome."""
    found = [at for at, one in enumerate(events) if where(one)]
    assert found, "there is no such event"
    chosen = found[which]
    fields = json.loads(json.dumps(dict(events[chosen].data)))
    outcome = data.pop("outcome", events[chosen].outcome)
    for key, value in data.items():
        fields[key] = value(fields[key]) if callable(value) else value
    other = replace(events[chosen], outcome=outcome, data=fields)
    return [other if at == chosen else one for at, one in enumerate(events)]


Where = Callable[[Event], bool]


def is_(op: str, outcome: str = "", **data: Any) -> Where:
    def matches(one: Event) -> bool:
        return (
            one.op == op
            and outcome in ("", one.outcome)
            and all(one.data.get(name) == value for name, value in data.items())
        )

    return matches


def key(seq: int) -> str:
    return key_of("producer-1", "t", 0, seq)


def drop(events: Sequence[Event], victim: str, where: Where) -> list[Event]:
    """Return a history in which a record is missing from the matching reads; other offsets stay unchanged."""

    def without_it(one: Event) -> Event:
        if not where(one) or victim not in one.data["keys"]:
            return one
        held = [pair for pair in zip(offsets_of(one.data["runs"]), one.data["keys"], strict=True) if pair[1] != victim]
        fields = {**one.data, "runs": [[at, 1] for at, _ in held], "keys": [name for _, name in held]}
        return event(one.mono_ns, one.process, one.op, one.outcome, one.rack, **fields)

    return [without_it(one) for one in events]
