"""Rendering of a snapshot with rich. Pure functions; every state has a letter or text in addition to its colour."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pyhooks.core.terminal import visible
from pyhooks.watch.partition_status import Level
from pyhooks.watch.states import LEVELS, BrokerSummary, FaultDisplay, PartitionSummary, Snapshot

# red, green and yellow stand for levels, so racks have other colours
RACK_STYLES = ("cyan", "magenta", "bright_blue", "bright_white", "bright_cyan", "bright_magenta")
LEVEL_STYLES: Mapping[Level, str] = {
    "down": "bold red",
    "unknown": "bold magenta",
    "risk": "bold yellow",
    "warn": "yellow",
    "ok": "green",
}
MARKS: Mapping[Level, str] = {"down": "!", "unknown": "?", "risk": "~", "warn": "-", "ok": " "}
LEVEL_TEXTS: Mapping[Level, str] = {
    "down": "not writable",
    "unknown": "unknown",
    "risk": "at risk",
    "warn": "degraded",
    "ok": "ok",
}
STATE_STYLES = {
    "up": "green",
    "mute": "bold yellow",
    "fenced": "bold yellow",
    "paused": "bold yellow",
    "unknown": "bold magenta",
    "gone": "bold red",
    "down": "bold red",
}
FAULT_STYLE = "not dim bold bright_white on red"
BOX_STYLE_FAULT = "on grey19"
WIDE = 110
RACK_WIDTH_MIN = 24
BROKERS_SHOWN_MAX = 6
PROBLEMS_SHOWN_MAX = 2
HEIGHT_MIN = 12
NAME_SHOWN = 100  # maximum characters of an external name


def render(snapshot: Snapshot, width: int, height: int | None) -> RenderableType:
    """Render the whole view.

    Args:
        snapshot: the snapshot.
        width: width in columns.
        height: maximum height in lines, kept if it is at least 12; None for no limit.
    """
    tags = rack_tags(snapshot.racks)
    styles = dict(zip(snapshot.racks, cycle(RACK_STYLES)))
    top: list[RenderableType] = [_title(snapshot, width)]
    if snapshot.faults:
        top.append(_faults(snapshot.faults, width))
    boxes, box_lines = _racks(snapshot, styles, tags, width, height)
    top += boxes
    top += _gate(snapshot, width)
    problems = [Text(f"? {visible(text)}", style="magenta") for text in snapshot.observation.problems]
    if len(problems) > PROBLEMS_SHOWN_MAX and height is not None:
        more = len(problems) - PROBLEMS_SHOWN_MAX
        problems = problems[:PROBLEMS_SHOWN_MAX]
        problems[-1].append(f"  (+{more} more)")
    for text in problems:
        text.truncate(width, overflow="ellipsis")
    fixed = len(top) - len(boxes) + box_lines + len(problems) + 1
    shown, rest = snapshot.partitions, Text()
    if height is not None and fixed + len(shown) > height:
        shown = shown[: max(0, height - fixed - 1)]
        rest = _rest(snapshot.partitions[len(shown) :], width)
    lines: list[RenderableType] = [*top, _partitions(shown, snapshot, styles, tags, width)]
    return Group(*lines, *([rest] if rest else []), *problems)


def rack_tags(racks: Sequence[str]) -> dict[str, str]:
    """Return short names of racks: the shortest suffixes that distinguish them, such as ``a`` for ``us-east-1a``."""
    for size in range(1, max(map(len, racks), default=0) + 1):
        tags = {rack: rack[-size:] for rack in racks}
        # the suffix follows a broker's number, so it must not begin with a digit
        if len(set(tags.values())) == len(racks) and not any(tag[:1].isdigit() for tag in tags.values()):
            return tags
    return {rack: f":{rack}" if rack else "" for rack in racks}


def number(value: float | None) -> str:
    """Format a rate or count in at most five characters; ``?`` if unknown."""
    if value is None:
        return "?"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def duration(seconds: float | None) -> str:
    """Format a duration in at most four characters; ``?`` if unknown."""
    if seconds is None:
        return "?"
    for limit, divisor, unit in ((100.0, 1, "s"), (6000.0, 60, "m"), (360_000.0, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def _title(snapshot: Snapshot, width: int) -> Text:
    observed = snapshot.observation
    clock = time.strftime("%H:%M:%S", time.localtime(observed.wall_ms / 1000))
    line = Text(f"{visible(observed.cluster)}  {clock}  ", style="bold")
    line.append_text(_levels(snapshot.partitions))
    line.truncate(width, overflow="ellipsis")
    return line


def _levels(partitions: Iterable[PartitionSummary]) -> Text:
    found = [one.level for one in partitions]
    parts = [
        Text(f"{found.count(level)} {LEVEL_TEXTS[level]}", style=LEVEL_STYLES[level])
        for level in LEVELS
        if level in found
    ]
    return Text(", ", style="").join(parts) if parts else Text("no partitions", style="dim")


def _fault_text(one: FaultDisplay) -> str:
    where = f" {_shortened(one.target)}" if one.target else ""
    state = "" if one.state == "active" else f" {one.state.upper()}"
    return f"{_shortened(one.op)}{where}{state} {duration(one.for_s)}"


def _shortened(name: str) -> str:
    return visible(name, length_max=NAME_SHOWN)


def _faults(faults: Sequence[FaultDisplay], width: int) -> Text:
    words = ", ".join(f"{_fault_text(one)} (rack {_shortened(one.rack or '?')})" for one in faults)
    line = Text(f" FAULT {words} ", style=FAULT_STYLE)
    line.truncate(width, overflow="ellipsis")
    return line


def _racks(
    snapshot: Snapshot, styles: Mapping[str, str], tags: Mapping[str, str], width: int, height: int | None
) -> tuple[list[RenderableType], int]:
    """Return the boxes of the racks, in as many rows as needed, and their height in lines."""
    groups: dict[str | None, list[BrokerSummary]] = {rack: [] for rack in snapshot.racks}
    for one in snapshot.brokers:
        groups.setdefault(one.rack, []).append(one)
    if not groups:
        return [Text("no brokers are known", style="bold magenta")], 1
    per_row = max(1, min(len(groups), width // RACK_WIDTH_MIN))
    bound = None if height is None else max(1, min(BROKERS_SHOWN_MAX, (height - HEIGHT_MIN) // 2))
    items = list(groups.items())
    tallest = max(len(found) for found in groups.values())
    box_lines = 2 + (tallest if bound is None else min(bound, tallest))
    if height is not None and box_lines * -(-len(items) // per_row) > height // 2:
        compact = _compact(items, snapshot, styles, width, height // 3)
        return list(compact), len(compact)
    rows: list[RenderableType] = []
    lines = 0
    for start in range(0, len(items), per_row):
        row = items[start : start + per_row]
        shown = [_brokers(found, width // per_row - 4, bound) for _, found in row]
        box_height = 2 + max(len(one) for one in shown)
        grid = Table.grid(padding=0)
        for index in range(len(row)):
            # the first columns take the remainder of the division
            grid.add_column(width=width // per_row + (index < width % per_row), no_wrap=True)
        panels = []
        for (rack, _), body in zip(row, shown, strict=True):
            faults = [one for one in snapshot.faults if one.rack == rack and one.state != "healed"]
            panels.append(_box(rack, body, faults, styles, tags, box_height))
        grid.add_row(*panels)
        rows.append(grid)
        lines += box_height
    return rows, lines


def _compact(
    items: Sequence[tuple[str | None, Sequence[BrokerSummary]]],
    snapshot: Snapshot,
    styles: Mapping[str, str],
    width: int,
    bound: int,
) -> list[Text]:
    """Return one line per rack instead of a box, to leave space for partitions; racks beyond ``bound`` are counted."""

    def faults(rack: str | None) -> list[FaultDisplay]:
        return [one for one in snapshot.faults if one.rack == rack and one.state != "healed"]

    ill = [item for item in items if faults(item[0]) or any(one.state != "up" for one in item[1])]
    chosen = [*ill, *(item for item in items if item not in ill)]
    shown = chosen if len(chosen) <= bound else chosen[: bound - 1]
    lines = []
    for rack, brokers in shown:
        line = Text(f"rack {'?' if rack is None else _shortened(rack)}", style=f"bold {styles.get(rack or '', '')}")
        for state, style in STATE_STYLES.items():
            ids = [str(one.broker) for one in brokers if one.state == state]
            if ids:
                words = f"{len(ids)} up" if state == "up" else f"{state.upper()} {' '.join(ids)}"
                line.append(f"  {words}", style=f"not bold {style}")
        for one in faults(rack):
            line.append("  ")
            line.append(f" {_fault_text(one)} ", style=FAULT_STYLE)
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    if len(shown) < len(chosen):
        rest = chosen[len(shown) :]
        well = sum(item not in ill for item in rest)
        lines.append(Text(f"+ {len(rest)} racks, {well} of them all up", style="dim"))
    return lines


def _box(
    rack: str | None,
    body: Sequence[Text],
    faults: Sequence[FaultDisplay],
    styles: Mapping[str, str],
    tags: Mapping[str, str],
    height: int,
) -> Panel:
    name = Text()
    if rack is None:
        name.append("rack ?", style="not dim bold magenta")
    else:
        tag = tags[rack].lstrip(":")
        words = f"rack {_shortened(rack)}" if tag == rack else f"rack {_shortened(rack)} ({_shortened(tag)})"
        name.append(words if rack else "no rack", style=f"not dim bold {styles[rack]}")
    for one in faults:
        name.append(" ")
        # the duration is in the line of faults above
        name.append(
            f" {_shortened(one.op)}{'' if one.state == 'active' else f' {one.state.upper()}'} ", style=FAULT_STYLE
        )
    return Panel(
        Group(*body),
        title=name,
        title_align="left",
        border_style="red" if faults else "dim",
        style=BOX_STYLE_FAULT if faults else "",
        height=height,
    )


def _brokers(brokers: Sequence[BrokerSummary], width: int, bound: int | None) -> list[Text]:
    """Return one line per broker; if there are too many, those that are not up come first and the rest is counted."""
    shown = list(brokers)
    id_width = 1 + max((len(str(one.broker)) for one in brokers), default=1)
    if bound is not None and len(shown) > bound:
        shown = sorted(brokers, key=lambda one: one.state == "up")[: bound - 1]
    lines = [_broker(one, width, id_width) for one in shown]
    if len(shown) < len(brokers):
        rest = [one.state for one in brokers if one not in shown]
        words = ", ".join(f"{rest.count(state)} {state}" for state in STATE_STYLES if state in rest)
        lines.append(Text(f"  + {words}", style="dim"))
    return lines


def _broker(one: BrokerSummary, width: int, id_width: int) -> Text:
    word = one.state if one.state == "up" else one.state.upper()
    line = Text(f"{one.broker:>{id_width}} ", style="bold")
    line.append(f"{word:<7}", style=STATE_STYLES[one.state])
    # most important first, as far as there is space
    parts = [(f" leads {number(one.leads)}", "")]
    if one.rack_failures_per_s:
        parts.insert(0, (f" gate {number(one.rack_failures_per_s)}/s", "bold red"))
    parts.append((f" in {number(one.messages_in_per_s)}/s", "dim"))
    for text, style in parts:
        if len(line) + len(text) <= width:
            line.append(text, style=style)
    return line


def _gate(snapshot: Snapshot, width: int) -> list[Text]:
    """Return lines with the gate's metrics by Kafka's names, and the produce errors of all brokers if there are any."""
    gate = snapshot.gate
    wide = width >= WIDE
    parts = [
        ("RackCheckFailureRate" if wide else "RackCheckFail", gate.rack_failures_per_s, "/s"),
        ("UnderMinRackIsr" if wide else "UnderMinRack", gate.under_min_racks, ""),
        ("AtMinRackIsr" if wide else "AtMinRack", gate.at_min_racks, ""),
        ("UnderMinIsr", gate.under_min_replicas, ""),
        ("UnderReplicated" if wide else "URP", gate.under_replicated, ""),
        ("Offline" if wide else "Off", gate.offline, ""),
    ]
    line = Text()
    for name, value, unit in parts:
        bad = bool(value) and name != "AtMinRackIsr" and name != "AtMinRack"
        line.append(f"{name} ", style="dim")
        line.append(f"{number(value)}{unit}", style="bold red" if bad else "bold")
        line.append("  " if wide else " ")
    brokers = len(snapshot.brokers)
    if gate.nodes_known < brokers:
        line.append(f"of {gate.nodes_known}/{brokers}{' brokers' if wide else ''}", style="magenta")
    lines = [line]
    if gate.produce_errors_per_s:
        words = "  ".join(f"{_shortened(name)} {number(rate)}/s" for name, rate in gate.produce_errors_per_s.items())
        lines.append(Text.assemble(("produce errors  ", "dim"), (words, "red")))
    for one in lines:
        one.truncate(width, overflow="ellipsis")
    return lines


def _rest(partitions: Sequence[PartitionSummary], width: int) -> Text:
    line = Text(f"  + {len(partitions)} more: ", style="dim")
    line.append_text(_levels(partitions))
    line.truncate(width, overflow="ellipsis")
    return line


def _partitions(
    partitions: Sequence[PartitionSummary],
    snapshot: Snapshot,
    styles: Mapping[str, str],
    tags: Mapping[str, str],
    width: int,
) -> Table:
    wide = width >= WIDE
    racks = {one.broker: one.rack for one in snapshot.brokers}
    clients = snapshot.observation.produced is not None
    replicas = [_replicas(one, racks, styles, tags) for one in partitions]
    replicas_width = max(8, min(width // 4, max((len(text) for text in replicas), default=0)))
    name_width = max(9, min(max((len(_name(one)) for one in partitions), default=0), width // 4 if wide else 12))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", width=width)
    table.add_column("", width=1, no_wrap=True)
    table.add_column("partition", width=name_width, no_wrap=True)
    id_width = max((len(str(one.broker)) for one in snapshot.brokers), default=1)
    table.add_column("L", width=id_width, justify="right", no_wrap=True)
    table.add_column("replicas (out)" if replicas_width > 13 else "replicas", width=replicas_width, no_wrap=True)
    table.add_column("racks/R" if wide else "R", width=7 if wide else 3, no_wrap=True)
    table.add_column("ISR/M" if wide else "M", width=5 if wide else 3, no_wrap=True)
    table.add_column("high watermark" if wide else "high wm", width=24 if wide else 11, no_wrap=True)
    heads = ("ok/refused/? per s", "failed/s") if wide else ("ok/no/?", "fail/s")
    if clients:
        table.add_column(heads[0], width=18 if wide else 7, no_wrap=True)
    if wide or not clients:
        table.add_column(heads[1], width=8 if wide else 6, justify="right", no_wrap=True)
    table.add_column("verdict", ratio=1, no_wrap=True, overflow="ellipsis")
    for one, shown in zip(partitions, replicas, strict=True):
        style = LEVEL_STYLES[one.level]
        shown.truncate(replicas_width, overflow="ellipsis")
        cells = [
            Text(MARKS[one.level], style=style),
            Text(_elided(one, name_width), style="dim" if one.observed.topic.startswith("__") else ""),
            _leader(one, racks, styles),
            shown,
            _compared(one.isr_racks, one.min_racks),
            _compared(len(one.observed.isr) if one.observed.isr is not None else None, one.min_replicas),
            _watermark(one, wide=wide),
        ]
        if clients:
            cells.append(_outcomes(one))
        if wide or not clients:
            cells.append(Text(number(one.failed_per_s), style="red" if one.failed_per_s else "dim"))
        table.add_row(*cells, Text(visible(one.verdict), style=style))
    return table


def _name(one: PartitionSummary) -> str:
    return f"{visible(one.observed.topic)}-{one.observed.partition}"


def _elided(one: PartitionSummary, width: int) -> str:
    """Return the partition's name in ``width`` columns; its number is never cut."""
    name, tail = _name(one), f"-{one.observed.partition}"
    return name if len(name) <= width else f"{name[: max(0, width - len(tail) - 1)]}…{tail}"


