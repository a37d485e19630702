#!/bin/sh
# Runs "sh -c"-style recipes for make so that nothing outlives them: the recipe is the first process of a PID
# namespace of its own, and the kernel ends every process of the namespace with it, however make ends.
# usage: contained.sh -c RECIPE
set -u
[ "$(id -u)" -eq 0 ] && own="" || own="--user --map-current-user"
if [ "${RACKGATE_CONTAINED:-}" = 1 ] || ! unshare $own --pid --fork --mount --mount-proc true 2>/dev/null; then
    # already inside, or no namespaces here: the recipe still dies with make
    exec setpriv --pdeathsig KILL -- /bin/bash -euo pipefail "$@"
fi
export RACKGATE_CONTAINED=1
exec setpriv --pdeathsig KILL -- unshare $own --pid --fork --kill-child --mount --mount-proc /bin/bash -euo pipefail "$@"
