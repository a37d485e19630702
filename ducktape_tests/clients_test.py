"""Clients of several releases and vendors in the same outage of a rack."""

from __future__ import annotations

from ducktape_tests.scenario import AAB, GO_ON_S, NEEDS, NOT_ENOUGH_RACKS, STEADY_S, LoadSpec, RackScenario, spec
from pyhooks.history.events import CONFLUENT, PATCHED, RideDetails

CLIENTS = (PATCHED, "4.3.1", "3.9", "2.8", CONFLUENT)
# longer than the outage, so that clients that keep retrying need not give up
PATIENCE_MS = 240_000
# for the first record, which waits for the metadata of its topic; a rejection does not need that long
FIRST_MS = 30_000
CROWDED_S = 300.0
# longer than the default time of a request, so that none still waits for its first response
OUTAGE_S = 40.0


class ClientsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    def test_each_rides_it_out(self) -> None:
        """Each client outlasts an outage by its own retries, and none receives an error that it does not know.

        setup: for each client (the patched one, Java 4.3.1, 3.9 and 2.8, librdkafka) a topic on replicas in racks a, a,
            b with M=2, R=2, an idempotent producer, and one without retries.
        drive: produce with all; kill rack b; continue for longer than a request may take; heal; continue.
        validate: idempotent producers have every record acknowledged, once, some after a wait; producers without
            retries get the error that they know; no error is unknown to any; all checkers.
        """
        riding = [
            LoadSpec(f"client-{at}", "idempotent", client, 5, patient_ms=PATIENCE_MS)
            for at, client in enumerate(CLIENTS)
        ]
        trying = [
            LoadSpec(f"client-{at}", "plain", client, 2, ("--timeout-ms", str(FIRST_MS)))
            for at, client in enumerate(CLIENTS)
        ]
        specs = [spec(load.topic, AAB, 2, 2) for load in riding]
        with self.driven(specs, [*riding, *trying]):
            self.history.add(RideDetails(clients=tuple(CLIENTS)))
            self.phase("all racks", specs[0].name)
            with self.rack_outage(seconds=OUTAGE_S):
                self.phase("one rack left", specs[0].name, NOT_ENOUGH_RACKS)
            self.phase("rack back", specs[0].name)
        self.judge((*NEEDS, "refusals", "rides"))

    def go_on(self, seconds: float = STEADY_S, timeout_s: float = GO_ON_S, *, patient: bool = False) -> None:
        """Wait as in any test, with more time: ten clients, most of them in their own JVMs, share a machine."""
        super().go_on(seconds, max(timeout_s, CROWDED_S), patient=patient)
