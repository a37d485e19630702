"""Comparison of two results: their verdicts on every cell, and whether they are shown to be alike or to differ."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from bench import run_conditions
from bench.analysis.verdicts import interval_text
from bench.report import run_page
from bench.report.availability_table import NONE
from bench.report.cell_table import refusing_arms
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating
from pyhooks.core.statistics import Interval, student_t_quantile
from pyhooks.core.terminal import plain

Likeness = Literal["alike", "differs", "unknown", "not judged"]
# Reasons for which a ratio does not represent its arms, so that it can't be compared with another ratio.
UNFIT = frozenset({"refused", "not acknowledged", "missing", "few blocks", "few records"})


@dataclass(frozen=True)
class ResultPair:
    """One comparison of the plan, in both results.

    Attributes:
        cell: id of the cell.
        arm: id of the candidate.
        label: display name of the candidate.
        at: name of the quantile.
        a: the comparison in the first result, as in ``results.json``.
        b: the comparison in the second result.
        factor: the second ratio over the first, with its interval; None if one of them has no ratio.
        said: ``alike`` if the interval of ``factor`` lies within the equivalence band, or the same arms refuse in both;
            ``differs`` if the interval does not contain 1, or different arms refuse; ``unknown`` if neither is shown,
            or the control is not shown to be equal; ``not judged`` if neither plan judges the quantile.
        why: reason for ``unknown`` and for refusals.
    """

    cell: str
    arm: str
    label: str
    at: str
    a: Mapping[str, Any]
    b: Mapping[str, Any]
    factor: Interval | None
    said: Likeness
    why: str


def factor(a: Mapping[str, Any], b: Mapping[str, Any], tail: float) -> Interval:
    """Return the ratio of ``b`` over that of ``a``, with the interval that leaves out ``tail`` at each end.

    The runs are independent, so the squared errors of the logarithms add up. The degrees of freedom are by Welch and
    Satterthwaite (Biometrics Bulletin 2, 1946).
    """
    point = math.log(b["ratio"]["point"]) - math.log(a["ratio"]["point"])
    squares = [one["error"] ** 2 for one in (a, b)]
    error = math.sqrt(sum(squares))
    if error == 0.0:
        return Interval(math.exp(point), math.exp(point), math.exp(point))
    below = sum(square**2 / one["freedom"] for square, one in zip(squares, (a, b), strict=True))
    reach = error * student_t_quantile(1.0 - tail, max(1, math.floor(sum(squares) ** 2 / below)))
    return Interval(math.exp(point - reach), math.exp(point), math.exp(point + reach))


def compare_results(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two results cell by cell.

    All judged comparisons with a ratio in both results form one family: the intervals of their factors are
    simultaneously valid with the confidence of the first result (Bonferroni). So the probability that any verdict is
    wrong is at most the rest. A difference that was not found does not prove likeness. So ``alike`` requires an
    interval within the band, as ``equivalent`` does, and a ratio of the plain means within it, too. The noise of blocks
    does not include what one lab does to an arm and another lab does not; the control shows it. So a verdict on latency
    requires two equal arms that are shown to be equal, in each result by itself and between the two.

    Args:
        a: result of ``bench.report.run_page.load``.
        b: another one.

    Returns:
        ``pairs``, ``only_in_a`` and ``only_in_b`` (ids of cells, or an arm and a quantile of a cell), ``other_setting``
        (ids of cells), ``conditions`` (differences), ``confidence``, ``said`` (verdict on all pairs together).
    """
    cells_a, cells_b = ({cell["cell"]: cell for cell in one["cells"]} for one in (a, b))
    shared = [name for name in cells_a if name in cells_b]
    other = [name for name in shared if _setting(cells_a[name]) != _setting(cells_b[name])]
    same = [name for name in shared if name not in other]
    rows = [row for name in same for row in _rows(cells_a[name], cells_b[name])]
    only_in_a = [name for name in cells_a if name not in cells_b]
    only_in_a += [one for name in same for one in _unmatched(cells_a[name], cells_b[name])]
    only_in_b = [name for name in cells_b if name not in cells_a]
    only_in_b += [one for name in same for one in _unmatched(cells_b[name], cells_a[name])]
    confidence = float(a["cells"][0]["confidence"]) if a["cells"] else 0.95
    family = sum(
        1 for *_, one, two in rows if _is_comparable(one) and _is_comparable(two) and not _not_judged(one, two)
    )
    tail = (1.0 - confidence) / 2 / max(1, family)
    equal = {
        (name, row["at"])
        for name in same
        for row, theirs in _controls(cells_a[name], cells_b[name])
        if row["word"] == theirs["word"] == "equivalent" and _shown_alike(row, theirs, (1.0 - confidence) / 2)
    }
    pairs = [_compare_pair(name, label, one, two, tail, (name, one["at"]) in equal) for name, label, one, two in rows]
    return {
        "schema": 1,
        "pairs": [asdict(pair) for pair in pairs],
        "only_in_a": only_in_a,
        "only_in_b": only_in_b,
        "other_setting": other,
        "conditions": run_conditions.differences(_conditions(a), _conditions(b)),
        "confidence": confidence,
        "said": joint_verdict([pair.said for pair in pairs], whole=not (only_in_a or only_in_b or other)),
    }


