"""Metrics of the gate from a JVM with the options of a broker on a host, which opens no port for them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ducktape_tests.services.host_folder import HostFolder
from ducktape_tests.services.hosts import Hosts
from metrics_agent_jar import agent_jar, compile_java
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.lab import topology
from pyhooks.lab.metrics import poll_once, rows
from pyhooks.workload.gate_meter import GateSource, parse_source

BROKER = topology.load(topology.find("az3")).brokers[0]
# two beans of the gate with additional attributes, and an unrelated one
PROGRAM = """
import java.lang.management.ManagementFactory;
import javax.management.ObjectName;

public class Gate {
    public interface GaugeMBean { int getValue(); long getCount(); }
    public static class Gauge implements GaugeMBean {
        public int getValue() { return 2; }
        public long getCount() { return 3; }
    }
    public static void main(String[] words) throws Exception {
        for (String name : new String[] {
                "kafka.cluster:type=Partition,name=IsrRackCount,topic=t,partition=0",
                "kafka.server:type=ReplicaManager,name=RackCheckFailureRate",
                "kafka.server:type=ReplicaManager,name=LeaderCount"})
            ManagementFactory.getPlatformMBeanServer().registerMBean(new Gauge(), new ObjectName(name));
        System.out.println("registered");
        System.in.read();
    }
}
"""
LISTENS = "0A"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gate")
    (made / "Gate.java").write_text(PROGRAM, encoding="utf-8")
    compile_java(made / "Gate.java", made)
    agent_jar(made)
    return made


@contextmanager
def broker(classes: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Start a JVM as on a host; once its beans are registered, yield its PID and the agent's socket."""
    hosts = Hosts()
    hosts.folder, hosts.classpath = HostFolder(str(root)), str(classes)
    hosts.agent = str(classes / "agent.jar")
    Path(hosts.home).mkdir(parents=True, mode=0o700)
    command = [*DIES_WITH_PARENT, "java", *hosts.java_options(BROKER), "-Xmx64m", "-cp", hosts.classpath, "Gate"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "registered\n"
            wait_for(Path(hosts.metrics_socket).exists, goal="the socket", timeout_s=20, interval_s=0.02)
            yield running.pid, hosts.metrics_socket
        finally:
            running.kill()


def listening_ports(pid: int) -> list[str]:
    """Return a process's listening TCP addresses, in hexadecimal as in ``/proc``."""
    sockets = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return [line[1] for line in lines if line[3] == LISTENS and f"socket:[{line[9]}]" in sockets]


def test_a_broker_on_a_host_exports_only_the_gate_and_opens_no_port(classes: Path, tmp_path: Path) -> None:
    with broker(classes, tmp_path) as (pid, socket):
        own = parse_source(f"1,broker-1,a,{socket}")
        found = {(one.topic, one.partition, one.name): one.value for one in rows(poll_once(own, 5.0).event())}
        # JMX would have opened its ports by now
        assert listening_ports(pid) == []
        assert Path(socket).stat().st_mode & 0o077 == 0
    assert found == {("t", 0, "IsrRackCount"): 2, (None, None, "RackCheckFailureRate.Count"): 3}
    assert "broker-1: no metrics: " in poll_once(own, 1.0).problem


def test_a_listening_port_is_detected() -> None:
    code = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    command = [sys.executable, "-c", f"{code}; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        port = int(running.stdout.readline())
        assert listening_ports(running.pid) == [f"0100007F:{port:04X}"]


def test_the_program_polls_until_it_is_stopped(classes: Path, tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    with broker(classes, tmp_path) as (_, socket):
        arguments = ["--broker", f"1,broker-1,a,{socket}", "--broker", f"2,broker-2,b,{tmp_path}/none"]
        arguments += ["--history", str(history.path), "--interval", "0.1"]
        with subprocess.Popen(
            [*DIES_WITH_PARENT, sys.executable, "-m", "pyhooks.workload.gate_meter", *arguments]
        ) as meter:

            def reported() -> bool:
                events = list(history.events()) if history.path.exists() else []
                return {(one.data["broker"], one.outcome) for one in events} == {(1, "ok"), (2, "unknown")}

            wait_for(reported, goal="an event of each broker", timeout_s=30)
            meter.send_signal(signal.SIGTERM)
            assert meter.wait(timeout=30) == 0


@pytest.mark.parametrize("text", ["", "1,broker-1,a", "1,broker-1,a,", "x,broker-1,a,/m.sock"])
def test_an_invalid_broker_description_is_rejected(text: str) -> None:
    with pytest.raises(RackgateError, match="expected id,name,rack,socket"):
        parse_source(text)


def test_a_broker_without_a_rack_and_a_socket_with_a_comma() -> None:
    assert parse_source("7,b,,/a,b.sock") == GateSource(7, "b", None, Path("/a,b.sock"))
