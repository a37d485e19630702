"""The metrics agent in a JVM without Kafka: its responses, and that no client can disturb the JVM through it."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from metrics_agent_jar import agent_jar, compile_java
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT
from pyhooks.core.wait import wait_for
from pyhooks.lab.mbeans import SocketSource
from pyhooks.lab.metrics import poll_once

# Has a bean registered late, names that need escapes, an attribute that fails, and one that never returns.
PROGRAM = """
import java.lang.management.ManagementFactory;
import javax.management.ObjectName;

public class Late {
    public interface ThingMBean {
        String getText(); String getLong(); int getNumber(); String getBad(); String getSlow() throws Exception;
    }
    public static class Thing implements ThingMBean {
        public String getText() { return "tab\\there\\nback\\\\slash"; }
        public String getLong() { return "x".repeat(1 << 20); }
        public int getNumber() { return 42; }
        public String getBad() { throw new IllegalStateException("no such luck"); }
        public String getSlow() throws Exception { Thread.sleep(60000); return "late"; }
    }
    public static void main(String[] words) throws Exception {
        System.out.println("begun");
        System.in.read();
        ManagementFactory.getPlatformMBeanServer().registerMBean(new Thing(), new ObjectName("t:type=Thing,name=x"));
        System.out.println("registered");
        System.in.read();
    }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("agent")
    (made / "Late.java").write_text(PROGRAM, encoding="utf-8")
    compile_java(made / "Late.java", made)
    agent_jar(made)
    return made


@contextmanager
def jvm(folder: Path, argument: str) -> Iterator[subprocess.Popen[str]]:
    """Run a JVM with the agent during the block."""
    agent = f"-javaagent:{folder / 'agent.jar'}{argument}"
    command = [*DIES_WITH_PARENT, "java", "-Xmx64m", "-XX:TieredStopAtLevel=1", agent, "-cp", str(folder), "Late"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "begun\n", "the agent must not write to standard output"
            yield running
        finally:
            running.kill()


def register(running: subprocess.Popen[str]) -> None:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write("\n")
    running.stdin.flush()
    assert running.stdout.readline() == "registered\n"


def source(path: Path) -> SocketSource:
    wait_for(path.exists, goal="the socket", timeout_s=20, interval_s=0.02)
    return SocketSource(1, "jvm", None, path)


def test_queries_are_answered(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with jvm(folder, f"={path}") as running:
        # the stale socket is replaced
        wait_for(lambda: not poll_once(SocketSource(1, "jvm", None, path), 1).problem, goal="an answer", timeout_s=20)
        agent = source(path)
        assert agent.query([("t:type=Thing,*", "*"), ("t:type=Thing,name=x", "Number")], 5).rows == ()
        register(running)
        found = agent.query([("t:*", "Text,Number,Bad,None"), ("java.lang:type=Memory", "HeapMemoryUsage")], 5)
        rows = {(bean, attribute): value for bean, attribute, value in found.rows}
        assert rows["t:type=Thing,name=x", "Text"] == "tab\there\nback\\slash"
        assert rows["t:type=Thing,name=x", "Number"] == "42"
        assert int(rows["java.lang:type=Memory", "HeapMemoryUsage.used"]) > 0
        assert len(found.errors) == 2
        assert "no such luck" in found.errors[0] or "IllegalState" in found.errors[0]
        assert "None" in found.errors[1]
        assert path.stat().st_mode & 0o077 == 0, "for its owner alone"


def test_a_misbehaving_client_disturbs_no_other(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with jvm(folder, f"={path}") as running:
        agent = source(path)
        register(running)
        with pytest.raises(RackgateError, match="expected pairs"):
            agent.query([("a", "b\nc")][:0], 5)
        with pytest.raises(RackgateError, match="MalformedObjectName"):
            agent.query([("no name", "*")], 5)
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(path))
            rude.sendall(b"x" * 100_000)
            rude.settimeout(10)
            with suppress(ConnectionResetError):
                assert rude.recv(100) == b"", "too long a question ends the connection"
        with ExitStack() as idle:
            for _ in range(2):
                idle.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
            # two of three threads wait for a request that never comes
            assert agent.query([("t:*", "Number")], 5).rows == (("t:type=Thing,name=x", "Number", "42"),)
            with pytest.raises(RackgateError, match=r"within 0\.5 s"):
                agent.query([("t:type=Thing,name=x", "Slow")], 0.5)
            # now all three threads are busy: further requests are queued, and rejected once the queue is full
            with pytest.raises(RackgateError, match=r"within 0\.2 s"):
                agent.query([("t:*", "Number")], 0.2)
            for _ in range(12):
                idle.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
            with pytest.raises(RackgateError, match=r"too many requests|ends early"):
                agent.query([("t:*", "Number")], 5)
        wait_for(lambda: _answers(agent), goal="an answer, now that they are gone", timeout_s=30)
        assert running.poll() is None


def _answers(agent: SocketSource) -> bool:
    try:
        return agent.query([("t:*", "Number")], 8).rows == (("t:type=Thing,name=x", "Number", "42"),)
    except RackgateError:
        return False


def test_a_too_long_response_is_truncated_at_a_line(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with jvm(folder, f"={path}") as running:
        agent = source(path)
        register(running)
        found = agent.query([("t:type=Thing,name=x", ",".join(["Long"] * 40)), ("t:*", "Number")], 5)
    assert 30 <= len(found.rows) < 40
    assert found.errors == ("the answer is too long: ask for less",)


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("", "give the socket's path"),
        ("=/no/such/folder/m.sock", "no metrics by socket"),
        ("=/", "no metrics by socket"),
    ],
)
def test_without_a_socket_the_program_runs_and_logs_one_line(folder: Path, argument: str, text: str) -> None:
    with jvm(folder, argument) as running:
        assert running.stderr is not None
        line = running.stderr.readline()
        assert line.startswith("rackgate-metrics: no metrics by socket: ")
        assert text in line
        register(running)
