"""What pages are written in."""

from __future__ import annotations

import pytest

from millpond_products.pages import fetching


@pytest.mark.parametrize(
    ("body", "parameters", "text"),
    [
        ("Café".encode("cp1252"), "charset=ISO-8859-1", "Café"),
        ("“Café”".encode("cp1252"), ' charset="latin1"', "“Café”"),
        ("急須".encode("shift_jis"), "charset=Shift_JIS", "急須"),
        ("茶壶".encode("gbk"), "charset=gb2312", "茶壶"),
        ("чай".encode("koi8-r"), "charset=koi8-r", "чай"),
        ("чай".encode("utf-16-le"), "charset=utf-16", "чай"),
        ("чай".encode("utf-16"), "", "чай"),
        (b"\xef\xbb\xbf" + "чай".encode(), "charset=koi8-r", "чай"),
        (b"<meta charset=windows-1251>" + "чай".encode("cp1251"), "", "<meta charset=windows-1251>чай"),
        (b"<meta charset=utf-16>" + "чай".encode(), "", "<meta charset=utf-16>чай"),
        ("Café crème".encode("cp1252"), "", "Café crème"),
        ("чай".encode(), "charset=nobody-knows", "чай"),
    ],
)
def test_a_page_is_read_by_its_charset(body: bytes, parameters: str, text: str) -> None:
    assert fetching.decoded(body, parameters) == text


@pytest.mark.parametrize("name", ["punycode", "idna", "unicode_escape", "raw_unicode_escape", "utf-7", "rot13", "hz"])
def test_what_is_no_charset_of_the_web_is_none(name: str) -> None:
    """Python has codecs for all of these; some take the square of what they are given, or make letters out of none."""
    assert fetching.decoded(b"<p>\\u0041+AGE-</p>", f"charset={name}") == "<p>\\u0041+AGE-</p>"
    body = f"<meta charset={name}>\\u0041".encode()
    assert fetching.decoded(body) == body.decode()


@pytest.mark.parametrize("codec", sorted(set(fetching._CODECS.values())))
def test_pieces_are_read_as_the_whole(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PIECE", 7)
    for body in (b"tea " * 20, bytes(range(0x20, 0x7F)) * 3, "tea".encode(codec) * 9):
        assert fetching._read(body, codec) == body.decode(codec, "replace")
