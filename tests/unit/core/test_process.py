"""How programs that we run, and we, end."""

from __future__ import annotations

import signal

import pytest

from pyhooks.core.process import exits_on_sigterm


def test_a_sigterm_ends_the_body_like_an_interruption() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, exits_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
