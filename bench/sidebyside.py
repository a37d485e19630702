"""Two results set side by side: what each says of every cell, and whether they differ by more than chance explains."""

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

from bench import conditions, report
from bench.verdict import spread
from pyhooks.errors import RackgateError
from pyhooks.stats import Interval, student_t_quantile

Said = Literal["alike", "differs", "unknown"]
NONE = "\N{EN DASH}"


@dataclass(frozen=True)
class Pair:
    """One comparison of the plans, in both results.

    Attributes:
        cell: id of the cell.
        arm: id of the candidate.
        label: of the candidate.
        at: name of the quantile.
        a: the comparison in the first result, as ``results.json`` has it.
        b: the same in the second one.
        factor: the second ratio over the first, with the interval of that; None if one of them has no ratio.
        said: ``differs`` if the interval of ``factor`` does not hold 1, or an arm refuses in one of them alone.
        why: for ``unknown``, and for refusals.
    """

    cell: str
    arm: str
    label: str
    at: str
    a: Mapping[str, Any]
    b: Mapping[str, Any]
    factor: Interval | None
    said: Said
    why: str


def factor(a: Mapping[str, Any], b: Mapping[str, Any], tail: float) -> Interval:
    """The ratio of ``b`` over the one of ``a``, with the interval that leaves out ``tail`` at each end.

    The runs are independent, so the errors of the logarithms add up as squares; degrees of freedom by Welch and
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


def beside(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that two results say of the same cells.

    All comparisons with a ratio in both are one family: the intervals of their factors hold together with the
    confidence of the first result (Bonferroni), so "differs" anywhere is wrong with what is left of it at most. What
    one lab does to an arm and another does not is in no block's noise; the control shows it. Where two equal arms
    differ between the results, the others are not said to differ: that is unknown.

    Args:
        a: of ``bench.report.load``.
        b: likewise.

    Returns:
        ``pairs``, ``only_in_a``, ``only_in_b`` and ``other_setting`` (ids of cells), ``conditions`` (what differs),
        ``confidence``, ``said`` (of all pairs together).
    """
    cells_a, cells_b = ({cell["cell"]: cell for cell in one["cells"]} for one in (a, b))
    shared = [name for name in cells_a if name in cells_b]
    other = [name for name in shared if _setting(cells_a[name]) != _setting(cells_b[name])]
    rows = [row for name in shared if name not in other for row in _rows(cells_a[name], cells_b[name])]
    confidence = float(a["cells"][0]["confidence"]) if a["cells"] else 0.95
    family = sum(1 for *_, one, two in rows if one["ratio"] and two["ratio"])
    tail = (1.0 - confidence) / 2 / max(1, family)
    unequal = {
        (name, row["at"])
        for name in shared
        for row, theirs in _controls(cells_a[name], cells_b[name])
        if not _holds_one(factor(row, theirs, (1.0 - confidence) / 2))
    }
    pairs = [_pair(name, label, one, two, tail, (name, one["at"]) in unequal) for name, label, one, two in rows]
    return {
        "schema": 1,
        "pairs": [asdict(pair) for pair in pairs],
        "only_in_a": [name for name in cells_a if name not in cells_b],
        "only_in_b": [name for name in cells_b if name not in cells_a],
        "other_setting": other,
        "conditions": conditions.differences(_conditions(a), _conditions(b)),
        "confidence": confidence,
        "said": together([pair.said for pair in pairs]),
    }


def together(said: Sequence[Said]) -> Said:
    """One word for all: nothing compared, or something that could not be, is no agreement."""
    if "differs" in said:
        return "differs"
    return "unknown" if "unknown" in said or not said else "alike"


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


