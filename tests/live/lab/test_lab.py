"""Labs without Kafka: what they provide, and that they leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_leftovers import marked, traces
from pyhooks.checkers.faults import check_faults
from pyhooks.core import paths
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import Event, History
from pyhooks.lab import topology
from terminal_user import PATIENCE_S, Person, output_of, visiting

# the smallest lab, for tests in which its nodes and links have no part
SINGLE = ("--topology", "single")


def of_one(person: Person, *command: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the arguments for a lab that runs one command."""
    return ("lab", "run", "--bare", *options, "--run-dir", str(run_dir(person)), "--", *command)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with visiting(tmp_path / "state") as made:
        yield made


def run_dir(person: Person, name: str = "t") -> Path:
    return person.folder / f"run-{name}"


def up(person: Person, *more: str, name: str = "t") -> None:
    person.check_output("lab", "up", "--bare", "--name", name, "--run-dir", str(run_dir(person, name)), *more)


def events_of(person: Person) -> tuple[Event, ...]:
    """Return the events of lab t's history."""
    return tuple(History(run_dir(person) / "history.jsonl").events())


def test_a_command_sees_the_lab_and_its_status_is_the_lab_s(person: Person) -> None:
    before = traces()
    script = "ping -n -c 1 -W 2 10.77.1.10 && ping -n -c 1 -W 2 10.77.3.10 && echo $RACKGATE_BOOTSTRAP; exit 7"
    done = person.run(*of_one(person, "sh", "-c", script))
    assert done.returncode == 7, done.stderr
    assert done.stdout.count("1 received") == 2
    assert "10.77.1.10:9092,10.77.1.11:9092,10.77.2.10:9092,10.77.2.11:9092,10.77.3.10:9092" in done.stdout
    assert traces() == before


def test_a_missing_command_is_one_line_and_status_2(person: Person) -> None:
    done = person.run(*of_one(person, "/no/such/program", options=SINGLE))
    assert done.returncode == 2
    assert "can't run '/no/such/program'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_stays_behind(person: Person, tmp_path: Path, number: signal.Signals) -> None:
    before = traces()
    ready = tmp_path / "ready"
    # a daemon started by the command must end as well
    script = f"(sleep 3111 & ) ; touch {ready}; exec sleep 3111"
    # SIGKILL, which no process can handle, meets a lab with links
    options = () if number is signal.SIGKILL else SINGLE
    running = person.start(*of_one(person, "sh", "-c", script, options=options), session=True)
    try:
        wait_for(ready.exists, goal="the lab's command to run", timeout_s=60)
        assert traces() != before
        if number is signal.SIGINT:
            # a terminal signals the complete process group
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        assert running.wait(timeout=40) != 0
        wait_for(lambda: traces() == before, goal="processes, mounts and interfaces as before", timeout_s=60)
    finally:
        running.kill()
        running.wait()
    assert "sleep 3111" not in marked().values()


def test_after_ctrl_c_a_command_still_has_its_links(person: Person, tmp_path: Path) -> None:
    """A terminal sends SIGINT to all processes of its group; the command may use the network until it ends."""
    ready = tmp_path / "ready"
    program = f"""
import sys, time
from pathlib import Path
from pyhooks.lab.lab import Lab
lab = Lab.attach()
try:
    Path({str(ready)!r}).touch()
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.5)
    sys.exit(5 if lab.replies(lab.node("broker-3"), lab.node("broker-1")) else 6)
"""
    running = person.start(*of_one(person, sys.executable, "-c", program), session=True)
    try:
        wait_for(ready.exists, goal="the lab's command to run", timeout_s=60)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(timeout=40) == 5
    finally:
        running.kill()
        running.wait()


