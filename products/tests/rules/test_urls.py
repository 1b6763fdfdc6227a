"""URLs: denied domains and their look-alikes, allowed domains and nothing else."""

# ruff: noqa: RUF001 - letters that look alike are the point
from __future__ import annotations

import pytest
from products.tests.rules.deciding import found, ruleset

from millpond.errors import InputError
from millpond_products.rules import Urls, urls

ANY = Urls()
DENY = Urls(deny=("evil.com", "bücher.example"))
ALLOW = Urls(allow=("good.com",))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "http://example.com/path?x=1#y",
        "HTTPS://EXAMPLE.COM",
        "ftp://files.example.com/a",
        "http:\\\\example.com",
        "www.example.museum/x",
        "example.com",
        "sub.example.co.uk/path",
        "http://10.0.0.1/",
        "http://[::1]:8080/",
        "example[.]com",
        "https://example。com/",
    ],
)
async def test_an_address_is_found(url: str) -> None:
    assert await found(f"Go to {url} now.", ANY) == [url]


@pytest.mark.parametrize("text", ["node.js", "e.g. this", "3.14", "a.b", "ann@example.com", "The end.Then", "file.txt"])
async def test_what_only_has_a_dot_passes(text: str) -> None:
    assert await found(f"See {text} there", ANY) == []


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/x",
        "evil.com",
        "EVIL.com",
        "a.b.evil.com",
        "https://good.com@evil.com/",
        "https://user:pw@evil.com:8443/",
        "ｅｖｉｌ.com",
        "e\u200bvil.com",
        "еvil.com",  # a Cyrillic letter
        "xn--vil-qdd.com",  # the same, as the name system has it
        "evil。com",
        "evil[.]com",
        "https://bücher.example",
        "https://xn--bcher-kva.example",
        "https://evil.com.",
    ],
)
async def test_a_denied_domain_is_found_however_it_is_written(url: str) -> None:
    assert await found(f"Go to {url} now", DENY) == [url.rstrip(".")]


@pytest.mark.parametrize("url", ["https://good.com", "https://notevil.com", "https://evil.com.good.com", "evil.co"])
async def test_other_domains_are_not_denied(url: str) -> None:
    assert await found(f"Go to {url} now", DENY) == []


async def test_only_allowed_domains_pass_and_their_look_alikes_do_not() -> None:
    text = "https://good.com https://www.good.com/x good.com https://gооd.com https://good.com.evil.com http://good.com@evil.com"
    assert await found(text, ALLOW) == ["https://gооd.com", "https://good.com.evil.com", "http://good.com@evil.com"]


@pytest.mark.parametrize("name", ["not a domain", "exa mple.com", "-", "."])
def test_a_name_that_is_no_domain_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        ruleset(Urls(deny=("fine.com", name)))
    assert caught.value.field == "rules[0].matcher.deny[1]"


async def test_a_list_takes_domains_as_people_write_them() -> None:
    rule = Urls(deny=("https://Evil.com/path", "*.bad.example"))
    assert await found("evil.com x.bad.example", rule) == ["evil.com", "x.bad.example"]


HIDDEN = [
    "https:////evil.com/x",
    "https:/evil.com",
    "https://evil%2ecom/",
    "https://%65vil.com/",
    "@https://evil.com/x",
    "x@evil.com/path",
    "user:pw@evil.com:8443",
    "@evil.com",
    "https://" + "a" * 8_300 + "@evil.com/",
    "https://good.com|@evil.com",
    "https://good.com|x@evil.com",
    "https://good.com{@evil.com/",
    'https://good.com"@evil.com',
    'https://"@evil.com',
    "https://'evil.com/",
    "https://ev\u034fil.com/",
    "https://ev\u2065il.com/",
    "https://ev\x01il.com/",
    "https://be\u0301vil.evil.com",
]


@pytest.mark.parametrize("url", HIDDEN, ids=[str(n) for n in range(len(HIDDEN))])
async def test_a_domain_that_is_hidden_in_its_url_is_found(url: str) -> None:
    for rule in (DENY, ALLOW, ANY):
        assert await found(f"Go to {url} now", rule), rule


@pytest.mark.parametrize(
    "url",
    [
        "https://a!b.evil.com/x",
        "https://a~.x.org",
        "http://a..b/",
        "http://-x.com/",
        "https://%00/",
        "https://ev%20il.com",
    ],
)
async def test_a_host_that_cannot_be_read_could_be_any(url: str) -> None:
    for rule in (DENY, ALLOW, ANY):
        assert await found(f"Go to {url} now", rule) == [url], rule


@pytest.mark.parametrize(
    "text",
    [
        "ann@evil.com",
        "Write to ann@evil.com, or bob@evil.com.",
        "https://good.com/x,ann@evil.com",
        '["https://good.com","ann@evil.com"]',
        "<a href='https://good.com'>ann@evil.com</a>",
        "http://",
        "http://...",
        "see note:/!",
    ],
)
async def test_an_address_of_mail_is_none_of_the_web(text: str) -> None:
    assert await found(text, DENY) == []
    assert await found(text, ALLOW) == []


async def test_the_same_host_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    host = urls._host

    def noted(given: str) -> str | None:
        read.append(given)
        return host(given)

    rules = ruleset(DENY)
    monkeypatch.setattr(urls, "_host", noted)
    await rules.decide("é.com é.org " * 200)
    assert sorted(read) == ["é.com", "é.org"]
