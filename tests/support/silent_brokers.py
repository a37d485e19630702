"""Fake brokers: one that gives every request the same response or none, and a closed port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


def framed(answer: bytes) -> bytes:
    return len(answer).to_bytes(4) + answer


@contextmanager
def broker(answer: bytes | None) -> Iterator[str]:
    """Run a broker that sends ``answer`` to every request, or never responds if None; yield its address."""
    with ExitStack() as kept:
        listener = kept.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            while True:
                try:
                    client = kept.enter_context(listener.accept()[0])
                except OSError:
                    return
                if answer is not None:
                    with client:
                        client.recv(65536)
                        client.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        # close() alone does not wake a thread blocked in accept()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@contextmanager
def dead() -> Iterator[str]:
    """Yield the address of a closed port."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"
