"""Copy: by a language model over HTTP, or by the small grammar."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, get_args

import pytest
from products.tests.studio.deployments import LAMP, Deployment, Lines, listening, running_deployment
from products.tests.studio.shop import KEY
from starlette.responses import JSONResponse, Response

from millpond.errors import TransientError
from millpond_products.studio import chat, grammar
from millpond_products.studio.grammar import Tone
from millpond_products.studio.products import ProductFacts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

PACK = ProductFacts(
    name="Trailhead 28 L Backpack | Norden",
    brand="Norden",
    description="A daypack for long walks and short flights. The roll top keeps rain out.",
    price="129.00",
    currency="USD",
    features=["Recycled ripstop nylon", "Fits a 16-inch laptop"],
    rating=4.7,
    reviews=312,
)
SPARE = grammar.write(PACK, tone="friendly", seed=1, headlines=3)


def written(product: ProductFacts, tone: Tone = "friendly", seed: int = 1, headlines: int = 3) -> grammar.Copy:
    return grammar.write(product, tone=tone, seed=seed, headlines=headlines)


def test_the_same_seed_writes_the_same_and_another_writes_another() -> None:
    texts = [json.dumps(written(PACK, seed=seed).body) for seed in range(20)]
    assert [json.dumps(written(PACK, seed=seed).body) for seed in range(20)] == texts
    assert len(set(texts)) > 10
    assert len({written(PACK, seed=seed).script for seed in range(20)}) > 10
    assert len({tuple(written(PACK, seed=seed).headlines) for seed in range(20)}) > 15


@pytest.mark.parametrize("tone", get_args(Tone))
def test_it_says_the_facts_and_reads_as_sentences(tone: Tone) -> None:
    for seed in range(50):
        copy = written(PACK, tone, seed)
        assert "Trailhead 28 L Backpack" in copy.body
        assert "$129" in copy.body
        assert "4.7" in copy.body
        assert "roll top keeps rain out" in copy.body
        assert len(copy.headlines) == len(set(copy.headlines)) == 3
        assert all(len(title) <= grammar.HEADLINE_MAX for title in copy.headlines)
        assert "Trailhead" in copy.script
        assert len(copy.script) <= grammar.SCRIPT_MAX
        assert copy.hashtags[:3] == ["#Norden", "#Trailhead28LBackpack", "#Backpack"]
        for text in (*copy.headlines, copy.body, copy.script):
            assert text[0].isupper() or text[0] in "$€£"
            assert not re.search(r"[{}]|  |\.\.|\bthe the\b| ,|\ba a\b", text), text
        assert copy.body[-1] in ".!?"


@pytest.mark.parametrize("tone", get_args(Tone))
@pytest.mark.parametrize(
    "product",
    [
        ProductFacts(name="Kettle"),
        ProductFacts(name="The Long Spoon", price="on request"),
        ProductFacts(name="x" * 200, description="y" * 5_000, features=["z" * 200]),
        ProductFacts(name="  Zwölf  Gläser – Set ", brand="Ä & Ö", price="12,50", currency="EUR"),
        ProductFacts(name="{name} %s {0}", features=["{point}"]),
        ProductFacts(name="日本の急須"),
        ProductFacts(name="7"),
    ],
)
def test_it_makes_do_with_whatever_facts_there_are(tone: Tone, product: ProductFacts) -> None:
    for seed in range(10):
        copy = written(product, tone, seed, 5)
        assert copy.headlines
        assert copy.body
        assert copy.script
        assert copy.call_to_action
        assert copy.hashtags
        assert "the The" not in copy.body


def test_a_price_is_written_as_it_is_read() -> None:
    given = {("129.00", "USD"): "$129", ("12,5", "EUR"): "€12.50", ("99", "CHF"): "99 CHF", ("from $3", ""): "from $3"}
    assert {pair: grammar.money(*pair) for pair in given} == given


async def test_the_grammar_writes_where_there_is_no_model(deployment: Deployment) -> None:
    user = await deployment.user()
    first, again = await user.made("copy", product=LAMP, seed=5), await user.made("copy", product=LAMP, seed=5)
    other = await user.made("copy", product=LAMP, seed=6, tone="urgent", headlines=5)
    assert first["output"] == again["output"] != other["output"]
    assert (first["output"]["written_by"], first["output"]["seed"]) == ("grammar", 5)
    assert len(other["output"]["headlines"]) == 5
    assert "Lumen Desk Lamp" in first["output"]["body"]
    unseeded = await user.made("copy", product=LAMP)
    assert unseeded["output"]["seed"] == unseeded["input"]["seed"]


# A language model


@pytest.fixture(scope="module")
async def chatting(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    said: dict[str, Any] = {"chat_url": "{shop}/v1/", "chat_key": KEY, "chat_model": "small-1"}
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_deployment(dsn, folder, **said) as running:
        yield running


async def test_a_model_is_asked_with_the_facts_and_its_words_are_taken(chatting: Deployment) -> None:
    user = await chatting.user()
    answer = {
        "headlines": ["Light, softly", "Ohm's lamp"],
        "body": "A lamp.",
        "call_to_action": "See it",
        "hashtags": ["lamp", "#Ohm light"],
        "script": "Look at this.",
    }
    chatting.shop.answers_with = lambda: chatting.shop.completion("```json\n" + json.dumps(answer) + "\n```")
    job = await user.made("copy", product=LAMP, tone="elegant", headlines=2, seed=9)
    expected = answer | {"hashtags": ["#lamp", "#Ohmlight"], "tone": "elegant", "seed": 9, "written_by": "small-1"}
    assert job["output"] == expected
    headers, asked = chatting.shop.prompts[-1]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (asked["model"], asked["seed"]) == ("small-1", 9)
    assert asked["response_format"]["json_schema"]["schema"]["required"] == list(answer)
    assert "Lumen Desk Lamp" in asked["messages"][1]["content"]
    assert "elegant" in asked["messages"][0]["content"]


async def test_an_endpoint_that_knows_no_schemas_is_asked_for_any_json(chatting: Deployment) -> None:
    user = await chatting.user()
    answers = [Response(status_code=400), chatting.shop.completion('{"body": "B."}')]
    chatting.shop.answers_with = lambda: answers.pop(0)
    job = await user.made("copy", product=LAMP)
    assert (job["attempts"], job["output"]["body"]) == (1, "B.")
    assert chatting.shop.prompts[-1][1]["response_format"] == {"type": "json_object"}


async def test_a_model_that_is_busy_is_asked_again(chatting: Deployment) -> None:
    user = await chatting.user()
    answers = [
        Response(status_code=429),
        chatting.shop.completion("no JSON"),
        chatting.shop.completion('{"body": "B."}'),
    ]
    chatting.shop.answers_with = lambda: answers.pop(0)
    job = await chatting.ended_soon(user, (await user.generate("copy", product=LAMP))["job_id"])
    assert (job["attempts"], job["output"]["body"]) == (3, "B.")
    assert len(job["output"]["headlines"]) == 3


async def test_a_model_that_refuses_fails_the_job_and_no_key_is_shown(chatting: Deployment) -> None:
    user = await chatting.user()
    chatting.shop.answers_with = lambda: JSONResponse({"error": f"Incorrect API key provided: {KEY}"}, 401)
    with listening() as lines:
        job = await user.ended((await user.generate("copy", product=LAMP))["job_id"])
        assert_untold(lines)
    assert (job["status"], job["error"], job["attempts"]) == ("failed", "The language model answered 401.", 1)
    assert await user.balance() == 100


def assert_untold(lines: Lines) -> None:
    assert KEY not in lines.stream.getvalue()


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        ('{"headlines": ["A"], "body": "B"}', "A"),
        ('Sure! Here it is:\n{"headlines": "A, or so"}\nEnjoy.', "A"),
        ('{"headline": ["A"], "hashtags": "one, two"}', "A"),
        ('{"body": "Only this."}', SPARE.headlines[0]),
    ],
)
def test_what_a_model_says_is_read_with_patience(text: str, headline: str) -> None:
    copy = chat.read(text, SPARE, 3)
    assert copy.headlines[0] == headline
    assert copy.script == SPARE.script
    assert len(copy.headlines) <= 3


@pytest.mark.parametrize(
    "text", ["", "I cannot do that.", "{", "{}", '{"headlines": 7}', "[1]", '{"body": ""}', "{" * 9_999]
)
def test_what_has_nothing_of_use_is_tried_again(text: str) -> None:
    with pytest.raises(TransientError):
        chat.read(text, SPARE, 3)
