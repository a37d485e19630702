"""What kafkatest expects on a node: Kafka in /opt/kafka-dev, private /mnt and /tmp, and the programs sudo and nc.

Kafka's scripts and configuration are those of the checkout, mounted; its jars are those of the build. Only
``kafka-run-class.sh``, which all scripts call, has a script of ours before it.
"""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pyhooks.core import files
from pyhooks.patchset.distribution import Distribution

Arm = Literal["stock", "overlay", "gate"]
ARMS: tuple[Arm, ...] = ("stock", "overlay", "gate")
HOME = "/opt/kafka-dev"
PROGRAMS = f"{HOME}/programs"
RACKS = ("a", "b", "c")
REQUIRED_RACKS = 2
HEAP = "-Xmx512m -Xms128m"
# What brokers log in an arm, and what they do not: the R of the metadata, which is what is enforced.
RACKS_CONFIG, STARTED, TOPIC_CHANGED = "min.insync.racks", "KafkaConfig values", "Updating topic "
_ENFORCED = f"{RACKS_CONFIG} is enforced from now on"
PROOFS: Mapping[Arm, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "stock": ((STARTED,), (RACKS_CONFIG,)),
    "overlay": ((_ENFORCED, f"{RACKS_CONFIG} -> 1"), (f"{RACKS_CONFIG} -> {REQUIRED_RACKS}",)),
    "gate": ((_ENFORCED, f"{RACKS_CONFIG} -> {REQUIRED_RACKS}"), ()),
}
_REFERENCE = re.compile(r"(?<![\w.])kafka(?:\.[a-z]+)+\.[A-Z]\w+")
# Kafka 4.2 renamed these options of the console consumer; the notice about the former names is on standard output.
_CONSUMER_OPTIONS = {
    "--property": "--formatter-property",
    "--consumer-property": "--command-property",
    "--consumer.config": "--command-config",
}

RUN_CLASS = """#!/bin/bash
# Calls the checkout's script of the same name with the present names of classes and options.
here=$(cd "$(dirname "$0")/.." && pwd)
declare -A class=({classes})
declare -A option=({options})
arguments=()
for each in "$@"; do
    each=${{class[_$each]:-$each}}
    [[ " ${{arguments[*]}} " == *.ConsoleConsumer\\ * ]] && each=${{option[_$each]:-$each}}
    arguments+=("$each")
done
# the collector and compiler that need the least processor time; log4j 2 reads the tests' log4j 1 files
export KAFKA_JVM_PERFORMANCE_OPTS="-server -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.awt.headless=true"
export KAFKA_OPTS="$KAFKA_OPTS -Dlog4j1.compatibility=true"
export LOG_DIR=${{LOG_DIR:-/tmp/logs}}
[[ $KAFKA_HEAP_OPTS == "-Xmx1G -Xms1G" ]] && export KAFKA_HEAP_OPTS="{heap}"
{arm}
exec "$here/original/kafka-run-class.sh" "${{arguments[@]}}"
"""
OVERLAY_FIRST = 'export CLASSPATH="$here/overlay/*${CLASSPATH:+:$CLASSPATH}"'
REQUIRE_RACKS = f"""
racks=({" ".join(RACKS)})
for file in "$@"; do
    [[ $file == */kafka.properties && -f $file ]] && ! grep -q '^{RACKS_CONFIG}=' "$file" || continue
    id=$(sed -n 's/^node\\.id=//p' "$file")
    if grep -q '^process.roles=.*broker' "$file" && ! grep -q '^broker.rack=' "$file"; then
        echo "broker.rack=${{racks[(id - 1) % {len(RACKS)}]}}" >> "$file"
    fi
    echo "{RACKS_CONFIG}={REQUIRED_RACKS}" >> "$file"
done"""
SUDO = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
exec "$@"
"""
NC = """#!/bin/bash
# nc [-z] [-w SECONDS] HOST PORT: whether a connection can be made
wait=3
while [[ $1 == -* ]]; do
    [[ $1 == -w ]] && wait=$2 && shift
    shift
