"""A producer in a node's network: its network namespace, a clean end, and a recorded kill."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyhooks.checkers.record_view import Records
from pyhooks.core.wait import wait_for
from pyhooks.history.event_log import History
from pyhooks.lab.lab import Lab

# No broker listens there; only the producer's network and its end matter.
NOBODY = ["--bootstrap", "127.0.0.1:9", "--topics", "t", "--client", "confluent", "--partitions", "1", "--rate", "50"]
FOREVER = [*NOBODY, "--seconds", "600", "--timeout-ms", "500"]


def network_of(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115 - it is no path that can be followed


def inside(folder: Path) -> dict[str, object]:
    """Part of the test that runs in the lab, as a program; only this folder is on its import path."""
    sys.path.append(str(Path(__file__).parents[2] / "support"))
    from producer_processes import ProducerProcess, running_producers

    lab = Lab.attach()
    node = lab.brokers("a")[0]
    node_pid = lab.pids[node.name]
    history = History(folder / "history.jsonl")

    def noted(number: int) -> bool:
        return sum(event.op == "produce" for event in history.events()) >= number

    with running_producers([FOREVER], history, logs=folder, node_pid=node_pid) as (one,):
        wait_for(lambda: noted(5), goal="the first attempts", timeout_s=60)
        network = network_of(one.pid)
    killed = ProducerProcess(FOREVER, history, log=folder / "killed.log", node_pid=node_pid)
    ended = sum(event.op == "produce" for event in history.events())
    wait_for(lambda: noted(ended + 5), goal="attempts of the second", timeout_s=60)
    killed.kill()
    killed.stop()
    return {
        "elsewhere": network != network_of("self"),
        "there": network == network_of(node_pid),
        "runs": [one.run_id, killed.run_id],
        "left": [pid for pid in (one.pid, killed.pid) if Path(f"/proc/{pid}").exists()],
    }


def test_a_producer_in_a_node(tmp_path: Path) -> None:
    from terminal_user import Person

    arguments = ["lab", "run", "--bare", "--topology", "az3-outside", "--run-dir", str(tmp_path / "lab"), "--"]
    output = json.loads(
        Person(tmp_path).check_output(*arguments, sys.executable, __file__, str(tmp_path)).splitlines()[-1]
    )
    assert (output["elsewhere"], output["there"], output["left"]) == (True, True, [])
    records = Records(list(History(tmp_path / "history.jsonl").events()))
    ended, killed = (records.runs[name, "t"] for name in output["runs"])
    assert ended.ended is not None
    assert not ended.killed
    assert killed.ended is None
    assert killed.killed
    assert records.unrecorded() == []


if __name__ == "__main__":
    sys.stdout.write(json.dumps(inside(Path(sys.argv[1]))) + "\n")
