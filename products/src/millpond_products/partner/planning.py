"""Planning: what a piece of content says and shows, from its project's context. The same seed yields the same plan.

A plan is an angle, which is a sequence of beats, and words for each beat. It states only known facts about the project.
A clone keeps the angle and its beats, and has other words.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millpond_products.partner.orders import ContentOrder

SCRIPT_MAX: Final = 420
_HEADLINE_MAX: Final = 90
_NAME_MAX: Final = 48
_POINT_MAX: Final = 70
_SENTENCE_MIN: Final = 16
_SENTENCE_MAX: Final = 150
_HEADLINES: Final = 4
"""The maximum number of images in a container."""

_ANGLES: Final[Mapping[str, Sequence[str]]] = {
    "discovery": ("hook", "product", "point", "call"),
    "problem": ("trouble", "turn", "point", "call"),
    "tour": ("hook", "point", "second_point", "call"),
    "story": ("before", "turn", "product", "call"),
    "launch": ("news", "product", "audience", "call"),
}
"""The beats of each angle."""

_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "hook": (
        "You have to see {name}.",
        "Here is something worth a minute: {name}.",
        "Okay, let me show you {name}.",
        "This is {name}, and it is about {topic}.",
        "If {topic} is your thing, meet {name}.",
        "Looking for {topic}? This is {name}.",
    ),
    "trouble": (
        "{Topic} should not be this hard.",
        "Everybody talks about {topic}. Few make it easy.",
        "Be honest: {topic} takes more time than it should.",
        "Too many tabs, too little done. Sound familiar?",
        "There has to be an easier way. There is.",
    ),
    "before": (
        "I used to put things off.",
        "A month ago I would have done this by hand.",
        "I had given up on {topic}.",
        "I had tried a few of these before.",
    ),
    "turn": (
        "Then I found {name}.",
        "Then somebody told me about {name}.",
        "That is where {name} comes in.",
        "{Name} changes that.",
    ),
    "product": ("{sentence}", "In short: {a_sentence}", "What it is? {sentence}"),
    "point": ("{Point}, right there.", "What I like most: {point}.", "The best part? {Point}."),
    "second_point": ("And then there is {second}.", "Also: {second}.", "On top of that: {second}."),
    "audience": (
        "It is made for {audience}.",
        "If you are one of the {audience} out there, this is yours.",
        "Made with {audience} in mind.",
    ),
    "news": (
        "{name} is here.",
        "It is out: {name}.",
        "Say hello to {name}.",
        "Something new for {audience}: {name}.",
        "News for everybody who cares about {topic}: {name}.",
    ),
    "call": (
        "Go and try {name} today.",
        "Have a look at {name}.",
        "Try it, and tell me what you think.",
        "See for yourself: {name}.",
        "Give {name} five minutes.",
    ),
}
_FALLBACKS: Final[Mapping[str, str]] = {
    "product": "{Name} does one thing, and does it well.",
    "point": "It simply works.",
    "second_point": "And it stays out of your way.",
    "audience": "It is made for people like you.",
}
"""The words of a beat for which no fact is known."""
_TITLES: Final = (
    "Meet {name}",
    "{Topic}, made easy",
    "{Name}: {point}",
    "{Name} for {audience}",
    "Less effort. More {topic}.",
    "This is {name}",
    "{Point}. That's {name}.",
    "Your next step: {name}",
    "{Audience}, this one is for you",
    "{Name} is here",
    "Start with {name}",
    "See what {name} can do",
)
_CALLS: Final = ("Try it now", "Get started", "Take a look", "Learn more", "See how", "Get it today")
_SHOWS: Final[Mapping[str, str]] = {
    "hook": "a face, close to the camera",
    "trouble": "a desk that is too full",
    "before": "a quiet room in the morning",
    "turn": "a hand that picks it up",
    "product": "{name}, large and in the middle",
    "point": "{name} in use",
    "second_point": "a detail of {name}",
    "audience": "people who use it",
    "news": "{name}, coming into the light",
    "call": "{name} with a button below it",
}
_AUDIENCE: Final = re.compile(r"\b(?:for|at|to|reach(?:ing)?) ((?:[\w'-]+ ){0,3}[\w'-]{3,}s)\b", re.IGNORECASE)
_FOCUS: Final = re.compile(
    r"\b(?:about|focus(?:ing)? on|highlight(?:ing)?|show(?:ing)?|mention(?:ing)?|stress(?:ing)?) "
    r"(?P<what>[^.;!?\n]{3,70})",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(
    r"(?<!\w)(?:\"(?P<plain>[^\"\n]{3,90})\"|“(?P<curly>[^“”\n]{3,90})”|«(?P<pointed>[^«»\n]{3,90})»)(?!\w)"
)
"""A quotation mark after a word or a number does not open a quotation: it means inches, or has no partner."""
_HOLES: Final = re.compile(r"\{(\w+)\}")
_MARKUP: Final = re.compile(r"https?://\S+|[#*_`>|\[\]<]+")


class Scene(msgspec.Struct, kw_only=True):
    """One beat of a plan."""

    beat: str
    shows: str
    says: str


class Plan(msgspec.Struct, kw_only=True, rename="camel"):
    """What a container is made from."""

    angle: str
    headline: str
    headlines: list[str]
    """One for each image."""
    description: str
    script: str
    call_to_action: str
    scenes: list[Scene]
    style: str
    aspect_ratio: str
    product: str
    presenter: str | None = None
    """The influencer who speaks."""


def plan(order: ContentOrder, presenter: Mapping[str, Any] | None = None) -> Plan:
    chance = random.Random(f"{order.seed}/{order.brief}")  # noqa: S311 - reproducible on purpose
    source = _source(order)
    facts = _facts(order, chance)
    angle, beats = _structure(source, chance)
    used = _old_words(source)
    scenes = [_scene(beat, facts, chance, used) for beat in beats]
    headlines = _headlines(order.brief, facts, chance, used)
    return Plan(
        angle=angle,
        headline=headlines[0],
        headlines=headlines[: order.images],
        description=facts.get("sentence", ""),
        script=_script(scenes, presenter),
        call_to_action=_chosen([call for call in _CALLS if call not in used] or _CALLS, chance),
        scenes=scenes,
        style=order.style,
        aspect_ratio=order.aspect_ratio,
        product=facts["name"],
        presenter=None if presenter is None else str(presenter.get("name")),
    )


def _source(order: ContentOrder) -> Plan | None:
    """The plan that is reused; None if it does not have the current form."""
    try:
        found = msgspec.convert(order.plan, Plan)
    except msgspec.ValidationError:
        return None
    return found if found.scenes and {scene.beat for scene in found.scenes} <= _WORDS.keys() else None


def _structure(source: Plan | None, chance: random.Random) -> tuple[str, list[str]]:
    """The angle and its beats: those of the source, if there is one."""
    if source is not None:
        return source.angle, [scene.beat for scene in source.scenes]
    angle = chance.choice(sorted(_ANGLES))
    return angle, list(_ANGLES[angle])


def _old_words(source: Plan | None) -> set[str]:
    """The words that a clone does not repeat."""
    if source is None:
        return set()
    return {*source.headlines, source.call_to_action, *(scene.says for scene in source.scenes)}


# The facts, as they stand in a sentence


def _facts(order: ContentOrder, chance: random.Random) -> dict[str, str]:
    summary: dict[str, Any] = order.context.get("summary") or {}
    name = short_name(str(summary.get("name") or "")) or "the project"
    words: list[Any] = summary.get("keywords") or []
    keywords = [word for word in (_plain(str(word)) for word in words) if word]
    points = _points(order.brief, keywords)
    chance.shuffle(points)
    sentences = _sentences(str(summary.get("description") or ""))
    category = _plain(str(summary.get("category") or "")).lower()
    found = {
        "name": name,
        "topic": category or next((word for word in keywords if " " not in word), ""),
        "point": points[0] if points else "",
        "second": points[1] if len(points) > 1 else "",
        "sentence": sentences[0] if sentences else "",
        "a_sentence": _lowered(sentences[0]) if sentences else "",
        "audience": _audience(order.brief),
    }
    facts = {word: text for word, text in found.items() if text}
    return facts | {word.capitalize(): _raised(text) for word, text in facts.items()}


def _points(brief: str, keywords: Sequence[str]) -> list[str]:
    """Short points about the project: what the brief stresses, and the keywords."""
    stressed = [_plain(found["what"]) for found in _FOCUS.finditer(brief)]
    parts = [part.strip() for text in stressed for part in re.split(r",| and ", text)]
    found = [part for part in (*parts, *keywords) if 2 < len(part) <= _POINT_MAX]  # noqa: PLR2004 - a word
    return list(dict.fromkeys(found))


def _audience(brief: str) -> str:
    found = _AUDIENCE.search(_QUOTED.sub("", brief))
    return clipped(_plain(found[1]), _NAME_MAX).lower() if found else ""


def _sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.!?])\s+", _plain(text))
    return [
        part if part.endswith((".", "!", "?")) else f"{part}."
        for part in parts
        if _SENTENCE_MIN <= len(part) <= _SENTENCE_MAX
    ]


def short_name(name: str) -> str:
    """The name without what is added for search engines after a bar or a dash."""
    return clipped(re.split(r"\s+[|–—•·:]\s+|\s+-\s+|:\s", " ".join(name.split()))[0], _NAME_MAX)


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub(" ", text).split()).strip(" ,;:-")


def _raised(text: str) -> str:
    return text[0].upper() + text[1:]


def _lowered(text: str) -> str:
    """The form after a colon. A name at the beginning stays as it is."""
    first = text.partition(" ")[0]
    return text[0].lower() + text[1:] if first in {"A", "An", "The", "It", "Your", "All", "One"} else text


def clipped(text: str, limit: int) -> str:
    """The text, cut to ``limit`` at the end of a word."""
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    cut = text[:limit].rsplit(" ", 1)[0] if " " in text[:limit] else text[:limit]
    return cut.rstrip(" ,;:–—-")


# The words


def _scene(beat: str, facts: Mapping[str, str], chance: random.Random, used: set[str]) -> Scene:
    fitting = _fitting(_WORDS[beat], facts) or _fitting([_FALLBACKS.get(beat, "{Name}.")], facts)
    says = _chosen([text for text in fitting if text not in used] or fitting, chance)
    return Scene(beat=beat, shows=_SHOWS[beat].format_map(facts), says=says)


def _headlines(brief: str, facts: Mapping[str, str], chance: random.Random, used: set[str]) -> list[str]:
    """As many headlines as a container may have images. Quotations in the brief come first, and are not changed."""
    fitting = [text for text in _fitting(_TITLES, facts) if len(text) <= _HEADLINE_MAX]
    fresh = [text for text in fitting if text not in used]
    quoted = [clipped(found[found.lastgroup or 0], _HEADLINE_MAX) for found in _QUOTED.finditer(brief)]
    worded = [text for text in quoted if re.search(r"\w", text)]
    chosen = list(dict.fromkeys([*worded, *chance.sample(fresh, len(fresh)), *fitting, facts["Name"]]))
    return (chosen * _HEADLINES)[:_HEADLINES]


def _fitting(templates: Iterable[str], facts: Mapping[str, str]) -> list[str]:
    """The texts of the templates for which all facts are known."""
    known = [text for text in templates if set(_HOLES.findall(text)) <= facts.keys()]
    return [_raised(text.format_map(facts)) for text in known]


def _chosen(texts: Sequence[str], chance: random.Random) -> str:
    return chance.choice(list(texts))


def _script(scenes: Sequence[Scene], presenter: Mapping[str, Any] | None) -> str:
    """The spoken text: every beat that there is time for, and always the last one."""
    opening = [] if presenter is None else [f"Hi, I'm {str(presenter.get('name')).partition(' ')[0]}."]
    *body, last = [scene.says for scene in scenes]
    sentences = list(opening)
    for sentence in body:
        if len(" ".join([*sentences, sentence, last])) <= SCRIPT_MAX:
            sentences.append(sentence)
    return " ".join([*sentences, last])
