"""Measured delay, jitter, loss and rate of links equal the topology's. Tests of random values state their error rates.

``make lab-links`` measures links on an idle machine and writes the table ``pyhooks/lab/link_accuracy.md``.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from math import exp, log
from pathlib import Path
from typing import Any, cast

import pytest

from link_measurement import is_near
from pyhooks.core import paths, process
from pyhooks.lab.topology import Quality
from terminal_user import PATIENCE_S, RACKGATE, Person, output_of, visiting

ASKED = {
    "a": Quality(20, 4),
    "b": Quality(21.5, 8),
    "c": Quality(10, 0, 10),
    "d": Quality(10, 0, 2),
    "e": Quality(10),
    "f": Quality(10, 0, 0, 40),
    "g": Quality(10, 0, 0, 0.1),
}
ERROR = 1e-6
LOOKS, ECHOES = 6, 100
# tolerance of the share of lost echoes
LOSS_TOLERANCE = {"c": 0.04, "d": 0.025, "e": 0.01}
LOSS_ECHOES = 3000


def write_topology(file: Path, asked: Mapping[str, Quality]) -> None:
    """Write a topology with the clients' site and one site with a broker per link quality."""
    sites = "".join(f'[[site]]\nname = "{name}"\nbrokers = [{number}]\n' for number, name in enumerate(asked, 1))
    links = "".join(
        f'[[link]]\nbetween = ["home", "{name}"]\n'
        + "".join(f"{key} = {value}\n" for key, value in vars(quality).items())
        for name, quality in asked.items()
    )
    home = '[[site]]\nname = "home"\ncontrollers = [101]\nclient = true\n'
    file.write_text(f'name = "{file.stem}"\n{sites}{home}{links}', encoding="utf-8")


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with visiting(tmp_path_factory.mktemp("state")) as made:
        file = made.folder / "asked.toml"
        write_topology(file, ASKED)
        made.check_output("lab", "up", "--bare", "--topology", str(file), "--run-dir", str(made.folder / "run"))
        yield made


def echoes(person: Person, site: str, count: int, interval_s: float) -> list[float]:
    """Return the round-trip times in milliseconds of the echoes that returned."""
    ip = f"10.77.{list(ASKED).index(site) + 1}.10"
    command = ["ping", "-n", "-c", str(count), "-i", str(interval_s), "-W", "5", ip]
    text = person.check_output("lab", "exec", "--", *command)
    assert f"{count} packets transmitted" in text
    return [float(found) for found in re.findall(r"time=([0-9.]+) ms", text)]


def tail(count: int, share: float, limit: float) -> float:
    """Return Chernoff's bound on the probability that a share of ``count`` trials is at ``limit`` or beyond.

    It is exp(-count * KL(limit, share)), with the Kullback-Leibler divergence of two Bernoulli distributions.
    """
    if not 0 <= limit <= 1:
        return 0.0
    terms = ((limit, share), (1 - limit, 1 - share))
    if any(one > 0 and other == 0 for one, other in terms):
        return 0.0
    return exp(-count * sum(one * log(one / other) for one, other in terms if one > 0))


@pytest.mark.alone
def test_links_have_the_requested_jitter(person: Person) -> None:
    """Noise only adds to a round trip: the shortest bounds jitter downwards, the best sample upwards.

    Each direction varies uniformly by J/2. Lower end: an echo is within J/4 of RTT - J with probability
    (J/4)^2 / (2 J^2) = 1/32; none of 600 is with probability (31/32)^600 < 1e-8.

    Upper end: an echo takes more than RTT + J/2 with probability at least 1/8 and, including the link's own time, at
    most 1/4. Fewer than 5 % of 600: Chernoff's bound is below 4e-9. More than 45 % in each of 6 samples without noise:
    below 1e-20, as is more than 10 % above RTT + J and the link's own time, where no echo should be.
    """
    asked = {site: quality for site, quality in ASKED.items() if quality.jitter_ms}
    with ThreadPoolExecutor(len(asked)) as pool:
        looks = dict(
            zip(
                asked,
                pool.map(lambda site: [echoes(person, site, ECHOES, 0.02) for _ in range(LOOKS)], asked),
                strict=True,
            )
        )
    errs = len(asked) * ((31 / 32) ** (LOOKS * ECHOES) + tail(LOOKS * ECHOES, 1 / 8, 1 / 20))
    errs += len(asked) * tail(ECHOES, 1 / 4, 0.45) ** LOOKS
    assert errs < ERROR
    for site, quality in asked.items():
        every = [one for look in looks[site] for one in look]
        assert len(every) == LOOKS * ECHOES, site
        rtt_ms, jitter_ms = quality.rtt_ms, quality.jitter_ms
        shortest_ms, own_ms = min(every), max(0.1, 0.05 * rtt_ms)
        assert abs(shortest_ms - (rtt_ms - jitter_ms)) <= jitter_ms / 4 + 0.1, (site, shortest_ms)
        up = [sum(one > rtt_ms + jitter_ms / 2 for one in look) / ECHOES for look in looks[site]]
        assert sum(up) / LOOKS >= 1 / 20, (site, up)
        assert min(up) <= 0.45, (site, up)
        above = [sum(one > rtt_ms + jitter_ms + own_ms for one in look) / ECHOES for look in looks[site]]
        assert min(above) <= 0.1, (site, above)


