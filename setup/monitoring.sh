#!/usr/bin/env bash
# Fetches what the tests of pyhooks/monitoring need into a folder, once: Prometheus and promtool, Grafana's model of
# dashboards and a YAML parser. Prometheus is Debian's package, unpacked only: to install it would start a server.
# usage: setup/monitoring.sh FOLDER
set -euo pipefail
folder=$1
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if [ "$folder/ready" -nt "$here/requirements/monitoring.lock" ] && [ "$folder/ready" -nt "$here/setup/monitoring.sh" ]; then
    exit 0
fi
rm -rf "$folder/ready" "$folder/prometheus" "$folder/venv"
mkdir "$folder/prometheus"
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    ln -s "$(command -v prometheus)" "$(command -v promtool)" "$folder/prometheus/"
else
    # in a folder that apt's own user can write
    fetched=$(mktemp -d)
    trap 'rm -rf "$fetched"' EXIT
    chmod 777 "$fetched"
    cd "$fetched"
    if ! apt-get download -q prometheus >/dev/null 2>&1; then
        [ "$(id -u)" -eq 0 ] || { echo "error: Prometheus is missing; as root: apt-get install prometheus" >&2; exit 2; }
        apt-get update -q >/dev/null
        apt-get download -q prometheus >/dev/null
    fi
    dpkg-deb -x ./*.deb unpacked
    mv unpacked/usr/bin/prometheus unpacked/usr/bin/promtool "$folder/prometheus/"
fi
"${PYTHON:-python3.11}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$here/requirements/monitoring.lock"
touch "$folder/ready"
