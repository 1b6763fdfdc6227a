"""Pages that are made to be read for hours."""

from __future__ import annotations

import pytest

from millpond_products.pages import reading

MANY = " ".join(f"a{n}" for n in range(60_000))
CROWDED = [
    f"<a {MANY}>",
    f'<a x=">" {MANY}>',
    f'<a e=f="g h=">" {MANY}>',
    f'<!-- <a ="--><a x=">" {MANY}>',
    f"</a x='>' {MANY}>",
]


@pytest.mark.parametrize("crowd", CROWDED)
def test_a_page_ends_before_a_tag_with_thousands_of_attributes(crowd: str) -> None:
    """Wherever the quotes are: for each attribute, a parser looks through those before."""
    tamed = reading.tame(f"<title>Lamp</title>{crowd}<p>End</p>")
    assert len(tamed) < 60
    assert reading.text_of(reading.parse(tamed), "title") == "Lamp"


def test_what_looks_like_tags_in_a_tag_is_looked_through_once() -> None:
    """For each of them, all that follows was searched: two hundred gigabytes for this page."""
    html = "<title>Lamp</title>" + f"<a{'b' * 30}" * 10_000 + "c" * 20_000_000
    assert reading.tame(html) == html


def test_of_a_list_in_a_script_the_beginning_is_seen() -> None:
    described = f'[{{"name": "Lamp"}}{", 0" * 100_000}, {{"name": "End"}}]'
    tree = reading.parse(f'<script type="application/ld+json">{described}</script>')
    assert list(reading.json_ld(tree)) == [{"name": "Lamp"}]


def test_a_long_value_is_no_crowd() -> None:
    html = "<p data-props='" + '{"a": 1 > 0} ' * 20_000 + "'>Lamp</p><p class=end>"
    assert reading.tame(html) == html
