"""Deletion of a run's topics from an existing cluster, however the run ends, kill -9 included.

A separate process receives the name of each topic before the topic is created. It waits for the end of its input, which
comes with the end of the run for whatever reason, and then deletes the remaining topics. Clients on executors may
outlive the run for a moment and make the cluster create a topic again, so the process checks until all stay deleted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_object, write_json
from pyhooks.core.wait import wait_for

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

QUIET_S, IN_GOOD_ORDER_S = 10.0, 0.0
SWEEP_S, GRACE_S = 90.0, 30.0
LOOK_S = 0.5


class Sweeper:
    """The run's end of the pipe to the process that deletes its topics.

    Args:
        pipe: input of the process.
    """

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe

    def knows(self, topics: Sequence[str]) -> None:
        """Send the names of topics that are about to be created.

        Raises:
            RackgateError: the process that would delete them has ended.
        """
        self._tell({"topics": list(topics)})

    def nothing_runs(self) -> None:
        """Report that no client of the run is left, so that deleted topics stay deleted."""
        self._tell({"quiet_s": IN_GOOD_ORDER_S})

    def _tell(self, message: Mapping[str, Any]) -> None:
        try:
            self._pipe.write(json.dumps(message) + "\n")
            self._pipe.flush()
        except OSError as error:
            raise RackgateError("the process that deletes the run's topics has ended: start the run again") from error


@contextmanager
def sweeping(bootstrap: str, config: Mapping[str, str], left: Path) -> Iterator[Sweeper]:
    """Yield a sweeper; at the end of the block its process deletes the topics.

    Args:
        bootstrap: broker addresses.
        config: further librdkafka properties; they reach the process only through the pipe.
        left: file with topics that could not be deleted; those that an earlier run left there are deleted, too.

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
        raise AssertionError("it was asked to be a pipe")
    sweeper = Sweeper(child.stdin)
    sweeper._tell({"bootstrap": bootstrap, "config": dict(config), "left": str(left)})
    try:
        if before := _left(left, bootstrap):
            sweeper.knows(before)
        yield sweeper
    finally:
        said = _ended(child)
        if said:
            raise RackgateError(said)


def _left(file: Path, bootstrap: str) -> list[str]:
    """Return the topics that an earlier run could not delete from these brokers."""
    return _all_left(file).get(bootstrap, [])


def _all_left(file: Path) -> dict[str, list[str]]:
    """Return all topics that are left, by broker addresses."""
    if not os.path.lexists(file):
        return {}
    found = read_object(file, "delete it, and the topics that it names from those brokers")
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in found.values()):
        raise RackgateError(f"{file}: must hold a list of topics for each address, is {found!r:.100}")
    return found


def _leave(file: Path, bootstrap: str, names: Sequence[str]) -> None:
    """Store the topics that are left on these brokers, beside those of others; delete the file if there are none."""
    found = _all_left(file) | {bootstrap: list(names)}
    found = {brokers: topics for brokers, topics in found.items() if topics}
    if found:
        write_json(file, found)
    else:
        file.unlink(missing_ok=True)


def _ended(child: subprocess.Popen[str]) -> str:
    """Close the pipe and wait for the process; return its error, or an empty text."""
    try:
        said, _ = child.communicate(timeout=SWEEP_S + GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return "the topics of the run could not be deleted in time: look for rackgate-bench-* and delete them by hand"
    lines = said.strip().splitlines()
    return "" if child.returncode == 0 else lines[-1] if lines else f"deleting topics ended with {child.returncode}"


def sweep(client: AdminClient, names: Sequence[str], *, quiet_s: float, timeout_s: float = SWEEP_S) -> None:
    """Delete those of the topics that exist, until none has been observed for ``quiet_s`` seconds.

    Raises:
        RackgateError: they could not be deleted in time.
    """
    from confluent_kafka import KafkaException

    from bench.load import arm_topics

    away_since: float | None = None
    left, why = list(names), "the cluster does not answer"

    def gone() -> bool:
        nonlocal away_since, left, why
        try:
            there = client.list_topics(timeout=arm_topics.DELETE_S).topics
            left = [name for name in names if name in there]
            if left:
                away_since, why = None, "they are still there"
                arm_topics.delete(client, left)
                return False
        except (KafkaException, RackgateError) as error:
            away_since, why = None, str(error)
            return False
        away_since = away_since or time.monotonic()
        return time.monotonic() - away_since >= quiet_s

    try:
        wait_for(gone, what="topics to be gone", timeout_s=timeout_s, interval_s=LOOK_S)
    except RackgateError as error:
        raise RackgateError(f"topics could not be deleted ({why}); delete them by hand: {', '.join(left)}") from error


def main() -> None:
    """Entry point: read messages until the end of the input, then delete the topics."""
    from pyhooks.kafka import topics

    first = json.loads(sys.stdin.readline() or "{}")
    names: list[str] = []
    left = Path(first["left"])
    quiet_s = QUIET_S
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except json.JSONDecodeError:
            continue  # the run was killed while it wrote the line, before it created these topics
        names += message.get("topics", [])
        quiet_s = message.get("quiet_s", quiet_s)
    if not names:
        return
    try:
        sweep(topics.admin(first["bootstrap"], first["config"]), names, quiet_s=quiet_s)
    except RackgateError as error:
        # the run that would read the output may have been killed
        _leave(left, first["bootstrap"], names)
        print(f"{error} (they are in {left}, and the same command deletes them)")  # noqa: T201 - for the run
        sys.exit(1)
    _leave(left, first["bootstrap"], [])


if __name__ == "__main__":
    main()
