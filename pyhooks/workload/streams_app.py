"""Kafka Streams application that counts the records of each key, with exactly-once semantics.

It reads the source, writes each record to a repartition topic, counts in a state store with a changelog topic, and
writes each count to the target. With the application's id ``app`` the internal topics are ``app-by-key-repartition``
and ``app-counts-changelog``. The events have subclasses of ``StreamsDetails``. SIGTERM closes the application.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import jpype

from pyhooks.history.event_log import History
from pyhooks.history.events import StreamsFailureDetails, StreamsStateDetails
from pyhooks.jvm.client import ensure_started, java_errors, java_properties
from pyhooks.jvm.java_exception import JavaError
from pyhooks.patchset.client_classpaths import streams_classpath
from pyhooks.workload import program

REPARTITION, STORE = "by-key", "counts"
STATE_S = 0.5
CLOSE_S = 30.0
COMMIT_MS = 200
_STREAMS = "org.apache.kafka.streams"


class _AppIdentity(TypedDict):
    run: str
    application: str
    source: str
    target: str


def internal_topics(application: str) -> tuple[str, str]:
    """Return the names of the repartition and the changelog topic."""
    return f"{application}-{REPARTITION}-repartition", f"{application}-{STORE}-changelog"


def topology(source: str, target: str) -> Any:
    """Return the Java topology; the JVM must run."""
    serdes = jpype.JClass("org.apache.kafka.common.serialization.Serdes")
    kstream = f"{_STREAMS}.kstream"
    builder = jpype.JClass(f"{_STREAMS}.StreamsBuilder")()
    consumed = jpype.JClass(f"{kstream}.Consumed").with_(serdes.String(), serdes.String())
    repartitioned = jpype.JClass(f"{kstream}.Repartitioned").with_(serdes.String(), serdes.String())
    grouped = jpype.JClass(f"{kstream}.Grouped").with_(serdes.String(), serdes.String())
    store = jpype.JClass(f"{_STREAMS}.state.Stores").inMemoryKeyValueStore(STORE)
    # Every count is written, not only the last one of a commit interval.
    materialized = jpype.JClass(f"{kstream}.Materialized").as_(store).withCachingDisabled()
    materialized = materialized.withKeySerde(serdes.String()).withValueSerde(serdes.Long())
    counts = (
        builder.stream(source, consumed)
        .repartition(repartitioned.withName(REPARTITION).withNumberOfPartitions(1))
        .groupByKey(grouped)
        .count(materialized)
    )
    counts.toStream().to(target, jpype.JClass(f"{kstream}.Produced").with_(serdes.String(), serdes.Long()))
    return builder.build()


class StreamsRun:
    """Run of the application.

    Args:
        options: arguments of the program.
        history: history to append to.
    """

    def __init__(self, options: Namespace, history: History) -> None:
        self._history = history
        self._self: _AppIdentity = {
            "run": options.run, "application": options.application, "source": options.topics, "target": options.to,
        }  # fmt: skip
        config = {
            "application.id": options.application,
            "bootstrap.servers": options.bootstrap,
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": str(COMMIT_MS),
            "num.stream.threads": "1",
            "replication.factor": "3",
            "state.dir": options.state,
            "consumer.auto.offset.reset": "earliest",
        }
        with java_errors():
            self._streams = jpype.JClass(f"{_STREAMS}.KafkaStreams")(
                topology(options.topics, options.to), java_properties(config)
            )
            self._streams.setUncaughtExceptionHandler(_handler_class()(self._failed))

    def run(self, ended: program.StopEvent) -> None:
        """Process records until ``ended`` is set, noting each change of state, and close the application."""
        state = ""
        with java_errors():
            self._streams.start()
        while True:
            with java_errors():
                now = str(self._streams.state().toString())
            if now != state:
                state = now
                self._history.add(StreamsStateDetails(**self._self, state=state))
            if ended.wait(STATE_S):
                break
        with java_errors():
            self._streams.close(jpype.JClass("java.time.Duration").ofMillis(round(CLOSE_S * 1000)))

    def _failed(self, error: JavaError) -> None:
        failure = StreamsFailureDetails(**self._self, exception=error.java_class, message=error.text)
        self._history.add(failure, "unknown")


def _handler_class() -> Any:
    """Return the handler's class, created when the JVM runs because its interface is there."""
    interface = f"{_STREAMS}.errors.StreamsUncaughtExceptionHandler"
    replace_thread = jpype.JClass(f"{interface}$StreamThreadExceptionResponse").REPLACE_THREAD

    class Handler:
        """Replaces a thread that an exception ended, after noting the exception."""

        def __init__(self, note: Callable[[JavaError], None]) -> None:
            self._note = note

        @jpype.JOverride  # type: ignore[untyped-decorator]  # jpype has no types
        def handle(self, error: Any) -> Any:
            """Called by the thread that ends."""
            self._note(JavaError.of(error))
            return replace_thread

    return jpype.JImplements(interface)(Handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the application as a process; SIGTERM or SIGINT closes it."""
    parser = program.topics_parser(
        "streams_app", "Count the records of each key of a topic with Kafka Streams, exactly once.",
        "--to counts --application app --state DIR --run streams-1",
    )  # fmt: skip
    parser.add_argument("--to", required=True, help="the topic of the counts")
    parser.add_argument("--application", required=True, help="id of the application")
    parser.add_argument("--state", required=True, help="folder for its state")
    parser.add_argument("--run", required=True, help="run name in its events")

    def work(options: Namespace, ended: program.StopEvent) -> None:
        ensure_started(streams_classpath(), log_level="ERROR")
        StreamsRun(options, History(options.history)).run(ended)

    return program.run(parser, work, arguments, JavaError)


if __name__ == "__main__":
    sys.exit(main())
