"""Brokers with two log directories (JBOD): one fails and one is replaced in an outage of a rack."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from ducktape_tests.scenario import AAB, FAILED_RACK, NEEDS, SPREAD, LoadSpec, RackScenario, spec
from pyhooks.core.errors import RackgateError
from pyhooks.kafka import topics
from pyhooks.lab.disks import DATA

# The first one has the cluster's metadata; a broker does not outlive it.
SECOND = "data-2"
# A broker notices the failure when it next writes its high watermarks, every 5 s.
OFFLINE_S = 60.0
# A leader still waits for a replica that was in sync within replica.lag.time.max.ms (30 s) if its broker is unfenced
# (Partition.maybeIncrementLeaderHW), also after its directory failed. Records outlast this.
PATIENT = ("--timeout-ms", "45000")
WANTED = (("gated-1", 2), ("gated-2", 2), ("free-1", 1), ("free-2", 1))
# topics in the second directories
MOVED = {"gated-2", "free-2"}


class DirectoriesTest(RackScenario):
    """Five brokers in racks a, a, b, b, c, each with two log directories, and three controllers outside."""

    DIRECTORIES: ClassVar[Sequence[str]] = (DATA, SECOND)

    def test_a_directory_fails_and_is_replaced(self) -> None:
        """Partitions in a failed directory lose one replica, and the racks of the remaining ones count; others go on.

        Of two topics with R=2, one is in the second directories. The control is two topics with R=1, placed likewise.
        Rack b is killed; then the second directory of broker 1 fails and is replaced by an empty one. With all racks
        back, that of broker 2 fails and is replaced: two racks remain. Then that of broker 3, the only replica in
        rack b: with R=2 the topic in that directory is rejected, and the one in the first directory is not.

        A phase begins when the leader has stopped waiting for the failed replica.
        """
        # One after the other: a broker places each new replica in the directory with fewer of them.
        for name, racks in WANTED:
            self.create_topics([spec(name, AAB, 2, racks)])
        loads = [LoadSpec(name, rate_per_s=10, options=PATIENT) for name, _ in WANTED]
        with self.under_load(self.specs, loads):
            self.phases_by_isr("all directories", self._isrs())
            with self.fault("kill", rack=FAILED_RACK):
                self.wait_isr({1, 2})
                self._fail(1, absent={3})
                self.keep_producing()
                self.phases_by_isr("without rack b, a directory of broker 1 failed", self._isrs(absent={3}, failed=1))
                self._replace(1, absent={3})
                self.phases_by_isr("without rack b, the directory replaced", self._isrs(absent={3}))
                self.keep_producing()
            topics.wait_settled(self.kafka.admin, self.specs)
            self.phases_by_isr("rack b back", self._isrs())
            for broker in (2, 3):
                self._fail(broker)
                self.keep_producing()
                self.phases_by_isr(f"a directory of broker {broker} failed", self._isrs(failed=broker))
                self._replace(broker)
                topics.wait_settled(self.kafka.admin, self.specs)
                self.phases_by_isr(f"the directory of broker {broker} replaced", self._isrs())
        self.judge((*NEEDS, SPREAD, "rejections", "faults"))

    def _isrs(self, *, absent: set[int] | None = None, failed: int = 0) -> dict[str, frozenset[int]]:
        """Return the expected ISR of each topic without some brokers and without the second directory of another."""
        remaining = frozenset(AAB) - (absent or set())
        return {topic.name: remaining - {failed} if topic.name in MOVED else remaining for topic in self.specs}

    def _fail(self, broker: int, absent: set[int] | None = None) -> None:
        """Make the second directory of a broker fail, and wait until exactly its replicas are offline.

        Moved away, as a disk that is pulled: the broker can't create files in it.
        """
        node = self.kafka.broker(broker)
        places = {topic.name: self.kafka.directory_of(node, topic.name) for topic in self.specs}
        second = f"{self.kafka.home}/{SECOND}"
        if {name for name, place in places.items() if place == second} != MOVED:
            raise RackgateError(f"{node.name}: other topics than expected are in {SECOND}: {places}")
        self.kafka.run_in_folder(node, 'mv -- "$1" "$2"', SECOND, f"{SECOND}.failed")
        topics.wait_isrs(self.kafka.admin, self._isrs(absent=absent, failed=broker), timeout_s=OFFLINE_S)
        # grep fails without a match, and so does the test: the replicas left the ISRs for another reason.
        self.kafka.run_on(node, f"grep -q {shlex.quote(f'offline.*{SECOND}')} {shlex.quote(self.kafka.log)}")

    def _replace(self, broker: int, absent: set[int] | None = None) -> None:
        """Restart a broker with an empty directory in place of the failed one, and wait until it is in sync."""
        node = self.kafka.broker(broker)
        self.kafka.stop_kafka(node)
        topics.wait_isrs(self.kafka.admin, self._isrs(absent={broker, *(absent or set())}))
        self.kafka.run_in_folder(node, 'rm -rf -- "$2"; mkdir -- "$1"', SECOND, f"{SECOND}.failed")
        # Kafka does not start with a directory that is not formatted; the other one is.
        self.kafka.run_on(node, f"{self.kafka.format_command(node)} --ignore-formatted")
        self.kafka.start_kafka(node)
        topics.wait_isrs(self.kafka.admin, self._isrs(absent=absent))
