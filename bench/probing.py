"""Whether topics take records: one attempt each by a Java producer, which never tries again and so hides no refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.availability import REFUSALS
from pyhooks.core.errors import RackgateError
from pyhooks.jvm.producer import Producer

ANSWER_S = 60.0
TRIES = 3
CONFIG = {
    "acks": "all",
    "retries": "0",
    "enable.idempotence": "false",
    "linger.ms": "0",
    "request.timeout.ms": "8000",
    "delivery.timeout.ms": "9000",
    "max.block.ms": "9000",
}


def answers(bootstrap: str, topics: Sequence[str], config: Mapping[str, str] | None = None) -> dict[str, str]:
    """What topics say to a record: the gate's exception without its package, or an empty text if they take it.

    Args:
        bootstrap: brokers.
        topics: names.
        config: of the Java client, such as its security.

    Raises:
        RackgateError: a topic neither takes it nor refuses it by its gate.
    """
    with Producer(bootstrap, {**(config or {}), **CONFIG}, close_timeout_s=ANSWER_S) as producer:
        return {topic: _answer(producer, topic) for topic in topics}


def _answer(producer: Producer, topic: str) -> str:
    said = ""
    for _ in range(TRIES):
        try:
            sent = producer.send_batch(topic, [b"probe"], keys=[b"probe"]).result(timeout=ANSWER_S)
        except TimeoutError:
            said = f"no answer within {ANSWER_S:.0f} s"
            continue
        said = sent.errors[0].java_class.rsplit(".", 1)[-1] if sent.errors else ""
        if not said or said in REFUSALS:
            return said
    raise RackgateError(f"a probe of topic {topic} got {said} {TRIES} times, which is neither an ack nor a refusal")
