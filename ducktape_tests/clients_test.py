"""Clients of several releases and vendors in the same outage of a rack."""

from __future__ import annotations

from ducktape_tests.scenario import (
    AAB,
    NEEDS,
    NOT_ENOUGH_RACKS,
    LoadSpec,
    RackScenario,
    spec,
)
from pyhooks.core import paths
from pyhooks.history.events import CONFLUENT, PATCHED, RideDetails

CLIENTS = (PATCHED, paths.kafka_version(), "3.9", "2.8", CONFLUENT)
# longer than the outage, so that clients that keep retrying need not give up
PATIENCE_MS = 240_000
# for the first record, which waits for the metadata of its topic; a rejection does not need that long
FIRST_MS = 30_000
# longer than the default time of a request, so that none still waits for its first response
OUTAGE_S = 40.0


class ClientsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    # Ten clients, most of them in their own JVMs, share a machine.
    RESULT_TIMEOUT_S = 300.0

    def test_each_rides_it_out(self) -> None:
        """Each client outlasts an outage by its own retries, and receives no error that it does not know.

        Each client (patched, Java of this release, 3.9 and 2.8, librdkafka) runs an idempotent producer and one
        without retries.
        The outage lasts longer than a request may take. Idempotent producers have every record acknowledged once;
        producers without retries receive the error that they know.
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
        with self.under_load(specs, [*riding, *trying]):
            self.history.add(RideDetails(clients=tuple(CLIENTS)))
            self.phase("all racks", specs[0].name)
            with self.rack_outage(seconds=OUTAGE_S):
                self.phase("one rack left", specs[0].name, NOT_ENOUGH_RACKS)
            self.phase("rack back", specs[0].name)
        self.judge((*NEEDS, "rejections", "rides"))
