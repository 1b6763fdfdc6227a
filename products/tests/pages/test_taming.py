"""Pages that are made to be read for hours are read up to there; others are read whole."""

from __future__ import annotations

import pytest
from products.tests.studio import shop

from millpond_products.pages import reading


@pytest.mark.parametrize(
    "page",
    [
        shop.GOOD,
        shop.OPEN_GRAPH,
        shop.PLAIN,
        shop.BROKEN,
        "<ul>" + "<li><p>One <b>word" * 30 + "</ul>" + "<p>More" * 10_000,
        "<table>" + "<tr><td>x<td><i>y</i>" * 20_000 + "</table>",
        "<svg>" + '<path d="M 0 0"/>' * 2_000 + "</svg>" + "<div><p>x</p></div>" * 5_000,
        '<img src="data:image/png;base64,' + "iVBORw0KGgoAAAANSUhEUgAAAA/" * 4_000 + '">',
    ],
)
def test_pages_as_they_are_are_read_whole(page: str) -> None:
    assert reading.tame(page) == page


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 400_000,
        "<div></x>" * 220_000,
        ("<x><y><z><div></x></y></z>") * 80_000,
        "<ul><li>" * 200_000,
        "<table><td>" * 180_000,
        "<path/>" * 100_000 + "<div>" * 200_000,
        "".join(f"<b a{n}>" for n in range(700)) + "<p>x</p>" * 200_000,
        "<div " + "".join(f"a{n}=1 " for n in range(200_000)),
        "<div " + "".join(f"a{n}='1'" for n in range(200_000)),
        "<div " * 400_000,
    ],
)
def test_pages_that_cost_their_square_are_cut(page: str) -> None:
    assert len(reading.tame(f"<title>T</title>{page}")) < 130_000
    assert reading.text_of(reading.parse(f"<title>T</title>{page}"), "title") == "T"
