"""Report of ``rackgate check`` as tables and sentences, and as JSON.

The JSON is one object. Keys are stable: later versions may add some.

- ``cluster``: ``{id, racks, brokers_without_rack, enforced}``. ``racks`` maps rack names to broker ids. ``enforced`` is
  true if an R above 1 is in force.
- ``at_risk``: true if the exit status is 1.
- ``brokers``: a list of ``{id, rack, address, fenced, answered, because, enforces, knows, produce_version,
  feature_supported, features, min_insync_replicas, min_insync_racks, min_insync_racks_property, refused, invalid}``.
  Values that a broker did not report are null. ``min_insync_racks_property`` is the value in the broker's own
  properties, which has no effect at level 1. ``refused`` maps topics to the reason why the broker did not report their
  settings. ``invalid`` maps topics to invalid values by key. In both, the empty name stands for the broker's own
  settings.
- ``topics``: a list of ``{name, internal, unanswered, min_insync_replicas, min_insync_racks, min_insync_racks_observe,
  partitions}``; a setting is ``{value, source}``. ``min_insync_racks_observe`` is null unless it is set. ``unanswered``
  is the reason why the partitions are unknown, or null.
- ``partitions`` of a topic: a list of ``{partition, leader, replicas, isr, elr, adding, removing, racks, isr_racks,
  needs, writable, stopped_by, stopped_when_whole, lone_racks, lone_now, reachable}``. ``needs`` is ``{replicas,
  racks}``: the effective M and R. ``stopped_by`` and ``stopped_when_whole`` are ``{brokers, racks}``. The keys from
  ``racks`` on are those of ``pyhooks.placement.gate_forecast.PartitionForecast``; they are missing if no broker
  reported the topic's settings.
- ``findings``: a list of ``{severity, code, topic, partitions, means, remedy}``, worst first; ``topic`` is null in a
  finding about the cluster.

The JSON is ASCII and has names and values unchanged. The tables escape non-printable characters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pyhooks.core.terminal import plain, visible
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.kafka.gate import NO_RACK
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.findings import SEVERITIES, Finding, Severity, TopicReport
from pyhooks.placement.gate_forecast import Broker, ConfigValue, Need, PartitionForecast, rack_name

STYLES: dict[Severity, str] = {"error": "bold red", "unknown": "magenta", "risk": "yellow", "notice": "dim"}
TOPICS_SHOWN = 40
BROKERS_SHOWN = 40
FINDINGS_SHOWN = 60
NAME_SHOWN = 100  # characters of a name in a table
TEXT_SHOWN = 1000  # characters of a finding's sentence


@dataclass(frozen=True)
class CheckReport:
    """Result of a check.

    Attributes:
        seen: the cluster.
        topics: reports of the selected topics.
        findings: findings about these topics and the cluster, worst first.
        at_risk: whether the exit status is 1.
    """

    seen: ClusterObservation
    topics: tuple[TopicReport, ...]
    findings: tuple[Finding, ...]
    at_risk: bool


def as_json(report: CheckReport) -> str:
    """Return the report as JSON; see the module's docstring."""
    return "".join(json_parts(report))


def json_parts(report: CheckReport) -> Iterable[str]:
    """Yield the JSON in parts, mostly one line each, so that a large report is never in memory as a whole."""
    cluster, enforcement = report.seen.cluster, report.seen.enforcement
    racks: dict[str, list[int]] = {}
    for broker in sorted(cluster.brokers.values(), key=lambda broker: broker.broker_id):
        if broker.rack != NO_RACK:
            racks.setdefault(broker.rack, []).append(broker.broker_id)
    about = {
        "id": cluster.cluster_id,
        "racks": racks,
        "brokers_without_rack": sorted(b.broker_id for b in cluster.brokers.values() if b.rack == NO_RACK),
        "enforced": enforcement.enforced,
    }
    yield f'{{\n "cluster": {json.dumps(about)},\n "at_risk": {json.dumps(report.at_risk)}'
    lists: tuple[tuple[str, Iterable[dict[str, Any]]], ...] = (
        ("brokers", (_broker_json(report.seen, broker) for _, broker in sorted(cluster.brokers.items()))),
        ("topics", map(_topic_json, report.topics)),
        ("findings", ({**vars(finding), "topic": finding.topic or None} for finding in report.findings)),
    )
    for name, rows in lists:
        yield f',\n "{name}": ['
        for position, row in enumerate(rows):
            # without indentation json uses its C encoder, which is ten times as fast
            yield f"{',' if position else ''}\n  {json.dumps(row)}"
        yield "\n ]"
    yield "\n}"


