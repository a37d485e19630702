"""Standby producer process: plans in turn, invalid plans, and an orderly end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.workload.standby_producer import REQUESTS, RESPONSES


class Standing:
    """One that runs, and how it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (REQUESTS, RESPONSES):
            os.mkfifo(folder / name)
        command = [sys.executable, "-m", "pyhooks.workload.standby_producer", "--folder", str(folder)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.dead = f"127.0.0.1:{bound.getsockname()[1]}"

    def ask(self, number: int, more: str, path: Path) -> None:
        options = f"--mode probe --client confluent --bootstrap {self.dead} --topics t {more} --history '{path}'"
        (self.folder / REQUESTS).write_text(f"{number} {options}\n")

    def next_line(self) -> str:
        with (self.folder / RESPONSES).open() as pipe:
            return pipe.readline()


@contextmanager
def standing(folder: Path) -> Iterator[Standing]:
    one = Standing(folder)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def ops(path: Path) -> list[str]:
    return [event.op for event in History(path).events()] if path.exists() else []


def test_plans_are_carried_out_one_after_the_other(tmp_path: Path) -> None:
    with standing(tmp_path) as one:
        for number in (1, 2):
            path = tmp_path / f"a plan {number}.jsonl"
            one.ask(number, "--count 2 --rate 20 --timeout-ms 300", path)
            assert one.next_line() == f"{number} 0\n"
            assert sorted(set(ops(path))) == ["end", "intend", "learn", "produce"]
            assert ops(path).count("produce") == 2
        assert one.process.poll() is None


def test_an_invalid_plan_is_reported_and_the_next_is_carried_out(tmp_path: Path) -> None:
    with standing(tmp_path) as one:
        one.ask(1, "--absent", tmp_path / "1")
        assert one.next_line() == "1 2 see its log\n"
        one.ask(2, "--count 1 --defaults", tmp_path / "2")
        assert one.next_line().startswith("2 2 --defaults applies to Java producers only")
        one.ask(3, "--count 1 --timeout-ms 300", tmp_path / "3")
        assert one.next_line() == "3 0\n"
        assert ops(tmp_path / "3").count("produce") == 1


def test_the_current_plan_ends_in_order(tmp_path: Path) -> None:
    with standing(tmp_path) as one:
        one.ask(1, "--seconds 60 --rate 20 --timeout-ms 300", tmp_path / "1")
        wait_for(lambda: "produce" in ops(tmp_path / "1"), goal="a first attempt", timeout_s=30)
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(30) == 0
        assert ops(tmp_path / "1")[-1] == "end"


def test_a_folder_without_pipes_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyhooks.workload.standby_producer", "--folder", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr == f"error: [Errno 2] No such file or directory: '{tmp_path / REQUESTS}'\n"