def _leader(one: PartitionSummary, racks: Mapping[int, str | None], styles: Mapping[str, str]) -> Text:
    if one.observed.leader is None:
        return Text("?", style="bold magenta")
    if one.observed.leader < 0:
        return Text("-", style="bold red")
    return Text(str(one.observed.leader), style=styles.get(racks.get(one.observed.leader) or "", ""))


def _replicas(
    one: PartitionSummary, racks: Mapping[int, str | None], styles: Mapping[str, str], tags: Mapping[str, str]
) -> Text:
    """Return the replicas: ISR members in their rack's colour, the others dim and in parentheses."""
    words = []
    for replica in one.observed.replicas:
        rack = racks.get(replica)
        word = f"{replica}{_shortened(tags.get(rack, '?')) if rack is not None else '?'}"
        if one.observed.isr is None:
            words.append(Text(f"{word}?", style="magenta"))
        elif replica in one.observed.isr:
            words.append(Text(word, style=f"bold {styles.get(rack or '', '')}"))
        else:
            words.append(Text(f"({word})", style="dim"))
    return Text(" ").join(words)


def _compared(value: int | None, wanted: int | None) -> Text:
    text = f"{'?' if value is None else value}/{'-' if wanted is None else wanted}"
    if value is None:
        return Text(text, style="bold magenta")
    if wanted is None:
        return Text(text, style="dim")
    return Text(text, style="bold red" if value < wanted else "green")


