"""Flapping racks, and followers that are cut off from their leader while both reach all other nodes."""

from __future__ import annotations

import time
from contextlib import ExitStack

from ducktape_tests.scenario import AAB, ABC, FLOOD, LOST, SPREAD, LoadSpec, RackScenario, sleep, spec
from pyhooks.kafka import topics
from pyhooks.kafka.topics import TopicSpec

# default M and R of the topics
NEED = (2, 2)
FLAP_S = 180.0
# Pause, not cut: after a cut, connections resume only when TCP retransmits, as much later as the cut was long.
# Meanwhile the rack's brokers are unfenced. A leader then holds back its high watermark for a replica that was in sync
# within replica.lag.time.max.ms and may join the ISR (Partition.maybeIncrementLeaderHW of Kafka 4.3.1). After a cut of
# 15 s, records sent in the next 12 s reached their timeout of 6 s although the ISR was sufficient. A paused broker
# keeps its connections and resumes fetching at once.
FLAP = "pause"
# In addition to the two proofs, which take at least 3 s each because they wait for missing responses. So some outages
# last about as long as the session of 9 s, and some longer.
AWAY_S = (0.0, 6.0)
# Checkers would judge a settled state by attempts that start and time out in it, so these times are shorter.
BACK_S = (2.0, 4.5)
# Without overlapping faults each recovery is judged, by attempts in it, which end after 6 s.
JUDGED_S = (8.0, 12.0)
PATIENT = ("--timeout-ms", "6000")
# One of so many outages lasts until the rack has left the ISR.
LONG = 3
# No topic has a replica on it.
BYSTANDER = 4
CHECKED = ("delivery", "offsets", "promise", "progress", "phases", "faults", "recovery", "refusals")


class FlappingTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside."""

    # On a busy machine the proofs of a dozen outages take long.
    SECONDS = 1500.0

    def _isr(self, topic: TopicSpec, without: str) -> frozenset[int]:
        return frozenset(broker for broker in topic.replicas if self.racks[broker] != without)

    def test_a_rack_that_comes_and_goes(self) -> None:
        """Records acknowledged between outages survive all of them, and after the last one all topics recover.

        setup: topics on replicas in racks a, a, b and a, b, c with M=2, R=2; on each placement one without retries and
            one idempotent. A broker without replicas is slow all the time. So the outages overlap with a fault that is
            healed after the last one, and only that recovery is judged; after the other outages the next one follows
            too soon. Hosts that can't be slowed get longer breaks, and each recovery is judged.
        drive: for 3 minutes pause and resume rack b, for a random time of a few seconds each; every third time, and the
            last time, until it has left the ISR.
        validate: single attempts before, in the last outage and after it have the computed results; each pause is
            proved; all checkers.
        """
        self._flaps(FLAP)

    def test_a_rack_that_is_killed_again_and_again(self) -> None:
        """The same with killed brokers, which lose what an unclean shutdown loses.

        setup: as above.
        drive: as above, but rack b is killed and restarted.
        validate: as above; and a dozen outages do not flood the logs.
        """
        self._flaps("kill", FLOOD)

    def _flaps(self, kind: str, *needs: str) -> None:
        specs = [spec(name, AAB if name.startswith("aab") else ABC, *NEED) for name in ("aab", "aab-i", "abc", "abc-i")]
        # One producer per topic: a topic that stops would delay others of its producer.
        loads = [
            LoadSpec(topic.name, "idempotent" if topic.name.endswith("-i") else "plain", more=PATIENT)
            for topic in specs
        ]
        whole = {topic.name: frozenset(topic.replicas) for topic in specs}
        left = {topic.name: self._isr(topic, LOST) for topic in specs}
        outages: list[dict[str, float | bool]] = []
        with self.driven(specs, loads):
            self.phases_by_isr("before", whole)
            with ExitStack() as meanwhile:
                overlap = self.supports("slow", f"slow broker {BYSTANDER} during all outages")
                if overlap:
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
                        sleep(away_s, f"outage of rack {LOST}")
                        if last:
                            self.phases_by_isr("outage", left)
                    outages.append({"long": long, "seconds": round(time.monotonic() - since, 1)})
                    if not last:
                        if not overlap:
                            topics.wait_settled(self.kafka.admin, specs)
                        sleep(self.rng.uniform(*(BACK_S if overlap else JUDGED_S)), f"time with rack {LOST}")
            topics.wait_settled(self.kafka.admin, specs)
            self.phases_by_isr("after", whole)
        self.figures(outages=outages)
        self.judge((*CHECKED, SPREAD, *needs))

    def test_followers_parted_from_their_leader(self) -> None:
        """Followers that can't reach the leader leave the ISR, although the controllers reach all; then R rejects.

        setup: topics with M=2, R=2: on replicas in racks a, a, b and b, b, a, each led from the rack with two; in a, b,
            c; and in c, a, b with a leader that all reach. One in a, b with M=1, R=2.
        drive: cut only racks a and b off from each other; wait until each leader has removed the other rack from the
            ISR, which takes at least 30 s; produce; heal; produce.
        validate: no leader moves; single attempts before, during and after the cut have the results computed from the
            remaining ISR; all checkers.
        """
        specs = [
            spec("aab", AAB, *NEED),
            spec("bba", (3, 4, 1), *NEED),
            spec("abc", ABC, *NEED),
            spec("cab", (5, 1, 3), *NEED),
            spec("ab", (1, 3), 1, 2),
        ]
        separated = {"a": "b", "b": "a"}
        left = {topic.name: self._isr(topic, separated.get(self.racks[topic.replicas[0]], "")) for topic in specs}
        whole = {topic.name: frozenset(topic.replicas) for topic in specs}
        led = {topic.name: topic.replicas[0] for topic in specs}
        # A topic that stops would delay others of its producer.
        loads = [LoadSpec("aab,bba,ab", rate_per_s=10, more=PATIENT), LoadSpec("abc,cab", rate_per_s=10, more=PATIENT)]
        with self.driven(specs, loads):
            self.phases_by_isr("before", whole)
            with self.fault("cut", rack=LOST, peers=["a"]):
                topics.wait_isrs(self.kafka.admin, left, timeout_s=90)
                self.phases_by_isr("separated", left)
                self.go_on()
                assert topics.leaders(self.kafka.admin, list(led)) == led, "a leader moved"
            topics.wait_settled(self.kafka.admin, specs)
            self.phases_by_isr("after", whole)
        self.judge(CHECKED)
