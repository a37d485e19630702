"""Threads may use Java classes that other threads load at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# One thread loads a class, and is in JPype's hook before the conversions of the class are set; the other calls a method
# with a parameter of the class. With Python's default interval it gets the interpreter there, and the process crashes.
_SCRIPT = """
import threading, time
import _jpype, jpype
from pyhooks.jvm.client import ensure_started

original, loading = _jpype._jclassPost, threading.Event()

def set_conversions(java_class, *more):
    if java_class.__name__ == "java.time.ZoneOffset":
        loading.set()
        end_s = time.thread_time() + 0.05
        while time.thread_time() < end_s:
            pass
    return original(java_class, *more)

def call():
    loading.wait()
    try:
        rules.of(object())
    except TypeError:
        print("rejected")

_jpype._jclassPost = set_conversions
ensure_started("")
rules = jpype.JClass("java.time.zone.ZoneRules")
threads = [threading.Thread(target=call), threading.Thread(target=jpype.JClass, args=("java.time.ZoneOffset",))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_a_class_can_be_an_argument_while_another_thread_loads_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "rejected\n"), done.stderr
