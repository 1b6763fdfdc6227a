"""Credentials: their form alone tells most of what is wrong with one."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from millpond import ids
from millpond.engine.access import credentials
from millpond.engine.access.credentials import Scope, Token
from millpond.errors import InvalidError, UnauthorizedError

SECRET = bytes(range(32))
TOKEN = Token("acme", ids.new(), frozenset({"read"}), 1_800_000_000.125)

each_scope = pytest.mark.parametrize("scope", get_args(Scope))


# Keys


@each_scope
def test_a_key_says_what_it_is_for(scope: str) -> None:
    key = credentials.new_key(scope)
    assert re.fullmatch(rf"mp_{scope}_[0-9A-Za-z]{{49}}", key)
    assert credentials.is_key(key)


def test_no_two_keys_are_alike() -> None:
    assert len({credentials.new_key("client") for _ in range(1_000)}) == 1_000


@each_scope
def test_one_wrong_letter_is_seen_wherever_it_stands(scope: str) -> None:
    key = credentials.new_key(scope)
    for place in range(len(key)):
        wrong = "x" if key[place] != "x" else "y"
        assert not credentials.is_key(key[:place] + wrong + key[place + 1 :])


def test_two_letters_that_changed_places_are_seen() -> None:
    key = credentials.new_key("admin")
    for place in range(len("mp_admin_"), len(key) - 1):
        if key[place] != key[place + 1]:
            assert not credentials.is_key(key[:place] + key[place + 1] + key[place] + key[place + 2 :])


@pytest.mark.parametrize(
    "text", ["", "mp_", "mp_client_", "mp_boss_" + "a" * 49, "mp_client_" + "é" * 49, "a" * 10_000]
)
def test_what_is_no_key_is_seen(text: str) -> None:
    assert not credentials.is_key(text)


def test_a_part_of_a_key_is_none_and_neither_is_more_than_one() -> None:
    key = credentials.new_key("client")
    assert not any(credentials.is_key(part) for part in (key[:-1], key[1:], key + "a", key + "\n", f" {key}"))


def test_the_scope_of_a_key_cannot_be_rewritten() -> None:
    assert not credentials.is_key(credentials.new_key("client").replace("client", "admin"))


def test_a_hint_shows_the_scope_and_eight_letters() -> None:
    key = credentials.new_key("worker")
    assert credentials.hint(key) == f"mp_worker_{key[10:14]}…{key[-4:]}"


def test_half_a_surrogate_pair_has_a_digest_like_any_text() -> None:
    assert len(credentials.digest("\ud800")) == 32


# Tokens


@pytest.mark.parametrize("scopes", [{"read"}, {"cancel"}, {"read", "cancel"}])
def test_a_token_says_what_was_signed(scopes: set[str]) -> None:
    made = Token("some.tenant:1@x+y/z-0", ids.new(), frozenset(scopes), 1_800_000_000.125)
    assert Token.read(made.sign(SECRET), SECRET) == made


def test_a_token_can_stand_in_a_url_as_it_is() -> None:
    assert re.fullmatch(r"mpt_[\w-]+", TOKEN.sign(SECRET))


def test_a_token_that_was_changed_anywhere_is_refused() -> None:
    text = TOKEN.sign(SECRET)
    for place in range(len("mpt_"), len(text)):
        wrong = "A" if text[place] != "A" else "B"
        with pytest.raises(UnauthorizedError):
            Token.read(text[:place] + wrong + text[place + 1 :], SECRET)


@pytest.mark.parametrize("tenant", ["a", "ab", "abc"])
def test_no_other_last_letter_makes_the_same_token(tenant: str) -> None:
    text = Token(tenant, ids.new(), frozenset({"read"}), 1_800_000_000.125).sign(SECRET)
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=":
        if letter != text[-1]:
            with pytest.raises(UnauthorizedError):
                Token.read(text[:-1] + letter, SECRET)


@pytest.mark.parametrize(
    "text", ["mpt_", "mpt_A", "mpt_" + "A" * 40, "mpt_" + "A" * 100_000, "mpt_é", "mpt_\ud800", "mpt_A=B", "mpt_ A A"]
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(UnauthorizedError, match="malformed or incomplete"):
        Token.read(text, SECRET)


def test_a_token_of_another_installation_is_refused() -> None:
    with pytest.raises(UnauthorizedError):
        Token.read(TOKEN.sign(bytes(32)), SECRET)


def test_a_token_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_VERSION", 2)
    later = TOKEN.sign(SECRET)
    monkeypatch.undo()
    with pytest.raises(UnauthorizedError):
        Token.read(later, SECRET)


@pytest.mark.parametrize("scopes", [[], ["write"], ["read", "admin"]])
def test_a_token_may_not_allow_what_there_is_not(scopes: list[str]) -> None:
    with pytest.raises(InvalidError, match="read, cancel") as caught:
        credentials.check_scopes(scopes)
    assert caught.value.field == "scopes"
