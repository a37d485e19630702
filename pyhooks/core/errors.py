"""Exception that ends a command with a one-line message instead of a traceback."""

from __future__ import annotations


class RackgateError(Exception):
    """Failure that the user can act on.

    The message is one line: what failed, where (artifact, patch, file, node) and what to do about it. ``detail`` may
    hold more text, such as the end of a compiler log; the command line prints it below the message. The exit status is
    1 if a check failed, 2 if the work could not be done.
    """

    def __init__(self, message: str, *, detail: str = "", exit_status: int = 2) -> None:
        super().__init__(message)
        self.detail = detail
        self.exit_status = exit_status
