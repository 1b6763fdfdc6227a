"""Secrets: keys, tokens and passwords, recognized by the format of their issuer, or by what precedes them.

They are searched in the bare text: case matters, and neither invisible characters nor marks on letters hide a secret. A
checksum is verified, so that an example from a manual is not mistaken for a key.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections import Counter
from functools import partial
from math import log2
from typing import TYPE_CHECKING, Final

import msgspec

from millpond_products.rules.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millpond_products.rules.patterns import Span

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHECK_LENGTH: Final = 6  # a CRC-32 in base 62
_PEM_MAX: Final = 16_384
_PEM_END: Final = re.compile(r"-----END[^-\n]{0,40}-----")
_ENTROPY_MIN: Final = 3.0
"""Bits per letter. Words of a language have less than a random token of the same length."""
_ENTROPY_LETTERS: Final = 64
"""The letters that are measured. One value may contain many other names, and the rest would be measured for each."""
_ASSIGNED_MIN: Final = 16
_NAMES_MAX: Final = 24
"""Names within one value. A value with more of them may hide something, and matches as a whole."""
_HEAD_MAX: Final = 4_096
_KEY_LETTER: Final = re.compile(r"[0-9A-Za-z_]")
_PASSWORD: Final = re.compile(r"(?i)pass(?:word|wd|phrase)?|pwd")
_PLACEHOLDER: Final = re.compile(
    r"(?i)^(?:[x*.•_-]+|<.*>|\{.*\}|\$\{?\w+\}?|%\w+%|your.*|example.*|changeme.*|none|null|true|false)$"
)
_VALUE: Final = re.compile(r"""[:=]>?\s{0,4}["'`]?([^\s"'`,;&]{6,512})""")


def _is_edge(text: str, start: int, end: int) -> bool:
    """Whether no character of a key touches either end. Letters of other scripts may: some have no spaces."""
    return not (_KEY_LETTER.match(text[start - 1 : start]) or _KEY_LETTER.match(text[end : end + 1]))


def _edged(text: str, start: int, end: int) -> Iterator[Span]:
    if _is_edge(text, start, end):
        yield start, end


def _checked(text: str, start: int, end: int, *, skipped: int) -> Iterator[Span]:
    """The last letters must be the checksum of those before them, without the ``skipped`` first ones."""
    body = text[start + skipped : end - _CHECK_LENGTH]
    if _is_edge(text, start, end) and _checksum(body) == text[end - _CHECK_LENGTH : end]:
        yield start, end


def _checksum(body: str) -> str:
    number, letters = zlib.crc32(body.encode()), ""
    while number:
        number, digit = divmod(number, len(_ALPHABET))
        letters = _ALPHABET[digit] + letters
    return letters.rjust(_CHECK_LENGTH, "0")


def _tokens(text: str, start: int, end: int) -> Iterator[Span]:
    """A JSON Web Token: its first part is JSON that names an algorithm."""
    head = text[start:end].partition(".")[0]
    if len(head) > _HEAD_MAX:  # no real one is so long: it matches without being decoded
        yield start, end
        return
    try:
        header = msgspec.json.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, msgspec.DecodeError, ValueError, RecursionError):
        return
    if isinstance(header, dict) and "alg" in header:
        yield start, end


def _pem(text: str, start: int, end: int) -> Iterator[Span]:
    """The key up to its last line, or up to the maximum length of such a key."""
    found = _PEM_END.search(text, end, end + _PEM_MAX)
    yield start, found.end() if found else min(len(text), end + _PEM_MAX)


def _assigned(text: str, start: int, end: int) -> Iterator[Span]:
    """The value of a name like ``api_key``, if it looks random, or of one like ``password``, in any case."""
    found = _VALUE.match(text, end - 1)
    if found is None:
        return
    if found[1].count("=") + found[1].count(":") > _NAMES_MAX:
        yield found.span(1)
        return
    if _PLACEHOLDER.match(found[1]):
        return
    if _PASSWORD.search(text, start, end) or (len(found[1]) >= _ASSIGNED_MIN and _entropy(found[1]) >= _ENTROPY_MIN):
        yield found.span(1)


