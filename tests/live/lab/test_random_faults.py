"""Fifty labs with Kafka, each with a random fault, some with a killed process of the lab: all end without leftovers.

``make lab-rounds`` takes about half an hour. ``RACKGATE_ROUNDS`` and ``RACKGATE_SEED`` set the number and the seed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab_leftovers import marked, traces
from pyhooks.core.wait import wait_for
from terminal_user import Person

ROUNDS = int(os.environ.get("RACKGATE_ROUNDS", "50"))
SEED = int(os.environ.get("RACKGATE_SEED", "1"))
pytestmark = [pytest.mark.long, pytest.mark.timeout(200 * ROUNDS)]
TOPOLOGY = """
name = "two"
[[site]]
name = "a"
brokers = [1]
[[site]]
name = "b"
brokers = [2]
[[site]]
name = "c"
controllers = [101]
client = true
[links]
rtt_ms = 2
"""
FAULTS = (
    ("rack", "kill", "b"),
    ("rack", "cut", "b"),
    ("rack", "cut", "b", "--from", "a"),
    ("rack", "pause", "b"),
    ("rack", "slow", "b", "--rtt-ms", "30"),
    ("rack", "wipe", "b"),
    ("broker", "kill", "1"),
    ("broker", "cut", "1"),
    ("broker", "pause", "1"),
    ("broker", "slow", "1", "--rtt-ms", "30"),
    ("broker", "wipe", "1"),
)


class Round:
    """One round: a lab from start to end."""

    def __init__(self, person: Person, number: int) -> None:
        self._person = person
        self.random = random.Random(f"{SEED}-{number}")  # noqa: S311 - not for secrets
        self.fault = self.random.choice(FAULTS)
        self.way = self.random.choice(("heal", "for", "down", "killed command", "killed process"))
        self._run_dir = person.folder / f"run-{number}"

    def check_run(self, *arguments: str) -> None:
        done = self._person.run(*arguments)
        assert done.returncode == 0, (self.fault, self.way, done.stdout + done.stderr)

    def play(self) -> None:
        self.check_run(
            "lab", "up", "--topology", str(self._person.folder / "two.toml"), "--run-dir", str(self._run_dir)
        )
        if self.way == "heal":
            self.check_run(*self.fault)
            self.check_run(self.fault[0], "heal", self.fault[2])
        elif self.way == "for":
            self.check_run(*self.fault, "--for", "2s")
        elif self.way == "down":
            self.check_run(*self.fault)
        else:
            self._interrupted()
        self.check_run("lab", "down", "--all")

    def _interrupted(self) -> None:
        """Kill the fault's command or another process of the lab at a random time."""
        command = self._person.start(*self.fault, "--for", "3s")
        moment = time.monotonic() + self.random.uniform(0.1, 6.0)
        try:
            command.wait(timeout=moment - time.monotonic())
        except subprocess.TimeoutExpired:
            ours = sorted(marked())
            victim = command.pid if self.way == "killed command" else self.random.choice(ours)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                return  # it had already ended
        finally:
            if self.way == "killed command":
                command.kill()
            command.wait(timeout=300)


def test_nothing_stays_behind(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TOPOLOGY, encoding="utf-8")
    person = Person(tmp_path)
    before = traces()
    played: dict[str, int] = {}
    for number in range(ROUNDS):
        one = Round(person, number)
        begin = time.monotonic()
        one.play()
        wait_for(lambda: traces() == before, goal=f"round {number}: all as before", timeout_s=20)
        played[one.way] = played.get(one.way, 0) + 1
        sys.stderr.write(f"round {number}: {one.way}: {' '.join(one.fault)}: {time.monotonic() - begin:.1f} s\n")
    assert sum(played.values()) == ROUNDS
    assert ROUNDS < 30 or len(played) == 5