def _setting(setting: ConfigValue | None) -> dict[str, Any] | None:
    return None if setting is None else asdict(setting)


def _broker_json(seen: ClusterObservation, broker: Broker) -> dict[str, Any]:
    answer = seen.enforcement.answers.get(broker.broker_id)
    default = answer.default if answer else None
    return {
        "id": broker.broker_id,
        "rack": broker.rack or None,
        "address": broker.address,
        "fenced": broker.fenced,
        "answered": answer is not None,
        "because": seen.enforcement.silent.get(broker.broker_id),
        "enforces": seen.enforcement.describe(broker),
        "knows": answer.knows if answer else None,
        "produce_version": answer.produce if answer else None,
        "feature_supported": answer.supports if answer else None,
        "features": {name: answer.levels.get(name, 0) for name in (RACKS_FEATURE, ELR_FEATURE)} if answer else None,
        "min_insync_replicas": _setting(default.replicas if default else None),
        "min_insync_racks": _setting(default.racks if default else None),
        "min_insync_racks_property": answer.property_racks if answer else None,
        "refused": dict(answer.refused) if answer else None,
        "invalid": {name: dict(values) for name, values in answer.invalid.items()} if answer else None,
    }


def _topic_json(report: TopicReport) -> dict[str, Any]:
    topic = report.topic
    states = {state.partition.number: state for state in report.states}
    partitions = []
    for partition in topic.partitions:
        found: dict[str, Any] = {
            "partition": partition.number,
            "leader": partition.leader,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "elr": partition.elr,
            "adding": partition.adding,
            "removing": partition.removing,
        }
        if partition.number in states:
            state = states[partition.number]
            found |= {
                "racks": state.racks,
                "isr_racks": state.isr_racks,
                "needs": {"replicas": state.now.need_replicas, "racks": state.now.need_racks},
                "writable": state.writable,
                "stopped_by": vars(state.stopped_by),
                "stopped_when_whole": vars(state.stopped_when_whole),
                "lone_racks": state.lone_racks,
                "lone_now": state.lone_now,
                "reachable": state.reachable,
            }
        partitions.append(found)
    return {
        "name": topic.name,
        "internal": topic.internal,
        "unanswered": topic.unanswered or None,
        "min_insync_replicas": _setting(topic.need.replicas if topic.need else None),
        "min_insync_racks": _setting(topic.need.racks if topic.need else None),
        "min_insync_racks_observe": _setting(topic.need.observed if topic.need else None),
        "partitions": partitions,
    }


def print_report(console: Console, report: CheckReport, *, strict: bool) -> None:
    """Print tables and findings, formatted for 100 columns; notices only with ``strict``."""
    for part in _parts(report, strict=strict):
        console.print(part)


def _parts(report: CheckReport, *, strict: bool) -> Iterable[RenderableType]:
    worst = {finding.topic: finding.severity for finding in reversed(report.findings)}
    ranked = sorted(report.topics, key=lambda r: SEVERITIES.index(worst.get(r.topic.name, "notice")))
    if ranked:
        yield _topic_table(ranked[:TOPICS_SHOWN], worst)
    if len(ranked) > TOPICS_SHOWN:
        yield Text(f"and {len(ranked) - TOPICS_SHOWN} more topics: see --json, or choose with --topic", style="dim")
    if any(report.topic.internal for report in ranked[:TOPICS_SHOWN]):
        yield Text("* an internal topic of Kafka", style="dim")
    brokers = _brokers_shown(report.seen)
    yield _broker_table(report.seen, brokers)
    if more := len(report.seen.cluster.brokers) - len(brokers):
        yield Text(f"and {more} more brokers: see --json", style="dim")
    shown = [finding for finding in report.findings if strict or finding.severity != "notice"]
    if shown:
        sizes = {one.topic.name: len(one.topic.partitions) for one in report.topics}
        yield _finding_table(shown[:FINDINGS_SHOWN], sizes)
    if len(shown) > FINDINGS_SHOWN:
        yield Text(f"and {len(shown) - FINDINGS_SHOWN} more findings: see --json, or choose with --topic", style="dim")
    yield _summary(report, strict=strict)