def test_links_have_the_requested_loss(person: Person) -> None:
    """Each echo is lost independently with probability 1 - (1 - loss)^2; Chernoff's bounds for 3000 echoes are given.

    10 % in each direction: 0.19 of the echoes, within 0.04: exp(-3000 KL(0.23, 0.19)) + exp(-3000 KL(0.15, 0.19)) =
    exp(-14.8) + exp(-16.5) = 4e-7. 2 %: 0.0396, within 0.025: 1e-9. Without loss: 0.
    """
    lost = {site: 1 - (1 - ASKED[site].loss_percent / 100) ** 2 for site in LOSS_TOLERANCE}
    errs = sum(
        tail(LOSS_ECHOES, lost[site], lost[site] + way * tolerance)
        for site, tolerance in LOSS_TOLERANCE.items()
        for way in (1, -1)
    )
    assert errs < ERROR
    with ThreadPoolExecutor(len(lost)) as pool:
        found = dict(
            zip(
                lost,
                pool.map(lambda site: 1 - len(echoes(person, site, LOSS_ECHOES, 0.004)) / LOSS_ECHOES, lost),
                strict=True,
            )
        )
    for site, tolerance in LOSS_TOLERANCE.items():
        assert abs(found[site] - lost[site]) <= tolerance, (site, found[site], lost[site])


def run_script(person: Person, script: str, *arguments: str) -> str:
    """Run a Python script in the lab, at the clients' site, and return its output."""
    env = ["env", f"PYTHONPATH={paths.REPO / 'tests/support'}:{os.environ.get('PYTHONPATH', '')}"]
    return person.check_output("lab", "exec", "--", *env, sys.executable, "-c", script, *arguments)


NUMBERED = """
import os, socket, struct, subprocess, sys, time
from link_measurement import emulator_pid
from pyhooks.lab.lab import Lab
from pyhooks.core.process import DIES_WITH_PARENT

# prints how many datagrams came, and how many of them before one that was sent earlier
SINK = '''
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7001))
print("ready", flush=True)
s.settimeout(10)
found = []
while not found or found[-1] != 2**32 - 1:
    found.append(struct.unpack("!I", s.recv(64))[0])
    if len(found) % 100 == 0:
        print(len(found), flush=True)
print(len(found) - 1, sum(one > other for one, other in zip(found, found[1:])))
'''
node = Lab.attach().node("broker-1")
command = [*DIES_WITH_PARENT, *Lab.attach().machine(node).enter([sys.executable, "-c", SINK])]
sink = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
sink.stdout.readline()
# a process that moves to another processor can overtake its own packets in the kernel: the sender, and the emulator
processor = {min(os.sched_getaffinity(0))}
os.sched_setaffinity(0, processor)
emulator = emulator_pid()
allowed = os.sched_getaffinity(emulator) if emulator else processor
if emulator:
    os.sched_setaffinity(emulator, processor)
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        begun = time.monotonic()
        for number in range(4000):
            if number >= 200 and number % 100 == 0:
                # at most 200 are on the way, so that no buffer overflows on a busy machine
                sink.stdout.readline()
            time.sleep(max(0.0, begun + number / 2000 - time.monotonic()))
            sender.sendto(struct.pack("!I", number), (node.ip, 7001))
        time.sleep(0.1)
        sender.sendto(struct.pack("!I", 2**32 - 1), (node.ip, 7001))
finally:
    if emulator:
        os.sched_setaffinity(emulator, allowed)
print(sink.communicate(timeout=30)[0].splitlines()[-1])
"""


def test_jitter_keeps_the_order_of_packets(person: Person) -> None:
    assert run_script(person, NUMBERED) == "4000 0\n"


BULK = """
import json, sys
from dataclasses import asdict
from link_measurement import bulk, sink
from pyhooks.lab import link_emulator
from pyhooks.lab.lab import Lab
lab = Lab.attach()
node = lab.node(sys.argv[1])
with sink(lab, node):
    rates = [bulk(lab, node, 3) for _ in range(3)]
state = link_emulator.read(f"{node.site}-home") if link_emulator.SOCKET.exists() else None
print(json.dumps([max(rates), asdict(state.directions[1]) if state else None]))
"""


