"""Probe of topics: one record to each by a Java producer without retries, which therefore hides no rejection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.analysis.availability import REJECTIONS
from pyhooks.core.errors import RackgateError
from pyhooks.jvm.producer import Producer

RESPONSE_S = 60.0
ATTEMPTS = 3
CONFIG = {
    "acks": "all",
    "retries": "0",
    "enable.idempotence": "false",
    "linger.ms": "0",
    "request.timeout.ms": "8000",
    "delivery.timeout.ms": "9000",
    "max.block.ms": "9000",
}


def rejections(bootstrap: str, topics: Sequence[str], config: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return for each topic the gate's exception without its package; an empty text if the topic accepts a record."""
    with Producer(bootstrap, {**(config or {}), **CONFIG}, close_timeout_s=RESPONSE_S) as producer:
        return {topic: rejection(producer, topic) for topic in topics}


def rejection(producer: Producer, topic: str, response_s: float = RESPONSE_S) -> str:
    """Probe one topic; see ``rejections``.

    Raises:
        RackgateError: the topic neither accepted nor rejected a record in any attempt.
    """
    error = ""
    for _ in range(ATTEMPTS):
        try:
            sent = producer.send_batch(topic, [b"probe"], keys=[b"probe"]).result(timeout=response_s)
        except TimeoutError:
            error = f"no response within {response_s:.0f} s"
            continue
        error = sent.errors[0].java_class.rsplit(".", 1)[-1] if sent.errors else ""
        if not error or error in REJECTIONS:
            return error
    raise RackgateError(f"a probe of topic {topic} got {error} {ATTEMPTS} times, neither an ack nor a rejection")
