"""Comparison of two results: their verdicts on every cell, and whether they are shown to be alike or to differ."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from bench import run_conditions
from bench.analysis.verdicts import interval_text
from bench.report import run_page
from bench.report.availability_table import NONE
from bench.report.cell_table import arm_labels, rejecting_arms, verdict_text
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating
from pyhooks.core.statistics import Interval
from pyhooks.core.terminal import plain

# ``alike`` if the interval of the factor lies within the equivalence band, or the same arms reject in both results;
# ``differs`` if it does not contain 1, or different arms reject; ``unknown`` if neither is shown, or the control is not
# shown to be equal; ``not judged`` if neither plan judges the quantile.
Likeness = Literal["alike", "differs", "unknown", "not judged"]
# Reasons for which a ratio does not represent its arms, so that it can't be compared with another ratio.
UNFIT = frozenset({"rejected", "not acknowledged", "missing", "few blocks", "few records"})


def factor(a: Mapping[str, Any], b: Mapping[str, Any], tail: float) -> Interval:
    """Return the ratio of ``b`` over that of ``a``, with the interval that leaves out ``tail`` at each end.

    The runs are independent, so the squared errors of the logarithms add up. The degrees of freedom are by Welch and
    Satterthwaite (Biometrics Bulletin 2, 1946).
    """
    from scipy import stats

    point = math.log(b["ratio"]["point"]) - math.log(a["ratio"]["point"])
    variance = a["error"] ** 2 + b["error"] ** 2
    if variance == 0.0:
        return Interval(math.exp(point), math.exp(point), math.exp(point))
    freedom = variance**2 / (a["error"] ** 4 / a["freedom"] + b["error"] ** 4 / b["freedom"])
    reach = math.sqrt(variance) * float(stats.t.isf(tail, max(1, math.floor(freedom))))
    return Interval(math.exp(point - reach), math.exp(point), math.exp(point + reach))


def compare_results(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two results cell by cell.

    All judged comparisons with a ratio in both results form one family: the intervals of their factors are
    simultaneously valid with the confidence of the first result (Bonferroni). ``alike`` requires an interval, and a
    ratio of the plain means, within the band. The noise of blocks does not include what one lab does to an arm; so a
    verdict also requires two equal arms that are shown to be equal, in each result and between the two.

    Returns:
        ``pairs`` (comparisons of the plan, ``a`` and ``b``; ``factor``, the second ratio over the first, or None;
        ``verdict``; ``why``, the reason for ``unknown`` and for rejections), ``only_in_a`` and ``only_in_b`` (ids of
        cells, or an arm and a quantile of a cell), ``other_setting`` (ids of cells), ``conditions`` (differences),
        ``confidence``, ``verdict`` (on all pairs together).
    """
    cells_a, cells_b = ({cell["cell"]: cell for cell in result["cells"]} for result in (a, b))
    shared = [name for name in cells_a if name in cells_b]
    other = [name for name in shared if _setting(cells_a[name]) != _setting(cells_b[name])]
    same = [(cells_a[name], cells_b[name]) for name in shared if name not in other]
    only_in_a = [name for name in cells_a if name not in cells_b]
    only_in_a += [text for cell_a, cell_b in same for text in _unmatched(cell_a, cell_b)]
    only_in_b = [name for name in cells_b if name not in cells_a]
    only_in_b += [text for cell_a, cell_b in same for text in _unmatched(cell_b, cell_a)]
    confidence = float(a["cells"][0]["confidence"]) if a["cells"] else 0.95
    tail = (1.0 - confidence) / 2
    matched = [(cell_a, cell_b, row_a, row_b) for cell_a, cell_b in same for row_a, row_b in _matched(cell_a, cell_b)]
    family = sum(
        _is_comparable(row_a) and _is_comparable(row_b) and not _not_judged(row_a, row_b)
        for _, _, row_a, row_b in matched
    )
    pairs = [
        _compare_pair(cell_a, row_a, row_b, tail / max(1, family), _controls_equal(cell_a, cell_b, row_a["at"], tail))
        for cell_a, cell_b, row_a, row_b in matched
    ]
    return {
        "schema": 1,
        "pairs": pairs,
        "only_in_a": only_in_a,
        "only_in_b": only_in_b,
        "other_setting": other,
        "conditions": run_conditions.differences(a["manifest"]["conditions"], b["manifest"]["conditions"]),
        "confidence": confidence,
        "verdict": joint_verdict([pair["verdict"] for pair in pairs], whole=not (only_in_a or only_in_b or other)),
    }


