"""The manual can be made of what each product declares, and of the native API that serves the kinds of all of them."""

from __future__ import annotations

from functools import partial

import pytest

from millpond.api.documents import manual, openapi
from millpond.api.native import ROUTES
from millpond.api.webhooks.inbox import ROUTES as INBOX_ROUTES
from millpond.cli.apps import chosen
from millpond.product import Product
from millpond_products.catalog import PRODUCTS


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_each_product_has_a_manual(product: Product) -> None:
    page = manual.page(openapi.document(product.routes, {}, product=product), f"/{product.name}", lambda _: 400)
    assert page.endswith("</html>")


def test_the_manual_describes_the_kinds_of_all_products() -> None:
    kinds = chosen(None, ["all"]).app.kinds
    assert len(kinds) > len(PRODUCTS)
    page = manual.page(openapi.document((*ROUTES, *INBOX_ROUTES), kinds), "", partial(openapi.status_of, product=None))
    assert all(f"<section id='shape-Input.{kind}'>" in page for kind in kinds)