def joint_verdict(likenesses: Sequence[Likeness], *, whole: bool) -> Likeness:
    """Return one verdict on all pairs; ``whole``: whether neither result lacks a comparison of the other."""
    if "differs" in likenesses:
        return "differs"
    return "alike" if whole and set(likenesses) - {"not judged"} == {"alike"} else "unknown"


def _setting(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    baseline = {row["against"] for row in cell["comparisons"]}
    return cell["state"], cell["setting"], {arm["arm"]: arm["label"] for arm in cell["arms"] if arm["arm"] in baseline}


def _conditions(result: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = result["manifest"]["conditions"]
    return found


def _rows(
    a: Mapping[str, Any], b: Mapping[str, Any]
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    labels = {arm["arm"]: arm["label"] for arm in a["arms"]}
    theirs = {(row["arm"], row["at"]): row for row in b["comparisons"]}
    for row in a["comparisons"]:
        if not row["is_control"] and (row["arm"], row["at"]) in theirs:
            yield a["cell"], labels.get(row["arm"], row["arm"]), row, theirs[row["arm"], row["at"]]


def _unmatched(own: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the judged comparisons of a cell that the other result does not have."""
    theirs = {(row["arm"], row["at"]) for row in other["comparisons"] if not row["is_control"]}
    return [
        f"{own['cell']}: {row['arm']} at {row['at']}"
        for row in own["comparisons"]
        if not row["is_control"] and row["reason"] != "not judged" and (row["arm"], row["at"]) not in theirs
    ]


def _controls(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the controls that have a ratio in both results."""
    theirs = {(row["arm"], row["at"]): row for row in b["comparisons"] if row["is_control"] and row["ratio"]}
    for row in a["comparisons"]:
        if row["is_control"] and row["ratio"] and (row["arm"], row["at"]) in theirs:
            yield row, theirs[row["arm"], row["at"]]


def _is_comparable(row: Mapping[str, Any]) -> bool:
    """Return whether a comparison has a ratio that represents its arms."""
    return bool(row["ratio"]) and row["reason"] not in UNFIT


def _not_judged(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return bool(a["reason"] == b["reason"] == "not judged")


def _contains_one(found: Interval) -> bool:
    return found.low <= 1.0 <= found.high


def _shown_alike(a: Mapping[str, Any], b: Mapping[str, Any], tail: float) -> bool:
    """Return whether the factor's interval, and the ratio of the plain means, lie within the narrower of both bands."""
    found, edge = factor(a, b, tail), math.log1p(min(a["band"], b["band"]))
    mean = math.log(b["mean_ratio"]) - math.log(a["mean_ratio"])
    return -edge < math.log(found.low) and math.log(found.high) < edge and abs(mean) < edge


def _compare_pair(
    cell: str, label: str, a: Mapping[str, Any], b: Mapping[str, Any], tail: float, control_equal: bool
) -> ResultPair:
    likeness: Likeness = "unknown"
    found, why = None, ""
    if a["refused"] != b["refused"]:
        likeness, why = "differs", " and ".join(
            f"{refusing_arms(one['refused'])} in {name}" for name, one in (("A", a), ("B", b))
        )  # fmt: skip
    elif a["refused"]:
        likeness, why = "alike", f"{refusing_arms(a['refused'])} in both"
    elif _is_comparable(a) and _is_comparable(b):
        found = factor(a, b, tail)
        likeness, why = _likeness(a, b, tail, control_equal)
    else:
        lack = [f"{name}: {one['reason']}" for name, one in (("A", a), ("B", b)) if not _is_comparable(one)]
        why = f"no ratio in {', '.join(lack)}"
    return ResultPair(cell, a["arm"], label, a["at"], a, b, found, likeness, why)


def _likeness(a: Mapping[str, Any], b: Mapping[str, Any], tail: float, control_equal: bool) -> tuple[Likeness, str]:
    """Return the verdict on a comparison with a ratio in both results, and the reason if it is unknown."""
    if _not_judged(a, b):
        return "not judged", ""
    if lone := [name for name, one in (("A", a), ("B", b)) if one["reason"] == "not judged"]:
        return "unknown", f"not judged in {lone[0]}"
    if not control_equal:
        return "unknown", "two equal arms are not shown to be equal"
    if _shown_alike(a, b, tail):
        # all arms share the lateness, so it would hide a difference
        late = [name for name, one in (("A", a), ("B", b)) if one["reason"] == "pacer"]
        return ("unknown", f"the pacer is late in {' and '.join(late)}") if late else ("alike", "")
    return ("unknown", "noise") if _contains_one(factor(a, b, tail)) else ("differs", "")


def _word(row: Mapping[str, Any]) -> str:
    if row["reason"] == "not judged":
        return "not judged"
    return f"{row['word']} ({row['reason']})" if row["word"] == "undecided" else str(row["word"])


def print_comparison(found: Mapping[str, Any], names: tuple[str, str], console: Console) -> None:
    """Print the comparison as a table and sentences."""
    for mark, one in zip("AB", names, strict=True):
        console.print(plain(f"{mark}: {one}"))
    if found["conditions"]:
        console.print(f"Conditions differ: {run_conditions.differences_text(found['conditions'])}", markup=False)
    else:
        console.print("The conditions are the same.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("cell", "arm", "at", "A: ratio, verdict", "B: ratio, verdict", "B over A", "verdict"):
        table.add_column(head)
    for pair in found["pairs"]:
        own = [
            f"{interval_text(one['ratio'])}, {_word(one)}" if one["ratio"] else NONE for one in (pair["a"], pair["b"])
        ]
        over = interval_text(pair["factor"]) if pair["factor"] else NONE
        verdict = f"{pair['said']} ({pair['why']})" if pair["why"] else pair["said"]
        table.add_row(*map(plain, (pair["cell"], pair["label"], pair["at"], *own, over, verdict)))
    console.print(table)
    for text, key in (
        ("only in A", "only_in_a"),
        ("only in B", "only_in_b"),
        ("with different settings", "other_setting"),
    ):
        if found[key]:
            console.print(plain(f"Cells {text}, not compared: {', '.join(found[key])}"))
    console.print(
        f"B over A: the second ratio over the first, with {found['confidence']:.0%} simultaneous intervals. alike: the"
        " interval lies within the equivalence band; differs: it does not contain 1; otherwise unknown. All cells"
        f" together: {found['said'].upper()}.",
        markup=False,
    )


EPILOG = (
    "Example: rackgate bench compare out/bench out/bench-full --json. Exit status: 0 all cells are shown to be alike,"
    " 1 one differs, 2 unknown, or a cell is in one result only."
)


def compare_command(
    a: Annotated[Path, typer.Argument(help="results.json or its folder.")],
    b: Annotated[Path, typer.Argument(help="Another result.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Compare two results: ratios, verdicts, and whether they are shown to be alike or to differ."""
    first, second = run_page.load(a), run_page.load(b)
    for path, one in ((a, first), (b, second)):
        with evaluating(path, run_page.EXPECTED):
            # compared with itself, so that an error names the malformed file
            compare_results(one, one)
    with evaluating(b, run_page.EXPECTED):
        found = compare_results(first, second)
    if not found["pairs"]:
        raise RackgateError(f"{a} and {b}: they have no cell with the same name and setting")
    if as_json:
        typer.echo(json.dumps({"a": str(a), "b": str(b), **found}, indent=1))
    else:
        names = [f"{path}, run {one['manifest'].get('run_id')}" for path, one in ((a, first), (b, second))]
        with evaluating(b, run_page.EXPECTED):
            print_comparison(found, (names[0], names[1]), Console(highlight=False))
    raise typer.Exit({"alike": 0, "differs": 1, "unknown": 2}[found["said"]])
