"""Kafka on hosts: commands for processes and faults, run on local folders with a fake java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ducktape_tests.services.host_folder import HostFolder
from ducktape_tests.services.host_network import HostNetwork, dropping
from ducktape_tests.services.hosts import SESSIONS, Hosts
from pyhooks.checkers.crashes import check_crashes
from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.kafka import quorum_state
from pyhooks.kafka.quorum_state import Member, Quorum
from pyhooks.lab import quorum_changes, topology
from pyhooks.lab.cluster_control import NetworkControl
from pyhooks.lab.topology import Node, Quality

AZ3 = topology.load(topology.find("az3"))
BROKER, OTHER = AZ3.brokers[:2]
VOTER = AZ3.controllers[0]
# work folder, relative to the root of each host
FOLDER = "kafka-rackgate/kafka"
JAVA = """#!/bin/sh
case "$*" in
*StorageTool*) mkdir -p "$HOST/FOLDER/data" && echo "directory.id=new-$$" > "$HOST/FOLDER/data/meta.properties" ;;
*MetadataQuorum*)
    echo "$*" >> "$ALL/requests"
    id=$(sed -n s/^directory.id=//p "$ALL/VOTER/FOLDER/data/meta.properties")
    case "$*" in *remove-controller*) printf "" > "$ALL/voter" ;; *add-controller*) echo "$id" > "$ALL/voter" ;; esac ;;
*kafka.Kafka*) exec sleep 300 ;;
esac
"""
PING = """#!/bin/sh
case "$*" in
*10.0.0.1) echo "64 bytes from x: icmp_seq=1 ttl=1 time=3.5 ms" ;;
*10.0.0.2) exit 1 ;;
*) echo "no such host" >&2; exit 2 ;;
esac
"""

# Like a JVM killed on a busy machine: the main thread exits before the others.
FIRST_THREAD_ENDS = """
import ctypes, platform, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


class SimulatedAccount:
    """Ducktape account of a simulated host: commands run locally, ``home`` is mapped to the host's own folder."""

    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self._home, self._own = str(home / "home"), home / name
        self._own.mkdir()
        self._env = os.environ | {"HOST": str(self._own), "ALL": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}

    def _bash(self, command: str) -> subprocess.CompletedProcess[bytes]:
        arguments = ["bash", "-c", command.replace(self._home, str(self._own))]
        return subprocess.run(arguments, capture_output=True, check=False, env=self._env, stdin=subprocess.DEVNULL)

    def ssh(self, command: str, allow_fail: bool = False) -> int:
        assert allow_fail
        return self._bash(command).returncode

    def ssh_output(self, command: str, combine_stderr: bool, timeout_sec: float) -> bytes:
        assert (combine_stderr, timeout_sec > 0) == (False, True)
        return self._bash(command).stdout

    def signal(self, pid: int, number: signal.Signals, allow_fail: bool) -> None:
        assert allow_fail
        os.kill(pid, number)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.delenv("RACKGATE_LAB", raising=False)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("java", JAVA.replace("VOTER", VOTER.name).replace("FOLDER", FOLDER)), ("ping", PING)):
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    service = Hosts()
    service.topology, service.classpath, service.cluster_id = AZ3, "x", "c"
    service.directory_ids = {101: "d", 102: "e", 103: "f"}
    service.network = HostNetwork(AZ3, service.run_on)
    service.folder = HostFolder(str(tmp_path / "home"))
    service.accounts = {node.name: SimulatedAccount(tmp_path, node.name) for node in (BROKER, OTHER, VOTER)}
    for node in (BROKER, OTHER, VOTER):
        service.run_in_folder(node, ":")
    yield service
    for node in (BROKER, OTHER, VOTER):
        service.kill_kafka(node)


