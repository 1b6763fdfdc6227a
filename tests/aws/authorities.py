"""Identity documents of EC2 instances, signed by authorities of our own making."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

INSTANCE = "i-0123456789abcdef0"


class Authority:
    """Who signs as Amazon does."""

    def __init__(self, key: Any) -> None:
        self.key = key
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ec2.amazonaws.com")])
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(begin).not_valid_after(begin + timedelta(days=3650))
        self.pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def sign(self, document: str, digest: hashes.HashAlgorithm | None = None) -> str:
        made = self.key.sign(document.encode(), padding.PKCS1v15(), digest or hashes.SHA256())
        return base64.b64encode(made).decode()


@cache
def authority(number: int) -> Authority:
    return Authority(rsa.generate_private_key(65537, 2048))


def document(**members: Any) -> str:
    """As Amazon writes it: in lines, with members in its own order."""
    fields = {"accountId": "123456789012", "region": "eu-central-1", "instanceId": INSTANCE, "version": "2017-09-30"}
    return json.dumps(fields | members, indent=2)
