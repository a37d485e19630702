"""The result page in a browser: on a desktop, on a phone, in dark mode, in print."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.analysis import verdicts
from bench.report import availability_table, cell_table, document_pictures, figures, run_page
from bench_results import made_up
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.report import browser, plots
from pyhooks.report.browser import Page

PHONE = 390
# For each picture, the drawing that the page displays: its width, and whether it is not blank.
SHOWN = """[...document.querySelectorAll('figure')].map(figure => {
  const drawn = [...figure.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0);
  return [figure.id, drawn.length, ...(drawn.length ? [drawn[0].getBoundingClientRect().width,
    drawn[0].querySelectorAll('path').length] : [0, 0])];
})"""
NATURAL = """Promise.all(NAMES.map(name => new Promise(done => {
  const image = new Image(); image.onload = image.onerror = () => done([name, image.naturalWidth]); image.src = name;
})))"""


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return made_up()


@pytest.fixture(scope="module")
def out(result: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    run_page.render(result, folder)
    return folder


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser.open_browser() as one:
        yield one


def size(png: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", png.read_bytes()[16:24])
    return width, height


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (PHONE, False), (PHONE, True)])
def test_the_page_shows_every_picture_without_an_error_and_without_scrolling_sideways(
    page: Page, out: Path, result: dict[str, Any], width: int, dark: bool
) -> None:
    page.visit(out / "index.html", width=width, dark=dark)
    assert page.errors == []
    shown = page.evaluate(SHOWN)
    assert {name for name, *_ in shown} == {f"picture-{name}" for name in figures.pictures(result)}
    for name, drawings, wide, lines in shown:
        assert drawings == 1, f"{name}: {drawings} of its widths are shown"
        assert wide > 0.8 * min(width - 32, 1024 - 32), name
        assert lines > 10, name
    assert page.evaluate("document.documentElement.scrollWidth") == width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark
    # texts are large enough to be read on a phone
    assert page.evaluate("Math.min(...[...document.querySelectorAll('p, td, li')].map(one =>"
                         " parseFloat(getComputedStyle(one).fontSize)))") >= 12  # fmt: skip


def test_the_pictures_beside_it_are_images_that_a_browser_draws(page: Page, out: Path, result: dict[str, Any]) -> None:
    page.visit(out / "index.html")
    names = [f"{name}.{kind}" for name in figures.pictures(result) for kind in ("png", "svg")]
    assert {path.name for path in out.iterdir()} == {*names, "index.html", "table.md"}
    loaded = page.evaluate(NATURAL.replace("NAMES", json.dumps(names)))
    assert [name for name, _ in loaded] == names
    assert all(width > 0 for _, width in loaded), loaded


def test_screenshots_and_print(page: Page, out: Path, tmp_path: Path) -> None:
    page.visit(out / "index.html", width=PHONE)
    wide, high = size(page.screenshot(tmp_path / "phone.png"))
    assert wide == 2 * PHONE
    assert high > 2 * wide
    page.visit(out / "index.html", dark=True)
    dark = page.screenshot(tmp_path / "dark.png", "document.querySelector('#picture-timeline')")
    assert size(dark)[0] > 600
    with pytest.raises(RackgateError, match="not visible on the page"):
        page.screenshot(tmp_path / "none.png", "document.querySelector('#nothing')")
    printed = page.pdf(tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF-")
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") + printed.count(b"/Type/Page") >= 3


def test_errors_of_a_page_are_detected(page: Page, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(
        "<!doctype html><title>x</title><img src='http://elsewhere.invalid/x.png'>"
        "<script>console.error('told'); console.log('no error'); nothing()</script>",
        encoding="utf-8",
    )
    page.visit(broken)
    assert len(page.errors) == 3
    errors = " ".join(page.errors)
    assert all(word in errors for word in ("told", "nothing is not defined", "elsewhere.invalid"))
    assert page.evaluate("1 + 1") == 2
    with pytest.raises(RackgateError, match=r"script failed: .*missing"):
        page.evaluate("missing()")
    with pytest.raises(RackgateError, match="ERR_FILE_NOT_FOUND"):
        page.visit(tmp_path / "absent.html")


def test_a_browser_that_ends_is_an_error() -> None:
    with pytest.raises(RackgateError, match="the browser ended"), browser.open_browser("false"):
        pytest.fail("there is no browser")


def test_the_availability_of_each_arm_and_state_is_on_the_page_and_in_the_table(
    page: Page, out: Path, result: dict[str, Any]
) -> None:
    page.visit(out / "index.html")
    script = "[...document.querySelectorAll('#outcomes tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    head, *rows = page.evaluate(script)
    found = availability_table.arm_availabilities(result)
    assert [word.strip() for word in head] == list(availability_table.HEAD)
    assert [[word.strip() for word in row] for row in rows] == [one.row for one in found]
    assert len(found) == 4 + 2 * 5
    rejected = next(one for one in found if one.arm == "D")
    assert rejected.row[2:] == [
        "all of 2,440", "none of 740", "9.9 s", "1.6 s", "was rejected",
    ]  # fmt: skip
    assert next(one for one in found if one.arm == "A").row[4:6] == [
        availability_table.NEVER,
        availability_table.NOT_STOPPED,
    ]
    markdown = cell_table.markdown(result)
    for one in found:
        assert "| " + " | ".join(one.row) + " |" in markdown


def test_an_unproved_fault_has_no_times_and_nearly_all_is_not_all(result: dict[str, Any]) -> None:
    other = json.loads(json.dumps(result))
    other["outage"]["proved"] = False
    row = availability_table.arm_availabilities(other)[2].row
    assert row[4:6] == ["unknown", "unknown"]
    assert availability_table.share_text(99_999, 100_000) == "99.99 % of 100,000"
    assert availability_table.share_text(1, 100_000) == "0.01 % of 100,000"
    assert availability_table.share_text(0, 0) == "\N{EN DASH}"
    assert availability_table.share_text(1, 3) == "33.33 % of 3"


def test_arms_have_distinct_colours(result: dict[str, Any]) -> None:
    for palette in (plots.LIGHT, plots.DARK, figures.MARKED):
        found = figures.colours(result, palette)
        assert len(set(found.values())) == len(found) == 7


def test_the_readme_s_pictures_are_made_from_a_result_and_name_it(
    result: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "results.json"
    # the result of the README has a question, this one has none
    stored.write_bytes(document_pictures.STORED.read_bytes())
    assert document_pictures.main(["--result", str(stored), "--out", str(tmp_path / "out")]) == 0
    made = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [picture.name for picture in made] == [document_pictures.OUTAGE, document_pictures.ANSWER]
    kept = tmp_path / "out" / "bench" / "results.json"
    assert kept.read_bytes() == stored.read_bytes()
    for picture in made:
        assert document_pictures.source_of(picture) == document_pictures.digest(kept)
        assert min(size(picture)) > 200
    # draw again from the stored result, as "make readme-pictures" does
    assert document_pictures.main(["--result", str(kept), "--out", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    stored.write_text(json.dumps(result | {"outage": None, "cells": result["cells"][:1]}), encoding="utf-8")
    assert document_pictures.main(["--result", str(stored), "--out", str(tmp_path / "out")]) == 2
    assert "has neither an outage nor several cells" in capsys.readouterr().err


def test_the_picture_of_all_cells_is_made_from_a_result_without_an_outage(
    result: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "results.json"
    other = {**result["cells"][0], "cell": "again"}
    stored.write_text(json.dumps({**result, "cells": [result["cells"][0], other], "outage": None}), encoding="utf-8")
    assert document_pictures.main(["--result", str(stored), "--out", str(tmp_path / "out")]) == 0
    made = tmp_path / "out" / document_pictures.CELLS
    assert capsys.readouterr().out.splitlines() == [str(made)]
    kept = tmp_path / "out" / "bench-full" / "results.json"
    assert kept.read_bytes() == stored.read_bytes()
    assert document_pictures.source_of(made) == document_pictures.digest(kept)
    assert min(size(made)) > 200


def test_the_text_about_twelve_cells_equals_the_stored_result() -> None:
    assert document_pictures.source_of(
        document_pictures.EVIDENCE / document_pictures.CELLS
    ) == document_pictures.digest(document_pictures.STORED_CELLS), "make readme-pictures"
    stored = run_page.load(document_pictures.STORED_CELLS)
    text = (paths.REPO / "bench" / "README.md").read_text(encoding="utf-8")
    text = text.split("## Latency in twelve cells")[1].split("## ")[0]
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert len(rows) == 12
    compared = [
        (row, cell)
        for cell in stored["cells"]
        for row in cell["comparisons"]
        if row["arm"] == "B" and row["at"] in cell["judged"]
    ]
    assert {cell["cell"] for _, cell in compared} == set(rows)
    for row, cell in compared:
        verdict = f"{verdicts.interval_text(row['ratio'])}, {row['verdict']}" if row["ratio"] else "both reject"
        assert verdict in rows[cell["cell"]], f"{cell['cell']}: {verdict}"
    assert f"{stored['end_to_end']['acked']:,} acknowledged records" in text
    assert f"{stored['target']['duration_min']:.1f} minutes" in text


def test_the_readme_s_picture_and_text_equal_the_stored_result() -> None:
    for name in (document_pictures.OUTAGE, document_pictures.ANSWER):
        assert document_pictures.source_of(document_pictures.EVIDENCE / name) == document_pictures.digest(
            document_pictures.STORED
        ), f"make readme-pictures: {name}"
    stored = json.loads(document_pictures.STORED.read_text(encoding="utf-8"))
    assert stored["cells"][0]["answer"]["answer"] == "waits-for-isr", "the sentence above the picture in README.md"
