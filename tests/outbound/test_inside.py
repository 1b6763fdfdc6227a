"""What leads inside is refused before anybody is asked or called: however it is spelled."""

# ruff: noqa: RUF001 - letters that look like others are the point

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address

import pytest

from millpond.errors import OutboundFailedError, OutboundRefusedError
from millpond.outbound import Outbound
from millpond.outbound.addresses import is_public
from tests.doubles.receivers import Receivers
from tests.outbound.conftest import PrivateServer
from tests.outbound.watch import watched

# {port} is that of a server on this machine, so that each of those would arrive if it were let go.
SPELLINGS = [
    # this machine
    "http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}",
    "HTTP://127.0.0.1:{port}/",
    "https://127.0.0.1:{port}/",
    "http://127.0.0.2:{port}/",
    "http://127.255.255.254:{port}/",
    "http://0.0.0.0:{port}/",
    "http://0.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://LocalHost:{port}/",
    "http://hooks.localhost:{port}/",
    "http://localhost.localdomain:{port}/",
    "http://ip6-localhost:{port}/",
    # short, decimal, octal and hexadecimal
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0177.0.0.01:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7F.0x0.0x0.0x1:{port}/",
    "http://0x7f.1:{port}/",
    "http://127.0.0.0x1:{port}/",
    "http://127.0.0.01:{port}/",
    "http://127.000.000.001:{port}/",
    "http://0:{port}/",
    "http://0x:{port}/",
    "http://4294967297:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://127.0.0.256:{port}/",
    "http://127.0.0.1.1:{port}/",
    # trailing dots, dots of other scripts, digits of other scripts, letters that are taken for others
    "http://localhost.:{port}/",
    "http://localhost..:{port}/",
    "http://127。0。0。1:{port}/",
    "http://127．0．0．1:{port}/",
    "http://127｡0｡0｡1:{port}/",
    "http://１２７.０.０.１:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://١٢٧.٠.٠.١:{port}/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{port}/",
    "http://ｌｏｃａｌｈｏｓｔ:{port}/",
    "http://locaⅼhost:{port}/",
    "http://local\u00adhost:{port}/",
    "http://local\u200bhost:{port}/",
    # percent-encoded, and with what a parser may drop
    "http://127.0.0.1%2f:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://127%2e0%2e0%2e1:{port}/",
    "http://localhost%00.example.com:{port}/",
    "http://local%68ost:{port}/",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.0.1\n:{port}/",
    "http://127.0.0.1\r\nhost: x:{port}/",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/ ",
    "http://127.0.0.1:{port}/a b",
    "ht\ntp://127.0.0.1:{port}/",
    "http://127.0.0.1\x00.example.com:{port}/",
    # one host for one parser, and another for the next
    "http://example.com@127.0.0.1:{port}/",
    "http://example.com:80@127.0.0.1:{port}/",
    "http://user:pass@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@example.com/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http://example.com#@127.0.0.1:{port}\\",
    "//127.0.0.1:{port}/",
    "127.0.0.1:{port}/",
    "http://127.0.0.1:{port}:80/",
    "http://127.0.0.1:/",
    "http://127.0.0.1:+{port}/",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:65536/",
    "http://127.0.0.1:999999/",
    "http://127.0.0.1:８０/",
    "http://:{port}/",
    "http://",
    "",
    # IPv6, in its many ways
    "http://[::1]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]:{port}/",
    "http://[::0:1]:{port}/",
    "http://[::0.0.0.1]:{port}/",
    "http://[::]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/",
    "http://[::FFFF:127.0.0.1]:{port}/",
    "http://[::ffff:0:127.0.0.1]:{port}/",
    "http://[64:ff9b::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[64:ff9b:1::127.0.0.1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::]:{port}/",
    "http://[fe80::1%25lo]:{port}/",
    "http://[fe80::1%lo]:{port}/",
    "http://[::1%25lo]:{port}/",
    "http://[::1%lo]:{port}/",
    "http://[::1]x:{port}/",
    "http://[::1:{port}/",
    "http://::1:{port}/",
    "http://[]:{port}/",
    "http://[v1.::1]:{port}/",
    "http://[127.0.0.1]:{port}/",
    # networks of others
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://198.18.0.1/",
    "http://198.19.255.255/",
    "http://192.0.0.8/",
    "http://192.0.2.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://192.88.99.1/",
    "http://192.31.196.1/",
    "http://192.52.193.1/",
    "http://192.175.48.1/",
    "http://224.0.0.1/",
    "http://239.255.255.255/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[fc00::1]/",
    "http://[fd12:3456:789a::1]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[2001:db8::1]/",
    "http://[2001:2::1]/",
    "http://[2001:10::1]/",
    "http://[3fff::1]/",
    "http://[5f00::1]/",
    "http://[2002:a00:1::]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[::ffff:8.8.8.8]/",
    # what clouds tell their machines
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[fd00:ec2::254]/",
    "http://[fd00:ec2:0:0:0:0:0:254]/",
    "http://[fe80::a9fe:a9fe]/",
    "http://169.254.170.2/v2/credentials",
    "http://168.63.129.16/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata.google.internal./",
    "http://metadata/",
    "http://instance-data/",
    "http://instance-data.ec2.internal/",
    # names of the inside
    "http://db/",
    "http://postgres:5432/",
    "http://kubernetes.default.svc.cluster.local/",
    "http://printer.local/",
    "http://wiki.corp/",
    "http://nas.lan/",
    "http://router.home.arpa/",
    "http://1.0.0.127.in-addr.arpa/",
    # not what we call by
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_x",
    "dict://127.0.0.1:{port}/",
    "unix:///var/run/docker.sock",
    "data:text/plain,hello",
    "javascript:alert(1)",
    "ws://127.0.0.1:{port}/",
    "jar:http://127.0.0.1:{port}!/",
    "http://example..com/",
    "http://.example.com/",
    "http://-example.com/",
    "http://exa mple.com/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 127 + "com/",
    "http://example.com/" + "a" * 2_048,
    "http://example.com/%",
    "http://example.com/%zz",
    "http://example.com/ü",
]


