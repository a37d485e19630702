"""What a run that was killed has left on hosts: the next test ends it, each process by its id, and never by a name.

A process counts as left behind if its id is in the file that the run wrote, and if its command line names the folder of
that run: an id may have been given to somebody else since. Nothing of ducktape is imported here.
"""

from __future__ import annotations

import shlex

from ducktape_tests.services.hosts import Hosts
from pyhooks.cluster.topology import Node
from pyhooks.wait import wait_for

PIDS = "pids"
GONE_S = 20.0
# $1: of a process; the rest: words that must all be in its command line. Such processes lead groups of their own.
OURS = """\
ours() {
    case "$1" in ""|*[!0-9]*) return 1 ;; esac
    pid=$1; shift
    for word; do tr '\\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -qF -e "$word" || return 1; done
}
"""
# $1: the file with Kafka's process id; $2: of Kafka's properties. SIGKILL ends one that is paused, too.
KAFKA = """\
pid=$(cat "$1" 2> /dev/null)
ours "$pid" kafka.Kafka "$2" || exit 0
kill -s KILL -- "-$pid" || exit 1
echo killed
"""
# $1: how the folders of clients begin. Those of other people are left alone.
CLIENTS = """\
for folder in "$1"*; do
    [ -d "$folder" ] && [ -O "$folder" ] || continue
    for pid in $(cat "$folder/PIDS" 2> /dev/null); do
        ours "$pid" "$folder" || continue
        kill -s KILL -- "-$pid"
        i=0
        while [ $i -lt 100 ] && [ -e "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2> /dev/null; do
            i=$((i + 1)); sleep 0.1
        done
    done
    rm -rf "$folder" || exit 1
done
"""


def _script(text: str, *arguments: str) -> str:
    return shlex.join(["sh", "-c", OURS + text, "sh", *arguments])


def end_kafka(hosts: Hosts, node: Node) -> bool:
    """Ends the Kafka that an earlier run has left on a host, and waits until it is gone; tells whether there was one.

    Raises:
        RackgateError: it can't be ended, or the host can't be asked.
    """
    words = (f"{hosts.home}/pid", f"{hosts.home}/server.properties")
    if not hosts.run_on(node, _script(KAFKA, *words)).strip():
        return False
    what = f"the end of what a run before has left on {node.name}"
    wait_for(lambda: hosts.kafka_pid(node) is None, what=what, timeout_s=GONE_S)
    return True


def end_clients(prefix: str) -> str:
    """The shell command that ends the clients that earlier runs have left on a host, and removes their folders.

    Args:
        prefix: how the paths of those folders begin; each has the ids of its processes, a line each, in ``PIDS``.
    """
    return _script(CLIENTS.replace("PIDS", PIDS), prefix)
