"""Personas: invented people who fit a project. The same seed yields the same persona."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond_products.partner import planning
from millpond_products.partner.resources import SQL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond.product import Engine
    from millpond_products.partner.orders import ContentOrder, InfluencerOrder

_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "woman": (
        *("Mia", "Lena", "Amara", "Sofia", "Priya", "Noor", "Clara", "Yuki", "Zoe", "Ines"),
        *("Maya", "Elena", "Freya", "Leila", "Hana"),
    ),
    "man": (
        *("Noah", "Jonas", "Kofi", "Mateo", "Arjun", "Omar", "Felix", "Kenji", "Leo", "Tomas"),
        *("Malik", "Emil", "Rafael", "Samir", "Oscar"),
    ),
}
_SURNAMES: Final = (
    *("Keller", "Okafor", "Moreno", "Lindqvist", "Sharma", "Haddad", "Novak", "Tanaka", "Brooks", "Costa"),
    *("Meyer", "Duarte", "Bennett", "Adeyemi", "Laurent", "Rossi"),
)
_HOMES: Final = (
    *("Lisbon", "Berlin", "Austin", "Cape Town", "Copenhagen", "Montreal", "Melbourne", "Barcelona", "Portland"),
    *("Edinburgh", "Vienna", "Nairobi", "Bristol", "Toronto", "Utrecht", "Denver"),
)
_AGES: Final[Mapping[str, tuple[int, int]]] = {
    "18-24": (19, 24),
    "25-34": (25, 34),
    "35-44": (35, 44),
    "45-60": (45, 60),
}
_TONES: Final[Mapping[str, Sequence[str]]] = {
    "warm": ("talks to followers as to friends", "answers every question, also the silly ones"),
    "dry": ("says in one line what others say in ten", "never uses two words where one will do"),
    "curious": ("tries everything once, and says what happened", "asks the question that nobody asks"),
    "energetic": ("posts before breakfast", "cannot sit still, least of all on camera"),
    "calm": ("takes the time that a thing needs", "shows the quiet side of a loud subject"),
}
_STYLE_TONES: Final[Mapping[str, Sequence[str]]] = {
    "lifestyle": ("warm", "curious", "calm"),
    "minimal": ("calm", "dry"),
    "bold": ("energetic", "dry"),
    "elegant": ("calm", "warm"),
    "playful": ("energetic", "warm", "curious"),
    "tech": ("curious", "dry"),
}
_JOBS: Final = (
    *("a teacher", "a nurse", "a product designer", "a baker", "a photographer", "a physiotherapist"),
    *("a software tester", "a gardener", "a journalist", "an architect", "a barista", "a music teacher"),
)
_INTERESTS: Final = (
    *("trail running", "film cameras", "sourdough", "city walks", "board games", "second-hand books", "climbing"),
    *("ceramics", "night trains", "houseplants", "street food", "open-water swimming", "jazz", "cycling", "sketching"),
)
_VOICES: Final[Mapping[str, Sequence[str]]] = {
    "woman": ("en-us-woman", "en-gb-woman"),
    "man": ("en-us-man", "en-gb-man"),
}
"""The voices of the local renderer's model for videos."""
_SHE: Final = re.compile(r"\b(?:she|her|woman|female|mother|mum|mom|girl|lady|actress|businesswoman)\b", re.IGNORECASE)
_HE: Final = re.compile(r"\b(?:he|his|him|man|male|father|dad|boy|guy|gentleman)\b", re.IGNORECASE)
_YEARS: Final = re.compile(r"\b(?P<years>1[89]|[2-7]\d)(?:[ -]?(?:years?[ -]old|yo)|s)\b", re.IGNORECASE)
_OLDEST: Final = 60


class Persona(msgspec.Struct, kw_only=True, rename="camel"):
    """An invented person."""

    name: str
    presents: str
    age: int
    age_band: str
    home: str
    occupation: str
    voice: str
    tone: str
    interests: list[str]
    bio: str


def persona(order: InfluencerOrder) -> Persona:
    chance = random.Random(f"{order.seed}/{order.brief}")  # noqa: S311 - reproducible on purpose
    presents, years = _presents(order, chance), _age(order.brief, chance)
    name = order.name or f"{chance.choice(_NAMES[presents])} {chance.choice(_SURNAMES)}"
    home, occupation = chance.choice(_HOMES), chance.choice(_JOBS)
    tone = chance.choice(_STYLE_TONES[order.style])
    interests = _interests(order.context, chance)
    return Persona(
        name=name,
        presents=presents,
        age=years,
        age_band=next((band for band, (_, maximum) in _AGES.items() if years <= maximum), list(_AGES)[-1]),
        home=home,
        occupation=occupation,
        voice=chance.choice(_VOICES[presents]),
        tone=tone,
        interests=interests,
        bio=_bio(order, name, (home, occupation, tone), interests, chance),
    )


def _presents(order: InfluencerOrder, chance: random.Random) -> str:
    """The gender that the brief or the name implies; otherwise a random one."""
    first = (order.name or "").partition(" ")[0]
    for presents, words in (("woman", _SHE), ("man", _HE)):
        if words.search(order.brief) or first in _NAMES[presents]:
            return presents
    return chance.choice(sorted(_NAMES))


def _age(brief: str, chance: random.Random) -> int:
    found = _YEARS.search(brief)
    if found is not None:
        return min(int(found["years"]), _OLDEST)
    minimum, maximum = _AGES[chance.choice(("18-24", "25-34", "25-34", "35-44", "45-60"))]
    return chance.randint(minimum, maximum)


def _interests(context: Mapping[str, Any], chance: random.Random) -> list[str]:
    """The interests; topics of the project come first."""
    summary: Mapping[str, Any] = context.get("summary") or {}
    words = [str(summary.get("category") or ""), *map(str, summary.get("keywords") or [])]
    own = [word.lower() for word in words if 2 < len(word) <= 30][:2]  # noqa: PLR2004 - words, not sentences
    return list(dict.fromkeys([*own, *chance.sample(_INTERESTS, 3)]))


def _bio(
    order: InfluencerOrder, name: str, who: tuple[str, str, str], interests: Sequence[str], chance: random.Random
) -> str:
    """Three sentences: who they are, how they are, and what they have to do with the project."""
    home, occupation, tone = who
    first = name.partition(" ")[0]
    summary: Mapping[str, Any] = order.context.get("summary") or {}
    project = planning.short_name(str(summary.get("name") or "")) or "the project"
    about = f"{interests[0]} and {interests[1]}"
    return " ".join(
        (
            f"{name} is {occupation} from {home}.",
            f"{first} posts about {about}, and {chance.choice(_TONES[tone])}.",
            chance.choice((f"{first} uses {project} and shows how.", f"With {project} {first} has something to show.")),
        )
    )


async def find(engine: Engine, job: Any, order: ContentOrder) -> dict[str, Any] | None:
    """The persona of the influencer to show; None if the order names no influencer."""
    if order.influencer_id is None:
        return None
    arguments = (job.tenant, job.account, order.project_id, order.influencer_id, "influencer")
    row = await engine.database(job.tenant).read(SQL["read"], *arguments)
    made = None if row is None or row["made"] is None else msgspec.json.decode(row["made"])
    return None if made is None else made["output"].get("persona")
