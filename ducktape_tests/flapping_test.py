"""Flapping racks, and followers that are cut off from their leader while both reach all other nodes."""

from __future__ import annotations

import time
from contextlib import ExitStack

from ducktape_tests.scenario import AAB, ABC, FAILED_RACK, FLOOD, SPREAD, LoadSpec, RackScenario, sleep, spec
from pyhooks.kafka import topics
from pyhooks.kafka.topics import TopicSpec

# default M and R of the topics
NEED = (2, 2)
FLAP_S = 180.0
# Pause, not cut: after a cut, connections resume only when TCP retransmits, as much later as the cut was long.
# Meanwhile the rack's brokers are unfenced. A leader then holds back its high watermark for a replica that was in sync
# within replica.lag.time.max.ms and may join the ISR (Partition.maybeIncrementLeaderHW). After a cut of
# 15 s, records sent in the next 12 s reached their timeout of 6 s although the ISR was sufficient. A paused broker
# keeps its connections and resumes fetching at once.
FLAP = "pause"
# In addition to the two proofs, which take at least 3 s each because they wait for missing responses. So some outages
# last about as long as the session of 9 s, and some longer.
OUTAGE_S = (0.0, 6.0)
# Checkers would judge a settled state by attempts that start and time out in it, so these times are shorter.
PAUSE_S = (2.0, 4.5)
# Without overlapping faults each recovery is judged, by attempts in it, which end after 6 s.
JUDGED_PAUSE_S = (8.0, 12.0)
PATIENT = ("--timeout-ms", "6000")
# One of so many outages lasts until the rack has left the ISR.
LONG = 3
# No topic has a replica on it.
BYSTANDER = 4
CHECKED = ("delivery", "offsets", "promise", "progress", "phases", "faults", "recovery", "rejections")


class FlappingTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside."""

    # On a busy machine the proofs of a dozen outages take long.
    SECONDS = 1500.0

    def _isr(self, topic: TopicSpec, without: str) -> frozenset[int]:
        return frozenset(broker for broker in topic.replicas if self.racks[broker] != without)

    def test_a_rack_that_comes_and_goes(self) -> None:
        """Records acknowledged between outages survive all of them, and after the last one all topics recover.

        For 3 minutes rack b is paused and resumed, a few seconds each; every third pause, and the last one, continues
        until it has left the ISR. A broker without replicas is slow all the time. So all outages overlap with a fault
        that is healed after the last one, and only that recovery is judged: after other outages the next one follows
        too soon. Hosts that can't be slowed get longer breaks, and each recovery is judged.
        """
        self._flaps(FLAP)

    def test_a_rack_that_is_killed_again_and_again(self) -> None:
        """The same with kills, which lose what an unclean shutdown loses; a dozen outages do not flood the logs."""
        self._flaps("kill", FLOOD)

    def _flaps(self, kind: str, *needs: str) -> None:
        specs = [spec(name, AAB if name.startswith("aab") else ABC, *NEED) for name in ("aab", "aab-i", "abc", "abc-i")]
        # One producer per topic: a topic that stops would delay others of its producer.
        loads = [
            LoadSpec(topic.name, "idempotent" if topic.name.endswith("-i") else "plain", options=PATIENT)
            for topic in specs
        ]
        full_isrs = {topic.name: frozenset(topic.replicas) for topic in specs}
        remaining = {topic.name: self._isr(topic, FAILED_RACK) for topic in specs}
        outages: list[dict[str, float | bool]] = []
        with self.under_load(specs, loads):
            self.phases_by_isr("before", full_isrs)
            with ExitStack() as background:
                overlap = self.supports("slow", f"slow broker {BYSTANDER} during all outages")
                if overlap:
                    background.enter_context(self.fault("slow", broker=BYSTANDER, rtt_ms=40.0))
                until = time.monotonic() + FLAP_S
                last = False
                while not last:
                    last = time.monotonic() >= until
                    long = last or len(outages) % LONG == LONG - 1
                    outage_s = self.rng.uniform(*OUTAGE_S)
                    since = time.monotonic()
                    with self.fault(kind, rack=FAILED_RACK):
                        if long:
                            topics.wait_isrs(self.kafka.admin, remaining)
                        sleep(outage_s, f"outage of rack {FAILED_RACK}")
                        if last:
                            self.phases_by_isr("outage", remaining)
                    outages.append({"long": long, "seconds": round(time.monotonic() - since, 1)})
                    if not last:
                        if not overlap:
                            topics.wait_settled(self.kafka.admin, specs)
                        pause_s = self.rng.uniform(*(PAUSE_S if overlap else JUDGED_PAUSE_S))
                        sleep(pause_s, f"time with rack {FAILED_RACK}")
            topics.wait_settled(self.kafka.admin, specs)
            self.phases_by_isr("after", full_isrs)
        self.figures(outages=outages)
        self.judge((*CHECKED, SPREAD, *needs))

    def test_followers_parted_from_their_leader(self) -> None:
        """Followers that can't reach the leader leave the ISR, although the controllers reach all; then R rejects.

        Only racks a and b are cut off from each other. The topics are led from either of them, with one or two
        replicas, or from rack c, which both reach. No leader moves. Each leader removes the other rack after at least
        30 s.
        """
        specs = [
            spec("aab", AAB, *NEED),
            spec("bba", (3, 4, 1), *NEED),
            spec("abc", ABC, *NEED),
            spec("cab", (5, 1, 3), *NEED),
            spec("ab", (1, 3), 1, 2),
        ]
        separated = {"a": "b", "b": "a"}
        remaining = {topic.name: self._isr(topic, separated.get(self.racks[topic.replicas[0]], "")) for topic in specs}
        full_isrs = {topic.name: frozenset(topic.replicas) for topic in specs}
        led = {topic.name: topic.replicas[0] for topic in specs}
        # A topic that stops would delay others of its producer.
        loads = [LoadSpec(names, rate_per_s=10, options=PATIENT) for names in ("aab,bba,ab", "abc,cab")]
        with self.under_load(specs, loads):
            self.phases_by_isr("before", full_isrs)
            with self.fault("cut", rack=FAILED_RACK, peers=["a"]):
                topics.wait_isrs(self.kafka.admin, remaining, timeout_s=90)
                self.phases_by_isr("separated", remaining)
                self.keep_producing()
                assert topics.leaders(self.kafka.admin, list(led)) == led, "a leader moved"
            topics.wait_settled(self.kafka.admin, specs)
            self.phases_by_isr("after", full_isrs)
        self.judge(CHECKED)
