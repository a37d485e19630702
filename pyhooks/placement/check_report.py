"""Report of ``rackgate check`` as tables and sentences, and as JSON.

The JSON is one object. Keys are stable: later versions may add some.

- ``cluster``: ``{id, racks, brokers_without_rack, enforced}``. ``racks`` maps rack names to broker ids. ``enforced`` is
  true if an R above 1 is in force.
- ``at_risk``: true if the exit status is 1.
- ``brokers``: a list of ``{id, rack, address, fenced, answered, because, enforces, knows, produce_version,
  feature_supported, features, min_insync_replicas, min_insync_racks, min_insync_racks_property, rejected, invalid}``.
  Values that a broker did not report are null. ``min_insync_racks_property`` is the value in the broker's own
  properties, which has no effect at level 1. ``rejected`` maps topics to the reason why the broker did not report their
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
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pyhooks.core.terminal import plain, visible
from pyhooks.kafka.features import ELR_FEATURE, RACKS_FEATURE
from pyhooks.kafka.gate import NO_RACK
from pyhooks.placement.cluster_query import ClusterObservation
from pyhooks.placement.enforcement import Enforcement
from pyhooks.placement.findings import SEVERITIES, Finding, Severity, TopicReport
from pyhooks.placement.gate_forecast import Broker, ConfigValue, IsrRequirements, PartitionForecast, rack_name

STYLES: dict[Severity, str] = {"error": "bold red", "unknown": "magenta", "risk": "yellow", "notice": "dim"}
TOPICS_SHOWN = 40
BROKERS_SHOWN = 40
FINDINGS_SHOWN = 60
NAME_SHOWN = 100  # characters of a name in a table
TEXT_SHOWN = 1000  # characters of a finding's sentence


@dataclass(frozen=True)
class CheckReport:
    """Result of a check."""

    observation: ClusterObservation
    topics: tuple[TopicReport, ...]  # reports of the selected topics
    findings: tuple[Finding, ...]  # findings about these topics and the cluster, worst first
    at_risk: bool  # whether the exit status is 1


def json_parts(report: CheckReport) -> Iterable[str]:
    """Yield the JSON in parts, mostly one line each, so that a large report is never in memory as a whole.

    The module's docstring describes the JSON.
    """
    cluster, enforcement = report.observation.cluster, report.observation.enforcement
    racks: dict[str, list[int]] = {}
    for broker_id, broker in sorted(cluster.brokers.items()):
        racks.setdefault(broker.rack, []).append(broker_id)
    without_rack = racks.pop(NO_RACK, [])
    cluster_json = {
        "id": cluster.cluster_id,
        "racks": racks,
        "brokers_without_rack": without_rack,
        "enforced": enforcement.enforced,
    }
    yield f'{{\n "cluster": {json.dumps(cluster_json)},\n "at_risk": {json.dumps(report.at_risk)}'
    lists: tuple[tuple[str, Iterable[dict[str, Any]]], ...] = (
        ("brokers", (_broker_json(enforcement, broker) for _, broker in sorted(cluster.brokers.items()))),
        ("topics", map(_topic_json, report.topics)),
        ("findings", ({**vars(finding), "topic": finding.topic or None} for finding in report.findings)),
    )
    for name, rows in lists:
        yield f',\n "{name}": ['
        for index, row in enumerate(rows):
            # without indentation json uses its C encoder, which is ten times as fast
            yield f"{',' if index else ''}\n  {json.dumps(row)}"
        yield "\n ]"
    yield "\n}"


def _setting(setting: ConfigValue | None) -> dict[str, Any] | None:
    return None if setting is None else vars(setting)


def _broker_json(enforcement: Enforcement, broker: Broker) -> dict[str, Any]:
    response = enforcement.responses.get(broker.broker_id)
    default = response.default if response else None
    return {
        "id": broker.broker_id,
        "rack": broker.rack or None,
        "address": broker.address,
        "fenced": broker.fenced,
        "answered": response is not None,
        "because": enforcement.unresponsive.get(broker.broker_id),
        "enforces": enforcement.describe(broker),
        "knows": response and response.overlay,
        "produce_version": response and response.produce,
        "feature_supported": response and response.supported_level,
        "features": response and {name: response.levels.get(name, 0) for name in (RACKS_FEATURE, ELR_FEATURE)},
        "min_insync_replicas": _setting(default.replicas if default else None),
        "min_insync_racks": _setting(default.racks if default else None),
        "min_insync_racks_property": response and response.property_racks,
        "rejected": response and dict(response.rejected),
        "invalid": response and {name: dict(values) for name, values in response.invalid.items()},
    }


def _topic_json(report: TopicReport) -> dict[str, Any]:
    topic, requirements = report.topic, report.topic.requirements
    forecasts = {forecast.partition.number: forecast for forecast in report.forecasts}
    partitions = []
    for partition in topic.partitions:
        row = {key: value for key, value in vars(partition).items() if key not in ("topic", "number")}
        if forecast := forecasts.get(partition.number):
            row |= {
                "racks": forecast.racks,
                "isr_racks": forecast.isr_racks,
                "needs": {"replicas": forecast.decision.need_replicas, "racks": forecast.decision.need_racks},
                "writable": forecast.writable,
                "stopped_by": vars(forecast.stopped_by),
                "stopped_when_whole": vars(forecast.stopped_when_whole),
                "lone_racks": forecast.lone_racks,
                "lone_now": forecast.lone_now,
                "reachable": forecast.reachable,
            }
        partitions.append({"partition": partition.number, **row})
    return {
        "name": topic.name,
        "internal": topic.internal,
        "unanswered": topic.unanswered or None,
        "min_insync_replicas": _setting(requirements.replicas if requirements else None),
        "min_insync_racks": _setting(requirements.racks if requirements else None),
        "min_insync_racks_observe": _setting(requirements.observed if requirements else None),
        "partitions": partitions,
    }


def print_report(console: Console, report: CheckReport, *, strict: bool) -> None:
    """Print tables and findings, formatted for 100 columns; notices only with ``strict``."""
    worst = {finding.topic: finding.severity for finding in reversed(report.findings)}
    topics = sorted(report.topics, key=lambda topic: SEVERITIES.index(worst.get(topic.topic.name, "notice")))
    if topics:
        console.print(_topic_table(topics[:TOPICS_SHOWN], worst))
    if len(topics) > TOPICS_SHOWN:
        console.print(_dim(f"and {len(topics) - TOPICS_SHOWN} more topics: see --json, or choose with --topic"))
    if any(topic.topic.internal for topic in topics[:TOPICS_SHOWN]):
        console.print(_dim("* an internal topic of Kafka"))
    brokers = _brokers_shown(report.observation)
    console.print(_broker_table(report.observation.enforcement, brokers))
    if more := len(report.observation.cluster.brokers) - len(brokers):
        console.print(_dim(f"and {more} more brokers: see --json"))
    findings = [finding for finding in report.findings if strict or finding.severity != "notice"]
    if findings:
        sizes = {topic.topic.name: len(topic.topic.partitions) for topic in report.topics}
        console.print(_finding_list(findings[:FINDINGS_SHOWN], sizes))
    if len(findings) > FINDINGS_SHOWN:
        console.print(_dim(f"and {len(findings) - FINDINGS_SHOWN} more findings: see --json, or choose with --topic"))
    console.print(_summary(report, strict=strict))


def _dim(text: str) -> Text:
    return Text(text, style="dim")


def _summary(report: CheckReport, *, strict: bool) -> Text:
    counts = Counter(finding.severity for finding in report.findings)
    partitions = sum(len(topic.topic.partitions) for topic in report.topics)
    checked = f"{_count(len(report.topics), 'topic')}, {_count(partitions, 'partition')}"
    listed = ", ".join(_count(counts[s], s) for s in SEVERITIES if counts[s] and (strict or s != "notice"))
    verdict = f"[bold red]at risk[/]: {listed}" if report.at_risk else "[bold green]nothing at risk[/]"
    hidden = ""
    if counts["notice"] and not strict:
        notices = _count(counts["notice"], "notice")
        hidden = f"\n[dim]{notices} not shown: consequences of the settings; see them with --strict[/]"
    return Text.from_markup(f"\n{checked}: {verdict}{hidden}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1 and noun != "unknown")


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )


def _topic_table(reports: Sequence[TopicReport], worst: dict[str, Severity]) -> Table:
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
        topic, forecasts = report.topic, report.forecasts
        style = STYLES[worst[topic.name]] if worst.get(topic.name, "notice") != "notice" else ""
        table.add_row(
            plain(topic.name, style, length_max=NAME_SHOWN).append("*" * topic.internal),
            str(len(topic.partitions)),
            _range(len(partition.target) for partition in topic.partitions),
            _min_replicas(topic.requirements, forecasts),
            _min_racks(topic.requirements, forecasts),
            Text(_racks(forecasts)),
            _writable(forecasts, len(topic.partitions)),
            _losses(report),
            _lone_racks(forecasts),
        )
    return table


def _range(numbers: Iterable[int]) -> str:
    distinct = sorted(set(numbers))
    return "-".join(map(str, dict.fromkeys((distinct[0], distinct[-1])))) if distinct else "-"


def _min_replicas(requirements: IsrRequirements | None, forecasts: Sequence[PartitionForecast]) -> Text:
    if requirements is None:
        return Text("?", style=STYLES["unknown"])
    return _minimum(requirements.replicas, {forecast.decision.need_replicas for forecast in forecasts})


def _min_racks(requirements: IsrRequirements | None, forecasts: Sequence[PartitionForecast]) -> Text:
    if requirements is None:
        return Text("?", style=STYLES["unknown"])
    if requirements.racks is None:
        return _dim("-")
    text = _minimum(requirements.racks, {forecast.decision.need_racks for forecast in forecasts})
    if requirements.observed is not None:
        text.append(f" observes {requirements.observed.value}", style="dim")
    return text


def _minimum(setting: ConfigValue, effective: set[int]) -> Text:
    """Return the configured value, the effective values if they differ, and the source."""
    capped = "" if effective <= {setting.value} else f"={_range(effective)}"
    return Text.assemble(f"{setting.value}{capped}", plain(f" {setting.source}", "dim", length_max=NAME_SHOWN))


def _racks(forecasts: Sequence[PartitionForecast]) -> str:
    """List the racks of all partitions; if partitions have different racks, also how many racks each has."""
    rack_sets = {forecast.racks for forecast in forecasts}
    racks = sorted({rack for rack_set in rack_sets for rack in rack_set})
    if not racks:
        return "?"
    names = " ".join(map(_rack, racks)) if len(racks) <= 4 else str(len(racks))
    return names if len(rack_sets) == 1 else f"{_range(map(len, rack_sets))} of {names}"


def _rack(rack: str) -> str:
    return visible(rack_name(rack), length_max=NAME_SHOWN)


def _writable(forecasts: Sequence[PartitionForecast], partitions: int) -> Text:
    if not forecasts or len(forecasts) < partitions:
        return Text("?", style=STYLES["unknown"])
    rejecting = sum(not forecast.writable for forecast in forecasts)
    if not rejecting:
        return Text("yes", style="green")
    return Text("no" if rejecting == partitions else f"no: {rejecting}", style=STYLES["error"])


def _losses(report: TopicReport) -> Text:
    forecasts = report.forecasts
    if not any(forecast.writable for forecast in forecasts):
        return _dim("-")
    stopping = Counter(rack for forecast in forecasts for rack in forecast.stopped_by.racks)
    if not stopping:
        return Text("none", style="green")
    risk = any(finding.severity == "risk" and finding.code.startswith("rack-loss") for finding in report.findings)
    return Text(_rack_counts(stopping, len(forecasts)), style=STYLES["risk" if risk else "notice"])


def _lone_racks(forecasts: Sequence[PartitionForecast]) -> Text:
    if not forecasts:
        return Text("?", style=STYLES["unknown"])
    racks = Counter(rack for forecast in forecasts for rack in forecast.lone_racks)
    alone_now = sum(forecast.lone_now and len(forecast.racks) > 1 for forecast in forecasts)
    if not racks:
        return Text("no", style="green")
    if all(forecast.decision.need_replicas == 1 for forecast in forecasts):
        return Text("1 replica", style=STYLES["notice"])
    text = Text(_rack_counts(racks, len(forecasts)), style="yellow")
    return Text.assemble(text, (f" now: {alone_now}", STYLES["error"])) if alone_now else text


def _rack_counts(racks: Mapping[str, int], partitions: int) -> str:
    """List racks, each with its number of partitions unless it applies to all partitions."""
    if len(racks) > 4:
        return f"any of {len(racks)}"
    return " ".join(_rack(rack) + f":{count}" * (count != partitions) for rack, count in sorted(racks.items()))


def _brokers_shown(observation: ClusterObservation) -> list[Broker]:
    """Return at most ``BROKERS_SHOWN`` brokers; if there are more, those that differ from the majority come first."""
    brokers = [broker for _, broker in sorted(observation.cluster.brokers.items())]
    if len(brokers) > BROKERS_SHOWN:
        describe = observation.enforcement.describe
        majority = Counter(map(describe, brokers)).most_common(1)[0][0]
        brokers.sort(key=lambda broker: describe(broker) == majority)
    return brokers[:BROKERS_SHOWN]


def _broker_table(enforcement: Enforcement, brokers: Sequence[Broker]) -> Table:
    table = _table("enforcement of racks")
    table.add_column("broker", justify="right")
    table.add_column("rack", overflow="fold")
    table.add_column("Produce", justify="right")
    table.add_column("feature", justify="right")
    table.add_column("M default")
    table.add_column("R default")
    table.add_column("enforces racks", overflow="fold")
    for broker in brokers:
        response, description = enforcement.responses.get(broker.broker_id), enforcement.describe(broker)
        style = {"yes": "green", "unk": STYLES["unknown"]}.get(description[:3], "yellow")
        if response is None:
            level = "?"
        else:
            levels = f"{response.levels.get(RACKS_FEATURE, 0)} of {response.supported_level}"
            level = levels if response.supported_level else "-"
        table.add_row(
            str(broker.broker_id),
            Text(_rack(broker.rack)),
            str(response.produce) if response else "?",
            level,
            _min_replicas(response.default if response else None, ()),
            _min_racks(response.default if response else None, ()),
            Text(description, style=style),
        )
    return table


def _finding_list(findings: Sequence[Finding], sizes: Mapping[str, int]) -> Group:
    """Return the list of findings; ``sizes`` is the number of partitions by topic."""
    entries: list[RenderableType] = [Text("findings", style="bold")]
    for finding in findings:
        subject = visible(finding.topic, length_max=NAME_SHOWN) or "cluster"
        if finding.partitions:
            whole_topic = 1 < len(finding.partitions) == sizes.get(finding.topic)
            subject += ", all partitions" if whole_topic else _numbers(finding.partitions)
        means, remedy = (visible(text, length_max=TEXT_SHOWN) for text in (finding.means, finding.remedy))
        entry = Table.grid(padding=(0, 0))
        entry.add_column(width=8)
        entry.add_column()
        entry.add_row(
            Text(f"{finding.severity:8}"[:8], STYLES[finding.severity]),
            Text.assemble((subject, "bold"), f": {means}\n", (f"→ {remedy}", "dim")),
        )
        entries.append(entry)
    return Group(*entries)


def _numbers(partitions: Sequence[int]) -> str:
    """Format partition numbers with ranges, such as ``, partitions 0-4, 7``; only the first six ranges are listed."""
    # consecutive numbers have the same difference from their index
    groups = groupby(enumerate(partitions), key=lambda pair: pair[1] - pair[0])
    ranges = [_range(number for _, number in group) for _, group in groups]
    more = "" if len(ranges) <= 6 else f" and more, {len(partitions)} in all"
    return f", partition{'s' * (len(partitions) > 1)} {', '.join(ranges[:6])}{more}"
