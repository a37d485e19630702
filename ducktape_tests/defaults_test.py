"""Behaviour of a producer with default settings in an outage of a rack."""

from __future__ import annotations

from ducktape_tests.scenario import AAB, NEEDS, NOT_ENOUGH_RACKS, LoadSpec, RackScenario, spec

DELIVERY_TIMEOUT_MS = 8000


class DefaultsTest(RackScenario):
    """Five brokers in racks a, a, b, b, c and three controllers outside; rack b fails and returns."""

    def test_default_settings_time_out(self) -> None:
        """With default settings a producer retries rejected records until its delivery timeout, and reports a timeout.

        During the outage one attempt without retries receives NotEnoughRacksException. One with default settings,
        except for a shorter delivery.timeout.ms, receives TimeoutException; its record is never read unless it was
        acknowledged.
        """
        with self.under_load([spec("plain", AAB, 2, 2)], [LoadSpec("plain")]):
            self.phase("all racks", "plain")
            with self.rack_outage("plain"):
                self.phase("one rack left", "plain", NOT_ENOUGH_RACKS)
                # So that too few racks have been in sync for a while when the record is sent.
                self.keep_producing()
                self.probe("plain", "--defaults", "--delivery-timeout-ms", str(DELIVERY_TIMEOUT_MS), attempts=1)
            self.phase("rack back", "plain")
        self.judge((*NEEDS, "defaults"))
