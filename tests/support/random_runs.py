"""Random runs of the cluster in ``random_cluster``. Hypothesis draws the steps, so that failures shrink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from pyhooks.history.event_log import Event
from random_cluster import Cluster
from random_cluster_parts import STAGES, Outage, Part, Sent
from written_histories import S

MODES = ("plain", "idempotent", "transactional")
# Racks of brokers 1, 2, ..., and replicas of each partition. Replicas can move to brokers without a partition.
LAYOUTS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ab", ((1, 2),)),
    ("abc", ((1, 2, 3), (3, 1, 2))),
    ("aab", ((1, 2, 3),)),
    ("aabbc", ((1, 3, 5), (2, 4))),
    ("abcab", ((1, 2), (3, 4, 5))),
    ("aabb", ((1, 2), (3, 1))),
)
OPS = ("wipe", "kill", "cut")
# The more often an action is listed, the more often it is drawn.
ACTIONS = (
    "look", "send", "send", "send", "slow", "fault", "wipe", "wipe", "advance", "advance", "advance", "advance", "rest",
    "rest", "shrink", "sync", "ask", "settle", "seen", "move", "move", "read", "part", "expire", "hang", "turn",
)  # fmt: skip
CALM = frozenset({"ask", "settle", "move", "expire", "hang"})

Step = tuple[str, int, int]


class Run:
    """A finished run.

    Args:
        cluster: the cluster with its true behaviour.
        events: its history.
        seen_all: no event was removed from the history, and all verifications succeeded.
        read: the final passes came last and read every partition.
    """

    def __init__(self, cluster: Cluster, events: list[Event], *, seen_all: bool, read: bool) -> None:
        self.cluster, self.events, self.seen_all, self.read = cluster, events, seen_all, read

    def __repr__(self) -> str:
        lines = (f"{one.mono_ns / 1e9:.3f} {one.op} {one.outcome} {one.rack or ''} {one.data}" for one in self.events)
        return f"seen_all={self.seen_all} read={self.read}\n" + "\n".join(lines)

    @property
    def acked(self) -> list[Sent]:
        """Records that the history reports as acknowledged."""
        return [one for one in self.cluster.sent if one.fate == "ok" and one.done_ns > 0]


def act(cluster: Cluster, step: Step) -> None:
    """Perform one step, or nothing if it is impossible now."""
    name, one, two = step
    number = one % len(cluster.parts)
    part, open_now = cluster.parts[number], [outage for outage in cluster.outages if outage.stage < STAGES]
    if name in ("send", "slow"):
        _send(cluster, one, two, slow=name == "slow")
    elif name == "fault":
        brokers = sorted(cluster.racks)
        broker = brokers[one % len(brokers)]
        cluster.begin(OPS[two % 3], cluster.racks[broker], broker if two > 5 else None, fails=two == 5)
    elif name == "wipe":
        _wipe(cluster, one, two)
    elif name == "cycle":
        _cycle(cluster, one, two)
    elif name == "overlap":
        _overlap(cluster, one, two)
    elif name == "late":
        _late(cluster, one, two)
    elif name == "lie":
        # previously settled values may be reported for a while
        cluster.rest(14)
        cluster.lie(1 + one % 3)
        _send(cluster, two, 1, slow=False)
    elif name == "advance" and open_now:
        for _ in range(1 + two):
            cluster.advance(open_now[one % len(open_now)], bad=two == 7)
            cluster.rest(two % 3)
            if open_now[one % len(open_now)].stage >= STAGES:
                break
    elif name == "rest":
        cluster.rest(1 + one * 2)
    elif name == "turn":
        _turn(cluster, part, one, two)
    elif name == "look":
        cluster.look()
    elif name == "shrink":
        cluster.shrink(part)
    elif name == "sync":
        cluster.sync(part)
    elif name in ("ask", "settle", "seen"):
        _setting(cluster, name, one, two)
    elif name == "move" and cluster.moves < 3:
        brokers = sorted(cluster.racks)
        turned = brokers[two % len(brokers) :] + brokers[: two % len(brokers)]
        cluster.move(part, turned[: 1 + one % min(3, len(brokers))])
    elif name in ("read", "part"):
        cluster.read(parts=1 if name == "part" else None, size=2 + two)
        if cluster.mode == "transactional":
            cluster.read("read_committed", size=2 + two)
    elif name == "expire":
        cluster.expire(part)
    elif name == "hang" and cluster.mode == "transactional":
        cluster.hang(number)


def _turn(cluster: Cluster, part: Part, one: int, two: int) -> None:
    """Let returned replicas catch up, with records before and after; then maybe report settings or inject a fault."""
    cluster.rest(1 + one)
    _send(cluster, one, 0, slow=False)
    cluster.sync(part)
    _send(cluster, one, 0, slow=False)
    if two % 2:
        cluster.settings("seen", cluster.need)
    cluster.rest(two % 3)
    if two > 3:
        brokers = sorted(cluster.racks)
        cluster.begin(OPS[1 + two % 2], cluster.racks[brokers[one % len(brokers)]], None, fails=False)


def _wipe(cluster: Cluster, one: int, two: int) -> None:
    """Wipe a rack, and send records before its injection, after it, after its effect, and after its verification."""
    racks = sorted(set(cluster.racks.values()))
    earlier = len(cluster.outages)
    _send(cluster, one, 1, slow=False)
    cluster.rest(1)
    cluster.begin("wipe", racks[one % len(racks)], None, fails=False)
    for outage in cluster.outages[earlier:]:
        for at in range(3):
            if two & (1 << at):
                _send(cluster, one, 1, slow=at == 0)
            if at < 2:
                cluster.advance(outage, bad=at == 1 and one == 7)
                cluster.rest(two % 3)


def _cycle(cluster: Cluster, one: int, two: int) -> None:
    """Wipe and heal a rack, often without verifying its recovery; or let the wipe fail and never heal it."""
    _send(cluster, one, 2, slow=False)
    cluster.rest(3)
    earlier, racks = len(cluster.outages), sorted(set(cluster.racks.values()))
    cluster.begin("wipe", racks[one % len(racks)], None, fails=two >= 4)
    for outage in cluster.outages[earlier:]:
        for _ in range(1, 3 if outage.fails else STAGES):
            cluster.advance(outage, bad=outage.stage == STAGES - 1 and two % 4 > 0)
            cluster.rest(1)
    cluster.rest(12 * (two % 2))


def _late(cluster: Cluster, one: int, two: int) -> None:
    """Lose a rack, which leaves ISRs 3 s later while records wait; perhaps lose another rack at the same time."""
    earlier, racks = len(cluster.outages), sorted(set(cluster.racks.values()))
    _send(cluster, one, 1, slow=False)
    for at in range(1 + (two > 5)):
        cluster.begin(OPS[two % 3], racks[(one + at) % len(racks)], None, fails=False)
    for outage in cluster.outages[earlier:]:
        cluster.advance(outage)
        cluster.advance(outage)
    for quarters in (2, 3, 12, 4):
        cluster.rest(quarters)
        for number in range(len(cluster.parts)):
            cluster.send(number)


def _overlap(cluster: Cluster, one: int, two: int) -> None:
    """Lose two racks; after one returns, the other stays unavailable for longer than a recovery may take."""
    earlier, racks = len(cluster.outages), sorted(set(cluster.racks.values()))
    for at in (one, one + 1):
        cluster.begin(OPS[1 + two // 2 % 2], racks[at % len(racks)], None, fails=False)
        for outage in cluster.outages[earlier:][at - one :]:
            cluster.advance(outage)
            cluster.advance(outage)
        cluster.rest(2)
    begun = cluster.outages[earlier:]
    for outage in begun if two % 2 else reversed(begun):
        while outage.stage < STAGES:
            cluster.advance(outage)
            cluster.rest(1)
        quiet(cluster, 56)


def _send(cluster: Cluster, one: int, two: int, *, slow: bool) -> None:
    numbers = [(one + at) % len(cluster.parts) for at in range(1 + two)]
    if cluster.mode == "transactional":
        outcome = ("ok", "ok", "fail", "unknown")[one % 4]
        cluster.transaction(numbers, outcome, committed=two % 2 == 0, local=slow)  # type: ignore[arg-type]
        return
    for number in numbers:
        cluster.send(number, slow=slow)


def _setting(cluster: Cluster, name: str, one: int, two: int) -> None:
    value = (1 + one % 3, 1 + two % 3)
    if name == "ask":
        cluster.change(value, recorded=True)
    elif name == "settle":
        cluster.change(value, recorded=False)
    else:
        cluster.settings("seen", cluster.need)


def quiet(cluster: Cluster, quarters: int) -> None:
    """Let time pass, then send records."""
    cluster.rest(quarters)
    for number in range(len(cluster.parts)):
        _send(cluster, number, 0, slow=False)
    cluster.rest(14)


def close(cluster: Cluster, *, heal: bool, kill: bool, late: bool) -> None:
    """Heal all faults if ``heal``, send records long afterwards if ``late``, and end the producer."""
    for _ in range(STAGES):
        for outage in cluster.outages if heal else ():
            if outage.stage < STAGES:
                cluster.advance(outage)
                cluster.rest(2)
    cluster.rest(16 if heal else 4)
    if late:
        quiet(cluster, 40)
    if cluster.asked is not None:
        cluster.change(cluster.need, recorded=False)
    cluster.end(killed=kill)


@st.composite
def runs(
    draw: st.DrawFn,
    modes: Sequence[str] = MODES,
    *,
    calm: bool = False,
    blurred: bool = True,
    racks_min: int = 1,
    heals: bool = True,
    first: str = "",
    lag_ns: int = 0,
    every: int = 2,
    gated: bool = True,
    settings_at_creation: bool = False,
) -> Run:
    """Draw a run of a correct cluster.

    Args:
        draw: Hypothesis's draw function.
        modes: modes of the producer to draw from.
        calm: no changes of settings or replicas, no retention, no hanging transactions; all faults are healed.
        blurred: observations and settings may be missing, or observations without a response.
        heals: whether faults may be healed at the end.
        first: initial action, followed by only a few others.
        lag_ns: see ``Cluster``.
        every: see ``Cluster``.
        racks_min: minimum of the initial min.insync.racks.
        gated: see ``Cluster``; a cluster is not correct without it.
        settings_at_creation: whether the history always has the topic's settings at creation, not only sometimes.
    """
    names, placements = draw(st.sampled_from(LAYOUTS))
    racks = dict(enumerate(names, start=1))
    need = draw(st.tuples(st.integers(1, 3), st.integers(racks_min, 3)))
    cluster = Cluster(racks, [list(own) for own in placements], need, draw(st.sampled_from(modes)), lag_ns, every,
                      gated=gated, made=settings_at_creation or draw(st.booleans()))  # fmt: skip
    actions = [name for name in ACTIONS if not calm or name not in CALM]
    number = st.integers(0, 7)
    steps = st.tuples(st.sampled_from(actions), number, number)
    if first:
        act(cluster, (first, draw(number), draw(number)))
    for step in draw(st.lists(steps, max_size=4) if first else st.lists(steps, min_size=16, max_size=40)):
        if calm and step[0] == "advance":
            step = (step[0], step[1], step[2] % 7)
        act(cluster, step)
    if draw(st.booleans()):
        quiet(cluster, 28)
    if not calm and draw(st.booleans()):
        # An early read, which is not the final one.
        cluster.read()
    close(
        cluster,
        heal=heals and (calm or draw(st.booleans())),
        kill=not calm and draw(st.integers(0, 4)) == 0,
        late=draw(st.booleans()),
    )
    read = calm or draw(st.integers(0, 3)) > 0
    if read:
        read = all([cluster.read(), cluster.read(), cluster.read("read_committed")])
    cluster.look()
    cluster.dump(size=draw(st.integers(2, 9)))
    events, whole = list(cluster.events), True
    if blurred:
        events, whole = blur(draw, events)
    proved = all(one.proved_ns and (one.healed_ns or not one.heal_ns) for one in cluster.outages)
    return Run(cluster, events, seen_all=whole and proved, read=read)


def blur(draw: st.DrawFn, events: list[Event]) -> tuple[list[Event], bool]:
    """Remove observations or their responses for a while, a few times, and sometimes all reports of settings."""
    # The last observation shows where replicas are at the stop.
    observations = [at for at, one in enumerate(events) if one.op == "look"][:-1]
    whole = True
    index = st.integers(0, len(observations) - 1)
    for first, halves, removed in draw(st.lists(st.tuples(index, st.integers(8, 40), st.booleans()), max_size=3)):
        until_ns = events[observations[first]].mono_ns + halves * S // 2
        # Checkers do not cover a short-lived state in a gap too short to count as one.
        if until_ns > events[observations[-1]].mono_ns:
            continue
        for at in observations[first:]:
            one = events[at]
            if one.mono_ns < until_ns:
                whole = False
                events[at] = (
                    replace(one, op="nothing") if removed else replace(one, outcome="unknown", data={"error": "-"})
                )
    if draw(st.integers(0, 7)) == 0:
        whole, events = False, [one for one in events if one.op != "settings"]
    return [one for one in events if one.op != "nothing"], whole


def excused(cluster: Cluster, broker: int, sent: Sent) -> bool:
    """Return whether a wipe truly deleted the record from a broker that has not rejoined the ISR since."""
    at = (broker, sent.part)
    return any(sent.key in one.took.get(at, ()) and at not in one.back_ns for one in cluster.outages)


def known(run: Run, outage: Outage, broker: int, sent: Sent) -> bool:
    """Return whether the history proves if a wipe excuses a broker from having a record."""
    cluster = run.cluster
    at = (broker, sent.part)
    observations = [one.mono_ns for one in run.events if one.op == "look" and one.outcome == "ok"]
    if outage.broker not in (None, broker) or cluster.racks[broker] != outage.rack or not outage.wipe:
        return True
    if outage.proved_ns is None:
        return False
    if outage.proved_ns < sent.sent_ns:
        return True
    if at in outage.back_ns and outage.healed_ns is not None:
        return any(max(outage.healed_ns, outage.back_ns[at]) < one for one in observations)
    if outage.heal_ns is not None or outage.inject_ns <= sent.done_ns:
        return False
    # An observation before the wipe shows which replicas had the record.
    moved = [at_ns for at_ns in cluster.parts[sent.part].changed_ns if sent.sent_ns - 10**9 < at_ns < outage.inject_ns]
    return not moved and any(sent.done_ns < one < outage.inject_ns for one in observations)


def settled(run: Run, sent: Sent, before_ns: int, after_ns: int) -> bool:
    """Return whether nothing changed around an attempt and no fault makes the observations unreliable."""
    cluster = run.cluster
    part = cluster.parts[sent.part]
    from_ns, to_ns = sent.sent_ns - before_ns, sent.done_ns + after_ns
    observed_ns = [one.mono_ns for one in run.events if one.op == "look"]
    if any(from_ns < at_ns < to_ns for at_ns in [observed_ns[0], observed_ns[-1], *part.changed_ns, *cluster.need_ns]):
        return False
    begun_ns: int | None = None
    for one in run.events:
        step = one.data.get("step") if one.op == "settings" else None
        if step == "begin":
            begun_ns = one.mono_ns
        elif step == "settled" and begun_ns is not None:
            if begun_ns < to_ns and one.mono_ns > from_ns - before_ns:
                return False
            begun_ns = None
    return all(
        one.inject_ns > to_ns or (one.healed_ns is not None and one.healed_ns < from_ns - before_ns)
        for one in cluster.outages
    )
