"""Hosts partitioned by nftables; the hosts are nodes of a lab, whose routers stay unchanged."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal_user import Person, visiting

SCRIPT = """
import json, os, socket, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from ducktape_tests.services import host_network
from ducktape_tests.services.host_network import HostNetwork
from pyhooks.lab.lab import Lab
from pyhooks.core.errors import RackgateError
from pyhooks.core.wait import wait_for

SSH, OTHER = 2222, 9092
lab = Lab.attach()


def run(node, command):
    env = os.environ | {"SSH_CONNECTION": f"10.0.0.1 40000 {node.ip} {SSH}"}
    done = subprocess.run(lab.machine(node).enter(["sh", "-c", command]), capture_output=True, text=True, env=env)
    if done.returncode:
        raise RackgateError(done.stderr.strip())
    return done.stdout


hosts = HostNetwork(lab.topology, run)
first, far = lab.brokers("a")[0], lab.brokers("c")[0]
cut, mate = lab.brokers("b")
ASKED = {"clients": (cut, None), "a": (cut, first), "to a": (first, cut), "c": (cut, far), "mate": (cut, mate)}
for port in (SSH, OTHER):
    words = [sys.executable, "-m", "http.server", str(port), "--bind", cut.ip]
    lab.machine(cut).popen(words)


def connects(port):
    with closing(socket.socket()) as asked:
        asked.settimeout(2)
        return asked.connect_ex((cut.ip, port)) == 0


def seen():
    # who does not answer takes a while
    with ThreadPoolExecutor(len(ASKED)) as pool:
        answers = pool.map(lambda asked: lab.replies(*asked), ASKED.values())
    return [name for name, answer in zip(ASKED, answers, strict=True) if answer]


for port in (SSH, OTHER):
    wait_for(lambda: connects(port), goal=f"port {port}", timeout_s=30)
found = {"before": seen()}
for _ in range(2):
    hosts.cut("b")
found["cut"] = seen()
found["ports of one that is cut off"] = [port for port in (SSH, OTHER) if connects(port)]
hosts.unplug(cut)
found["and its broker"] = seen()
hosts.plug(cut)
found["its broker alone is back"] = seen()
hosts.cut("b", ["a"])
found["from a alone"] = seen()
for _ in range(2):
    hosts.join("b")
found["joined"] = seen()
hosts.unplug(cut)
found["unplugged"] = seen()
for node in (cut, mate):
    hosts.forget(node)
found["forgotten"] = seen()
host_network.EXPIRY_S = 4
hosts.cut("b")
found["cut again"] = lab.replies(cut, first)
wait_for(lambda: len(seen()) == len(ASKED), goal="the end of the cut by itself", timeout_s=20)
found["left"] = run(cut, "nft list tables").split()
print(json.dumps(found))
"""
ALL = ["clients", "a", "to a", "c", "mate"]


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with visiting(tmp_path / "state") as made:
        yield made


def test_cut_keeps_ssh(person: Person, tmp_path: Path) -> None:
    arguments = ("lab", "run", "--bare", "--topology", "az3-outside", "--run-dir", str(tmp_path / "run"))
    found = json.loads(person.check_output(*arguments, "--", sys.executable, "-c", SCRIPT).splitlines()[-1])
    assert found == {
        "before": ALL,
        "cut": ["mate"],
        "ports of one that is cut off": [2222],
        "and its broker": [],
        "its broker alone is back": ["mate"],
        "from a alone": ["clients", "c", "mate"],
        "joined": ALL,
        "unplugged": [],
        "forgotten": ALL,
        "cut again": False,
        # the table stays, but drops no more packets
        "left": ["table", "inet", "rackgate_rack"],
    }
