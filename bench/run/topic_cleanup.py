"""Deletion of a run's topics from an existing cluster, however the run ends, kill -9 included.

A separate process receives the name of each topic before the topic is created, waits for the end of its input, which
comes with the end of the run, and deletes them. Clients on executors may outlive the run for a moment and make the
cluster create a topic again, so the process checks until all stay deleted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_object, write_json
from pyhooks.core.wait import wait_for

# Seconds without an observed topic that end the deletion: while clients may run, and after all have ended.
ABSENT_S, NO_CLIENTS_ABSENT_S = 10.0, 0.0
DELETE_S, GRACE_S = 90.0, 30.0
POLL_S = 0.5


class TopicCleaner:
    """The run's end of the pipe to the process that deletes its topics."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe

    def announce(self, topics: Sequence[str]) -> None:
        """Send the names of topics that are about to be created."""
        self._send({"topics": list(topics)})

    def report_no_clients(self) -> None:
        """Report that no client of the run is left, so that deleted topics stay deleted."""
        self._send({"quiet_s": NO_CLIENTS_ABSENT_S})

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._pipe.write(json.dumps(message) + "\n")
            self._pipe.flush()
        except OSError as error:
            raise RackgateError("the process that deletes the run's topics has ended: start the run again") from error


@contextmanager
def deleting_topics(bootstrap: str, config: Mapping[str, str], left: Path) -> Iterator[TopicCleaner]:
    """Yield a cleaner; at the end of the block its process deletes the topics.

    Further librdkafka properties, ``config``, reach the process only through the pipe. The file ``left`` lists topics
    that could not be deleted; those that an earlier run left there are deleted, too.

    Raises:
        RackgateError: topics are left; the message names them.
    """
    # in a session of its own: Ctrl-C on a terminal is for the run only, and this process must outlive it to finish
    child = process.start(
        [sys.executable, "-m", "bench.run.topic_cleanup"],
        outlives=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    if child.stdin is None:
        raise AssertionError("stdin is a pipe")
    cleaner = TopicCleaner(child.stdin)
    cleaner._send({"bootstrap": bootstrap, "config": dict(config), "left": str(left)})
    try:
        if before := _topics_left(left).get(bootstrap):
            cleaner.announce(before)
        yield cleaner
    finally:
        if failure := _wait_for_end(child):
            raise RackgateError(failure)


def _topics_left(file: Path) -> dict[str, list[str]]:
    """Return the topics that earlier runs could not delete, by broker addresses."""
    if not os.path.lexists(file):
        return {}
    topics_left = read_object(file, "delete it, and delete its topics from those brokers")
    if not all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in topics_left.values()
    ):
        raise RackgateError(f"{file}: must contain a list of topics for each address, is {topics_left!r:.100}")
    return topics_left


def _leave(file: Path, bootstrap: str, names: Sequence[str]) -> None:
    """Store the topics that are left on these brokers, beside those of others; delete the file if there are none."""
    left = {brokers: topics for brokers, topics in (_topics_left(file) | {bootstrap: list(names)}).items() if topics}
    if left:
        write_json(file, left)
    else:
        file.unlink(missing_ok=True)


def _wait_for_end(child: subprocess.Popen[str]) -> str:
    """Close the pipe and wait for the process; return its error, or an empty text."""
    try:
        output, _ = child.communicate(timeout=DELETE_S + GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return "the topics of the run could not be deleted in time: delete topics rackgate-bench-* manually"
    lines = output.strip().splitlines()
    return "" if child.returncode == 0 else lines[-1] if lines else f"deleting topics ended with {child.returncode}"


def delete_topics(
    client: AdminClient, names: Sequence[str], *, quiet_s: float, timeout_s: float = DELETE_S, poll_s: float = POLL_S
) -> None:
    """Delete those of the topics that exist, until none has been observed for ``quiet_s`` seconds.

    Raises:
        RackgateError: they could not be deleted in time.
    """
    from bench.load import arm_topics

    absent_since: float | None = None
    left, reason = list(names), "the cluster does not respond"

    def are_deleted() -> bool:
        nonlocal absent_since, left, reason
        try:
            existing = client.list_topics(timeout=arm_topics.DELETE_S).topics
            left = [name for name in names if name in existing]
            if left:
                absent_since, reason = None, "they still exist"
                arm_topics.delete(client, left)
                return False
        except (KafkaException, RackgateError) as error:
            absent_since, reason = None, str(error)
            return False
        absent_since = absent_since or time.monotonic()
        return time.monotonic() - absent_since >= quiet_s

    try:
        wait_for(are_deleted, goal="the deletion of topics", timeout_s=timeout_s, interval_s=poll_s)
    except RackgateError as error:
        raise RackgateError(
            f"topics could not be deleted ({reason}); delete them manually: {', '.join(left)}"
        ) from error


def clean_up(pipe: IO[str], delete: Callable[[str, Mapping[str, str], Sequence[str], float], None]) -> None:
    """Read messages of a ``TopicCleaner`` until the end of the pipe, then delete the topics.

    ``delete`` gets bootstrap addresses, client properties, topic names and ``quiet_s``.

    Raises:
        SystemExit: topics are left.
    """
    first = json.loads(pipe.readline() or "{}")
    names: list[str] = []
    left = Path(first["left"])
    quiet_s = ABSENT_S
    for line in pipe:
        try:
            message = json.loads(line)
        except json.JSONDecodeError:
            continue  # the run was killed while it wrote the line, before it created these topics
        names += message.get("topics", [])
        quiet_s = message.get("quiet_s", quiet_s)
    if not names:
        return
    try:
        delete(first["bootstrap"], first["config"], names, quiet_s)
    except RackgateError as error:
        # the run that would read the output may have been killed
        _leave(left, first["bootstrap"], names)
        print(f"{error} ({left} lists them, and the same command deletes them)")  # noqa: T201 - for the run
        sys.exit(1)
    _leave(left, first["bootstrap"], [])


def _delete(bootstrap: str, config: Mapping[str, str], names: Sequence[str], quiet_s: float) -> None:
    from pyhooks.kafka import topics

    delete_topics(topics.admin(bootstrap, config), names, quiet_s=quiet_s)


if __name__ == "__main__":
    clean_up(sys.stdin, _delete)