def test_process_states_after_start_pause_resume_and_kill(hosts: Hosts) -> None:
    assert hosts.process_state(BROKER) == "down"
    with pytest.raises(RackgateError, match=f"^{BROKER.name}: .*paused"):
        hosts.pause_kafka(BROKER)
    hosts.start_kafka(BROKER)
    first = hosts.kafka_pid(BROKER)
    hosts.start_kafka(BROKER)
    assert hosts.kafka_pid(BROKER) == first is not None
    assert (hosts.process_state(BROKER), hosts.process_state(OTHER)) == ("up", "down")
    hosts.pause_kafka(BROKER)
    assert hosts.process_state(BROKER) == "paused"
    hosts.resume_kafka(BROKER)
    wait_for(lambda: hosts.process_state(BROKER) == "up", goal="Kafka to resume", timeout_s=5)
    hosts.kill_kafka(BROKER)
    assert hosts.process_state(BROKER) == "down"
    with pytest.raises(RackgateError, match=f"{BROKER.name} ended while starting"):
        hosts.check_running([BROKER])


def test_starts_stops_and_kills_are_recorded(hosts: Hosts, tmp_path: Path) -> None:
    hosts.process_history = history = History(tmp_path / "history.jsonl")
    hosts.start_kafka(BROKER)
    hosts.start_kafka(BROKER)
    hosts.stop_kafka(BROKER)
    hosts.start_kafka(BROKER)
    hosts.kill_kafka(BROKER)
    hosts.kill_kafka(BROKER)
    recorded = [(event.op, event.data.get("ran")) for event in history.events()]
    assert recorded == [("start", None), ("stop", True), ("start", None), ("kill", True), ("kill", False)]
    hosts.note_states([BROKER], history)
    hosts.note_faults([BROKER], history)
    verdict = check_crashes(list(history.events()))
    # The fake java logs nothing.
    assert (verdict.valid, verdict.because) == (
        "unknown",
        (f"the log of node {BROKER.node_id} can't be read: it has no log entry",),
    )


def test_crash_before_a_restart_is_detected(hosts: Hosts, tmp_path: Path) -> None:
    hosts.process_history = history = History(tmp_path / "history.jsonl")
    for restart in (False, True):
        hosts.start_kafka(BROKER)
        pid = hosts.kafka_pid(BROKER)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: hosts.kafka_pid(BROKER) is None, goal="the end of Kafka", timeout_s=5)
        if restart:
            hosts.start_kafka(BROKER)
            hosts.kill_kafka(BROKER)
        hosts.note_states([BROKER], history)
    verdict = check_crashes(list(history.events()))
    assert [reason for reason in verdict.because if "log of" not in reason] == [
        f"node {BROKER.node_id} has ended by itself",
        f"node {BROKER.node_id} had ended by itself before it was started again",
    ]


