"""The settings of server, worker and client, read from the environment and checked at once."""

from __future__ import annotations

import pytest

from millpond.cli.run import read_input
from millpond.errors import MillpondError, SettingsError
from millpond.settings import Settings


def test_the_environment_is_read() -> None:
    settings = Settings.from_env(
        {"MILLPOND_PORT": "0", "MILLPOND_HOST": "::1", "MILLPOND_RATE_LIMIT": "5", "MILLPOND_URL": "http://a"}
    )
    assert (settings.port, settings.host, settings.rate_limit, settings.url) == (0, "::1", 5, "http://a")


@pytest.mark.parametrize(
    ("name", "text"), [("PORT", "65536"), ("PORT", "-1"), ("RATE_LIMIT", "0"), ("SLOTS", "0"), ("SLOTS", "10001")]
)
def test_a_number_out_of_bounds_is_reported_with_its_bounds(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"MILLPOND_{name}: .*must be a whole number from"):
        Settings.from_env({f"MILLPOND_{name}": text})


def test_secrets_are_not_in_what_python_shows() -> None:
    settings = Settings(database_url="postgresql://u:topsecret@db/x", api_key="mp_client_topsecret")
    assert "topsecret" not in repr(settings)


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ([], {}),
        (["name=Ada"], {"name": "Ada"}),
        (["n=5", "flag=true", 'text="5"', "none=null", "list=[1, 2]"], {
            "n": 5, "flag": True, "text": "5", "none": None, "list": [1, 2]
        }),
        (["a=1", "a=2"], {"a": 2}),
        (["formula=a=b"], {"formula": "a=b"}),
        (["empty="], {"empty": ""}),
    ],
)  # fmt: skip
def test_words_make_an_input(words: list[str], made: dict[str, object]) -> None:
    assert read_input(words) == made


@pytest.mark.parametrize("word", ["", "word", "=value"])
def test_a_word_that_is_no_input_is_refused(word: str) -> None:
    with pytest.raises(MillpondError, match="is not K=V, @FILE or -"):
        read_input([word])