def test_slowing_a_plain_link_that_was_interrupted_can_be_undone(person: Person, tmp_path: Path) -> None:
    """A killed command leaves interfaces between any two steps; undoing it must restore the link."""
    file = tmp_path / "plain.toml"
    sites = ('name = "a"\nbrokers = [1]\ncontrollers = [101]\nclient = true\n', 'name = "b"\nbrokers = [2]\n')
    file.write_text('name = "plain"\n' + "".join(f"[[site]]\n{site}" for site in sites), encoding="utf-8")
    program = """
from pyhooks.lab import network
from pyhooks.lab.lab import Lab
from pyhooks.lab.topology import Quality
class Killed(BaseException):
    pass
lab, whole = Lab.attach(), network._batch
first, second = lab.node("broker-1"), lab.node("broker-2")
for step in range(12):
    steps = iter(range(step))
    def batch(lines, ns=None):
        if next(steps, None) is None:
            raise Killed
        whole(lines, ns)
    network._batch = batch
    try:
        lab.network.slow("a", Quality(4))
    except Killed:
        pass
    network._batch = whole
    lab.network.restore_links("a")
    print(lab.replies(first, second), lab.replies(second, first))
"""
    command = ("lab", "run", "--bare", "--topology", str(file), "--run-dir", str(run_dir(person)), "--")
    assert person.check_output(*command, sys.executable, "-c", program) == "True True\n" * 12


def test_a_rack_is_partitioned_and_reconnected(person: Person) -> None:
    program = """
from pyhooks.lab.lab import Lab
lab = Lab.attach()
first, second, other = lab.node("broker-3"), lab.node("broker-4"), lab.node("broker-1")
def seen():
    return [lab.replies(first), lab.replies(first, other), lab.replies(other, first), lab.replies(second, first)]
print(seen())
lab.network.cut("b"); lab.network.cut("b")
print(seen())
lab.network.join("b"); lab.network.join("b")
print(seen())
print([(rtt.source, rtt.target, rtt.p50_ms) for rtt in lab.rtt_matrix(10) if rtt.target == "broker-3"])
print(sorted(set(lab.emulations.values())))
"""
    done = person.run(*of_one(person, sys.executable, "-c", program))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [str([True] * 4), str([False, False, False, True]), str([True] * 4)]
    rtts = [entry[2] for entry in eval(lines[3])]  # noqa: S307 - our own output
    # requested: 2 ms; without the delay it would be below 0.2 ms, and a busy machine only adds
    assert len(rtts) == 2
    assert all(1.9 < rtt < 100 for rtt in rtts)
    assert lines[4] in ("['netem']", "['emulator']")


def test_a_lab_stays_until_it_is_taken_down(person: Person) -> None:
    before = traces()
    up(person)
    status = json.loads(person.check_output("lab", "status", "--json"))
    assert (status["lab"], status["topology"], status["ok"], len(status["nodes"])) == ("t", "az3-outside", True, 8)
    assert person.check_output("lab", "exec", "--node", "broker-3", "--", "hostname") == "broker-3\n"
    assert "10.77.2.10/24" in person.check_output("lab", "exec", "--rack", "b", "--", "ip", "-br", "addr")
    assert person.run("lab", "exec", "--", "sh", "-c", "exit 7").returncode == 7
    again = person.run("lab", "up", "--bare", "--name", "t")
    assert again.returncode == 2
    assert "lab 't' runs already" in again.stderr
    person.check_output("lab", "down")
    assert traces() == before
    gone = person.run("lab", "exec", "--", "true")
    assert (gone.returncode, gone.stderr) == (2, "error: no lab runs: start one with 'rackgate lab up'\n")


def test_a_lab_whose_lock_file_is_deleted_ends_and_leaves_nothing(person: Person) -> None:
    """Delete the lock file, as systemd does at logout; no command could find the lab any more."""
    before = traces()
    up(person, *SINGLE)
    (person.folder / "t.lock").unlink()
    wait_for(lambda: traces() == before, goal="the lab to end", timeout_s=PATIENCE_S)
    assert "lab t: its lock file was deleted" in (run_dir(person) / "lab.log").read_text(encoding="utf-8")
    assert "t: single, has ended" in output_of(person.run("lab", "status"))
    person.check_output("lab", "down")
    assert not [file for file in person.folder.iterdir() if file.name.startswith("t.")]


