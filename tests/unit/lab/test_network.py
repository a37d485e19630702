"""Commands with which links are shaped, on machines with netem and without. tests/live/lab tests their effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pyhooks.core import process
from pyhooks.lab import link_emulation, link_emulator, network, topology
from pyhooks.lab.link_emulator import DirectionCounters, LinkSettings, LinkState
from pyhooks.lab.topology import Quality

AZ3 = topology.load(topology.find("az3-outside"))
LINK = AZ3.links[0]
IDLE = DirectionCounters(0, 0, 0, 0, 0, 0, 0)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record commands, with their standard input, instead of running them."""
    recorded: list[str] = []

    def record(argv: Sequence[str], *, stdin: str | None = None, **_: Any) -> str:
        recorded.append(" ".join(argv) + (f": {stdin.strip()}" if stdin else ""))
        return ""

    monkeypatch.setattr(process, "run", record)
    return recorded


@pytest.mark.parametrize(
    ("quality", "netem"),
    [
        # 100 ms of the rate and the delay are 1100 packets of 1500 bytes; 10 more for slow links
        (Quality(20, 0, 0, 120), "limit 1110 delay 10ms rate 120mbit"),
        (Quality(10, 0, 0, 0.1), "limit 11 delay 5ms rate 0.1mbit"),
        (Quality(10, 0, 0, 1e6), "limit 100000 delay 5ms rate 1e+06mbit"),
        (Quality(0, 0, 0, 40), "limit 343 rate 40mbit"),
        (Quality(5, 3, 0.5, 0), "limit 100000 delay 2.5ms 1.5ms loss 0.5%"),
        (Quality(5, 3, 0.5, 8), "limit 79 delay 2.5ms 1.5ms loss 0.5% rate 8mbit"),
        (Quality(), "limit 100000"),
    ],
)
def test_netem_shapes_both_directions_of_a_link(
    commands: list[str], monkeypatch: pytest.MonkeyPatch, quality: Quality, netem: str
) -> None:
    monkeypatch.setattr(link_emulation, "has_netem", lambda *_: True)
    network.shape(AZ3, LINK, quality)
    assert commands == [
        f"ip netns exec site-{site} tc qdisc replace dev to-{peer} {step}"
        for site, peer in ((LINK.left, LINK.right), (LINK.right, LINK.left))
        for step in (f"root handle 1: netem {netem}", "parent 1:1 handle 10: pfifo limit 100000")
    ]


@pytest.mark.parametrize(
    ("quality", "packets", "limited_first"),
    [(Quality(2), 65535, False), (Quality(2, 0, 1), 1, True), (Quality(2, 0, 0, 40), 1, True)],
)
def test_segments_are_as_large_as_the_emulator_has_room_for(
    commands: list[str], monkeypatch: pytest.MonkeyPatch, quality: Quality, packets: int, limited_first: bool
) -> None:
    """The emulator has small slots while packets are lost or limited one by one: large segments must not come then."""
    monkeypatch.setattr(link_emulation, "has_netem", lambda *_: False)
    monkeypatch.setattr(link_emulator, "read", lambda _: LinkState(LinkSettings.of(Quality()), (IDLE, IDLE)))
    monkeypatch.setattr(link_emulator, "configure", lambda name, _: commands.append(f"configure {name}"))
    network.shape(AZ3, LINK, quality)
    limits = [
        f"ip -n site-{site} -batch -: link set to-{peer} gso_max_size 16000 gso_max_segs {packets}"
        for site, peer in ((LINK.left, LINK.right), (LINK.right, LINK.left))
    ]
    configured = [f"configure {network.link_name(LINK)}"]
    assert commands == (limits + configured if limited_first else configured + limits)