def _bearer(text: str, start: int, end: int) -> Iterator[Span]:
    token = text[start:end].split()[1]
    if _entropy(token) >= _ENTROPY_MIN:
        yield end - len(token), end


def _entropy(text: str) -> float:
    """Bits per letter."""
    text = text[:_ENTROPY_LETTERS]
    counts, size = Counter(text).values(), len(text)
    return -sum(count / size * log2(count / size) for count in counts)


def _credentials(text: str, start: int, end: int) -> Iterator[Span]:
    """The name and the password in a URL."""
    if _PLACEHOLDER.match(text[start:end].rpartition(":")[2].rstrip("@")) is None:
        yield start + 3, end - 1


def _shape(label: str, pattern: str, look: Callable[[str, int, int], Iterator[Span]] = _edged) -> Shape:
    return Shape(label, pattern, look, "bare")


SHAPES: Final = (
    _shape("private_key", r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----", _pem),
    _shape("millpond_key", r"mp_(?:client|worker|viewer|operator|admin)_[0-9A-Za-z]{49}", partial(_checked, skipped=0)),
    _shape("millpond_key", r"mpw_[0-9A-Za-z]{60}", partial(_checked, skipped=0)),
    _shape("millpond_token", r"mpt_[0-9A-Za-z_-]{40,}"),
    _shape("webhook_secret", r"whsec_[A-Za-z0-9+/]{32,}={0,2}"),
    _shape("aws_key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    _shape("github_token", r"gh[pousr]_[A-Za-z0-9]{36}", partial(_checked, skipped=4)),
    _shape("github_token", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _shape("gitlab_token", r"gl(?:pat|ptt|dt|rt|oas|cbt|soat|ft)-[0-9A-Za-z_.-]{20,}"),
    _shape("openai_key", r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    _shape("stripe_key", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"),
    _shape("slack_token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,}"),
    _shape("slack_webhook", r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,}"),
    _shape("google_key", r"AIza[0-9A-Za-z_-]{35}|GOCSPX-[0-9A-Za-z_-]{28}|ya29\.[0-9A-Za-z_-]{20,}"),
    _shape("replicate_token", r"r8_[A-Za-z0-9]{37}"),
    _shape("hugging_face_token", r"(?:hf|api_org)_[A-Za-z]{34}"),
    _shape("npm_token", r"npm_[A-Za-z0-9]{36}"),
    _shape("pypi_token", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _shape("sendgrid_key", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _shape("twilio_key", r"SK[0-9a-f]{32}"),
    _shape("mailgun_key", r"key-[0-9a-f]{32}"),
    _shape("telegram_token", r"[0-9]{8,10}:AA[0-9A-Za-z_-]{33}"),
    _shape("discord_token", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}"),
    _shape("digitalocean_token", r"do[opr]_v1_[0-9a-f]{64}"),
    _shape("shopify_token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _shape("square_token", r"sq0(?:atp|csp)-[0-9A-Za-z_-]{22,43}"),
    _shape("linear_key", r"lin_(?:api|oauth)_[0-9A-Za-z]{40,}"),
    _shape("azure_key", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    _shape("age_key", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _shape("bearer_token", r"(?i)\bbearer\s{1,4}[A-Za-z0-9._~+/-]{16,}=*", _bearer),
    _shape("jwt", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]*", _tokens),
    _shape("credentials", r"://[^\s/:@?#]*:[^\s/@?#]{3,}@", _credentials),
    _shape(
        "secret",
        r"(?i)(?:api|access|auth|secret|private|encryption|signing|client|account|bearer)?[_.-]?"
        r"(?:key|token|secret|password|passwd|passphrase|pwd|credential)s?[\"'`]?\s{0,4}[:=]",
        _assigned,
    ),
)
LABELS: Final = tuple(dict.fromkeys(shape.label for shape in SHAPES))
