"""Rendering of a snapshot with rich. Pure functions; every state has a letter or text in addition to its colour."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import Literal

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pyhooks.core.terminal import visible
from pyhooks.watch.states import LEVELS, BrokerSummary, FaultDisplay, Level, PartitionSummary, Snapshot

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
BROKER_STYLES = {
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
    return _Frame(snapshot, width, height).render()


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
    for limit, divisor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            scaled = value / divisor
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


def _shortened(name: str) -> str:
    return visible(name, length_max=NAME_SHOWN)


def _level_counts(partitions: Iterable[PartitionSummary]) -> Text:
    counts = Counter(partition.level for partition in partitions)
    parts = [Text(f"{counts[level]} {LEVEL_TEXTS[level]}", LEVEL_STYLES[level]) for level in LEVELS if counts[level]]
    return Text(", ").join(parts) if parts else Text("no partitions", style="dim")


def _fault_text(fault: FaultDisplay, *, details: bool = True) -> str:
    """Return kind and state of a fault; with ``details`` also its target and duration."""
    target = f" {_shortened(fault.target)}" if fault.target and details else ""
    state = "" if fault.state == "active" else f" {fault.state.upper()}"
    return f"{_shortened(fault.op)}{target}{state}{f' {duration(fault.for_s)}' if details else ''}"


def _state_counts(brokers: Iterable[BrokerSummary]) -> str:
    counts = Counter[str](broker.state for broker in brokers)
    return ", ".join(f"{counts[state]} {state}" for state in BROKER_STYLES if counts[state])


def _fraction(value: int | None, required: int | None) -> Text:
    text = f"{'?' if value is None else value}/{'-' if required is None else required}"
    if value is None:
        return Text(text, style="bold magenta")
    if required is None:
        return Text(text, style="dim")
    return Text(text, style="bold red" if value < required else "green")


def _outcomes(partition: PartitionSummary) -> Text:
    """Return produce attempts per second as seen by clients; ``Σ`` if they include attempts of unknown partition."""
    produce = partition.produce
    if produce is None:
        return Text("?", style="magenta")
    rates = (produce.ok_per_s, produce.rejected_per_s, produce.unknown_per_s)
    if not any(rates):
        return Text("-", style="dim")
    styles = ("green", "bold red", "bold yellow")
    cells = [Text(number(rate), style if rate else "dim") for rate, style in zip(rates, styles, strict=True)]
    return Text("Σ" if produce.whole_topic else "").append_text(Text("/", style="dim").join(cells))


@dataclass(frozen=True)
class _Frame:
    """One frame of the view; ``render`` documents the attributes."""

    snapshot: Snapshot
    width: int
    height: int | None

    @property
    def wide(self) -> bool:
        return self.width >= WIDE

    @cached_property
    def tags(self) -> dict[str, str]:
        return rack_tags(self.snapshot.racks)

    @cached_property
    def rack_styles(self) -> dict[str | None, str]:
        return dict(zip(self.snapshot.racks, cycle(RACK_STYLES)))

    @cached_property
    def racks(self) -> dict[int, str | None]:
        return {broker.id: broker.rack for broker in self.snapshot.brokers}

    def render(self) -> RenderableType:
        snapshot = self.snapshot
        header = [self._title(), *self._fault_line()]
        boxes, box_lines = self._racks()
        metrics = self._gate()
        problems = [Text(f"? {visible(problem)}", style="magenta") for problem in snapshot.observation.problems]
        if len(problems) > PROBLEMS_SHOWN_MAX and self.height is not None:
            more = len(problems) - PROBLEMS_SHOWN_MAX
            problems = problems[:PROBLEMS_SHOWN_MAX]
            problems[-1].append(f"  (+{more} more)")
        # the last line is the head of the table of partitions
        fixed = len(header) + box_lines + len(metrics) + len(problems) + 1
        shown, rest = snapshot.partitions, []
        if self.height is not None and fixed + len(shown) > self.height:
            shown = shown[: max(0, self.height - fixed - 1)]
            hidden = snapshot.partitions[len(shown) :]
            rest = [Text(f"  + {len(hidden)} more: ", style="dim").append_text(_level_counts(hidden))]
        for line in (*header, *metrics, *rest, *problems):
            line.truncate(self.width, overflow="ellipsis")
        return Group(*header, *boxes, *metrics, self._partitions(shown), *rest, *problems)

    def _title(self) -> Text:
        observation = self.snapshot.observation
        clock = time.strftime("%H:%M:%S", time.localtime(observation.wall_ms / 1000))
        title = Text(f"{visible(observation.cluster)}  {clock}  ", style="bold")
        return title.append_text(_level_counts(self.snapshot.partitions))

    def _fault_line(self) -> list[Text]:
        faults = [f"{_fault_text(fault)} (rack {_shortened(fault.rack or '?')})" for fault in self.snapshot.faults]
        return [Text(f" FAULT {', '.join(faults)} ", style=FAULT_STYLE)] if faults else []

    def _unhealed(self, rack: str | None) -> list[FaultDisplay]:
        return [fault for fault in self.snapshot.faults if fault.rack == rack and fault.state != "healed"]

    def _racks(self) -> tuple[Sequence[RenderableType], int]:
        """Return the boxes of the racks, in as many rows as needed, and their height in lines."""
        by_rack: dict[str | None, list[BrokerSummary]] = {rack: [] for rack in self.snapshot.racks}
        for broker in self.snapshot.brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        if not by_rack:
            return [Text("no brokers are known", style="bold magenta")], 1
        per_row = max(1, min(len(by_rack), self.width // RACK_WIDTH_MIN))
        limit = None if self.height is None else max(1, min(BROKERS_SHOWN_MAX, (self.height - HEIGHT_MIN) // 2))
        most = max(map(len, by_rack.values()))
        box_lines = 2 + (most if limit is None else min(limit, most))
        if self.height is not None and box_lines * -(-len(by_rack) // per_row) > self.height // 2:
            lines = self._rack_lines(by_rack, self.height // 3)
            return lines, len(lines)
        rows, total = [], 0
        for start in range(0, len(by_rack), per_row):
            racks = list(by_rack)[start : start + per_row]
            bodies = [self._broker_lines(by_rack[rack], self.width // per_row - 4, limit) for rack in racks]
            box_height = 2 + max(map(len, bodies))
            grid = Table.grid(padding=0)
            for index in range(len(racks)):
                # the first columns take the remainder of the division
                grid.add_column(width=self.width // per_row + (index < self.width % per_row), no_wrap=True)
            grid.add_row(*(self._box(rack, body, box_height) for rack, body in zip(racks, bodies, strict=True)))
            rows.append(grid)
            total += box_height
        return rows, total

    def _rack_lines(self, by_rack: Mapping[str | None, Sequence[BrokerSummary]], limit: int) -> list[Text]:
        """Return one line per rack instead of a box, those with problems first; racks beyond ``limit`` are counted."""
        healthy = {
            rack: not self._unhealed(rack) and all(broker.state == "up" for broker in brokers)
            for rack, brokers in by_rack.items()
        }
        racks = sorted(by_rack, key=healthy.__getitem__)
        shown = racks if len(racks) <= limit else racks[: limit - 1]
        lines = []
        for rack in shown:
            name = "?" if rack is None else _shortened(rack)
            line = Text(f"rack {name}", style=f"bold {self.rack_styles.get(rack, '')}")
            for state, style in BROKER_STYLES.items():
                ids = [str(broker.id) for broker in by_rack[rack] if broker.state == state]
                if ids:
                    text = f"{len(ids)} up" if state == "up" else f"{state.upper()} {' '.join(ids)}"
                    line.append(f"  {text}", style=f"not bold {style}")
            for fault in self._unhealed(rack):
                line.append("  ").append(f" {_fault_text(fault)} ", style=FAULT_STYLE)
            line.truncate(self.width, overflow="ellipsis")
            lines.append(line)
        if hidden := racks[len(shown) :]:
            lines.append(Text(f"+ {len(hidden)} racks, {sum(map(healthy.get, hidden))} of them all up", style="dim"))  # type: ignore[arg-type]
        return lines

    def _box(self, rack: str | None, body: Sequence[Text], height: int) -> Panel:
        if rack:
            tag = self.tags[rack].lstrip(":")
            name = f"rack {_shortened(rack)}" + (f" ({_shortened(tag)})" if tag != rack else "")
        else:
            name = "rack ?" if rack is None else "no rack"
        title = Text(name, style=f"not dim bold {self.rack_styles.get(rack, 'magenta')}")
        faults = self._unhealed(rack)
        for fault in faults:
            # the duration is in the line of faults above
            title.append(" ").append(f" {_fault_text(fault, details=False)} ", style=FAULT_STYLE)
        border, style = ("red", BOX_STYLE_FAULT) if faults else ("dim", "")
        return Panel(Group(*body), title=title, title_align="left", border_style=border, style=style, height=height)

    def _broker_lines(self, brokers: Sequence[BrokerSummary], width: int, limit: int | None) -> list[Text]:
        """Return one line per broker; if there are too many, those not up come first and the rest is counted."""
        shown = list(brokers)
        id_width = 1 + max((len(str(broker.id)) for broker in brokers), default=1)
        if limit is not None and len(shown) > limit:
            shown = sorted(brokers, key=lambda broker: broker.state == "up")[: limit - 1]
        lines = []
        for broker in shown:
            line = Text(f"{broker.id:>{id_width}} ", style="bold")
            state = broker.state if broker.state == "up" else broker.state.upper()
            line.append(f"{state:<7}", style=BROKER_STYLES[broker.state])
            # most important first, as far as there is space
            parts = [
                (f" leads {number(broker.leads)}", ""),
                (f" in {number(broker.messages_in_per_s)}/s", "dim"),
            ]
            if broker.rack_check_failures_per_s:
                parts.insert(0, (f" gate {number(broker.rack_check_failures_per_s)}/s", "bold red"))
            for text, style in parts:
                if len(line) + len(text) <= width:
                    line.append(text, style=style)
            lines.append(line)
        if len(shown) < len(brokers):
            lines.append(Text(f"  + {_state_counts(broker for broker in brokers if broker not in shown)}", style="dim"))
        return lines

    def _gate(self) -> list[Text]:
        """Return lines with the gate's metrics by Kafka's names, and the brokers' produce errors if there are any."""
        gate, wide = self.snapshot.gate, self.wide
        line = Text()
        for name, short, value, unit in (
            ("RackCheckFailureRate", "RackCheckFail", gate.rack_check_failures_per_s, "/s"),
            ("UnderMinRackIsr", "UnderMinRack", gate.under_min_rack_isr, ""),
            ("AtMinRackIsr", "AtMinRack", gate.at_min_rack_isr, ""),
            ("UnderMinIsr", "UnderMinIsr", gate.under_min_isr, ""),
            ("UnderReplicated", "URP", gate.under_replicated, ""),
            ("Offline", "Off", gate.offline, ""),
        ):
            line.append(f"{name if wide else short} ", style="dim")
            line.append(f"{number(value)}{unit}", style="bold red" if value and short != "AtMinRack" else "bold")
            line.append("  " if wide else " ")
        brokers = len(self.snapshot.brokers)
        if gate.brokers_known < brokers:
            line.append(f"of {gate.brokers_known}/{brokers}{' brokers' if wide else ''}", style="magenta")
        errors = "  ".join(f"{_shortened(name)} {number(rate)}/s" for name, rate in gate.produce_errors_per_s.items())
        return [line, *([Text.assemble(("produce errors  ", "dim"), (errors, "red"))] if errors else [])]

    def _partitions(self, partitions: Sequence[PartitionSummary]) -> Table:
        wide, has_history = self.wide, self.snapshot.observation.produced is not None
        replicas = [self._replicas(partition) for partition in partitions]
        replicas_width = max(8, min(self.width // 4, max(map(len, replicas), default=0)))
        longest_name = max((len(_partition_name(partition)) for partition in partitions), default=0)
        name_width = max(9, min(longest_name, self.width // 4 if wide else 12))
        id_width = max((len(str(broker.id)) for broker in self.snapshot.brokers), default=1)
        columns = [
            ("", 1),
            ("partition", name_width),
            ("L", id_width),
            ("replicas (out)" if replicas_width > 13 else "replicas", replicas_width),
            *(
                (("racks/R", 7), ("ISR/M", 5), ("high watermark", 24))
                if wide
                else (("R", 3), ("M", 3), ("high wm", 11))
            ),
            *([("ok/rejected/? per s", 19) if wide else ("ok/no/?", 7)] if has_history else []),
            *([("failed/s", 8) if wide else ("fail/s", 6)] if wide or not has_history else []),
        ]
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", width=self.width)
        for title, width in columns:
            justify: Literal["left", "right"] = "right" if title in ("L", "failed/s", "fail/s") else "left"
            table.add_column(title, width=width, justify=justify, no_wrap=True)
        table.add_column("verdict", ratio=1, no_wrap=True, overflow="ellipsis")
        for partition, replica_text in zip(partitions, replicas, strict=True):
            observed, style, failed = partition.observed, LEVEL_STYLES[partition.level], partition.failed_produce_per_s
            replica_text.truncate(replicas_width, overflow="ellipsis")
            name = _partition_name(partition, name_width)
            cells = [
                Text(MARKS[partition.level], style=style),
                Text(name, style="dim" if observed.topic.startswith("__") else ""),
                self._leader(observed.leader),
                replica_text,
                _fraction(partition.isr_racks, partition.min_racks),
                _fraction(len(observed.isr) if observed.isr is not None else None, partition.min_replicas),
                self._watermark(partition),
            ]
            if has_history:
                cells.append(_outcomes(partition))
            if wide or not has_history:
                cells.append(Text(number(failed), style="red" if failed else "dim"))
            table.add_row(*cells, Text(visible(partition.verdict), style=style))
        return table

    def _leader(self, leader: int | None) -> Text:
        if leader is None:
            return Text("?", style="bold magenta")
        if leader < 0:
            return Text("-", style="bold red")
        return Text(str(leader), style=self.rack_styles.get(self.racks.get(leader), ""))

    def _replicas(self, partition: PartitionSummary) -> Text:
        """Return the replicas: ISR members in their rack's colour, the others dim and in parentheses."""
        isr, parts = partition.observed.isr, []
        for replica in partition.observed.replicas:
            rack = self.racks.get(replica)
            name = f"{replica}{'?' if rack is None else _shortened(self.tags.get(rack, '?'))}"
            if isr is None:
                parts.append(Text(f"{name}?", style="magenta"))
            elif replica in isr:
                parts.append(Text(name, style=f"bold {self.rack_styles.get(rack, '')}"))
            else:
                parts.append(Text(f"({name})", style="dim"))
        return Text(" ").join(parts)

    def _watermark(self, partition: PartitionSummary) -> Text:
        """Return the offset, and an arrow with its rate, or a square or dot with the time since it last moved."""
        offset, watermark, wide = partition.observed.high_watermark, partition.watermark, self.wide
        line = Text("?" if offset is None else str(offset) if offset < 1_000_000 else number(offset)).append(" ")
        still, rate = duration(watermark.still_s), f"{number(watermark.per_s)}/s"
        texts = {
            "moving": ("▲ " if wide else "▲", rate, "green"),
            "back": ("▼ went " if wide else "▼ ", "back", "bold red"),
            "frozen": ("■ frozen " if wide else "■", still, "bold red"),
            "still": ("· still " if wide else "·", still, "dim"),
        }
        if watermark.motion in texts:
            mark, value, style = texts[watermark.motion]
            line.append(f"{mark}{value}", style=style)
        elif offset is None and watermark.offset is not None:
            line.append(f"was {watermark.offset}", style="dim")
        if watermark.motion == "frozen" and wide and (waiting := (partition.log_end or 0) - (offset or 0)) > 0:
            line.append(f" +{number(waiting)}", style="red")
        return line


def _partition_name(partition: PartitionSummary, width: int | None = None) -> str:
    """Return the partition's name, in at most ``width`` columns; its number is never cut."""
    number_text = f"-{partition.observed.partition}"
    name = f"{visible(partition.observed.topic)}{number_text}"
    if width is None or len(name) <= width:
        return name
    return f"{name[: max(0, width - len(number_text) - 1)]}…{number_text}"
