"""``rackgate bench --bootstrap`` on brokers that do not enforce racks: stock brokers, and the feature at level 0."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loopback_brokers import Brokers
from pyhooks.kafka import topics
from pyhooks.patchset.distribution import Distribution

pytestmark = pytest.mark.timeout(420)
RACKGATE = Path(sys.executable).with_name("rackgate")


def rejected(brokers: Brokers, out: Path) -> str:
    """Run the benchmark, which must fail before any change, and return its error; the Spark master does not exist."""
    arguments = [
        str(RACKGATE), "bench", "--bootstrap", brokers.bootstrap, "--master", "spark://127.0.0.1:1", "--out", str(out),
    ]  # fmt: skip
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not out.exists()
    assert list(topics.admin(brokers.bootstrap, {}).list_topics(timeout=10).topics) == []
    (line,) = done.stderr.splitlines()
    return line


def test_brokers_that_do_not_enforce_an_arm_s_settings_are_listed(tmp_path: Path) -> None:
    stock, overlay = (Distribution.load().classpath(overlay) for overlay in (False, True))
    brokers = Brokers(tmp_path, {1: "a", 2: "b", 3: "c"}, controller=1)
    # format with stock tools, so that no feature is enabled that stock Kafka does not know
    brokers.format(stock)
    for classpath, words in ((stock, "no (no overlay)"), (overlay, "no (feature at level 0)")):
        with brokers.running(classpath, clean_end=True):
            line = rejected(brokers, tmp_path / "out")
        each = "; ".join(f"broker {broker}: {words}" for broker in (1, 2, 3))
        assert f"can't have arm B (min.insync.racks), because not all brokers enforce it ({each})" in line
        assert "see README.md, 'On your own Kafka'" in line