def _watermark(one: PartitionSummary, *, wide: bool) -> Text:
    """Return the offset, and an arrow with its rate, or a square or dot with the time since it last moved."""
    offset = one.observed.high_watermark
    line = Text("?" if offset is None else str(offset) if offset < 1_000_000 else number(offset))
    line.append(" ")
    if one.motion == "moving":
        line.append(f"▲ {number(one.hw_per_s)}/s" if wide else f"▲{number(one.hw_per_s)}/s", style="green")
    elif one.motion == "back":
        line.append("▼ went back" if wide else "▼ back", style="bold red")
    elif one.motion == "frozen":
        line.append(f"■ frozen {duration(one.still_s)}" if wide else f"■{duration(one.still_s)}", style="bold red")
        waiting = one.log_end - offset if one.log_end is not None and offset is not None else 0
        if wide and waiting > 0:
            line.append(f" +{number(waiting)}", style="red")
    elif one.motion == "still":
        line.append(f"· still {duration(one.still_s)}" if wide else f"·{duration(one.still_s)}", style="dim")
    elif offset is None and one.last_hw is not None:
        line.append(f"was {one.last_hw}", style="dim")
    return line


def _outcomes(one: PartitionSummary) -> Text:
    """Return produce attempts per second as seen by clients; ``Σ`` if they include attempts of unknown partition."""
    found = one.outcomes
    if found is None:
        return Text("?", style="magenta")
    values = (found.ok_per_s, found.refused_per_s, found.unknown_per_s)
    if not any(values):
        return Text("-", style="dim")
    line = Text("Σ" if found.whole_topic else "")
    for index, (value, style) in enumerate(zip(values, ("green", "bold red", "bold yellow"), strict=True)):
        line.append("/" if index else "", style="dim")
        line.append(number(value), style=style if value else "dim")
    return line