done
exec timeout "$wait" bash -c ': > "/dev/tcp/$0/$1"' "$1" "$2" 2> /dev/null
"""
# usage: TREE [SOURCE FOLDER-IN-TREE]…; runs in a node, whose mounts no other node sees
MOUNT = f"""set -e
tree=$1
shift
while [ $# -gt 0 ]; do mount --bind "$1" "$tree/$2"; shift 2; done
mount --rbind /opt "$tree/opt"
mount -t tmpfs -o mode=0755 node /opt
for folder in "$tree"/opt/*/; do
    [ -d "$folder" ] || continue
    mkdir "/opt/$(basename "$folder")"
    mount --rbind "$folder" "/opt/$(basename "$folder")"
done
mkdir -p {HOME}
mount --rbind "$tree" {HOME}
mount -t tmpfs -o mode=1777 node /tmp
"""


def moved_classes(checkout: Path, libs: Path) -> dict[str, str]:
    """Return the classes that scripts and tests of a checkout name and the jars do not have, with their present names.

    Args:
        checkout: root of the checkout.
        libs: folder of the jars; classes that they do not have, or have in several packages, are left out.
    """
    present: defaultdict[str, set[str]] = defaultdict(set)
    for jar in sorted([*libs.glob("kafka*.jar"), *libs.glob("connect*.jar")]):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(".class") and "$" not in entry:
                    name = entry.removesuffix(".class").replace("/", ".")
                    present[name.rpartition(".")[2]].add(name)
    named: set[str] = set()
    for path in [*(checkout / "bin").glob("*.sh"), *(checkout / "tests" / "kafkatest").rglob("*.py")]:
        named.update(_REFERENCE.findall(path.read_text(encoding="utf-8")))
    moved = {}
    for name in sorted(named):
        current = present.get(name.rpartition(".")[2], set())
        if len(current) == 1 and name not in current:
            moved[name] = next(iter(current))
    return moved


def write_tree(tree: Path, checkout: Path, arm: Arm, moved: Mapping[str, str]) -> None:
    """Write the content of /opt/kafka-dev except what is mounted into it.

    Args:
        tree: folder to create.
        checkout: root of the checkout, for the names of its scripts.
        arm: what Kafka to run.
        moved: present names of classes.
    """
    for folder in ("bin", "original", "config", "libs", "overlay", "programs", "opt"):
        (tree / folder).mkdir(parents=True)
    for script in sorted((checkout / "bin").glob("*.sh")):
        (tree / "bin" / script.name).symlink_to(f"../original/{script.name}")
    (tree / "bin" / "kafka-run-class.sh").unlink()
    settings = [OVERLAY_FIRST] if arm != "stock" else []
    settings += [REQUIRE_RACKS] if arm == "gate" else []
    tables = {"classes": _bash_table(moved), "options": _bash_table(_CONSUMER_OPTIONS)}
    run_class = RUN_CLASS.format(**tables, heap=HEAP, arm="\n".join(settings))
    scripts = {"bin/kafka-run-class.sh": run_class, "programs/sudo": SUDO, "programs/nc": NC}
    files.write({tree / name: text for name, text in scripts.items()}, mode=0o755)


def _bash_table(table: Mapping[str, str]) -> str:
    # bash rejects an empty key, so each has a prefix
    return " ".join(f"[_{key}]={value}" for key, value in table.items())


def mounts(checkout: Path, kafka: Distribution, arm: Arm) -> list[str]:
    """Return what to mount, as arguments of ``MOUNT``: folders, each followed by its place in the tree."""
    sources = [(checkout / "bin", "original"), (checkout / "config", "config"), (kafka.root / "libs", "libs")]
    if arm != "stock":
        sources.append((kafka.root / "overlay", "overlay"))
    return [text for source, place in sources for text in (str(source), place)]


def why_unproved(arm: Arm, logs: Iterable[Path]) -> str:
    """Return why the logs of a case's Kafka processes do not prove its arm; empty if they do."""
    lines: set[str] = set()
    for path in logs:
        with path.open(encoding="utf-8", errors="replace") as log:
            lines.update(line for line in log if RACKS_CONFIG in line or STARTED in line)
    # a test may set R of a topic in any arm that has it
    lines = {line for line in lines if TOPIC_CHANGED not in line}
    present, absent = PROOFS[arm]
    for text in present:
        if not any(text in line for line in lines):
            return f"no log of Kafka has {text!r}, so it is not proved that this was the arm {arm}"
    for text in absent:
        if any(text in line for line in lines):
            return f"a log of Kafka has {text!r}, so this was not the arm {arm}"
    return ""
