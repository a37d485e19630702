"""The one exception that ends a command with a single clear line instead of a traceback."""

from __future__ import annotations


class RackgateError(Exception):
    """A failure that a person can act on.

    The message is one line: what went wrong, where (artifact, patch, file, node) and what to do about it.
    ``detail`` may hold more (the tail of a compiler's log); the command line prints it below the message.

    Args:
        message: the line for the person.
        detail: further text, or empty.
        exit_status: 1 when something was checked and found wrong, 2 when the work could not be done.
    """

    def __init__(self, message: str, *, detail: str = "", exit_status: int = 2) -> None:
        super().__init__(message)
        self.detail = detail
        self.exit_status = exit_status
