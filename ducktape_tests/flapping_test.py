"""A rack that comes and goes, and followers that are parted from their leader while both see everybody else."""

from __future__ import annotations

import time
from contextlib import ExitStack

from ducktape.mark.resource import cluster

from ducktape_tests.drill import FLOOD, SPREAD, Drill, Load, spec
from ducktape_tests.matrix import expected
from pyhooks.core.wait import wait_for
from pyhooks.kafka import topics
from pyhooks.kafka.topics import TopicSpec

# M and R of all topics here, if nothing else is said
NEED = (2, 2)
AAB, ABC = (1, 2, 3), (1, 3, 5)
LOST = "b"
FLAP_S = 180.0
# Not a cut: what that has silenced comes back only when TCP tries again, after as long as it was silent. Meanwhile the
# rack's brokers are unfenced, and a leader waits with its high watermark for a replica that was in sync within
# replica.lag.time.max.ms and may join the ISR (Partition.maybeIncrementLeaderHW of Kafka 4.3.1): seen after a cut of
# 15 s, what was sent in the next 12 s ran out of its 6 s at an ISR that was enough. The connections of one that is
# paused stay, and it goes on fetching at once.
FLAP = "pause"
# Beside the two proofs, which take 3 s and more each, since they wait for answers that do not come: so some outages are
# about as long as the session of 9 s, and some longer.
AWAY_S = (0.0, 6.0)
# A stretch that has settled would be judged by attempts that begin and run out of their time in it; so it is shorter.
BACK_S = (2.0, 4.5)
# Where nothing overlaps with the outages each recovery is judged, and the attempts in it, which are over after 6 s.
JUDGED_S = (8.0, 12.0)
PATIENT = ("--timeout-ms", "6000")
# Of so many outages one lasts until the rack has left the ISR.
LONG = 3
# No topic has a replica on it.
BYSTANDER = 4
CHECKED = ("delivery", "offsets", "promise", "progress", "phases", "faults", "recovery", "refusals")


def pause(seconds: float, what: str) -> None:
    """Time that passes."""
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until, what=what, timeout_s=seconds + 5)


