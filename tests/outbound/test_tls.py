"""TLS goes by the name, though the connection goes to an address that was looked at before."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from millpond.errors import OutboundFailedError
from millpond.outbound import Outbound
from tests.waiting import PATIENCE

NAME = "hooks.example.com"
PLAIN = serialization.NoEncryption()


class Authority:
    """Signs certificates, for those who trust it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "An authority of the tests")])
        self.certificate = self.sign(self.name, self.key, x509.BasicConstraints(ca=True, path_length=None))

    def sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *more: x509.ExtensionType) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        made = made.add_extension(own, critical=False)
        for extension in more:
            made = made.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return made.sign(self.key, hashes.SHA256())

    def server(self, *names: x509.GeneralName) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A server of the tests")])
        certificate = self.sign(subject, key, x509.SubjectAlternativeName(names))
        path = self.folder / f"{len(list(self.folder.iterdir()))}.pem"
        both = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, PLAIN)
        path.write_bytes(both + certificate.public_bytes(serialization.Encoding.PEM))
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(path)
        return made

    def trusted(self) -> ssl.SSLContext:
        text = self.certificate.public_bytes(serialization.Encoding.PEM).decode()
        return ssl.create_default_context(cadata=text)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextlib.asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server; its port, and what it was told once TLS was agreed on."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            heard.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


async def here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_a_good_certificate_of_the_name_is_accepted(authority: Authority) -> None:
    outbound = Outbound("loopback", resolve=here, tls=authority.trusted())
    async with serving(authority.server(x509.DNSName(NAME))) as (port, heard):
        answer = await outbound.send("POST", f"https://{NAME}:{port}/x")
        assert (answer.status, answer.body, answer.address) == (200, b"hi", "127.0.0.1")
        assert f"host: {NAME}:{port}".encode() in heard[0]
    await outbound.close()


async def test_an_address_has_certificates_too(authority: Authority) -> None:
    outbound = Outbound("loopback", tls=authority.trusted())
    async with serving(authority.server(x509.IPAddress(ip_address("127.0.0.1")))) as (port, _):
        assert (await outbound.send("POST", f"https://127.0.0.1:{port}/")).status == 200
    await outbound.close()


@pytest.mark.parametrize("names", [[x509.DNSName("other.example.com")], [x509.IPAddress(ip_address("127.0.0.1"))]])
async def test_a_certificate_of_another_name_is_not(authority: Authority, names: list[x509.GeneralName]) -> None:
    """That of the address would do for whoever goes by the address that was looked up."""
    outbound = Outbound("loopback", resolve=here, tls=authority.trusted())
    async with serving(authority.server(*names)) as (port, heard):
        with pytest.raises(OutboundFailedError) as failed:
            await outbound.send("POST", f"https://{NAME}:{port}/", headers={"webhook-id": "msg_1"})
        assert failed.value.reason == "tls"
        assert heard == []
    await outbound.close()


async def test_a_certificate_that_nobody_has_signed_is_not(authority: Authority) -> None:
    outbound = Outbound("loopback", resolve=here)
    async with serving(authority.server(x509.DNSName(NAME))) as (port, heard):
        with pytest.raises(OutboundFailedError) as failed:
            await outbound.send("POST", f"https://{NAME}:{port}/")
        assert failed.value.reason == "tls"
        assert heard == []
    await outbound.close()


@pytest.mark.parametrize(("words", "reason"), [(b"HTTP/1.1 400 Bad\r\n\r\n", "tls"), (b"", "tls"), (None, "timeout")])
async def test_who_does_not_speak_tls_is_distinguished(authority: Authority, words: bytes | None, reason: str) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if words is None:
            await reader.read()
        else:
            writer.write(words)
        writer.close()

    outbound = Outbound("loopback", resolve=here, tls=authority.trusted())
    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OutboundFailedError) as failed:
            await outbound.send("POST", f"https://{NAME}:{port}/", seconds=PATIENCE if words is not None else 0.3)
        assert failed.value.reason == reason
    await outbound.close()
