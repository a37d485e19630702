#!/usr/bin/env bash
# Makes a virtual environment with the packages of a lock file and this project, unless another make has just done so.
# Its file "ready" is made last, so an interrupted set-up does not count.
# usage: setup/venv.sh FOLDER LOCK-FILE [OTHER FILE THAT DECIDES WHAT IS INSTALLED]...
set -euo pipefail
folder=$1
shift
# one set-up at a time: two of them would delete each other's files, and apt-get refuses to run twice; the kernel lets go
exec 9>.setup.lock
if ! flock --nonblock 9; then
    echo "another make is setting up a virtual environment in $PWD; waiting for it"
    flock 9
fi
current() {
    [ -e "$folder/ready" ] || return 1
    local file
    for file in "$@"; do
        [ "$file" -nt "$folder/ready" ] && return 1
    done
    return 0
}
if current "$@"; then
    exit 0
fi
setup/system.sh
echo "setting up $folder (once; downloads by hash from requirements/)"
rm -f "$folder/ready"
rm -rf "$folder"
"${PYTHON:-python3.11}" -m venv "$folder"
install() {
    "$folder/bin/python" -m pip install -q --disable-pip-version-check "$@"
}
# the build backend first, since packages without a wheel are built with it and not with an unpinned one
install --require-hashes -r requirements/build.lock
install --require-hashes --no-build-isolation -r "$1"
install --no-build-isolation --no-deps -e .
touch "$folder/ready"
