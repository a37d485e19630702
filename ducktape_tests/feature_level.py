"""Feature level for racks of a running cluster: query and change it."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress

from ducktape_tests.services.kafka import RackKafka
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.kafka import features, tools
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.patchset.distribution import Distribution

HANDSHAKE_S = 10.0
LEVEL_S = 30.0
# output of the tool if the level is set
DONE = re.compile(r"was (up|down)graded to")


def features_tool(kafka: RackKafka, *arguments: str) -> str:
    """Run the overlay's feature tool and return its output, whatever its exit status."""
    node = kafka.brokers()[0]
    command = tools.command(Distribution.load().classpath(), "features", arguments, node.address)
    return kafka.run_on(node, f"{shlex.join(command)} 2>&1 || true")


def request_level(kafka: RackKafka, how: str, level: int) -> str:
    """Request a level of the feature (``how``: upgrade or downgrade), and return the tool's output about it."""
    # The feature for racks depends on that for the ELR, which stays enabled after a downgrade, as on stock Kafka.
    elr = ["--feature", f"{ELR_FEATURE}=1"] if level else []
    lines = features_tool(kafka, how, *elr, "--feature", f"{RACKS_FEATURE}={level}").splitlines()
    return next((line for line in lines if RACKS_FEATURE in line), lines[0] if lines else "").strip()


def level(kafka: RackKafka) -> int:
    """Return the level of the feature for racks that a broker reports."""
    node = kafka.brokers()[0]
    return features.finalized(node.ip, int(node.address.rpartition(":")[2]), HANDSHAKE_S).get(RACKS_FEATURE, 0)


def _wait_level(kafka: RackKafka, expected: int, output: str) -> None:
    wait_for(
        lambda: level(kafka) == expected, goal=f"level {expected} of {RACKS_FEATURE} ({output})", timeout_s=LEVEL_S
    )


def level_after(kafka: RackKafka, output: str, requested: int) -> int:
    """Return the level that a broker reports; if the output of the request reports success, wait for that level."""
    if DONE.search(output):
        # If the wait fails, a checker judges the level that the broker reports instead.
        with suppress(RackgateError):
            _wait_level(kafka, requested, output)
    return level(kafka)


def change_level(kafka: RackKafka, how: str, requested: int) -> None:
    """Request a level of the feature for racks and wait until a broker reports it."""
    _wait_level(kafka, requested, request_level(kafka, how, requested))
