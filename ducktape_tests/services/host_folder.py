"""Folder on a host for everything that a system test writes there: created with a marker, emptied only with it.

The marker is that of ``pyhooks.core.run_folder``. ``HostFolder.command`` runs every script that writes or deletes in
the folder, after its checks in the same shell. This module does not import ducktape.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.core.run_folder import MARKER, PROJECT, Kind
from pyhooks.lab.kafka_process import METRICS_SOCKET

# ducktape global with the parent of the folders on hosts; set by --host-root
HOST_ROOT = "host_root"
DEFAULT_ROOT = "/mnt"
KAFKA, CLIENTS = "kafka", "clients"
KIND = Kind("system-host", 1, "--host-root")
# files in the folder: PID of Kafka; PIDs of programs of pyhooks.workload, one per line
PID, PIDS = "pid", "pids"
# exit status of a script that refuses to touch the folder; its output is one line with the reason
REJECTED = 78
# sun_path has 108 bytes including the terminator; the metrics agent's socket has the longest name in the folder
ROOT_BYTES_MAX = 107 - len(f"/{PROJECT}/{KAFKA}/{METRICS_SOCKET}")

# $1: root; $2: the project's folder in it; $3: the folder; $4: its marker; the rest: arguments of the script. A failing
# command ends the shell (set -e), except in a condition: so results are assigned before they are compared. The folder
# is the script's working directory, so replacing its path with a link later can't redirect the script.
GUARD = f"""\
set -eu
umask 077
root=$1 parent=$2 folder=$3 marker=$4 file={MARKER}; shift 4
reject() {{ printf '%s: %s; %s\\n' "$1" "$2" "${{3-nothing in it is deleted: move it or choose another {KIND.option}}}"; exit {REJECTED}; }}
checked() {{
    [ -e "$1" ] || [ -L "$1" ] || mkdir -- "$1" 2> /dev/null || reject "$1" "can't be created" "choose another {KIND.option}"
    [ ! -L "$1" ] || reject "$1" "is a symbolic link"
    [ -d "$1" ] || reject "$1" "is not a folder"
    [ -O "$1" ] || reject "$1" "belongs to another user"
    writable=$(find "$1" -prune -perm /022)
    [ -z "$writable" ] || reject "$1" "is writable by other users"
}}
[ ! -L "$root" ] || reject "$root" "is a symbolic link" "choose the folder that it leads to with {KIND.option}"
[ -d "$root" ] || reject "$root" "is not a folder" "create it or choose another {KIND.option}"
checked "$parent"
checked "$folder"
cd -P -- "$folder"
content=$(ls -A)
if [ -e "$file" ]; then
    [ ! -L "$file" ] && [ -f "$file" ] && [ -O "$file" ] || reject "$folder" "its $file is not a regular file of this user"
    found=$(cat -- "$file")
    [ "$found" = "$marker" ] || reject "$folder" "its $file is not of this kind of run and format"
elif [ -z "$content" ] || [ "$content" = "$file.new" ]; then
    rm -f -- "$file.new"
    printf '%s\\n' "$marker" > "$file.new"
    mv -- "$file.new" "$file"
else
    reject "$folder" "has files but no $file"
fi
"""  # noqa: E501 - a message is one line
# Ends the processes of an earlier run, then deletes the folder. A process is ended only if its PID is in a file of the
# folder and its command line names the folder, because PIDs are reused. Each process leads its own process group.
DELETE = f"""\
# $1: process id; the rest: texts that must all be in its command line
is_ours() {{
    case "$1" in ""|*[!0-9]*) return 1 ;; esac
    pid=$1; shift
    for text; do tr '\\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -qF -e "$text" || return 1; done
}}
# a process keeps its ports until its last thread has ended
has_ended() {{
    [ -e "/proc/$1" ] || return 0
    grep -q '^State:.Z' "/proc/$1/status" 2> /dev/null || return 1
    threads=$(ls "/proc/$1/task" 2> /dev/null | wc -l)
    [ "$threads" -le 1 ]
}}
end() {{
    is_ours "$@" || return 0
    kill -s KILL -- "-$1" 2> /dev/null || :
    tries=0
    until has_ended "$1"; do
        [ "$tries" -lt 200 ] || reject "$folder" "process $1 of an earlier run does not end" "end it"
        tries=$((tries + 1)); sleep 0.1
    done
}}
kafka=$(cat {PID} 2> /dev/null || :)
end "$kafka" kafka.Kafka "$folder/server.properties"
for pid in $(cat {PIDS} 2> /dev/null || :); do end "$pid" "$folder"; done
find . -mindepth 1 -maxdepth 1 ! -name "$file" -exec rm -rf --one-file-system -- {{}} +
rm -- "$file"
cd /
# a mount point, or a folder that another service uses, stays
rmdir -- "$folder" "$parent" 2> /dev/null || :
"""


@dataclass(frozen=True)
class HostFolder:
    """A folder of the project on a host.

    Attributes:
        root: existing folder below which it is created.
    """

    root: str = DEFAULT_ROOT
    name: str = KAFKA

    @property
    def path(self) -> str:
        """Path on the host, unquoted."""
        return f"{self._parent}/{self.name}"

    @property
    def _parent(self) -> str:
        return f"{self.root.rstrip('/')}/{PROJECT}"

    def command(self, script: str, *arguments: str) -> str:
        """Return the shell command that runs a script in the folder if the folder belongs to the project.

        The POSIX shell script runs with ``set -eu``. A missing or empty folder is created and marked first. If the
        folder has other files and no marker, or a part of its path is not as this project creates it, the script does
        not run and the exit status is ``REJECTED``.
        """
        own = [self.root, self._parent, self.path, KIND.marker.strip()]
        return shlex.join(["sh", "-c", GUARD + script, "sh", *own, *arguments])


def checked_root(text: str) -> str:
    """Return the normalised path of a root.

    Raises:
        RackgateError: it is relative or too long, or ``log.dirs`` of Kafka does not allow one of its characters.
    """
    if not text.startswith("/") or not re.fullmatch(r"[ -~]+", text) or set(text) & set(",\\"):
        raise RackgateError(
            f"{KIND.option} {text!r}: must be an absolute path in printable ASCII without comma and backslash"
        )
    root = "/" + posixpath.normpath(text).lstrip("/")
    if len(root) > ROOT_BYTES_MAX:
        raise RackgateError(f"{KIND.option} {text!r}: must have at most {ROOT_BYTES_MAX} characters")
    return root


def host_root(settings: Mapping[str, Any]) -> str:
    """Return the checked root from ducktape's globals, or the default one."""
    return checked_root(str(settings.get(HOST_ROOT, DEFAULT_ROOT)))
