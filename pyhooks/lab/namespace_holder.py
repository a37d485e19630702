"""First process of a node: keeps its namespaces alive and collects orphans; started with ``python -I -S``.

Only the standard library, and nothing at all beyond ``os`` and ``signal``: one runs for every node.
"""

import os
import signal


def main() -> None:
    """Waits for the end, collecting the processes that lose their parent inside the node."""
    # A namespace's first process receives only the signals that it has handlers for.
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