@pytest.mark.parametrize(("site", "mb_per_s"), [("f", 5.0), ("d", None)])
def test_links_have_the_requested_rate_and_lose_single_packets(
    person: Person, site: str, mb_per_s: float | None
) -> None:
    """A segment of many packets must not be lost as a unit; at 1514 bytes, a frame is one packet."""
    node = f"broker-{list(ASKED).index(site) + 1}"
    found, counters = json.loads(run_script(person, BULK, node))
    if mb_per_s is not None:
        assert 0.9 * mb_per_s <= found <= 1.02 * mb_per_s
    if counters is not None:
        assert 1000 < counters["bytes"] / counters["frames"] <= 1514
        assert counters["failed"] == 0


BURST = """
import json, os, signal, socket, sys, time
from dataclasses import asdict
from link_measurement import emulator_pid
from pyhooks.lab import link_emulator
from pyhooks.lab.lab import Lab
node = Lab.attach().node(sys.argv[1])
name = f"{node.site}-home"
if not link_emulator.SOCKET.exists():
    print("null")
    sys.exit()
before = link_emulator.read(name).directions[1]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    pid = emulator_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(1500):
            sender.sendto(bytes(1000), (node.ip, 7002))
    finally:
        os.kill(pid, signal.SIGCONT)
time.sleep(1)
print(json.dumps([asdict(before), asdict(link_emulator.read(name).directions[1])]))
"""


def test_a_burst_of_packets_waits_while_the_emulator_does_not_run(person: Person) -> None:
    """A link with loss gets single packets, of which the ring must hold as many as a busy machine lets pile up."""
    node = f"broker-{list(ASKED).index('d') + 1}"
    found = json.loads(run_script(person, BURST, node))
    if found is not None:
        before, after = found
        assert after["overflowed"] == before["overflowed"]
        assert after["frames"] + after["lost"] - before["frames"] - before["lost"] >= 1500
    status = json.loads(person.check_output("lab", "status", "--json"))
    assert ("d-home" in status["link_states"]) is (found is not None)
    # other tests flood the same link, so the count may be above 0
    assert (" overflowed" in person.check_output("lab", "status")) is (found is not None)


PAUSE = """
import os, signal, subprocess, sys, time
from link_measurement import emulator_pid
from pyhooks.lab.lab import Lab
from pyhooks.lab.network import netns
node = Lab.attach().node(sys.argv[1])
pid = emulator_pid()
for site in (node.site, "home"):
    subprocess.run(["ip", "-n", netns(site), "neigh", "flush", "all"], check=True)
if pid:
    os.kill(pid, signal.SIGSTOP)
command = ["ping", "-n", "-c", "8", "-i", "0.5", "-W", "10", node.ip]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ping:
    try:
        time.sleep(4.5)
    finally:
        if pid:
            os.kill(pid, signal.SIGCONT)
    print(ping.stdout.read())
"""


def test_packets_wait_for_an_address_longer_than_linux_asks_for_it(person: Person) -> None:
    """A router that gave up after Linux's three seconds would drop those that wait, as it did on links with loss."""
    node = f"broker-{list(ASKED).index('e') + 1}"
    text = run_script(person, PAUSE, node)
    assert "8 packets transmitted, 8 received" in text


def test_a_slow_link_queues_some_packets(person: Person) -> None:
    """A packet of 1442 bytes takes 115 ms; eight that arrive at once must wait for each other, not be dropped."""
    ip = f"10.77.{list(ASKED).index('g') + 1}.10"
    text = person.check_output(
        *("lab", "exec", "--", "ping", "-n", "-c", "8", "-i", "0.004", "-s", "1400", "-W", "10", ip)
    )
    assert "8 packets transmitted, 8 received" in text


ROUND_TRIPS_MS = (0.2, 0.3, 0.5, 1, 2, 5, 20, 50, 200)


def measure_links(folder: Path, topology: str, plan: dict[str, object]) -> dict[str, Any]:
    """Run ``link_measurement`` as the command of a lab and return its results."""
    command = [*("lab", "run", "--bare", "--topology", topology, "--run-dir", str(folder / "run"), "--")]
    command += [sys.executable, "-m", "link_measurement"]
    support = f"{paths.REPO / 'tests/support'}:{os.environ.get('PYTHONPATH', '')}"
    with visiting(folder / "state") as made:
        done = subprocess.run(
            [str(RACKGATE), *command],
            input=json.dumps(plan),
            capture_output=True,
            text=True,
            check=False,
            env=made.env | {"PYTHONPATH": support},
            timeout=3 * PATIENCE_S,
        )
    return cast(dict[str, Any], json.loads(output_of(done).splitlines()[-1]))


