"""Behaviour of a producer with default settings in an outage of a rack."""

from __future__ import annotations

from ducktape_tests.scenario import AAB, NEEDS, NOT_ENOUGH_RACKS, LoadSpec, RackScenario, spec

DELIVERY_TIMEOUT_MS = 8000


class DefaultsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    def test_default_settings_time_out(self) -> None:
        """With default settings a producer retries rejected records until its delivery timeout, and reports a timeout.

        setup: a topic on replicas in racks a, a, b with M=2, R=2.
        drive: produce; kill rack b and wait until the ISR is in rack a; produce once without retries, and once with
            default settings but for a shorter delivery.timeout.ms; heal; produce.
        validate: NotEnoughRacksException with the log's size unchanged, TimeoutException after that time, and no such
            record is read later unless it was acknowledged; acknowledged again; all checkers.
        """
        with self.driven([spec("plain", AAB, 2, 2)], [LoadSpec("plain")]):
            self.phase("all racks", "plain")
            with self.rack_outage("plain"):
                self.phase("one rack left", "plain", NOT_ENOUGH_RACKS)
                # So that too few racks have been in sync for a while when the record is sent.
                self.go_on()
                self.probe("plain", "--defaults", "--delivery-timeout-ms", str(DELIVERY_TIMEOUT_MS), attempts=1)
            self.phase("rack back", "plain")
        self.judge((*NEEDS, "defaults"))