def joint_verdict(likenesses: Sequence[Likeness], *, whole: bool) -> Likeness:
    """Return one verdict on all pairs; ``whole``: whether neither result lacks a comparison of the other."""
    if "differs" in likenesses:
        return "differs"
    return "alike" if whole and set(likenesses) - {"not judged"} == {"alike"} else "unknown"


def _setting(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    baseline = {row["against"] for row in cell["comparisons"]}
    return cell["state"], cell["setting"], {arm["arm"]: arm["label"] for arm in cell["arms"] if arm["arm"] in baseline}


def _comparisons(cell: Mapping[str, Any], *, controls: bool = False) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the comparisons of a cell's candidates, or of its control, by arm and quantile."""
    role = "control" if controls else "candidate"
    # earlier results have these two roles only
    wanted = [
        row for row in cell["comparisons"] if row.get("role", "control" if row["is_control"] else "candidate") == role
    ]
    return {(row["arm"], row["at"]): row for row in wanted}


def _matched(
    a: Mapping[str, Any], b: Mapping[str, Any], *, controls: bool = False
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the comparisons that a cell has in both results."""
    rows_a, rows_b = _comparisons(a, controls=controls), _comparisons(b, controls=controls)
    return [(row, rows_b[key]) for key, row in rows_a.items() if key in rows_b]


def _controls_equal(a: Mapping[str, Any], b: Mapping[str, Any], at: str, tail: float) -> bool:
    """Return whether a cell's control at a quantile is equivalent in each result, and alike in both."""
    return any(
        row_a["verdict"] == row_b["verdict"] == "equivalent" and _shown_alike(row_a, row_b, tail)
        for row_a, row_b in _matched(a, b, controls=True)
        if row_a["at"] == at and row_a["ratio"] and row_b["ratio"]
    )


def _unmatched(cell: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the judged comparisons of a cell that the other result does not have."""
    return [
        f"{cell['cell']}: {arm} at {at}"
        for (arm, at), row in _comparisons(cell).items()
        if row["reason"] != "not judged" and (arm, at) not in _comparisons(other)
    ]


def _is_comparable(row: Mapping[str, Any]) -> bool:
    """Return whether a comparison has a ratio that represents its arms."""
    return bool(row["ratio"]) and row["reason"] not in UNFIT


def _not_judged(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return bool(a["reason"] == b["reason"] == "not judged")


def _shown_alike(a: Mapping[str, Any], b: Mapping[str, Any], tail: float) -> bool:
    """Return whether the factor's interval, and the ratio of the plain means, lie within the narrower of both bands."""
    ratio, edge = factor(a, b, tail), math.log1p(min(a["band"], b["band"]))
    mean = math.log(b["mean_ratio"]) - math.log(a["mean_ratio"])
    return -edge < math.log(ratio.low) and math.log(ratio.high) < edge and abs(mean) < edge


def _compare_pair(
    cell: Mapping[str, Any], a: Mapping[str, Any], b: Mapping[str, Any], tail: float, control_equal: bool
) -> dict[str, Any]:
    likeness: Likeness = "unknown"
    ratio, reason = None, ""
    if a["rejected"] != b["rejected"]:
        likeness = "differs"
        reason = f"{rejecting_arms(a['rejected'])} in A and {rejecting_arms(b['rejected'])} in B"
    elif a["rejected"]:
        likeness, reason = "alike", f"{rejecting_arms(a['rejected'])} in both"
    elif _is_comparable(a) and _is_comparable(b):
        ratio = factor(a, b, tail)
        likeness, reason = _likeness(a, b, tail, control_equal)
    else:
        unfit = [f"{name}: {row['reason']}" for name, row in (("A", a), ("B", b)) if not _is_comparable(row)]
        reason = f"no ratio in {', '.join(unfit)}"
    label = arm_labels(cell).get(a["arm"], a["arm"])
    return {
        "cell": cell["cell"],
        "arm": a["arm"],
        "label": label,
        "at": a["at"],
        "a": a,
        "b": b,
        "factor": ratio and asdict(ratio),
        "verdict": likeness,
        "why": reason,
    }


def _likeness(a: Mapping[str, Any], b: Mapping[str, Any], tail: float, control_equal: bool) -> tuple[Likeness, str]:
    """Return the verdict on a comparison with a ratio in both results, and the reason if it is unknown."""
    if _not_judged(a, b):
        return "not judged", ""
    if not_judged := [name for name, row in (("A", a), ("B", b)) if row["reason"] == "not judged"]:
        return "unknown", f"not judged in {not_judged[0]}"
    if not control_equal:
        return "unknown", "two equal arms are not shown to be equal"
    if _shown_alike(a, b, tail):
        # all arms share the lateness, so it would hide a difference
        late = [name for name, row in (("A", a), ("B", b)) if row["reason"] == "pacer"]
        return ("unknown", f"the pacer is late in {' and '.join(late)}") if late else ("alike", "")
    ratio = factor(a, b, tail)
    return ("unknown", "noise") if ratio.low <= 1.0 <= ratio.high else ("differs", "")


def print_comparison(comparison: Mapping[str, Any], names: Sequence[str], console: Console) -> None:
    """Print the comparison as a table and sentences."""
    for mark, name in zip("AB", names, strict=True):
        console.print(plain(f"{mark}: {name}"))
    if comparison["conditions"]:
        console.print(f"Conditions differ: {run_conditions.differences_text(comparison['conditions'])}", markup=False)
    else:
        console.print("The conditions are the same.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("cell", "arm", "at", "A: ratio, verdict", "B: ratio, verdict", "B over A", "verdict"):
        table.add_column(head)
    for pair in comparison["pairs"]:
        ratios = [verdict_text(row) if row["ratio"] else NONE for row in (pair["a"], pair["b"])]
        ratios.append(interval_text(pair["factor"]) if pair["factor"] else NONE)
        verdict = f"{pair['verdict']} ({pair['why']})" if pair["why"] else pair["verdict"]
        table.add_row(*map(plain, (pair["cell"], pair["label"], pair["at"], *ratios, verdict)))
    console.print(table)
    for text, key in (
        ("only in A", "only_in_a"),
        ("only in B", "only_in_b"),
        ("with different settings", "other_setting"),
    ):
        if comparison[key]:
            console.print(plain(f"Cells {text}, not compared: {', '.join(comparison[key])}"))
    console.print(
        f"B over A: the second ratio over the first, with {comparison['confidence']:.0%} simultaneous intervals. alike:"
        " the interval lies within the equivalence band; differs: it does not contain 1; otherwise unknown. All cells"
        f" together: {comparison['verdict'].upper()}.",
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
    if first["schema"] != second["schema"]:
        raise RackgateError(
            f"{a} and {b}: their ratios are of different kinds (schemas {first['schema']}, {second['schema']})"
        )
    for path, result in ((a, first), (b, second)):
        with evaluating(path, run_page.EXPECTED):
            # compared with itself, so that an error names the malformed file
            compare_results(result, result)
    with evaluating(b, run_page.EXPECTED):
        comparison = compare_results(first, second)
    if not comparison["pairs"]:
        raise RackgateError(f"{a} and {b}: they have no cell with the same name and setting")
    if as_json:
        typer.echo(json.dumps({"a": str(a), "b": str(b), **comparison}, indent=1))
    else:
        names = [f"{path}, run {result['manifest'].get('run_id')}" for path, result in ((a, first), (b, second))]
        with evaluating(b, run_page.EXPECTED):
            print_comparison(comparison, names, Console(highlight=False))
    raise typer.Exit({"alike": 0, "differs": 1, "unknown": 2}[comparison["verdict"]])