@contextmanager
def processors_awake() -> Iterator[None]:
    """Run a loop of the lowest priority on each processor; waking idle virtual ones takes 0.06 ms of a round trip."""
    loop = ["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]
    with ExitStack() as loops:
        for _ in os.sched_getaffinity(0):
            loops.enter_context(process.supervised(loop))
        yield


@pytest.mark.alone
def test_links_have_the_requested_delay_idle_and_under_load(tmp_path: Path) -> None:
    """A busy machine only adds delay, so the best of several medians counts; none may be too short."""
    file = tmp_path / "delays.toml"
    write_topology(file, {f"s{number}": Quality(rtt_ms) for number, rtt_ms in enumerate(ROUND_TRIPS_MS)})
    asked = {f"broker-{number}": rtt_ms for number, rtt_ms in enumerate(ROUND_TRIPS_MS, 1)}
    plan = {"rtts_ms": asked, "rounds": 12, "echoes": 50, "until_near": True, "bulk_s": 0}
    with processors_awake():
        found = measure_links(tmp_path, str(file), plan)
    for name, rtt_ms in asked.items():
        node = found["nodes"][name]
        assert min(node["rates"]) > 10, node
        for state in ("idle", "loaded"):
            assert is_near(min(look["p50_ms"] for look in node[state]), rtt_ms), (state, node)
    assert found["idle_share"] < 0.1


# the first link has no delay, but is emulated
TABLE_MS = (0.001, *ROUND_TRIPS_MS)
TABLE = paths.REPO / "pyhooks" / "lab" / "link_accuracy.md"
HEAD = """# Accuracy of emulated links

`make lab-links` measured round trips with {processors} processors, Linux {release}, {priority} priority and load
average {load:.1f}, in {rounds} rounds of {echoes} echo requests, idle and while 20 MB/s flow over the link. Delays are
in ms and, like MB/s, the best of the rounds; the processor share is their median. Without traffic, the emulator used
{idle_share:.1%} of a processor.

| requested | p50 | p99 | p50 at 20 MB/s | p99 at 20 MB/s | emulator's processor share at 20 MB/s | MB/s at most |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def table_row(node: dict[str, Any]) -> str:
    best = [min(look[key] for look in node[state]) for state in ("idle", "loaded") for key in ("p50_ms", "p99_ms")]
    share = statistics.median(look["emulator_share"] for look in node["loaded"])
    cells = [f"{node['rtt_ms']:g}", *(f"{value:.2f}" for value in best), f"{share:.0%}"]
    return f"| {' | '.join(cells)} | {max(node['bulk_mb_per_s']):.0f} |\n"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_links_are_as_accurate_as_documented(tmp_path: Path) -> None:
    """Measure on an otherwise idle machine, write the table, and compare with the targets.

    On a shared machine, real-time priority (``chrt --fifo 1 make lab-links``) keeps other programs out of the way.
    """
    file = tmp_path / "table.toml"
    write_topology(file, {f"s{number}": Quality(rtt_ms) for number, rtt_ms in enumerate(TABLE_MS)})
    asked = {f"broker-{number}": rtt_ms for number, rtt_ms in enumerate(TABLE_MS, 1)}
    plan = {"rtts_ms": asked, "rounds": 3, "echoes": 500, "until_near": False, "bulk_s": 2}
    before = os.getloadavg()[0]
    found = measure_links(tmp_path, str(file), plan)
    head = HEAD.format(
        processors=os.cpu_count(),
        release=os.uname().release,
        priority="real-time" if os.sched_getscheduler(0) == os.SCHED_FIFO else "normal",
        load=before,
        idle_share=found["idle_share"],
        **plan,
    )
    TABLE.write_text(head + "".join(map(table_row, found["nodes"].values())), encoding="utf-8")
    for node in found["nodes"].values():
        for state in ("idle", "loaded"):
            assert is_near(min(look["p50_ms"] for look in node[state]), node["rtt_ms"]), (state, node)
        assert min(look["p99_ms"] - look["p50_ms"] for look in node["idle"]) <= 0.5, node
        assert min(node["rates"]) > 19, node
    assert max(found["nodes"]["broker-1"]["bulk_mb_per_s"]) >= 200
    assert found["idle_share"] < 0.1


def test_an_impossible_link_is_rejected_before_any_change(person: Person, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    text = (person.folder / "asked.toml").read_text(encoding="utf-8")
    file.write_text(text.replace("jitter_ms = 4", "jitter_ms = 21"), encoding="utf-8")
    rejected = person.run("lab", "up", "--bare", "--topology", str(file), "--name", "odd")
    assert rejected.returncode == 2
    assert rejected.stderr.startswith(f"error: {file}: link 1: jitter_ms: must be at most rtt_ms, which is 20, is 21")
    assert "odd" not in person.check_output("lab", "status", "--json")
