#!/usr/bin/env bash
# Names or installs the system packages that the project needs.
# usage: setup/system.sh   (as root it installs what is missing; else it names that in one line and ends with 2)
set -euo pipefail

# program or probe -> Debian package
declare -A packages=(
    [javac]=openjdk-17-jdk-headless
    [mvn]=maven
    [gcc]=gcc
    [git]=git
    [ip]=iproute2
    [tc]=iproute2
    [ping]=iputils-ping
    [nft]=nftables
    [unshare]=util-linux
    [nsenter]=util-linux
    [setpriv]=util-linux
    [ps]=procps
    [hostname]=hostname
)
missing=()
for program in "${!packages[@]}"; do
    command -v "$program" >/dev/null || missing+=("${packages[$program]}")
done
# pages are tested in whichever browser of this family is there
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
    || missing+=(chromium)
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null || { echo "error: $python is not installed; the project needs Python 3.11" >&2; exit 2; }
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
# ducktape pins a psutil that has no wheel for this Python and is compiled
"$python" -c 'import pathlib, sysconfig as s, sys; sys.exit(not pathlib.Path(s.get_paths()["include"], "Python.h").exists())' \
    || missing+=(python3-dev)
echo '#include <stdlib.h>' | "${CC:-gcc}" -E - >/dev/null 2>&1 || missing+=(libc6-dev)
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
if [ "$(id -u)" -ne 0 ]; then
    echo "error: system packages are missing; as root: apt-get install ${missing[*]}" >&2
    exit 2
fi
echo "installing system packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
