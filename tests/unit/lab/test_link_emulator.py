"""Compilation and commands of the link emulator. tests/live/lab/test_links.py tests its effect on frames."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.lab import link_emulator
from pyhooks.lab.link_emulator import DirectionCounters, LinkSettings, LinkState
from pyhooks.lab.topology import Quality

COUNTERS = {
    "frames": 1,
    "bytes": 60,
    "lost": 2,
    "dropped": 3,
    "overflowed": 4,
    "failed": 5,
    "queued_bytes": 6,
}
RESPONSE = {"delay_ns": 7, "jitter_ns": 8, "loss_ppb": 9, "bytes_per_s": 10, "directions": [COUNTERS, COUNTERS]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def emulator(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """Start a link emulator in this network namespace, where ordinary users cannot add links."""
    monkeypatch.setattr(link_emulator, "CACHE", cache)
    monkeypatch.setattr(link_emulator, "SOCKET", tmp_path / "socket")
    command = [str(link_emulator.ensure_program()), str(link_emulator.SOCKET)]
    with process.supervised(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child


def test_each_direction_has_half_of_the_round_trip() -> None:
    assert LinkSettings.of(Quality(0.3, 0.1, 0.000001, 8)) == LinkSettings(150_000, 50_000, 10, 1_000_000)
    assert LinkSettings.of(Quality()) == LinkSettings(0, 0, 0, 0)
    # A limit below one byte per second is rounded up, not removed.
    assert LinkSettings.of(Quality(rate_mbit=1e-6)).bytes_per_s == 1
    # Halving an odd number of nanoseconds must not leave the jitter above the delay.
    odd = LinkSettings.of(Quality(0.000003, 0.000003))
    assert odd.jitter_ns <= odd.delay_ns


def test_a_response_is_the_state_of_a_link() -> None:
    counters = DirectionCounters(**COUNTERS)
    assert link_emulator.parse_response("get a-b", json.dumps(RESPONSE)) == LinkState(
        LinkSettings(7, 8, 9, 10), (counters, counters)
    )
    assert link_emulator.parse_response("get a-b", "null") is None
    with pytest.raises(RackgateError, match="link emulator: too many links"):
        link_emulator.parse_response("get a-b", '{"error": "too many links"}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "7",
        '{"directions": []}',
        json.dumps(RESPONSE | {"directions": [COUNTERS]}),
        json.dumps(RESPONSE | {"colour": 1}),
        json.dumps(RESPONSE | {"directions": [COUNTERS, {"frames": 1}]}),
    ],
)
def test_a_malformed_response_is_an_error(text: str) -> None:
    with pytest.raises(RackgateError, match="link emulator: unexpected response to 'get a-b': "):
        link_emulator.parse_response("get a-b", text)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("", "expected a command and the name of a link"),
        ("get", "expected a command and the name of a link"),
        ("melt a-b", "not a command: melt (number of arguments: 1)"),
        ("get a-b more", "not a command: get (number of arguments: 2)"),
        ("set a-b 1 1 1", "not a command: set (number of arguments: 4)"),
        ("set a-b 1 1 1 1 1", "not a command: set (number of arguments: 6)"),
        ("set a-b 1 1 1 1 1 1 1", "too many arguments"),
        ("set a-b -1 0 0 0", "link a-b: -1 is not a whole number up to 60000000000"),
        ("set a-b 1.5 0 0 0", "link a-b: 1.5 is not a whole number"),
        ("set a-b 60000000001 0 0 0", "link a-b: 60000000001 is not a whole number"),
        ("set a-b 1 0 1000000001 0", "link a-b: 1000000001 is not a whole number up to 1000000000"),
        ("set a-b 1 0 0 99999999999999999999999", "is not a whole number"),
        ("set a-b 1 2 0 0", "link a-b: jitter above the delay"),
        ("add a-b no1 no2 1", "link a-b: interface no1: No such device"),
        ("add a-b no1 no2 x", "link a-b: x is not a seed"),
        (f"add {'n' * 40} no1 no2 1", "its name is too long"),
        ('get "a"', "a command has printable ASCII without quotes and backslashes"),
        ("get a\nget b", "a command has printable ASCII without quotes and backslashes"),
        ("get é", "a command has printable ASCII without quotes and backslashes"),
        ("get a-b" + " " * 2042, "a command has at most 2048 bytes"),
    ],
)
def test_an_invalid_command_is_an_error(command: str, error: str) -> None:
    with pytest.raises(RackgateError) as caught:
        # An empty message would close the connection.
        link_emulator._request(command or " ")
    assert error in str(caught.value)


@pytest.mark.usefixtures("emulator")
def test_an_unknown_link_has_no_state_and_can_be_removed_but_not_changed() -> None:
    assert link_emulator.read("a-b") is None
    link_emulator.remove("a-b")
    with pytest.raises(RackgateError, match="there is no link a-b"):
        link_emulator.configure("a-b", Quality(2))


def test_an_emulator_that_has_exited_is_an_error(emulator: subprocess.Popen[bytes]) -> None:
    emulator.kill()
    emulator.wait()
    with pytest.raises(RackgateError, match="link emulator: it does not respond to 'get a-b'"):
        link_emulator.read("a-b")


def test_a_link_that_lost_frames_unintentionally_is_described() -> None:
    intact = {"directions": [COUNTERS | {"overflowed": 0, "failed": 0}] * 2}
    links = {"a-b": {"directions": [COUNTERS, COUNTERS]}, "a-c": intact}
    assert link_emulator.describe_trouble(links) == [
        "link a-b lost frames unintentionally: 8 that the emulator did not read in time, 10 that the kernel did not"
        " send"
    ]
    assert link_emulator.describe_trouble({}) == []


def cpu_ticks(pid: int) -> int:
    stat = process.stat_fields(Path(f"/proc/{pid}"))
    return int(stat[11]) + int(stat[12])


def test_more_clients_than_descriptors_do_not_keep_the_emulator_busy(
    emulator: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    resource.prlimit(emulator.pid, resource.RLIMIT_NOFILE, (12, 12))
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            client.connect(str(tmp_path / "socket"))
        before = cpu_ticks(emulator.pid)
        time.sleep(0.5)
        # A spinning process would use up to 50 ticks of 10 ms.
        assert cpu_ticks(emulator.pid) - before <= 3
    assert link_emulator.read("a-b") is None


def test_errors_go_to_a_log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of this test writes more than a pipe holds, then goes on."""
    program = tmp_path / "emulator"
    program.write_text(
        "#!/bin/sh\necho ready\nexec >&-\nhead -c 200000 /dev/zero >&2\necho end >&2\n", encoding="ascii"
    )
    program.chmod(0o755)
    start = process.start
    monkeypatch.setattr(link_emulator, "ensure_program", lambda: program)
    # without nsenter
    monkeypatch.setattr(process, "start", lambda command, **options: start(command[-2:], **options))
    log = tmp_path / "link_emulator.log"
    assert link_emulator.start("links", log).wait(timeout=20) == 0
    assert log.read_bytes().endswith(b"end\n")
    program.write_text("#!/bin/sh\necho 'no memory' >&2\n", encoding="ascii")
    log.unlink()
    with pytest.raises(RackgateError, match=r"link emulator: it does not start: no memory$"):
        link_emulator.start("links", log)