def test_unreadable_logs_and_hosts_are_recorded(hosts: Hosts, tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    hosts.note_faults([OTHER], history)
    unknown = Node("no-such-host", 9, "broker", "a", "10.0.0.9")
    hosts.accounts = {**hosts.accounts, unknown.name: None}
    hosts.note_states([unknown], history)
    hosts.note_faults([unknown], history)
    assert [(event.op, event.outcome) for event in history.events()] == [
        ("faults-logged", "unknown"),
        ("state", "unknown"),
        ("faults-logged", "unknown"),
    ]
    assert all(event.data["error"] for event in history.events())


def test_clean_shutdown(hosts: Hosts) -> None:
    hosts.stop_kafka(BROKER)
    hosts.start_kafka(BROKER)
    hosts.start_kafka(OTHER)
    hosts.stop_kafka(BROKER)
    assert (hosts.process_state(BROKER), hosts.process_state(OTHER)) == ("down", "up")


def test_clean_shutdown_has_a_time_limit(hosts: Hosts) -> None:
    hosts.stop_timeout_s = 0.5
    hosts.start_kafka(BROKER)
    hosts.pause_kafka(BROKER)
    with pytest.raises(RackgateError, match=f"shutdown of {BROKER.name}"):
        hosts.stop_kafka(BROKER)


class BusyAccount:
    """Account of a host with slow commands; ``max_running`` is the highest number of concurrent commands."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.max_running = 0
        self.busy = threading.Event()

    def ssh_output(self, *_: object, **__: object) -> bytes:
        self.running.append(1)
        self.max_running = max(self.max_running, len(self.running))
        if self.max_running >= SESSIONS:
            self.busy.set()
        self.busy.wait(10)
        # time for commands beyond the limit
        time.sleep(0.02)
        self.running.pop()
        return b"\n0"


def test_concurrent_commands_are_limited_per_host() -> None:
    hosts, accounts = Hosts(), [BusyAccount(), BusyAccount()]
    hosts.accounts = dict(zip((BROKER.name, OTHER.name), accounts, strict=True))
    with ThreadPoolExecutor(4 * SESSIONS) as pool:
        list(pool.map(lambda number: hosts.run_on((BROKER, OTHER)[number % 2], "true"), range(8 * SESSIONS)))
    assert [account.max_running for account in accounts] == [SESSIONS, SESSIONS]


class LostAccount:
    """Account of a host whose connection is lost."""

    def lost(self, *_: object, **__: object) -> None:
        raise EOFError("connection lost")

    ssh = ssh_output = signal = lost


def test_connection_errors_are_reported() -> None:
    hosts = Hosts()
    hosts.accounts = {BROKER.name: LostAccount()}
    for query in (hosts.process_state, hosts.formatted, hosts.kill_kafka):
        with pytest.raises(RackgateError, match=f"^{BROKER.name}: .*EOFError: connection lost"):
            query(BROKER)


def test_zombie_counts_as_ended(hosts: Hosts) -> None:
    with subprocess.Popen(["true"]) as ended:
        wait_for(lambda: "Z" in process.stat_fields(Path(f"/proc/{ended.pid}")), goal="its end", timeout_s=5)
        pid_file = Path(hosts.home.replace("/home/", f"/{BROKER.name}/")) / "pid"
        pid_file.write_text(f"{ended.pid}\n", encoding="ascii")
        assert (hosts.kafka_pid(BROKER), hosts.process_state(BROKER)) == (None, "down")


def test_killed_process_counts_as_running_until_its_last_thread_ends(hosts: Hosts) -> None:
    pid_file = Path(hosts.home.replace("/home/", f"/{BROKER.name}/")) / "pid"
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdin=subprocess.PIPE) as ending:
        entry = Path(f"/proc/{ending.pid}")
        wait_for(lambda: "Z" in process.stat_fields(entry), goal="the end of its first thread", timeout_s=5)
        pid_file.write_text(f"{ending.pid}\n", encoding="ascii")
        assert (hosts.kafka_pid(BROKER), hosts.process_state(BROKER)) == (ending.pid, "up")
        assert ending.stdin is not None
        ending.stdin.close()
        wait_for(lambda: hosts.kafka_pid(BROKER) is None, goal="the end of its last thread", timeout_s=5)


def test_class_data_sharing_archive_is_used_if_it_exists(hosts: Hosts, tmp_path: Path) -> None:
    archive = tmp_path / "overlay.jsa"
    option = f"-XX:SharedArchiveFile={archive}"
    hosts.archives = {hosts.classpath: str(archive), "other": str(tmp_path)}
    assert option not in hosts.format_command(BROKER)
    archive.touch()
    assert option in hosts.format_command(BROKER)
    hosts.classpath = "a third"
    assert "SharedArchiveFile" not in hosts.format_command(BROKER)


def test_disk_is_deleted_and_replaced(hosts: Hosts) -> None:
    hosts.launch(BROKER, hosts.format_command(BROKER))
    wait_for(lambda: hosts.formatted(BROKER), goal="the disk", timeout_s=5)
    with pytest.raises(RackgateError, match=f"^{BROKER.name}: Kafka runs"):
        hosts.wipe(BROKER)
    hosts.kill_kafka(BROKER)
    before = hosts.directory_id(BROKER)
    assert before.startswith("new-")
    assert hosts.wipe(BROKER) == before
    assert not hosts.formatted(BROKER)
    with pytest.raises(RackgateError, match=f"^{BROKER.name}: .*not formatted"):
        hosts.wipe(BROKER)
    quorum_changes.replace_disks(hosts, [BROKER])
    assert hosts.process_state(BROKER) == "up"
    assert hosts.directory_id(BROKER) not in ("", before)


def test_all_log_directories_of_a_broker_are_deleted(hosts: Hosts, tmp_path: Path) -> None:
    hosts.directories = ("data", "data-2")
    assert [Path(path).name for path in hosts.log_directories(BROKER)] == ["data", "data-2"]
    assert [Path(path).name for path in hosts.log_directories(VOTER)] == ["data"]
    folder = tmp_path / BROKER.name / FOLDER
    for delete in (hosts.wipe, hosts.clear_disk):
        hosts.format([BROKER])
        hosts.run_in_folder(BROKER, 'mkdir -- "$1"', "data-2")
        delete(BROKER)
        assert not list(folder.glob("data*"))


def test_lost_voter_is_replaced(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quorum(bootstrap: str) -> Quorum:
        assert bootstrap
        directory = (tmp_path / "voter").read_text(encoding="utf-8").strip()
        observers = (Member(101, hosts.directory_id(VOTER), 7),) if hosts.formatted(VOTER) else ()
        return Quorum(
            102, (Member(101, directory, 7), Member(102, "x", 7)) if directory else (Member(102, "x", 7),), observers
        )

    monkeypatch.setattr(quorum_state, "query", quorum)
    hosts.format([VOTER])
    before = hosts.directory_id(VOTER)
    (tmp_path / "voter").write_text(before, encoding="utf-8")
    assert quorum_changes.voters(hosts, [BROKER]) == {101: before, 102: "x"}
    hosts.wipe(VOTER)
    quorum_changes.replace_disks(hosts, [VOTER])
    assert quorum_changes.voters(hosts, [OTHER]) == {101: hosts.directory_id(VOTER), 102: "x"}
    assert hosts.directory_id(VOTER) != before
    requests = (tmp_path / "requests").read_text(encoding="utf-8")
    assert f"remove-controller --controller-id 101 --controller-directory-id {before}" in requests
    assert f"--command-config {tmp_path / VOTER.name / FOLDER}/server.properties add-controller" in requests
    with pytest.raises(RackgateError, match="no broker remains"):
        quorum_changes.voters(hosts, [])


def test_failed_command_is_reported(hosts: Hosts) -> None:
    with pytest.raises(RackgateError, match=f"{BROKER.name}: sh ended with status 3: why") as caught:
        hosts.run_on(BROKER, "sh -c 'echo why; echo and this >&2; exit 3'")
    assert caught.value.detail == "why\nand this\n"
    # The error output of a successful command is dropped.
    assert hosts.run_on(BROKER, "sh -c 'echo all; echo warned >&2'") == "all\n"
    assert hosts.run_on(BROKER, "echo a; echo b") == "a\nb\n"


def node_at(ip: str) -> Node:
    return Node("x", 9, "broker", "a", ip)


def test_echo_requests(hosts: Hosts) -> None:
    assert [hosts.replies(node_at(ip), BROKER) for ip in ("10.0.0.1", "10.0.0.2")] == [True, False]
    with pytest.raises(RackgateError, match=f"^{BROKER.name}: .*status 2"):
        hosts.replies(node_at("10.0.0.3"), BROKER)
    rtt = hosts.rtt(node_at("10.0.0.1"), BROKER, 5)
    assert (rtt.source, rtt.sent, rtt.received, rtt.p50_ms) == (BROKER.name, 5, 1, 3.5)
    with pytest.raises(RackgateError, match="no echo"):
        hosts.rtt(node_at("10.0.0.2"), BROKER)
    with pytest.raises(RackgateError, match="ended with status"):
        hosts.rtt(node_at("10.0.0.3"), BROKER)


LINK_OPERATIONS: dict[str, Callable[[NetworkControl], Any]] = {
    "slow a rack": lambda network: network.slow("b", Quality(9)),
    "restore the links of a rack": lambda network: network.restore_links("b"),
    "query a link": lambda network: network.quality(AZ3.links[0], ""),
    "slow a broker": lambda network: network.slow_node(BROKER, Quality(9)),
    "restore a broker": lambda network: network.restore_node(BROKER),
}


@pytest.mark.parametrize("operation", LINK_OPERATIONS)
def test_link_operations_on_hosts_are_rejected(hosts: Hosts, operation: str) -> None:
    with pytest.raises(RackgateError, match=f"^{operation}: needs a lab; .* kill, pause, cut and wipe"):
        LINK_OPERATIONS[operation](hosts.network)


def test_rules_accept_only_ipv4_addresses() -> None:
    rules = dropping("t", reachable=["10.0.0.2", "10.0.0.1"])
    assert "ip saddr { 10.0.0.1, 10.0.0.2 } accept" in rules
    assert "tcp dport $port accept" in rules
    for address in ("::1", "host", "10.0.0.1; flush ruleset"):
        with pytest.raises(RackgateError, match="need IPv4 addresses"):
            dropping("t", cut_off=[address])
    with pytest.raises(RackgateError, match="no host to cut off"):
        dropping("t")


def test_client_site_is_never_cut_off(hosts: Hosts) -> None:
    with pytest.raises(RackgateError, match="contains the clients"):
        hosts.network.cut(AZ3.client_site.name)


NFT = """#!/bin/sh
case "$*" in
*list*) [ -e "$HOST/rules-left" ] && cat "$HOST/rules-left" ;;
*) cat > "$HOST/rules"; echo 'not permitted' >&2; exit 1 ;;
esac
"""


@pytest.fixture
def hosts_with_nft(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Hosts whose fake nft lists the rules in the file ``rules-left`` and rejects every change."""
    (tmp_path / "bin" / "nft").write_text(NFT, encoding="utf-8")
    (tmp_path / "bin" / "sudo").write_text('#!/bin/sh\nshift; exec "$@"\n', encoding="utf-8")
    for program in ("nft", "sudo"):
        (tmp_path / "bin" / program).chmod(0o755)
    for account in hosts.accounts.values():
        monkeypatch.setitem(account._env, "SSH_CONNECTION", "10.0.0.9 40000 10.0.0.1 2222")
    return hosts


def test_failed_cut_reports_its_requirements(hosts_with_nft: Hosts, tmp_path: Path) -> None:
    with pytest.raises(RackgateError, match=f"^{BROKER.name}: .*nftables .*: not permitted$"):
        hosts_with_nft.network.unplug(BROKER)
    assert "tcp dport 2222 accept" in (tmp_path / BROKER.name / "rules").read_text(encoding="utf-8")


def test_forget_changes_only_hosts_with_rules(hosts_with_nft: Hosts, tmp_path: Path) -> None:
    network = hosts_with_nft.network
    assert isinstance(network, HostNetwork)
    network.forget(BROKER)
    (tmp_path / BROKER.name / "rules-left").write_text("table inet rackgate_rack\n", encoding="utf-8")
    with pytest.raises(RackgateError, match="not permitted"):
        network.forget(BROKER)


def test_cut_requires_an_ssh_connection(hosts_with_nft: Hosts) -> None:
    for account in hosts_with_nft.accounts.values():
        del account._env["SSH_CONNECTION"]
    with pytest.raises(RackgateError, match="not reached by SSH"):
        hosts_with_nft.network.unplug(BROKER)
