"""Rendered frames of ``rackgate watch`` at several terminal sizes: content and size."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from pyhooks.watch.observation import FaultObservation, TopicRequirements
from pyhooks.watch.snapshot import take_snapshot
from pyhooks.watch.states import Snapshot
from pyhooks.watch.view import duration, number, rack_tags, render
from watch_observations import at, blind

SIZES = [(80, 24), (100, 30), (160, 50), (60, 20)]


def rendered_lines(snapshot: Snapshot, width: int, height: int | None) -> list[str]:
    console = Console(width=width, height=height or 50, file=io.StringIO(), record=True, color_system=None)
    console.print(render(snapshot, width, height))
    return console.export_text().splitlines()


def outage() -> Snapshot:
    """Return a snapshot 4 s after the loss of rack b."""
    shown: Snapshot | None = None
    for observed in (at(9), at(10), at(11, lost=True), at(12, lost=True), at(13, lost=True), at(14, lost=True)):
        shown = take_snapshot(observed, shown)
    assert shown is not None
    return shown


def large_cluster(partitions: int, racks: int = 3, brokers: int = 60) -> Snapshot:
    """Return a snapshot of a large cluster in which every tenth partition rejects writes."""
    observed = at(5)
    template = observed.partitions[0]
    found = [
        replace(template, topic=f"topic-with-a-long-name-{index // 10}", partition=index % 10)
        for index in range(partitions)
    ]
    found = [replace(partition, isr=(1,)) if partition.partition == 3 else partition for partition in found]
    members = [
        replace(observed.brokers[0], broker=index, rack=f"eu-west-{index % racks}{'abcdefghijkl'[index % racks]}")
        for index in range(1, brokers + 1)
    ]
    requirements = {partition.topic: TopicRequirements(1, 2) for partition in found}
    changed = replace(
        observed, partitions=tuple(found), brokers=tuple(members), requirements=requirements, produced=None
    )
    return take_snapshot(changed)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_frames_fit(width: int, height: int) -> None:
    for shown in (
        outage(),
        take_snapshot(blind(5)),
        large_cluster(1000),
        large_cluster(1000, racks=9),
        take_snapshot(at(1)),
    ):
        found = rendered_lines(shown, width, height)
        assert len(found) <= height
        assert max(map(cell_len, found)) <= width


def test_an_outage_in_80_columns_without_colours() -> None:
    text = "\n".join(rendered_lines(outage(), 80, 24))
    assert "FAULT kill-rack 4s (rack b)" in text
    assert "3 DOWN" in text
    assert "! orders-0     1 1a 2a (3b) 1/2 2/1 1000 ■4s    0/3/0   rejects: 1 of 2 racks" in text
    assert "~ orders-un…-0" in text
    assert "▲100/s" in text
    assert "RackCheckFail 3/s UnderMinRack 2" in text
    assert "NOT_ENOUGH_RACKS 3/s" in text
    assert "2 not writable, 1 at risk, 2 degraded" in text


def test_an_outage_in_160_columns() -> None:
    found = rendered_lines(outage(), 160, 50)
    text = "\n".join(found)
    assert "RackCheckFailureRate 3/s  UnderMinRackIsr 2  AtMinRackIsr 1" in text
    assert "1000 ■ frozen 4s" in text
    assert "of 3/5 brokers" in text
    orders = next(line for line in found if "orders-0 " in line)
    joined = " ".join(orders.split())
    assert joined == "! orders-0 1 1a 2a (3b) 1/2 2/1 1000 ■ frozen 4s 0/3/0 3 rejects: 1 of 2 racks"


def test_isr_members_have_the_colour_of_their_rack() -> None:
    console = Console(width=100, file=io.StringIO(), record=True, force_terminal=True, color_system="standard")
    console.print(render(outage(), 100, 30))
    text = console.export_text(styles=True)
    assert "\x1b[1;36m1a\x1b[0m" in text, "in the ISR: bold, in the colour of rack a"
    assert "\x1b[2m(3b)\x1b[0m" in text, "not in the ISR: dim"
    assert "\x1b[1;31m1/2\x1b[0m" in text


def test_unknown_values_are_shown_as_question_marks() -> None:
    shown = take_snapshot(blind(12), take_snapshot(at(5), take_snapshot(at(4))))
    text = "\n".join(rendered_lines(shown, 80, 24))
    assert "? orders-0     ? 1a? 2a? 3b? ?/2 ?/1 ? was 500" in text
    assert "? metadata: no response for 7 s" in text
    assert "1 UNKNOWN leads ?" in text


def test_the_worst_partitions_are_shown_and_the_others_counted() -> None:
    found = rendered_lines(large_cluster(1000), 80, 24)
    shown = [line for line in found if "topic" in line and "-" in line]
    assert len(shown) >= 8
    assert all("-3 " in line and "rejects: 1 of 2 racks" in line for line in shown)
    remainder = next(line for line in found if " more: " in line)
    assert f"+ {1000 - len(shown)} more: {100 - len(shown)} not writable, 900 ok" in remainder
    # without a height all partitions are shown
    assert len([line for line in rendered_lines(large_cluster(1000), 160, None) if "topic-with" in line]) == 1000


def test_brokers_with_problems_are_shown_first_and_the_others_counted() -> None:
    shown = large_cluster(10)
    brokers = tuple(
        replace(broker, listed=False, process=None) if broker.broker == 31 else broker
        for broker in shown.observation.brokers
    )
    text = "\n".join(rendered_lines(take_snapshot(replace(shown.observation, brokers=brokers)), 80, 24))
    assert "31 GONE" in text
    assert "+ 15 up" in text
    assert "(b)" in text, "the title shows the short name of the rack"


def test_many_racks_are_listed_with_those_with_problems_first() -> None:
    shown = large_cluster(10, racks=9)
    brokers = tuple(
        replace(broker, listed=False, process=None) if broker.broker in (7, 16) else broker
        for broker in shown.observation.brokers
    )
    fault = FaultObservation("cut-rack", "eu-west-7h", "", "proved", True, 0, 0)
    found = rendered_lines(take_snapshot(replace(shown.observation, brokers=brokers, faults=(fault,))), 60, 20)
    assert found[2].startswith("rack eu-west-7h  4 up  GONE 7 16   cut-rack 5s")
    assert found[7].startswith("+ 4 racks, 4 of them all up")


@pytest.mark.parametrize(
    ("racks", "tags"),
    [
        (("a", "b"), {"a": "a", "b": "b"}),
        (("us-east-1a", "us-east-1b"), {"us-east-1a": "a", "us-east-1b": "b"}),
        (("eu-1a", "us-1a"), {"eu-1a": "u-1a", "us-1a": "s-1a"}),
        (("1", "2"), {"1": ":1", "2": ":2"}),
        (("", "a"), {"": "", "a": "a"}),
        ((), {}),
    ],
)
def test_short_names_of_racks(racks: tuple[str, ...], tags: dict[str, str]) -> None:
    assert rack_tags(racks) == tags


def test_numbers_and_durations_are_short() -> None:
    values = {0: "0", 3.04: "3.0", 12.4: "12", 9999: "9999", 10000: "10.0k", 123_456: "123k", 2.5e6: "2.5M"}
    assert {value: number(value) for value in values} == values
    assert number(None) == "?"
    assert [duration(value_s) for value_s in (0.2, 99, 150, 7200, 400_000, None)] == [
        "0s",
        "99s",
        "2m",
        "2h",
        "5d",
        "?",
    ]


@pytest.mark.parametrize("width", [80, 160])
def test_names_are_shown_literally(width: int) -> None:
    unusual = "[/x]\x1b[2J‮\n"
    observed = at(11, lost=True)
    observed = replace(
        observed,
        cluster=unusual,
        brokers=tuple(replace(broker, rack=f"{broker.rack}{unusual}") for broker in observed.brokers),
        partitions=tuple(replace(partition, topic=f"{unusual}{partition.topic}") for partition in observed.partitions),
        faults=(FaultObservation("kill-rack", unusual, unusual, "proved", True, 1, 1),),
        problems=(unusual,),
    )
    text = "\n".join(rendered_lines(take_snapshot(observed), width, 60))
    assert all(c.isprintable() for c in text.replace("\n", ""))
    assert r"[/x]\x1b[2J\u202e\n" in text