def test_leftovers_of_killed_compilations_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_emulator, "CACHE", tmp_path)
    folder = link_emulator._cached_program().parent
    stale, current = folder / ".making-old", folder / ".making-now"
    for left in (stale, current):
        left.mkdir(parents=True)
    os.utime(stale, (1, 1))
    link_emulator.ensure_program()
    assert not stale.exists()
    assert current.exists(), "another process may be compiling in it"


def test_the_program_compiles_without_warnings(tmp_path: Path) -> None:
    command = ["gcc", *link_emulator.FLAGS, "-Wall", "-Wextra", "-Werror", "-o", str(tmp_path / "program")]
    process.run([*command, str(link_emulator.SOURCE)], task="compile")


def test_the_program_is_recompiled_only_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "link_emulator.c"
    monkeypatch.setattr(link_emulator, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(link_emulator, "SOURCE", source)
    source.write_text("int main(void) { return 3; }\n", encoding="ascii")
    first = link_emulator.ensure_program()
    modified_ns = first.stat().st_mtime_ns
    assert link_emulator.ensure_program() == first
    assert first.stat().st_mtime_ns == modified_ns
    assert [file.name for file in first.parent.iterdir()] == ["link_emulator"]
    source.write_text("int main(void) { return 4; }\n", encoding="ascii")
    second = link_emulator.ensure_program()
    assert [subprocess.run([path], check=False).returncode for path in (first, second)] == [3, 4]
    source.write_text("int main(void) { return", encoding="ascii")
    with pytest.raises(RackgateError, match="compile the link emulator: gcc ended with status 1"):
        link_emulator.ensure_program()


def test_an_unwritable_cache_falls_back_to_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def deny_cache(folder: Path, *args: Any, **kwargs: Any) -> None:
        if folder.is_relative_to(link_emulator.CACHE):
            raise PermissionError(13, "Permission denied")
        mkdir(folder, *args, **kwargs)

    source = tmp_path / "link_emulator.c"
    source.write_text("int main(void) { return 0; }\n", encoding="ascii")
    monkeypatch.setattr(link_emulator, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(link_emulator, "SOURCE", source)
    private = tmp_path / "private"
    private.mkdir()
    # Root can write everywhere, so simulate the permission error.
    monkeypatch.setattr(Path, "mkdir", deny_cache)
    assert link_emulator.ensure_program(private) == private / "link_emulator"


def test_a_missing_compiler_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_emulator, "CACHE", tmp_path)
    link_emulator.check_compiler()
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RackgateError, match=r"need no-such-compiler, .*'apt-get install gcc libc6-dev'"):
        link_emulator.check_compiler()
