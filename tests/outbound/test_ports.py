"""Ports that belong to other protocols are refused, unless an operator has named them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.errors import OutboundFailedError, OutboundRefusedError
from millpond.outbound import Outbound
from tests.outbound.watch import watched

if TYPE_CHECKING:
    from collections.abc import Sequence

RESERVED = [1, 22, 25, 53, 81, 110, 442, 444, 1023, 1433, 1521, 2379, 3306, 5432, 6379, 9042, 9200, 11211, 27017]
ORDINARY = [80, 443, 1024, 3000, 5000, 8000, 8080, 8443, 8686, 9000, 32768, 65535]


async def public(host: str, port: int) -> Sequence[str]:
    return ["198.41.0.4"]


@pytest.mark.parametrize("port", RESERVED)
@pytest.mark.parametrize("host", ["198.41.0.4", "[2001:500:2::c]", "example.com"])
async def test_a_reserved_port_is_refused_before_anything_is_opened(host: str, port: int) -> None:
    outbound = Outbound(resolve=public)
    url = f"https://{host}:{port}/hooks"
    with watched() as seen:
        for refusing in (outbound.admit(url, field="url"), outbound.send("POST", url), outbound.dial(url)):
            with pytest.raises(OutboundRefusedError, match=f"port {port} is reserved") as refused:
                await refusing
            assert refused.value.field == "url"
    assert seen == []
    await outbound.close()


@pytest.mark.parametrize("port", ORDINARY)
def test_any_other_port_may_be_called(port: int) -> None:
    assert Outbound().check(f"http://example.com:{port}/").port == port
    assert Outbound().check("https://example.com/").port == 443


@pytest.mark.parametrize(
    ("allow", "opened", "closed"),
    [
        ("*:25", ["8.8.8.8:25", "example.com:25"], ["8.8.8.8:26", "10.0.0.1:25", "localhost:25"]),
        ("10.0.0.0/8", ["10.0.0.1:8080", "10.0.0.1"], ["10.0.0.1:6379", "10.0.0.1:22"]),
        ("10.0.0.0/8 *:6379", ["10.0.0.1:6379", "8.8.8.8:6379"], ["10.0.0.1:22", "192.168.0.1:6379"]),
        ("10.0.0.7:6379", ["10.0.0.7:6379"], ["10.0.0.8:6379", "10.0.0.7:22", "8.8.8.8:6379"]),
        ("db.internal", ["db.internal:8080"], ["db.internal:5432"]),
        ("db.internal:5432", ["db.internal:5432"], ["db.internal:5433", "other.internal:5432"]),
        ("hooks.example.com:25", ["hooks.example.com:25"], ["example.com:25"]),
        ("loopback", ["127.0.0.1:9", "[::1]:5432", "localhost:22"], ["8.8.8.8:22", "10.0.0.1:22"]),
    ],
)
def test_only_the_ports_that_an_operator_names_are_open(allow: str, opened: list[str], closed: list[str]) -> None:
    outbound = Outbound(allow)
    for place in opened:
        assert outbound.check(f"http://{place}/").path == "/"
    for place in closed:
        with pytest.raises(OutboundRefusedError):
            outbound.check(f"http://{place}/")


async def test_where_a_name_leads_decides_which_ports_are_open() -> None:
    leads_to = {"inside.example.com": ["10.0.0.7"], "outside.example.com": ["198.41.0.4"]}
    leads_to["both.example.com"] = [address for each in leads_to.values() for address in each]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return leads_to[host]

    outbound = Outbound("10.0.0.7:25", resolve=resolve)
    assert (await outbound.admit("http://inside.example.com:25/")).port == 25
    for name in ("outside", "both"):
        with pytest.raises(OutboundRefusedError, match="port 25 is reserved"):
            await outbound.admit(f"http://{name}.example.com:25/")
    await outbound.close()


async def test_a_call_that_an_origin_is_allowed_for_may_reach_its_port() -> None:
    """The URL of a provider is given by the operator."""
    outbound = Outbound()
    with pytest.raises(OutboundFailedError):
        await outbound.send("GET", "http://127.0.0.1:9/", may=["http://127.0.0.1:9"])
    await outbound.close()
