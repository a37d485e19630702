#!/usr/bin/env bash
# Renews requirements/*.lock: exact versions with hashes, no addresses. uv, which writes them, is itself installed by hash.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3.11}" -m venv "$scratch"
"$scratch/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements/tools.lock
compile() {
    "$scratch/bin/uv" pip compile -q --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-header "$@"
}
compile requirements/tools.in -o requirements/tools.lock
compile requirements/build.in -o requirements/build.lock
compile pyproject.toml --extra dev -o requirements/main.lock
compile requirements/ducktape.in -o requirements/ducktape.lock
compile requirements/monitoring.in -o requirements/monitoring.lock
compile requirements/site.in -o requirements/site.lock
