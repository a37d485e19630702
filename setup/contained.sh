#!/bin/sh
# Runs "sh -c"-style recipes for make so that nothing outlives them: the recipe runs in a PID namespace
# of its own, and the kernel ends every process of the namespace with it, however make ends.
# usage: contained.sh -c RECIPE
set -u
[ "$(id -u)" -eq 0 ] && own="" || own="--user --map-current-user"
if [ "${RACKGATE_CONTAINED:-}" = 1 ] || ! unshare $own --pid --fork --mount --mount-proc true 2>/dev/null; then
    # already inside, or no namespaces here: the recipe still dies with make
    exec setpriv --pdeathsig KILL -- /bin/bash -euo pipefail "$@"
fi
export RACKGATE_CONTAINED=1
# Three shells: the first is there to end when make hands a SIGTERM on, which unshare takes no notice of, and takes the
# others with it. The second, first process of the namespace, does nothing but wait: it fetches the status of what is
# orphaned there, as an init would. Without that a lab could not go while a command that was killed in it is still a
# zombie. The third runs the recipe.
exec setpriv --pdeathsig KILL -- /bin/sh -c 'setpriv --pdeathsig KILL -- unshare "$@"; exit $?' make \
    $own --pid --fork --kill-child --mount --mount-proc \
    /bin/bash -c '/bin/bash -euo pipefail "$@"; exit $?' make "$@"