class FlappingTest(Drill):
    """Five brokers in racks a, a, b, b, c and three controllers outside."""

    # on a busy machine the proofs of a dozen cuts take their time
    SECONDS = 1500.0

    def _isr(self, one: TopicSpec, without: str) -> frozenset[int]:
        return frozenset(broker for broker in one.replicas if self.racks[broker] != without)

    def _phases(self, name: str, isrs: dict[str, frozenset[int]]) -> None:
        """What single attempts get with these ISRs."""
        many = {}
        for one in self.specs:
            need = (int(one.config[topics.MIN_INSYNC_REPLICAS]), int(one.config[topics.MIN_INSYNC_RACKS]))
            expect = expected(isrs[one.name], self.racks, need=need, replicas=len(one.replicas))
            many[one.name] = (f"{name}: {one.name}", expect)
        self.phases(many)

    @cluster(num_nodes=9)
    def test_a_rack_that_comes_and_goes(self) -> None:
        """What is acknowledged between the outages survives them all, and after the last one everything goes on.

        setup: topics on replicas in racks a, a, b and a, b, c with M=2, R=2; on each kind one without retries and one
            idempotent. A broker without replicas is slow all the while: so the outages overlap with something that
            is healed after the last one, and the recovery is judged from there; after the others the next one comes
            too soon. On hosts that can't be slow it comes later, and each recovery is judged.
        drive: for 3 minutes pause rack b and let it go on, a few seconds each, as the seed draws; each third time, and
            the last time, until it has left the ISR.
        validate: single attempts before, in the last outage and after it end as computed; each pause proves itself;
            all checkers.
        """
        self._flaps(FLAP)

    @cluster(num_nodes=9)
    def test_a_rack_that_is_killed_again_and_again(self) -> None:
        """The same where each outage costs the rack what Kafka lets a broker lose that ends without notice.

        setup: as above.
        drive: as above, but that rack b is killed, and started again.
        validate: as above; and a dozen outages do not flood the logs.
        """
        self._flaps("kill", FLOOD)

    def _flaps(self, kind: str, *needs: str) -> None:
        specs = [spec(name, AAB if name.startswith("aab") else ABC, *NEED) for name in ("aab", "aab-i", "abc", "abc-i")]
        # a producer each: one topic that is stuck would hold up others of its producer
        loads = [Load(one.name, "idempotent" if one.name.endswith("-i") else "plain", more=PATIENT) for one in specs]
        whole = {one.name: frozenset(one.replicas) for one in specs}
        left = {one.name: self._isr(one, LOST) for one in specs}
        outages: list[dict[str, float | bool]] = []
        with self.driven(specs, loads):
            self._phases("before", whole)
            with ExitStack() as meanwhile:
                far = self.can("slow", f"broker {BYSTANDER} is far away meanwhile")
                if far:
                    meanwhile.enter_context(self.fault("slow", broker=BYSTANDER, rtt_ms=40.0))
                until = time.monotonic() + FLAP_S
                last = False
                while not last:
                    last = time.monotonic() >= until
                    long = last or len(outages) % LONG == LONG - 1
                    away_s = self.rng.uniform(*AWAY_S)
                    since = time.monotonic()
                    with self.fault(kind, rack=LOST):
                        if long:
                            topics.wait_isrs(self.kafka.admin, left)
                        pause(away_s, f"rack {LOST} to be away")
                        if last:
                            self._phases("away", left)
                    outages.append({"long": long, "seconds": round(time.monotonic() - since, 1)})
                    if not last:
                        if not far:
                            topics.wait_settled(self.kafka.admin, specs)
                        pause(self.rng.uniform(*(BACK_S if far else JUDGED_S)), f"rack {LOST} to be back")
            topics.wait_settled(self.kafka.admin, specs)
            self._phases("after", whole)
        self.figures(outages=outages)
        self.judge((*CHECKED, SPREAD, *needs))

    @cluster(num_nodes=9)
    def test_followers_parted_from_their_leader(self) -> None:
        """Who can't reach the leader leaves the ISR, though the controllers see all; then R refuses.

        setup: topics with M=2, R=2 on replicas in racks a, a, b and b, b, a, each led from where two are, in a, b, c,
            and in c, a, b with a leader that all reach; one in a, b with M=1, R=2.
        drive: cut racks a and b off from each other alone; wait until each leader has put the other rack out of the
            ISR, which takes it 30 s and more; produce; heal; produce.
        validate: no leader moves; single attempts before, meanwhile and after end as computed from the ISR that the
            parting leaves; all checkers.
        """
        specs = [
            spec("aab", AAB, *NEED),
            spec("bba", (3, 4, 1), *NEED),
            spec("abc", ABC, *NEED),
            spec("cab", (5, 1, 3), *NEED),
            spec("ab", (1, 3), 1, 2),
        ]
        parted = {"a": "b", "b": "a"}
        left = {one.name: self._isr(one, parted.get(self.racks[one.replicas[0]], "")) for one in specs}
        whole = {one.name: frozenset(one.replicas) for one in specs}
        led = {one.name: one.replicas[0] for one in specs}
        # one that is stuck would hold up others of its producer
        loads = [Load("aab,bba,ab", rate_per_s=10, more=PATIENT), Load("abc,cab", rate_per_s=10, more=PATIENT)]
        with self.driven(specs, loads):
            self._phases("before", whole)
            with self.fault("cut", rack=LOST, peers=["a"]):
                topics.wait_isrs(self.kafka.admin, left, timeout_s=90)
                self._phases("parted", left)
                self.go_on()
                assert topics.leaders(self.kafka.admin, list(led)) == led, "a leader moved"
            topics.wait_settled(self.kafka.admin, specs)
            self._phases("together again", whole)
        self.judge(CHECKED)