def _summary(report: CheckReport, *, strict: bool) -> RenderableType:
    counts = {severity: sum(f.severity == severity for f in report.findings) for severity in SEVERITIES}
    partitions = sum(len(topic.topic.partitions) for topic in report.topics)
    checked = f"{_count(len(report.topics), 'topic')}, {_count(partitions, 'partition')}"
    listed = ", ".join(_count(counts[s], s) for s in SEVERITIES if counts[s] and (strict or s != "notice"))
    verdict = f"[bold red]at risk[/]: {listed}" if report.at_risk else "[bold green]nothing at risk[/]"
    hidden = ""
    if counts["notice"] and not strict:
        notices = _count(counts["notice"], "notice")
        hidden = f"\n[dim]{notices} not shown: consequences of the settings; see them with --strict[/]"
    return Text.from_markup(f"\n{checked}: {verdict}{hidden}")


def _count(number: int, what: str) -> str:
    plural = what if number == 1 or what == "unknown" else f"{what}s"
    return f"{number} {plural}"


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )


def _topic_table(reports: Sequence[TopicReport], worst: dict[str, Severity]) -> RenderableType:
    table = _table("effect of the settings on the placements")
    table.add_column("topic", overflow="fold", min_width=16, max_width=34)
    for name in ("parts", "RF"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("M", "R"):
        table.add_column(name, max_width=9)
    table.add_column("racks", overflow="fold", max_width=12)
    table.add_column("acks=all\nnow", min_width=8)
    table.add_column("rack loss\nstops it", min_width=9, max_width=11)
    table.add_column("one rack\nsuffices", min_width=9, max_width=11)
    for report in reports:
        topic = report.topic
        style = STYLES[worst[topic.name]] if worst.get(topic.name, "notice") != "notice" else ""
        states = report.states
        table.add_row(
            plain(topic.name, style, length_max=NAME_SHOWN).append("*" * topic.internal),
            str(len(topic.partitions)),
            _range(len(partition.target) for partition in topic.partitions),
            _needs(topic.need, "replicas", states),
            _needs(topic.need, "racks", states),
            Text(_racks(states)),
            _writable(states, len(topic.partitions)),
            _losses(report),
            _alone(states),
        )
    return table


def _range(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return "-" if not found else str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _needs(need: Need | None, what: str, states: Sequence[PartitionForecast]) -> Text:
    if need is None:
        return Text("?", style=STYLES["unknown"])
    setting = need.replicas if what == "replicas" else need.racks
    if setting is None:
        return Text("-", style="dim")
    effective = {state.now.need_replicas if what == "replicas" else state.now.need_racks for state in states}
    capped = "" if effective <= {setting.value} else f"={_range(effective)}"
    # configured value, effective value if it differs, and source
    text = Text.assemble(f"{setting.value}{capped}", plain(f" {setting.source}", "dim", length_max=NAME_SHOWN))
    if what == "racks" and need.observed is not None:
        text.append(f" observes {need.observed.value}", style="dim")
    return text


def _racks(states: Sequence[PartitionForecast]) -> str:
    """List the racks of all partitions; if partitions have different racks, also how many racks each has."""
    kinds = {state.racks for state in states}
    racks = sorted({rack for kind in kinds for rack in kind})
    if not racks:
        return "?"
    names = " ".join(map(_rack, racks)) if len(racks) <= 4 else str(len(racks))
    return names if len(kinds) == 1 else f"{_range(map(len, kinds))} of {names}"


def _rack(rack: str) -> str:
    return visible(rack_name(rack), length_max=NAME_SHOWN)


def _writable(states: Sequence[PartitionForecast], partitions: int) -> Text:
    if not states or len(states) < partitions:
        return Text("?", style=STYLES["unknown"])
    refused = [state for state in states if not state.writable]
    if not refused:
        return Text("yes", style="green")
    if len(refused) == partitions:
        return Text("no", style=STYLES["error"])
    return Text(f"no: {len(refused)}", style=STYLES["error"])


def _losses(report: TopicReport) -> Text:
    states = report.states
    racks = {rack: sum(rack in state.stopped_by.racks for state in states) for state in states for rack in state.racks}
    stops = {rack: number for rack, number in sorted(racks.items()) if number}
    if not states or not any(state.writable for state in states):
        return Text("-", style="dim")
    if not stops:
        return Text("none", style="green")
    risk = any(finding.severity == "risk" and finding.code.startswith("rack-loss") for finding in report.findings)
    return Text(_tally(stops, len(states)), style=STYLES["risk" if risk else "notice"])


def _alone(states: Sequence[PartitionForecast]) -> Text:
    if not states:
        return Text("?", style=STYLES["unknown"])
    racks = {rack: sum(rack in state.lone_racks for state in states) for state in states for rack in state.lone_racks}
    now = sum(state.lone_now and len(state.racks) > 1 for state in states)
    if not racks:
        return Text("no", style="green")
    if all(state.now.need_replicas == 1 for state in states):
        return Text("1 replica", style=STYLES["notice"])
    text = Text(_tally(dict(sorted(racks.items())), len(states)), style="yellow")
    return Text.assemble(text, (f" now: {now}", STYLES["error"])) if now else text


def _tally(racks: dict[str, int], partitions: int) -> str:
    """List racks, each with its number of partitions unless it applies to all partitions."""
    if len(racks) > 4:
        return f"any of {len(racks)}"
    return " ".join(_rack(rack) + ("" if number == partitions else f":{number}") for rack, number in racks.items())


def _brokers_shown(seen: ClusterObservation) -> list[Broker]:
    """Return at most ``BROKERS_SHOWN`` brokers; if there are more, those that differ from the majority come first."""
    brokers = sorted(seen.cluster.brokers.values(), key=lambda broker: broker.broker_id)
    if len(brokers) <= BROKERS_SHOWN:
        return brokers
    usual = Counter(seen.enforcement.describe(broker) for broker in brokers).most_common(1)[0][0]
    brokers.sort(key=lambda broker: seen.enforcement.describe(broker) == usual)
    return brokers[:BROKERS_SHOWN]


def _broker_table(seen: ClusterObservation, brokers: Sequence[Broker]) -> RenderableType:
    table = _table("enforcement of racks")
    table.add_column("broker", justify="right")
    table.add_column("rack", overflow="fold")
    table.add_column("Produce", justify="right")
    table.add_column("feature", justify="right")
    table.add_column("M default")
    table.add_column("R default")
    table.add_column("enforces racks", overflow="fold")
    for broker in brokers:
        answer = seen.enforcement.answers.get(broker.broker_id)
        description = seen.enforcement.describe(broker)
        style = (
            "green" if description == "yes" else STYLES["unknown"] if description.startswith("unknown") else "yellow"
        )
        level = "?" if answer is None else f"{answer.levels.get(RACKS_FEATURE, 0)} of {answer.supports}"
        default = answer.default if answer else None
        table.add_row(
            str(broker.broker_id),
            Text(_rack(broker.rack)),
            str(answer.produce) if answer else "?",
            level if answer is None or answer.supports else "-",
            _needs(default, "replicas", ()),
            _needs(default, "racks", ()),
            Text(description, style=style),
        )
    return table


def _finding_table(findings: Sequence[Finding], sizes: Mapping[str, int]) -> RenderableType:
    """Return the list of findings; ``sizes`` is the number of partitions by topic."""
    lines: list[RenderableType] = [Text("findings", style="bold")]
    for finding in findings:
        where = visible(finding.topic, length_max=NAME_SHOWN) or "cluster"
        if finding.partitions:
            everything = len(finding.partitions) == sizes.get(finding.topic)
            where += ", all partitions" if everything and len(finding.partitions) > 1 else _numbers(finding.partitions)
        means, remedy = (visible(text, length_max=TEXT_SHOWN) for text in (finding.means, finding.remedy))
        head = Text.assemble((f"{finding.severity:8}", STYLES[finding.severity]), (where, "bold"), f": {means}")
        grid = Table.grid(padding=(0, 0))
        grid.add_column(width=8)
        grid.add_column()
        grid.add_row(head[:8], Text.assemble(head[8:], "\n", ("→ " + remedy, "dim")))
        lines.append(grid)
    return Group(*lines)


def _numbers(partitions: Sequence[int]) -> str:
    """Format partition numbers with ranges, such as ``, partitions 0-4, 7``; only the first six ranges are listed."""
    runs: list[list[int]] = []
    for number in partitions:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    listed = ", ".join("-".join(map(str, run)) for run in runs[:6])
    more = "" if len(runs) <= 6 else f" and more, {len(partitions)} in all"
    return f", partition{'s' * (len(partitions) > 1)} {listed}{more}"