def test_two_labs_do_not_see_each_other(person: Person) -> None:
    before = traces()
    up(person, name="one")
    up(person, name="two")
    assert "several labs run (one, two)" in person.run("lab", "exec", "--", "true").stderr
    for name, other in (("one", "two"), ("two", "one")):
        seen = person.check_output("lab", "exec", "--lab", name, "--", "ps", "-ewwo", "args")
        assert f"--name {name}" in seen
        assert f"--name {other}" not in seen
    person.check_output("rack", "cut", "b", "--lab", "one")
    assert "1 received" in person.check_output("lab", "exec", "--lab", "two", "--", "ping", "-c", "1", "10.77.2.10")
    person.check_output("lab", "down", "one")
    # the other lab is not affected
    assert "1 received" in person.check_output("lab", "exec", "--", "ping", "-c", "1", "10.77.2.10")
    person.check_output("lab", "down")
    assert traces() == before


FAULTS = [
    ("rack", "cut", "b"),
    ("rack", "cut", "b", "--from", "a"),
    ("rack", "slow", "b", "--rtt-ms", "40", "--jitter-ms", "10"),
    ("broker", "cut", "3"),
    ("broker", "slow", "3", "--rtt-ms", "30"),
    ("broker", "slow", "3", "--rtt-ms", "20"),
]


@pytest.mark.alone  # on a busy machine the delay varies before the fault, too
def test_faults_of_the_network_prove_themselves(person: Person) -> None:
    up(person)
    for arguments in FAULTS:
        person.check_output(*arguments)
        other = person.run("broker", "slow", "3")
        assert other.returncode == 2
        assert "heal that first" in other.stderr
        status = person.run("lab", "status", "--json")
        assert [fault["kind"] for fault in json.loads(status.stdout)["faults"]] == [arguments[1]]
        assert status.returncode == 1
        assert "is healed, proved" in person.check_output(*arguments[:1], "heal", arguments[2])
        assert "no fault is in force" in person.check_output(*arguments[:1], "heal", arguments[2])
    events = events_of(person)
    assert check_faults(events).valid == "true"
    assert len([event for event in events if event.data["step"] == "healed"]) == len(FAULTS)


def test_a_rack_with_plain_links_is_slowed(person: Person) -> None:
    file = person.folder / "plain.toml"
    text = topology.find("az3-outside").read_text(encoding="utf-8")
    file.write_text(text.replace("rtt_ms = 2", "rtt_ms = 0"), encoding="utf-8")
    up(person, "--topology", str(file))
    assert set(json.loads(person.check_output("lab", "status", "--json"))["links"].values()) == {"veth"}
    for _ in range(2):
        person.check_output("rack", "slow", "b", "--rtt-ms", "30", "--for", "1s")
    person.check_output("rack", "cut", "b", "--for", "1s")
    assert check_faults(events_of(person)).valid == "true"


def test_a_fault_that_does_not_last_is_reported(person: Person) -> None:
    up(person)
    person.check_output("rack", "cut", "b")
    person.check_output("lab", "exec", "--", "ip", "netns", "exec", "site-b", "ip", "rule", "flush")
    person.check_output("lab", "exec", "--", "ip", "-n", "site-b", "rule", "add", "lookup", "main")
    healed = person.run("rack", "heal", "b")
    assert healed.returncode == 2
    assert "'held' is not verified, so results are unknown" in healed.stderr
    events = events_of(person)
    assert check_faults(events).valid == "false"


def test_the_lab_heals_faults_of_a_killed_command(person: Person) -> None:
    up(person)
    command = person.start("rack", "cut", "b", "--for", "40s")
    history = History(run_dir(person) / "history.jsonl")

    def step(name: str) -> bool:
        return any(event.data["step"] == name and event.outcome == "ok" for event in history.events())

    wait_for(lambda: step("proved"), goal="the cut to be proved", timeout_s=60)
    command.kill()
    command.wait()
    status = json.loads(person.run("lab", "status", "--json").stdout)
    assert [fault["kind"] for fault in status["faults"]] == ["cut"]
    wait_for(lambda: step("healed"), goal="the cut to be healed by the lab", timeout_s=120)
    # no process of the command is left in the lab
    assert "rack cut b" not in person.check_output("lab", "exec", "--", "ps", "-ewwo", "args")
    assert json.loads(person.check_output("lab", "status", "--json"))["faults"] == []


