"""Judge a stored history; needs no cluster. Usage: python judge_history.py HISTORY [CHECKER…]."""

import sys
from pathlib import Path

from pyhooks.api import History, judge

events = tuple(History(Path(sys.argv[1])).events())
verdicts, _ = judge(events, sys.argv[2:])
for verdict in verdicts:
    print(f"{verdict.checker}: {verdict.valid}", *verdict.because)
sys.exit(any(verdict.valid != "true" for verdict in verdicts))