def test_there_are_spellings_enough() -> None:
    assert len(set(SPELLINGS)) == len(SPELLINGS) >= 150


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_no_spelling_of_the_inside_opens_a_socket(spelling: str, private_server: PrivateServer) -> None:
    """Neither to whom it leads nor to a resolver: the interpreter would have told."""
    url = spelling.replace("{port}", str(private_server.port))
    outbound = Outbound()
    with watched() as seen:
        with pytest.raises(OutboundRefusedError) as checked:
            outbound.check(url, field="webhook_url")
        with pytest.raises(OutboundRefusedError) as admitted:
            await outbound.admit(url, field="webhook_url")
        with pytest.raises(OutboundRefusedError):
            await outbound.send("POST", url, body=b"{}")
        with pytest.raises(OutboundRefusedError):
            async with outbound.stream("GET", url, size_max=10):
                pass
    assert seen == []
    assert private_server.connections == 0
    assert checked.value.as_dict() == admitted.value.as_dict()
    assert checked.value.field == "webhook_url"
    await outbound.close()


async def test_the_watch_sees_what_is_opened(private_server: PrivateServer) -> None:
    """What is never seen by a watch that is blind proves nothing."""
    outbound = Outbound("loopback")
    before = private_server.connections
    with watched() as seen:
        with pytest.raises(OutboundFailedError):
            await outbound.send("POST", f"http://127.0.0.1:{private_server.port}/")
        with pytest.raises(OutboundFailedError):
            await outbound.send("POST", f"http://[::1]:{private_server.port}/")
        with pytest.raises(OutboundFailedError):
            await outbound.send("POST", f"http://localhost:{private_server.port}/")
    await outbound.close()
    assert private_server.connections == before + 3
    assert ("socket.connect", ("127.0.0.1", private_server.port)) in seen
    assert any(event == "socket.connect" and place[0] == "::1" for event, place in seen)
    assert [host for event, host in seen if event == "socket.getaddrinfo"] == ["localhost"]
    private_server.connections = 0


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("8.8.8.8", True),
        ("1.1.1.1", True),
        ("100.63.255.255", True),
        ("100.128.0.0", True),
        ("172.15.255.255", True),
        ("172.32.0.1", True),
        ("168.63.129.15", True),
        ("168.63.129.16", False),
        ("223.255.255.255", True),
        ("2606:4700:4700::1111", True),
        ("2a00:1450:4001::1", True),
        ("2001:200::1", True),
        ("64:ff9b::8.8.8.8", True),
        ("64:ff9b::192.168.0.1", False),
        ("64:ff9b:1::8.8.8.8", False),
        ("2002:808:808::1", False),
        ("::8.8.8.8", False),
        ("fd00:ec2::254", False),
        ("4000::1", False),
    ],
)
def test_the_table_knows_where_the_world_begins(address: str, *, is_open: bool) -> None:
    assert is_public(ip_address(address)) is is_open


# What names lead to


