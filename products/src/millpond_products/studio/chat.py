"""Copy written by a language model, at any endpoint that is compatible with OpenAI's (``POST …/chat/completions``).

The request contains a JSON schema, to which even small models then keep; an endpoint that does not support schemas is
asked for any JSON. The answer is read leniently: the grammar fills in missing parts, and only an answer with nothing
usable is retried.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond import values
from millpond.errors import OutboundFailedError, PermanentError, TransientError
from millpond.retry import read_pause
from millpond_products.studio import grammar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.product import Outbound, OutboundResponse
    from millpond_products.settings import ProductSettings
    from millpond_products.studio.grammar import Copy, Tone
    from millpond_products.studio.products import ProductFacts

SECONDS_MAX: Final = 60.0
SIZE_MAX: Final = 512 * 1024
_TEXT_MAX: Final = 2_000
_CALL_MAX: Final = 60
_TAGS_MAX: Final = 10
_RETRYABLE: Final = frozenset({408, 409, 425, 429})
_OK: Final = 200
_UNSUPPORTED: Final = frozenset({400, 422})
_SERVER_ERROR: Final = 500
_RULES: Final = """\
You write advertising copy. Use only the facts you are given about the product; invent nothing. Answer with one JSON \
object and nothing else, with exactly these members: "headlines" (an array of {headlines} short headlines), "body" \
(two to four sentences), "call_to_action" (two to four words), "hashtags" (an array of up to six), "script" (what a \
person says to the camera in about twenty seconds, without stage directions). The tone is {tone}."""


def _array(limit: int) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "maxItems": limit}


def _formats(headlines: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The response formats to request: a JSON schema, and any JSON where schemas are not supported."""
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
    outbound: Outbound, settings: ProductSettings, product: ProductFacts, *, tone: Tone, seed: int, headlines: int
) -> Copy:
    """Have the model write. The operator configures its URL, so this call may reach it even inside the network."""
    url = f"{(settings.chat_url or '').rstrip('/')}/chat/completions"
    request = {
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
    answer = await _ask(outbound, url, settings.chat_key, request | {"response_format": strict})
    if answer.status in _UNSUPPORTED:
        answer = await _ask(outbound, url, settings.chat_key, request | {"response_format": loose})
    _check_status(answer)
    spare = grammar.write(product, tone=tone, seed=seed, headlines=headlines)
    return read(_content(answer.body), spare, headlines)


async def _ask(outbound: Outbound, url: str, key: str | None, request: dict[str, Any]) -> OutboundResponse:
    headers = {"content-type": "application/json", "accept": "application/json"}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    body = msgspec.json.encode(request)
    try:
        return await outbound.send(
            "POST", url, headers=headers, body=body, seconds=SECONDS_MAX, size_max=SIZE_MAX, may=[url]
        )
    except OutboundFailedError as error:
        raise TransientError(f"The language model could not be reached: {error.message}") from error


def _facts(product: ProductFacts) -> str:
    return msgspec.json.encode({"product": product}).decode()


def _check_status(answer: OutboundResponse) -> None:
    """Raise an error for any other status than 200, without the response's body, which may contain the API key."""
    if answer.status == _OK:
        return
    message = f"The language model answered {answer.status}."
    if answer.status in _RETRYABLE or answer.status >= _SERVER_ERROR:
        raise TransientError(message, retry_after=read_pause(answer.headers.get("retry-after", "")))
    raise PermanentError(message, hint="Check MILLPOND_CHAT_URL, MILLPOND_CHAT_KEY and MILLPOND_CHAT_MODEL.")


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
    """The copy in a model's answer; missing parts are taken from ``spare``."""
    found = _object(text)
    titles = _texts(found.get("headlines") or found.get("headline"), grammar.HEADLINE_MAX)
    body = _text(found.get("body"), _TEXT_MAX)
    if not titles and not body:
        raise TransientError("The response of the language model is invalid.")
    tags = ["#" + re.sub(r"\W", "", tag) for tag in _texts(found.get("hashtags"), _CALL_MAX)]
    return grammar.Copy(
        headlines=[*titles, *(title for title in spare.headlines if title not in titles)][:headlines],
        body=body or spare.body,
        call_to_action=_text(found.get("call_to_action"), _CALL_MAX) or spare.call_to_action,
        hashtags=[tag for tag in dict.fromkeys(tags) if len(tag) > 1][:_TAGS_MAX] or spare.hashtags,
        script=_text(found.get("script"), grammar.SCRIPT_MAX) or spare.script,
    )


def _object(text: str) -> dict[str, Any]:
    """The JSON object in a text: models often put code fences or words around it."""
    first, last = text.find("{"), text.rfind("}")
    try:
        found = msgspec.json.decode(text[first : last + 1].encode()) if 0 <= first < last else None
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _texts(given: Any, limit: int) -> Sequence[str]:
    parts = (
        cast("list[Any]", given)
        if isinstance(given, list)
        else re.split(r"[\n,]", given)
        if isinstance(given, str)
        else []
    )
    return list(dict.fromkeys(filter(None, (_text(part, limit) for part in parts[:20]))))


def _text(given: Any, limit: int) -> str:
    text = " ".join(values.printable(given, limit * 4).split()) if isinstance(given, str) else ""
    return text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0]
