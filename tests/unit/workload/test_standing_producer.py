"""Standby producer process: several plans in a row, invalid plans, and a clean shutdown."""

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


class StandbyProcess:
    """A running standby producer, and the pipes that control it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (REQUESTS, RESPONSES):
            os.mkfifo(folder / name)
        command = [sys.executable, "-m", "pyhooks.workload.standby_producer", "--folder", str(folder)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.closed_address = f"127.0.0.1:{unused.getsockname()[1]}"

    def send_plan(self, number: int, options: str, path: Path) -> None:
        line = (
            f"--mode probe --client confluent --bootstrap {self.closed_address} --topics t {options} --history '{path}'"
        )
        (self.folder / REQUESTS).write_text(f"{number} {line}\n")

    def next_line(self) -> str:
        with (self.folder / RESPONSES).open() as pipe:
            return pipe.readline()


@contextmanager
def start_standby(folder: Path) -> Iterator[StandbyProcess]:
    standby = StandbyProcess(folder)
    try:
        yield standby
    finally:
        standby.process.kill()
        standby.process.communicate()


def ops(path: Path) -> list[str]:
    return [event.op for event in History(path).events()] if path.exists() else []


def test_plans_are_executed_one_after_the_other(tmp_path: Path) -> None:
    with start_standby(tmp_path) as standby:
        for number in (1, 2):
            path = tmp_path / f"a plan {number}.jsonl"
            standby.send_plan(number, "--count 2 --rate 20 --timeout-ms 300", path)
            assert standby.next_line() == f"{number} 0\n"
            assert sorted(set(ops(path))) == ["end", "intend", "no-metadata", "produce"]
            assert ops(path).count("produce") == 2
        assert standby.process.poll() is None


def test_an_invalid_plan_is_reported_and_the_next_is_executed(tmp_path: Path) -> None:
    with start_standby(tmp_path) as standby:
        standby.send_plan(1, "--absent", tmp_path / "1")
        assert standby.next_line() == "1 2 see its log\n"
        standby.send_plan(2, "--count 1 --defaults", tmp_path / "2")
        assert standby.next_line().startswith("2 2 --defaults applies to Java producers only")
        standby.send_plan(3, "--count 1 --timeout-ms 300", tmp_path / "3")
        assert standby.next_line() == "3 0\n"
        assert ops(tmp_path / "3").count("produce") == 1


def test_sigterm_ends_the_current_plan_cleanly(tmp_path: Path) -> None:
    with start_standby(tmp_path) as standby:
        standby.send_plan(1, "--seconds 60 --rate 20 --timeout-ms 300", tmp_path / "1")
        wait_for(lambda: "produce" in ops(tmp_path / "1"), goal="a first attempt", timeout_s=30)
        standby.process.send_signal(signal.SIGTERM)
        assert standby.process.wait(30) == 0
        assert ops(tmp_path / "1")[-1] == "end"


def test_a_folder_without_pipes_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyhooks.workload.standby_producer", "--folder", str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 2
    assert finished.stderr == f"error: [Errno 2] No such file or directory: '{tmp_path / REQUESTS}'\n"