class Names:
    """A resolver that answers one thing after another, as one does whose owner means ill."""

    def __init__(self, *answers: list[str] | OSError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["8.8.8.8", "127.0.0.1"],
        ["10.0.0.1", "8.8.8.8"],
        ["2606:4700:4700::1111", "fe80::1%eth0"],
        ["8.8.8.8", "::ffff:127.0.0.1"],
        ["8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "169.254.169.254"],
        ["2002:7f00:1::"],
        ["0.0.0.0"],  # noqa: S104 - an answer
    ],
)
async def test_one_address_inside_is_enough_to_refuse_a_name(
    addresses: list[str], private_server: PrivateServer
) -> None:
    url = f"http://hooks.example.com:{private_server.port}/"
    outbound = Outbound(resolve=Names(addresses))
    with watched() as seen:
        with pytest.raises(OutboundRefusedError) as refused:
            await outbound.admit(url)
        with pytest.raises(OutboundRefusedError):
            await outbound.send("POST", url)
    assert seen == []
    assert not any(address in str(refused.value) for address in addresses)
    await outbound.close()


async def test_a_name_that_changes_its_mind_is_refused_when_it_is_called(private_server: PrivateServer) -> None:
    """DNS rebinding: public when it is checked, this machine when it is called."""
    names = Names(["8.8.8.8"], ["127.0.0.1"])
    outbound = Outbound(resolve=names)
    url = f"http://rebinding.example.com:{private_server.port}/"
    assert (await outbound.admit(url)).host == "rebinding.example.com"
    with watched() as seen, pytest.raises(OutboundRefusedError):
        await outbound.send("POST", url)
    assert seen == []
    assert private_server.connections == 0
    await outbound.close()


async def test_a_name_is_looked_up_once_for_a_call_and_the_call_goes_to_that_address(others: Receivers) -> None:
    """Between check and connection there is no second look-up that could be answered differently."""
    names = Names(["127.0.0.1"], ["10.255.255.1"])
    outbound = Outbound("127.0.0.1", resolve=names)
    with watched() as seen:
        answer = await outbound.send("POST", f"http://hooks.example.com:{others.port}/healthy/once", body=b"{}")
    assert (answer.status, answer.address) == (200, "127.0.0.1")
    assert names.asked == [("hooks.example.com", others.port)]
    assert seen == [("socket.connect", ("127.0.0.1", others.port))]
    assert others.of("once")[0].headers["host"] == f"hooks.example.com:{others.port}"
    await outbound.close()


async def test_a_name_that_is_unknown_is_refused_and_a_resolver_that_fails_is_not_its_fault() -> None:
    unknown = Outbound(resolve=Names(socket.gaierror(socket.EAI_NONAME, "no such name")))
    with pytest.raises(OutboundRefusedError, match="host name does not exist"):
        await unknown.admit("https://nowhere.example.com/")
    failing = Outbound(resolve=Names(socket.gaierror(socket.EAI_AGAIN, "try again")))
    assert (await failing.admit("https://hooks.example.com/")).origin == "https://hooks.example.com"
    for outbound in (unknown, failing):
        with pytest.raises(OutboundFailedError) as failed:
            await outbound.send("POST", "https://hooks.example.com/")
        assert failed.value.reason == "dns"


async def test_a_resolver_that_is_silent_holds_nobody_up() -> None:
    async def silent(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    outbound = Outbound(resolve=silent)
    with pytest.raises(OutboundFailedError) as failed:
        await outbound.send("POST", "https://hooks.example.com/", seconds=0.05)
    assert failed.value.reason == "timeout"


async def test_a_redirect_is_an_answer_and_leads_nowhere(others: Receivers, private_server: PrivateServer) -> None:
    outbound = Outbound(f"127.0.0.1:{others.port}")
    answer = await outbound.send(
        "POST", others.url("redirects", to=f"http://127.0.0.1:{private_server.port}/"), body=b"{}"
    )
    assert (answer.status, answer.headers["location"]) == (302, f"http://127.0.0.1:{private_server.port}/")
    assert private_server.connections == 0
    await outbound.close()


async def test_no_proxy_is_asked_and_no_password_is_looked_for(
    others: Receivers,
    private_server: PrivateServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    netrc = tmp_path_factory.mktemp("home") / ".netrc"
    netrc.write_text("machine 127.0.0.1 login ann password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{private_server.port}")
    outbound = Outbound(f"127.0.0.1:{others.port}")
    assert (await outbound.send("POST", others.url("healthy", "direct"), body=b"{}")).status == 200
    assert private_server.connections == 0
    assert "authorization" not in others.of("direct")[0].headers
    await outbound.close()
