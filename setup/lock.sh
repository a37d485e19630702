#!/usr/bin/env bash
# Renews requirements/*.lock: exact versions with hashes, no addresses.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3.11}" -m venv "$scratch"
"$scratch/bin/python" -m pip install -q --disable-pip-version-check uv
compile() {
    "$scratch/bin/uv" pip compile -q --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-header "$@"
}
compile requirements/build.in -o requirements/build.lock
compile pyproject.toml --extra dev -o requirements/main.lock
compile requirements/ducktape.in -o requirements/ducktape.lock