def _controls(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The controls that have a ratio in both."""
    theirs = {(row["arm"], row["at"]): row for row in b["comparisons"] if row["is_control"] and row["ratio"]}
    for row in a["comparisons"]:
        if row["is_control"] and row["ratio"] and (row["arm"], row["at"]) in theirs:
            yield row, theirs[row["arm"], row["at"]]


def _holds_one(found: Interval) -> bool:
    return found.low <= 1.0 <= found.high


def _pair(
    cell: str, label: str, a: Mapping[str, Any], b: Mapping[str, Any], tail: float, control_differs: bool
) -> Pair:
    said: Said = "unknown"
    found, why = None, ""
    if a["refused"] != b["refused"]:
        said, why = "differs", " and ".join(
            f"{', '.join(one['refused']) or 'nobody'} refuses in {name}" for name, one in (("A", a), ("B", b))
        )  # fmt: skip
    elif a["refused"]:
        said, why = "alike", f"{', '.join(a['refused'])} refuses in both"
    elif a["ratio"] and b["ratio"]:
        found = factor(a, b, tail)
        said = "alike" if _holds_one(found) else "differs"
        if said == "differs" and control_differs:
            said, why = "unknown", "two equal arms differ, too"
    else:
        lack = [f"{name}: {one['reason']}" for name, one in (("A", a), ("B", b)) if not one["ratio"]]
        why = f"no ratio in {', '.join(lack)}"
    return Pair(cell, a["arm"], label, a["at"], a, b, found, said, why)


def _word(row: Mapping[str, Any]) -> str:
    if row["reason"] == "not judged":
        return "not judged"
    return f"{row['word']} ({row['reason']})" if row["word"] == "undecided" else str(row["word"])


def show(found: Mapping[str, Any], names: tuple[str, str], console: Console) -> None:
    """As a table and sentences.

    Args:
        found: of ``beside``.
        names: of the results, for people.
        console: where to.
    """
    console.print(f"A: {names[0]}\nB: {names[1]}", markup=False)
    if found["conditions"]:
        console.print(f"Conditions differ: {conditions.told(found['conditions'])}", markup=False)
    else:
        console.print("The conditions are the same.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("cell", "arm", "at", "A: ratio, word", "B: ratio, word", "B over A", "said"):
        table.add_column(head)
    for pair in found["pairs"]:
        own = [f"{spread(one['ratio'])}, {_word(one)}" if one["ratio"] else NONE for one in (pair["a"], pair["b"])]
        over = spread(pair["factor"]) if pair["factor"] else NONE
        said = f"{pair['said']} ({pair['why']})" if pair["why"] else pair["said"]
        table.add_row(pair["cell"], pair["label"], pair["at"], *own, over, said)
    console.print(table)
    for text, key in (("only in A", "only_in_a"), ("only in B", "only_in_b"), ("of another setting", "other_setting")):
        if found[key]:
            console.print(f"Cells {text}, not compared: {', '.join(found[key])}", markup=False)
    console.print(
        f"B over A: the second ratio over the first; its intervals hold together with {found['confidence']:.0%}. Where"
        f" one does not hold 1, the results differ by more than chance explains. Together: {found['said'].upper()}.",
        markup=False,
    )


EPILOG = (
    "Example: rackgate bench compare out/bench out/bench-full --json. Ends with 0 if all cells are alike, with 1 if one"
    " differs, with 2 if that can't be told of one."
)


def compare_command(
    a: Annotated[Path, typer.Argument(help="results.json, or the folder that holds it.")],
    b: Annotated[Path, typer.Argument(help="Another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="All figures, for programs.")] = False,
) -> None:
    """Sets two results side by side: ratios, words, and whether they differ by more than chance explains."""
    first, second = report.load(a), report.load(b)
    found = beside(first, second)
    if not found["pairs"]:
        raise RackgateError(f"{a} and {b}: no cell with the same name and setting is in both")
    if as_json:
        typer.echo(json.dumps({"a": str(a), "b": str(b), **found}, indent=1))
    else:
        names = [f"{path}, run {one['manifest']['run_id']}" for path, one in ((a, first), (b, second))]
        show(found, (names[0], names[1]), Console(highlight=False))
    raise typer.Exit({"alike": 0, "differs": 1, "unknown": 2}[found["said"]])
