"""The page of the outage benchmark in a browser."""

from __future__ import annotations

from pathlib import Path

from bench.outages import outage_page
from outage_benchmark_results import result
from pyhooks.report import browser


def test_a_browser_shows_the_page_without_an_error_and_without_scrolling_sideways(tmp_path: Path) -> None:
    outage_page.render(result(), tmp_path)
    shown = """[...document.querySelectorAll('figure')].map(figure => [...figure.querySelectorAll('svg')].filter(
        svg => svg.getBoundingClientRect().width > 300 && svg.querySelectorAll('path').length > 10).length)"""
    with browser.open_browser() as page:
        for width, dark in ((1280, False), (390, True)):
            page.visit(tmp_path / "index.html", width=width, dark=dark)
            assert page.errors == []
            # one of the two widths of each picture
            assert page.evaluate(shown) == [1, 1, 1, 1]
            assert page.evaluate("document.documentElement.scrollWidth") == width
