"""Copy by a language model, over any endpoint that speaks as OpenAI's does (``POST …/chat/completions``).

The model is asked for JSON by its schema, which keeps even small models to it; an endpoint that knows no schemas is
asked for any JSON. What comes is read with patience: what is left out is filled in by the grammar, and only an answer
that has nothing of use in it is tried again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond import values
from millpond.blueprints.studio import grammar
from millpond.errors import OutboundFailedError, PermanentError, TransientError
from millpond.retry import read_pause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.blueprints.studio.grammar import Copy, Tone
    from millpond.blueprints.studio.products import Product
    from millpond.outbound.outbound import Answer, Outbound
    from millpond.settings import Settings

SECONDS_MAX: Final = 60.0
SIZE_MAX: Final = 512 * 1024
_TEXT_MAX: Final = 2_000
_CALL_MAX: Final = 60
_TAGS_MAX: Final = 10
_LATER: Final = frozenset({408, 409, 425, 429})
_OK: Final = 200
_NOT_SO: Final = frozenset({400, 422})
_OURS: Final = 500
_RULES: Final = """\
You write advertising copy. Use only the facts you are given about the product; invent nothing. Answer with one JSON \
object and nothing else, with exactly these members: "headlines" (an array of {headlines} short headlines), "body" \
(two to four sentences), "call_to_action" (two to four words), "hashtags" (an array of up to six), "script" (what a \
person says to the camera in about twenty seconds, without stage directions). The tone is {tone}."""


def _array(most: int) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "maxItems": most}


def _formats(headlines: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The forms in which an answer is asked for: by its schema, and where that is not known, any JSON."""
    text = {"type": "string"}
    members = {
        "headlines": _array(headlines),
        "body": text,
        "call_to_action": text,
        "hashtags": _array(6),
        "script": text,
    }
    schema = {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "copy", "schema": schema}}, {"type": "json_object"}


async def write(
    outbound: Outbound, settings: Settings, product: Product, *, tone: Tone, seed: int, headlines: int
) -> Copy:
    """Have the model write; an operator chose its address, which is open to this call alone."""
    url = f"{(settings.chat_url or '').rstrip('/')}/chat/completions"
    asked = {
        "model": settings.chat_model,
        "messages": [
            {"role": "system", "content": _RULES.format(headlines=headlines, tone=tone)},
            {"role": "user", "content": _facts(product)},
        ],
        "temperature": 0.9,
        "seed": seed,
        "max_tokens": 900,
    }
    strict, loose = _formats(headlines)
    answer = await _ask(outbound, url, settings.chat_key, asked | {"response_format": strict})
    if answer.status in _NOT_SO:
        answer = await _ask(outbound, url, settings.chat_key, asked | {"response_format": loose})
    _check_status(answer)
    spare = grammar.write(product, tone=tone, seed=seed, headlines=headlines)
    return read(_content(answer.body), spare, headlines)


async def _ask(outbound: Outbound, url: str, key: str | None, asked: dict[str, Any]) -> Answer:
    headers = {"content-type": "application/json", "accept": "application/json"}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    body = msgspec.json.encode(asked)
    try:
        return await outbound.send(
            "POST", url, headers=headers, body=body, seconds=SECONDS_MAX, size_max=SIZE_MAX, may=[url]
        )
    except OutboundFailedError as error:
        raise TransientError(f"The language model could not be asked: {error.message}") from error


def _facts(product: Product) -> str:
    return msgspec.json.encode({"product": product}).decode()


def _check_status(answer: Answer) -> None:
    """What the endpoint says beside its status may name our key, and is not passed on."""
    if answer.status == _OK:
        return
    told = f"The language model answered {answer.status}."
    if answer.status in _LATER or answer.status >= _OURS:
        raise TransientError(told, retry_after=read_pause(answer.headers.get("retry-after", "")))
    raise PermanentError(told, hint="Its settings are MILLPOND_CHAT_URL, MILLPOND_CHAT_KEY and MILLPOND_CHAT_MODEL.")


class _Message(msgspec.Struct):
    content: str = ""


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    choices: list[_Choice]


def _content(body: bytes) -> str:
    try:
        choices = msgspec.json.decode(body, type=_Completion).choices
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return choices[0].message.content if choices else ""


def read(text: str, spare: Copy, headlines: int) -> Copy:
    """The copy in what a model said; what is missing is the spare one's."""
    found = _object(text)
    titles = _texts(found.get("headlines") or found.get("headline"), grammar.HEADLINE_MAX)
    body = _text(found.get("body"), _TEXT_MAX)
    if not titles and not body:
        raise TransientError("The language model's answer could not be read.")
    tags = ["#" + re.sub(r"\W", "", tag) for tag in _texts(found.get("hashtags"), _CALL_MAX)]
    return grammar.Copy(
        headlines=[*titles, *(title for title in spare.headlines if title not in titles)][:headlines],
        body=body or spare.body,
        call_to_action=_text(found.get("call_to_action"), _CALL_MAX) or spare.call_to_action,
        hashtags=[tag for tag in dict.fromkeys(tags) if len(tag) > 1][:_TAGS_MAX] or spare.hashtags,
        script=_text(found.get("script"), grammar.SCRIPT_MAX) or spare.script,
    )


def _object(text: str) -> dict[str, Any]:
    """The JSON object in a text: models like to put fences or words around it."""
    first, last = text.find("{"), text.rfind("}")
    try:
        found = msgspec.json.decode(text[first : last + 1].encode()) if 0 <= first < last else None
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _texts(given: Any, most: int) -> Sequence[str]:
    parts = (
        cast("list[Any]", given)
        if isinstance(given, list)
        else re.split(r"[\n,]", given)
        if isinstance(given, str)
        else []
    )
    return list(dict.fromkeys(filter(None, (_text(part, most) for part in parts[:20]))))


def _text(given: Any, most: int) -> str:
    text = " ".join(values.printable(given, most * 4).split()) if isinstance(given, str) else ""
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0]
