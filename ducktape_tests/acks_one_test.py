"""Records with acks=1 during an outage: accepted, hidden, and visible when enough racks are in sync again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict

from ducktape_tests.latencies import backlog, latencies
from ducktape_tests.scenario import AAB, FAILED_RACK, NEEDS, LoadSpec, RackScenario, require_true, spec
from ducktape_tests.services.clients import Program, wait_events
from pyhooks.checkers.record_view import Records
from pyhooks.history.events import VisibleDetails
from pyhooks.kafka import topics

TOPIC = "one"
# 50 MB in the outage: more than a moment of catching up, less than a follower may lag before it leaves the ISR (30 s).
# With 100 MB a follower on a busy machine was 19 s behind, and waiting clients got no response. Large records, many per
# request: small ones would use so much of two cores that other clients get no response.
RATE_PER_S, RECORD_BYTES, LINGER_MS = 250, 4096, 50
BACKLOG_S = 40.0
STEADY_LOAD_S = 15.0
SHOWN_S = 120.0
# A record that waits when the rack leaves times out before the rack returns; then single attempts show the gate's
# decision.
TIMEOUT_MS = 20_000


class AcksOneTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b is killed and returns."""

    def test_taken_hidden_and_shown(self) -> None:
        """A leader accepts records with acks=1 whatever the ISR; they are readable only when two racks have them.

        Produce with acks=1 and with acks=all, without retries, before, during and after an outage of rack b. With
        acks=1 all records are accepted, none is readable while the ISR is in one rack, and all are readable soon after
        the heal. The latency with acks=all is measured before the outage, while the backlog is replicated, and after.
        """
        large = ("--acks", "1", "--record-bytes", str(RECORD_BYTES), "--linger-ms", str(LINGER_MS))
        bounded = ("--timeout-ms", str(TIMEOUT_MS))
        loads = [
            LoadSpec(TOPIC, rate_per_s=RATE_PER_S, options=(*large, *bounded)),
            LoadSpec(TOPIC, rate_per_s=50, options=bounded),
        ]
        topic = spec(TOPIC, AAB, 2, 2)
        with self.under_load([topic], loads), self.client("visibility_reader", TOPIC) as readers:
            self.keep_producing(STEADY_LOAD_S)
            # Not cut off: the observer would query the silent brokers in turn, and see nothing for seconds.
            with self.fault("kill", rack=FAILED_RACK):
                self.wait_isr({1, 2}, TOPIC)
                self.keep_producing(BACKLOG_S)
                # of all records accepted so far
                top = self._top()
            self._wait_shown(readers, top)
            topics.wait_settled(self.kafka.admin, [topic])
            self.keep_producing(STEADY_LOAD_S)
        self.read_final_state()
        # The history has all that was read from these copies, which are large.
        shutil.rmtree(self.results / "disks")
        self._measure()
        require_true(self.verdicts((*NEEDS, "visibility")))

    def _top(self) -> int:
        """Return the highest acknowledged offset."""
        offsets = [
            attempt.offset for attempt in Records(list(self.history.events())).attempts if attempt.offset is not None
        ]
        assert offsets, "no record was acknowledged"
        return max(offsets)

    def _wait_shown(self, readers: Sequence[Program], top: int) -> None:
        """Wait until a reader has read an offset."""
        wait_events(
            readers,
            VisibleDetails,
            lambda _, __, visible: any(offset > top for offset in visible.next.values()),
            [True],
            goal=f"offset {top} of {TOPIC} to be read",
            timeout_s=SHOWN_S,
        )

    def _measure(self) -> None:
        events = list(self.history.events())
        all_latencies = {name: asdict(latency) for name, latency in latencies(events, TOPIC).items()}
        behind = backlog(events, TOPIC)
        self.logger.info("backlog of %d records; latency with acks=all: %s", behind.records, all_latencies)
        self.figures(
            seed=self.seed,
            backlog_records=behind.records,
            backlog_bytes=behind.records * RECORD_BYTES,
            acks_all_latency=all_latencies,
        )
