"""A call is bounded in time and in memory, whoever answers it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest

from millpond.errors import OutboundFailedError, OutboundRefusedError, SettingsError, TooLargeError
from millpond.outbound import Outbound, resolver
from tests.doubles.receivers import FOREVER, Receivers
from tests.outbound.watch import watched
from tests.waiting import PATIENCE

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
async def outbound(anyio_backend: str) -> AsyncIterator[Outbound]:
    made = Outbound("loopback")
    yield made
    await made.close()


# What is sent


async def test_a_call_arrives_as_it_was_given_and_the_answer_comes_back(outbound: Outbound, others: Receivers) -> None:
    answer = await outbound.send(
        "POST", others.url("healthy", "plain"), headers={"Webhook-Id": "msg_1", "X-More": "ä"}, body=b'{"a":1}'
    )
    assert (answer.status, answer.body, answer.is_cut, answer.address) == (200, b"taken", False, "127.0.0.1")
    assert 0 < answer.seconds < 15
    (came,) = others.of("plain")
    assert came.body == b'{"a":1}'
    assert came.id == "msg_1"
    assert came.headers["host"] == f"127.0.0.1:{others.port}"
    assert came.headers["content-length"] == "7"
    assert came.headers["accept-encoding"] == "identity"
    assert came.headers["user-agent"].startswith("Millpond/")


async def test_what_is_ours_to_say_is_not_the_callers(outbound: Outbound, others: Receivers) -> None:
    """A length or a host of somebody's own would make two requests out of one, or call another host."""
    given = {"Host": "inside", "Content-Length": "0", "Transfer-Encoding": "chunked", "Connection": "upgrade"}
    await outbound.send("POST", others.url("healthy", "ours"), headers=given, body=b"{}")
    (came,) = others.of("ours")
    assert came.headers["host"] == f"127.0.0.1:{others.port}"
    assert came.headers["content-length"] == "2"
    assert "transfer-encoding" not in came.headers
    assert "connection" not in came.headers


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "\x00"])
async def test_a_header_cannot_smuggle_another(outbound: Outbound, others: Receivers, value: str) -> None:
    with pytest.raises(OutboundFailedError) as failed:
        await outbound.send("POST", others.url("healthy", "smuggled"), headers={"x-a": value})
    assert failed.value.reason == "protocol"
    assert others.of("smuggled") == []


async def test_a_connection_is_used_again_and_one_that_was_cut_is_not(others: Receivers) -> None:
    outbound = Outbound("loopback")
    before = others.connections
    for _ in range(10):
        await outbound.send("POST", others.url("healthy", "again"), body=b"{}")
    assert others.connections == before + 1
    assert (await outbound.send("POST", others.url("huge", "again"))).is_cut
    await outbound.send("POST", others.url("healthy", "again"), body=b"{}")
    assert others.connections == before + 2
    await outbound.close()


# Whom it may call


async def test_an_origin_that_is_open_to_one_call_is_closed_to_the_next(others: Receivers) -> None:
    """Also while the connection of the first is still there to be used again."""
    outbound = Outbound()
    url = others.url("healthy", "provider")
    origin = f"http://127.0.0.1:{others.port}"
    assert (await outbound.send("POST", url, may=[origin])).status == 200
    assert (await outbound.send("POST", url, may=["https://example.com", origin + "/ignored"])).status == 200
    async with outbound.stream("POST", url, size_max=100, may=[origin]) as streamed:
        assert b"".join([chunk async for chunk in streamed]) == b"taken"
    for may in ([], [f"https://127.0.0.1:{others.port}"], ["http://127.0.0.1"], ["http://localhost"]):
        with pytest.raises(OutboundRefusedError):
            await outbound.send("POST", url, may=may)
    assert len(others.of("provider")) == 3
    await outbound.close()


