"""``rackgate patch jmh``: measure the cost of the gate with JMH, stock against overlay with alternating iterations."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import complete_lines, evaluating, parse_json, read_text, write_text
from pyhooks.core.locks import hold_lock
from pyhooks.core.process import run
from pyhooks.patchset import recipe
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import jmh_runner, jmh_stopping, jmh_table
from pyhooks.verify.cpu_contention import ContentionRule, Heat, HeatRunner, Heats, Yardstick, identity
from pyhooks.verify.jmh_plan import OVERLAY, SCALE, Effort, JmhCell, in_turn, plan
from pyhooks.verify.jmh_statistics import Fork, worst

_START_S = 5.0  # overhead of a heat: start of JMH and its JVMs, setup, yardstick; used only for the first estimate


def measure(
    distribution: Distribution,
    effort: Effort,
    rule: ContentionRule,
    *,
    only: str = "",
    more: bool = False,
    quiet: bool = False,
    out: Path | None = None,
) -> dict[str, Any]:
    """Run all benchmarks on both sides, write ``forks.jsonl``, ``summary.json`` and ``table.md``; return the summary.

    A comparison ends at the first look of the stopping rule that decides it, see ``jmh_stopping``. Can be interrupted
    at any time: finished measurements are kept, and ``more`` resumes the run.

    Args:
        distribution: the build under test.
        effort: number and length of the measurements.
        rule: decides which forks count.
        only: run only comparisons whose name contains this text.
        more: keep the forks of earlier runs of the same build, and run only the missing ones.
        quiet: show no progress.
        out: target folder, by default ``out/jmh``.

    Raises:
        RackgateError: the benchmarks do not compile or do not run, or the kept forks can't be combined with new ones.
    """
    console = Console(stderr=True, quiet=quiet, highlight=False)
    out = out or paths.OUT / "jmh"
    space = Workspace.of(recipe.load())
    key, path = _key(distribution, effort, rule), out / "forks.jsonl"
    cells, _ = plan(only)
    taken = f"another run writes to {out}; wait for it or stop it"
    with hold_lock(out / "lock", taken=taken), jmh_runner.folders(space) as (work, scratch):
        heats = Heats(rule, _kept(path, key) if more else ())
        runner = jmh_runner.prepare(recipe.load(), space, distribution, console, work=work, scratch=scratch, out=out)
        write_text(path, "".join(_line(key, heat) for heat in heats.tries))
        with path.open("a", encoding="utf-8") as stream, console.status("") as status:

            def keep(heat: Heat) -> None:
                stream.write(_line(key, heat))
                stream.flush()

            def forks(names: Sequence[str], number: int) -> Sequence[Fork]:
                status.update(f"round {number}: {names[0]} and {len(names) - 1} others, alternating")
                return runner.heat([by_name[name] for name in names], number, effort)

            by_name = {cell.name: cell for cell in plan()[0]}
            pacer = HeatRunner(heats, measure=Yardstick().measure, forks=forks, keep=keep)
            console.print(_beforehand(cells, heats, effort), soft_wrap=True)
            for line in _rounds(pacer, heats, cells, effort):
                console.print(line, soft_wrap=True)
                summary = summarise(distribution, effort, heats)
                write_text(out / "summary.json", json.dumps(summary, indent=1) + "\n")
                write_text(out / "table.md", jmh_table.render(summary))
    return summary


def _rounds(pacer: HeatRunner, heats: Heats, cells: Sequence[JmhCell], effort: Effort) -> Iterator[str]:
    """Run the missing heats, repeat heats while the rule requires it, and yield progress after each round.

    A heat that must be repeated gets one more try after each round: contention may have ended by then.
    """
    started, tries_before, rounds = time.monotonic(), len(heats.tries), 0
    names = frozenset(cell.name for cell in cells)
    while (missing := _missing(heats, cells, effort)) or (waiting := pacer.open(names)):
        if not missing:
            pacer.repeat(names)
            yield f"after the last round, heats repeated: {len(waiting)}; {format_pace(heats.summary())}"
            continue
        rounds += 1
        number, groups = next(iter(missing.items()))
        for members in groups:
            pacer.run(number, [cell.name for cell in members])
        pacer.repeat(names)
        while number in jmh_stopping.LOOKS and pacer.open(names):
            # a look takes place once, when all of its heats count
            pacer.repeat(names)
        left = _missing(heats, cells, effort)
        spent_s = time.monotonic() - started
        heats_left = sum(map(len, left.values())) + len(pacer.open(names))
        left_s = spent_s / (len(heats.tries) - tries_before) * heats_left
        yield (
            f"round {number} of at most {effort.forks}: {sum(map(len, groups))} forks, {spent_s / rounds:.0f} s a "
            f"round, at most about {left_s / 60:.0f} min left, load {os.getloadavg()[0]:.1f}; "
            f"{format_pace(heats.summary())}"
        )
    if len(heats.tries) == tries_before:
        yield f"{effort.forks} rounds are complete already; {format_pace(heats.summary())}"


def _missing(heats: Heats, cells: Sequence[JmhCell], effort: Effort) -> dict[int, list[list[JmhCell]]]:
    """Return the missing heats, by round number, which determines the order of the sides.

    They are those of the comparisons that the stopping rule has not ended, up to the maximum number of rounds.
    """
    names = {cell.name for cell in cells}
    forks = _forks(heats)
    comparisons = [
        comparison
        for comparison in plan()[1]
        if not comparison.control and names.issuperset((comparison.stock, comparison.other))
    ]
    rounds: dict[int, list[list[JmhCell]]] = {}
    going_on: set[str] = set()
    for number in range(1, effort.forks + 1):
        if number == 1 or number - 1 in jmh_stopping.LOOKS:
            going_on = {
                comparison.other for comparison in comparisons if not jmh_stopping.ended(comparison, forks, number - 1)
            }
        rounds[number] = [
            members
            for members in in_turn(cells, number)
            if _goes_on(members, going_on, number)
            and not any(
                heat.round_ == number
                and {cell.name for cell in members} <= set(heat.cells)
                # An incomplete heat with cells outside the selection can't be repeated here, so it does not count.
                and (heat.complete or names >= set(heat.cells))
                for heat in heats.tries
            )
        ]
    return {number: groups for number, groups in rounds.items() if groups}


def _goes_on(members: Sequence[JmhCell], going_on: Set[str], number: int) -> bool:
    """Return whether a heat is part of round ``number``, given the overlay cells of the comparisons that go on.

    A heat of controls alone, which has no target, continues as long as any other.
    """
    overlay = {cell.name for cell in members if cell.side == OVERLAY}
    return number <= jmh_stopping.LOOKS[0] or bool(overlay & going_on if overlay else going_on)


def _forks(heats: Heats) -> list[Fork]:
    return [fork for heat in heats.kept() for fork in heat.forks]


def _beforehand(cells: Sequence[JmhCell], heats: Heats, effort: Effort) -> str:
    """Describe the work ahead, with an estimate that uses no measurement of this machine."""
    fork_s = effort.warm_s + effort.iterations * effort.iteration_s
    missing = [members for groups in _missing(heats, cells, effort).values() for members in groups]
    left_s = fork_s * sum(map(len, missing)) + _START_S * len(missing)
    kept = f"{len(heats.kept())} heats kept, {len(heats.to_make_again())} to repeat; " if heats.tries else ""
    return (
        f"{kept}{effort.forks} rounds of {len(cells)} forks, of which {len(missing)} heats are missing, about "
        f"{math.ceil(left_s / 60)} min if none is repeated and no comparison ends at an earlier look: after "
        f"{', '.join(map(str, jmh_stopping.LOOKS))} rounds"
    )


def format_pace(pace: Mapping[str, Any]) -> str:
    """Format the results of the rule in one line."""
    slower, unsettled = pace["slower_by_percent"], pace["heats_to_make_again"]
    return (
        f"{pace['forks_made_again']} forks repeated, {pace['forks_disturbed']} of {pace['forks_kept']} disturbed, "
        + (f"{unsettled} heats to repeat, " if unsettled else "")
        + f"yardstick {pace['fastest_ms']:.0f} ms (median +{slower['median']:.1f} %, "
        f"9 of 10 within +{slower['p90']:.1f} %, all within +{slower['most']:.1f} %)"
    )


def summarise(distribution: Distribution, effort: Effort, heats: Heats) -> dict[str, Any]:
    """Return all comparisons with their targets, and an overall verdict without the controls."""
    forks, disturbed, results = _forks(heats), heats.disturbed(), list[dict[str, Any]]()
    for comparison in plan()[1]:
        result = jmh_stopping.evaluate(comparison, forks)
        used = [heat for heat in disturbed if not result["look"] or heat.round_ <= result["look"]]
        both = {comparison.stock, comparison.other}
        results.append({**result, "forks_disturbed": sum(both <= set(heat.cells) for heat in used)})
    append = next((r.get("stock_ns") for r in results if r["name"] == SCALE), None)
    for result in results:
        if append and result["name"].startswith("append gate") and result["targets"]:
            # The cost of the same added code, relative to an append that writes to a file.
            ns = next(target["measured"] for target in result["targets"] if target["name"] == "ns")
            result["percent_of_append_to_file"] = {key: round(value / append * 100, 4) for key, value in ns.items()}
    real = [r for r in results if not r["control"]]
    loads = [fork.load for fork in forks]
    return {
        "kafka_version": distribution.manifest["kafka_version"],
        "patch_hash": distribution.manifest["patch_hash"],
        "time": "CPU time of the measuring thread, fastest of a fork's slices of about 1 ms, and the median one",
        "stopping": jmh_stopping.rule(),
        "intervals": f"{jmh_stopping.CONFIDENCE_PERCENT:g} % at each look, by bootstrap across forks, paired by "
        "round, of a mean without the highest and lowest fifth",
        "effort": asdict(effort),
        "jvm": jmh_runner.STEADY,
        "pace": heats.summary(),
        "forks": min((r["forks"] for r in real), default=0),
        "forks_needed": max(
            max((target["forks_needed"] for target in r["targets"]), default=jmh_stopping.LOOKS[0]) for r in real
        ),
        "cores": os.cpu_count(),
        "load": {"lowest": min(loads, default=0.0), "highest": max(loads, default=0.0)},
        "verdict": worst([r["verdict"] for r in real]),
        "targets": {
            verdict: sum(target["verdict"] == verdict for r in real for target in r["targets"])
            for verdict in ("met", "not met", "unknown")
        },
        "comparisons": results,
    }


def _key(distribution: Distribution, effort: Effort, rule: ContentionRule) -> str:
    """Return a hash of all that combined forks must have in common: build, effort, rule, code, JDK and machine."""
    digest = hashlib.sha256(distribution.manifest["patch_hash"].encode())
    digest.update(json.dumps([effort.warm_s, effort.iterations, effort.iteration_s]).encode())
    java = run(["java", "--version"], task="query the version of java")
    digest.update(json.dumps([asdict(rule), identity(), java]).encode())
    folder = Path(__file__).parent
    for path in sorted([*jmh_runner.SOURCES.rglob("*.java"), *folder.glob("jmh*.py"), folder / "cpu_contention.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _line(key: str, heat: Heat) -> str:
    return json.dumps({"key": key, **asdict(heat)}) + "\n"


def _kept(path: Path, key: str) -> list[Heat]:
    """Return all completed tries of earlier runs.

    Raises:
        RackgateError: they are of another build, effort, rule or kind of machine.
    """
    if not path.exists():
        return []
    lines = complete_lines(read_text(path, "it stores forks"))
    expected = "forks of an earlier run; omit --more to start over"
    with evaluating(path, expected):
        rows: list[Mapping[str, Any]] = list(map(parse_json, lines))
        other = any(row["key"] != key for row in rows)
    if other:
        raise RackgateError(
            f"{path} has forks of another build, effort (--full), rule (--within) or machine, which must not be "
            "combined: use the same options, or omit --more to start over"
        )
    with evaluating(path, expected):
        return TypeAdapter(list[Heat]).validate_python(rows)