def victims() -> dict[str, int]:
    """Return the processes of the user's lab by kind, the latest of each kind."""
    first = "-m pyhooks.lab.init_process"
    kinds = {"starter": "unshare --user", "first": first, "holder": "holder.py", "emulator": "link_emulator"}
    found: dict[str, int] = {}
    for pid, args in sorted(marked().items()):
        for kind, word in kinds.items():
            if word in args and (kind != "first" or not args.startswith("unshare")):
                found[kind] = pid
    return found


@pytest.mark.parametrize("kind", ["starter", "first", "holder", "emulator"])
def test_a_killed_init_process_ends_the_whole_lab(person: Person, kind: str) -> None:
    before = traces()
    # only links have an emulator
    up(person, *(() if kind == "emulator" else SINGLE))
    os.kill(victims()[kind], signal.SIGKILL)
    wait_for(lambda: traces() == before, goal="processes, mounts and interfaces as before", timeout_s=60)
    listed = json.loads(person.check_output("lab", "status", "--json"))
    assert [(lab["name"], lab["runs"]) for lab in listed["labs"]] == [("t", False)]
    up(person, *SINGLE)  # the name can be used again


@pytest.mark.parametrize("after_s", [0.3, 0.8, 1.3])
def test_a_lab_whose_start_is_killed_is_complete_or_absent(person: Person, after_s: float) -> None:
    before = traces()
    starting = person.start("lab", "up", "--bare", "--name", "t", "--run-dir", str(run_dir(person)))
    with contextlib.suppress(subprocess.TimeoutExpired):
        starting.wait(timeout=after_s)
    starting.kill()
    starting.wait()

    def whole_or_gone() -> str:
        if traces() == before:
            return "gone"
        # between the lab's last output and the command's end, an interrupt may find nothing left to undo
        status = person.run("lab", "status", "--json")
        return "whole" if status.returncode == 0 and json.loads(status.stdout).get("lab") == "t" else ""

    outcome = wait_for(
        whole_or_gone, goal="processes, mounts and interfaces as before, or a lab that is up", timeout_s=60
    )
    if outcome == "whole":
        person.check_output("lab", "down")
        assert traces() == before


def test_no_lab_outlives_a_killed_test(tmp_path: Path) -> None:
    before = traces()
    script = """
import sys
from pathlib import Path
from terminal_user import visiting
with visiting(Path(sys.argv[1])) as person:
    for name in ("one", "two"):
        run_dir = sys.argv[1] + "/" + name
        person.check_output("lab", "up", "--bare", "--topology", "single", "--name", name, "--run-dir", run_dir)
    print("up", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(paths.REPO / "tests/support")},
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "up\n"
        assert traces() != before
        killed.kill()
    wait_for(lambda: traces() == before, goal="processes, mounts and interfaces as before", timeout_s=60)


# Another user of this machine may lack access to the checkout, so use an unprivileged one in a user namespace with our
# files. The device for TUN and TAP interfaces is absent: a lab must not need it.
ORDINARY_USER = """
mount -t tmpfs none /dev/net || exit 1
exec unshare --user --map-user=1000 --map-group=1000 -- sh -c "$0"
"""


def as_ordinary_user(person: Person, script: str) -> subprocess.CompletedProcess[str]:
    command = ["unshare", "--user", "--map-root-user", "--mount", "--", "sh", "-c", ORDINARY_USER, script]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=person.env, timeout=PATIENCE_S)


def test_an_ordinary_user_can_run_labs(person: Person) -> None:
    script = f"""
        id -u
        rackgate lab up --bare --name t --run-dir '{run_dir(person)}' &&
        rackgate lab exec --node broker-3 -- hostname &&
        rackgate rack cut b --for 1s &&
        rackgate rack slow b --rtt-ms 40 --for 1s &&
        rackgate broker slow 3 --rtt-ms 40 --for 1s
        status=$?
        rackgate lab down --all
        exit $status
    """
    done = as_ordinary_user(person, script)
    assert "as an ordinary user, in a user namespace" in done.stderr
    assert output_of(done).splitlines()[:5] == [
        "1000",
        "broker-3",
        "cut: rack b was affected for 1 s and is healed, proved",
        "slow: rack b was affected for 1 s and is healed, proved",
        "slow: broker-3 was affected for 1 s and is healed, proved",
    ]


REACHES_ALL = """
from pyhooks.lab.lab import Lab
lab = Lab.attach()
print(all(lab.replies(node) for node in lab.nodes), lab.topology.name)
"""


# "make lab-rounds" runs all of them. "make test" has the largest, one with combined nodes and one with two racks; the
# others differ in names and numbers of nodes and links, and tests/unit/lab/test_topology.py loads them.
OFTEN = {"az3x2", "az3-combined", "stretch2"}
TOPOLOGIES = sorted(file.stem for file in topology.SHIPPED.glob("*.toml"))


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in TOPOLOGIES]
)
def test_an_ordinary_user_can_run_every_shipped_topology(person: Person, name: str) -> None:
    program = person.folder / "reaches_all.py"
    program.write_text(REACHES_ALL, encoding="utf-8")
    command = f"lab run --bare --topology {name} --run-dir '{run_dir(person)}' -- '{sys.executable}' '{program}'"
    assert output_of(as_ordinary_user(person, f"exec rackgate {command}")) == f"True {name}\n"


LEFT = """
rackgate rack cut b --for 2s 2> /dev/null &
until grep -q '"step":"proved"' "$RACKGATE_RUN_DIR/history.jsonl" 2> /dev/null; do sleep 0.1; done
kill -9 $!
for look in $(seq 100); do
    rackgate lab status --json > "$RACKGATE_RUN_DIR/status"
    grep -q '"faults": \\[\\]' "$RACKGATE_RUN_DIR/status" && exit 0
    sleep 0.1