@pytest.mark.parametrize(
    ("allow", "opened", "closed"),
    [
        ("loopback", ["127.0.0.1", "127.8.8.8:9", "[::1]", "localhost"], ["10.0.0.1", "db", "169.254.169.254"]),
        ("10.0.0.0/8", ["10.1.2.3", "10.0.0.1:1999"], ["127.0.0.1", "192.168.0.1"]),
        ("127.0.0.1:8080", ["127.0.0.1:8080"], ["127.0.0.1", "127.0.0.1:8081", "[::1]:8080", "127.0.0.2:8080"]),
        ("[::1]:9", ["[::1]:9", "[0:0::1]:9"], ["[::1]", "127.0.0.1:9", "[::ffff:127.0.0.1]:9"]),
        ("fd00::/8", ["[fd12::1]"], ["[fe80::1]", "[::1]"]),
        ("::1", ["[::1]:1077"], ["127.0.0.1"]),
        ("hooks.internal", ["hooks.internal", "HOOKS.internal:1999"], ["x.hooks.internal", "internal", "127.0.0.1"]),
        ("hooks.internal:8080", ["hooks.internal:8080"], ["hooks.internal", "hooks.internal:8081"]),
        (
            "db:5432 , 10.0.0.7\n192.168.1.0/24",
            ["db:5432", "10.0.0.7:1024", "192.168.1.9"],
            ["10.0.0.8", "192.168.2.1"],
        ),
        ("", [], ["127.0.0.1", "localhost", "10.0.0.1"]),
    ],
)
def test_what_is_opened_is_open_and_nothing_else(allow: str, opened: list[str], closed: list[str]) -> None:
    outbound = Outbound(allow)
    for place in opened:
        assert outbound.check(f"http://{place}/").path == "/"
    for place in closed:
        # Where networks are opened, a name is judged by where it leads, when it is looked up.
        if outbound._openings.networks and not any(letter.isdigit() for letter in place):
            continue
        with pytest.raises(OutboundRefusedError):
            Outbound(allow).check(f"http://{place}/")


async def test_a_name_of_the_inside_is_open_where_all_that_it_leads_to_is_opened(others: Receivers) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return {"hooks": ["127.0.0.1"], "mixed": ["127.0.0.1", "10.0.0.1"], "world": ["8.8.8.8"]}[host]

    outbound = Outbound("loopback", resolve=resolve)
    assert (await outbound.send("POST", f"http://hooks:{others.port}/healthy/inside")).status == 200
    for name in ("mixed", "world"):
        with pytest.raises(OutboundRefusedError):
            await outbound.admit(f"http://{name}:{others.port}/")
    named = Outbound(f"mixed:{others.port}", resolve=resolve)
    assert (await named.send("POST", f"http://mixed:{others.port}/healthy/inside")).status == 200
    await outbound.close()
    await named.close()


@pytest.mark.parametrize(
    "entry",
    [
        *("10.1.0.0/8", "http://hooks", "*", "a b!c", "hooks:99999", "user@hooks", "127.1", "/"),
        *("*:", "*:0", "*:65536", "*:x", "*:\u0661"),
    ],
)
def test_what_cannot_be_opened_is_named(entry: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Outbound([entry])
    assert repr(entry) in str(refused.value)
    assert refused.value.field == "outbound_allow"


# Who answers badly


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("down", "connect"),
        ("resets", "reset"),
        ("half_closes", "reset"),
        ("garbage", "protocol"),
        ("endless_head", "protocol"),
        ("slow", "timeout"),
        ("dribbles", "timeout"),
        ("endless_hints", "timeout"),
    ],
)
async def test_who_gives_no_answer_fails_for_a_reason(
    outbound: Outbound, others: Receivers, mode: str, reason: str
) -> None:
    with pytest.raises(OutboundFailedError) as failed:
        await outbound.send("POST", others.url(mode), body=b"{}", seconds=0.5 if reason == "timeout" else PATIENCE)
    assert failed.value.reason == reason
    assert "127.0.0.1" not in str(failed.value)
    assert failed.value.as_dict()["reason"] == reason


async def test_who_never_reads_is_left_with_it(outbound: Outbound, others: Receivers) -> None:
    with pytest.raises(OutboundFailedError) as failed:
        await outbound.send("POST", others.url("never_reads"), body=b"x" * 20 * MEGABYTE, seconds=0.5)
    assert failed.value.reason == "timeout"


@pytest.mark.parametrize("status", [400, 404, 410, 500, 503])
async def test_a_status_is_an_answer(outbound: Outbound, others: Receivers, status: int) -> None:
    answer = await outbound.send("POST", others.url("error", status=status))
    assert (answer.status, answer.body) == (status, b"no")


async def test_retry_after_is_reported(outbound: Outbound, others: Receivers) -> None:
    answer = await outbound.send("POST", others.url("limited", seconds=7))
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")


