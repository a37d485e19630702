"""Simulated cluster with the gate, driven by random steps. It keeps its true behaviour beside its history.

The cluster is correct unless a test plants a defect: the gate decides on each record, acknowledged records are in the
log of each ISR member, and only a replica that has all of them may lead. Its surroundings are not benign: faults
overlap and take effect at any time between injection and verification, verification fails, ISRs shrink late, clients
miss responses, replicas move, settings change, old records expire, and observers and readers see only a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyhooks.history.event_log import Event, Outcome
from pyhooks.history.record_format import key_of
from pyhooks.kafka import gate
from random_cluster_parts import STAGES, Outage, Part, Sent
from written_histories import MS, REJECTED, TIMEOUT, TOO_FEW, S, chunks, event

AFTER_APPEND = "org.apache.kafka.common.errors.NotEnoughReplicasAfterAppendException"
BYTES = 40
STEP_NS = S // 4
# Maximum times of events without a step.
ANSWER_NS, TIMEOUT_NS, SHRINK_NS, RETURN_NS, SYNC_NS = S // 4, 3 * S, 3 * S, 2 * S, 5 * S // 2


class Cluster:
    """Topic ``t`` on brokers in racks, its producer and its observer.

    Args:
        racks: rack by broker.
        placements: replicas of each partition.
        need: min.insync.replicas and min.insync.racks.
        mode: mode of the producer.
        lag_ns: lag of the metadata in stale observations.
        every: every how many observations one is stale.
        gated: whether the gate is applied again to waiting records when an ISR shrinks.
        made: whether the history has the settings at creation, so that each later change is recorded.
    """

    def __init__(
        self,
        racks: Mapping[int, str],
        placements: list[list[int]],
        need: tuple[int, int],
        mode: str,
        lag_ns: int = 0,
        every: int = 2,
        *,
        gated: bool = True,
        made: bool = False,
    ) -> None:
        self.racks, self.need, self.mode, self.run = dict(racks), need, mode, "producer-1"
        self.gated, self.requests_recorded, self.lied_ns = gated, made, list[int]()
        self.lag_ns, self.every, self.known, self.looks = lag_ns, every, list[tuple[int, dict[str, Any]]](), 0
        self.now, self.events = S, list[Event]()
        self.parts = [Part(list(own), {one: [] for one in own}, sorted(own), own[0]) for own in placements]
        self.dead, self.wiped = set[int](), set[int]()
        self.outages, self.sent = list[Outage](), list[Sent]()
        self.seqs, self.announced = [0] * len(self.parts), [0] * len(self.parts)
        self.txns, self.passes, self.moves = 0, 0, 0
        self.asked: tuple[int, int] | None = None
        self.needs, self.need_ns = [need], list[int]()
        self.aborted = set[str]()
        self.ended_ns: int | None = None
        self.settings("made" if made else "seen", need)
        self.rest(4)

    # -- time and observations ---------------------------------------------------------------------------------------

    def note(self, process: str, op: str, outcome: Outcome | None = "ok", rack: str | None = None, **data: Any) -> int:
        self.now += MS
        self.events.append(event(self.now, process, op, outcome, rack, **data))
        return self.now

    def rest(self, quarters: int) -> None:
        """Let time pass, with an observation every half second."""
        for number in range(quarters):
            self.now += STEP_NS
            self._due()
            self._know()
            if number % 2 == 0:
                self.look()

    def look(self) -> None:
        if self.dead >= self.racks.keys():
            self.note("isr-watch", "look", "unknown", error="_TRANSPORT")
            return
        self.looks += 1
        self._know()
        since_ns = self.now - (self.lag_ns if self.looks % self.every == 0 else 0)
        visible = [known for at_ns, known in self.known if at_ns <= since_ns] or [self.known[0][1]]
        self.note("isr-watch", "look", **visible[-1])

    def _know(self) -> None:
        states = {
            f"t-{number}": {"leader": part.leader, "isr": list(part.isr), "replicas": list(part.replicas)}
            for number, part in enumerate(self.parts)
        }
        alive = {str(one): rack for one, rack in self.racks.items() if one not in self.dead}
        self.known.append((self.now, {"racks": alive, "partitions": states}))

    def settings(self, step: str, value: tuple[int, int]) -> None:
        fields: dict[str, Any] = {"min.insync.replicas": value[0], "min.insync.racks": value[1]}
        self.note("isr-watch", "settings", topic="t", step=step, **fields)

    def change(self, value: tuple[int, int], *, recorded: bool) -> None:
        """Change the settings, either by a recorded request or observed only afterwards."""
        if recorded and self.asked is None and value != self.need:
            self.settings("begin", value)
            self.asked = value
        elif not recorded:
            if self.asked is None and self.requests_recorded and value != self.need:
                self.settings("begin", value)
                self.asked = value
            self._apply(value if self.asked is None else self.asked)
            self.requests_recorded = self.requests_recorded or self.asked is not None
            self.settings("seen" if self.asked is None else "settled", self.need)
            self.asked = None

    def lie(self, racks: int) -> None:
        """Apply and report a min.insync.racks that was not requested, which no correct cluster does."""
        if self.requests_recorded and self.asked is None and racks != self.need[1]:
            self.lied_ns.append(self.now)
            self._apply((self.need[0], racks))
            self.settings("seen", self.need)

    def _apply(self, value: tuple[int, int]) -> None:
        if value != self.need:
            self.need = value
            self.needs.append(value)
            self.need_ns.append(self.now)

    # -- the cluster ----------------------------------------------------------------------------------------------

    def _due(self) -> None:
        """Perform what happens after some time without a step: returns, elections, ISR changes, responses."""
        for outage in self.outages:
            if outage.stage == 4 and self.now - outage.stage_ns > RETURN_NS:
                self._return(outage)
        for part in self.parts:
            self._elect(part)
            gone = self.dead.intersection(part.isr)
            part.dead_ns = (part.dead_ns or self.now) if gone else None
            if part.dead_ns is not None and self.now - part.dead_ns > SHRINK_NS:
                self.shrink(part)
            behind = part.leader >= 0 and part.leader not in self.dead and self._behind(part)
            part.behind_ns = (part.behind_ns or self.now) if behind else None
            if part.behind_ns is not None and self.now - part.behind_ns > SYNC_NS:
                self.sync(part)
        for sent in [one for one in self.sent if not one.done_ns]:
            if sent.fate is None and self.now - sent.sent_ns > TIMEOUT_NS:
                sent.fate, sent.exception = "unknown", TIMEOUT
            if sent.fate is not None and self.now - sent.sent_ns > ANSWER_NS:
                self._answer(sent)

    def _behind(self, part: Part) -> list[int]:
        return [one for one in part.replicas if one not in self.dead and one not in part.isr]

    def _changed(self, part: Part) -> None:
        part.changed_ns.append(self.now)

    def _elect(self, part: Part) -> None:
        fit = sorted(part.eligible - self.dead)
        if part.leader < 0 and fit:
            part.leader, part.isr, part.eligible = fit[0], fit, set()
            for one in fit:
                part.logs[one] = list(part.logs[fit[0]])
            part.hw = len(part.logs[fit[0]])
            self._back(part)

    def shrink(self, part: Part) -> None:
        """Remove dead brokers from the ISR and decide the records that waited for them."""
        left = [one for one in part.isr if one not in self.dead]
        if left == part.isr:
            return
        if not left:
            part.eligible = set(part.isr) - self.wiped
        led = part.leader
        part.isr = left
        if led in self.dead:
            part.leader = left[0] if left else -1
            for one in left:
                part.logs[one] = list(part.logs[part.leader])
        self._changed(part)
        if left:
            part.hw = len(part.logs[part.leader])
        number = self.parts.index(part)
        for sent in self.sent:
            if sent.part == number and sent.fate is None and not sent.done_ns:
                answer = self.answer_of(part)
                ok = led == part.leader and sent.offset is not None and (answer.passes or not self.gated)
                sent.ungated = ok and not answer.enough_racks
                sent.fate = "ok" if ok else "unknown"
                sent.exception = None if ok else AFTER_APPEND if led == part.leader else TIMEOUT
                sent.racks = self.racks_needed(part)

    def sync(self, part: Part) -> None:
        """Let live replicas catch up with the leader; complete a reassignment once all its targets are in sync."""
        if part.leader < 0 or part.leader in self.dead or self.dead.intersection(part.isr):
            return
        if behind := self._behind(part):
            for one in behind:
                part.logs[one] = list(part.logs[part.leader])
            part.isr = sorted({*part.isr, *behind})
            self._back(part)
        if part.target and set(part.target) <= set(part.isr):
            part.replicas, part.target, part.adding = part.target, None, 0
            part.isr = sorted(part.replicas)
            part.logs = {one: log for one, log in part.logs.items() if one in part.replicas}
            part.leader = part.leader if part.leader in part.isr else part.replicas[0]
            self._changed(part)

    def _back(self, part: Part) -> None:
        number = self.parts.index(part)
        for outage in self.outages:
            for one in outage.brokers.intersection(part.isr):
                if (one, number) in outage.took:
                    outage.back_ns.setdefault((one, number), self.now)
        self._changed(part)

    def move(self, part: Part, target: list[int]) -> None:
        """Begin a reassignment."""
        union = frozenset(target) | frozenset(part.replicas)
        # Checkers do not cover an unobserved return of replicas to their previous brokers.
        if part.target is None and not {frozenset(target), union} & part.placed:
            part.placed |= {frozenset(target), union}
            part.target = target
            part.adding = len(set(target) - set(part.replicas))
            part.replicas = [*part.replicas, *(one for one in target if one not in part.replicas)]
            self.moves += 1
            self._changed(part)

    def expire(self, part: Part) -> None:
        """Delete the older half of the records, as retention does."""
        part.low = max(part.low, part.hw // 2)

    def answer_of(self, part: Part) -> gate.GateDecision:
        return gate.decide(
            part.isr,
            self.racks,
            min_replicas=self.need[0],
            min_racks=self.need[1],
            replicas=len(part.replicas),
            adding=part.adding,
        )

    def racks_needed(self, part: Part) -> int:
        return gate.capped(self.need[1], len(part.replicas) - part.adding)

    # -- faults -----------------------------------------------------------------------------------------------------

    def begin(self, op: str, rack: str, broker: int | None, *, fails: bool) -> None:
        """Inject a fault; it takes effect later, unless it fails."""
        own = frozenset(one for one, its in self.racks.items() if its == rack and broker in (None, one))
        if any(one.stage < STAGES and one.brokers & own for one in self.outages):
            return
        kind = f"{op}-{'rack' if broker is None else 'broker'}"
        made = Outage(kind, rack, broker, own, op == "wipe", fails, 0)
        self._step(made, "before", "ok")
        made.inject_ns = made.stage_ns = self._step(made, "inject", None)
        self.outages.append(made)

    def _step(self, outage: Outage, step: str, outcome: Outcome | None) -> int:
        broker = {} if outage.broker is None else {"broker": outage.broker}
        return self.note("fault", outage.op, outcome, outage.rack, step=step, **broker)

    def _spared(self, outage: Outage) -> bool:
        """Return whether each partition would keep a replica with all acknowledged records after a wipe."""
        return all(set(part.isr or part.eligible) - outage.brokers - self.wiped for part in self.parts)

    def advance(self, outage: Outage, *, bad: bool = False) -> None:
        """Advance a fault to its next stage: takes effect, verified, healed, brokers return, recovery verified.

        A verification's outcome is unknown if ``bad``, or if the fault has failed.
        """
        stage, outage.stage_ns = outage.stage, self.now
        outage.stage += 1
        if stage == 1:
            outage.fails = outage.fails or (outage.wipe and not self._spared(outage))
            if not outage.fails:
                self._strike(outage)
        elif stage == 2:
            at_ns = self._step(outage, "proved", "unknown" if outage.fails or bad else "ok")
            outage.proved_ns = None if outage.fails or bad else at_ns
        elif stage == 3:
            self._step(outage, "held", "unknown" if outage.fails else "ok")
            outage.heal_ns = self._step(outage, "heal", None)
        elif stage == 4:
            outage.stage -= 1
            self._return(outage)
        elif stage == 5:
            at_ns = self._step(outage, "healed", "unknown" if bad else "ok")
            outage.healed_ns = None if bad else at_ns

    def _strike(self, outage: Outage) -> None:
        self.dead |= outage.brokers
        for number, part in enumerate(self.parts):
            if outage.brokers & {*part.isr, part.leader}:
                self._changed(part)
            for one in outage.brokers.intersection(part.logs) if outage.wipe else ():
                outage.took[one, number] = set(part.logs[one])
                part.logs[one] = []
                part.eligible.discard(one)
        if outage.wipe:
            self.wiped |= outage.brokers

    def _return(self, outage: Outage) -> None:
        outage.stage, outage.stage_ns = 5, self.now
        if outage.fails:
            return
        for part in self.parts:
            if outage.brokers.intersection(part.isr):
                self.shrink(part)
        self.dead -= outage.brokers
        self.wiped -= outage.brokers
        for part in self.parts:
            self._elect(part)

    # -- the producer -----------------------------------------------------------------------------------------------

    def announce(self, run: str, to: list[int]) -> None:
        fields: dict[str, Any] = {
            "first_only": self.mode == "plain", "idempotent": self.mode in ("idempotent", "transactional"),
            "mode": self.mode, "client": "patched", "record_bytes": BYTES,
            "to": {str(at): value for at, value in enumerate(to)},
        }  # fmt: skip
        self.note("producer", "intend", None, run=run, topic="t", **fields)

    def send(self, number: int, *, slow: bool = False, txn: int | None = None, run: str = "") -> Sent:
        """Send one record; unless ``slow``, it gets its response at once if the cluster can respond."""
        run, part = run or self.run, self.parts[number]
        seq = 0 if run != self.run else self.seqs[number]
        if run == self.run:
            if seq >= self.announced[number]:
                self.announced = [max(own, used + 5) for own, used in zip(self.announced, self.seqs, strict=True)]
                self.announce(run, self.announced)
            self.seqs[number] += 1
        data: dict[str, Any] = {
            "run": run, "topic": "t", "key": key_of(run, "t", number, seq), "seq": seq, "partition": number,
            "intended_ns": self.now, "sent_ns": self.now, "mode": self.mode,
        } | ({} if txn is None else {"txn": txn})  # fmt: skip
        sent = Sent(data["key"], number, self.now, data)
        self.sent.append(sent)
        self._append(part, sent)
        if sent.fate is not None and not slow:
            self._answer(sent)
        return sent

    def _append(self, part: Part, sent: Sent) -> None:
        if part.leader < 0:
            return
        if part.leader in self.dead:
            if part.leader not in self.wiped:
                part.logs[part.leader].append(sent.key)  # it is isolated, and no follower fetches
            return
        answer = self.answer_of(part)
        if not answer.passes:
            sent.fate = "fail" if self.mode == "plain" else "unknown"
            sent.exception = REJECTED if answer.enough_replicas else TOO_FEW
            return
        sent.offset = len(part.logs[part.leader])
        sent.racks = self.racks_needed(part)
        self.write(part, sent.key)
        if not self.dead.intersection(part.isr):
            sent.fate = "ok"

    def write(self, part: Part, key: str | None) -> None:
        for one in part.isr:
            if one not in self.dead:
                part.logs[one].append(key)
        if not self.dead.intersection(part.isr):
            part.hw = len(part.logs[part.leader])

    def _answer(self, sent: Sent) -> None:
        latency: dict[str, Any] = {"latency_ms": (self.now - sent.sent_ns) / MS}
        assert sent.fate is not None
        result = {"offset": sent.offset} if sent.fate == "ok" else {"exception": sent.exception, "retriable": True}
        sent.done_ns = self.note("producer", "produce", sent.fate, **sent.data, **latency, **result)

    def transaction(self, numbers: list[int], outcome: Outcome | None, *, committed: bool, local: bool) -> None:
        """Send a transaction, unless a dead broker is in an ISR; if ``local``, with a record that is never sent."""
        if any(part.leader < 0 or self.dead.intersection(part.isr) for part in self.parts):
            return
        begun, txn = self.now, self.txns
        self.txns += 1
        own = [self.send(number, txn=txn) for number in numbers]
        outcome = outcome if all(one.fate == "ok" for one in own) else "fail"
        if local:
            seq, number = self.seqs[numbers[0]], numbers[0]
            self.seqs[number] += 1
            self.announced[number] = max(self.announced[number], seq + 1)
            key = key_of(self.run, "t", number, seq)
            self.note("producer", "produce", "fail", run=self.run, topic="t", key=key, seq=seq, partition=number,
                      sent_ns=self.now, txn=txn, exception="_QUEUE_FULL")  # fmt: skip
        for part in {one.part: self.parts[one.part] for one in own if one.fate == "ok"}.values():
            self.write(part, None)
        if outcome == "fail" or (outcome == "unknown" and not committed):
            self.aborted |= {one.key for one in own}
        fields: dict[str, Any] = {"asked": "abort" if outcome == "fail" else "commit", "records": len(own) + local}
        self.note("producer", "txn", outcome, run=self.run, txn=txn, begun_ns=begun, **fields)

    def hang(self, number: int) -> None:
        """Kill another producer inside a transaction, which keeps the last stable offset from advancing."""
        part = self.parts[number]
        if any(one.stable is not None for one in self.parts) or not self.answer_of(part).passes or part.leader < 0:
            return
        if not self.dead.intersection(part.isr):
            self.announce("hanging", [int(at == number) for at in range(len(self.parts))])
            part.stable = len(part.logs[part.leader])
            self.send(number, txn=0, run="hanging")
            self.note("test", "killed", None, run="hanging")

    def end(self, *, killed: bool) -> None:
        """End the producer after all responses; a killed producer gets no further responses."""
        if killed:
            for sent in self.sent:
                sent.done_ns = sent.done_ns or -1
            self.ended_ns = self.note("test", "killed", None, run=self.run)
            return
        while not all(sent.done_ns for sent in self.sent):
            self.rest(1)
        to = {str(at): value for at, value in enumerate(self.seqs)}
        self.ended_ns = self.note("producer", "end", None, run=self.run, topic="t", to=to)

    # -- readers ----------------------------------------------------------------------------------------------------

    def read(self, isolation: str = "read_uncommitted", *, parts: int | None = None, size: int = 7) -> bool:
        """Read all partitions, or the first ``parts``, in one pass; return whether all of these were read."""
        self.passes += 1
        fields: dict[str, Any] = {"pass": f"p{self.passes}", "topic": "t", "partitions": len(self.parts)}
        whole = True
        for number, part in enumerate(self.parts[:parts]):
            about = fields | {"partition": number, "isolation": isolation}
            if part.leader < 0 or part.leader in self.dead:
                self.note("reader", "read", "unknown", **about, error="_TRANSPORT")
                whole = False
                continue
            end = part.hw
            keys = part.logs[part.leader]
            if isolation == "read_committed":
                end = min(end, part.hw if part.stable is None else part.stable)
                keys = [None if key in self.aborted else key for key in keys]
            low = min(part.low, end)
            for chunk in _chunks(keys[:end], low, size):
                self.note("reader", "read", **about, low=low, end=end, **chunk)
        return whole

    def dump(self, size: int = 7) -> None:
        """Stop all brokers and read their disks."""
        for broker, rack in self.racks.items():
            fields: dict[str, Any] = {"pass": "d1", "broker": broker}
            whole = broker not in self.wiped
            own = {n: part.logs[broker] for n, part in enumerate(self.parts) if whole and broker in part.logs}
            for number, log in own.items():
                low = min(self.parts[number].low, len(log))
                for chunk in _chunks(log, low, size):
                    self.note("disks", "disk", rack=rack, **fields, topic="t", partition=number, low=low, end=len(log),
                              **chunk)  # fmt: skip
            self.note("disks", "disk-end", rack=rack, **fields, replicas=[["t", n] for n in own], stopped=True)


def _chunks(keys: list[str | None], low: int, size: int) -> list[dict[str, Any]]:
    held = [(at, key) for at, key in enumerate(keys) if key is not None and at >= low]
    found = chunks(held, size, len(keys))
    found[0]["begin"] = low
    return [chunk | ({"sizes": [[BYTES, len(chunk["keys"])]]} if chunk["keys"] else {}) for chunk in found]