done
exit 1
"""


def test_a_lab_of_one_command_heals_faults_of_a_killed_command(person: Person) -> None:
    person.check_output(*of_one(person, "sh", "-c", LEFT))
    events = events_of(person)
    assert [event.data["step"] for event in events] == ["before", "inject", "proved", "held", "heal", "healed"]
    assert check_faults(events).valid == "true"


def test_an_error_of_a_heal_does_not_end_the_lab(person: Person) -> None:
    up(person)
    # a fault record of an unknown kind
    program = """
import time
from pyhooks.faults import registry
registry.FOLDER.mkdir(exist_ok=True)
registry.FaultRecord("melt", "rack", "b", {}, time.monotonic_ns(), 1, {}, "", "in force").write()
"""
    person.check_output("lab", "exec", "--", sys.executable, "-c", program)

    def kept() -> bool:
        status = json.loads(person.run("lab", "status", "--json").stdout)
        return [fault["text"] for fault in status["faults"] if "no kind of fault: melt" in fault["text"]] != []

    wait_for(kept, goal="the reason to be kept", timeout_s=60)
    assert json.loads(person.run("lab", "status", "--json").stdout)["faults"][0]["kind"] == "melt"


def test_the_rate_of_a_rack_s_links_is_limited_and_proved(person: Person) -> None:
    up(person)
    for rate_mbit in ("20", "100"):
        person.check_output("rack", "slow", "b", "--rtt-ms", "40", "--rate-mbit", rate_mbit)
        rejected = person.run("rack", "slow", "a", "--rtt-ms", "80", "--loss-percent", "5")
        assert rejected.returncode == 2, "with lost packets the rate could not be proved again"
        assert "is healed, proved" in person.check_output("rack", "heal", "b")
    assert check_faults(events_of(person)).valid == "true"


def test_two_racks_may_be_slow_and_overlapping_partitions_are_rejected(person: Person) -> None:
    up(person)
    person.check_output("rack", "slow", "a", "--rtt-ms", "80")
    # on a busy machine, the delay of a's link varies by more than a small jitter
    person.check_output("rack", "slow", "b", "--rtt-ms", "60", "--jitter-ms", "30", "--loss-percent", "5")
    rejected = person.run("rack", "cut", "c")
    assert rejected.returncode == 2
    assert "is in force, and one of them could not be proved" in rejected.stderr
    for rack in ("a", "b"):
        assert "is healed, proved" in person.check_output("rack", "heal", rack)
    events = events_of(person)
    assert check_faults(events).valid == "true"
    assert {event.op for event in events} == {"slow-rack"}
