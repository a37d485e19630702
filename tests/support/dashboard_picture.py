"""Picture of the dashboard, from the series of its queries, where there is no Grafana.

usage: dashboard_picture.py PANELS.json ALERTS.json PICTURE.png
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLUMNS = 4


def legend(template: str, labels: dict[str, str]) -> str:
    """Return a legend with the labels of its series, as Grafana does."""
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), template).strip() or "(no label)"


def draw(panels: list[dict[str, Any]], changes: list[dict[str, Any]], picture: Path) -> None:
    """Draw all panels; dashed lines are the steps of the scenario."""
    begin_s = min(
        float(series["values"][0][0]) for panel in panels for query in panel["queries"] for series in query["series"]
    )
    rows = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(22, 3.2 * rows), sharex=True)
    for axis, panel in zip(axes.flat, panels, strict=False):
        for query in panel["queries"]:
            for series in query["series"]:
                points = [(float(at) - begin_s, float(value)) for at, value in series["values"]]
                axis.plot(*zip(*points, strict=True), label=legend(query["legend"], series["metric"]), lw=1.2)
        for change in changes:
            if "step" in change:
                axis.axvline(change["at_s"] - begin_s, color="grey", ls="--", lw=0.5)
        axis.set_title(f"{panel['title']} [{panel['unit']}]", fontsize=9)
        axis.legend(fontsize=6, loc="upper left")
        axis.set_ylim(bottom=0)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(picture, dpi=70)


def main(panels: Path, changes: Path, picture: Path) -> None:
    """Draw the stored results of a run."""
    draw(json.loads(panels.read_text(encoding="utf-8")), json.loads(changes.read_text(encoding="utf-8")), picture)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
