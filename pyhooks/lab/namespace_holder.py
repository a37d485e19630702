"""Init process of a node: keeps its namespaces alive and reaps orphans; started with ``python -I -S``.

To stay small, it imports only ``os`` and ``signal``: one such process runs for every node.
"""

import os
import signal


def main() -> None:
    """Run until SIGTERM or SIGINT, and reap orphaned processes of the node."""
    # The init process of a namespace receives only signals that it has handlers for.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    os.write(1, b"ready\n")
    os.close(1)
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait([signal.SIGCHLD])


if __name__ == "__main__":
    main()