@pytest.mark.parametrize("mode", ["huge", "huge_chunked"])
async def test_a_gigabyte_is_cut_and_takes_no_memory(outbound: Outbound, others: Receivers, mode: str) -> None:
    tracemalloc.start()
    try:
        answers = await asyncio.gather(*(outbound.send("POST", others.url(mode), size_max=1_000) for _ in range(5)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(answer.status, len(answer.body), answer.is_cut) for answer in answers] == [(200, 1_000, True)] * 5
    assert peak < 20 * MEGABYTE


@pytest.mark.parametrize(("mode", "body", "seconds"), [("cuts", b"half", PATIENCE), ("dribbles_body", b".", 2.0)])
async def test_a_status_that_was_reported_counts_though_its_body_does_not_come(
    outbound: Outbound, others: Receivers, mode: str, body: bytes, seconds: float
) -> None:
    answer = await outbound.send("POST", others.url(mode, seconds=FOREVER), seconds=seconds)
    assert (answer.status, answer.is_cut, answer.body) == (200, True, body)


async def test_what_is_exactly_as_large_as_it_may_be_is_whole(outbound: Outbound, others: Receivers) -> None:
    answer = await outbound.send("POST", others.url("healthy", "exact"), size_max=len(b"taken"))
    assert (answer.body, answer.is_cut) == (b"taken", False)
    answer = await outbound.send("POST", others.url("healthy", "exact"), size_max=len(b"taken") - 1)
    assert (answer.body, answer.is_cut) == (b"take", True)


async def test_a_stream_that_is_too_large_is_an_error(outbound: Outbound, others: Receivers) -> None:
    with pytest.raises(TooLargeError):  # it says so itself
        async with outbound.stream("POST", others.url("huge"), size_max=MEGABYTE):
            pass
    read = 0
    with pytest.raises(TooLargeError):  # noqa: PT012 - where it stops is the point
        async with outbound.stream("POST", others.url("huge_chunked"), size_max=MEGABYTE) as streamed:
            async for chunk in streamed:
                read += len(chunk)
    assert read <= MEGABYTE


@pytest.mark.parametrize(
    ("mode", "reason", "seconds"), [("cuts", "protocol", PATIENCE), ("dribbles_body", "timeout", 2.0)]
)
async def test_a_stream_that_breaks_off_is_an_error(
    outbound: Outbound, others: Receivers, mode: str, reason: str, seconds: float
) -> None:
    with pytest.raises(OutboundFailedError) as failed:  # noqa: PT012 - as above
        async with outbound.stream("POST", others.url(mode), size_max=GIGABYTES, seconds=seconds) as streamed:
            assert streamed.status == 200
            async for _ in streamed:
                pass
    assert failed.value.reason == reason


GIGABYTES = 4 << 30


async def test_an_error_of_whoever_reads_a_stream_stays_theirs(outbound: Outbound, others: Receivers) -> None:
    with pytest.raises(TimeoutError, match="mine"):
        async with outbound.stream("POST", others.url("huge_chunked"), size_max=GIGABYTES):
            raise TimeoutError("mine")


async def test_the_sick_leave_nothing_behind(others: Receivers) -> None:
    """Neither connections nor places: whoever calls afterwards is served."""
    outbound = Outbound("loopback", connections=100)
    sick = ("down", "slow", "resets", "dribbles", "huge", "error", "half_closes", "endless_head", "never_reads")

    async def call(mode: str) -> str:
        seconds = 1.0 if mode in ("slow", "dribbles", "never_reads") else PATIENCE
        try:
            return str((await outbound.send("POST", others.url(mode), body=b"x" * 100, seconds=seconds)).status)
        except OutboundFailedError as failed:
            return failed.reason

    before = open_sockets()
    results = await asyncio.gather(*(call(mode) for mode in sick * 4))
    assert set(results) == {"connect", "timeout", "reset", "200", "500", "protocol"}
    assert (await outbound.send("POST", others.url("healthy", "after"), body=b"{}")).status == 200
    assert outbound._slots._value == 100
    await outbound.close()
    await others.hang_up()
    await asyncio.sleep(0)  # what was closed is closed in the next round
    assert open_sockets() <= before


def open_sockets() -> int:
    """How many descriptors of this process are sockets."""
    found = 0
    for number in range(4_096):
        with contextlib.suppress(OSError):
            found += stat.S_ISSOCK(os.fstat(number).st_mode)
    return found


async def test_those_who_want_the_same_name_wait_for_one_answer() -> None:
    """So a name whose server is silent takes one thread, however many messages wait for it."""
    outbound = Outbound("loopback")
    with watched() as seen:
        await asyncio.gather(*(outbound.admit("http://localhost:9/") for _ in range(50)))
    assert seen == [("socket.getaddrinfo", "localhost")]
    await outbound.close()


async def test_calls_wait_for_each_other_where_there_are_more_than_may_be_under_way(others: Receivers) -> None:
    outbound = Outbound("loopback", connections=2)
    before = others.connections
    await asyncio.gather(*(outbound.send("POST", others.url("healthy", "many"), body=b"{}") for _ in range(40)))
    assert len(others.of("many")) == 40
    assert others.connections - before <= 4
    await outbound.close()


# Looking names up


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> Iterator[LookUps]:
    """The machine's resolver, with a domain whose servers never answer while the test runs."""
    made = LookUps()
    monkeypatch.setattr(resolver, "_look_up", made)
    yield made
    made.over.set()


class LookUps:
    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked: list[str] = []
        self.silent: set[str] = set()

    def __call__(self, host: str, _port: int) -> list[str]:
        self.asked.append(host)
        if any(host.endswith(silent) for silent in self.silent):
            self.over.wait(PATIENCE)
            raise socket.gaierror(socket.EAI_AGAIN, "silent")
        if host.endswith(".absent.example"):
            raise socket.gaierror(socket.EAI_NONAME, "absent")
        return ["93.184.216.34"]


async def test_names_that_are_never_answered_keep_no_healthy_one_waiting(
    look_ups: LookUps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: of one domain, they do not even stand before names that are new."""
    resolve = resolver.Resolver()
    look_ups.silent = {".evil.example"}
    await resolve("known.example.com", 443)
    slow = [asyncio.ensure_future(resolve(f"a{n}.evil.example", 443)) for n in range(500)]
    async with asyncio.timeout(PATIENCE):
        while not any(host.endswith("evil.example") for host in look_ups.asked):
            await asyncio.sleep(0.01)
        assert await resolve("new.example.com", 443) == ["93.184.216.34"]
        assert len([host for host in look_ups.asked if host.endswith("evil.example")]) <= 4
        look_ups.silent |= {f".evil{n}.example" for n in range(100)}
        slow += [asyncio.ensure_future(resolve(f"a{n}.evil{n}.example", 443)) for n in range(100)]
        while not any(f".evil{n}.example" in host for n in range(100) for host in look_ups.asked):
            await asyncio.sleep(0.01)
        monkeypatch.setattr(resolver, "KEPT_SECONDS", 0.0)
        for name in ("known.example.com", "new.example.com"):
            assert await resolve(name, 443) == ["93.184.216.34"]
    look_ups.over.set()
    resolve.close()
    assert all(isinstance(each, BaseException) for each in await asyncio.gather(*slow, return_exceptions=True))


async def test_a_good_answer_is_kept_for_a_while_and_a_bad_one_is_not(
    look_ups: LookUps, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = resolver.Resolver()
    for port in (443, 8443, 443):
        assert await resolve("known.example.com", port) == ["93.184.216.34"]
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await resolve("a.absent.example", 443)
    assert look_ups.asked == ["known.example.com", "a.absent.example", "a.absent.example"]
    monkeypatch.setattr(resolver, "KEPT_SECONDS", 0.0)
    await resolve("known.example.com", 443)
    assert look_ups.asked[-1] == "known.example.com"
    resolve.close()


async def test_an_answer_that_is_kept_is_checked_again(look_ups: LookUps, others: Receivers) -> None:
    """Nothing that was admitted once is called unseen."""
    outbound = Outbound("10.0.0.0/8")
    assert (await outbound.admit("http://rebinding.example.com/")).host == "rebinding.example.com"
    resolve: resolver.Resolver = outbound._resolver
    resolve._known["rebinding.example.com"] = (time.monotonic(), ["127.0.0.1"])
    for _ in range(2):
        with pytest.raises(OutboundRefusedError):
            await outbound.send("POST", f"http://rebinding.example.com:{others.port}/")
    assert look_ups.asked == ["rebinding.example.com"]
    await outbound.close()
