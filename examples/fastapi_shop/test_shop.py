"""Tests of a product with Millpond's test kit."""
# ruff: noqa: S101 - pytest's assert

from typing import Any

import psycopg
from fastapi.testclient import TestClient

from millpond.testing import Harness


def orders(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("select customer, picture, job from orders").fetchall()


def test_an_order_is_printed_and_paid(shop: TestClient, millpond_app: Harness) -> None:
    millpond_app.wallet("shop", "ann").grant(10)
    placed = shop.post("/orders", json={"picture": "whale", "copies": 2}).json()
    assert placed["credits_left"] == 8

    job = millpond_app.assert_submitted("print", account="ann", input__copies=2)
    assert orders(millpond_app.dsn) == [("ann", "whale", job.id)]

    millpond_app.drain()
    body = shop.get(placed["job"]).json()
    assert (body["state"], body["output"]) == ("succeeded", {"pages": ["whale 1/2", "whale 2/2"]})


def test_who_cannot_pay_has_no_order(shop: TestClient, millpond_app: Harness) -> None:
    millpond_app.wallet("shop", "ann").grant(1)
    answer = shop.post("/orders", json={"picture": "whale", "copies": 2})
    assert (answer.status_code, answer.json()["code"]) == (402, "insufficient_credits")
    millpond_app.assert_not_submitted("print")
    assert orders(millpond_app.dsn) == []


def test_what_cannot_be_printed_is_paid_back(shop: TestClient, millpond_app: Harness) -> None:
    millpond_app.wallet("shop", "ann").grant(10)
    placed = shop.post("/orders", json={"picture": "whale", "copies": 2}).json()
    millpond_app.fail_next("print", times=3)
    millpond_app.drain(advance="1h")
    assert shop.get(placed["job"]).json()["state"] == "failed"
    assert millpond_app.wallet("shop", "ann").available == 10


def test_a_customer_sees_no_other_ones_jobs(shop: TestClient, millpond_app: Harness) -> None:
    millpond_app.wallet("shop", "ann").grant(10)
    placed = shop.post("/orders", json={"picture": "whale"}).json()
    assert shop.get(placed["job"], headers={"x-customer": "bob"}).status_code == 404
